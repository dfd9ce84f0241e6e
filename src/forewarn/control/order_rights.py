"""Which right an order needs, and whether who gives it has it: asked in the order's transaction.

A route asks for its right before anything is read. What an order is about is known only here: a VM
may have changed its scope since, and an override is one by what the order says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from forewarn.control import commands
from forewarn.control.event_ids import ID_CHARS, only_one
from forewarn.control.transaction import Transaction
from forewarn.core.access import Access, Right, not_yours

AnyOrder = commands.Order | commands.InventoryOrder

RIGHTS_OF_ORDERS: Mapping[type[Any], Right] = {
    commands.RestartVm: Right.ORDER_VM,
    commands.RedeployVm: Right.ORDER_VM,
    commands.DeleteVm: Right.OPERATE,
    commands.EvictVm: Right.OPERATE,
    commands.StartVm: Right.OPERATE,
    commands.MaintainHost: Right.OPERATE,
    commands.DegradeHost: Right.OPERATE,
    commands.FailHost: Right.OPERATE,
    commands.RepairHost: Right.OPERATE,
    commands.CloseHost: Right.OPERATE,
    commands.OpenHost: Right.OPERATE,
    commands.ApproveEvent: Right.CONSENT,
    commands.CancelEvent: Right.OPERATE,
    commands.PostponeEvent: Right.ORDER_VM,
    commands.CancelOperation: Right.OPERATE,
    commands.ReleaseScope: Right.OPERATE,
    commands.MakeToken: Right.ADMINISTER,
    commands.RotateToken: Right.ADMINISTER,
    commands.RevokeToken: Right.ADMINISTER,
    commands.OrderWebhook: Right.ADMINISTER,
    commands.ApplyInventory: Right.ADMINISTER,
    commands.NothingToApply: Right.ADMINISTER,
    commands.ApplyInventoryAtOnce: Right.ADMINISTER,
    commands.DecideInventory: Right.ADMINISTER,
}


def allowed(tx: Transaction, access: Access, order: AnyOrder) -> AnyOrder:
    """The order, if who gives it may. Raises Forbidden.

    An owner's order for an event comes back with the whole id, looked for in the owner's scopes.
    """
    right = RIGHTS_OF_ORDERS[type(order)]
    what = f"to {words_of(order)}"
    access.need(right, what=what)
    if not access.all_scopes:
        return _own(tx, access, order, right)
    if overrides(order):
        access.need(Right.OVERRIDE, what=f"{what}, which overrides a promise")
    return order


def words_of(order: AnyOrder) -> str:
    """The order in two or three words, for a refusal."""
    kind = type(order).__struct_config__.tag
    return str(kind).replace("-", " ")


def overrides(order: AnyOrder) -> bool:
    """Whether the order does what a promise to guests or to VMs forbids; it needs a reason."""
    match order:
        case commands.MaintainHost() | commands.StartVm():
            return order.break_domains
        case commands.FailHost() | commands.RepairHost():
            return order.force
        case commands.ApproveEvent():
            return True
    return False


def _own(tx: Transaction, access: Access, order: AnyOrder, right: Right) -> AnyOrder:
    """The order of an owner, who may order something of his own scopes only."""
    match order:
        case commands.RestartVm() | commands.RedeployVm():
            scope = tx.scope_of_vm.get(order.vm)
            if scope is None or not access.may(right, scope):
                raise not_yours(access, f"VM {order.vm}")
            return order
        case commands.ApproveEvent() | commands.PostponeEvent():
            return replace(order, event_id=_own_event_id(tx, access, order.event_id))
    access.need_everywhere(right, what=f"to {words_of(order)}")
    return order


def _own_event_id(tx: Transaction, access: Access, given: str) -> str:
    """The whole id of an event of the owner's scopes, open or ended. Raises Forbidden."""
    wanted = given.upper()
    if len(wanted) < ID_CHARS:
        scopes = (tx.scope(name) for name in access.scopes)
        ids = [event.event_id for scope in scopes if scope for event in scope.events]
        begun = [one for one in ids if one.startswith(wanted)]
        if not begun:
            raise not_yours(access, f"open event {wanted}")
        return only_one(wanted, begun, noun="event")
    event = tx.kept_event(wanted)
    found = tx.open_event(wanted)
    scope = found[1].scope if found else event.scope if event else None
    if scope is None or not access.sees(scope):
        raise not_yours(access, f"event {wanted[:ID_CHARS]}")
    return wanted
