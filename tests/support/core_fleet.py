"""A small cloud for the tests of the rules: real writer, memory and store, a clock that is turned.

Hosts are heard and show every document unless a test says otherwise; nothing happens by itself.
Shared by tests/core and tests/control; no test lives here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.control import operator_commands
from forewarn.control.commands import HandedOut
from forewarn.control.hosts.liveness import HeardByWriter, Observed
from forewarn.control.transaction import Transaction
from forewarn.core import explain
from forewarn.core.model import (
    SECOND_MS,
    Action,
    Decision,
    EventType,
    Fact,
    FactKind,
    Host,
    Operation,
    Outcome,
    Policy,
    ScheduledEvent,
    Scope,
    ScopeKind,
    Vm,
)
from forewarn.core.principal import Principal
from forewarn.core.starting import Hold, HoldReason
from forewarn.core.vm_profile import Priority, VmProfile
from forewarn.ports import Store
from forewarn.wire.link import Turn
from support import ordered
from support.clock import START_MS, ManualClock
from support.control import ControlParts, InlineFleet
from support.ids import CountedIds
from support.inventory_fleet import HeardAsLoopDoes

T = TypeVar("T")

WEB = {"web_0": (0, "h1"), "web_1": (1, "h2")}
NO_RECOVERY = Policy(domain_recovery_ms=0)


class Hearing(Observed):
    """Every host is heard, except those that fell silent, each since its own time."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self._turned = clock
        self._silent_since: dict[str, int] = {}

    def for_writer(self) -> HeardByWriter:
        return HeardAsLoopDoes(self)

    def falls_silent(self, host: str) -> None:
        self._silent_since[host] = self._turned.monotonic

    def returns(self, host: str) -> None:
        self._silent_since.pop(host, None)

    def alive(self, host: str) -> bool:
        return host not in self._silent_since

    def silent_ms(self, host: str) -> int:
        return self._turned.monotonic - self._silent_since.get(host, self._turned.monotonic)


def vm(name: str, update_domain: int, host: str, *, priority: Priority = Priority.REGULAR) -> Vm:
    profile = VmProfile(priority=priority)
    return Vm(name=name, vm_id=name, update_domain=update_domain, host=host, profile=profile)


def scope(
    name: str, vms: Mapping[str, tuple[int, str]], *, enabled: bool = True, **more: Any
) -> Scope:
    """A scope with VMs given as name: (update domain, host); enabled as if just polled."""
    return Scope(
        name=name,
        kind=more.pop("kind", ScopeKind.AVAILABILITY_SET),
        enabled=enabled,
        polled_ms=START_MS if enabled else None,
        vms=tuple(vm(vm_name, domain, host) for vm_name, (domain, host) in vms.items()),
        **more,
    )


def spot(name: str, host: str = "h1", **more: Any) -> Scope:
    """A standalone spot VM in a scope of its own name."""
    return Scope(
        name=name,
        kind=ScopeKind.STANDALONE,
        enabled=True,
        polled_ms=START_MS,
        vms=(vm(name, 0, host, priority=Priority.SPOT),),
        **more,
    )


def three_hosts() -> tuple[Host, ...]:
    return Host(name="h1"), Host(name="h2"), Host(name="h3")


