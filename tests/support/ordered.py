"""Commands in few words, for tests. No test lives here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from forewarn.control import commands, guest_commands
from forewarn.control.command_handlers import DECIDERS
from forewarn.control.commands import Command
from forewarn.control.hosts import action_claims
from forewarn.control.inventory.file_reader import digest_of
from forewarn.control.transaction import Transaction
from forewarn.control.writer import CommandWithClock, LoggedByCaller, Wanted
from forewarn.core.access import Access, Role
from forewarn.core.model import EventType, Host, Operation, Outcome, ScheduledEvent, Scope
from forewarn.core.principal import CLOCK, TICKER, Principal, PrincipalKind, the_host, the_vm
from forewarn.wire.instants import TimeInput, WindowInput
from forewarn.wire.link import Turn

T = TypeVar("T")

WHY = "a test wants it"  # of overrides


class Acting(Command[Any], frozen=True, kw_only=True):
    """What no command says, for a test that wants a state that is hard to come by."""

    act: Any


def _act(tx: Transaction, command: Acting) -> Any:
    return command.act(tx)


cast("dict[Any, Any]", DECIDERS)[Acting] = _act

Given = Wanted[T] | Callable[[Transaction], T]


def wanted(given: Given[T]) -> Wanted[T]:
    """What the writer is given: a command, or what a test wants to do in a transaction."""
    if isinstance(given, Command | LoggedByCaller | CommandWithClock):
        return given
    return Acting(by=operator("test"), act=given)


def operator(name: str) -> Principal:
    return Principal(kind=PrincipalKind.OPERATOR, id=name, name=name)


def owner(name: str) -> Principal:
    return Principal(kind=PrincipalKind.OWNER, id=f"socket:{name}", name=name)


def full_access(by: Principal) -> Access:
    """Who may do everything, as the operator's token may."""
    return Access(principal=by, role=Role.ADMIN)


def at(ms: int | None) -> TimeInput | None:
    return None if ms is None else TimeInput(said=f"{ms} ms", at_ms=ms)


# What operators order.


def start_vm(vm: str, host: str, *, by: str, **more: Any) -> Command[ScheduledEvent]:
    return commands.StartVm(by=operator(by), vm=vm, host=host, **more)


def within(window: tuple[int, int] | None) -> WindowInput | None:
    """A window from one wall time in milliseconds to another."""
    if window is None:
        return None
    start, end = (TimeInput(said=f"{ms} ms", at_ms=ms) for ms in window)
    return WindowInput(start=start, end=end)


def order_vm(
    vm: str, event_type: EventType, *, by: str, window: tuple[int, int] | None = None
) -> Command[ScheduledEvent]:
    return commands.VM_ORDERS[event_type](by=operator(by), vm=vm, window=within(window))


def maintain_host(
    host: str,
    event_type: EventType,
    *,
    by: str,
    not_before_ms: int | None = None,
    window: tuple[int, int] | None = None,
    **more: Any,
) -> Command[Operation]:
    return commands.MaintainHost(
        by=operator(by),
        host=host,
        event_type=event_type,
        not_before=at(not_before_ms),
        window=within(window),
        **{"reason": WHY if more.get("break_domains") else "", **more},
    )


def degrade_host(
    host: str,
    *,
    by: str,
    not_before_ms: int | None = None,
    window: tuple[int, int] | None = None,
) -> Command[Operation]:
    return commands.DegradeHost(
        by=operator(by), host=host, not_before=at(not_before_ms), window=within(window)
    )


def fail_host(
    host: str, *, by: str, fenced: bool, force: bool = False
) -> Command[commands.HostFailed]:
    return commands.FailHost(
        by=operator(by), host=host, fenced=fenced, force=force, reason=WHY if force else ""
    )


def repair_host(host: str, *, by: str, force: bool = False) -> Command[Host]:
    return commands.RepairHost(by=operator(by), host=host, force=force, reason=WHY if force else "")


def close_host(host: str, *, by: str) -> Command[Host]:
    return commands.CloseHost(by=operator(by), host=host)


def open_host(host: str, *, by: str) -> Command[Host]:
    return commands.OpenHost(by=operator(by), host=host)


def approve_event(event_id: str, *, by: str, reason: str = "a test") -> Command[ScheduledEvent]:
    return commands.ApproveEvent(by=operator(by), event_id=event_id, reason=reason)


def cancel_event(event_id: str, *, by: str) -> Command[commands.EventCanceled]:
    return commands.CancelEvent(by=operator(by), event_id=event_id)


def postpone_event(
    event_id: str, *, by: Principal, until_ms: int, reason: str = ""
) -> Command[commands.EventPostponed]:
    until = TimeInput(said=f"{until_ms} ms", at_ms=until_ms)
    return commands.PostponeEvent(by=by, event_id=event_id, until=until, reason=reason)


