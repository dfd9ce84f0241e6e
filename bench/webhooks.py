"""What follows the journal from elsewhere: how late a webhook is."""

from __future__ import annotations

import http.client
import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from bench.figures import Figure
from bench.fleets import fleet
from bench.processes import Failed, Forewarn, forewarn

WEBHOOKS = 10
ORDERS = 200
ORDERS_PER_S = 20
LAG_S_MAX = 1.0
ALL_ARRIVED_S = 60.0


class _Inbox:
    """When each line arrived, and when it was written, by the clock of this machine."""

    def __init__(self) -> None:
        self.lags_s: list[float] = []
        self._lock = threading.Lock()
        self.port = 0

    def take(self, body: bytes, now_s: float) -> None:
        line = json.loads(body)
        if line["type"].startswith("io.forewarn.host."):
            with self._lock:
                self.lags_s.append(now_s - datetime.fromisoformat(line["time"]).timestamp())


@contextmanager
def _receiving() -> Iterator[_Inbox]:
    inbox = _Inbox()

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            inbox.take(body, time.time())
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 256  # of five, the sixth connection at once waits for seconds

    with Server(("127.0.0.1", 0), Receiver) as server:
        inbox.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield inbox
        finally:
            server.shutdown()
            thread.join()


def to_webhooks(folder: Path) -> Iterator[Figure]:
    """From the commit of a line to the receivers of some webhooks that are sent all lines."""
    small = fleet(scopes=3, vms_per_scope=3, hosts=3, domains=3)
    settings = {"FOREWARN_WEBHOOK_TARGETS": "127.0.0.0/8"}
    with (
        _receiving() as inbox,
        forewarn(folder / "webhooks", small.inventory(), settings=settings) as service,
    ):
        for number in range(WEBHOOKS):
            url = f"http://127.0.0.1:{inbox.port}/"
            _order(service, "webhooks", {"name": f"w{number}", "url": url})
        host = json.loads(_ask(service, "GET", "hosts"))["items"][0]["name"]
        began_s = time.monotonic()
        for number in range(ORDERS):
            _order(service, f"hosts/{host}/{'open' if number % 2 else 'close'}", {})
            time.sleep(max(0.0, began_s + (number + 1) / ORDERS_PER_S - time.monotonic()))
        give_up_s = time.monotonic() + ALL_ARRIVED_S
        while len(inbox.lags_s) < ORDERS * WEBHOOKS:
            if time.monotonic() > give_up_s:
                raise Failed(f"{len(inbox.lags_s)} of {ORDERS * WEBHOOKS} lines arrived")
            time.sleep(0.05)
    lags_s = sorted(inbox.lags_s)
    middle_s = lags_s[len(lags_s) // 2]
    yield Figure(
        name="Webhook, lag of a line, p99",
        measured=lags_s[int(len(lags_s) * 0.99)],
        unit="s",
        at_most=LAG_S_MAX,
        note=f"{WEBHOOKS} webhooks, {ORDERS_PER_S} lines/s; median {middle_s:.3f} s",
        raw={"lags_s": lags_s},
    )


def _order(service: Forewarn, path: str, body: object) -> None:
    _ask(service, "POST", path, body)


def _ask(service: Forewarn, method: str, path: str, body: object = None) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", service.operator_port, timeout=30)
    try:
        content = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {service.token}"}
        connection.request(method, f"/v1/{path}", body=content, headers=headers)
        answer = connection.getresponse()
        said = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise Failed(f"{method} {path} was answered with {answer.status}: {said[:200]!r}")
    return said
