"""A host's last documents: kept while control is there, shown at a start while it is not.

A notice that guests could read yesterday evening must not vanish for them because both daemons
were restarted over night in the wrong order. What was outdated when the daemon ended is told by
its marks, which are written before anything newer is shown.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from forewarn.adapters import last_documents, marks_file
from forewarn.adapters.last_documents import LastShown
from forewarn.core.incarnation_marks import Marks
from forewarn.host.control_clock import ControlClock
from forewarn.host.feed_reader import FeedReader
from forewarn.host.served_documents import Documents
from forewarn.logs import Log
from forewarn.ports import Clock

log = Log(__name__)

KEEP_EVERY_S = 1.0  # at most: a storm of changes is not a storm of files


class DocumentKeeper:
    """Keeps what is shown in the data folder. Belongs to the event loop."""

    def __init__(
        self,
        folder: Path,
        *,
        documents: Documents,
        time: ControlClock,
        clock: Clock,
        boot_id_file: Path,
    ) -> None:
        self._folder = folder
        self._documents = documents
        self._time = time
        self._clock = clock
        self._boot_id_file = boot_id_file
        self._ring = asyncio.Event()
        self._forgotten = 0  # so often was everything forgotten
        self._ours = False  # what is kept is ours, or was put aside
        self._said = ""

    # How far guests have come.

    def marks(self) -> Marks:
        """The marks of before this start. Raises DatabaseRefused.

        What was kept by a daemon that knew no marks, or beside damaged ones, was shown too.
        """
        known = marks_file.load(self._folder)
        if known is not None and not known.lost:
            return known
        if known is not None:
            log.error("marks_damaged", why=known.lost, remedy="see `forewarn host accept-control`")
        last = last_documents.load(self._folder)
        marks = (known or Marks()).raised(last.scopes if last is not None else ())
        if marks != Marks():
            self._mark_at_the_start(marks)
        return marks

    def _mark_at_the_start(self, marks: Marks) -> None:
        try:
            marks_file.keep(self._folder, marks)
        except OSError as error:
            log.warning("marks_not_kept", why=str(error))  # nothing new is shown before they are

    async def mark(self, marks: Marks) -> None:
        """Make marks durable, on a thread. Raises OSError."""
        await asyncio.to_thread(marks_file.keep, self._folder, marks)

    def accepts(self) -> bool:
        """Whether the operator wants everything forgotten that guests were shown."""
        return marks_file.accepting(self._folder)

    async def forget(self) -> None:
        """Forget it, durably, on a thread. Raises OSError."""
        await asyncio.to_thread(self._forget)

    def _forget(self) -> None:
        """The documents first, for marks are made of them."""
        self._forgotten += 1
        self._put_unread_aside()
        last_documents.forget(self._folder)
        marks_file.forget(self._folder)

    # The documents.

    def ring(self) -> None:
        """What is shown has changed."""
        self._ring.set()

    async def run(self, feed_reader: FeedReader) -> None:
        """Keep until canceled. What cannot be written is said once and tried with the next."""
        while True:
            await self._ring.wait()
            await self.finish(feed_reader)
            await asyncio.sleep(KEEP_EVERY_S)

    async def finish(self, feed_reader: FeedReader) -> None:
        """Keep what has changed since it was kept, if anything has."""
        if not self._ring.is_set():
            return
        self._ring.clear()
        try:
            await self._keep(feed_reader)
            self._said = ""
        except OSError as error:
            if str(error) != self._said:
                log.warning("last_documents_not_kept", why=str(error))
            self._said = str(error)

    async def _keep(self, feed_reader: FeedReader) -> None:
        pages = (self._documents.page(name) for name in sorted(feed_reader.names))
        monotonic_ms = self._clock.monotonic_ms()
        forgotten = self._forgotten
        shown = LastShown(
            scopes=tuple(page.scope for page in pages if page is not None),
            now_ms=self._time.now_ms(monotonic_ms),
            monotonic_ms=monotonic_ms,
            boot_id=self._boot_id(),
        )
        await asyncio.to_thread(self._replace, shown)
        if forgotten != self._forgotten:
            last_documents.forget(self._folder)  # while it was written; it is written again

    def _replace(self, shown: LastShown) -> None:
        self._put_unread_aside()
        last_documents.keep(self._folder, shown)

    def _put_unread_aside(self) -> None:
        """Once, before anything is replaced: what this program cannot read is not removed by it."""
        if not self._ours:
            last_documents.put_unread_aside(self._folder)
            self._ours = True

    def recall(self, feed_reader: FeedReader) -> None:
        """Let the follower know what was shown last, for guests of documents that it refuses."""
        shown = last_documents.load(self._folder)
        if shown is not None:
            feed_reader.recall(shown.scopes)

    def resume(self, feed_reader: FeedReader) -> bool:
        """Show what was kept, if anything was. The time is control's as far as it can be known.

        After a boot no clock has counted on, and this machine's own is the best guess there is.
        """
        shown = last_documents.load(self._folder)
        if shown is None:
            return False
        same_boot = shown.boot_id != "" and shown.boot_id == self._boot_id()
        if not self._time.known:
            then_ms = shown.monotonic_ms if same_boot else self._clock.monotonic_ms()
            now_ms = shown.now_ms if same_boot else self._clock.now_ms()
            self._time.heard(now_ms, asked_monotonic_ms=then_ms, heard_monotonic_ms=then_ms)
        feed_reader.resume(shown.scopes, heard_ms=shown.monotonic_ms if same_boot else None)
        return True

    def _boot_id(self) -> str:
        try:
            return self._boot_id_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""