class Cloud(InlineFleet):
    """Hosts, scopes and the service. `crash` leaves only what is durable."""

    def __init__(
        self,
        *scopes: Scope,
        hosts: Iterable[Host] | None = None,
        policy: Policy = NO_RECOVERY,
        store: Store | None = None,
    ) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.hearing = Hearing(self.clock)
        self.policy = policy
        self.ids = CountedIds()
        self.store: Store = store or SqliteStore.in_memory()
        self._open()
        fleet = Decision(scopes=scopes, hosts=tuple(three_hosts() if hosts is None else hosts))
        self.run(lambda tx: tx.apply(fleet))
        self.run(ordered.heartbeat())

    def _open(self) -> None:
        self.observed = self._observe()
        self._begin(
            ControlParts(
                self.store,
                clock=self.clock,
                observed=self.observed,
                policy=self.policy,
                ids=self.ids,
            )
        )

    def _observe(self) -> Observed:
        return self.hearing

    def hosts_join(self) -> None:
        """From now on only those hosts count that have joined."""
        self.policy = replace(self.policy, hosts_join=True)
        self._open()

    def crash(self, *, down_ms: int, wall_step_ms: int = 0) -> None:
        """The service dies, is away for this long, and starts on what is durable."""
        self.clock.pass_ms(down_ms)
        self.clock.wall += wall_step_ms
        self._open()
        self.run(ordered.was_down(self.store.load().heartbeat_ms))

    # What is there now.

    def event(self, event: ScheduledEvent | str) -> ScheduledEvent:
        """The event as committed, open or ended."""
        event_id = event if isinstance(event, str) else event.event_id
        found = self.store.event(event_id)
        assert found is not None
        return found

    def operation(self, operation: Operation) -> Operation:
        """The operation as committed, open or ended."""
        found = self.store.operation(operation.operation_id)
        assert found is not None
        return found

    def events_of(self, operation: Operation) -> list[ScheduledEvent]:
        return [self.event(event_id) for _, event_id in self.operation(operation).members]

    def where(self, vm_name: str) -> str:
        return self.vm(vm_name).host

    def facts(self, kind: FactKind) -> list[Fact]:
        return [line.fact for line in self.journal() if line.fact.kind is kind]

    def holds(self, event: ScheduledEvent) -> list[Hold]:
        """Why the event has not happened yet."""

        def question(tx: Transaction) -> list[Hold]:
            owner, found = operator_commands.need_event(tx, event.event_id)
            return list(explain.explain_event(owner, found, tx, tx.now_ms).holds)

        return self.run(question)

    def operation_holds(self, operation: Operation) -> list[Hold]:
        def question(tx: Transaction) -> list[Hold]:
            found = tx.operations[operation.operation_id]
            return list(explain.explain_operation(found, tx, tx.now_ms).holds)

        return self.run(question)

    def everything(self) -> tuple[dict[str, Scope], dict[str, Host], dict[str, Operation]]:
        index = self.index
        return dict(index.scopes), dict(index.hosts), dict(index.operations)

    # Orders.

    def order(
        self, vm_name: str, event_type: EventType, *, by: str = "owner", **more: Any
    ) -> ScheduledEvent:
        return self.event(self.run(ordered.order_vm(vm_name, event_type, by=by, **more)))

    def maintain(self, host: str, event_type: EventType, **more: Any) -> Operation:
        by = more.pop("by", "operator")
        return self.run(ordered.maintain_host(host, event_type, by=by, **more))

    def degrade(self, host: str, **more: Any) -> Operation:
        return self.run(ordered.degrade_host(host, by="operator", **more))

    def fail(self, host: str, *, fenced: bool = False) -> None:
        self.run(ordered.fail_host(host, by="operator", fenced=fenced, force=True))

    def repair(self, host: str) -> None:
        self.run(ordered.repair_host(host, by="operator", force=True))

    def cancel(self, event: ScheduledEvent) -> None:
        self.run(ordered.cancel_event(event.event_id, by="operator"))

    def postpone(
        self,
        event: ScheduledEvent,
        in_ms: int,
        *,
        by: Principal | None = None,
        reason: str = "",
    ) -> ScheduledEvent:
        """Postponed to so long from now, by its owner unless it is said otherwise: the new one."""
        order = ordered.postpone_event(
            event.event_id,
            by=by or ordered.owner("ann"),
            until_ms=self.clock.wall + in_ms,
            reason=reason,
        )
        return self.event(self.run(order).event)

    def approve(self, *events: ScheduledEvent) -> None:
        for event in events:
            self.run(ordered.approve_event(event.event_id, by="operator"))

    # Time, hosts and guests.

    def polls(self, scope_name: str, vm_name: str) -> None:
        """A VM polls: its scope is enabled, and nobody waits for it any more."""
        host = self._host_of(vm_name)
        self.run(ordered.enable(host, scope_name, vm_name))
        traces = Turn(polls={scope_name: 0}, returned=(vm_name,))
        self.run(ordered.keep_traces(host, traces))

    def approves(self, vm_name: str, event_ids: Iterable[str]) -> None:
        """A VM says go ahead."""
        self.run(ordered.approve(self._host_of(vm_name), vm_name, event_ids))

    def _host_of(self, vm_name: str) -> str:
        """The host that speaks for a VM; some host if there is no such VM."""
        known = self.published.vm(vm_name)
        return known.host if known else "h1"

    def show(self) -> None:
        """Every host that is heard shows every document as it is now."""
        for host in self.index.hosts:
            if self.hearing.alive(host):
                for owner in list(self.index.scopes.values()):
                    self.run(ordered.confirm(host, owner.name, owner.incarnation))

    def pass_time(self, ms: int, *, shown: bool = True) -> None:
        """Documents are shown, time passes, and the ticker looks."""
        if shown:
            self.show()
        self.clock.pass_ms(ms)
        self.tick()

    def claim(self, host: str, boot_id: str = "boot-1") -> list[Action]:
        return [one.action for one in self.run(ordered.claim(host, boot_id)).work]

    def handed_out(self, host: str, boot_id: str = "boot-1") -> Sequence[HandedOut]:
        return self.run(ordered.claim(host, boot_id)).work

    def report(
        self, host: str, action: Action, outcome: Outcome = Outcome.DONE, detail: str = ""
    ) -> None:
        self.run(
            ordered.report(
                host, action.action_id, epoch=action.epoch, outcome=outcome, detail=detail
            )
        )

    def work(
        self, outcome: Outcome = Outcome.DONE, *, only: Callable[[Action], bool] | None = None
    ) -> None:
        """Hosts take what there is to do and report how it ended, then the ticker looks."""
        for host in list(self.index.hosts):
            if self.hearing.alive(host):
                for action in self.claim(host):
                    if only is None or only(action):
                        self.report(host, action, outcome, "" if outcome is Outcome.DONE else "no")
        self.tick()

    def start(self, *events: ScheduledEvent) -> None:
        """Approve the events and let the ticker look."""
        self.approve(*events)
        self.tick()

    def carry_out(self, *events: ScheduledEvent) -> None:
        """Approve the events and see them through to their end."""
        self.start(*events)
        self.work()


def reasons(holds: Sequence[Hold]) -> set[HoldReason]:
    return {hold.reason for hold in holds}


def minutes(count: float) -> int:
    return round(count * 60 * SECOND_MS)
