"""Reading a scenario: TOML text in, a `Scenario` out, or every mistake in it with its line.

Only what can be judged from the text alone is judged here. Whether a fleet has what a scenario
needs, and whether an order is taken when its time has come, is `runner`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forewarn.core.errors import Invalid
from forewarn.core.suggestions import meant, shown
from forewarn.emulator.scenarios.keys import FIELDS_OF, KEYS, misfits, usual_place
from forewarn.emulator.scenarios.values import Needs, Scenario, ScenarioStep, Verb, Whom
from forewarn.text.field_tables import Fields, Mistakes, Table, TomlFormat, table_of, tables_of
from forewarn.text.fields import SWITCH, Field, Wrong, line, number

SCENARIO_BYTES_MAX = 64 * 1_024
STEPS_MAX = 500
TITLE_CHARS_MAX = 100
ABOUT_CHARS_MAX = 4_000
NEEDED_MAX = 9_999


class BadScenario(Invalid):
    """The script is wrong. Nothing of it was run."""


def _about(value: object) -> str:
    if not isinstance(value, str) or len(value) > ABOUT_CHARS_MAX:
        raise Wrong
    about = value.strip()
    if not all(word.isprintable() for word in about.split()):
        raise Wrong
    return about


_COUNT = number(1, NEEDED_MAX)
_NEEDS = Fields(fields={"vms": _COUNT, "domains": _COUNT, "hosts": _COUNT, "spot": SWITCH})
_FILE = Fields(
    fields={
        "title": line(
            f"one line of text, up to {TITLE_CHARS_MAX} characters", TITLE_CHARS_MAX, chars_min=1
        ),
        "about": Field(f"printable text of up to {ABOUT_CHARS_MAX} characters", _about),
        "needs": table_of(_NEEDS, "a table like { domains = 3 }"),
        "step": tables_of("step"),
    },
    required=("title",),
    unknown="a scenario has no",
)


def parse(text: str, *, name: str) -> Scenario:
    """The scenario of a script. Raises BadScenario with every mistake, its line and its remedy."""
    script = TomlFormat(
        what=f"Scenario {name}",
        bytes_max=SCENARIO_BYTES_MAX,
        refuse=BadScenario,
        outcome="Nothing of it was run.",
    )
    file, mistakes = Table(script.read(text)), Mistakes()
    _FILE.read(file, mistakes)
    if not file.written.get("step"):
        words = "the scenario has no step. Write at least one [[step]] with at and do."
        mistakes.add((), words)
    steps = _steps(file.values.get("step", []), mistakes)
    if mistakes.found:
        raise BadScenario(*script.refusal(text, mistakes.found))
    return Scenario(
        name=name,
        title=file.values["title"],
        about=file.values.get("about", ""),
        needs=_needs(file.values.get("needs", {}), steps),
        steps=steps,
        text=text,
    )


def _needs(said: Mapping[str, Any], steps: tuple[ScenarioStep, ...]) -> Needs:
    """What the script says it needs, and no less than what its steps speak of."""
    values = dict(said)
    for step in steps:
        if step.on is not None and step.on.whom in (Whom.VM, Whom.DOMAIN):
            key = "vms" if step.on.whom is Whom.VM else "domains"
            values[key] = max(values.get(key, 1), step.on.number)
    return Needs(**values)


# Steps.


def _steps(written: Sequence[Mapping[str, object]], mistakes: Mistakes) -> tuple[ScenarioStep, ...]:
    if len(written) > STEPS_MAX:
        mistakes.add(
            ("step", STEPS_MAX), f"{len(written)} steps are too many. Up to {STEPS_MAX} are taken."
        )
        return ()
    steps: list[ScenarioStep] = []
    for index, one in enumerate(written):
        table = Table(one, f"step {index + 1}", ("step", index))
        step = _step(index + 1, table, mistakes)
        if step is not None:
            steps.append(step)
    _judge_together(written, steps, mistakes)
    return tuple(steps)


def _step(number: int, table: Table, mistakes: Mistakes) -> ScenarioStep | None:
    """One step, or None if what it says cannot be understood."""
    said = table.written.get("do")
    table.written = {key: value for key, value in table.written.items() if key != "do"}
    if not isinstance(said, str) or said not in tuple(Verb):
        what = "do is missing." if said is None else f"there is no order {shown(said)}."
        mistakes.of(table, "do", f"{what} {meant(str(said or ''), tuple(Verb))}")
        Fields(fields=KEYS).read(table, mistakes)
        return None
    verb = Verb(said)
    table.label = _label(number, verb)
    before = len(mistakes.found)
    FIELDS_OF[verb].read(table, mistakes)
    if len(mistakes.found) > before:
        return None
    step = ScenarioStep(number=number, verb=verb, **{"on": usual_place(verb), **table.values})
    for key, words in misfits(step):
        mistakes.of(table, key, words)
    return step


def _label(number: int, verb: Verb) -> str:
    return f"step {number} ({verb})"


def _judge_together(
    written: Sequence[Mapping[str, object]], steps: list[ScenarioStep], mistakes: Mistakes
) -> None:
    """How steps fit together: their times and the names they give and use."""
    # Also names of steps that were not understood: one mistake is not to be reported twice.
    named: dict[str, int] = {}
    for index, one in enumerate(written):
        label = one.get("as")
        if isinstance(label, str):
            named.setdefault(label, index + 1)
    reached_ms = 0
    for step in steps:
        index = step.number - 1
        table = Table(written[index], _label(step.number, step.verb), ("step", index))
        if step.at_ms < reached_ms:
            words = f"at = {shown(table.written['at'])} is before the step above. "
            mistakes.of(table, "at", f"{words}Write the steps in the order of their times.")
        reached_ms = max(reached_ms, step.at_ms)
        if step.label is not None and named[step.label] != step.number:
            words = f"step {named[step.label]} has the name {step.label} already. Give another one."
            mistakes.of(table, "as", words)
        if step.of is not None and named.get(step.of, step.number) >= step.number:
            earlier = [label for label, number in named.items() if number < step.number]
            words = f"no step above has as = {shown(step.of)}. {meant(step.of, earlier)}"
            mistakes.of(table, "of", words)
