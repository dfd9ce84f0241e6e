"""Commands of the operator: templates that schedule, cancel and turn the clock.

A template is split like a shell would split it, its placeholders are filled in, and it is run
without a shell, with a time limit.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Mapping

from forewarn.verify.check import shown
from forewarn.verify.documents import EVENT_TYPES
from forewarn.verify.options import BadOptions, OperatorFailed

COMMAND_TIMEOUT_S = 60.0

# Braces around anything but one word, such as those of a JSON body, are left as they are.
_PLACEHOLDER = re.compile(r"\{(\w+)\}")

# What an operator says to have an event of a type; the words of `forewarn vm`.
VERBS = {
    "Reboot": "restart",
    "Redeploy": "redeploy",
    "Freeze": "freeze",
    "Preempt": "evict",
    "Terminate": "delete",
}


class Template:
    """One command with placeholders."""

    def __init__(self, text: str, option: str, *placeholders: str) -> None:
        try:
            self._words = shlex.split(text)
        except ValueError as error:
            raise BadOptions(f"{option} {shown(text)}: {error}.") from None
        if not self._words:
            raise BadOptions(f"{option} is empty; give a command.")
        unknown = sorted(set(_PLACEHOLDER.findall(text)) - set(placeholders))
        if unknown:
            known = ", ".join(f"{{{name}}}" for name in placeholders)
            raise BadOptions(f"{option} has {{{unknown[0]}}}; {known} would be filled in.")

    def run(self, values: Mapping[str, str]) -> None:
        """Run it with the placeholders filled in. Raises OperatorFailed unless it ends with 0."""
        words = [_PLACEHOLDER.sub(lambda m: values[m[1]], word) for word in self._words]
        said = shlex.join(words)
        try:
            ended = subprocess.run(  # noqa: S603 - the operator's own command, without a shell
                words,
                check=False,
                timeout=COMMAND_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except subprocess.TimeoutExpired:
            raise OperatorFailed(f"`{said}` did not end in {COMMAND_TIMEOUT_S:g} s") from None
        except (OSError, ValueError) as error:
            raise OperatorFailed(f"`{said}` could not be run: {error}") from None
        if ended.returncode:
            output = " ".join(ended.stdout.decode("utf-8", "replace").split())
            raise OperatorFailed(f"`{said}` ended with {ended.returncode}: {output}")


def operator(texts: list[str], types: list[str]) -> tuple[Callable[[str, str], None], list[str]]:
    """What schedules an event, and the types that it can schedule.

    A text is a command for all `types`, or TYPE=COMMAND for one of them, which wins.
    """
    general: Template | None = None
    single: dict[str, Template] = {}
    for text in texts:
        event_type, equals, command = text.partition("=")
        if equals and event_type in EVENT_TYPES:
            single[event_type] = _template(command)
        elif general is not None:
            raise BadOptions(
                "--operator is given twice for the same types; TYPE=CMD, for instance "
                "'Freeze=CMD', would be accepted beside CMD."
            )
        else:
            general = _template(text)
    able = [*(types if general is not None else ()), *(t for t in single if t not in types)]
    if general is None:
        able = list(single)

    def schedule(event_type: str, vm: str) -> None:
        template = single.get(event_type, general)
        if template is None:
            raise OperatorFailed(f"no command schedules a {event_type}")
        template.run({"type": event_type, "verb": VERBS[event_type], "vm": vm})

    return schedule, able


def _template(text: str) -> Template:
    return Template(text, "--operator", "type", "verb", "vm")


def cancel(text: str) -> Callable[[str], None]:
    """What cancels an event."""
    template = Template(text, "--cancel", "event")
    return lambda event_id: template.run({"event": event_id})


def advance(text: str) -> Callable[[int], None]:
    """What turns the clock."""
    template = Template(text, "--advance", "seconds")
    return lambda seconds: template.run({"seconds": str(seconds)})
