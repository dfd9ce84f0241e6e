"""The command line over TLS: whom it trusts, and what it says of those it does not."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forewarn.cli.client import EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_USAGE
from support.certificates import TestAuthority
from support.cli_runner import Ran, forewarn
from support.operator_world import OperatorWorld, running

TOKEN = "a-token-of-20-characters"
POLL_S = 0.01


class Service:
    """A service behind TLS that notes which tokens were sent."""

    def __init__(self, authority: TestAuthority) -> None:
        self.authority = authority
        self.tokens: list[str] = []
        self.port = 0

    def asked(self, *, host: str = "127.0.0.1", **environment: str) -> Ran:
        url = environment.pop("FOREWARN_URL", f"https://{host}:{self.port}")
        return forewarn(
            "vm",
            "list",
            "--json",
            environment={"FOREWARN_URL": url, "FOREWARN_TOKEN": TOKEN, **environment},
        )


@contextmanager
def serving(authority: TestAuthority, *names: str, days: int = 90) -> Iterator[Service]:
    service = Service(authority)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            service.tokens.append(self.headers["Authorization"])
            body = b'{"items": [], "more": false}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing on standard error."""

    class Quiet(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Those who do not trust it hang up."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.pair(*names, days=days))
    with Quiet(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        service.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(POLL_S,))
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join(60)


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path / "pki")


@pytest.fixture(scope="module")
def plain() -> Iterator[OperatorWorld]:
    with running() as world:
        yield world


def test_it_asks_a_service_whose_authority_it_was_given(authority: TestAuthority) -> None:
    with serving(authority, "127.0.0.1") as service:
        ran = service.asked(FOREWARN_CA_FILE=str(authority.file))

        assert (ran.code, ran.err) == (0, "")
        assert service.tokens == [f"Bearer {TOKEN}"]


def test_it_trusts_the_authorities_of_the_system(
    authority: TestAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(authority, "127.0.0.1") as service:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))  # as OpenSSL finds them
        assert service.asked().code == 0


def test_a_service_that_it_cannot_trust_is_not_sent_the_token(
    authority: TestAuthority, tmp_path: Path
) -> None:
    other = TestAuthority(tmp_path / "other", "another authority")
    with serving(authority, "127.0.0.1") as service:
        by_system = service.asked()
        by_file = service.asked(FOREWARN_CA_FILE=str(other.file))

        assert by_system.code == by_file.code == EXIT_UNREACHABLE
        assert "its certificate is not by an authority of this system" in by_system.err
        assert "operator-tls/authority.crt" in " ".join(by_system.err.split())
        assert "not by the one in FOREWARN_CA_FILE" in " ".join(by_file.err.split())
        assert service.tokens == []


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_certificate_for_another_name_is_said_to_be_so(
    authority: TestAuthority, host: str
) -> None:
    with serving(authority, "ctl.example", "192.0.2.1") as service:
        ran = service.asked(host=host, FOREWARN_CA_FILE=str(authority.file))

        assert ran.code == EXIT_UNREACHABLE
        assert "its certificate is for other names" in " ".join(ran.err.split())
        assert service.tokens == []


def test_a_certificate_that_has_expired_is_said_to_have(authority: TestAuthority) -> None:
    with serving(authority, "127.0.0.1", days=-1) as service:
        ran = service.asked(FOREWARN_CA_FILE=str(authority.file))

        assert ran.code == EXIT_UNREACHABLE
        assert "has expired" in ran.err
        assert service.tokens == []


def test_a_port_that_speaks_no_tls_is_said_to_speak_none(plain: OperatorWorld) -> None:
    environment = {"FOREWARN_URL": f"https://127.0.0.1:{plain.port}", "FOREWARN_TOKEN": TOKEN}
    ran = forewarn("vm", "list", environment=environment)

    assert ran.code == EXIT_UNREACHABLE
    assert "it does not speak TLS" in " ".join(ran.err.split())
    assert "http://" in ran.err


@pytest.mark.parametrize("content", [None, b"", b"null", b"\0"])
def test_a_file_that_is_no_authority_is_named(
    authority: TestAuthority, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "ca"
    if content is not None:
        file.write_bytes(content)
    with serving(authority, "127.0.0.1") as service:
        ran = service.asked(FOREWARN_CA_FILE=str(file))

        assert ran.code == EXIT_USAGE
        assert f"FOREWARN_CA_FILE names {file}" in " ".join(ran.err.split())
        assert service.tokens == []


def test_a_command_on_the_same_machine_needs_no_authority(plain: OperatorWorld) -> None:
    environment = {"FOREWARN_URL": plain.url, "FOREWARN_TOKEN": TOKEN}
    ran = forewarn("vm", "list", environment={**environment, "FOREWARN_CA_FILE": "/nowhere"})

    assert ran.code == EXIT_REFUSED  # it got as far as the token, which is wrong
