"""What each key of a step takes, in words and as code, and which keys each order takes.

One step at a time is judged here; how steps fit together is `scenario_file`. The reference of
scenarios in the docs is made from these tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from forewarn.core import notice
from forewarn.core.errors import Invalid
from forewarn.core.model import SECOND_MS, Cause, EventType
from forewarn.core.scheduling import DESCRIPTION_CHARS_MAX, FREEZE_SECONDS_MAX
from forewarn.emulator.durations import duration_text, parse_duration_ms
from forewarn.emulator.fault_orders import FaultOrder, read_order
from forewarn.emulator.scenario import EVENT_VERBS, HOST_VERBS, VM_VERBS, Place, Step, Verb, Whom

NAME_CHARS_MAX = 256
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_PLACE = re.compile(
    r"(?P<host>host)"
    r"|(?P<of>host of )?(?:(?P<scope>scope)|(?P<whom>vm|domain)(?: (?P<number>[1-9]\d{0,3}))?)",
    re.ASCII,
)
_TYPES = {kind.value: kind for kind in (EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY)}
_DURATION = 'a length of time like "90s", "15m" or "7d"'


class Wrong(Exception):  # noqa: N818 - says what is the case
    """The value cannot be taken. Words, if any, say more than the value would."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a key takes, in words and as a function, and the field of a Step that it becomes."""

    field: str
    accepted: str
    read: Callable[[object], object]


def _duration_ms(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Wrong
    try:
        return parse_duration_ms(value)
    except Invalid as refused:
        raise Wrong(refused.refused) from None


def _freeze_s(value: object) -> int:
    ms = _duration_ms(value)
    if ms % SECOND_MS or ms > FREEZE_SECONDS_MAX * SECOND_MS:
        raise Wrong
    return ms // SECOND_MS


def _place(value: object) -> Place:
    if not isinstance(value, str) or not 0 < len(value) <= NAME_CHARS_MAX:
        raise Wrong
    found = _PLACE.fullmatch(value)
    if found is None:
        if " " in value:
            raise Wrong
        return Place(whom=Whom.NAME, name=value)
    if found["host"]:
        return Place(whom=Whom.VM, of_host=True)
    whom = Whom(found["scope"] or found["whom"])
    return Place(whom=whom, number=int(found["number"] or 1), of_host=bool(found["of"]))


def _label(value: object) -> str:
    if not isinstance(value, str) or not _LABEL.fullmatch(value):
        raise Wrong
    return value


def _event_type(value: object) -> EventType:
    if not isinstance(value, str) or value not in _TYPES:
        raise Wrong
    return _TYPES[value]


def _description(value: object) -> str:
    if not isinstance(value, str) or len(value) > DESCRIPTION_CHARS_MAX or not value.isprintable():
        raise Wrong
    return value


def _yes_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise Wrong
    return value


def _fault(value: object) -> FaultOrder:
    if not isinstance(value, dict):
        raise Wrong
    try:
        return read_order(value)
    except Invalid as refused:
        raise Wrong(f"{refused.refused} {refused.accepted}") from None


KEYS: dict[str, Key] = {
    "at": Key("at_ms", f"{_DURATION}, from the start of the run", _duration_ms),
    "on": Key(
        "on",
        '"vm" (what the scenario runs on) or "host" (where that is), "vm 2" (the next VM of its'
        ' scope), "domain 2", "scope", "host of vm 2", "host of domain 2", or a name',
        _place,
    ),
    "as": Key("label", "a name of up to 40 letters, digits, _ and -, for later steps", _label),
    "of": Key("of", "the name that a step above has by its `as`", _label),
    "type": Key("event_type", "Freeze, Reboot or Redeploy", _event_type),
    "duration": Key(
        "duration_s",
        f"how long a Freeze lasts, in whole seconds: 0s to {FREEZE_SECONDS_MAX}s",
        _freeze_s,
    ),
    "description": Key(
        "description",
        f"what guests read: up to {DESCRIPTION_CHARS_MAX} printable characters",
        _description,
    ),
    "not_before": Key(
        "not_before_ms", f"{_DURATION}: the earliest start, from the time of the step", _duration_ms
    ),
    "started_for": Key(
        "started_for_ms", f"{_DURATION}: how long its events stay Started", _duration_ms
    ),
    "fenced": Key("fenced", "true or false: the host is surely off", _yes_no),
    "break_domains": Key(
        "break_domains", "true or false: two update domains may be hit at once", _yes_no
    ),
    "fault": Key("fault", 'a table like { kind = "gone", for = "30s" }', _fault),
}

_OF_VM = ("at", "on", "as", "started_for")
# By order: the keys that it takes, beside `do`, and those that it must have.
KEYS_OF: dict[Verb, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **dict.fromkeys(VM_VERBS, (_OF_VM, ("at",))),
    Verb.MAINTAIN: (
        (*_OF_VM, "type", "duration", "description", "not_before", "break_domains"),
        ("at", "type"),
    ),
    Verb.DEGRADE: ((*_OF_VM, "not_before"), ("at",)),
    Verb.FAIL: ((*_OF_VM, "fenced"), ("at",)),
    Verb.REPAIR: (("at", "on", "of"), ("at",)),
    **dict.fromkeys(EVENT_VERBS, (("at", "of"), ("at", "of"))),
    Verb.FAULT: (("at", "on", "fault"), ("at", "fault")),
    Verb.CLEAR_FAULTS: (("at",), ("at",)),
}


def usual_place(verb: Verb) -> Place | None:
    """Where a step is done that does not say it: the scenario's VM, or its host."""
    if verb in (*VM_VERBS, Verb.MAINTAIN, Verb.DEGRADE, Verb.FAIL):
        return Place(whom=Whom.VM, of_host=verb in HOST_VERBS)
    return None


def misfits(step: Step) -> Iterator[tuple[str, str]]:
    """What does not fit together in one step: the key, and a sentence with the remedy."""
    place = step.on
    of_host = step.verb in HOST_VERBS
    if place is not None and place.whom is not Whom.NAME and place.of_host is not of_host:
        right = Place(whom=place.whom, number=place.number, of_host=of_host).words
        done_to = "a host" if of_host else "VMs"
        yield "on", f'{step.verb} is done to {done_to}. Write on = "{right}".'
    if step.verb is Verb.REPAIR and (place is None) is (step.of is None):
        yield "on", 'say what is repaired once: on = "host", or of = the name of a step above.'
    if place is not None and step.fault is not None and step.fault.vm is not None:
        yield "on", "on and the vm of the fault both say which VM. Write one of them."
    if step.duration_s is not None and step.event_type is not EventType.FREEZE:
        yield "duration", "only a Freeze has a length that anybody can know. Leave it out."
    if step.started_for_ms is None:
        return
    given_up_ms = notice.deadline_after_ms(*_makes(step))
    if step.started_for_ms >= given_up_ms:
        given_up = duration_text(given_up_ms)
        yield "started_for", f"such an event fails when Started for {given_up}. Write less."


def _makes(step: Step) -> tuple[EventType, Cause]:
    """The events that the step makes."""
    if step.verb in VM_VERBS:
        return VM_VERBS[step.verb]
    if step.verb is Verb.FAIL:
        return EventType.REBOOT, Cause.FAILURE
    if step.verb is Verb.DEGRADE:
        return EventType.REDEPLOY, Cause.DEGRADED
    return step.event_type or EventType.FREEZE, Cause.MAINTENANCE
