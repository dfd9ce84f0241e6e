"""A queue worker that is ready when its VM is about to be frozen, rebooted, moved or taken away.

Jobs are shell scripts in a spool folder, run one at a time. When the Scheduled Events endpoint
announces something for this VM, the worker takes no new job, finishes the one in hand, or puts it
back if there is no time for that, and approves. When the event is gone it takes jobs again.
Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

API_VERSION = "2020-07-01"
EVENTS = f"/metadata/scheduledevents?api-version={API_VERSION}"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"

ANSWER_S_MAX = 130.0  # the very first answer may take two minutes
WAIT_S = 60  # how long the endpoint may hold a poll while nothing changes, if it can
PAUSE_S = 1.0  # between two polls
LOOK_S = 0.2  # how soon a script that is to be given up learns it
GIVE_UP_S = 15.0  # before the impact: what is in hand then is put back

# Runs a job and says whether it was finished; gives it up, undone, when the event is set.
Work = Callable[[Path, threading.Event], bool]


class UnreachableError(Exception):
    """The endpoint did not answer with what was asked for. What was known before still holds."""

    def __init__(self, why: str, retry_s: float = 0.0) -> None:
        super().__init__(why)
        self.retry_s = retry_s


class Spool:
    """Jobs as files: `todo`, `hand` and `done`. A job is a file, so it is in exactly one place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for place in ("todo", "hand", "done"):
            (folder / place).mkdir(parents=True, exist_ok=True)
        for job in (folder / "hand").iterdir():  # a worker died without notice
            self.put_back(job)

    def add(self, name: str, script: str = "") -> None:
        """A new job. It appears whole."""
        scratch = self._folder / f".{name}"
        scratch.write_text(script, encoding="utf-8")
        scratch.rename(self._folder / "todo" / name)

    def names(self, place: str) -> list[str]:
        """The jobs that are `todo`, in `hand` or `done`, by name."""
        return sorted(path.name for path in (self._folder / place).iterdir())

    def take(self) -> Path | None:
        """The next job, now in hand; None if there is none."""
        todo = self.names("todo")
        if not todo:
            return None
        return (self._folder / "todo" / todo[0]).rename(self._folder / "hand" / todo[0])

    def put_back(self, job: Path) -> None:
        job.rename(self._folder / "todo" / job.name)

    def finish(self, job: Path) -> None:
        job.rename(self._folder / "done" / job.name)


@dataclass(frozen=True)
class Announced:
    """What the endpoint said: the events, or None if nothing has changed, and its time."""

    events: list[dict[str, Any]] | None
    tag: str | None
    date: datetime


