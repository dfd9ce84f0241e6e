"""What hosts cause: claims, their leases, and reports.

Leases live on monotonic time and in memory; after a restart every claim gets one more lease. Epochs
are durable, so two holders of one action cannot both report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from forewarn.control import powers
from forewarn.control.transaction import Transaction
from forewarn.control.writer import Command
from forewarn.core import consent, ending, failing, notice, power
from forewarn.core.errors import Conflict, NotFound
from forewarn.core.model import (
    Action,
    ActionKind,
    ActionPhase,
    Decision,
    Fact,
    FactKind,
    Health,
    Operation,
    Outcome,
    Phase,
    ScheduledEvent,
    Scope,
)
from forewarn.ports import Clock

LEASE_MS = 30_000
# A daemon asks every ten seconds; one that has not for so long is taken to be gone.
TWO_DAEMONS_MS = 30_000
CLAIMS_PER_CALL_MAX = 64


def host_silent(host: str) -> Command[None]:
    """Stop the notice of the events on a host that is not heard; it runs on when it confirms."""

    def command(tx: Transaction) -> None:
        silent_ms = tx.silent_ms(host)
        stopped = [
            consent.not_heard(scope, host=host, lost_ms=silent_ms, now_ms=tx.now_ms)
            for scope in tx.scopes_on(host)
        ]
        for decision in stopped:
            tx.apply(decision)
        if any(decision.scopes for decision in stopped):
            tx.note(
                Fact(
                    kind=FactKind.DOWNTIME,
                    at_ms=tx.now_ms,
                    host=host,
                    detail={"lost_ms": silent_ms},
                )
            )

    return command


def _heard_late(tx: Transaction, host: str, lost_ms: int) -> None:
    for scope in tx.scopes_on(host):
        tx.apply(consent.heard_late(scope, host=host, lost_ms=lost_ms))


def _may_act(tx: Transaction, host: str) -> bool:
    """False for a host that was given up: what it did now would collide with its replacement."""
    known = tx.host(host)
    return known is not None and known.health is not Health.FAILED


def declare_if_stranded(tx: Transaction, vm: str, *, by: str, down: bool = False) -> None:
    """A VM that is, or may be, on a host that has failed is declared like the others there.

    `down` is that the host had failed while the VM was on its way, whatever it is now.
    """
    scope_name = tx.scope_of_vm.get(vm)
    if scope_name is None:
        return
    tx.apply(
        failing.arrived(
            tx.need_scope(scope_name),
            vm,
            tx,
            by=by,
            ids=tx.ids(),
            now_ms=tx.now_ms,
            policy=tx.policy,
            down=down,
        )
    )


def _tell_again(tx: Transaction, event: ScheduledEvent, vm: str) -> None:
    """A host shows that a VM runs that nobody was asked for because it was off: ask now."""
    tx.apply(
        power.spared(
            tx.need_scope(event.scope),
            event,
            vm,
            operation=tx.operation(event.operation_id or ""),
            event_id=tx.new_id(),
            now_ms=tx.now_ms,
            policy=tx.policy,
        )
    )


@dataclass(frozen=True, slots=True)
class _Lease:
    epoch: int
    until_monotonic_ms: int


@dataclass(frozen=True, slots=True)
class _Daemon:
    """One life of a host's daemon: when it first and last asked for work, in monotonic time."""

    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class _Held:
    """An open action with what it belongs to: an event of a scope, or an operation."""

    action: Action
    scope: Scope | None = None
    event: ScheduledEvent | None = None
    operation: Operation | None = None


def _about(tx: Transaction, held: _Held) -> tuple[tuple[str, str], ...]:
    """The VMs that were told of what is about to be done, and who they were then.

    A name can be given to another VM by other hands a moment before its host acts.
    """
    told: list[tuple[Scope, str]] = []
    if held.scope is not None and held.action.vm is not None:
        told.append((held.scope, held.action.vm))
    for scope_name, event_id in held.operation.members if held.operation else ():
        scope = tx.scope(scope_name)
        event = scope.event(event_id) if scope else None
        if scope is not None and event is not None:
            told.extend((scope, name) for name in event.resources)
    found = ((name, scope.vm(name)) for scope, name in told)
    shown = tx.digests  # who was never shown has an id of ours, which no host knows
    return tuple((name, vm.vm_id if vm and name in shown else "") for name, vm in found)


def _left_ms(tx: Transaction, held: _Held) -> int | None:
    """For how long what is done is still part of what was announced."""
    owner = held.event or held.operation
    deadline_ms = owner.deadline_ms if owner else None
    return None if deadline_ms is None else max(0, deadline_ms - tx.now_ms)


