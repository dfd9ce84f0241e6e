"""An event that has not started is withdrawn and announced anew, later and under a new EventId.

What may be postponed, how often and how far is decided here. Who may ask at all is decided before
(`access`). Everything returns a value, or raises a Refusal and has changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from forewarn.core import placement, scheduling, scope_edits
from forewarn.core.errors import (
    Invalid,
    NotPostponable,
    PostponedTooFar,
    PostponedTooOften,
    Refusal,
)
from forewarn.core.facts import PostponedDetail, event_fact, operation_fact
from forewarn.core.fleet import Fleet
from forewarn.core.model import (
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    Cause,
    Decision,
    EventType,
    Fact,
    FactKind,
    Operation,
    Phase,
    Policy,
    ScheduledEvent,
    Scope,
)
from forewarn.core.principal import Principal, PrincipalKind
from forewarn.core.scheduling import POSTPONEMENTS_MAX

REASON_CHARS_MAX = 200
POSTPONED = "postponed"
WITH_ITS_OPERATION = "postponed with its operation"

_WHY_NOT: dict[Cause, tuple[str, str]] = {
    Cause.ORDER: (
        "was ordered for the VM itself, and cannot be postponed",
        "Cancel it (`forewarn event cancel {event}`) and order it again, with a window.",
    ),
    Cause.EVICTION: (
        "is an eviction: the host needs the place of the VM by then",
        "Only planned maintenance of a host is postponed.",
    ),
    Cause.DEGRADED: (
        "is there because the host is expected to fail, and a failure does not wait",
        "Move the VM when it suits you before that: `forewarn vm redeploy {vm}`.",
    ),
    Cause.FAILURE: (
        "is a failure: it has happened",
        "Only planned maintenance of a host is postponed.",
    ),
}


class Allowance(Struct, frozen=True, kw_only=True):
    """Whether an event can be postponed now, how often, and how far.

    `refused` is why it cannot be, None if it can: `times_left` times, and to a NotBefore of
    `latest_ms` at the latest, None where nothing limits that; `by_window` if its window does.
    `postponements` and `postponed_ms` are how often and by how much in all it was until now.
    """

    postponements: int
    postponed_ms: int
    times_left: int
    latest_ms: int | None
    by_window: bool
    refused: Refusal | None


class Postponement(Struct, frozen=True, kw_only=True):
    """What became of it: `withdrawn` and `announced` are ids of events, in the same order.

    The first is the event that was asked for. Others of the same operation follow, of other scopes
    only for an operator.
    """

    decision: Decision
    withdrawn: tuple[str, ...]
    announced: tuple[str, ...]


class _Moving(Struct, frozen=True):
    """An event that moves, with the scope that it belongs to."""

    scope: Scope
    event: ScheduledEvent


def need_reason(text: str) -> str:
    """Why it is postponed; empty where nothing is said. Raises Invalid."""
    reason = text.strip()
    if len(reason) > REASON_CHARS_MAX or not reason.isprintable():
        raise Invalid(
            "The reason is too long, or holds control characters.",
            f"Up to {REASON_CHARS_MAX} printable characters would be accepted, or none.",
        )
    return reason


def allowance(
    scope: Scope,
    event: ScheduledEvent,
    fleet: Fleet,
    *,
    by: PrincipalKind,
    policy: Policy,
    now_ms: int,
) -> Allowance:
    """What is left of postponing a scheduled event, for who asks in that capacity.

    An operator has set the limits and is bound by the window alone.
    """
    bound = by is not PrincipalKind.OPERATOR
    operation = _whole_operation(event, fleet)
    moving = _moving(scope, event, operation, fleet)
    times, so_far_ms = _so_far(event, operation)
    times_left = max(0, (policy.postponements_max if bound else POSTPONEMENTS_MAX) - times)
    ends: list[tuple[int, bool]] = []
    if event.window is not None:
        ends.append((_whole_second_ms(event.window.end_ms - 1), True))
    if bound:
        from_ms = max(now_ms, _not_before_ms(moving))
        ends.append((_whole_second_ms(from_ms + policy.postpone_ms_max - so_far_ms), False))
    latest_ms, by_window = min(ends, default=(None, False))
    soonest_ms = _announced_for_ms(moving, _not_before_ms(moving) + 1, now_ms=now_ms, policy=policy)
    refused = _refused_kind(event) or (_refused_to_owners(event, policy) if bound else None)
    if refused is None and not times_left:
        refused = _too_often(event, times)
    if refused is None and latest_ms is not None and soonest_ms > latest_ms:
        refused = _no_time_left(event, soonest_ms, now_ms, by_window=by_window)
    return Allowance(
        postponements=times,
        postponed_ms=so_far_ms,
        times_left=times_left,
        latest_ms=latest_ms,
        by_window=by_window,
        refused=refused,
    )


def postpone(
    scope: Scope,
    event_id: str,
    fleet: Fleet,
    *,
    until_ms: int,
    reason: str,
    by: Principal,
    ids: Iterator[str],
    now_ms: int,
    policy: Policy,
) -> Postponement:
    """Withdraw a scheduled event and announce it anew, for `until_ms` or its minimum notice.

    The new event is approved by none, and its notice begins with it. A Freeze or Reboot of a host
    is done once for all, so all events of the operation move together, and who asks for one of
    them is named to other scopes only if that is an operator.
    """
    event = scheduling.need_scheduled(scope, event_id, done="postponed")
    left = allowance(scope, event, fleet, by=by.kind, policy=policy, now_ms=now_ms)
    if left.refused is not None:
        raise left.refused
    operation = _whole_operation(event, fleet)
    moving = _moving(scope, event, operation, fleet)
    before_ms = _not_before_ms(moving)
    if until_ms <= before_ms:
        raise Invalid(
            f"Event {event_id} would not be postponed by that: without approval "
            f"{'its operation' if operation else 'it'} starts {_from_now(before_ms, now_ms)}.",
            "A later time would be accepted.",
        )
    not_before_ms = _announced_for_ms(moving, until_ms, now_ms=now_ms, policy=policy)
    if left.latest_ms is not None and not_before_ms > left.latest_ms:
        raise _too_far(event, left.latest_ms, now_ms, by_window=left.by_window)
    anew = _Anew(
        until_ms=until_ms,
        not_before_ms=not_before_ms,
        postponements=left.postponements + 1,
        postponed_ms=left.postponed_ms + not_before_ms - max(now_ms, before_ms),
        by=by,
        reason=reason,
        own_scope=scope.name,
    )
    return _announced(anew, moving, fleet, ids=ids, now_ms=now_ms, policy=policy)


class _Anew(Struct, frozen=True, kw_only=True):
    """What is announced in place of what is withdrawn, and why."""

    until_ms: int
    not_before_ms: int
    postponements: int
    postponed_ms: int
    by: Principal
    reason: str
    own_scope: str

    def says_who(self, scope: str) -> bool:
        """Whether a scope is told who has postponed it: another's owner is not its business."""
        return scope == self.own_scope or self.by.kind is PrincipalKind.OPERATOR

    def outcome(self, scope: str) -> str:
        if not self.says_who(scope):
            return WITH_ITS_OPERATION
        return f"{POSTPONED} by {self.by}" + (f": {self.reason}" if self.reason else "")

    def detail(self, *, who: bool, postponed_to: str | None = None) -> PostponedDetail:
        """What the journal says of it."""
        return PostponedDetail(
            postponed_to=postponed_to,
            not_before_ms=self.not_before_ms,
            postponements=self.postponements,
            postponed_ms=self.postponed_ms,
            reason=self.reason if who else "",
        )


