"""Checks of events that are not approved, that are canceled, and that come together.

Each has events of its own scheduled, and ends when they have ended.
"""

from __future__ import annotations

from forewarn.verify.answers import expect_status
from forewarn.verify.check import Level, Skipped, Topic, expect
from forewarn.verify.checks.lifecycle import expect_shown
from forewarn.verify.documents import HOST_TYPES, SHOWN_SINCE, VERSIONS, DocumentRead
from forewarn.verify.event_following import (
    STALE_DATE_S,
    approval,
    approve,
    end,
    need_end,
    need_started,
    ordered,
    ordered_too,
    started_or_gone,
    times,
)
from forewarn.verify.observations import Life
from forewarn.verify.probe import Probe

TOPIC = Topic(
    "scheduling",
    "Notice, cancellation, several events",
    level=Level.OPERATOR,
    needs=("get-200", "get-date"),
)

# Contract 3.3. The notice of a Terminate is set by its owner, within five to fifteen minutes.
# Looked at in this order: a Redeploy moves the VM off the host that a Freeze is ordered on.
MINIMUM_NOTICE_S = {
    "Reboot": 15 * 60,
    "Freeze": 15 * 60,
    "Redeploy": 10 * 60,
    "Preempt": 30,
    "Terminate": 5 * 60,
}
# Both times are whole seconds.
ROUNDING_S = 1
# The real service shows news about once per minute (G10).
SHOWN_LATE_S = 60
# Where time is waited for: at most so long between two looks, and so often when NotBefore is near.
LOOK_AT_LEAST_EVERY_S = 30.0
NEAR_S = 5
NEAR_LOOK_EVERY_S = 0.25
# As near to NotBefore an event that waits must have been seen.
SEEN_UNTIL_S = 10
# A start may lag behind NotBefore by a minute or two (3.3).
START_LAG_S = 5 * 60
CANCELED_WITHIN_S = 180


@TOPIC.check(
    "cancel-removes",
    "A canceled event leaves the document and never starts.",
    "L11",
    not_checked="Later documents of the run are for phases-forward; canceling what started is "
    "not tried.",
)
def cancel_removes(probe: Probe) -> None:
    if probe.options.cancel is None:
        raise Skipped("it has an event canceled; give --cancel")
    life = ordered(probe, probe.options.types[0])
    probe.cancel(life.event_id)
    seen: list[DocumentRead] = []

    def gone(document: DocumentRead) -> bool:
        seen.append(document)
        return document.event(life.event_id) is None

    ended = probe.until(gone, within_s=CANCELED_WITHIN_S, what_for="for the event to leave")
    expect(ended, f"{life.event_id} is there after {CANCELED_WITHIN_S} s", "it is gone")
    probe.observed.left.remove(life.event_id)
    events = (document.event(life.event_id) for document in seen)
    expect(not any(e is not None and e.started for e in events), "it was Started", "it never is")


@TOPIC.check(
    "alone-waits",
    "An event that is not approved does not start before its NotBefore.",
    "L12, contract 3.2",
    not_checked="Looks until NotBefore, the last second of it apart; what is done to the VM is "
    "not seen.",
)
def alone_waits(probe: Probe) -> None:
    life = ordered(probe, probe.options.types[0])
    now_s, not_before_s = times(life)
    probe.observed.alone = life
    early_s = not_before_s - (0 if probe.turned else STALE_DATE_S)
    seen_s, left_s = now_s, float(not_before_s - now_s + START_LAG_S)
    while now_s < not_before_s and left_s > 0:
        step_s = _next_look_s(probe, not_before_s - now_s)
        probe.pass_time(step_s, "for NotBefore to come near")
        left_s -= step_s
        document = probe.document()
        now_s = not_before_s if document.now_s is None else document.now_s
        if now_s < early_s:
            seen_s = now_s
            event = document.event(life.event_id)
            status = "gone" if event is None else event.text("EventStatus")
            seen = f"it is {status} {not_before_s - now_s} s before its NotBefore"
            expect(event is not None and not event.started, seen, "Scheduled still")
    if not_before_s - seen_s > SEEN_UNTIL_S:
        raise Skipped(f"the last look was {not_before_s - seen_s} s before NotBefore, by Date")


