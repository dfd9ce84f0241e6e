"""A small control plane to apply inventories to: the real writer and store, a clock that is set.

Shared by tests/control/test_inventory*.py; no test lives here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import ordered
from forewarn.adapters.store import SqliteStore
from forewarn.control import inventory, ticker
from forewarn.control.fleet_index import FleetIndex
from forewarn.control.observed import HeardByWriter, Observed
from forewarn.control.published import PublishedFleet
from forewarn.control.timekeeper import Timekeeper
from forewarn.control.volatile import Volatile
from forewarn.control.writer import Writer
from forewarn.core.inventory import Applied
from forewarn.core.model import EventType, Host, Outcome, Policy, ScheduledEvent, Scope, Vm
from forewarn.ports import Change, JournalLine
from inline_control import Inline, InlineControl
from ordered import Given

T = TypeVar("T")

START_MS = 1_772_532_000_000  # 2026-03-03T10:00:00Z
JOURNAL_LINES_MAX = 10_000

HOSTS = '[[host]]\nname = "h1"\n[[host]]\nname = "h2"\n[[host]]\nname = "h3"\n'
WEB = '[[scope]]\nname = "web"\nkind = "placement-group"\n'


def vm(name: str, **keys: object) -> str:
    """A VM of scope web on h1 that is known by its address; None leaves a key out."""
    number = sum(name.encode()) % 200 + 1
    given: dict[str, object] = {
        "name": name,
        "scope": "web",
        "update_domain": 0,
        "host": "h1",
        "address": f"192.0.2.{number}",
        **keys,
    }
    lines = (f"{key} = {_toml(value)}" for key, value in given.items() if value is not None)
    return "[[vm]]\n" + "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def alone(name: str, **keys: object) -> str:
    return vm(name, **{"scope": None, "update_domain": None, **keys})


BOTH = HOSTS + WEB + vm("web_0") + vm("web_1", update_domain=1, host="h2")


class SetClock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = START_MS

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


class CountedIds:
    """Ids that are told apart at a glance."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def event_id(self) -> str:
        return f"00000000-0000-4000-8000-ABCD{next(self._numbers):08d}"


class HeardAsLoopDoes(HeardByWriter):
    """Says of hosts what the event loop says of them."""

    def __init__(self, observed: Observed) -> None:
        super().__init__(observed.began_ms, reports=observed.reports)
        self._observed = observed

    def alive(self, host: str) -> bool:
        return self._observed.alive(host)

    def silent_ms(self, host: str) -> int:
        return self._observed.silent_ms(host)


class HeardFrom(Observed):
    """Every host has been heard from, unless a test says otherwise."""

    def __init__(self, clock: SetClock) -> None:
        super().__init__(clock)
        self.silent: set[str] = set()

    def for_writer(self) -> HeardByWriter:
        return HeardAsLoopDoes(self)

    def alive(self, host: str) -> bool:
        return host not in self.silent

    def silent_ms(self, host: str) -> int:
        return 60_000 if host in self.silent else 0


class InventoryFleet:
    """A fleet that begins empty. `restart` leaves only what is durable."""

    def __init__(self, folder: Path | None = None, *, policy: Policy | None = None) -> None:
        self.clock = SetClock()
        self.commits: list[Change] = []
        self._ids = CountedIds()
        self._policy = policy or Policy(always_enabled=True, domain_recovery_ms=0)
        self._folder = folder
        self._open()

    def _open(self) -> None:
        folder = self._folder
        self.store = SqliteStore.in_memory() if folder is None else SqliteStore.in_folder(folder)
        snapshot = self.store.load()
        self.observed = self.heard_from = HeardFrom(self.clock)
        self.index = FleetIndex(snapshot)
        self.published = PublishedFleet(
            snapshot, self.observed, policy=self._policy, clock=self.clock
        )
        self.control = InlineControl(
            writer=Inline(self.run),
            store=self.store,
            clock=self.clock,
            lease_clock=self.clock,
            fleet=self.published,
            observed=self.observed,
        )
        self.volatile = Volatile(self.clock.monotonic_ms())
        self._writer = Writer(
            index=self.index,
            observed=self.observed,
            store=self.store,
            timekeeper=Timekeeper(self.clock),
            lease_clock=self.clock,
            volatile=self.volatile,
            policy=self._policy,
            ids=self._ids,
            on_commit=self._committed,
        )

    def _committed(self, changes: Sequence[Change]) -> None:
        self.commits.extend(changes)
        self.published.publish(changes)

    def restart(self) -> None:
        self.close()
        self._open()

    def close(self) -> None:
        self.store.close()

    def run(self, command: Given[T]) -> T:
        done = self._writer.run([ordered.wanted(command)])[0]
        if done.error is not None:
            raise done.error
        value: T = done.value
        return value

    def run_together(self, *commands: Given[Any]) -> list[Any]:
        """Commands that share one commit; refusals come back as they are."""
        together = [ordered.wanted(command) for command in commands]
        return [done.error or done.value for done in self._writer.run(together)]

    def apply(self, text: str) -> Applied:
        return self.run(inventory.apply(text, by=ordered.operator("operator")))

    # What is there now.

    def scope(self, name: str) -> Scope:
        return self.index.scopes[name]

    def host(self, name: str) -> Host:
        return self.index.hosts[name]

    def vm(self, name: str) -> Vm:
        vm = self.index.scopes[self.index.scope_of_vm[name]].vm(name)
        assert vm is not None
        return vm

    def everything(self) -> tuple[dict[str, Scope], dict[str, Host], dict[str, str], str | None]:
        index = self.index
        return (
            dict(index.scopes),
            dict(index.hosts),
            dict(index.scope_of_vm),
            index.inventory,
        )

    def journal(self) -> Sequence[JournalLine]:
        return self.store.journal(after=0, limit=JOURNAL_LINES_MAX, scope=None, event_id=None)

    # What happens to it.

    def order(self, vm: str, event_type: EventType) -> ScheduledEvent:
        """Order it; the event as it was committed."""
        event = self.run(ordered.order_vm(vm, event_type, by="owner"))
        committed = self.store.event(event.event_id)
        assert committed is not None
        return committed

    def approve(self, event: ScheduledEvent) -> None:
        self.run(ordered.approve_event(event.event_id, by="owner"))

    def tick(self) -> None:
        for command in self.run(ticker.survey):
            self.run(command)

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
