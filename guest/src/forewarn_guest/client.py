"""The client: reads the document, approves events, follows changes. What a program needs.

with Client() as client:
    for change in client.watch():
        ...
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, TypeVar

from forewarn_guest.changes import Change, changes
from forewarn_guest.discovery import Discovery, discover
from forewarn_guest.document import Document
from forewarn_guest.document_reader import (
    error_text,
    newest_versions,
    read_document,
    read_time,
    vm_name,
)
from forewarn_guest.errors import BadAnswer, Busy, EndpointError, Refused, Unreachable
from forewarn_guest.following import Following, Trouble
from forewarn_guest.http1 import (
    CONNECT_S,
    Address,
    Answer,
    Bell,
    Connection,
    Request,
    Stop,
    Stopped,
    bell_of,
)
from forewarn_guest.retry_policy import delay_after, patience_with

log = logging.getLogger(__name__)

API_VERSION = "2020-07-01"
# Versions that `document_reader` understands, newest first (Q2).
API_VERSIONS = (
    "2020-07-01", "2019-08-01", "2019-04-01", "2019-01-01", "2017-11-01", "2017-08-01",
    "2017-03-01",
)  # fmt: skip
# A version of /metadata/instance that every endpoint has (Q4, I7).
INSTANCE_VERSION = "2019-08-01"
EVENTS_PATH = "/metadata/scheduledevents"
NAME_PATH = "/metadata/instance/compute"

TIMEOUT_S = 5.0
FIRST_TIMEOUT_S = 120.0  # the first answer may take two minutes (G9, L2)
# What `Prefer: wait` asks for. The read time-out is a little longer, and longer than the minute
# for which the real service may hold a request by itself (G10).
WAIT_S = 60
WAIT_SLACK_S = 15.0
IDLE_CONNECTIONS_MAX = 2
_T = TypeVar("_T")


class Client:
    """One endpoint, as seen from this VM. Any thread may call any method at any time.

    Without a URL the endpoint is looked for (see `discovery`) when it is first needed; `cache` is
    a small file in which the answer is kept. `vm` is the VM's own name, for endpoints that do not
    tell it. With `wait_s` 0 the client polls each second and never asks to wait.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_version: str = API_VERSION,
        vm: str = "",
        cache: Path | None = None,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        first_timeout_s: float = FIRST_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_S,
        wait_s: int = WAIT_S,
    ) -> None:
        self.wait_s = wait_s
        self._told = url or ""
        self._version = api_version
        self._vm = vm
        self._cache = cache
        self._environment = environment
        self._timeout_s = timeout_s
        self._first_timeout_s = first_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._lock = threading.Lock()  # for what is below; never held while waiting
        self._looking = threading.Lock()  # held while looking for the endpoint
        self._found: Discovery | None = None
        self._idle: list[Connection] = []
        self._answered = False
        self._known: Document | None = None
        self._name = ""
        self._closed = Stop()

    @property
    def api_version(self) -> str:
        """The version in use: as given, or what the endpoint named instead (Q8, E3)."""
        return self._version

    @property
    def url(self) -> str:
        """The address of the endpoint, looked for if need be. Raises NotFound if it finds none."""
        with bell_of(self._closed) as bell:
            try:
                return self._where(bell)
            except Stopped:
                raise Unreachable("The client was closed.") from None

    def document(self, *, within_s: float | None = None) -> Document:
        """The document as it is now.

        410 is retried for 70 s and 429, 5xx and an empty 200 for 30 s, or all of them `within_s`
        if that is given (0: not at all); then Busy. An empty 200 after a document says that nothing
        is new: the last document is returned. Other EndpointErrors come at once.
        """

        def once(bell: Bell) -> Document:
            document = self._read(bell, {}, self._read_s())
            if document is None:
                document = self._known
            if document is None:
                raise Busy("The endpoint has answered with nothing so far.", status=200)
            return document

        return self._patiently(once, within_s)

    def approve(self, *event_ids: str, within_s: float | None = None) -> None:
        """Says go ahead for these events: what they announce may happen at once (A1, A2).

        Approving twice does no harm (A4). Retried as `document` is. Refused if the endpoint does
        not know one of the ids; then none of them is approved.
        """
        if not event_ids:
            return
        wanted = {"StartRequests": [{"EventId": event_id} for event_id in event_ids]}
        body = json.dumps(wanted, separators=(",", ":")).encode()

        def once(bell: Bell) -> None:
            answer, _ = self._exchange(bell, "POST", {}, body, self._read_s())
            if not 200 <= answer.status < 300:
                raise problem(answer)

        self._patiently(once, within_s)

    def watch(
        self, stop: Stop | None = None, *, on_trouble: Trouble | None = None
    ) -> Iterator[Change]:
        """Every change from now on, beginning with the events that are there already.

        Ends when `stop` is set or the client is closed, from any thread. See `documents` for what
        becomes of trouble.
        """
        before: Document | None = None
        for document in self.documents(stop, on_trouble=on_trouble):
            yield from changes(before, document)
            before = document

    def documents(
        self, stop: Stop | None = None, *, on_trouble: Trouble | None = None
    ) -> Iterator[Document]:
        """Every new document from now on, the first at once. For one thread at a time.

        Waits at the endpoint where that can hold a request, and polls each second elsewhere. Ends
        promptly when `stop` is set or the client is closed. The same document never comes twice in
        a row; a document that was there for a moment only may be missed.

        Trouble does not end it: each failed request is given to `on_trouble` (410 only after 70 s)
        and tried again. Without `on_trouble` it is logged once for each outage, and NotFound,
        Refused and BadAnswer are raised while there was no document yet: the address is wrong.
        """
        return Following(self, on_trouble).documents(*([stop] if stop else []), self._closed)

    def me(self) -> str:
        """This VM's name as events name it: what the endpoint says (I5), else what `vm` says.

        EndpointError if neither knows.
        """
        if self._name:
            return self._name
        target = f"{NAME_PATH}?api-version={INSTANCE_VERSION}"

        def once(bell: Bell) -> str:
            answer = self._ask(bell, Request(target), self._read_s())
            if answer.status != 200:
                raise problem(answer)
            return vm_name(answer.body)

        try:
            self._name = self._patiently(once, None if not self._vm else self._timeout_s)
        except EndpointError:
            if not self._vm:
                raise
        if not self._name and not self._vm:
            raise BadAnswer(
                "The endpoint does not say what this VM is called.",
                "Give the name as `vm`; it is the one in Resources, not the host name.",
            )
        return self._name or self._vm

    def close(self) -> None:
        """Ends what is under way in other threads and drops the connections; not to be undone."""
        self._closed.set()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What follows is for `following`, beside this class.

    def poll(self, bell: Bell, tag: str) -> Document | None:
        """One poll: the document, or None if there is nothing new. Waits if there is a tag."""
        if not tag:
            return self._read(bell, {}, self._read_s())
        headers = {"If-None-Match": tag}  # as it came: unquoted on the real service (G4)
        if self.wait_s:
            headers["Prefer"] = f"wait={self.wait_s}"
        return self._read(bell, headers, self.wait_s + WAIT_SLACK_S)

    def look_again(self) -> None:
        """Forgets where the endpoint is, unless the user gave the address."""
        with self._looking:
            if self._found is not None and not self._found.told:
                self._found = None

    def _read(self, bell: Bell, headers: Mapping[str, str], read_s: float) -> Document | None:
        answer, version = self._exchange(bell, "GET", headers, b"", read_s)
        if answer.status == 304 and headers:
            return None
        if answer.status != 200:
            raise problem(answer)
        document = read_document(
            answer.body, api_version=version, received_s=answer.received_s, headers=answer.headers
        )
        self._known = document or self._known
        return document

    def _exchange(
        self, bell: Bell, method: str, headers: Mapping[str, str], body: bytes, read_s: float
    ) -> tuple[Answer, str]:
        """An answer and the version it is in, which may be another than was asked for at first."""
        tried: set[str] = set()
        while True:
            version = self._version
            tried.add(version)
            target = f"{EVENTS_PATH}?api-version={version}"
            answer = self._ask(bell, Request(target, method, headers, body), read_s)
            if answer.status in (200, 304):
                self._answered = True
            other = _other_version(answer, tried)
            if not other:
                return answer, version
            log.warning("the endpoint does not know version %s; %s is used", version, other)
            self._version = other

    def _where(self, bell: Bell) -> str:
        with self._looking:
            if self._found is None:
                found = discover(
                    self._told, environment=self._environment, cache=self._cache, bell=bell
                )
                url = found.url  # raises NotFound if it found none; the next call looks again
                self._found = found
                return url
            return self._found.url

    def _ask(self, bell: Bell, request: Request, read_s: float) -> Answer:
        with self._connection(bell) as connection:
            return connection.ask(request, read_s=read_s, bell=bell)

    @contextmanager
    def _connection(self, bell: Bell) -> Iterator[Connection]:
        """A connection of one's own, kept for the next one to come."""
        if self._closed.is_set():
            raise Unreachable("The client is closed.")
        address = Address.of(self._where(bell))
        with self._lock:
            fitting = [one for one in self._idle if one.address == address]
            connection = fitting[-1] if fitting else None
            if connection is not None:
                self._idle.remove(connection)
        if connection is None:
            connection = Connection(address, connect_s=self._connect_timeout_s)
        try:
            yield connection
        finally:
            with self._lock:
                kept = not self._closed.is_set() and len(self._idle) < IDLE_CONNECTIONS_MAX
                if kept:
                    self._idle.append(connection)
            if not kept:
                connection.close()

    def _read_s(self) -> float:
        return self._timeout_s if self._answered else self._first_timeout_s

    def _patiently(self, once: Callable[[Bell], _T], within_s: float | None) -> _T:
        """The outcome of one request, tried again while the endpoint is busy."""
        began, attempt = time.monotonic(), 0
        with bell_of(self._closed) as bell:
            while True:
                attempt += 1
                try:
                    return once(bell)
                except Stopped:
                    raise Unreachable("The client was closed.") from None
                except Busy as busy:
                    patience_s = patience_with(busy) if within_s is None else within_s
                    delay_s = delay_after(busy, attempt)
                    if time.monotonic() - began + delay_s > patience_s:
                        raise
                if bell.wait(delay_s):
                    raise Unreachable("The client was closed.")


def problem(answer: Answer) -> EndpointError:
    """What an answer that is not the one hoped for means."""
    status, said = answer.status, error_text(answer.body)
    text = f"The endpoint answered {status}" + (f": {said}" if said else "") + "."
    if status in (408, 410, 429) or status >= 500:
        return Busy(text, status=status, retry_after_s=_retry_after_s(answer.headers))
    if 300 <= status < 400:
        return Refused(text, "Redirects are not followed; give its own address.", status=status)
    if status < 300:
        return BadAnswer(text, "That is no answer to what was asked.")
    return Refused(text, status=status)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds, or a time that is compared with the endpoint's own; None if there is neither."""
    after = headers.get("retry-after", "").strip()
    if after.isascii() and after.isdigit() and len(after) < 9:
        return float(after)
    then, now = read_time(after), read_time(headers.get("date", ""))
    return (then - now).total_seconds() if then and now else None


def _other_version(answer: Answer, tried: set[str]) -> str:
    """The newest version that a refusal names and we know, or empty (Q8, E3)."""
    if answer.status not in (400, 404):
        return ""
    named = newest_versions(answer.body)
    return next((v for v in API_VERSIONS if v in named and v not in tried), "")
