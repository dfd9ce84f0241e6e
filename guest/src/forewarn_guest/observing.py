"""What a document says about this VM that was not known yet, as facts. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatchcase

from forewarn_guest.configuration import Rule
from forewarn_guest.document import Document, Event
from forewarn_guest.facts import Fact, FactKind, Gone, event_json
from forewarn_guest.tracked_event import TrackedEvent

PREEMPT = "Preempt"
# An endpoint that shows and hides one event without end must not have steps run without end.
SIGHTINGS_MAX = 10


def rule_for(event: Event, rules: Iterable[Rule]) -> Rule | None:
    """The first rule that matches the event; None if no rule does."""
    return next((rule for rule in rules if matches(rule, event)), None)


def matches(rule: Rule, event: Event) -> bool:
    """True if the rule is about such events."""
    if rule.event_types:
        if event.event_type not in rule.event_types:
            return False
    elif event.event_type == PREEMPT:
        return False  # thirty seconds: only a rule that was written for it may have them
    if rule.source and rule.source != event.source:
        return False  # also if this api-version does not tell: a guess could approve wrongly
    least_s, length_s = rule.min_duration_s, event.duration_s
    if least_s is not None and length_s is not None and 0 <= length_s < least_s:
        return False
    return not rule.resources or any(
        fnmatchcase(name.casefold(), pattern.casefold())
        for name in event.resources
        for pattern in rule.resources
    )


def observe(
    document: Document,
    tracked_events: Mapping[str, TrackedEvent],
    *,
    vm: str,
    rules: Iterable[Rule],
    boot_id: str,
    at: datetime,
) -> list[Fact]:
    """The facts that this document makes, given what is known.

    Appeared, changed, started and gone, in the order in which they must be kept. An id that comes
    back after it was gone is a new sighting: it is taken care of again, and said to have come back;
    but only so often.
    """
    rules = tuple(rules)
    present = {
        tracked.key: tracked
        for tracked in tracked_events.values()
        if tracked.gone is None and not tracked.closed
    }
    seen: list[Fact] = []
    shown: set[str] = set()
    for event in document.events:
        if not event.names(vm) or event.key in shown:
            continue
        shown.add(event.key)
        tracked = present.get(event.key)
        if tracked is None:
            times = 1 + max(
                (c.sighting for c in tracked_events.values() if c.key == event.key), default=0
            )
            seen.append(
                _appeared(
                    event,
                    rule_for(event, rules) if times <= SIGHTINGS_MAX else None,
                    times=times,
                    seconds_left=document.seconds_left(event),
                    boot_id=boot_id,
                    at=at,
                )
            )
        else:
            seen.extend(_moved(event, tracked, at))
    for key, tracked in present.items():
        if key not in shown:
            how = gone_how(tracked, document, boot_id=boot_id)
            seen.append(Fact(FactKind.GONE, at, tracked.tracked_id, {"how": how.value}))
    return seen


def _appeared(
    event: Event,
    rule: Rule | None,
    *,
    times: int,
    seconds_left: float | None,
    boot_id: str,
    at: datetime,
) -> Fact:
    return Fact(
        FactKind.APPEARED,
        at,
        f"{event.key}#{times}",
        {
            "event": event_json(event),
            "rule": "" if rule is None else rule.name,
            "sighting": times,
            "seconds_left": seconds_left,
            "boot_id": boot_id,
        },
    )


def booted(tracked_events: Iterable[TrackedEvent], *, boot_id: str, at: datetime) -> list[Fact]:
    """The facts for the tracked events that do not know yet that the VM has booted."""
    return [
        Fact(FactKind.BOOTED, at, tracked.tracked_id, {"boot_id": boot_id})
        for tracked in tracked_events
        if not tracked.closed and boot_id and tracked.seen_boot_id != boot_id
    ]


def _moved(event: Event, tracked: TrackedEvent, at: datetime) -> Iterator[Fact]:
    before = tracked.event
    differs = (
        event.event_type != before.event_type
        or event.resources != before.resources
        or (event.not_before is not None and event.not_before != before.not_before)
    )
    if differs:
        yield Fact(FactKind.CHANGED, at, tracked.tracked_id, {"event": event_json(event)})
    if event.started and not tracked.started:
        yield Fact(FactKind.STARTED, at, tracked.tracked_id, {"event": event_json(event)})


def gone_how(tracked: TrackedEvent, document: Document, *, boot_id: str) -> Gone:
    """Whether an event that is gone has happened or was canceled, as far as a guest can know.

    A poll can miss that an event was Started (G10), so what may have happened counts as having
    happened: it was approved, its time had come, or the VM has booted since. Only where none of
    these holds is it sure that it did not.
    """
    if tracked.started or tracked.approving or tracked.approved or tracked.boot_id != boot_id:
        return Gone.ENDED
    not_before = tracked.event.not_before
    if not_before is None or document.date is None or document.date >= not_before:
        return Gone.ENDED
    return Gone.CANCELED
