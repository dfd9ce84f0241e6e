"""Checks of events that are not approved, that are canceled, and that come together.

Each has events of its own scheduled, and ends when they have ended.
"""

from __future__ import annotations

from contextlib import suppress

from forewarn.verify.answers import expect_status
from forewarn.verify.check import Failed, Level, Skipped, Topic, expect
from forewarn.verify.checks.lifecycle import (
    expect_shown,
    need_started,
    order,
    started_or_gone,
    until_gone,
)
from forewarn.verify.checks.post import approval
from forewarn.verify.documents import HOST_TYPES, SHOWN_SINCE, VERSIONS, DocumentRead
from forewarn.verify.observations import Life
from forewarn.verify.probe import Probe

TOPIC = Topic(
    "scheduling",
    "Notice, cancellation, several events",
    level=Level.OPERATOR,
    needs=("life-ends", "get-date"),
)

# Contract 3.3. The notice of a Terminate is set by its owner, within five to fifteen minutes.
MINIMUM_NOTICE_S = {
    "Reboot": 15 * 60,
    "Redeploy": 10 * 60,
    "Freeze": 15 * 60,
    "Preempt": 30,
    "Terminate": 5 * 60,
}
# Both times are whole seconds.
ROUNDING_S = 1
# The real service shows news about once per minute (G10).
SHOWN_LATE_S = 60
BEFORE_NOT_BEFORE_S = 2
# A start may lag behind NotBefore by a minute or two (3.3).
START_LAG_S = 5 * 60
CANCELED_WITHIN_S = 180


def _ordered(probe: Probe, event_type: str) -> Life:
    """A new event, Scheduled. What an earlier check left behind is ended first, if it can be."""
    while probe.observed.left:
        event_id = probe.observed.left.pop()
        with suppress(Failed, Skipped):
            event = probe.document().event(event_id)
            if event is not None and event.started:  # too late to cancel it
                until_gone(probe, event_id)
            else:
                _end(probe, event_id)
    return _ordered_too(probe, event_type)


def _ordered_too(probe: Probe, event_type: str) -> Life:
    """A new event, Scheduled, beside those that are there."""
    life = order(probe, event_type, probe.document())
    status = life.event.text("EventStatus")
    expect(status == "Scheduled", f"the new event is {status}", "Scheduled")
    return life


def _end(probe: Probe, event_id: str) -> None:
    """Let the event end soon: canceled where that is possible, else approved."""
    if probe.options.cancel is not None:
        probe.cancel(event_id)
    else:
        expect_status(probe.post(approval(event_id)), 200)
    expect(until_gone(probe, event_id), f"{event_id} is there still", "its end")


def _times(life: Life) -> tuple[int, int]:
    """What time it was at the endpoint when the event was first seen, and its NotBefore."""
    now_s, not_before_s = life.first.now_s, life.not_before_s
    if now_s is None or not_before_s is None:
        raise Failed(life.event.text("NotBefore"), "a time in NotBefore")
    return now_s, not_before_s


def leave(probe: Probe) -> None:
    """At the end of a run: cancel what it had scheduled, or say what is left, without waiting."""
    for event_id in probe.observed.left:
        try:
            probe.cancel(event_id)
        except (Failed, Skipped):
            probe.options.announce(f"event {event_id} was scheduled for this run and may be left")


@TOPIC.check(
    "alone-waits",
    "An event that is not approved does not start before its NotBefore.",
    "L12, contract 3.2",
    blind="Two looks, the last two seconds before NotBefore; what is done to the VM is not seen.",
)
def alone_waits(probe: Probe) -> None:
    life = _ordered(probe, probe.options.types[0])
    now_s, not_before_s = _times(life)
    half_s = (not_before_s - now_s) // 2
    rest_s = not_before_s - now_s - half_s - BEFORE_NOT_BEFORE_S
    probe.observed.alone = life
    for step_s in (half_s, rest_s):
        probe.pass_time(step_s, "for NotBefore to come near")
        sighting = probe.document()
        event = sighting.event(life.event_id)
        seen = "gone" if event is None else event.text("EventStatus")
        early = sighting.now_s is not None and sighting.now_s < not_before_s
        if early:
            expect(event is not None and not event.started, f"it is {seen}", "Scheduled still")