# What moves, and how far it has come.


def _whole_operation(event: ScheduledEvent, fleet: Fleet) -> Operation | None:
    """The operation that is done once to its host; None for an event that is done by itself."""
    operation = fleet.operation(event.operation_id) if event.operation_id else None
    return operation if operation is not None and operation.whole_host else None


def _moving(
    scope: Scope, event: ScheduledEvent, operation: Operation | None, fleet: Fleet
) -> tuple[_Moving, ...]:
    """The event, then every other one that can only move with it."""
    found = [_Moving(scope, event)]
    for scope_name, event_id in operation.members if operation else ():
        of = fleet.scope(scope_name)
        other = of.event(event_id) if of else None
        waits = other is not None and other.phase is Phase.SCHEDULED
        if of is not None and other is not None and waits and event_id != event.event_id:
            found.append(_Moving(of, other))
    return tuple(found)


def _so_far(event: ScheduledEvent, operation: Operation | None) -> tuple[int, int]:
    """How often and by how much it was postponed: of a whole operation, for all its events."""
    counts = operation or event
    return counts.postponements, counts.postponed_ms


def _not_before_ms(moving: Sequence[_Moving]) -> int:
    """From when on all of it may start without approval, as guests were told."""
    return max(one.event.not_before_ms for one in moving)


