"""A control plane over a store, built as tests need it: of its parts, or whole without threads.

Without threads, what is submitted is carried out before the call returns. No test lives here.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from forewarn.control import ticker
from forewarn.control.command_log import CommandLog
from forewarn.control.control import Control
from forewarn.control.fleet_index import FleetIndex
from forewarn.control.hosts.liveness import Observed
from forewarn.control.published_fleet import PublishedFleet
from forewarn.control.timekeeper import Timekeeper
from forewarn.control.volatile import Volatile
from forewarn.control.writer import Wanted, Writer, WriterThread
from forewarn.core.model import Host, Policy, Scope, Vm
from forewarn.ports import EVERYTHING, Change, Clock, Ids, JournalLine, Store
from forewarn.tables.folding import RowNumbers
from support import ordered
from support.ordered import Given

T = TypeVar("T")

JOURNAL_LINES_MAX = 10_000


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never really waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("a call that must not wait tried to wait")


class Inline:
    """Takes commands like a writer's thread, at once; `run` carries one out or raises."""

    def __init__(self, run: Callable[[Wanted[Any]], Any]) -> None:
        self._run = run

    async def submit(self, command: Wanted[T]) -> T:
        found: T = self._run(command)
        return found


class InlineControl(Control):
    """`Control` that reads the store on the caller's thread."""

    async def read(self, query: Callable[[Store], T]) -> T:
        return query(self.store)


class ControlParts:
    """What one life of control is built of, over what its store holds.

    One clock serves as wall clock and as lease clock.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        observed: Observed,
        policy: Policy,
        ids: Ids,
        volatile: Volatile | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.observed = observed
        self.policy = policy
        self.ids = ids
        self.snapshot = store.load()
        self.index = FleetIndex(self.snapshot)
        self.counted = RowNumbers.after(self.snapshot)
        self.published = PublishedFleet(self.snapshot, observed, policy=policy, clock=clock)
        self.timekeeper = Timekeeper(clock)
        self.volatile = volatile or Volatile(clock.monotonic_ms())

    def writer(
        self,
        on_commit: Callable[[Sequence[Change]], None],
        *,
        command_log: CommandLog | None = None,
    ) -> Writer:
        return Writer(
            index=self.index,
            counted=self.counted,
            observed=self.observed,
            store=self.store,
            timekeeper=self.timekeeper,
            lease_clock=self.clock,
            volatile=self.volatile,
            policy=self.policy,
            ids=self.ids,
            on_commit=on_commit,
            command_log=command_log,
        )

    def control(self, writer: WriterThread) -> Control:
        return Control(
            writer=writer,
            store=self.store,
            clock=self.clock,
            lease_clock=self.clock,
            fleet=self.published,
            observed=self.observed,
        )

    def inline_control(self, run: Callable[[Wanted[Any]], Any]) -> InlineControl:
        return InlineControl(
            writer=Inline(run),
            store=self.store,
            clock=self.clock,
            lease_clock=self.clock,
            fleet=self.published,
            observed=self.observed,
        )


class InlineFleet:
    """A fleet and its control without threads: one command, one commit, at once.

    A subclass opens it with the parts that it wants, and again where control is to start anew.
    """

    def __init__(self) -> None:
        self.commits: list[Change] = []

    def _begin(self, parts: ControlParts) -> None:
        """Begin a life of control."""
        self.parts = parts
        self.index = parts.index
        self.published = parts.published
        self.timekeeper = parts.timekeeper
        self.volatile = parts.volatile
        self.control = parts.inline_control(self.run)
        self.writer = parts.writer(self._committed)

    def _committed(self, changes: Sequence[Change]) -> None:
        self.commits.extend(changes)
        self.published.publish(changes)

    def run(self, command: Given[T]) -> T:
        """One command, one commit; its refusal is raised."""
        done = self.writer.run([ordered.wanted(command)])[0]
        if done.error is not None:
            raise done.error
        value: T = done.value
        return value

    def tick(self) -> None:
        for command in self.run(ticker.survey):
            self.run(command)

    # What is there now.

    def scope(self, name: str = "web") -> Scope:
        return self.index.scopes[name]

    def host(self, name: str) -> Host:
        return self.index.hosts[name]

    def vm(self, name: str) -> Vm:
        found = self.index.scopes[self.index.scope_of_vm[name]].vm(name)
        assert found is not None
        return found

    def journal(self) -> Sequence[JournalLine]:
        return self.parts.store.journal(EVERYTHING, after=0, limit=JOURNAL_LINES_MAX)
