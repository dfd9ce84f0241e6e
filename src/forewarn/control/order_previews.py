"""What an order would do, before it is given: decided as it will be, and kept nowhere.

The decision is that of the order itself, over a look at the fleet. `Preview.mark` is a name for the
effect: who confirms an order after having seen its effect sends the mark, and the transaction
refuses the order if its effect is another one by then. Times are not part of an effect: a minute
later the same order announces the same a minute later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

import msgspec
from msgspec import Struct

from forewarn.control import commands
from forewarn.control.access_commands import token_to_make, token_to_rotate
from forewarn.control.fleet_reader import FleetLook
from forewarn.control.operator_commands import (
    OfVm,
    degradation,
    maintenance,
    postponement,
    vm_order,
)
from forewarn.core import document, explain, polls_and_approvals, scheduling, tokens, webhooks
from forewarn.core.access import Role
from forewarn.core.errors import AlreadyEnded, EffectMoved, Invalid, NotFound
from forewarn.core.model import (
    Decision,
    EventSource,
    EventType,
    Health,
    Host,
    Operation,
    Phase,
    ScheduledEvent,
    Scope,
)
from forewarn.core.principal import PrincipalKind
from forewarn.core.starting import Hold, HoldReason

MARK_CHARS = 32
_OF_NOTICE = (HoldReason.CONSENT, HoldReason.CLOCK, HoldReason.NOT_YET_SERVED)
_NEW = "new"  # what ids begin with that stand for those to come

Own = Collection[str] | None  # the scopes of the owner who asks


class PreviewedEvent(Struct, frozen=True, kw_only=True):
    """An event as the order would leave it. `event_id` is empty for one that is not there yet.

    `told`: its guests read of it, because some VM of the scope polls.
    """

    event_id: str
    scope: str
    update_domain: int
    host: str
    vms: tuple[str, ...]
    event_type: EventType
    event_source: EventSource
    phase: Phase
    told: bool
    approved: bool
    not_before_ms: int
    minimum_notice_ms: int
    description: str


class PreviewedHost(Struct, frozen=True, kw_only=True):
    """A host as it is, before an order that says something of it."""

    name: str
    closed: bool
    health: Health
    fenced: bool
    vm_count: int


class PreviewedToken(Struct, frozen=True, kw_only=True):
    """A token as it is before an order about it; as it would be where it is yet to be made."""

    name: str
    role: Role
    scopes: tuple[str, ...]
    expires_ms: int
    token_id: str = ""  # empty while there is none
    rotated_ms: int | None = None
    used_ms: int | None = None


class Preview(Struct, frozen=True, kw_only=True):
    """What an order would do.

    `events` are those that it makes or changes, `holds` what would keep them from starting at once,
    `host` and `token` are what it says something of. `unchanged`: there is nothing to do, it is so
    already. `withdrawn` are the events that others take the place of.
    """

    events: tuple[PreviewedEvent, ...] = ()
    holds: tuple[Hold, ...] = ()
    host: PreviewedHost | None = None
    token: PreviewedToken | None = None
    withdrawn: tuple[str, ...] = ()
    scope_held: str = ""  # why the scope waits that would be released
    turn: int = 0  # of the webhook that it is about
    unchanged: bool = False

    @property
    def mark(self) -> str:
        """The name of the effect. Two looks with the same effect have the same."""
        events = [
            (e.event_id, e.scope, e.update_domain, e.host, e.vms, e.event_type, e.phase, e.told)
            for e in self.events
        ]
        token = self.token
        said = (
            events,
            self.withdrawn,
            self.host,
            token and (token.name, token.role, token.scopes, token.token_id, token.rotated_ms),
            self.scope_held,
            self.unchanged,
            *filter(None, (self.turn,)),
        )
        return hashlib.sha256(msgspec.json.encode(said)).hexdigest()[:MARK_CHARS]


def refuse_other_effect(fleet: FleetLook, order: object, seen: str) -> None:
    """Raises EffectMoved if the order would do something else than what `seen` names.

    What refuses the order itself is left to the order, which says it better.
    """
    if preview(fleet, order).mark != seen:
        raise EffectMoved(
            "The fleet has changed since you looked: this order would now do something else.",
            "Look at what it would do now, and confirm that.",
        )


def preview(fleet: FleetLook, order: object, *, own: Collection[str] | None = None) -> Preview:
    """What the order would do now. Raises its Refusal.

    `own` are the scopes of an owner, who is told of other scopes only that they hold it.
    """
    if own is not None and type(order) in _OF_OWNERS:
        return _OF_OWNERS[type(order)](fleet, order, own)
    look = _PREVIEWS.get(type(order))
    if look is None:
        raise Invalid(
            "Control cannot show beforehand what this order would do.",
            "Order it without a preview.",
        )
    return look(fleet, order)


def need_open(fleet: FleetLook, event_id: str) -> tuple[Scope, ScheduledEvent]:
    """The open event of that whole id. Raises AlreadyEnded: a preview looks at nothing else."""
    found = fleet.open_event(event_id.upper())
    if found is None:
        raise AlreadyEnded(f"There is no open event {event_id}.", "It has ended, or never was.")
    return found


def _need_operation(fleet: FleetLook, operation_id: str) -> Operation:
    operation = fleet.operation(operation_id.upper())
    if operation is None:
        raise AlreadyEnded(
            f"There is no open operation {operation_id}.", "It has ended, or never was."
        )
    return operation


def _ids() -> Iterator[str]:
    return (f"{_NEW} {number}" for number in count(1))


def _maintenance(fleet: FleetLook, order: commands.MaintainHost) -> Preview:
    return _operation_after(fleet, maintenance(fleet, order, operation_id=_NEW, ids=_ids()))


def _degradation(fleet: FleetLook, order: commands.DegradeHost) -> Preview:
    return _operation_after(fleet, degradation(fleet, order, operation_id=_NEW, ids=_ids()))


def _cancel_event(fleet: FleetLook, order: commands.CancelEvent) -> Preview:
    scope, event = need_open(fleet, order.event_id)
    by, now_ms = str(order.by), fleet.now_ms
    decision = scheduling.cancel(scope, event.event_id, fleet, by=by, now_ms=now_ms)
    return Preview(events=_events(fleet, decision))


def _cancel_operation(fleet: FleetLook, order: commands.CancelOperation) -> Preview:
    operation = _need_operation(fleet, order.operation_id)
    by, now_ms = str(order.by), fleet.now_ms
    decision = scheduling.cancel_whole(operation, fleet, by=by, now_ms=now_ms)
    return Preview(events=_events(fleet, decision))


def _postponement(fleet: FleetLook, order: commands.PostponeEvent, own: Own = None) -> Preview:
    """The events that would be announced anew; an owner is told of those of his scopes."""
    scope, event = need_open(fleet, order.event_id)
    postponed = postponement(fleet, order, scope, event.event_id, ids=_ids())
    after = fleet.after(postponed.decision)
    found = [(one, e) for one in postponed.decision.scopes for e in one.events]
    anew = [(one, e) for one, e in found if e.event_id in postponed.announced]
    return Preview(
        events=tuple(_event(e) for _, e in anew),
        holds=_beyond_notice(hold for one, e in anew for hold in _holds(one, e, after, own)),
        withdrawn=postponed.withdrawn,
    )


def _holds(scope: Scope, event: ScheduledEvent, look: FleetLook, own: Own) -> tuple[Hold, ...]:
    """What would hold an event, in the words for who asks."""
    if own is None:
        return explain.explain_event(scope, event, look, look.now_ms).holds
    from forewarn.core import owner_explain  # noqa: PLC0415 - most emulators have no owners

    return owner_explain.explain_event(scope, event, look, look.now_ms, own=own).holds


def _vm_order(fleet: FleetLook, order: OfVm, own: Own = None) -> Preview:
    decision, event_id = vm_order(fleet, order, event_id=f"{_NEW} 1")
    after = fleet.after(decision)
    scope = after.scope(fleet.need_scope_of_vm(order.vm).name)
    event = scope.event(event_id) if scope else None
    if scope is None or event is None:
        raise NotFound(f"There is no VM {order.vm}.", "`forewarn vm list` shows the names.")
    holds = _holds(scope, event, after, own)
    if not decision.scopes:
        return Preview(events=(_event(event),), holds=holds, unchanged=True)
    return Preview(events=_events(fleet, decision), holds=_beyond_notice(holds))


def _approval(fleet: FleetLook, order: commands.ApproveEvent, own: Own = None) -> Preview:
    """Who approves makes no difference to what follows; whether he may is not asked here."""
    scope, event = need_open(fleet, order.event_id)
    decision = polls_and_approvals.approve(
        scope,
        (event.event_id,),
        known=(event.event_id,),
        by=str(order.by),
        by_kind=PrincipalKind.VM,
        now_ms=fleet.now_ms,
    )
    after = fleet.after(decision)
    found = after.scope(scope.name) or scope
    approved = found.event(event.event_id) or event
    return Preview(
        events=(_event(approved),),
        holds=_holds(found, approved, after, own),
        unchanged=not decision.scopes,
    )


def _release(fleet: FleetLook, order: commands.ReleaseScope) -> Preview:
    scope = fleet.need_scope(order.scope)
    held = scope.hold
    decision = polls_and_approvals.release(scope, by=str(order.by), now_ms=fleet.now_ms)
    after = fleet.after(decision)
    found = after.scope(scope.name) or scope
    waiting = [
        event
        for event in found.events
        if event.phase is Phase.SCHEDULED and event.event_source is EventSource.PLATFORM
    ]
    holds: dict[Hold, None] = {}
    for event in waiting:
        holds |= dict.fromkeys(explain.explain_event(found, event, after, fleet.now_ms).holds)
    return Preview(
        events=tuple(_event(event) for event in waiting),
        holds=tuple(holds),
        scope_held=held.reason if held else "",
    )


def _saying(
    fleet: FleetLook,
    order: commands.CloseHost | commands.OpenHost | commands.FailHost | commands.RepairHost,
) -> Preview:
    host = fleet.need_host(order.host)
    match order:
        case commands.CloseHost():
            same = host.closed
        case commands.OpenHost():
            same = not host.closed
        case commands.FailHost():
            same = host.health is Health.FAILED and (host.fenced or not order.fenced)
        case commands.RepairHost():
            same = host.health is Health.OK
    return Preview(host=_host(fleet, host), unchanged=same)


def _new_token(fleet: FleetLook, order: commands.MakeToken) -> Preview:
    made = token_to_make(fleet, order).token
    return Preview(
        token=PreviewedToken(
            name=made.name, role=made.role, scopes=made.scopes, expires_ms=made.expires_ms
        )
    )


def _kept_token(fleet: FleetLook, order: commands.RotateToken | commands.RevokeToken) -> Preview:
    token = tokens.find(fleet.tokens, order.token_id)
    if isinstance(order, commands.RotateToken):
        token_to_rotate(fleet, order)  # refuses what the order would
    return Preview(
        token=PreviewedToken(
            name=token.name,
            role=token.role,
            scopes=token.scopes,
            expires_ms=token.expires_ms,
            token_id=token.token_id,
            rotated_ms=token.rotated_ms,
            used_ms=token.used_ms,
        ),
        unchanged=token.revoked_ms is not None,
    )


def _operation_after(fleet: FleetLook, decision: Decision) -> Preview:
    after = fleet.after(decision)
    (operation,) = decision.operations
    host = fleet.need_host(operation.host)
    return Preview(
        events=_events(fleet, decision),
        holds=_beyond_notice(explain.explain_operation(operation, after, after.now_ms).holds),
        host=_host(fleet, host),
    )


def _beyond_notice(holds: Iterable[Hold]) -> tuple[Hold, ...]:
    """What would hold events that are new, apart from the notice that they are to give."""
    return tuple(hold for hold in holds if hold.reason not in _OF_NOTICE)


def _host(fleet: FleetLook, host: Host) -> PreviewedHost:
    return PreviewedHost(
        name=host.name,
        closed=host.closed,
        health=host.health,
        fenced=host.fenced,
        vm_count=fleet.vm_count(host.name),
    )


def _events(fleet: FleetLook, decision: Decision) -> tuple[PreviewedEvent, ...]:
    """The events that a decision makes or changes, by scope and update domain."""
    found = (
        event
        for scope in decision.scopes
        for _, event in document.moved(fleet.scope(scope.name), scope).pairs
    )
    shown = (_event(event) for event in found)
    return tuple(sorted(shown, key=lambda one: (one.scope, one.update_domain, one.vms)))


def _event(event: ScheduledEvent) -> PreviewedEvent:
    return PreviewedEvent(
        event_id="" if event.event_id.startswith(_NEW) else event.event_id,
        scope=event.scope,
        update_domain=event.update_domain,
        host=event.host,
        vms=event.resources,
        event_type=event.event_type,
        event_source=event.event_source,
        phase=event.phase,
        told=not event.silent,
        approved=event.approved_ms is not None,
        not_before_ms=event.not_before_ms,
        minimum_notice_ms=event.minimum_notice_ms,
        description=event.description,
    )


def _webhook(fleet: FleetLook, order: commands.OrderWebhook) -> Preview:
    """What it does is said by its words; whether the webhook is as it was seen, by its turn."""
    return Preview(turn=webhooks.find(fleet.webhooks, order.webhook_id).turn)


_PREVIEWS: Mapping[type, Callable[[FleetLook, Any], Preview]] = {
    commands.RestartVm: _vm_order,
    commands.RedeployVm: _vm_order,
    commands.DeleteVm: _vm_order,
    commands.EvictVm: _vm_order,
    commands.MaintainHost: _maintenance,
    commands.DegradeHost: _degradation,
    commands.ApproveEvent: _approval,
    commands.PostponeEvent: _postponement,
    commands.CancelEvent: _cancel_event,
    commands.CancelOperation: _cancel_operation,
    commands.ReleaseScope: _release,
    commands.CloseHost: _saying,
    commands.OpenHost: _saying,
    commands.FailHost: _saying,
    commands.RepairHost: _saying,
    commands.OrderWebhook: _webhook,
    commands.MakeToken: _new_token,
    commands.RotateToken: _kept_token,
    commands.RevokeToken: _kept_token,
}
_OF_OWNERS: Mapping[type, Callable[[FleetLook, Any, Own], Preview]] = {
    commands.RestartVm: _vm_order,
    commands.RedeployVm: _vm_order,
    commands.ApproveEvent: _approval,
    commands.PostponeEvent: _postponement,
}
