"""What guests and hosts tell us: polls, confirmations, approvals, returns.

All of it decides when an event is due; none of it starts anything. Time that was lost is in
`lost_time`.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from forewarn.core import notice, overrides, placement, recovering, scope_edits, windows
from forewarn.core.errors import NotFound, UnknownEventIds
from forewarn.core.facts import (
    AppearedDetail,
    ConfirmedDetail,
    DisabledDetail,
    ReleasedDetail,
    approved_fact,
    by_whom,
    event_fact,
)
from forewarn.core.lifecycle import Move, move
from forewarn.core.model import (
    Decision,
    EventSource,
    Fact,
    FactKind,
    Phase,
    ScheduledEvent,
    Scope,
)
from forewarn.core.principal import PrincipalKind, Who

UNKNOWN_IDS_NAMED_MAX = 3


def enable(scope: Scope, *, vm: str, now_ms: int) -> Decision:
    """A VM of the scope polled: from now on its guests are told.

    Silent platform events that have not started appear, with their full minimum notice from now.
    """
    if scope.enabled:
        return Decision()
    facts = [Fact(kind=FactKind.ENABLED, at_ms=now_ms, scope=scope.name, vm=vm)]
    events: list[ScheduledEvent] = []
    for event in scope.events:
        if not _may_appear(event) or placement.all_off(scope, event):
            events.append(event)
            continue
        shown, fact = appears(event, now_ms)
        events.append(shown)
        facts.append(fact)
    enabled = replace(scope, enabled=True, polled_ms=now_ms, events=tuple(events))
    return Decision(scopes=(enabled,), facts=tuple(facts))


def appears(event: ScheduledEvent, now_ms: int) -> tuple[ScheduledEvent, Fact]:
    """A silent event as guests see it from now on, with its full minimum notice.

    One whose window closes before that notice has ended is withdrawn: it can be told, and must be.
    """
    not_before_ms = scope_edits.whole_second_ms(
        max(
            now_ms + event.minimum_notice_ms,
            event.ordered_not_before_ms or 0,
            windows.opens_ms(event.window),
        )
    )
    if not windows.is_open(event.window, not_before_ms):
        return windows.withdrawn(event, windows.TOLD_TOO_LATE, now_ms)
    shown = replace(event, silent=False, not_before_ms=not_before_ms)
    detail = AppearedDetail(not_before_ms=shown.not_before_ms)
    return shown, event_fact(FactKind.APPEARED, event, now_ms, detail=detail)


def _may_appear(event: ScheduledEvent) -> bool:
    """True for silent ones that wait. A user event waits for nothing, unless it has a window."""
    waits = event.event_source is EventSource.PLATFORM or event.window is not None
    return event.silent and event.phase is Phase.SCHEDULED and waits


def polled(scope: Scope, polled_ms: int) -> Decision:
    """Save when the scope was last polled."""
    if scope.polled_ms is not None and scope.polled_ms >= polled_ms:
        return Decision()
    return Decision(scopes=(replace(scope, polled_ms=polled_ms),))


def disable_if_silent(scope: Scope, now_ms: int) -> Decision:
    """Stop telling a scope that no VM has polled for 24 hours (L4). Visible events stay."""
    if not scope.enabled or scope.polled_ms is None:
        return Decision()
    if now_ms - scope.polled_ms < notice.ENABLED_FOR_MS:
        return Decision()
    fact = Fact(
        kind=FactKind.DISABLED,
        at_ms=now_ms,
        scope=scope.name,
        detail=DisabledDetail(last_poll_ms=scope.polled_ms),
    )
    return Decision(scopes=(replace(scope, enabled=False),), facts=(fact,))


def first_polls(scope: Scope, vms: Collection[str]) -> Decision:
    """These VMs of the scope have polled for the first time ever."""
    named = {vm.name for vm in scope.vms if vm.name in vms and not vm.has_polled}
    if not named:
        return Decision()
    after = (replace(vm, has_polled=True) if vm.name in named else vm for vm in scope.vms)
    return Decision(scopes=(replace(scope, vms=tuple(after)),))


def confirm(scope: Scope, *, host: str, incarnation: int, now_ms: int) -> Decision:
    """The host shows this incarnation: the notice of its events runs from now, or runs on."""
    newly = [
        event
        for event in scope.events
        if event.host == host
        and event.visible
        and event.shown_ms is None
        and event.appeared_incarnation <= incarnation
    ]
    if not newly:
        return Decision()
    facts = []
    for event in newly:
        scope = scope_edits.with_event(scope, replace(event, shown_ms=now_ms))
        detail = ConfirmedDetail(incarnation=incarnation)
        facts.append(event_fact(FactKind.CONFIRMED, event, now_ms, host=host, detail=detail))
    return Decision(scopes=(scope,), facts=tuple(facts))


def refuse_unseen(scope: Scope, event_ids: Collection[str]) -> None:
    """A guest cannot approve what it was never shown: to it a silent event does not exist."""
    unseen = [i for i in event_ids if (event := scope.event(i)) is not None and event.silent]
    if unseen:
        raise _unknown(unseen)


def _unknown(ids: list[str]) -> UnknownEventIds:
    named = ", ".join(ids[:UNKNOWN_IDS_NAMED_MAX])
    more = len(ids) - UNKNOWN_IDS_NAMED_MAX
    return UnknownEventIds(
        f"Unknown EventId: {named}{f' and {more} more' if more > 0 else ''}.",
        "Nothing was approved. Send ids from the Events of your own document.",
    )


def need_reason(text: str) -> str:
    """Why an operator approves in place of a VM. Raises Invalid if it says nothing."""
    return overrides.need_reason(
        text,
        "An operator who approves in place of a VM has to say why.",
        kept="it is in the receipt and the journal.",
    )


def approve(
    scope: Scope,
    event_ids: Collection[str],
    *,
    known: Collection[str],
    by: Who,
    now_ms: int,
    by_kind: PrincipalKind = PrincipalKind.VM,
    reason: str = "",
) -> Decision:
    """A VM of the scope, its owner, or an operator for a `reason`, says go ahead: they become due.

    An id that is already approved, started or ended is accepted without effect (A4). One id that
    the scope never had refuses the whole request. `known` are ids the scope has or ever had. What
    an owner says is consent, with words or without: it overrides no VM.
    """
    overriding = by_kind is PrincipalKind.OPERATOR
    unknown = [i for i in event_ids if i not in known and scope.event(i) is None]
    if unknown:
        raise _unknown(unknown)
    facts: list[Fact] = []
    for event_id in dict.fromkeys(event_ids):
        event = scope.event(event_id)
        if event is None or event.phase is not Phase.SCHEDULED or event.approved_ms is not None:
            continue
        approved = replace(
            event,
            phase=move(event.phase, Move.APPROVE),
            approved_ms=now_ms,
            approved_by=str(by),
            approved_by_kind=by_kind,
            override_reason=reason if overriding else "",
        )
        scope = scope_edits.with_event(scope, approved)
        facts.append(approved_fact(event, now_ms, by=by, by_kind=by_kind, reason=reason))
    return Decision(scopes=(scope,), facts=tuple(facts)) if facts else Decision()


def returned(scope: Scope, vm: str, now_ms: int) -> Decision:
    """A VM that a recovering domain waits for has polled again."""
    if not any(vm in recovery.waiting_for for recovery in scope.recoveries):
        return Decision()
    scope, facts = recovering.vm_returned(scope, vm, now_ms)
    return Decision(scopes=(scope,), facts=facts)


def end_recoveries(scope: Scope, now_ms: int) -> Decision:
    """End the wait for VMs that did not poll again in time."""
    over = [r for r in scope.recoveries if now_ms >= r.until_ms]
    if not over:
        return Decision()
    facts = tuple(
        recovering.recovered_fact(
            scope, r, now_ms, "waited long enough for " + ", ".join(r.waiting_for)
        )
        for r in over
    )
    kept = tuple(r for r in scope.recoveries if r not in over)
    return Decision(scopes=(replace(scope, recoveries=kept),), facts=facts)


def release(scope: Scope, *, by: Who, now_ms: int) -> Decision:
    """The operator has looked at a failed event: platform events of the scope may go on."""
    if scope.hold is None:
        raise NotFound(
            f"Scope {scope.name} is not held.", "`forewarn scope show` says what it waits for."
        )
    fact = Fact(
        kind=FactKind.RELEASED,
        at_ms=now_ms,
        scope=scope.name,
        event_id=scope.hold.event_id,
        detail=ReleasedDetail(held_since_ms=scope.hold.since_ms),
    )
    return Decision(scopes=(replace(scope, hold=None),), facts=(by_whom(fact, by),))
