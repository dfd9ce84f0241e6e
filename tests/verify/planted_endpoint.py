"""A stand-alone endpoint for scheduled events, written from the contract alone.

`Service` keeps the contract; the bugs in `planted_bugs` are subclasses of it that break one fact
each. It imports nothing of Forewarn, so that what it does and what `verify` asks for are two
readings of one contract.
"""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

Json = dict[str, Any]

PREVIEW = "2017-03-01"
VERSIONS = (
    PREVIEW,
    "2017-08-01",
    "2017-11-01",
    "2019-01-01",
    "2019-04-01",
    "2019-08-01",
    "2020-07-01",
)
NOTICES = {"Freeze": 900, "Reboot": 900, "Redeploy": 600, "Preempt": 30, "Terminate": 300}
TYPE_SINCE = {"Preempt": "2017-11-01", "Terminate": "2019-01-01"}
FIELD_SINCE = {
    "Description": "2019-04-01",
    "EventSource": "2019-08-01",
    "DurationInSeconds": "2020-07-01",
}
INSTANCE_VERSIONS = ("2025-04-07", "2024-07-17", "2024-03-15")  # the newest (I2)
BEGINNING = datetime(2026, 3, 3, 10, 0, 0, tzinfo=UTC)
PATH = "/metadata/scheduledevents"


class Clock:
    """A clock that stands until it is turned, or one that also runs.

    To a client, a clock that runs is one that has moved on at every answer, by `answer_s`.
    """

    def __init__(self, answer_s: float = 0.0) -> None:
        self._answer_s = answer_s
        self._past_s = 0.0

    def now(self) -> datetime:
        return BEGINNING + timedelta(seconds=self._past_s)

    def run(self) -> None:
        self._past_s += self._answer_s

    def turn(self, seconds: float) -> None:
        self._past_s += seconds


@dataclass
class Event:
    """One event of the scope."""

    id: str
    type: str
    resources: list[str]
    not_before: datetime
    scheduled_at: datetime
    source: str = "Platform"
    description: str = "Host server is undergoing maintenance."
    duration: int = 9
    started_for: float = 600
    approved: bool = False
    started_at: datetime | None = None

    @property
    def started(self) -> bool:
        return self.started_at is not None


@dataclass
class Request:
    """One request, as a VM sends it."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]
    body: bytes
    vm: str

    def asked(self, name: str) -> str | None:
        return next((value for key, value in self.query if key == name), None)

    @property
    def version(self) -> str:
        return self.asked("api-version") or ""


@dataclass
class Answer:
    """What goes back to the VM."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    hangs_up: bool = False  # the connection ends after it, without a word


class RefusedError(Exception):
    """A request that the contract refuses."""

    def __init__(self, status: int, text: str, **more: object) -> None:
        super().__init__(text)
        self.status = status
        self.said = {"error": text, **more}


