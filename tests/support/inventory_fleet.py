"""A small control plane to apply inventories to: the real writer and store, a clock that is set.

Shared by tests/control/test_inventory*.py; no test lives here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.control.hosts.liveness import HeardByWriter, Observed
from forewarn.control.inventory import apply_at_once
from forewarn.core.inventory.entries import Applied
from forewarn.core.model import EventType, Host, Outcome, Policy, ScheduledEvent, Scope
from support import ordered
from support.clock import ManualClock
from support.control import ControlParts, InlineFleet
from support.ids import CountedIds
from support.ordered import Given

T = TypeVar("T")


class HeardAsLoopDoes(HeardByWriter):
    """Says of hosts what the event loop says of them."""

    def __init__(self, observed: Observed) -> None:
        super().__init__(observed.began_ms)
        self._observed = observed

    def alive(self, host: str) -> bool:
        return self._observed.alive(host)

    def silent_ms(self, host: str) -> int:
        return self._observed.silent_ms(host)


class HeardFrom(Observed):
    """Every host has been heard from, unless a test says otherwise."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.silent: set[str] = set()

    def for_writer(self) -> HeardByWriter:
        return HeardAsLoopDoes(self)

    def alive(self, host: str) -> bool:
        return host not in self.silent

    def silent_ms(self, host: str) -> int:
        return 60_000 if host in self.silent else 0


class InventoryFleet(InlineFleet):
    """A fleet that begins empty. `restart` leaves only what is durable."""

    def __init__(self, folder: Path | None = None, *, policy: Policy | None = None) -> None:
        super().__init__()
        self.clock = ManualClock()
        self._ids = CountedIds()
        self._policy = policy or Policy(always_enabled=True, domain_recovery_ms=0)
        self._folder = folder
        self._open()

    def _open(self) -> None:
        folder = self._folder
        self.store = SqliteStore.in_memory() if folder is None else SqliteStore.in_folder(folder)
        self.observed = self.heard_from = HeardFrom(self.clock)
        self._begin(
            ControlParts(
                self.store,
                clock=self.clock,
                observed=self.observed,
                policy=self._policy,
                ids=self._ids,
            )
        )

    def restart(self) -> None:
        self.close()
        self._open()

    def close(self) -> None:
        self.store.close()

    def run_together(self, *commands: Given[Any]) -> list[Any]:
        """Commands that share one commit; refusals come back as they are."""
        together = [ordered.wanted(command) for command in commands]
        return [done.error or done.value for done in self.writer.run(together)]

    def apply(self, text: str) -> Applied:
        return self.run(apply_at_once.apply(text, by=ordered.operator("operator")))

    # What is there now.

    def everything(self) -> tuple[dict[str, Scope], dict[str, Host], dict[str, str], str | None]:
        index = self.index
        return (
            dict(index.scopes),
            dict(index.hosts),
            dict(index.scope_of_vm),
            index.inventory,
        )

    # What happens to it.

    def order(self, vm: str, event_type: EventType) -> ScheduledEvent:
        """Order it; the event as it was committed."""
        event = self.run(ordered.order_vm(vm, event_type, by="owner"))
        committed = self.store.event(event.event_id)
        assert committed is not None
        return committed

    def approve(self, event: ScheduledEvent) -> None:
        self.run(ordered.approve_event(event.event_id, by="owner"))

    def hosts_do_their_work(self) -> None:
        for host in list(self.index.hosts):
            for action in (one.action for one in self.run(ordered.claim(host, "boot-1")).work):
                self.run(
                    ordered.report(
                        host, action.action_id, epoch=action.epoch, outcome=Outcome.DONE, detail=""
                    )
                )

    def carry_out(self, vm: str, event_type: EventType) -> ScheduledEvent:
        """Order it, approve it, and see it through to its end."""
        event = self.order(vm, event_type)
        self.approve(event)
        self.tick()
        self.hosts_do_their_work()
        self.tick()
        ended = self.store.event(event.event_id)
        assert ended is not None
        assert ended.phase.ended
        return ended