def _order_of(event: ScheduledEvent, until_ms: int) -> scheduling.Order:
    """What is announced anew, in the words of the event that is withdrawn."""
    return scheduling.Order(
        event_type=event.event_type,
        cause=event.cause,
        by=scheduling.who_ordered(event),
        not_before_ms=until_ms,
        window=event.window,
        duration_s=event.duration_s if event.event_type is EventType.FREEZE else None,
        description=event.description,
    )


def _group(one: _Moving) -> placement.Group:
    return placement.Group(
        scope=one.scope.name,
        update_domain=one.event.update_domain,
        host=one.event.host,
        vm_names=one.event.resources,
        off=placement.all_off(one.scope, one.event),
    )


def _announced_for_ms(
    moving: Sequence[_Moving], until_ms: int, *, now_ms: int, policy: Policy
) -> int:
    """The NotBefore of what is announced anew now: one impact, so one time, the latest."""
    return max(
        scheduling.not_before_ms(
            one.scope, _order_of(one.event, until_ms), _group(one), now_ms=now_ms, policy=policy
        )
        for one in moving
    )


def _announced(
    anew: _Anew,
    moving: Sequence[_Moving],
    fleet: Fleet,
    *,
    ids: Iterator[str],
    now_ms: int,
    policy: Policy,
) -> Postponement:
    scopes: dict[str, Scope] = {}
    facts: list[Fact] = []
    announced: list[ScheduledEvent] = []
    for one in moving:
        scope, old = scopes.get(one.scope.name, one.scope), one.event
        new = scheduling.new_event(
            scope,
            _order_of(old, anew.until_ms),
            _group(one),
            event_id=next(ids),
            now_ms=now_ms,
            policy=policy,
            operation_id=old.operation_id,
            breaks_domains=old.breaks_domains,
        )
        new = replace(
            new,
            not_before_ms=anew.not_before_ms,
            postponed_from=old.event_id,
            postponements=anew.postponements,
            postponed_ms=anew.postponed_ms,
        )
        ended = scope_edits.cancel_event(old, now_ms, anew.outcome(scope.name))
        scope = scope_edits.with_event(scope, replace(ended, postponed_to=new.event_id))
        # However full the scope is: it has one event less.
        scopes[scope.name], new_facts = scheduling.put(scope, new)
        facts += [_postponed_fact(old, new, anew, now_ms), *new_facts]
        announced.append(new)
    operations = _with_members(announced, anew, fleet)
    facts += [
        operation_fact(
            FactKind.POSTPONED, operation, now_ms, by=anew.by, detail=anew.detail(who=True)
        )
        for operation in operations
        if operation.whole_host
    ]
    return Postponement(
        decision=Decision(scopes=tuple(scopes.values()), operations=operations, facts=tuple(facts)),
        withdrawn=tuple(o.event.event_id for o in moving if anew.says_who(o.scope.name)),
        announced=tuple(event.event_id for event in announced if anew.says_who(event.scope)),
    )