class Service:
    """The endpoint of one scope, by the contract. A bug replaces one of its small methods."""

    first_incarnation = 1

    def __init__(
        self, clock: Clock, vms: tuple[str, ...] = ("web_0", "web_1"), *, started_for: float = 600
    ) -> None:
        self.clock = clock
        self.vms = vms
        self.started_for = started_for
        self.incarnation = self.first_incarnation
        self.events: list[Event] = []
        self.lock = threading.RLock()

    # What the platform does.

    def schedule(
        self,
        event_type: str,
        resources: list[str],
        *,
        notice: float | None = None,
        source: str = "Platform",
        started_for: float | None = None,
    ) -> str:
        with self.lock:
            now = self.clock.now()
            self.settle(now)
            seconds = self.notice(event_type) if notice is None else notice
            whole = (now + timedelta(seconds=seconds + 0.999999)).replace(microsecond=0)
            event = Event(
                id=str(uuid4()).upper(),
                type=event_type,
                resources=resources,
                not_before=whole,
                scheduled_at=now,
                source=source,
                started_for=self.started_for if started_for is None else started_for,
            )
            if source == "User":
                event.description = "Virtual machine is going to be restarted as requested."
                event.duration = -1
            self.events.append(event)
            self.moved("scheduled")
            return event.id

    def fail(self, resources: list[str]) -> str:
        """The host of these VMs has failed: the event is made Started, after the fact (L30)."""
        with self.lock:
            made = self.schedule("Reboot", resources)
            event = next(event for event in self.events if event.id == made)
            event.description = "Virtual machine has encountered a failure."
            event.duration = -1
            event.started_at = self.clock.now()
            return made

    def cancel(self, event_id: str) -> None:
        with self.lock:
            self.settle(self.clock.now())
            for event in [each for each in self.events if each.id.upper() == event_id.upper()]:
                self.removed(event)

    def notice(self, event_type: str) -> float:
        return NOTICES[event_type]

    # How events live.

    def settle(self, now: datetime) -> None:
        """Brings every event to where it is now."""
        for event in list(self.events):
            if not event.started and self.due(event, now):
                event.started_at = min(now, event.not_before)
                self.moved("started")
            if event.started_at is not None and self.over(event, now):
                self.removed(event)

    def due(self, event: Event, now: datetime) -> bool:
        return event.approved or now >= event.not_before

    def over(self, event: Event, now: datetime) -> bool:
        started = event.started_at
        return started is not None and now >= started + timedelta(seconds=event.started_for)

    def removed(self, event: Event) -> None:
        self.events.remove(event)
        self.moved("removed")

    def moved(self, why: str) -> None:
        self.incarnation += 1

    # How it answers.

    def answer(self, request: Request) -> Answer:
        with self.lock:
            self.clock.run()
            now = self.clock.now()
            self.settle(now)
            try:
                answer = self.route(request)
            except RefusedError as refused:
                answer = self.refusal(request, refused)
            answer.headers.setdefault("Date", format_datetime(now, usegmt=True))
            answer.headers.setdefault("Server", "IMDS/150.870.65.1854")
            return answer

    def refusal(self, request: Request, refused: RefusedError) -> Answer:
        return self.json(refused.said, refused.status)

    def json(self, value: object, status: int = 200) -> Answer:
        body = json.dumps(value, separators=(",", ":")).encode()
        return Answer(status, body, {"Content-Type": "application/json; charset=utf-8"})

    def route(self, request: Request) -> Answer:
        path = request.path.lower().rstrip("/")
        self.check_forwarded(request)
        if path == PATH:
            return self.scheduled_events(request)
        if path == "/metadata/versions":
            self.check_header(request)
            return self.json({"apiVersions": [*VERSIONS]})
        if path == "/metadata/instance" or path.startswith("/metadata/instance/"):
            return self.instance(request, path)
        return self.unknown_path(request)

    def unknown_path(self, request: Request) -> Answer:
        raise RefusedError(404, "Not found.")

    def scheduled_events(self, request: Request) -> Answer:
        if request.method not in ("GET", "POST"):
            return self.other_verb(request)
        self.check_header(request)
        self.check_query(request)
        return self.get(request) if request.method == "GET" else self.post(request)

    def other_verb(self, request: Request) -> Answer:
        answer = self.json({"error": "Method not allowed."}, 405)
        answer.headers["Allow"] = "GET, POST"
        return answer

    def check_forwarded(self, request: Request) -> None:
        if "x-forwarded-for" in request.headers:
            raise RefusedError(400, "Bad request. X-Forwarded-For is not allowed")

    def check_header(self, request: Request) -> None:
        if self.has_header(request) or request.version == PREVIEW:
            return
        raise RefusedError(400, "Bad request: . Required metadata header not specified")

    def has_header(self, request: Request) -> bool:
        return request.headers.get("metadata", "").strip().lower() == "true"

    def check_query(self, request: Request) -> None:
        names = [name for name, _ in request.query]
        if len(set(names)) != len(names):
            raise RefusedError(400, "Bad request. A query parameter is repeated")
        self.check_version(request)

    def check_version(self, request: Request) -> None:
        newest = [*reversed(VERSIONS[-3:])]
        if not request.version:
            text = "Bad request. api-version is invalid or was not specified in the request."
            raise RefusedError(400, text, **{"newest-versions": newest})
        if request.version not in VERSIONS:
            text = "Not found. Invalid version requested"
            raise RefusedError(404, text, **{"newest-versions": newest})

    # GET.

    def get(self, request: Request) -> Answer:
        if self.unchanged(request):
            return Answer(304, b"", {"ETag": self.etag()})
        answer = self.json(self.document(request))
        answer.headers["ETag"] = self.etag()
        return answer

    def etag(self) -> str:
        return str(self.incarnation)

    def unchanged(self, request: Request) -> bool:
        return request.headers.get("if-none-match", "").strip('"') == self.etag()

    def document(self, request: Request) -> Json:
        version = request.version
        shown = [self.show(event, version) for event in self.listed(version)]
        return {"DocumentIncarnation": self.incarnation, "Events": shown}

    def listed(self, version: str) -> list[Event]:
        return [event for event in self.events if self.listed_at(event, version)]

    def listed_at(self, event: Event, version: str) -> bool:
        return version >= TYPE_SINCE.get(event.type, PREVIEW)

    def show(self, event: Event, version: str) -> Json:
        """One event in the order of its fields on the wire."""
        whole: Json = {
            "EventId": event.id,
            "EventStatus": "Started" if event.started else "Scheduled",
            "EventType": event.type,
            "ResourceType": "VirtualMachine",
            "Resources": self.names(event, version),
            "NotBefore": self.not_before(event, version),
            "Description": event.description,
            "EventSource": event.source,
            "DurationInSeconds": event.duration,
        }
        return {
            name: value
            for name, value in whole.items()
            if version >= FIELD_SINCE.get(name, PREVIEW)
        }

    def names(self, event: Event, version: str) -> list[str]:
        return ["_" + name if version == PREVIEW else name for name in event.resources]

    def not_before(self, event: Event, version: str) -> str:
        return "" if event.started else format_datetime(event.not_before, usegmt=True)

    # POST.

    def post(self, request: Request) -> Answer:
        ids = self.start_requests(request)
        known = {event.id.upper(): event for event in self.events}
        unknown = [each for each in ids if each.upper() not in known]
        if unknown:
            return self.unknown_ids(request, unknown)
        self.approve(request, [known[each.upper()] for each in ids])
        self.settle(self.clock.now())
        return Answer(200)

    def start_requests(self, request: Request) -> list[str]:
        try:
            said = json.loads(request.body)
            ids = [each["EventId"] for each in said["StartRequests"]]
        except (ValueError, LookupError, TypeError):
            ids = []
        if not ids or not all(isinstance(each, str) for each in ids):
            return self.malformed(request)
        return ids

    def malformed(self, request: Request) -> list[str]:
        raise RefusedError(400, "Bad request. The body holds no StartRequests")

    def unknown_ids(self, request: Request, unknown: list[str]) -> Answer:
        raise RefusedError(400, "Bad request. Unknown EventId")

    def approve(self, request: Request, events: list[Event]) -> None:
        for event in events:
            event.approved = True

    # The neighbouring path by which a VM learns its name.

    def instance(self, request: Request, path: str) -> Answer:
        self.check_header(request)
        if not request.version:
            text = "Bad request. api-version was not specified in the request."
            raise RefusedError(400, text, **{"newest-versions": [*INSTANCE_VERSIONS]})
        if path == "/metadata/instance/compute/name":
            if request.asked("format") != "text":
                raise RefusedError(400, "Bad request")
            return Answer(200, self.name(request).encode(), {"Content-Type": "text/plain"})
        compute = {
            "name": self.name(request),
            "vmId": f"00000000-0000-4000-8000-{self.vms.index(request.vm):012d}",
            "platformUpdateDomain": "0",
            "platformFaultDomain": "0",
            "tags": "",
        }
        if path == "/metadata/instance/compute":
            return self.json(compute)
        if path == "/metadata/instance":
            address = {"privateIpAddress": "10.0.0.4", "publicIpAddress": ""}
            subnet = {"address": "10.0.0.0", "prefix": "24"}
            ipv4 = {"ipAddress": [address], "subnet": [subnet]}
            card = {"ipv4": ipv4, "ipv6": {"ipAddress": []}, "macAddress": "000D3A000001"}
            return self.json({"compute": compute, "network": {"interface": [card]}})
        raise RefusedError(404, "Not found.")

    def name(self, request: Request) -> str:
        return request.vm


class _Handler(BaseHTTPRequestHandler):
    """HTTP/1.1 with keep-alive; `Expect: 100-continue` is answered by the base class."""

    protocol_version = "HTTP/1.1"
    service: Service
    vm: str

    def handle_any(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        request = Request(
            method=self.command,
            path=parts.path,
            query=parse_qsl(parts.query, keep_blank_values=True),
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(length),
            vm=self.vm,
        )
        self.send_whole(self.service.answer(request))

    def send_whole(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        headers = dict(answer.headers)
        body = b"" if self.command == "HEAD" else answer.body
        if answer.status != 304:
            headers.setdefault("Content-Length", str(len(answer.body)))
        if self.close_connection:
            headers["Connection"] = "close"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.close_connection or answer.hangs_up

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        """Says nothing."""

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = handle_any  # noqa: N815


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may leave in the middle of an answer; anything else is told."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def served(service: Service, vm: str | None = None) -> Iterator[str]:
    """The address at which this VM (the first, if none is named) reaches the service."""
    handler = type("Handler", (_Handler,), {"service": service, "vm": vm or service.vms[0]})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
