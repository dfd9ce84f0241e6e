"""What each key of a step takes, in words and as code, and which keys each order takes.

One step at a time is judged here; how steps fit together is `file`. The reference of
scenarios in the docs is made from these tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from forewarn.core import deadlines
from forewarn.core.model import SECOND_MS, Cause, EventType
from forewarn.core.scheduling import DESCRIPTION_CHARS_MAX, FREEZE_SECONDS_MAX
from forewarn.emulator.faults.orders import read_fault
from forewarn.emulator.scenarios.values import (
    EVENT_VERBS,
    HOST_VERBS,
    VM_VERBS,
    ScenarioStep,
    StepPlace,
    Verb,
    Whom,
)
from forewarn.text.durations import duration_text
from forewarn.text.field_tables import Fields
from forewarn.text.fields import SWITCH, Field, Wrong, choice, duration, line, pattern

NAME_CHARS_MAX = 256
_PLACE = re.compile(
    r"(?P<host>host)"
    r"|(?P<of>host of )?(?:(?P<scope>scope)|(?P<whom>vm|domain)(?: (?P<number>[1-9]\d{0,3}))?)",
    re.ASCII,
)
_TYPES = {kind.value: kind for kind in (EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY)}
_DURATION = 'a length of time like "90s", "15m" or "7d"'


def _place(value: object) -> StepPlace:
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARS_MAX:
        raise Wrong
    found = _PLACE.fullmatch(value)
    if found is None:
        if " " in value:
            raise Wrong
        return StepPlace(whom=Whom.NAME, name=value)
    if found["host"]:
        return StepPlace(whom=Whom.VM, of_host=True)
    whom = Whom(found["scope"] or found["whom"])
    return StepPlace(whom=whom, number=int(found["number"] or 1), of_host=bool(found["of"]))


def _window(value: object) -> tuple[int, int]:
    if not isinstance(value, str) or value.count("/") != 1:
        raise Wrong
    start_ms, end_ms = (duration("").read(part.strip()) for part in value.split("/"))
    if end_ms <= start_ms:
        raise Wrong
    return start_ms, end_ms


def _to(attribute: str, field: Field, accepted: str = "") -> Field:
    return replace(field, to=attribute, accepted=accepted or field.accepted)


_LABEL = pattern(
    "a name of up to 40 letters, digits, _ and -, for later steps",
    r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}",
)
_FREEZE = duration("", most_ms=FREEZE_SECONDS_MAX * SECOND_MS, unit_ms=SECOND_MS)

# What each key of a step takes, and the attribute of a Step that it becomes.
KEYS: dict[str, Field] = {
    "at": _to("at_ms", duration(f"{_DURATION}, from the start of the run")),
    "on": Field(
        '"vm" (what the scenario runs on) or "host" (where that is), "vm 2" (the next of its'
        ' scope), "domain 2", "scope", "host of vm 2", "host of domain 2", or a name',
        _place,
    ),
    "as": _to("label", _LABEL),
    "of": replace(_LABEL, accepted="the name that a step above has by its `as`"),
    "type": _to("event_type", choice(_TYPES), "Freeze, Reboot or Redeploy"),
    "duration": _to(
        "duration_s",
        _FREEZE.then(lambda ms: ms // SECOND_MS),
        f"how long a Freeze lasts, in whole seconds: 0s to {FREEZE_SECONDS_MAX}s",
    ),
    "description": line(
        f"what guests read: up to {DESCRIPTION_CHARS_MAX} printable characters",
        DESCRIPTION_CHARS_MAX,
    ),
    "not_before": _to(
        "not_before_ms",
        duration(f"{_DURATION}: the earliest start without approval, from the time of the step"),
    ),
    "until": _to(
        "until_ms",
        duration(
            f"{_DURATION}: what the earliest start is postponed to, from the time of the step"
        ),
    ),
    "window": Field(
        'two lengths of time like "1h/3h", from the time of the step: outside of it nothing starts,'
        " approved or not",
        _window,
        to="window_ms",
    ),
    "started_for": _to(
        "started_for_ms", duration(f"{_DURATION}: how long its events stay Started")
    ),
    "fenced": replace(SWITCH, accepted="true or false: the host is surely off"),
    "break_domains": replace(
        SWITCH, accepted="true or false: two update domains may be hit at once"
    ),
    "lose_disk": replace(
        SWITCH, accepted="true or false: what a Redeploy moves starts with empty local disks"
    ),
    "fault": Field('a table like { kind = "gone", for = "30s" }', read_fault),
}

_OF_VM = ("at", "on", "as", "started_for", "window")
# By order: the keys that it takes, beside `do`, and those that it must have.
KEYS_OF: dict[Verb, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(VM_VERBS, (_OF_VM, ("at",))),
    Verb.REDEPLOY: ((*_OF_VM, "lose_disk"), ("at",)),
    Verb.MAINTAIN: (
        (*_OF_VM, "type", "duration", "description", "not_before", "break_domains", "lose_disk"),
        ("at", "type"),
    ),
    Verb.DEGRADE: ((*_OF_VM, "not_before"), ("at",)),
    Verb.FAIL: (("at", "on", "as", "started_for", "fenced"), ("at",)),
    Verb.REPAIR: (("at", "on", "of"), ("at",)),
    **dict.fromkeys(EVENT_VERBS, (("at", "of"), ("at", "of"))),
    Verb.POSTPONE: (("at", "of", "until"), ("at", "of", "until")),
    Verb.FAULT: (("at", "on", "fault"), ("at", "fault")),
    Verb.CLEAR_FAULTS: (("at",), ("at",)),
}


FIELDS_OF: dict[Verb, Fields] = {
    verb: Fields(fields={key: KEYS[key] for key in keys}, required=required, elsewhere=KEYS)
    for verb, (keys, required) in KEYS_OF.items()
}


def usual_place(verb: Verb) -> StepPlace | None:
    """Where a step is done that does not say it: the scenario's VM, or its host."""
    if verb in (*VM_VERBS, Verb.MAINTAIN, Verb.DEGRADE, Verb.FAIL):
        return StepPlace(whom=Whom.VM, of_host=verb in HOST_VERBS)
    return None


