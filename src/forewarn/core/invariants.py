"""What must be true of every change, checked again before every save.

Written from the promises and not from the rules: it looks at before and after only. A broken
invariant is a bug of ours; the change is not saved.
"""

from __future__ import annotations

from forewarn.core import document, notice
from forewarn.core.lifecycle import TRANSITIONS
from forewarn.core.model import Cause, EventType, Phase, ScheduledEvent, Scope

RULED = frozenset({EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY})


class InvariantBroken(AssertionError):  # noqa: N818 - says what is the case
    """The change would break a promise. It must not be saved."""


def check(before: Scope | None, after: Scope, now_ms: int) -> None:
    """Raise InvariantBroken unless `after` may follow `before` at this time."""
    if before is None:
        return
    _check_counting(before, after)
    moved = document.moved(before, after)
    for earlier, event in moved.pairs:
        _check_move(earlier, event)
        started = event.phase is Phase.STARTED
        if started and (earlier is None or earlier.phase is not Phase.STARTED):
            _check_start(after, event, now_ms)
    if moved.gone:
        gone = sorted(event.event_id for event in moved.gone)
        raise InvariantBroken(f"I3: events vanished without an end: {gone}")
    if any(event.phase is Phase.STARTED for _, event in moved.pairs):
        _check_one_started_per_vm(after)  # else there are no more started ones than before


def _check_counting(before: Scope, after: Scope) -> None:
    if after.revision != before.revision + 1:
        raise InvariantBroken(f"the revision of {after.name} did not grow by one")
    changed = document.changed(before, after)
    counted = before.incarnation + (1 if changed else 0)
    if document.joined(before, after) and after.incarnation >= counted:
        return  # it may be ahead of what those VMs read in the scope they left
    if after.incarnation != counted:
        raise InvariantBroken(
            f"I4: incarnation of {after.name} went from {before.incarnation} to "
            f"{after.incarnation} while the content {'changed' if changed else 'did not change'}"
        )


def _check_move(earlier: ScheduledEvent | None, event: ScheduledEvent) -> None:
    if earlier is None:
        if event.phase not in (Phase.SCHEDULED, Phase.STARTED):
            raise InvariantBroken(f"I3: {event.event_id} began as {event.phase.value}")
        _check_not_before_in_window(event)
        return
    if earlier.window != event.window:
        raise InvariantBroken(f"the window of {event.event_id} changed")
    if earlier.silent and not event.silent:
        _check_not_before_in_window(event)
    if earlier.phase is not event.phase and event.phase not in _reachable(earlier.phase):
        raise InvariantBroken(
            f"I3: {event.event_id} went from {earlier.phase.value} to {event.phase.value}"
        )
    if earlier.visible and earlier.not_before_ms != event.not_before_ms:
        raise InvariantBroken(f"NotBefore of {event.event_id} changed after publication")
    if earlier.approved_ms is not None and event.approved_ms is None:
        raise InvariantBroken(f"I5: the approval of {event.event_id} was lost")
    if earlier.event_type is not event.event_type or earlier.scope != event.scope:
        raise InvariantBroken(f"I3: {event.event_id} became another event")


def _check_not_before_in_window(event: ScheduledEvent) -> None:
    waits = event.phase is Phase.SCHEDULED and not event.silent
    if waits and not _in_window(event, event.not_before_ms):
        raise InvariantBroken(f"NotBefore of {event.event_id} is not in its window")


def _in_window(event: ScheduledEvent, at_ms: int) -> bool:
    return event.window is None or event.window.start_ms <= at_ms < event.window.end_ms


def _reachable(phase: Phase) -> set[Phase]:
    """Phases that a chain of moves leads to; one change may hold several moves."""
    found = {phase}
    while True:
        further = {to for (source, _), to in TRANSITIONS.items() if source in found}
        if further <= found:
            return found
        found |= further


def _check_start(after: Scope, event: ScheduledEvent, now_ms: int) -> None:
    if event.cause is Cause.FAILURE:
        return
    if not _in_window(event, now_ms):
        raise InvariantBroken(f"I14: {event.event_id} starts outside of its window")
    approved = event.approved_ms is not None
    waits_for_no_vm = event.event_type in RULED and _impacts_no_vm(after, event)
    if not event.silent and not approved and not waits_for_no_vm:
        if now_ms < event.not_before_ms:
            raise InvariantBroken(f"I1: {event.event_id} starts before its NotBefore")
        if notice.readable_ms(event, now_ms) < event.minimum_notice_ms:
            raise InvariantBroken(f"I6: {event.event_id} starts without its minimum notice")
    if event.event_type not in RULED or _impacts_no_vm(after, event):
        return
    for other in after.events:
        if other.phase is not Phase.STARTED or other.update_domain == event.update_domain:
            continue
        both = event.breaks_domains and other.operation_id == event.operation_id
        if not both and not _impacts_no_vm(after, other):
            raise InvariantBroken(
                f"I2: {event.event_id} starts while domain {other.update_domain} is started"
            )


def _impacts_no_vm(scope: Scope, event: ScheduledEvent) -> bool:
    """True if all its VMs were switched off by their owners."""
    off = {vm.name for vm in scope.vms if vm.off}
    return bool(event.resources) and off.issuperset(event.resources)


def _check_one_started_per_vm(after: Scope) -> None:
    seen: dict[str, str] = {}
    for event in after.events:
        if event.phase is not Phase.STARTED:
            continue
        for name in event.resources:
            if name in seen:
                raise InvariantBroken(
                    f"{name} is in two started events: {seen[name]} and {event.event_id}"
                )
            seen[name] = event.event_id
