"""Reading a scenario: TOML text in, a `Scenario` out, or every mistake in it with its line.

Only what can be judged from the text alone is judged here. Whether a fleet has what a scenario
needs, and whether an order is taken when its time has come, is `scenario_runner`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forewarn.control.toml_lines import NotToml, Path, TomlLines, read
from forewarn.core.errors import Invalid
from forewarn.core.spelling import first_of, meant, shown
from forewarn.emulator.scenario import Needs, Scenario, Step, Verb, Whom
from forewarn.emulator.scenario_keys import KEYS, KEYS_OF, Wrong, misfits, usual_place

SCENARIO_BYTES_MAX = 64 * 1_024
STEPS_MAX = 500
TITLE_CHARS_MAX = 100
ABOUT_CHARS_MAX = 4_000
NEEDED_MAX = 9_999

_OF_FILE = ("title", "about", "needs", "step")
_COUNTED = ("vms", "domains", "hosts")
_NEEDS = (*_COUNTED, "spot")


class BadScenario(Invalid):
    """The script is wrong. Nothing of it was run."""


class _Mistakes:
    """Everything that is wrong with a script. An empty path is the script as a whole."""

    def __init__(self) -> None:
        self.found: list[tuple[Path, str]] = []

    def add(self, path: Path, words: str) -> None:
        self.found.append((path, words))

    def of(self, index: int, verb: str, key: str, words: str) -> None:
        """A mistake of one step."""
        self.add(("step", index, key), f"step {index + 1} ({verb}): {words}")


def parse(text: str, *, name: str) -> Scenario:
    """The scenario of a script. Raises BadScenario with every mistake, its line and its remedy."""
    written = _toml(text, name)
    mistakes = _Mistakes()
    for key in written:
        if key not in _OF_FILE:
            mistakes.add((key,), f"a scenario has no {shown(key)}. {meant(key, _OF_FILE)}")
    title = _title(written.get("title"), mistakes)
    about = _about(written.get("about", ""), mistakes)
    steps = _steps(written.get("step", []), mistakes)
    needs = _needs(written.get("needs", {}), steps, mistakes)
    if mistakes.found:
        raise BadScenario(_in_words(text, name, mistakes), "Nothing of it was run.")
    return Scenario(name=name, title=title, about=about, needs=needs, steps=steps, text=text)


def _toml(text: str, name: str) -> dict[str, Any]:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise BadScenario(
            f"Scenario {name} was refused: line {line}: a character is half of a surrogate pair.",
            "Write the script in UTF-8.",
        ) from None
    if size > SCENARIO_BYTES_MAX:
        raise BadScenario(
            f"Scenario {name} has {size} bytes.", f"Up to {SCENARIO_BYTES_MAX} are accepted."
        )
    try:
        return read(text)
    except NotToml as error:
        where = f"line {error.line}: " if error.line else ""
        raise BadScenario(
            f"Scenario {name} was refused: {where}{error.words}.", "Nothing of it was run."
        ) from None


def _in_words(text: str, name: str, mistakes: _Mistakes) -> str:
    lines = TomlLines(text)
    placed = [(lines.line_of(*path) if path else 0, words) for path, words in mistakes.found]
    said = first_of([f"line {line}: {words}" if line else words for line, words in sorted(placed)])
    if len(said) == 1:
        return f"Scenario {name} was refused: {said[0]}"
    return "\n".join([f"Scenario {name} was refused:", *said])


def _title(value: object, mistakes: _Mistakes) -> str:
    if value is None:
        mistakes.add((), 'the title is missing. Write title = "..." in the first line.')
    elif isinstance(value, str) and value.isprintable() and 0 < len(value) <= TITLE_CHARS_MAX:
        return value
    else:
        mistakes.add(
            ("title",),
            f"title = {shown(value)} is refused. Accepted: one line of text, up to "
            f"{TITLE_CHARS_MAX} characters.",
        )
    return ""


def _about(value: object, mistakes: _Mistakes) -> str:
    if isinstance(value, str) and len(value) <= ABOUT_CHARS_MAX:
        about = value.strip()
        if all(word.isprintable() for word in about.split()):
            return about
    mistakes.add(
        ("about",),
        f"about is refused. Accepted: printable text of up to {ABOUT_CHARS_MAX} characters.",
    )
    return ""


def _needs(written: object, steps: tuple[Step, ...], mistakes: _Mistakes) -> Needs:
    """What the script says it needs, and no less than what its steps speak of."""
    if not isinstance(written, dict):
        mistakes.add(("needs",), "needs is not a table. Write needs = { domains = 3 }.")
        return Needs()
    values: dict[str, Any] = {}
    for key, value in written.items():
        good = isinstance(value, bool) if key == "spot" else _is_count(value)
        if key not in _NEEDS:
            mistakes.add(("needs", key), f"nothing needs {shown(key)}. {meant(key, _NEEDS)}")
        elif not good:
            accepted = (
                "true or false" if key == "spot" else f"a whole number from 1 to {NEEDED_MAX}"
            )
            mistakes.add(
                ("needs", key), f"needs: {key} = {shown(value)} is refused. Accepted: {accepted}."
            )
        else:
            values[key] = value
    for step in steps:
        if step.on is not None and step.on.whom in (Whom.VM, Whom.DOMAIN):
            key = "vms" if step.on.whom is Whom.VM else "domains"
            values[key] = max(values.get(key, 1), step.on.number)
    return Needs(**values)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= NEEDED_MAX


# Steps.


def _steps(written: object, mistakes: _Mistakes) -> tuple[Step, ...]:
    if not isinstance(written, list) or not all(isinstance(one, dict) for one in written):
        mistakes.add(("step",), "step is not a list of tables. Write each as [[step]].")
        return ()
    if not written:
        mistakes.add((), "the scenario has no step. Write at least one [[step]] with at and do.")
    if len(written) > STEPS_MAX:
        mistakes.add(
            ("step", STEPS_MAX), f"{len(written)} steps are too many. Up to {STEPS_MAX} are taken."
        )
        return ()
    steps: list[Step] = []
    for index, table in enumerate(written):
        step = _step(index, table, mistakes)
        if step is not None:
            steps.append(step)
    _judge_together(written, steps, mistakes)
    return tuple(steps)


def _step(index: int, table: Mapping[str, object], mistakes: _Mistakes) -> Step | None:
    """One step, or None if what it says cannot be understood."""
    said = table.get("do")
    if not isinstance(said, str) or said not in tuple(Verb):
        what = "do is missing." if said is None else f"there is no order {shown(said)}."
        where = ("step", index, "do")
        mistakes.add(where, f"step {index + 1}: {what} {meant(str(said or ''), tuple(Verb))}")
        return None
    verb = Verb(said)
    accepted, required = KEYS_OF[verb]
    before = len(mistakes.found)
    values: dict[str, Any] = {"on": usual_place(verb)}
    for key, value in table.items():
        if key == "do":
            continue
        if key not in accepted:
            what = f"it takes no {key}" if key in KEYS else f"there is no key {shown(key)}"
            mistakes.of(index, verb, key, f"{what}. {meant(key, accepted)}")
            continue
        try:
            values[KEYS[key].field] = KEYS[key].read(value)
        except Wrong as wrong:
            what = str(wrong) or f"{key} = {shown(value)} is refused."
            mistakes.of(index, verb, key, f"{what} Accepted: {KEYS[key].accepted}.")
    for key in required:
        if key not in table:
            words = f"{key} is missing. Write {key} = ..., {KEYS[key].accepted}."
            mistakes.of(index, verb, key, words)
    if len(mistakes.found) > before:
        return None
    step = Step(number=index + 1, verb=verb, **values)
    for key, words in misfits(step):
        mistakes.of(index, verb, key, words)
    return step


def _judge_together(
    written: list[Mapping[str, object]], steps: list[Step], mistakes: _Mistakes
) -> None:
    """How steps fit together: their times and the names they give and use."""
    # Also names of steps that were not understood: one mistake is not to be reported twice.
    named: dict[str, int] = {}
    for index, table in enumerate(written):
        label = table.get("as")
        if isinstance(label, str):
            named.setdefault(label, index + 1)
    reached_ms = 0
    for step in steps:
        index = step.number - 1
        if step.at_ms < reached_ms:
            words = f"at = {shown(written[index]['at'])} is before the step above. "
            mistakes.of(
                index, step.verb, "at", f"{words}Write the steps in the order of their times."
            )
        reached_ms = max(reached_ms, step.at_ms)
        if step.label is not None and named[step.label] != step.number:
            words = f"step {named[step.label]} has the name {step.label} already. Give another one."
            mistakes.of(index, step.verb, "as", words)
        if step.of is not None and named.get(step.of, step.number) >= step.number:
            earlier = [label for label, number in named.items() if number < step.number]
            words = f"no step above has as = {shown(step.of)}. {meant(step.of, earlier)}"
            mistakes.of(index, step.verb, "of", words)