def misfits(step: ScenarioStep) -> Iterator[tuple[str, str]]:
    """What does not fit together in one step: the key, and a sentence with the remedy."""
    place = step.on
    of_host = step.verb in HOST_VERBS
    if place is not None and place.whom is not Whom.NAME and place.of_host is not of_host:
        right = StepPlace(whom=place.whom, number=place.number, of_host=of_host).words
        done_to = "a host" if of_host else "VMs"
        yield "on", f'{step.verb} is done to {done_to}. Write on = "{right}".'
    if step.verb is Verb.REPAIR and (place is None) is (step.of is None):
        yield "on", 'say what is repaired once: on = "host", or of = the name of a step above.'
    if place is not None and step.fault is not None and step.fault.vm is not None:
        yield "on", "on and the vm of the fault both say which VM. Write one of them."
    if step.duration_s is not None and step.event_type is not EventType.FREEZE:
        yield "duration", "only a Freeze has a length that is known beforehand. Leave it out."
    if step.started_for_ms is None:
        return
    given_up_ms = deadlines.deadline_after_ms(*_makes(step))
    if step.started_for_ms >= given_up_ms:
        given_up = duration_text(given_up_ms)
        yield "started_for", f"such an event fails when Started for {given_up}. Write less."


def _makes(step: ScenarioStep) -> tuple[EventType, Cause]:
    """The events that the step makes."""
    if step.verb in VM_VERBS:
        return VM_VERBS[step.verb]
    if step.verb is Verb.FAIL:
        return EventType.REBOOT, Cause.FAILURE
    if step.verb is Verb.DEGRADE:
        return EventType.REDEPLOY, Cause.DEGRADED
    return step.event_type or EventType.FREEZE, Cause.MAINTENANCE