def _with_members(
    announced: Sequence[ScheduledEvent], anew: _Anew, fleet: Fleet
) -> tuple[Operation, ...]:
    """The operation that waits for the new events too; none for an event of its own."""
    operation_id = announced[0].operation_id
    operation = fleet.operation(operation_id) if operation_id else None
    if operation is None:
        return ()
    members = ((event.scope, event.event_id) for event in announced)
    operation = replace(operation, members=(*operation.members, *members))
    if operation.whole_host:
        operation = replace(
            operation,
            ordered_not_before_ms=anew.until_ms,
            postponements=anew.postponements,
            postponed_ms=anew.postponed_ms,
        )
    return (operation,)


def _postponed_fact(old: ScheduledEvent, new: ScheduledEvent, anew: _Anew, now_ms: int) -> Fact:
    who = anew.says_who(old.scope)
    return event_fact(
        FactKind.POSTPONED,
        old,
        now_ms,
        by=anew.by if who else None,
        detail=anew.detail(who=who, postponed_to=new.event_id),
    )


# Refusals.


def _refused_kind(event: ScheduledEvent) -> Refusal | None:
    why_not = _WHY_NOT.get(event.cause)
    if why_not is None:
        return None
    refused, accepted = why_not
    return NotPostponable(
        f"Event {event.event_id} {refused}.",
        accepted.format(event=event.event_id, vm=event.resources[0]),
    )


def _refused_to_owners(event: ScheduledEvent, policy: Policy) -> Refusal | None:
    if policy.postponements_max and policy.postpone_ms_max:
        return None
    return NotPostponable(
        f"Event {event.event_id} cannot be postponed by its owner: that is switched off here.",
        "An operator can postpone it, or set postponements_max and postpone_seconds_max.",
    )


def _too_often(event: ScheduledEvent, times: int) -> Refusal:
    counted = "once" if times == 1 else f"{times} times"
    return PostponedTooOften(
        f"Event {event.event_id} was postponed {counted} already, as often as it may be.",
        "Approve it, or ask an operator.",
    )


def _no_time_left(
    event: ScheduledEvent, soonest_ms: int, now_ms: int, *, by_window: bool
) -> Refusal:
    return PostponedTooFar(
        f"Event {event.event_id} cannot be postponed any more: announced anew it could start "
        f"{_from_now(soonest_ms, now_ms)} at the soonest, and {_limit(by_window=by_window)}.",
        "Approve it, or ask an operator."
        if not by_window
        else "Approve it; an operator can cancel it and order it with another window.",
    )


def _too_far(event: ScheduledEvent, latest_ms: int, now_ms: int, *, by_window: bool) -> Refusal:
    left_ms = max(0, latest_ms - now_ms)
    until = f"+{left_ms // MINUTE_MS}m" if left_ms >= HOUR_MS else f"+{left_ms // SECOND_MS}s"
    return PostponedTooFar(
        f"Event {event.event_id} cannot be postponed that far: {_limit(by_window=by_window)}.",
        f"Until {until} at the latest would be accepted.",
    )


def _limit(*, by_window: bool) -> str:
    if by_window:
        return "the window of its order closes before that"
    return "that is more than owners may postpone it by in all"


def _whole_second_ms(at_ms: int) -> int:
    """The last whole second that is not after it: NotBefore is one, and rounded up to it."""
    return at_ms // SECOND_MS * SECOND_MS


def _from_now(at_ms: int, now_ms: int) -> str:
    """When that is, in words, and not sooner."""
    ms = max(0, at_ms - now_ms)
    if ms <= MINUTE_MS:
        return f"{-(-ms // SECOND_MS)} s from now"
    return f"{-(-ms // MINUTE_MS)} min from now"
