"""`--on-impact CMD`: the caller's command, run for everything that happens to a VM."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from collections.abc import Sequence

from forewarn.core.errors import Invalid
from forewarn.core.suggestions import shown
from forewarn.emulator.impacts import Impact, Receiver

COMMAND_S_MAX = 60.0


def read_command(text: str) -> tuple[str, ...]:
    """The command as a shell would split it. Raises Invalid."""
    accepted = "Write a program and its arguments, like `sh impact.sh`; no shell reads it."
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise Invalid(f"--on-impact {shown(text)} is refused: {error}.", accepted) from None
    if not words:
        raise Invalid("--on-impact is empty.", accepted)
    return words


def impact_command(words: Sequence[str]) -> Receiver:
    """Runs the command with four words more: impact, VM, event type, EventId.

    There is a fifth, `empty-disk`, where a VM starts without what was on its local disks.

    What it prints goes to stderr. It is waited for, since the VM is in that state afterwards, and
    ended if it takes longer than COMMAND_S_MAX; what it has left in the background goes on.
    """

    async def do(impact: Impact) -> str | None:
        full = (*words, impact.kind.value, impact.vm, impact.event_type, impact.event_id)
        if impact.lose_disk:
            full = (*full, "empty-disk")
        return await asyncio.to_thread(_run, full)

    return do


def _run(words: Sequence[str]) -> str | None:
    """Run it to its end; how it went wrong, if it did."""
    said = shlex.join(words)
    try:
        ended = subprocess.run(  # noqa: S603 - the caller's own command, without a shell
            words,
            check=False,
            timeout=COMMAND_S_MAX,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
        )
    except subprocess.TimeoutExpired:
        return f"{said} took longer than {COMMAND_S_MAX:g} s"
    except OSError as error:
        return f"{said} cannot be run: {error.strerror or error}"
    return f"{said} ended with {ended.returncode}" if ended.returncode else None
