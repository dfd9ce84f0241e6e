"""The facts of the journal in the log of the service too, one line each, once they are committed.

Lines are written on a thread of their own: a commit may bring hundreds, and a log that is slow to
take them holds up no guest.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence

from forewarn.core.facts import detail_text
from forewarn.core.model import Fact
from forewarn.logs import Log
from forewarn.ports import Change
from forewarn.wire.instants import needed_time_text

LINES_WAITING_MAX = 10_000  # more are left out, and counted: the journal has them all
END_LIMIT_S = 5.0  # for what is left when the service ends

log = Log(__name__)

_FIELDS = ("scope", "event_id", "operation_id", "host", "vm", "by", "by_kind", "by_id")


class JournalLog:
    """Writes facts to the log, in their order. `committed` is called on the event loop."""

    def __init__(self, *, waiting_max: int = LINES_WAITING_MAX) -> None:
        self._waiting: queue.Queue[tuple[int, Fact] | None] = queue.Queue(waiting_max)
        self._left_out = 0
        self._thread = threading.Thread(target=self._write, name="journal-log", daemon=True)
        self._thread.start()

    def committed(self, changes: Sequence[Change]) -> None:
        """Have the log say what a commit has added to the journal. Never waits."""
        for change in changes:
            for line in change.lines:
                try:
                    self._waiting.put_nowait((line.number, line.fact))
                except queue.Full:
                    self._left_out += 1

    def end(self) -> None:
        """Write what is left, within a limit. Nothing is taken any more."""
        try:
            self._waiting.put(None, timeout=END_LIMIT_S)
        except queue.Full:
            return
        self._thread.join(END_LIMIT_S)

    def _write(self) -> None:
        while (line := self._waiting.get()) is not None:
            log.info("fact", **fields_of(*line))
            left_out, self._left_out = self._left_out, 0
            if left_out:
                log.warning("facts_left_out", lines=left_out, remedy="`forewarn journal` has them")


def fields_of(number: int, fact: Fact) -> dict[str, object]:
    """What one line says: `at` is when it happened. What is empty is left out."""
    named = {name: getattr(fact, name) for name in _FIELDS}
    at = needed_time_text(fact.at_ms)
    found: dict[str, object] = {"number": number, "at": at, "kind": fact.kind.value}
    found.update((name, value) for name, value in named.items() if value)
    if fact.detail is not None:
        found["detail"] = detail_text(fact.detail)
    return found
