"""A store that crashes the service, or fails, at a chosen durable step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from forewarn.core.model import Operation, ScheduledEvent
from forewarn.ports import (
    Batch,
    Fence,
    FirstRead,
    JournalLine,
    ListedEvent,
    ListedOperation,
    ListFilter,
    Questions,
    RecallResult,
    Snapshot,
    Store,
    StoreFailed,
    VmDefinition,
)


class Crash(BaseException):
    """kill -9: nothing that would run after this runs."""


class Fault(StrEnum):
    """Where the next transaction goes wrong."""

    CRASH_IN_RECALL = "crash while something is recalled"
    CRASH_BEFORE_COMMIT = "crash before commit"
    CRASH_AFTER_COMMIT = "crash after commit"
    DISK_FULL = "disk full"


class FaultyStore:
    """`ports.Store` around a real one. `fault` is used up by the first step it fits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.fault: Fault | None = None

    def _meet(self, *faults: Fault) -> None:
        if self.fault not in faults:
            return
        fault, self.fault = self.fault, None
        if fault is Fault.DISK_FULL:
            raise StoreFailed("the disk is full", fatal=False)
        raise Crash(fault.value if fault else "")

    def meet_before(self) -> None:
        """A durable step that is no commit is about to be made."""
        self._meet(Fault.CRASH_BEFORE_COMMIT)

    def meet_after(self) -> None:
        """It was made."""
        self._meet(Fault.CRASH_AFTER_COMMIT)

    def load(self) -> Snapshot:
        return self._store.load()

    def position(self) -> int:
        return self._store.position()

    def begin_epoch(self, epoch: str) -> None:
        self._store.begin_epoch(epoch)

    def commit(self, batch: Batch, fence: Fence | None = None) -> None:
        self._meet(Fault.CRASH_BEFORE_COMMIT, Fault.DISK_FULL)
        self._store.commit(batch, fence)
        self._meet(Fault.CRASH_AFTER_COMMIT)

    def recall(self, questions: Questions) -> RecallResult:
        self._meet(Fault.CRASH_IN_RECALL)
        return self._store.recall(questions)

    def event(self, event_id: str) -> ScheduledEvent | None:
        return self._store.event(event_id)

    def events(
        self, where: ListFilter, *, open_only: bool, limit: int, below: int | None = None
    ) -> Sequence[ListedEvent]:
        return self._store.events(where, open_only=open_only, limit=limit, below=below)

    def event_ids(self, beginning: str, *, limit: int) -> Sequence[str]:
        return self._store.event_ids(beginning, limit=limit)

    def operation(self, operation_id: str) -> Operation | None:
        return self._store.operation(operation_id)

    def operations(
        self, where: ListFilter, *, open_only: bool, limit: int, below: int | None = None
    ) -> Sequence[ListedOperation]:
        return self._store.operations(where, open_only=open_only, limit=limit, below=below)

    def operation_ids(self, beginning: str, *, limit: int) -> Sequence[str]:
        return self._store.operation_ids(beginning, limit=limit)

    def first_reads(self, event_id: str) -> Sequence[FirstRead]:
        return self._store.first_reads(event_id)

    def definition(self, vm: str) -> VmDefinition | None:
        return self._store.definition(vm)

    def journal(self, where: ListFilter, *, after: int, limit: int) -> Sequence[JournalLine]:
        return self._store.journal(where, after=after, limit=limit)

    def journal_end(self) -> int:
        return self._store.journal_end()

    def backup(self, target: Path, *, files: Callable[[], Mapping[str, bytes]] = dict) -> None:
        self._store.backup(target, files=files)

    def close(self) -> None:
        self._store.close()
