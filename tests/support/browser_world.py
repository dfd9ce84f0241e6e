"""A real browser, and the web as it sees it: every name leads to one site, which is hostile.

The site serves a page of attacks. What the browser then asks for below /metadata it passes on to
the endpoint of a VM as it came, so that whichever name the page used, it has led to the endpoint.
That is DNS rebinding for the site's own name, and the plain address for an address.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from programs import needs, program

needs_chromium = needs("chromium")

# Only ends a hang: a browser that starts on a busy machine takes its time.
PATIENCE_S = 120.0
SITE = "site.example"

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
)

# Each way in which a page can ask somebody else; its key stands in the query of what it asks.
WAYS: Mapping[str, str] = {
    "fetch": "fetch(url, {mode: 'no-cors'})",
    "fetch-quietly": "fetch(url, {mode: 'no-cors', referrerPolicy: 'no-referrer'})",
    "fetch-as-documented": "fetch(url, {headers: {Metadata: 'true'}})",
    "image": "add('img', {src: url})",
    "script": "add('script', {src: url})",
    "frame": "add('iframe', {src: url})",
    "post": "fetch(url, {method: 'POST', mode: 'no-cors', body})",
    "post-quietly": "fetch(url, {method: 'POST', mode: 'no-cors', body,"
    " referrerPolicy: 'no-referrer'})",
    "post-as-documented": "fetch(url, {method: 'POST', headers: {Metadata: 'true'}, body})",
    "beacon": "navigator.sendBeacon(url, body)",
    "form": "form(url, '')",
    "form-of-nobody": "form(url, 'allow-forms allow-scripts')",
}

_PAGE = """<!doctype html><body><script>
const body = %(body)s;
function add(kind, what, into = document.body) {
  return into.appendChild(Object.assign(document.createElement(kind), what));
}
function form(url, sandbox) {
  // The body of a form in plain text is name=value: the JSON is cut where an = does no harm.
  const [name, value] = [body.slice(0, -1) + ',"x":"', '"}'];
  const html = `<form method=post enctype=text/plain action="${url}"><input></form>
    <script>document.forms[0][0].name = ${JSON.stringify(name)};
    document.forms[0][0].value = ${JSON.stringify(value)};
    document.forms[0].submit()</scr` + `ipt>`;
  const frame = document.createElement('iframe');
  if (sandbox) frame.sandbox = sandbox;
  frame.srcdoc = html;
  document.body.append(frame);
}
const ways = {%(ways)s};
for (const [way, url] of %(attacks)s)
  try { Promise.resolve(ways[way](url)).catch(() => 0); } catch (_) { /* the next one */ }
</script>"""


@dataclass(frozen=True)
class Asked:
    """What the browser asked of the endpoint, and the status it got."""

    url: str
    method: str
    version: str
    status: int


class Site:
    """The hostile site. `asked` grows with everything that was passed on."""

    def __init__(self, endpoint: tuple[str, int]) -> None:
        self.endpoint = endpoint
        self.asked: list[Asked] = []
        self.page = b""
        self.told = threading.Condition()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.port = self.server.server_port

    def attack(self, paths: Sequence[str], hosts: Sequence[str], event_id: str) -> set[str]:
        """Make the page: every way, at each path (with its query), under each host.

        Returns the URL of each attack.
        """
        attacks = [
            (way, f"http://{host}{path}&way={way}~{host}")
            for path in paths
            for host in hosts
            for way in WAYS
        ]
        approval = json.dumps({"StartRequests": [{"EventId": event_id}]}, separators=(",", ":"))
        page = _PAGE % {
            "body": json.dumps(approval),
            "ways": ",".join(f"'{way}': (url) => {code}" for way, code in WAYS.items()),
            "attacks": json.dumps(attacks),
        }
        self.page = page.encode()
        return {url for _, url in attacks}

    def wait_for(self, attacks: set[str]) -> None:
        """Return once each attack was answered by the endpoint."""
        with self.told:
            assert self.told.wait_for(lambda: not attacks - self._seen(), PATIENCE_S), (
                f"the browser never tried {sorted(attacks - self._seen())}"
            )

    def _seen(self) -> set[str]:
        return {one.url for one in self.asked}

    def note(self, asked: Asked) -> None:
        with self.told:
            self.asked.append(asked)
            self.told.notify_all()


def _handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if not self.path.startswith("/metadata"):
                self.reply(200, "text/html", site.page if self.path == "/" else b"")
                return
            status, kind, content = self.passed_on(body)
            site.note(
                Asked(
                    url=f"http://{self.headers['Host']}{self.path}",
                    method=self.command,
                    version=parse_qs(urlsplit(self.path).query)["api-version"][0],
                    status=status,
                )
            )
            self.reply(status, kind, content)

        def passed_on(self, body: bytes) -> tuple[int, str, bytes]:
            lines = [self.requestline, *(f"{n}: {v}" for n, v in self.headers.items()), "", ""]
            with socket.create_connection(site.endpoint, timeout=PATIENCE_S) as connection:
                connection.sendall("\r\n".join(lines).encode("latin-1") + body)
                response = http.client.HTTPResponse(connection, method=self.command)
                response.begin()
                kind = response.headers.get("Content-Type", "")
                return response.status, kind, response.read()

        def reply(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_OPTIONS = answer  # noqa: N815 - the names of the standard library

    return Handler


@contextmanager
def a_site(vm_url: str) -> Iterator[Site]:
    """A site that leads to the endpoint of this VM."""
    parts = urlsplit(vm_url)
    site = Site((parts.hostname or "", parts.port or 80))
    thread = threading.Thread(target=site.server.serve_forever)
    thread.start()
    try:
        yield site
    finally:
        site.server.shutdown()
        site.server.server_close()
        thread.join(PATIENCE_S)


@contextmanager
def browsing(site: Site, folder: Path) -> Iterator[None]:
    """A browser that has opened the page of the site, and for which every name leads there."""
    rule = f"MAP * 127.0.0.1:{site.port}"
    command = [
        program("chromium"),
        *FLAGS,
        f"--host-resolver-rules={rule}",
        f"--user-data-dir={folder}",
    ]
    browser = subprocess.Popen(
        [*command, f"http://{SITE}/"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(folder)},
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.wait(PATIENCE_S)