def _next_look_s(probe: Probe, left_s: int) -> float:
    """How long to wait for the next look at an event whose NotBefore is so far away."""
    if probe.turned:
        return max(1, left_s // 2)
    if left_s <= NEAR_S:
        return NEAR_LOOK_EVERY_S
    return min(LOOK_AT_LEAST_EVERY_S, left_s - NEAR_S)


@TOPIC.check(
    "alone-starts",
    "An event that is not approved starts soon after its NotBefore.",
    "L12",
    not_checked="Five minutes of delay pass; that it is shown as Started is for started-shown.",
    after=("alone-waits",),
)
def alone_starts(probe: Probe) -> None:
    life = probe.observed.alone
    if life is None:
        raise Skipped("no event was left alone")
    started = probe.until(
        lambda document: started_or_gone(document, life.event_id),
        within_s=START_LAG_S,
        what_for="for the event to start",
    )
    expect(started, f"Scheduled {START_LAG_S} s after its NotBefore", "Started, or gone")
    probe.observed.started_ids.add(life.event_id.upper())
    need_end(probe, life, coarse=False)


def _notice(event_type: str, least_s: int) -> None:
    words = f"{least_s // 60} minutes" if least_s >= 60 else f"{least_s} seconds"

    @TOPIC.check(
        f"notice-{event_type}",
        f"A {event_type} that is ordered has its NotBefore at least {words} ahead.",
        "contract 3.3, G10",
        not_checked="Time that --operator takes, and a minute until the "
        f"{event_type} is shown, count as notice.",
    )
    def look(probe: Probe) -> None:
        if probe.options.cancel is None and event_type not in HOST_TYPES:
            raise Skipped(f"a {event_type} would delete the VM; give --cancel to withdraw it")
        unseen = [why for whys in probe.observed.not_scheduled.values() for why in whys]
        if unseen and event_type not in HOST_TYPES:
            raise Skipped(f"a {event_type} might be seen too late to withdraw it: {unseen[-1]}")
        life = ordered(probe, event_type)
        life.by_version = probe.every_version()
        probe.observed.by_type[event_type] = life
        if event_type not in HOST_TYPES:
            end(probe, life.event_id)  # the VM is to live on
        seen = life.event.text("EventType")
        expect(seen == event_type, f"a {seen}", f"a {event_type}, as ordered")
        _, not_before_s = times(life)
        since_s = _scheduled_since_s(life)
        if since_s is not None:
            notice_s = not_before_s - since_s + ROUNDING_S
            expect(notice_s >= least_s, f"at most {notice_s} s", f"at least {least_s} s")


def _starts(event_type: str) -> None:
    @TOPIC.check(
        f"starts-{event_type}",
        f"An approved {event_type} starts before its NotBefore.",
        "contract 3.2, A9",
        not_checked=f"One {event_type}; a start that a host keeps back for other tenants is "
        f"skipped.",
        after=(f"notice-{event_type}",),
    )
    def look(probe: Probe) -> None:
        life = probe.observed.by_type.get(event_type)
        if life is None or probe.document().event(life.event_id) is None:
            life = ordered(probe, event_type)
        approve(probe, life)
        if life.approval is not None:
            expect_status(life.approval, 200)
        _see_through(probe, life)


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
    if _event_type in HOST_TYPES:
        _starts(_event_type)


def _shown(event_type: str, since: str) -> None:
    @TOPIC.check(
        f"shown-{event_type}",
        f"A {event_type} is shown from api-version {since} on.",
        "contract 1.6",
        not_checked=f"A Scheduled {event_type}; that it stays shown once it is Started is not "
        f"seen.",
        after=(f"notice-{event_type}",),
    )
    def shown(probe: Probe) -> None:
        life = _of_type(probe, event_type)
        expect_shown(life, since)
        for version, document in life.by_version.items():
            event = document.event(life.event_id)
            if event is not None and version >= since:
                seen = event.text("EventType")
                expect(seen == event_type, f"a {seen} at {version}", f"a {event_type}")

    @TOPIC.check(
        f"hidden-{event_type}",
        f"A {event_type} is hidden from api-versions before {since}.",
        "contract 1.6, Forewarn's choice" if event_type == "Preempt" else "contract 1.6",
        not_checked=f"A Scheduled {event_type}; that older documents count it all the same is "
        f"not seen.",
        after=(f"notice-{event_type}",),
        choice=event_type == "Preempt",  # not known of the real service
    )
    def hidden(probe: Probe) -> None:
        life = _of_type(probe, event_type)
        others = _others(life)
        odd = [
            f"{event.text('EventType')} {event.event_id} at {version}"
            for version, document in life.by_version.items()
            if version < since
            for event in document.events
            if event.event_id.upper() not in others
        ]
        expect(not odd, f"shown: {', '.join(odd)}", "hidden there, also by another name")


def _of_type(probe: Probe, event_type: str) -> Life:
    if event_type not in probe.observed.by_type:
        raise Skipped(f"no {event_type} was seen")
    return probe.observed.by_type[event_type]


def _others(life: Life) -> set[str]:
    """The ids of events that are not this one, in upper case."""
    newest = (life.before, life.first, life.by_version.get(VERSIONS[-1]))
    ids = {i.upper() for document in newest if document is not None for i in document.event_ids}
    return ids - {life.event_id.upper()}


for _event_type, _since in SHOWN_SINCE.items():
    _shown(_event_type, _since)


@TOPIC.check(
    "start-any-case",
    "An approval whose EventId is in lower case starts the event before its NotBefore.",
    "Forewarn's choice, A8 (not known of the real service)",
    not_checked="Lower case, or upper where EventIds are in lower; mixed case is not tried.",
    needs=("approve-any-case",),
    choice=True,
)
def start_any_case(probe: Probe) -> None:
    life = ordered(probe, probe.options.types[0])
    other = life.event_id.lower()
    if other == life.event_id:
        other = life.event_id.upper()
    expect_status(probe.post(approval(other)), 200)
    _see_through(probe, life)


def _see_through(probe: Probe, *lives: Life) -> None:
    """Fail unless each of the approved events starts before its NotBefore, and ends."""
    for life in sorted(lives, key=lambda life: life.not_before_s or 0):
        need_started(probe, life, coarse=True)
    for life in lives:
        need_end(probe, life)


def _starts_at(version: str, how: str, source: str, *headers: str, **more: object) -> None:
    @TOPIC.check(
        f"start-{version}",
        f"An approval at api-version {version}, {how}, starts an event before its NotBefore.",
        source,
        not_checked=f"One event; {version} with all else that an approval may have is not tried.",
        needs=() if version != VERSIONS[0] else ("header-not-required-before",),
    )
    def look(probe: Probe) -> None:
        life = ordered(probe, probe.options.types[0])
        tag = f"If-None-Match: {life.first.tag}"
        sent = [tag if header == _WITH_TAG else header for header in headers]
        body = approval(life.event_id, **more)
        metadata = version != VERSIONS[0]
        expect_status(probe.post(body, *sent, version=version, metadata=metadata), 200)
        _see_through(probe, life)


_WITH_TAG = "If-None-Match"
_FORM = "Content-Type: application/x-www-form-urlencoded"
_starts_at("2017-03-01", "without the Metadata header", "H2, Q7")
_starts_at("2017-08-01", "sent as a form", "H5, Q7", _FORM)
_starts_at("2017-11-01", "sent as text", "H5, Q7", "Content-Type: text/plain")
_starts_at("2019-01-01", "with an old DocumentIncarnation", "A3, Q7", DocumentIncarnation=1)
_starts_at("2019-04-01", "with that as text", "A3, Q7", DocumentIncarnation="1")
_starts_at("2019-08-01", "with the current tag", "H7, Q7", _WITH_TAG)


@TOPIC.check(
    "approve-one",
    "Approving one event leaves the others as they are.",
    "A1, A10",
    not_checked="One look right after the approval; what happens to the other one later is not "
    "seen.",
)
def approve_one(probe: Probe) -> None:
    types = _two_types(probe)
    first, second = ordered(probe, types[0]), ordered_too(probe, types[1])
    probe.observed.both = (first, second)
    there = second.first.event(first.event_id) is not None
    expect(there, f"{first.event_id} is gone when {second.event_id} appears", "both are there")
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
    not_checked="One older api-version; that an approval at each of the others starts one is not "
    "seen.",
    after=("approve-one",),
)
def start_other_version(probe: Probe) -> None:
    first, second = _both(probe)
    if started_or_gone(probe.document(), second.event_id):
        raise Skipped("the other one is no longer Scheduled")
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
    not_checked="Two events, new to the POST; a long list, or one of several VMs, is not tried.",
)
def approve_several(probe: Probe) -> None:
    types = _two_types(probe)
    both = ordered(probe, types[0]), ordered_too(probe, types[1])
    expect_status(probe.post(approval(*(life.event_id for life in both))), 200)
    _see_through(probe, *both)