def cancel_operation(operation_id: str, *, by: str) -> Command[Operation]:
    return commands.CancelOperation(by=operator(by), operation_id=operation_id)


def release_scope(scope: str, *, by: str) -> Command[Scope]:
    return commands.ReleaseScope(by=operator(by), scope=scope)


# What hosts say.


def host_joined(name: str, *, by: str = "") -> Command[None]:
    return commands.HostJoined(by=the_host(by or name), host=name)


def host_left(
    name: str, *, by: str, listed_by_file: bool = False, inventory: str | None = None
) -> Command[None]:
    """`inventory` is the text that the fleet was made by, if there is one."""
    return commands.HostsLeft(
        by=operator(by),
        hosts=(name,),
        listed_by_file=(name,) if listed_by_file else (),
        inventory=None if inventory is None else digest_of(inventory),
    )


def host_silent(host: str) -> Command[None]:
    return commands.HostIsSilent(by=TICKER, host=host)


# Parts of a turn, each for itself: what is refused is raised.


def _part(host: str, act: Callable[[Transaction], T]) -> Command[T]:
    return Acting(by=the_host(host), act=act)


def confirm(host: str, scope: str, incarnation: int) -> Command[None]:
    return _part(host, lambda tx: guest_commands.confirm_scope(tx, host, scope, incarnation))


def approve(host: str, vm: str, event_ids: Iterable[str]) -> Command[None]:
    return commands.ApproveEvents(by=the_vm(vm), host=host, vm=vm, event_ids=tuple(event_ids))


def enable(host: str, scope: str, vm: str) -> Command[None]:
    return commands.EnableScope(by=the_vm(vm), host=host, scope=scope, vm=vm)


def turn(host: str, **said: Any) -> commands.TakeTurn:
    return commands.TakeTurn(by=the_host(host), host=host, **said)


def keep_traces(host: str, said: Turn) -> Command[None]:
    reads = (
        commands.ReadAgo(vm=one.vm, scope=one.scope, event_id=one.event_id, age_ms=one.age_ms)
        for one in said.first_reads
    )
    kept = turn(host, first_reads=tuple(reads), polls=said.polls, returned=said.returned)
    return _part(host, lambda tx: guest_commands.keep_traces(tx, kept))


def renew(host: str, holding: Mapping[str, int]) -> Command[tuple[str, ...]]:
    return _part(host, lambda tx: action_claims.renew(tx, host, holding).lost)


def claim(host: str, boot_id: str, *, daemon: str = "") -> Command[commands.ClaimResult]:
    return commands.ClaimActions(by=the_host(host), host=host, boot_id=boot_id, daemon=daemon)


def holds(host: str, action_id: str, epoch: int) -> Command[bool]:
    return commands.HoldClaim(by=the_host(host), host=host, action_id=action_id, epoch=epoch)


def report(
    host: str, action_id: str, *, epoch: int, outcome: Outcome, detail: str
) -> Command[None]:
    ended = commands.EndedAction(action_id=action_id, epoch=epoch, outcome=outcome, detail=detail)
    return _part(host, lambda tx: action_claims.end_action(tx, host, ended))


# What time makes possible.


def start_event(scope: str, event_id: str) -> Command[bool]:
    return commands.StartEvents(by=TICKER, scope=scope, event_ids=(event_id,))


def start_operation(operation_id: str) -> Command[bool]:
    return commands.StartOperation(by=TICKER, operation_id=operation_id)


def tell_newcomers(operation_id: str) -> Command[None]:
    return commands.TellNewcomers(by=TICKER, operation_id=operation_id)


def settle_operation(operation_id: str) -> Command[None]:
    return commands.SettleOperation(by=TICKER, operation_id=operation_id)


def expire_event(scope: str, event_id: str) -> Command[None]:
    return commands.ExpireEvent(by=TICKER, scope=scope, event_id=event_id)


def expire_operation(operation_id: str) -> Command[None]:
    return commands.ExpireOperation(by=TICKER, operation_id=operation_id)


def assign(scope: str, event_id: str) -> Command[None]:
    return commands.AssignPlace(by=TICKER, scope=scope, event_id=event_id)


def end_recoveries(scope: str) -> Command[None]:
    return commands.EndRecoveries(by=TICKER, scope=scope)


def disable(scope: str) -> Command[None]:
    return commands.DisableScope(by=TICKER, scope=scope)


def heartbeat() -> Command[None]:
    return commands.NoteHeartbeat(by=TICKER)


def clock_stepped(stepped_ms: int) -> Command[None]:
    return commands.ClockStepped(by=CLOCK, stepped_ms=stepped_ms)


def stalled(stalled_ms: int) -> Command[None]:
    return commands.Stalled(by=CLOCK, stalled_ms=stalled_ms)


def was_down(since_ms: int | None) -> Command[None]:
    return commands.WasDown(by=CLOCK, since_ms=since_ms)