def _take(tx: Transaction, held: _Held, boot_id: str) -> Action:
    """Claim the action for its host."""
    if held.operation is not None:
        decision, action = ending.claim_for_operation(
            held.operation, held.action, boot_id=boot_id, now_ms=tx.now_ms
        )
    else:
        # Looked up again: an earlier claim of the same call may have changed the same event.
        found = tx.open_event(held.event.event_id) if held.event is not None else None
        if found is None:
            raise NotFound(f"There is no open action {held.action.action_id}.")
        decision, action = ending.claim_for_event(
            *found, held.action, boot_id=boot_id, now_ms=tx.now_ms
        )
    tx.apply(decision)
    return action


class Dispatch:
    """Hands actions to hosts and takes their reports. Used by the writer's thread only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_monotonic_ms = clock.monotonic_ms()
        self._leases: dict[str, _Lease] = {}
        self._daemons: dict[str, dict[str, _Daemon]] = {}  # by host and name, the newest last

    def heartbeat(self, host: str, holding: Mapping[str, int]) -> Command[None]:
        """The host is there after a silence, or still works on the claims in `holding`.

        `holding` is action id and epoch. If the host was silent for long, guests there could not
        read: that time was no notice.
        """

        def command(tx: Transaction) -> None:
            tx.need_host(host)
            now = self._clock.monotonic_ms()
            silent_ms = tx.silent_ms(host)
            if silent_ms >= notice.HOST_SILENT_AFTER_MS:
                host_silent(host)(tx)
            elif silent_ms > notice.HEARTBEAT_LATE_MS:
                _heard_late(tx, host, silent_ms - notice.HEARTBEAT_EVERY_MS)
            for held in self._open_actions(tx, host):
                action = held.action
                if holding.get(action.action_id) == action.epoch:
                    self._leases[action.action_id] = _Lease(action.epoch, now + LEASE_MS)
                elif action.action_id not in self._leases:
                    # A claim from before our own start that its host does not know died with it.
                    self._leases[action.action_id] = _Lease(action.epoch, now)

        return command

    def claim(self, host: str, boot_id: str, *, daemon: str = "") -> Command[list[Action]]:
        """Take what the host has to do: what nobody has taken, and what a lapsed lease freed.

        `daemon` names one life of the host's daemon. What an earlier one had claimed is free as
        soon as the next one asks: it died, and the next one looks before it acts. If the earlier
        one asks again after that, two machines have the credentials of one host, and nobody knows
        which of them has its VMs: Conflict for both, until one is silent.
        """

        def command(tx: Transaction) -> list[Action]:
            if not _may_act(tx, host):
                return []
            now = self._clock.monotonic_ms()
            powers.booted(tx, host, boot_id)
            self._succeed(tx, host, daemon, now)
            taken: list[Action] = []
            for held in list(self._open_actions(tx, host)):
                if len(taken) >= CLAIMS_PER_CALL_MAX:
                    break
                if not self._may_claim(held.action, now):
                    continue
                action = _take(tx, held, boot_id)
                self._leases[action.action_id] = _Lease(action.epoch, now + LEASE_MS)
                left_ms = _left_ms(tx, held)
                taken.append(replace(action, about=_about(tx, held), left_ms=left_ms))
            return taken

        return command

    def _succeed(self, tx: Transaction, host: str, daemon: str, now_monotonic_ms: int) -> None:
        """Let the leases of a daemon that is no more lapse. Raises Conflict if it is not gone."""
        if not daemon:
            return
        known = self._daemons.setdefault(host, {})
        others = [one for name, one in known.items() if name != daemon]
        is_next = daemon not in known and bool(others)
        first_ms = known[daemon].first_ms if daemon in known else now_monotonic_ms
        known[daemon] = _Daemon(first_ms, now_monotonic_ms)
        silent_since_ms = now_monotonic_ms - TWO_DAEMONS_MS
        for name in [name for name, one in known.items() if one.last_ms <= silent_since_ms]:
            del known[name]
        if is_next:
            for held in self._open_actions(tx, host):
                if held.action.phase is ActionPhase.CLAIMED:
                    lapsed = _Lease(held.action.epoch, now_monotonic_ms)
                    self._leases[held.action.action_id] = lapsed
        # Who asked after another one had begun did not die before it.
        begun = sorted(one.first_ms for one in known.values())
        if any(one.first_ms < begun[-1] < one.last_ms for one in known.values()):
            raise Conflict(
                f"Two daemons speak as host {host}, so neither is given anything to do.",
                "Find the machine that has a copy of the other's data folder, stop its daemon, "
                "remove host.pem there and have it join under a name of its own.",
            )

    def holds(self, host: str, action_id: str, epoch: int) -> Command[bool]:
        """Whether the host may still act on a claim. Yes renews its lease."""

        def command(tx: Transaction) -> bool:
            if not _may_act(tx, host):
                return False
            for held in self._open_actions(tx, host):
                action = held.action
                if action.action_id == action_id:
                    mine = action.phase is ActionPhase.CLAIMED and action.epoch == epoch
                    if mine:
                        until_ms = self._clock.monotonic_ms() + LEASE_MS
                        self._leases[action_id] = _Lease(epoch, until_ms)
                    return mine
            return False

        return command

    def _may_claim(self, action: Action, now_monotonic_ms: int) -> bool:
        if action.phase is ActionPhase.PENDING:
            return True
        lease = self._leases.get(action.action_id)
        if lease is None or lease.epoch != action.epoch:
            return now_monotonic_ms >= self._began_monotonic_ms + LEASE_MS
        return now_monotonic_ms >= lease.until_monotonic_ms

    def report(
        self, host: str, action_id: str, *, epoch: int, outcome: Outcome, detail: str
    ) -> Command[None]:
        """The host says how an action ended. Refused if the claim is no longer held."""

        def command(tx: Transaction) -> None:
            held = next(
                (h for h in self._all_actions(tx, host) if h.action.action_id == action_id), None
            )
            if held is None:
                self._report_late(tx, host, action_id, epoch, outcome)
                return
            if held.operation is not None:
                decision = ending.report_for_operation(
                    held.operation,
                    tx,
                    epoch=epoch,
                    outcome=outcome,
                    detail=detail,
                    now_ms=tx.now_ms,
                    policy=tx.policy,
                )
            else:
                decision = self._report_for_event(tx, held, epoch, outcome, detail)
            tx.apply(decision)
            self._leases.pop(action_id, None)
            if outcome is Outcome.SPARED and held.event is not None and decision.scopes:
                _tell_again(tx, held.event, held.action.vm or "")
            if held.action.kind is ActionKind.MOVE_VM:
                down = held.action.target_failed and outcome is Outcome.DONE
                declare_if_stranded(tx, held.action.vm or "", by=host, down=down)

        return command

    @staticmethod
    def _report_late(
        tx: Transaction, host: str, action_id: str, epoch: int, outcome: Outcome
    ) -> None:
        """Take what a host really did after its event was given up, or refuse the report."""
        operation = tx.kept_operation(action_id)
        done = operation.action if operation and operation.host == host else None
        if done is not None and ending.repeats(done, epoch, outcome):
            return
        event = tx.kept_event(action_id.partition("/")[0])
        actions = event.actions if event else ()
        action = next((a for a in actions if a.action_id == action_id and a.host == host), None)
        scope = tx.scope(event.scope) if event else None
        if action is not None and ending.repeats(action, epoch, outcome):
            return
        if event is None or scope is None or action is None:
            raise NotFound(
                f"Host {host} has no open action {action_id}.",
                "Drop the report: its event has ended.",
            )
        tx.apply(
            ending.late_report(scope, event, action, epoch=epoch, outcome=outcome, now_ms=tx.now_ms)
        )
        if action.kind is ActionKind.MOVE_VM:
            down = action.target_failed and outcome is Outcome.DONE
            declare_if_stranded(tx, action.vm or "", by=host, down=down)

    @staticmethod
    def _report_for_event(
        tx: Transaction, held: _Held, epoch: int, outcome: Outcome, detail: str
    ) -> Decision:
        if held.scope is None or held.event is None:
            raise NotFound(f"There is no open action {held.action.action_id}.")
        return ending.report_for_event(
            held.scope,
            held.event,
            held.action.action_id,
            epoch=epoch,
            outcome=outcome,
            detail=detail,
            now_ms=tx.now_ms,
            policy=tx.policy,
        )

    def _open_actions(self, tx: Transaction, host: str) -> Iterator[_Held]:
        """Actions that the host has to do or is doing."""
        found = self._actions(tx, host, tx.scopes_acting(host))
        return (held for held in found if not held.action.ended)

    def _all_actions(self, tx: Transaction, host: str) -> Iterator[_Held]:
        """Actions of the host that belong to something still open."""
        return self._actions(tx, host, tx.scopes_on(host))

    @staticmethod
    def _actions(tx: Transaction, host: str, scopes: Iterable[Scope]) -> Iterator[_Held]:
        for operation in tx.operations_on(host):
            if operation.action is not None:
                yield _Held(operation.action, operation=operation)
        started = Phase.STARTED  # looked up once: hosts of crowded scopes ask often
        for scope in scopes:
            for event in scope.events:
                if event.phase is not started:
                    continue
                for action in event.actions:
                    if action.host == host:
                        yield _Held(action, scope=scope, event=event)
