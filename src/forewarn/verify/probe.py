"""The hands of the checks: asking the endpoint, remembering what it said, letting time pass.

A Probe is made for one run and used by one thread. It keeps the pace, and every document that it
read, because many checks judge all of them together at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from forewarn.verify import documents
from forewarn.verify.check import Failed, Skipped
from forewarn.verify.connection import Answer, Broken, Connection, Silent
from forewarn.verify.documents import NEWEST, DocumentRead
from forewarn.verify.observations import Observations
from forewarn.verify.options import EndpointAddress, OperatorFailed, Options

PATH = "/metadata/scheduledevents"
INSTANCE_VERSION = "2021-02-01"  # the one most clients use (I7)

# Enabling may take two minutes (L2): the first answer may take so many time-outs.
FIRST_ANSWER_TIMEOUTS = 12
# Another process on the VM may use up the rate limit for a moment.
THROTTLED_TRIES = 5
THROTTLED_WAIT_S = 1.0
THROTTLED_WAIT_MAX_S = 5.0
# After so many silences in a row the rest of the run would only be more of them.
SILENCES_MAX = 3
# A wait in real time that is longer than this is told as progress.
TOLD_FROM_S = 5
LOOK_EVERY_S = 1
# What does not come soon in real time is looked for less often.
LOOK_OFTEN_FOR_S = 60
LATER_LOOK_EVERY_S = 5
STEP_MAX_S = 60
# A Date that is the same after so much waiting is that of a clock that stands, as an emulator has.
STANDS_FROM_S = 15


class Probe:
    """See the module."""

    def __init__(self, target: EndpointAddress, options: Options) -> None:
        self.target = target
        self.options = options
        self.documents_read: list[DocumentRead] = []
        self.observed = Observations()
        self._next_s = 0.0
        self._silences = 0
        self._vm = options.vm

    # Requests.

    def request(
        self,
        method: str,
        path: str,
        *headers: str,
        metadata: bool = True,
        body: bytes | None = None,
        protocol: str = "HTTP/1.1",
    ) -> bytes:
        """The bytes of a request to a path below the prefix."""
        lines = [f"{method} {self.target.prefix}{path} {protocol}"]
        lines.append(f"Host: {self.target.authority}")
        if metadata:
            lines.append("Metadata: true")
        lines.extend(headers)
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A new connection, for checks that need the bytes; nothing is sent yet."""
        if self._silences >= SILENCES_MAX:
            raise Skipped("the endpoint has stopped answering")
        try:
            with Connection(
                self.target.host, self.target.port, self.options.timeout_s
            ) as connection:
                yield connection
        except Silent:
            self._silences += 1
            raise
        self._silences = 0

    def turn(self) -> None:
        """Wait until the pace allows one more request."""
        if self.options.pace_per_s <= 0:
            return
        now_s = time.monotonic()
        if self._next_s > now_s:
            time.sleep(self._next_s - now_s)
        self._next_s = max(now_s, self._next_s) + 1 / self.options.pace_per_s

    def ask(
        self, request: bytes, *, to_head: bool = False, within_s: float | None = None
    ) -> Answer:
        """The answer to one request on a connection of its own; 429 is waited out."""
        for _ in range(THROTTLED_TRIES):
            self.turn()
            with self.connection() as connection:
                connection.send(request)
                answer = connection.answer(to_head=to_head, within_s=within_s)
            if answer.status != 429:
                break
            self.rest(answer)
        return answer

    def rest(self, answer: Answer) -> None:
        """Wait as long as a 429 asks for, within reason."""
        text = answer.header("Retry-After") or ""
        asked_s = float(text) if text.isascii() and text.isdigit() else THROTTLED_WAIT_S
        time.sleep(min(asked_s, THROTTLED_WAIT_MAX_S))

    def get(self, path: str, *headers: str, metadata: bool = True) -> Answer:
        return self.ask(self.request("GET", path, *headers, metadata=metadata))

    def poll(self, *headers: str, version: str = NEWEST, metadata: bool = True) -> Answer:
        """A GET of the document."""
        return self.get(path_of(version), *headers, metadata=metadata)

    def post(
        self, body: bytes | None, *headers: str, version: str = NEWEST, metadata: bool = True
    ) -> Answer:
        """A POST to the document's path."""
        return self.ask(
            self.request("POST", path_of(version), *headers, metadata=metadata, body=body)
        )

    def first_answer(self) -> Answer:
        """A GET that may take as long as enabling does (L2)."""
        within_s = self.options.timeout_s * FIRST_ANSWER_TIMEOUTS
        return self.ask(self.request("GET", path_of(NEWEST)), within_s=within_s)

    # Documents.

    def document(self, version: str = NEWEST) -> DocumentRead:
        """The document as it is now. Raises Failed if there is no document."""
        return self.note(self.poll(version=version), version)

    def note(self, answer: Answer, version: str = NEWEST) -> DocumentRead:
        """Remember the document that came with an answer."""
        document = documents.read(answer, version)
        self.documents_read.append(document)
        return document

    def every_version(self) -> dict[str, DocumentRead]:
        """The document at each api-version that gives one; checks of its own judge the others.

        Where the newest has the same events before and after, they are kept as one moment.
        """
        found: dict[str, DocumentRead] = {}
        for version in (NEWEST, *documents.VERSIONS):
            before = found.get(NEWEST)
            try:
                found[version] = self.document(version)
            except (Failed, Broken):
                continue
        if before is not None and before.events == found[NEWEST].events:
            self.observed.moments.append(found)
        return found

    # The operator, and time.

    @property
    def vm(self) -> str:
        """The name of the VM that asks, as given or as it says itself (I7)."""
        if self._vm is None:
            content = self.get(f"/metadata/instance?api-version={INSTANCE_VERSION}").json
            compute = content.get("compute") if isinstance(content, dict) else None
            name = compute.get("name") if isinstance(compute, dict) else None
            if not isinstance(name, str) or not name:
                raise Skipped("the VM's name is not known: /metadata/instance has none; give --vm")
            self._vm = name
        return self._vm

    def schedule(self, event_type: str) -> None:
        """Have the operator schedule an event for the VM."""
        if self.options.operator is None:
            raise Skipped("it has events scheduled; give --operator")
        if event_type not in self.options.types:
            raise Skipped(f"the operator's command schedules no {event_type}; see --types")
        try:
            self.options.operator(event_type, self.vm)
        except OperatorFailed as why:
            raise Failed(str(why), f"the operator's command schedules a {event_type}") from None

    def cancel(self, event_id: str) -> None:
        """Have the operator cancel an event."""
        if self.options.cancel is None:
            raise Skipped("it has an event canceled; give --cancel")
        try:
            self.options.cancel(event_id)
        except OperatorFailed as why:
            raise Failed(str(why), f"the operator's command cancels {event_id}") from None

    def pass_time(self, seconds: float, what_for: str) -> None:
        """Let so much of the endpoint's time pass: turned if it can be, waited for if not."""
        if seconds <= 0:
            return
        if self.options.advance is None:
            if seconds >= TOLD_FROM_S:
                self.options.progress(f"waiting {_duration(round(seconds))} {what_for}")
            self.options.wait(seconds)
            return
        try:
            self.options.advance(int(seconds))
        except OperatorFailed as why:
            raise Failed(str(why), f"the clock is turned by {seconds} s") from None

    def until(
        self,
        condition: Callable[[DocumentRead], bool],
        *,
        within_s: int,
        what_for: str,
        coarse: bool = False,
        before_s: int | None = None,
    ) -> DocumentRead | None:
        """The first document that meets the condition; None if none does within so much time.

        Time is what the endpoint's Date says, or what has been waited or turned if that is more.
        A document whose Date is `before_s` or later comes too late, whatever it says. With
        `coarse` a clock that can be turned is turned in big steps from the beginning. Skipped if
        the endpoint's clock stands and cannot be turned: then nothing comes by waiting.
        """
        turned = self.turned
        if not turned and within_s >= TOLD_FROM_S:
            self.options.progress(f"waiting up to {_duration(within_s)} {what_for}")
        began_s, first_s = time.monotonic(), None
        past_s, step_s = 0.0, float(STEP_MAX_S if coarse and turned else LOOK_EVERY_S)
        while True:
            document = self.document()
            now_s = document.now_s
            if before_s is not None and now_s is not None and now_s >= before_s:
                return None
            if condition(document):
                return document
            if now_s is not None:
                first_s = now_s if first_s is None else first_s
                if now_s == first_s and not turned and past_s >= STANDS_FROM_S:
                    raise Skipped("the clock of the endpoint stands still; give --advance")
                past_s = max(past_s, now_s - first_s)
            left_s = within_s - max(past_s, 0 if turned else time.monotonic() - began_s)
            if left_s <= 0:
                return None
            step_s = min(step_s, max(left_s, LOOK_EVERY_S))
            self.pass_time(step_s, what_for)
            past_s += step_s
            if turned:  # a turned clock needs few steps
                step_s = min(step_s * 2, STEP_MAX_S)
            elif past_s >= LOOK_OFTEN_FOR_S:
                step_s = LATER_LOOK_EVERY_S

    @property
    def turned(self) -> bool:
        """The endpoint's clock can be turned; else its time is waited for."""
        return self.options.advance is not None


def path_of(version: str | None) -> str:
    """The document's path with an api-version, or without one."""
    return PATH if version is None else f"{PATH}?api-version={version}"


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    if not minutes:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"
