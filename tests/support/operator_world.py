"""A control plane with an operator API on a loopback port, for the tests of API and command line.

The clock stands still until a test moves it, the store is SQLite in memory or in a folder, and
hosts do what they are told when a test says so. Everything runs on a thread with an event loop.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.adapters.webhook_client import WebhookClient
from forewarn.api.app import create_app
from forewarn.api.doorbell import Doorbell
from forewarn.api.route_table import RouteSpec
from forewarn.api.webhook_routes import WebhookSetup
from forewarn.control import ticker
from forewarn.control.control import Control
from forewarn.control.feed import HEARTBEAT_S, LINES_KEPT_MAX, Feed
from forewarn.control.hosts.liveness import Observed
from forewarn.control.inventory import apply_at_once
from forewarn.control.metrics import ControlMetrics
from forewarn.control.volatile import Volatile
from forewarn.control.webhook_sender import WebhookSender
from forewarn.control.writer import WriterThread
from forewarn.core.model import MINUTE_MS, Outcome, Policy
from forewarn.core.principal import OPERATOR, Principal
from forewarn.core.webhook_targets import targets_of
from forewarn.ports import Change
from forewarn.wire.link import ReadBefore, Turn
from support import fleets, ordered
from support.clock import ManualClock
from support.control import ControlParts
from support.ids import CountedIds
from support.ordered import Given
from support.webhook_world import LOOK_EVERY_S, LOOPBACK, PLACE, no_names

T = TypeVar("T")

TOKEN = "the-operators-token"
CALL_TIMEOUT_S = 60

FLEET = (
    fleets.HOSTS
    + fleets.scope("web")
    + fleets.vm("web-0", address="10.0.0.1")
    + fleets.vm("web-1", update_domain=1, host="h2", address="10.0.0.2")
    + fleets.alone("lonely", address="10.0.0.3")
    + fleets.alone("spotty", host="h3", address="10.0.0.4", priority="spot")
)
HOSTS = ("h1", "h2", "h3")
# They differ also after the world was started again.
_IDS = CountedIds(spread=True)


@dataclass(frozen=True)
class Answer:
    """What the API said."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class OperatorWorld:
    """A running service, as a test sees it."""

    port: int
    clock: ManualClock
    control: Control
    measures: ControlMetrics
    loop: asyncio.AbstractEventLoop
    doorbell: Doorbell
    feed: Feed
    failures: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # As an operator.

    def call(
        self,
        method: str,
        path: str,
        body: bytes | str | Mapping[str, object] | None = None,
        *,
        token: str | None = TOKEN,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        if isinstance(body, Mapping):
            body = json.dumps(body)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=CALL_TIMEOUT_S)
        try:
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        answer = self.call("GET", path)
        assert answer.status == 200, answer.body
        return answer.json

    def order(self, path: str, body: Mapping[str, object] | None = None, key: str = "") -> Any:
        headers = {"Idempotency-Key": key} if key else {}
        answer = self.call("POST", path, body, headers=headers)
        assert answer.status == 200, answer.body
        return answer.json

    # As everybody else.

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(CALL_TIMEOUT_S)

    def submit(self, command: Given[T]) -> T:
        return self.run(self.control.submit(ordered.wanted(command)))

    def polls(self, scope: str, vm: str) -> None:
        """A guest polls for the first time: the scope is enabled."""
        self.submit(ordered.enable(self._host_of(vm), scope, vm))
        self.hosts_beat()

    def reads(self, scope: str, event_id: str, vm: str) -> None:
        ago = ReadBefore(scope=scope, event_id=event_id, vm=vm, age_ms=0)
        self.submit(ordered.keep_traces(self._host_of(vm), Turn(first_reads=(ago,))))

    def approves(self, vm: str, event_id: str) -> None:
        """A guest says go ahead."""
        self.submit(ordered.approve(self._host_of(vm), vm, [event_id]))

    def _host_of(self, vm: str) -> str:
        found = self.control.fleet.vm(vm)
        assert found is not None
        return found.host

    def hosts_beat(self) -> None:
        """Every host is alive and shows every document as it is now."""
        for host in HOSTS:
            self.run(self.control.turns.take(ordered.turn(host)))
            for scope, incarnation in self.submit(_incarnations):
                self.submit(ordered.confirm(host, scope, incarnation))

    def hosts_work(self, outcome: Outcome = Outcome.DONE) -> None:
        """Hosts take what there is to do and report how it ended."""
        for host in HOSTS:
            for action in (one.action for one in self.submit(ordered.claim(host, "boot-1")).work):
                self.submit(
                    ordered.report(
                        host, action.action_id, epoch=action.epoch, outcome=outcome, detail=""
                    )
                )

    def tick(self) -> None:
        for command in self.submit(ticker.survey):
            self.submit(command)

    def pass_minutes(self, minutes: float) -> None:
        """Let time pass, with a heartbeat of every host often enough, then tick."""
        left_ms = round(minutes * MINUTE_MS)
        while left_ms > 0:
            step_ms = min(left_ms, 5_000)  # as hosts do
            left_ms -= step_ms
            self.clock.pass_ms(step_ms)
            self.hosts_beat()
        self.tick()