@TOPIC.check(
    "alone-starts",
    "An event that is not approved starts soon after its NotBefore.",
    "L12",
    blind="Five minutes of delay pass, and so does an event that is gone without being Started.",
    needs=("alone-waits",),
)
def alone_starts(probe: Probe) -> None:
    life = probe.observed.alone
    if life is None:
        raise Skipped("no event was left alone")
    probe.pass_time(BEFORE_NOT_BEFORE_S, "for NotBefore")
    started = probe.until(
        lambda sighting: started_or_gone(sighting, life.event_id),
        within_s=START_LAG_S,
        what_for="for the event to start",
    )
    expect(started, f"Scheduled {START_LAG_S} s after its NotBefore", "Started, or gone")
    expect(until_gone(probe, life.event_id), f"{life.event_id} is there still", "its end")


@TOPIC.check(
    "cancel-removes",
    "A canceled event leaves the document and never starts.",
    "L11",
    blind="A start between two looks is not seen; canceling what has started is not tried.",
)
def cancel_removes(probe: Probe) -> None:
    if probe.options.cancel is None:
        raise Skipped("it has an event canceled; give --cancel")
    life = _ordered(probe, probe.options.types[0])
    probe.cancel(life.event_id)
    seen: list[DocumentRead] = []

    def gone(sighting: DocumentRead) -> bool:
        seen.append(sighting)
        return sighting.event(life.event_id) is None

    ended = probe.until(gone, within_s=CANCELED_WITHIN_S, what_for="for the event to leave")
    expect(ended, f"{life.event_id} is there after {CANCELED_WITHIN_S} s", "it is gone")
    probe.observed.left.remove(life.event_id)
    events = (sighting.event(life.event_id) for sighting in seen)
    expect(not any(e is not None and e.started for e in events), "it was Started", "it never is")


def _notice(event_type: str, least_s: int) -> None:
    words = f"{least_s // 60} minutes" if least_s >= 60 else f"{least_s} seconds"

    @TOPIC.check(
        f"notice-{event_type}",
        f"A {event_type} that is ordered has its NotBefore at least {words} ahead.",
        "contract 3.3, G10",
        blind=f"Time that --operator takes, and a minute until the {event_type} is shown, count "
        "as notice.",
    )
    def look(probe: Probe) -> None:
        if probe.options.cancel is None and event_type not in HOST_TYPES:
            raise Skipped(f"a {event_type} would delete the VM; give --cancel to withdraw it")
        life = _ordered(probe, event_type)
        life.by_version = probe.every_version()
        probe.observed.by_type[event_type] = life
        _, not_before_s = _times(life)
        _end(probe, life.event_id)
        seen = life.event.text("EventType")
        expect(seen == event_type, f"a {seen}", f"a {event_type}, as ordered")
        since_s = _scheduled_since_s(life)
        if since_s is not None:
            notice_s = not_before_s - since_s + ROUNDING_S
            expect(notice_s >= least_s, f"at most {notice_s} s", f"at least {least_s} s")


def _scheduled_since_s(life: Life) -> int | None:
    """The earliest time at which the event can have been scheduled: not before the order, and,
    if a document after the order was without it, at most a minute before that one (G10).

    What happens while the operator's command runs cannot be seen, so all of that time counts.
    """
    ordered_s = None if life.before is None else life.before.now_s
    without_s = None if life.without is None else life.without.now_s
    if ordered_s is None or without_s is None:
        return ordered_s
    return max(ordered_s, without_s - SHOWN_LATE_S)


for _event_type, _least_s in MINIMUM_NOTICE_S.items():
    _notice(_event_type, _least_s)


