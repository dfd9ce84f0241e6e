"""What is seen of the agent from outside: its status file, its metrics, what systemd is told.

The main loop hands in views; the watching thread hands in answers and trouble; the beat hands in
pauses. A thread of its own writes the files, so that a disk that is full, or stands still, delays
no other thread: then the files are old, and the log says so once.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable

from forewarn_guest import __version__, atomic_files, metrics, status
from forewarn_guest.agent import View
from forewarn_guest.configuration import Configuration
from forewarn_guest.errors import EndpointError
from forewarn_guest.logs import Log
from forewarn_guest.metrics import AgentNumbers
from forewarn_guest.pauses import Pause
from forewarn_guest.run_files import boot_id, identity_of
from forewarn_guest.systemd import Notifier

WRITE_EVERY_S = 5.0  # at least; the promise is ten
ERRORS_SHOWN_MAX = 10
ERROR_CHARS_MAX = 500
SAY_AGAIN_S = 600.0  # trouble that comes and goes is one line in this time
PAUSES_KEPT_MAX = 60  # in an hour; a machine that is always late must not fill the journal
LAST_WRITE_S = 1.0
WAITING_MAX = 4  # for a disk that stands still; older ones are dropped


class StatusWriter:
    """Collects what there is to be seen and shows it. Its methods may be called by any thread,
    `show` only by the one that runs the agent's main loop.
    """

    def __init__(
        self,
        configuration: Configuration,
        path: Path,
        *,
        log: Log,
        notifier: Notifier,
        put: Callable[[Path, bytes], None] = atomic_files.put,
    ) -> None:
        self._configuration = configuration
        self._log = log
        self._notifier = notifier
        self._put_file = put
        self._lock = threading.Lock()
        self._errors: dict[str, int] = {}
        self._last_errors: deque[dict[str, str]] = deque(maxlen=ERRORS_SHOWN_MAX)
        self._said_s: dict[str, float] = {}
        self._in_trouble = False
        self._endpoint = configuration.endpoint
        self._said_url = ""
        self._answered_s: float | None = None
        self._pauses: dict[str, int] = {}
        self._pause_seconds: dict[str, float] = {}
        self._last_pause: dict[str, Any] | None = None
        self._pauses_kept_s: deque[float] = deque(maxlen=PAUSES_KEPT_MAX)
        self._shown: Mapping[str, Any] = {}
        self._shown_s: float | None = None
        self._began_s = time.time()
        self._about = {
            "version": __version__,
            "pid": os.getpid(),
            "start_ticks": identity_of(os.getpid()).start_ticks,
            "boot_id": boot_id(),
            "began": _iso(self._began_s),
            "configuration": str(path),
        }
        self._to_write: queue.SimpleQueue[dict[Path, bytes] | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write_all, name="outside", daemon=True)
        self._writer.start()

    @property
    def look_every_s(self) -> float:
        """How often the main loop has to come round at least."""
        beat_s = self._notifier.beat_every_s
        return WRITE_EVERY_S if beat_s is None else min(WRITE_EVERY_S, beat_s)

    # Handed in.

    def found(self, url: str) -> None:
        """Where the endpoint is that has answered; said when it is another one than before."""
        self._endpoint = url
        if url != self._said_url:
            self._said_url = url
            self._log.info("the endpoint answers", endpoint=url)

    def answered(self) -> None:
        """The endpoint has given a good answer."""
        with self._lock:
            self._answered_s = time.time()
            over, self._in_trouble = self._in_trouble, False
        if over:
            self._log.info("the endpoint answers again")

    def trouble(self, error: EndpointError) -> None:
        """The endpoint could not be asked, or answered what no client can use."""
        said = self.error(_kind(error), str(error))
        if said:
            self._in_trouble = True

    def error(self, kind: str, why: str) -> bool:
        """Something went wrong: counted each time, said once. True if it was said."""
        now_s = time.monotonic()
        why = why[:ERROR_CHARS_MAX]
        with self._lock:
            self._errors[kind] = self._errors.get(kind, 0) + 1
            newest = self._last_errors[-1] if self._last_errors else None
            if newest is None or (newest["kind"], newest["why"]) != (kind, why):
                self._last_errors.append({"at": _iso(time.time()), "kind": kind, "why": why})
            before_s = self._said_s.get(kind)
            say = before_s is None or now_s - before_s >= SAY_AGAIN_S
            if say:
                self._said_s[kind] = now_s
        if say:
            self._log.warning("trouble", kind=kind, why=why)
        return say

    def paused(self, pause: Pause) -> bool:
        """The VM stood still. True if the journal should keep it, False if it has had enough."""
        now_s = time.monotonic()
        with self._lock:
            self._pauses[pause.how] = self._pauses.get(pause.how, 0) + 1
            longer_s = self._pause_seconds.get(pause.how, 0.0) + pause.seconds
            self._pause_seconds[pause.how] = longer_s
            self._last_pause = {"at": _iso(time.time()), **pause.to_json()}
            kept = self._pauses_kept_s
            if len(kept) == PAUSES_KEPT_MAX and now_s - kept[0] < 3600:
                return False
            kept.append(now_s)
        return True

    # Shown.

    def show(self, view: View) -> None:
        """The main loop has come round, and this is what is the case."""
        now_s = time.monotonic()
        self._notifier.beat(now_s)
        content = {**status.of_view(view, self._configuration), **self._trouble()}
        late = self._shown_s is None or now_s - self._shown_s >= WRITE_EVERY_S * 0.9
        if content == self._shown and not late:
            return
        self._shown, self._shown_s = content, now_s
        self._notifier.say(_sentence(view))
        self._put(content, view)

    def end(self, *, orderly: bool = True) -> None:
        """Write for the last time, if that can be done soon: that the agent has ended.

        One that breaks writes no such thing: what the file had said last is what is known of it.
        """
        if orderly:
            path = status.status_path(self._configuration)
            self._to_write.put({path: self._status_file(self._shown, ended=True)})
        self._to_write.put(None)
        self._writer.join(LAST_WRITE_S)

    def _trouble(self) -> dict[str, Any]:
        with self._lock:
            return {
                "errors": list(self._last_errors),
                "errors_by_kind": dict(self._errors),
                "pauses": {
                    "times": sum(self._pauses.values()),
                    "seconds": round(sum(self._pause_seconds.values()), 3),
                    "last": self._last_pause,
                },
            }

    def _put(self, content: Mapping[str, Any], view: View) -> None:
        with contextlib.suppress(queue.Empty):  # the writer has taken it
            while self._to_write.qsize() >= WAITING_MAX:
                self._to_write.get_nowait()
        path = status.status_path(self._configuration)
        files = {path: self._status_file(content, ended=False)}
        if self._configuration.metrics_file is not None:
            text = metrics.text_of(self._measured(view))
            files[self._configuration.metrics_file] = text.encode("utf-8", "replace")
        self._to_write.put(files)

    def _status_file(self, content: Mapping[str, Any], *, ended: bool) -> bytes:
        now_s, answered_s = time.time(), self._answered_s
        about = {
            **self._about,
            "written": _iso(now_s),
            "ended": ended,
            "endpoint": self._endpoint,
            "last_answer": None if answered_s is None else _iso(answered_s),
        }
        shown = {"agent": about, **content}
        return json.dumps(shown, indent=1).encode("ascii") + b"\n"

    def _measured(self, view: View) -> AgentNumbers:
        events: dict[str, int] = {}
        for tracked in view.tracked_events:
            events[tracked.event.event_type] = events.get(tracked.event.event_type, 0) + 1
        with self._lock:
            return AgentNumbers(
                version=__version__,
                began_s=self._began_s,
                written_s=time.time(),
                answered_s=self._answered_s,
                counts=view.counts,
                errors=dict(self._errors),
                pauses=dict(self._pauses),
                pause_seconds=dict(self._pause_seconds),
                last_pause_s=None if self._last_pause is None else self._last_pause["seconds"],
                events=events,
                withheld=sum(1 for tracked in view.tracked_events if tracked.withheld),
                running=len(view.running),
                facts_not_kept=view.unkept,
            )

    def _write_all(self) -> None:
        while True:
            files = self._to_write.get()
            while files is not None and not self._to_write.empty():
                newer = self._to_write.get()
                if newer is None:
                    self._write(files)
                files = newer
            if files is None:
                return
            self._write(files)

    def _write(self, files: Mapping[Path, bytes]) -> None:
        for path, data in files.items():
            self._write_one(path, data)

    def _write_one(self, path: Path, data: bytes) -> None:
        try:
            self._put_file(path, data)
        except OSError as error:
            self.error("files", f"{path} cannot be written: {error.strerror}.")


def _sentence(view: View) -> str:
    """One line for `systemctl status`."""
    if not view.vm:
        return "waiting for the endpoint to say what this VM is called"
    if view.document is None and not view.tracked_events:
        return f"{view.vm}: waiting for the first document"
    if not view.tracked_events:
        return f"{view.vm}: no event"
    doing = ", ".join(f"{part} {step}" for _, part, step in view.running)
    types = ", ".join(tracked.event.event_type for tracked in view.tracked_events)
    return f"{view.vm}: {types}" + (f"; running {doing}" if doing else "")


def _kind(error: EndpointError) -> str:
    """BadAnswer -> bad-answer: what the metrics call it."""
    name = type(error).__name__
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")


def _iso(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, timezone.utc).isoformat(timespec="milliseconds")