def _incarnations(tx: Any) -> list[tuple[str, int]]:
    return [(scope.name, scope.incarnation) for scope in tx.scopes.values()]


@contextmanager
def running(
    data_dir: Path | None = None,
    fleet: str = FLEET,
    store: SqliteStore | None = None,
    more: Sequence[RouteSpec] = (),
    *,
    with_control: Callable[[Control], Sequence[RouteSpec]] = lambda _: (),
    volatile: Volatile | None = None,
    by: Principal = OPERATOR,
    lines_kept: int = LINES_KEPT_MAX,
    heartbeat_s: float = HEARTBEAT_S,
) -> Iterator[OperatorWorld]:
    """A service with its operator API, and `more` routes, on a loopback port for this block.

    `with_control` makes routes that need the control plane itself; `volatile` is its writer's.
    `by` has the token. `lines_kept` and `heartbeat_s` are those of its feed.
    """
    if store is None:
        store = SqliteStore.in_memory() if data_dir is None else SqliteStore.in_folder(data_dir)
    ready: list[OperatorWorld] = []
    problems: list[BaseException] = []
    up = threading.Event()
    stop: list[Callable[[], None]] = []

    def work() -> None:
        try:
            known = volatile or Volatile(0)
            every = lambda control: [*more, *with_control(control)]  # noqa: E731
            made = lambda control: Feed(  # noqa: E731
                control, lines_kept=lines_kept, heartbeat_s=heartbeat_s
            )
            asyncio.run(_serve(store, ready, stop, up, every, made=made, volatile=known, by=by))
        except BaseException as error:  # noqa: BLE001 - told to the test, which fails with it
            problems.append(error)
        finally:
            up.set()

    thread = threading.Thread(target=work, name="operator-world")
    thread.start()
    try:
        assert up.wait(CALL_TIMEOUT_S)
        if problems:
            raise problems[0]
        world = ready[0]
        if fleet:
            world.submit(apply_at_once.apply(fleet, by=ordered.operator("test")))
            world.hosts_beat()
        yield world
    finally:
        if ready:
            ready[0].loop.call_soon_threadsafe(stop[0])
        thread.join(CALL_TIMEOUT_S)
        store.close()
    assert not thread.is_alive()
    assert not problems


def _control(
    store: SqliteStore,
    clock: ManualClock,
    measures: ControlMetrics,
    doorbell: Doorbell,
    on_fatal: Callable[[str], None],
    *,
    volatile: Volatile,
) -> tuple[Control, WriterThread]:
    parts = ControlParts(
        store, clock=clock, observed=Observed(clock), policy=Policy(), ids=_IDS, volatile=volatile
    )
    measures.loaded(parts.snapshot.scopes)
    parts.published.on_publish(measures.committed)
    parts.published.on_publish(lambda _: doorbell.ring())
    threads: list[WriterThread] = []

    def kept(changes: Sequence[Change]) -> None:
        threads[0].committed(changes)

    writer = parts.writer(kept)
    publish = parts.published.publish
    threads.append(thread := WriterThread(writer, publish=publish, on_fatal=on_fatal))
    return parts.control(thread), thread


async def _serve(
    store: SqliteStore,
    ready: list[OperatorWorld],
    stop: list[Callable[[], None]],
    up: threading.Event,
    more: Callable[[Control], Sequence[RouteSpec]],
    *,
    made: Callable[[Control], Feed],
    volatile: Volatile,
    by: Principal,
) -> None:
    clock, doorbell, failures = ManualClock(monotonic=0), Doorbell(), list[str]()
    measures = ControlMetrics(version=lambda: "test")
    control, thread = _control(store, clock, measures, doorbell, failures.append, volatile=volatile)
    thread.start()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        routes, feed = more(control), made(control)
        sender = WebhookSender(
            control,
            feed,
            post=WebhookClient(targets_of(LOOPBACK), look_up=no_names).post,
            clock=clock,
            place=PLACE,
            look_every_s=LOOK_EVERY_S,
        )
        sending = asyncio.create_task(sender.run())
        app = create_app(
            control,
            token=TOKEN,
            measures=measures,
            doorbell=doorbell,
            feed=feed,
            more=routes,
            by=by,
            webhooks=WebhookSetup(listed=LOOPBACK, sender=lambda: sender),
        )
        server = _QuietServer(app, up)

        def end() -> None:
            doorbell.close()
            server.should_exit = True

        stop.append(end)
        ready.append(
            OperatorWorld(
                port=listener.getsockname()[1],
                clock=clock,
                control=control,
                measures=measures,
                loop=asyncio.get_running_loop(),
                doorbell=doorbell,
                feed=feed,
                failures=failures,
            )
        )
        await server.serve(sockets=[listener])
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    await thread.stop()


class _QuietServer(uvicorn.Server):
    """A server on a thread of a test: says when it is up; signals are the test runner's."""

    def __init__(self, app: Starlette, up: threading.Event) -> None:
        config = uvicorn.Config(
            app, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=5
        )
        super().__init__(config)
        self._up = up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