def _shown(event_type: str, since: str) -> None:
    @TOPIC.check(
        f"shown-{event_type}",
        f"A {event_type} is shown from api-version {since} on.",
        "contract 1.6",
        blind=f"A Scheduled {event_type}; that it stays shown once it is Started is not seen.",
        needs=(f"notice-{event_type}",),
    )
    def shown(probe: Probe) -> None:
        life = probe.observed.by_type[event_type]
        expect_shown(life, since)
        for version, sighting in life.by_version.items():
            event = sighting.event(life.event_id)
            if event is not None and version >= since:
                seen = event.text("EventType")
                expect(seen == event_type, f"a {seen} at {version}", f"a {event_type}")

    @TOPIC.check(
        f"hidden-{event_type}",
        f"A {event_type} is hidden from api-versions before {since}.",
        "contract 1.6, design 5" if event_type == "Preempt" else "contract 1.6",
        blind=f"A Scheduled {event_type}; that older documents count it all the same is not seen.",
        needs=(f"notice-{event_type}",),
        choice=event_type == "Preempt",  # not known of the real service
    )
    def hidden(probe: Probe) -> None:
        life = probe.observed.by_type[event_type]
        others = _others(life)
        odd = [
            f"{event.text('EventType')} {event.event_id} at {version}"
            for version, sighting in life.by_version.items()
            if version < since
            for event in sighting.events
            if event.event_id.upper() not in others
        ]
        expect(not odd, f"shown: {', '.join(odd)}", "hidden there, also by another name")


def _others(life: Life) -> set[str]:
    """The ids of events that are not this one, in upper case."""
    newest = (life.before, life.first, life.by_version.get(VERSIONS[-1]))
    ids = {i.upper() for sighting in newest if sighting is not None for i in sighting.event_ids}
    return ids - {life.event_id.upper()}


for _event_type, _since in SHOWN_SINCE.items():
    _shown(_event_type, _since)


@TOPIC.check(
    "start-any-case",
    "An approval whose EventId is in lower case starts the event before its NotBefore.",
    "design 5, A8 (not known of the real service)",
    blind="Lower case, or upper where EventIds are in lower; mixed case is not tried.",
    needs=("approve-any-case",),
    choice=True,
)
def start_any_case(probe: Probe) -> None:
    life = _ordered(probe, probe.options.types[0])
    other = life.event_id.lower()
    if other == life.event_id:
        other = life.event_id.upper()
    expect_status(probe.post(approval(other)), 200)
    _see_through(probe, life)


def _see_through(probe: Probe, *lives: Life) -> None:
    """Fail unless each of the approved events starts before its NotBefore, and ends."""
    for life in lives:
        need_started(probe, life, coarse=True)
    for life in lives:
        expect(until_gone(probe, life.event_id), f"{life.event_id} is there still", "its end")


@TOPIC.check(
    "approve-one",
    "Approving one event leaves the others as they are.",
    "A1, A10",
    blind="One look right after the approval; what happens to the other one later is not seen.",
)
def approve_one(probe: Probe) -> None:
    types = _two_types(probe)
    first, second = _ordered(probe, types[0]), _ordered_too(probe, types[1])
    probe.observed.both = (first, second)
    expect_status(probe.post(approval(first.event_id)), 200)
    event = probe.document().event(second.event_id)
    seen = "gone" if event is None else event.text("EventStatus")
    expect(seen == "Scheduled", f"the other one is {seen}", "Scheduled still")


def _two_types(probe: Probe) -> tuple[str, str]:
    types = [event_type for event_type in probe.options.types if event_type in HOST_TYPES]
    if len(types) < 2:
        raise Skipped("it takes two types of Reboot, Redeploy and Freeze; see --types")
    return types[0], types[1]


@TOPIC.check(
    "start-other-version",
    f"An approval at api-version {VERSIONS[1]} starts an event that was read at {VERSIONS[-1]}.",
    "Q7",
    blind="One older api-version; that an approval at each of the others starts one is not seen.",
    needs=("approve-one", "approve-other-version"),
)
def start_other_version(probe: Probe) -> None:
    first, second = _both(probe)
    expect_status(probe.post(approval(second.event_id), version=VERSIONS[1]), 200)
    _see_through(probe, first, second)


def _both(probe: Probe) -> tuple[Life, Life]:
    if probe.observed.both is None:
        raise Skipped("there are no two events")
    return probe.observed.both


@TOPIC.check(
    "approve-several",
    "Several events can be approved with one POST; each starts before its NotBefore.",
    "A2",
    blind="Two events, new to the POST; a long list, or one of several VMs, is not tried.",
    needs=("approve-one",),
)
def approve_several(probe: Probe) -> None:
    types = _two_types(probe)
    both = _ordered(probe, types[0]), _ordered_too(probe, types[1])
    expect_status(probe.post(approval(*(life.event_id for life in both))), 200)
    _see_through(probe, *both)
