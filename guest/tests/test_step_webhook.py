"""The step `webhook`: what is posted, when it is posted again, and what never leaves the VM."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from programs import program
from steps_world import EVENT, HOSTILE, is_one_line, run, serving, told


class Receiver:
    """A web server that writes down what is posted and answers as it is told."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str]]] = []  # one per request; then 204
        self.posts: list[tuple[str, dict[str, str], bytes]] = []
        self.url = ""


@contextlib.contextmanager
def receiver(context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    here = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            here.posts.append((self.path, dict(self.headers.items()), body))
            code, headers = here.answers.pop(0) if here.answers else (204, {})
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: Any) -> None:
            """Nothing on the terminal of the tests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_arguments: None  # type: ignore[method-assign]
    scheme = "http" if context is None else "https"
    here.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield here
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_event_is_posted_as_json_and_a_2xx_is_done() -> None:
    with receiver() as here:
        options = {"url": f"{here.url}/hook?team=a", "headers": {"X-Team": "a"}}
        code, out, problems = run("webhook", told(options))
    assert (code, problems) == (0, "")
    assert "204" in out
    ((path, headers, body),) = here.posts
    assert path == "/hook?team=a"
    assert headers["Content-Type"] == "application/json"
    assert headers["X-Team"] == "a"
    posted = json.loads(body)
    assert posted["event"] == EVENT
    assert posted["vm"] == "web_0"
    assert posted["part"] == "prepare"
    assert posted["first_named"] is True
    assert posted["seconds_left"] == 20.0
    assert posted["text"].startswith("Reboot of web_0 web_1")


@pytest.mark.parametrize("code", [429, 500, 503])
def test_what_may_pass_is_tried_again_and_can_be_told_as_the_same(code: int) -> None:
    with receiver() as here:
        here.answers = [(code, {}), (code, {})]
        assert run("webhook", told({"url": here.url}))[0] == 0
    assert len(here.posts) == 3
    assert len({headers["Idempotency-Key"] for _path, headers, _body in here.posts}) == 1


def test_two_steps_of_one_event_can_be_told_apart() -> None:
    with receiver() as here:
        for name in ("first", "second"):
            assert run("webhook", told({"url": here.url}), FOREWARN_STEP=name)[0] == 0
        assert (
            run("webhook", told({"url": here.url}, part="recover"), FOREWARN_STEP="first")[0] == 0
        )
    assert len({headers["Idempotency-Key"] for _path, headers, _body in here.posts}) == 3


def test_a_2xx_is_done_even_if_the_rest_of_the_answer_never_comes() -> None:
    answers = []

    def accept(channel: socket.socket) -> None:
        answers.append(channel.recv(65536))
        channel.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")

    with serving(accept) as (host, port):
        assert run("webhook", told({"url": f"http://{host}:{port}/"}))[0] == 0
    assert len(answers) == 1


def test_the_other_side_says_how_long_to_wait() -> None:
    with receiver() as here:
        here.answers = [(503, {"Retry-After": "2"})]
        began = time.monotonic()
        assert run("webhook", told({"url": here.url}))[0] == 0
    assert time.monotonic() - began >= 2


@pytest.mark.parametrize("code", [400, 401, 404, 301, 302, 307])
def test_what_time_will_not_mend_fails_at_once_and_no_redirect_is_followed(code: int) -> None:
    with receiver() as here:
        here.answers = [(code, {"Location": f"{here.url}/elsewhere"})]
        failed, _out, problems = run("webhook", told({"url": here.url}))
    assert failed == 1
    assert len(here.posts) == 1
    assert is_one_line(problems)
    assert str(code) in problems


def test_a_server_that_is_away_fails_the_step_in_time() -> None:
    with receiver() as here:
        gone = here.url
    code, _out, problems = run("webhook", told({"url": gone, "limit": 2}, seconds_left=300))
    assert code == 1
    assert is_one_line(problems)
    assert "could not be asked" in problems


def test_proxies_of_the_environment_are_not_used() -> None:
    with receiver() as here, receiver() as proxy:
        names = ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY")
        code, _out, _problems = run(
            "webhook", told({"url": here.url}), **dict.fromkeys(names, proxy.url)
        )
    assert code == 0
    assert len(here.posts) == 1
    assert proxy.posts == []


def test_the_secret_comes_from_its_file_and_is_never_shown(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("Bearer s3cr3t\n")
    with receiver() as here:
        options = {"url": f"{here.url}/p4th", "secret_file": str(secret)}
        assert run("webhook", told(options))[0] == 0
        here.answers = [(401, {})]
        code, out, problems = run("webhook", told({**options, "secret_header": "X-Key"}))
    assert here.posts[0][1]["Authorization"] == "Bearer s3cr3t"
    assert here.posts[1][1]["X-Key"] == "Bearer s3cr3t"
    assert code == 1
    assert "s3cr3t" not in out + problems
    assert "p4th" not in out + problems  # the path of a webhook is often its secret


@pytest.mark.parametrize("content", [None, b"", b"a\r\nX-Evil: b", b"\xff", b"x" * 20_000])
def test_a_file_that_is_no_secret_fails_before_anything_is_sent(
    tmp_path: Path, content: bytes | None
) -> None:
    secret = tmp_path / "secret"
    if content is not None:
        secret.write_bytes(content)
    with receiver() as here:
        options = {"url": here.url, "secret_file": str(secret)}
        code, _out, problems = run("webhook", told(options))
    assert code == 1
    assert here.posts == []
    assert is_one_line(problems)
    assert str(secret) in problems


def test_a_hostile_event_is_data_and_nothing_else() -> None:
    event = {**EVENT, "EventId": HOSTILE, "Description": HOSTILE, "Resources": [HOSTILE]}
    with receiver() as here:
        assert run("webhook", told({"url": here.url}, event=event, vm=HOSTILE))[0] == 0
    ((_path, headers, body),) = here.posts
    assert json.loads(body)["event"] == event
    assert "Bcc" not in headers


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 that signs itself, with its key in one file."""
    openssl = program("openssl")
    path = tmp_path / "both.pem"
    request = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
    extension = ["-addext", "subjectAltName=IP:127.0.0.1"]
    where = ["-keyout", str(path), "-out", str(tmp_path / "cert.pem")]
    subprocess.run(
        [openssl, *request.split(), *extension, *where], check=True, capture_output=True, timeout=60
    )
    with path.open("a") as both:
        both.write((tmp_path / "cert.pem").read_text())
    return path


def test_https_trusts_whom_the_system_or_a_file_names_and_nobody_else(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with receiver(context) as here:
        trusted = {"url": here.url, "ca_file": str(certificate.parent / "cert.pem")}
        assert run("webhook", told(trusted))[0] == 0
        code, _out, problems = run("webhook", told({"url": here.url}))
        assert code == 1
        assert "not trusted" in problems
        assert "ca_file" in problems
        other = here.url.replace("127.0.0.1", "localhost")
        assert run("webhook", told({**trusted, "url": other}))[0] == 1
    assert len(here.posts) == 1
