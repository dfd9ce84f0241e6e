"""The one place where anything is written: commands in, durable results out.

`Writer.run` is synchronous and takes a batch of commands through one commit: each command gets
its own transaction, a command that refuses is taken back alone, and no result leaves before the
commit. `WriterThread` feeds it from asyncio; while one batch is being made durable the next one
gathers, which is all there is to group commit.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from forewarn.control.commands import ClockStepped, Command, Stalled
from forewarn.control.deciding import decide
from forewarn.control.fleet_index import FleetIndex
from forewarn.control.observed import Observed
from forewarn.control.timekeeper import Reading, Timekeeper
from forewarn.control.transaction import Transaction
from forewarn.control.volatile import Volatile
from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.model import Policy
from forewarn.core.principal import CLOCK
from forewarn.logs import Log
from forewarn.ports import Change, Clock, Ids, StaleRevision, Store, StoreFailed

T = TypeVar("T")
BATCH_COMMANDS_MAX = 256
WRITER_BROKEN = "the writer met something that must not happen; the log says what"

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class LoggedByCaller(Generic[T]):
    """A command whose caller logs that it broke, once, however often it is tried again."""

    command: Command[T]


@dataclass(slots=True)
class Timed(Generic[T]):
    """A command whose caller wants to know how long it kept the writer, by this clock: `ms`."""

    command: Command[T]
    clock: Clock
    ms: int = 0


# What the writer takes: values, never code.
Wanted = Command[T] | LoggedByCaller[T] | Timed[T]


def _decided(tx: Transaction, wanted: Wanted[T]) -> T:
    if isinstance(wanted, Command):
        return decide(tx, wanted)
    if isinstance(wanted, LoggedByCaller):
        return decide(tx, wanted.command)
    began_ms = wanted.clock.monotonic_ms()
    try:
        return decide(tx, wanted.command)
    finally:
        wanted.ms = wanted.clock.monotonic_ms() - began_ms


@dataclass(frozen=True, slots=True)
class Done:
    """How one command ended: a value, or the exception its caller gets."""

    value: Any = None
    error: BaseException | None = None


class Writer:
    """Takes commands through the index of the fleet and the store. Single-threaded.

    Whoever calls `run` owns it, and the index with it.
    """

    def __init__(
        self,
        *,
        index: FleetIndex,
        observed: Observed,
        store: Store,
        timekeeper: Timekeeper,
        lease_clock: Clock,
        volatile: Volatile,
        policy: Policy,
        ids: Ids,
        on_commit: Callable[[Sequence[Change]], None],
    ) -> None:
        self._index = index
        self._observed = observed
        self._store = store
        self._timekeeper = timekeeper
        self._policy = policy
        self._ids = ids
        self._on_commit = on_commit
        self._lease_clock = lease_clock
        self._volatile = volatile

    def run(self, commands: Sequence[Wanted[Any]]) -> list[Done]:
        """Run the commands in order, commit once, and say how each ended.

        Raises StoreFailed if nothing could be kept, and StaleRevision if another program wrote to
        the database; then nothing has changed. Anything else it raises is a bug, and nothing has
        changed either.
        """
        reading = self._timekeeper.read()
        first = self._lost_time(reading)
        commands = [*first, *commands]
        monotonic_ms = self._lease_clock.monotonic_ms()
        commit = self._store.position() + 1
        results: list[Done] = []
        changes: list[Change] = []
        carried_out: list[Transaction] = []
        try:
            for command in commands:
                transaction = self._transaction(reading.now_ms, monotonic_ms, commit)
                done, change = self._run_one(command, transaction, begun=bool(changes))
                results.append(done)
                if done.error is None:
                    carried_out.append(transaction)
                if change is not None:
                    changes.append(change)
            for done in results[: len(first)]:
                if done.error is not None:
                    # Nothing may be decided on time that is not accounted for.
                    raise done.error
            if changes:
                self._store.commit()
        except BaseException:
            self._store.rollback()
            for transaction in reversed(carried_out):
                transaction.take_back()
            raise
        self._timekeeper.accounted(reading)
        if changes:
            self._on_commit(changes)
        return results[len(first) :]

    @staticmethod
    def _lost_time(reading: Reading) -> list[Command[None]]:
        found: list[Command[None]] = []
        if reading.stepped_ms:
            found.append(ClockStepped(by=CLOCK, stepped_ms=reading.stepped_ms))
        if reading.stalled_ms:
            found.append(Stalled(by=CLOCK, stalled_ms=reading.stalled_ms))
        return found

    def _transaction(self, now_ms: int, monotonic_ms: int, commit: int) -> Transaction:
        return Transaction(
            self._index,
            self._observed,
            self._store,
            now_ms=now_ms,
            monotonic_ms=monotonic_ms,
            commit=commit,
            volatile=self._volatile,
            policy=self._policy,
            ids=self._ids,
        )

    def _run_one(
        self, command: Wanted[Any], transaction: Transaction, *, begun: bool
    ) -> tuple[Done, Change | None]:
        try:
            value = _decided(transaction, command)
            change = transaction.seal()
            if change is not None:
                if not begun:
                    self._store.begin()
                self._store.save(change)
        except (StoreFailed, StaleRevision):
            transaction.take_back()
            raise
        except Exception as error:
            # One command that refuses, or breaks, must not cost the others their commit.
            if not isinstance(error, Refusal) and not isinstance(command, LoggedByCaller):
                log.exception("command_failed")
            transaction.take_back()
            if not begun:
                self._store.rollback()
            return Done(error=error), None
        return Done(value=value), change


@dataclass(frozen=True, slots=True)
class _Submitted:
    command: Wanted[Any]
    future: asyncio.Future[Any]


class WriterThread:
    """Runs a Writer on a thread of its own and answers on the event loop.

    Commits are published on the loop before the results of their commands, so whoever awaits a
    result can already see its effect.
    """

    def __init__(
        self,
        writer: Writer,
        *,
        publish: Callable[[Sequence[Change]], None],
        on_fatal: Callable[[str], None],
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._writer = writer
        self._publish = publish
        self._on_fatal = on_fatal
        self._on_failure = on_failure  # called on the loop: nothing could be kept
        self._queue: queue.SimpleQueue[_Submitted | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="writer")
        self._loop = asyncio.get_running_loop()
        self._committed: list[Change] = []
        self._closed = False
        self.turns = 0  # batches that it has taken; counted on its own thread

    def start(self) -> None:
        self._thread.start()

    def committed(self, changes: Sequence[Change]) -> None:
        """What the writer calls after a commit, on its own thread."""
        self._committed.extend(changes)

    async def submit(self, command: Wanted[T]) -> T:
        """Run a command and return its value once it is durable.

        Raises the command's refusal, or Unavailable if nothing can be kept now. A caller that
        stops waiting does not stop the command.
        """
        if self._closed:
            raise Unavailable("The service is stopping.")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_Submitted(command, future))
        return await future

    async def stop(self) -> None:
        """Finish what was submitted, then end the thread."""
        self._closed = True
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        while True:
            batch = self._gather()
            if not batch:
                return
            self.turns += 1
            try:
                results = self._writer.run([submitted.command for submitted in batch])
            except StoreFailed as failed:
                log.critical("store_failed", reason=str(failed), fatal=failed.fatal)
                results = [Done(error=Unavailable(str(failed)))] * len(batch)
                self._loop.call_soon_threadsafe(self._on_failure)
                if failed.fatal:
                    self._on_fatal(str(failed))
            except StaleRevision as stale:
                # What is in memory is not what is stored; a new start goes on from what is stored.
                why = f"another program has written to the database: {stale}"
                log.critical("database_changed_by_another_program", reason=str(stale))
                results = [Done(error=Unavailable(why))] * len(batch)
                self._on_fatal(why)
            except Exception:
                # Without its writer the service would wait forever; a new start goes on from
                # what is durable.
                log.exception("writer_failed")
                results = [Done(error=Unavailable(WRITER_BROKEN))] * len(batch)
                self._on_fatal(WRITER_BROKEN)
            changes, self._committed = self._committed, []
            self._loop.call_soon_threadsafe(self._answer, batch, results, changes)

    def _gather(self) -> list[_Submitted]:
        first = self._queue.get()
        if first is None:
            return []
        batch = [first]
        while len(batch) < BATCH_COMMANDS_MAX:
            try:
                following = self._queue.get_nowait()
            except queue.Empty:
                break
            if following is None:
                self._queue.put(None)
                break
            batch.append(following)
        return batch

    def _answer(self, batch: list[_Submitted], results: list[Done], changes: list[Change]) -> None:
        try:
            if changes:
                self._publish(changes)
        finally:
            self._resolve(batch, results)

    @staticmethod
    def _resolve(batch: list[_Submitted], results: list[Done]) -> None:
        for submitted, done in zip(batch, results, strict=True):
            if submitted.future.done():
                continue
            if done.error is None:
                submitted.future.set_result(done.value)
            else:
                submitted.future.set_exception(done.error)
