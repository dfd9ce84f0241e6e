"""Which function decides which command: nothing else changes the fleet.

Each takes the transaction and the command, and gives what the command answers. They are pure but
for the transaction: the same commands in the same order, at the same times, decide the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from forewarn.control import commands, guest_commands, operator_commands, ticker
from forewarn.control.commands import Command
from forewarn.control.hosts import action_claims, join_commands, report_commands, turn_parts
from forewarn.control.inventory import apply_at_once, apply_in_slices
from forewarn.control.transaction import Transaction
from forewarn.core import tokens
from forewarn.core.model import Webhook
from forewarn.core.retention import Prunable
from forewarn.core.tokens import Token

R = TypeVar("R")

# They write down what has happened already, whatever callers may do by now.
HAPPENED = (commands.HostsLeft, commands.NoteAdoption, commands.NoteBackup)


def decide(tx: Transaction, command: Command[R]) -> R:
    """Decide a command within a transaction. Raises its Refusal, or TokenEnded."""
    if not isinstance(command, HAPPENED):
        tokens.refuse_ended(tx.tokens, command.by, tx.now_ms)
    answer: R = DECIDERS[type(command)](tx, command)
    return answer


def _all_of(tx: Transaction, command: commands.AllOf) -> tuple[Any, ...]:
    return tuple(DECIDERS[type(order)](tx, order) for order in command.orders)


def _once(tx: Transaction, command: commands.Once) -> commands.Answer:
    # Here: most emulators are never asked by HTTP, and what is answered are many types.
    from forewarn.control import idempotency  # noqa: PLC0415

    return idempotency.once(tx, command, decide)


def _find_answer(tx: Transaction, command: commands.FindAnswer) -> commands.Answer | None:
    from forewarn.control import idempotency  # noqa: PLC0415 - as above

    return idempotency.replayed(tx, key=command.key, fingerprint=command.fingerprint)


# Few emulators have tokens, or refuse anything: what decides these is loaded with the first one.


def _make_token(tx: Transaction, command: commands.MakeToken) -> Token:
    from forewarn.control import access_commands  # noqa: PLC0415 - see above

    return access_commands.make_token(tx, command)


def _rotate_token(tx: Transaction, command: commands.RotateToken) -> Token:
    from forewarn.control import access_commands  # noqa: PLC0415 - see above

    return access_commands.rotate_token(tx, command)


def _revoke_token(tx: Transaction, command: commands.RevokeToken) -> Token:
    from forewarn.control import access_commands  # noqa: PLC0415 - see above

    return access_commands.revoke_token(tx, command)


def _note_token_use(tx: Transaction, command: commands.NoteTokenUse) -> None:
    from forewarn.control import access_commands  # noqa: PLC0415 - see above

    access_commands.note_token_use(tx, command)


def _note_refused(tx: Transaction, command: commands.NoteRefused) -> None:
    from forewarn.control import access_commands  # noqa: PLC0415 - see above

    access_commands.note_refused(tx, command)


def _order_webhook(tx: Transaction, command: commands.OrderWebhook) -> Webhook:
    from forewarn.control import webhook_commands  # noqa: PLC0415 - few have webhooks

    return webhook_commands.order_webhook(tx, command)


def _note_delivery(tx: Transaction, command: commands.NoteDelivery) -> bool:
    from forewarn.control import webhook_commands  # noqa: PLC0415 - see above

    return webhook_commands.note_delivery(tx, command)


def _prune(tx: Transaction, command: commands.Prune) -> Prunable:
    from forewarn.control import retention  # noqa: PLC0415 - an emulator prunes nothing

    return retention.prune(tx, command)


DECIDERS: Mapping[type[Command[Any]], Callable[[Transaction, Any], Any]] = {
    commands.RestartVm: operator_commands.restart_vm,
    commands.RedeployVm: operator_commands.redeploy_vm,
    commands.DeleteVm: operator_commands.delete_vm,
    commands.EvictVm: operator_commands.evict_vm,
    commands.StartVm: operator_commands.start_vm,
    commands.MaintainHost: operator_commands.maintain_host,
    commands.DegradeHost: operator_commands.degrade_host,
    commands.FailHost: operator_commands.fail_host,
    commands.RepairHost: operator_commands.repair_host,
    commands.CloseHost: operator_commands.close_host,
    commands.OpenHost: operator_commands.open_host,
    commands.NoteAdoption: operator_commands.note_adoption,
    commands.ApproveEvent: operator_commands.approve_event,
    commands.CancelEvent: operator_commands.cancel_event,
    commands.PostponeEvent: operator_commands.postpone_event,
    commands.CancelOperation: operator_commands.cancel_operation,
    commands.ReleaseScope: operator_commands.release_scope,
    commands.NoteBackup: operator_commands.note_backup,
    commands.TellTime: operator_commands.tell_time,
    commands.MakeToken: _make_token,
    commands.RotateToken: _rotate_token,
    commands.RevokeToken: _revoke_token,
    commands.NoteTokenUse: _note_token_use,
    commands.NoteRefused: _note_refused,
    commands.OrderWebhook: _order_webhook,
    commands.NoteDelivery: _note_delivery,
    commands.ApplyInventory: apply_at_once.apply_inventory,
    commands.NothingToApply: apply_at_once.nothing_to_apply,
    commands.ApplyInventoryAtOnce: apply_in_slices.apply_inventory_at_once,
    commands.DecideInventory: apply_in_slices.decide_inventory,
    commands.TakeInventorySlice: apply_in_slices.take_inventory_slice,
    commands.FinishInventory: apply_in_slices.finish_inventory,
    commands.AllOf: _all_of,
    commands.Once: _once,
    commands.FindAnswer: _find_answer,
    commands.HostIsSilent: action_claims.host_is_silent,
    commands.HostJoined: join_commands.host_joined,
    commands.HostsLeft: join_commands.hosts_left,
    commands.ApproveEvents: guest_commands.approve_events,
    commands.EnableScope: guest_commands.enable_scope,
    commands.TakeTurn: turn_parts.take_turn,
    commands.ClaimActions: action_claims.claim_actions,
    commands.HoldClaim: action_claims.hold_claim,
    commands.TakeReport: report_commands.take_report,
    commands.BeginReport: report_commands.begin_report,
    commands.GoOnReport: report_commands.go_on_report,
    commands.EndReport: report_commands.end_report,
    commands.StartEvents: ticker.start_events,
    commands.StartOperation: ticker.start_operation,
    commands.WithdrawEvent: ticker.withdraw_event,
    commands.WithdrawOperation: ticker.withdraw_operation,
    commands.TellNewcomers: ticker.tell_newcomers,
    commands.SettleOperation: ticker.settle_operation,
    commands.ExpireEvent: ticker.expire_event,
    commands.ExpireOperation: ticker.expire_operation,
    commands.AssignPlace: ticker.assign,
    commands.EndRecoveries: ticker.end_recoveries,
    commands.DisableScope: ticker.disable,
    commands.NoteHeartbeat: ticker.note_heartbeat,
    commands.ClockStepped: ticker.clock_stepped,
    commands.Stalled: ticker.stalled,
    commands.WasDown: ticker.was_down,
    commands.Prune: _prune,
}
