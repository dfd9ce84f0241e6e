"""The one place where anything is written: commands in, durable results out.

`Writer.run` is synchronous and takes a batch of commands through one commit: each command gets
its own transaction, a command that refuses is taken back alone, in memory; what the others change
is folded into rows, which are written at once, and no result leaves before the commit.
`WriterThread` feeds it from asyncio; while one batch is being made durable the next one gathers,
which is all there is to group commit.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

from forewarn.control import command_log
from forewarn.control.archive import Archive, NotRecalled
from forewarn.control.command_handlers import decide
from forewarn.control.command_log import CommandLog, NotedIds
from forewarn.control.commands import ClockStepped, Command, Stalled
from forewarn.control.fleet_index import FleetIndex
from forewarn.control.hosts.liveness import News, Observed
from forewarn.control.timekeeper import ClockReading, Timekeeper
from forewarn.control.transaction import Transaction
from forewarn.control.volatile import Volatile
from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.model import Policy
from forewarn.core.principal import CLOCK
from forewarn.logs import Log
from forewarn.ports import (
    Change,
    Clock,
    Fence,
    Ids,
    StaleRevision,
    Store,
    StoreFailed,
    Unstorable,
)
from forewarn.tables.folding import Folding, RowNumbers

T = TypeVar("T")
BATCH_COMMANDS_MAX = 256
QUESTIONS_MAX = 100  # of the store, by one command, one after the other
WRITER_BROKEN = "the writer met something that must not happen; the log says what"

log = Log(__name__)


class LoggedByCaller(Struct, Generic[T], frozen=True):
    """A command whose caller logs that it broke, once, however often it is tried again."""

    command: Command[T]


class CommandWithClock(Struct, Generic[T]):
    """A command whose caller wants to know how long it kept the writer, by this clock: `ms`."""

    command: Command[T]
    clock: Clock
    ms: int = 0


# What the writer takes: values, never code.
Wanted = Command[T] | LoggedByCaller[T] | CommandWithClock[T]


def _command(wanted: Wanted[T]) -> Command[T]:
    return wanted if isinstance(wanted, Command) else wanted.command


def _decided(tx: Transaction, wanted: Wanted[T]) -> T:
    if not isinstance(wanted, CommandWithClock):
        return decide(tx, _command(wanted))
    began_ms = wanted.clock.monotonic_ms()
    try:
        return decide(tx, wanted.command)
    finally:
        wanted.ms = wanted.clock.monotonic_ms() - began_ms


class CommandResult(Struct, frozen=True):
    """How one command ended: a value, or the exception its caller gets."""

    value: Any = None
    error: BaseException | None = None


class _Batch(Struct):
    """One turn of the writer, while it is decided."""

    now_ms: int
    monotonic_ms: int
    news: News
    commands: Sequence[Wanted[Any]]
    rows: Folding
    tried: int = 0
    results: list[CommandResult] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    carried_out: list[Transaction] = field(default_factory=list)
    logged: bool = False


class Writer:
    """Takes commands through the index of the fleet and the store. Single-threaded.

    The caller of `run` owns it, and with it the index and what was counted.
    """

    def __init__(
        self,
        *,
        index: FleetIndex,
        counted: RowNumbers,
        observed: Observed,
        store: Store,
        timekeeper: Timekeeper,
        lease_clock: Clock,
        volatile: Volatile,
        policy: Policy,
        ids: Ids,
        on_commit: Callable[[Sequence[Change]], None],
        command_log: CommandLog | None = None,
        fence: Fence | None = None,
    ) -> None:
        """`fence` is that of the leadership under which it writes, where there can be others."""
        self._index = index
        self._observed = observed
        self._heard = observed.for_writer()
        self._store = store
        self._timekeeper = timekeeper
        self._policy = policy
        self._ids = NotedIds(ids)
        self._fence = fence
        self._archive = Archive(index, store)
        self._counted = counted
        self._command_log = command_log
        self._on_commit = on_commit
        self._lease_clock = lease_clock
        self._volatile = volatile

    def run(self, commands: Sequence[Wanted[Any]]) -> list[CommandResult]:
        """Run the commands in order, commit once, and say how each ended.

        Raises StoreFailed if nothing could be kept, and StaleRevision if another program wrote to
        the database; then nothing has changed. What the store cannot hold is a bug: the commands
        are committed in two halves, and so on, until the one that it is of has failed alone.
        Anything else it raises is a bug too, and nothing has changed either.
        """
        try:
            return self._run(commands)
        except Unstorable as error:
            if not commands:
                raise
            if len(commands) == 1:
                if not isinstance(commands[0], LoggedByCaller):
                    log.exception("command_failed")
                return [CommandResult(error=error)]
        half = len(commands) // 2
        return [*self.run(commands[:half]), *self.run(commands[half:])]

    def _run(self, commands: Sequence[Wanted[Any]]) -> list[CommandResult]:
        news = self._observed.news()
        reading = self._timekeeper.read()
        first = self._lost_time(reading)
        batch = _Batch(
            now_ms=reading.now_ms,
            monotonic_ms=self._lease_clock.monotonic_ms(),
            news=news,
            commands=[*first, *commands],
            rows=Folding(self._counted),
        )
        self._heard.begin(news, batch.monotonic_ms)
        try:
            self._archive.begin([_command(one) for one in batch.commands])
            for command in batch.commands:
                self._run_one(command, batch)
            for done in batch.results[: len(first)]:
                if done.error is not None:
                    # Nothing may be decided on time that is not accounted for.
                    raise done.error
            self._log_batch(batch)
            if batch.changes:
                self._store.commit(batch.rows.batch(), self._fence)
        except BaseException as error:
            for transaction in reversed(batch.carried_out):
                transaction.take_back()
            if isinstance(error, Exception):
                self._log_taken_back(batch)
            raise
        if batch.changes:
            batch.rows.committed()
            self._archive.committed()
        self._timekeeper.accounted(reading)
        reported = self._tell_reports(batch)
        if batch.changes or reported:
            self._on_commit(batch.changes)
        return batch.results[len(first) :]

    def _tell_reports(self, batch: _Batch) -> bool:
        """Tell the event loop what hosts reported in the batch; whether any did."""
        hosts = set().union(*(one.reported_by for one in batch.carried_out))
        if hosts:
            self._observed.committed_reports({host: self._heard.reported(host) for host in hosts})
        return bool(hosts)

    def _log_batch(self, batch: _Batch) -> None:
        """Tell the command log what was decided so far, before it is kept."""
        batch.logged, ids = True, self._ids.take()
        if self._command_log is None:
            return
        tried = batch.commands[: batch.tried]
        self._command_log(
            command_log.LoggedBatch(
                now_ms=batch.now_ms,
                monotonic_ms=batch.monotonic_ms,
                commands=tuple(map(_command, tried)),
                heard=batch.news,
                ids=ids,
            )
        )

    def _log_taken_back(self, batch: _Batch) -> None:
        if not batch.logged:
            self._log_batch(batch)
        if self._command_log is not None:
            self._command_log(command_log.TakenBack())

    @staticmethod
    def _lost_time(reading: ClockReading) -> list[Command[None]]:
        found: list[Command[None]] = []
        if reading.stepped_ms:
            found.append(ClockStepped(by=CLOCK, stepped_ms=reading.stepped_ms))
        if reading.stalled_ms:
            found.append(Stalled(by=CLOCK, stalled_ms=reading.stalled_ms))
        return found

    def _transaction(self, batch: _Batch) -> Transaction:
        return Transaction(
            self._index,
            self._heard,
            self._archive,
            now_ms=batch.now_ms,
            monotonic_ms=batch.monotonic_ms,
            commit=batch.rows.commit,
            volatile=self._volatile,
            policy=self._policy,
            ids=self._ids,
        )

    def _run_one(self, command: Wanted[Any], batch: _Batch) -> None:
        batch.tried += 1
        given = self._ids.given()
        for _ in range(QUESTIONS_MAX):
            transaction = self._transaction(batch)
            try:
                value = _decided(transaction, command)
                change = transaction.seal()
                if change is not None:
                    batch.rows.add(change)
            except NotRecalled as asking:
                transaction.take_back()
                self._ids.give_again(given)
                self._archive.ask(asking.questions)
                continue
            except (StoreFailed, StaleRevision):
                transaction.take_back()
                raise
            except Exception as error:
                # One command that refuses, or breaks, must not cost the others their commit.
                if not isinstance(error, Refusal) and not isinstance(command, LoggedByCaller):
                    log.exception("command_failed")
                transaction.take_back()
                batch.results.append(CommandResult(error=error))
                return
            break
        else:
            raise AssertionError(f"a command asked the store more than {QUESTIONS_MAX} times")
        batch.results.append(CommandResult(value=value))
        batch.carried_out.append(transaction)
        if change is not None:
            batch.changes.append(change)
            self._archive.came(change)


class _QueueEntry(Struct, frozen=True):
    command: Wanted[Any]
    future: asyncio.Future[Any]


class WriterThread:
    """Runs a Writer on a thread of its own and answers on the event loop.

    Commits are published on the loop before the results of their commands, so a caller that awaits
    a result can already see its effect.
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
        self._queue: queue.SimpleQueue[_QueueEntry | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="writer")
        self._loop = asyncio.get_running_loop()
        self._committed: list[Change] | None = None  # None if there is nothing to publish
        self._closed = False
        self.turns = 0  # batches that it has taken; counted on its own thread

    def start(self) -> None:
        self._thread.start()

    def committed(self, changes: Sequence[Change]) -> None:
        """What the writer calls after a commit, on its own thread."""
        self._committed = [*(self._committed or ()), *changes]

    async def submit(self, command: Wanted[T]) -> T:
        """Run a command and return its value once it is durable.

        Raises the command's refusal, or Unavailable if nothing can be kept now. A caller that
        stops waiting does not stop the command.
        """
        if self._closed:
            raise Unavailable("The service is stopping.")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_QueueEntry(command, future))
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
                results = [CommandResult(error=Unavailable(str(failed)))] * len(batch)
                self._loop.call_soon_threadsafe(self._on_failure)
                if failed.fatal:
                    self._on_fatal(str(failed))
            except StaleRevision as stale:
                # What is in memory is not what is stored; a new start goes on from what is stored.
                why = f"another program has written to the database: {stale}"
                log.critical("database_changed_by_another_program", reason=str(stale))
                results = [CommandResult(error=Unavailable(why))] * len(batch)
                self._on_fatal(why)
            except Exception:
                # Without its writer the service would wait forever; a new start goes on from
                # what is durable.
                log.exception("writer_failed")
                results = [CommandResult(error=Unavailable(WRITER_BROKEN))] * len(batch)
                self._on_fatal(WRITER_BROKEN)
            changes, self._committed = self._committed, None
            self._loop.call_soon_threadsafe(self._answer, batch, results, changes)

    def _gather(self) -> list[_QueueEntry]:
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

    def _answer(
        self, batch: list[_QueueEntry], results: list[CommandResult], changes: list[Change] | None
    ) -> None:
        try:
            if changes is not None:
                self._publish(changes)
        finally:
            self._resolve(batch, results)

    @staticmethod
    def _resolve(batch: list[_QueueEntry], results: list[CommandResult]) -> None:
        for submitted, done in zip(batch, results, strict=True):
            if submitted.future.done():
                continue
            if done.error is None:
                submitted.future.set_result(done.value)
            else:
                submitted.future.set_exception(done.error)