class Endpoint:
    """The Scheduled Events endpoint of this VM. One request at a time, never by a proxy."""

    def __init__(self, url: str) -> None:
        self._where = urlsplit(url).netloc
        self._connection: http.client.HTTPConnection | None = None
        self._hung_up = False

    def vm_name(self) -> str:
        """The name by which events know this VM."""
        _, body = self._ask("GET", NAME)
        return body.decode()

    def read(self, tag: str | None, wait_s: int) -> Announced:
        """The document, if it is not the one with this tag; waits for that if the service can."""
        headers = {} if tag is None else {"If-None-Match": tag}
        if wait_s:
            headers["Prefer"] = f"wait={wait_s}"
        response, body = self._ask("GET", EVENTS, headers=headers)
        try:
            date = parsedate_to_datetime(response.headers["Date"])
            if response.status == 304:
                return Announced(None, tag, date)
            events = json.loads(body)["Events"]  # a 200 with an empty body is no document
        except (ValueError, KeyError, TypeError) as error:
            raise UnreachableError(f"no document: {error!r}") from error
        return Announced(events, response.headers["ETag"], date)

    def approve(self, event_id: str) -> None:
        """Say go ahead. Saying it twice, or for an event that is gone, does no harm."""
        body = json.dumps({"StartRequests": [{"EventId": event_id}]})
        self._ask("POST", EVENTS, body=body, fine=(200, 400))

    def hang_up(self) -> None:
        """End the request that is under way, from another thread; there will be no other."""
        self._hung_up = True
        connection = self._connection
        sock = None if connection is None else connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):  # it has just ended by itself
                sock.shutdown(socket.SHUT_RDWR)

    def _ask(
        self,
        method: str,
        path: str,
        *,
        headers: dict[str, str] | None = None,
        body: str | None = None,
        fine: tuple[int, ...] = (200, 304),
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection(self._where, timeout=ANSWER_S_MAX)
        self._connection = connection
        try:
            connection.connect()
            if self._hung_up:
                raise UnreachableError("hung up")
            sent = {"Metadata": "true", **(headers or {})}
            connection.request(method, path, body=body, headers=sent)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(repr(error)) from error
        finally:
            connection.close()
        if response.status not in fine:
            after = response.headers.get("Retry-After", "")
            raise UnreachableError(f"{response.status}", float(after) if after.isdigit() else 0.0)
        return response, content


class Worker:
    """Runs jobs on one thread and watches the endpoint on another, from `start` to `stop`."""

    def __init__(
        self, spool: Spool, endpoint: Endpoint, work: Work, *, pause_s: float = PAUSE_S
    ) -> None:
        self._spool = spool
        self._endpoint = endpoint
        self._work = work
        self._pause_s = pause_s
        self._change = threading.Condition()
        self._draining = False
        self._busy = False
        self._stopped = threading.Event()
        self._give_up = threading.Event()
        self._approved: set[str] = set()
        self._threads = [threading.Thread(target=run) for run in (self._watch, self._run_jobs)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End; what is in hand is put back."""
        with self._change:
            self._stopped.set()
            self._give_up.set()
            self._change.notify_all()
        self._endpoint.hang_up()
        for thread in self._threads:
            thread.join()

    # Jobs.

    def _run_jobs(self) -> None:
        while not self._stopped.is_set():
            job = self._take()
            if job is None:
                continue
            finished = self._work(job, self._give_up)
            if finished:
                self._spool.finish(job)
            else:
                self._spool.put_back(job)
            with self._change:
                self._busy = False
                self._change.notify_all()

    def _take(self) -> Path | None:
        with self._change:
            job = None if self._draining else self._spool.take()
            self._busy = job is not None
            if job is None:
                self._change.wait(self._pause_s)
            return job

    # Events.

    def _watch(self) -> None:
        vm = tag = None
        mine: list[dict[str, Any]] = []
        while not self._stopped.is_set():
            pause_s = self._pause_s
            try:
                vm = vm or self._endpoint.vm_name()
                # While there is something to prepare for, the time that is left is asked for anew.
                said = self._endpoint.read(tag, 0 if mine else WAIT_S)
                if said.events is not None:
                    tag = said.tag
                    mine = [event for event in said.events if vm in event["Resources"]]
                self._prepare(mine, said.date)
            except UnreachableError as why:
                pause_s = max(pause_s, why.retry_s)
            self._stopped.wait(pause_s)

    def _prepare(self, mine: list[dict[str, Any]], now: datetime) -> None:
        """Be ready for these events, or go on with work if there are none."""
        if not mine:
            self._go_on()
            return
        waiting = [event for event in mine if event["EventStatus"] == "Scheduled"]
        starts = [parsedate_to_datetime(event["NotBefore"]) for event in waiting]
        left_s = (min(starts) - now).total_seconds() if len(waiting) == len(mine) else 0.0
        if not self._drained(left_s):
            return
        for event in waiting:
            if event["EventId"] not in self._approved:
                self._endpoint.approve(event["EventId"])
                self._approved.add(event["EventId"])

    def _drained(self, left_s: float) -> bool:
        """Take no new job; True when none is in hand any more."""
        with self._change:
            self._draining = True
            if left_s <= GIVE_UP_S:
                self._give_up.set()
            return self._change.wait_for(lambda: not self._busy, self._pause_s)

    def _go_on(self) -> None:
        with self._change:
            if not self._stopped.is_set():
                self._give_up.clear()
            self._draining = False
            self._approved.clear()
            self._change.notify_all()


def run_script(job: Path, give_up: threading.Event) -> bool:
    """Run a job as a shell script. A script that is given up is ended, and runs again later."""
    script = ["/bin/sh", str(job)]
    # In a group of its own: what the script has started ends with it.
    process = subprocess.Popen(script, start_new_session=True)  # noqa: S603 - what it is for
    while True:
        try:
            process.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            if give_up.is_set():
                os.killpg(process.pid, signal.SIGTERM)
                return process.wait() == 0
        else:
            return True


def main() -> None:
    """Work until asked to end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spool", type=Path, help="the folder of the jobs")
    parser.add_argument("--url", default="http://169.254.169.254", help="the endpoint")
    options = parser.parse_args()
    worker = Worker(Spool(options.spool), Endpoint(options.url), run_script)
    worker.start()
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    worker.stop()


if __name__ == "__main__":
    # Before any thread: all of them leave these to `sigwait`.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main()
