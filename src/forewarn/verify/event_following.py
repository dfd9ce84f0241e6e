"""Following events: having one scheduled, approving it, and waiting for its start and its end.

What is seen on the way goes into the observations of the run. Only events of the run are touched:
those that it had scheduled for its VM, or the one that it was allowed to approve.
"""

from __future__ import annotations

import json
from contextlib import suppress

from forewarn.verify.answers import expect_status
from forewarn.verify.check import Failed, Skipped, expect
from forewarn.verify.connection import Broken
from forewarn.verify.documents import DocumentRead, EventElement
from forewarn.verify.observations import Life
from forewarn.verify.probe import Probe

# The real service shows news about once per minute (G10).
APPEAR_WITHIN_S = 180
# After so many orders in a row that came to nothing, no more are given for that type.
ORDERS_MAX = 2
# Started events stay for their impact and, at the real service, ten minutes of watching (3.4).
END_WITHIN_S = 60 * 60
# Servers may send a Date that is a second old. Where the clock is turned, it is not.
STALE_DATE_S = 1


def approval(*event_ids: str, **more: object) -> bytes:
    """The body that approves these events, with more fields beside them."""
    requests = [{"EventId": event_id} for event_id in event_ids]
    return json.dumps({"StartRequests": requests, **more}).encode()


def order(probe: Probe, event_type: str, before: DocumentRead) -> Life:
    """Have an event scheduled and wait until it appears. Raises Failed if it does not."""
    known = {event_id.upper() for event_id in before.event_ids}
    without, others = before, list[EventElement]()

    def mine(document: DocumentRead) -> list[EventElement]:
        new = [event for event in document.events if event.event_id.upper() not in known]
        others[:] = [event for event in new if not _may_be_for(event, probe.vm)]
        return [event for event in new if event not in others]

    def appeared(document: DocumentRead) -> bool:
        nonlocal without
        if mine(document):
            return True
        without = document
        return False

    failures = probe.observed.not_scheduled.setdefault(event_type, [])
    if len(failures) >= ORDERS_MAX:
        raise Skipped(f"no {event_type} can be scheduled: {failures[-1]}")
    try:
        probe.schedule(event_type)
        first = probe.until(appeared, within_s=APPEAR_WITHIN_S, what_for="for the event to appear")
        if first is None:
            seen = f"no new event for {probe.vm} within {APPEAR_WITHIN_S} s"
            for event in others:
                seen += f"; {event.event_id} names {', '.join(event.resources)}"
            raise Failed(seen, f"a {event_type} in the document")
    except Failed as failed:
        failures.append(failed.seen)
        raise
    failures.clear()
    # Another client may have had an event scheduled too.
    event = min(mine(first), key=lambda event: event.text("EventType") != event_type)
    probe.observed.left.append(event.event_id)
    return Life(event_id=event.event_id, before=before, without=without, first=first)


def _may_be_for(event: EventElement, vm: str) -> bool:
    """The event names the VM, in whatever case, or no VM that could be read."""
    names = [name.lower() for name in event.resources]
    return not names or vm.lower() in names


def ordered(probe: Probe, event_type: str) -> Life:
    """A new event, Scheduled. What an earlier check left behind is ended first, if it can be."""
    for event_id in [i for i in probe.observed.left if i not in probe.observed.stuck]:
        probe.observed.stuck.add(event_id)
        with suppress(Failed, Skipped, Broken):
            event = probe.document().event(event_id)
            if event is None:
                probe.observed.left.remove(event_id)
            elif event.started:  # too late to cancel it
                until_gone(probe, event_id)
            else:
                end(probe, event_id)
    return ordered_too(probe, event_type)


def ordered_too(probe: Probe, event_type: str) -> Life:
    """A new event, Scheduled, beside those that are there."""
    life = order(probe, event_type, probe.document())
    status = life.event.text("EventStatus")
    expect(status == "Scheduled", f"the new event is {status}", "Scheduled")
    return life


def end(probe: Probe, event_id: str) -> None:
    """Let the event end soon: canceled where that is possible, else approved."""
    if probe.options.cancel is not None:
        probe.cancel(event_id)
    else:
        expect_status(probe.post(approval(event_id)), 200)
    expect(until_gone(probe, event_id), f"{event_id} is there still", "its end")


def approve(probe: Probe, life: Life) -> None:
    """Approve the event; what was answered is kept."""
    life.waited = probe.document()
    life.approval = probe.post(approval(life.event_id))


def need_started(probe: Probe, life: Life, *, coarse: bool = False) -> DocumentRead:
    """Follow an approved event to its start. Raises Failed if it waits for its NotBefore.

    Skipped where the start may be kept back by others. With `coarse` it may be found gone already.
    """
    started = _until_started(probe, life, coarse=coarse)
    if started is not None:
        life.after_approval = started
        probe.observed.started_ids.add(life.event_id.upper())
        return started
    if life.event.text("EventSource") == "Platform":
        raise Skipped("it did not start; a host may wait for other tenants (A9)")
    raise Failed(
        f"{life.event_id} is Scheduled until its NotBefore, {life.event.text('NotBefore')}",
        "Started, or gone, before that",
    )


def _until_started(probe: Probe, life: Life, *, coarse: bool) -> DocumentRead | None:
    """The first document with the start that the approval has caused; else None.

    A start is the approval's doing only if the endpoint's Date is before NotBefore: an event whose
    time has come starts by itself (L12).
    """
    not_before_s = life.not_before_s
    if not_before_s is None:
        raise Skipped("its NotBefore cannot be read, so that a start by itself looks the same")
    before_s = not_before_s - (0 if probe.turned else STALE_DATE_S)

    def begun(document: DocumentRead) -> bool:
        if started_or_gone(document, life.event_id):
            return True
        life.waited = document
        return False

    now_s = probe.document().now_s
    if now_s is None:
        raise Skipped("answers have no Date, so that a start by itself looks the same")
    if now_s >= before_s:
        raise Skipped("its NotBefore has come, so that it starts by itself")
    return probe.until(
        begun,
        within_s=max(0, before_s - now_s - 1),
        before_s=before_s,
        what_for="for the approved event to start",
        coarse=coarse,
    )


def started_or_gone(document: DocumentRead, event_id: str) -> bool:
    event = document.event(event_id)
    return event is None or event.started


def until_gone(probe: Probe, event_id: str) -> DocumentRead | None:
    """Wait until an event is gone; the first document without it, None if it stays."""
    gone = probe.until(
        lambda document: document.event(event_id) is None,
        within_s=END_WITHIN_S,
        what_for="for the event to end",
        coarse=True,
    )
    if gone is not None and event_id in probe.observed.left:
        probe.observed.left.remove(event_id)
    return gone


def need_end(probe: Probe, life: Life, *, coarse: bool = True) -> DocumentRead:
    """Follow an event to its end, also under another EventId. Raises Failed if it stays."""

    def over(document: DocumentRead) -> bool:
        if document.event(life.event_id) is None and not life.twins(document):
            return True
        life.last = document
        return False

    gone = probe.until(
        over,
        within_s=END_WITHIN_S,
        what_for="for the event to end",
        coarse=coarse,
    )
    if gone is None:
        raise Failed(f"{life.event_id} is there after {END_WITHIN_S // 60} minutes", "its end")
    life.gone = gone
    for event_id in {life.event_id, life.event.event_id} & set(probe.observed.left):
        probe.observed.left.remove(event_id)
    return gone


def times(life: Life) -> tuple[int, int]:
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
