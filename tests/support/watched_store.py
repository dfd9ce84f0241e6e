"""A real store that tells what was asked of it and fails where told to. No test lives here."""

from __future__ import annotations

import threading

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.ports import Batch, Fence, Questions, RecallResult, StoreFailed
from simulation.faulty_store import FaultyStore

HANGS_S = 60  # only ends a hang


class WatchedStore(FaultyStore):
    """`ports.Store`. `fails` says what the next call of a name raises; `calls` is the record."""

    def __init__(self) -> None:
        super().__init__(SqliteStore.in_memory())
        self.calls: list[str] = []
        self.fails: dict[str, Exception] = {}

    def _meets(self, call: str) -> None:
        self.calls.append(call)
        failure = self.fails.pop(call, None)
        if failure is not None:
            raise failure

    def commit(self, batch: Batch, fence: Fence | None = None) -> None:
        self._meets("commit")
        super().commit(batch, fence)

    def recall(self, questions: Questions) -> RecallResult:
        self._meets("recall")
        return super().recall(questions)


class GatedStore(WatchedStore):
    """Its commits wait while the gate is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.at_gate, self._open = threading.Event(), threading.Event()
        self._open.set()

    def close_gate(self) -> None:
        self.at_gate.clear()
        self._open.clear()

    def open_gate(self) -> None:
        self._open.set()

    def commit(self, batch: Batch, fence: Fence | None = None) -> None:
        self.at_gate.set()
        assert self._open.wait(HANGS_S)
        super().commit(batch, fence)


def disk_full() -> StoreFailed:
    return StoreFailed("the disk is full", fatal=False)


def disk_broken() -> StoreFailed:
    return StoreFailed("fsync failed", fatal=True)
