"""Operators on other machines: the whole program with TLS and with tokens of an issuer.

Every command runs as a process, and the command line reaches it by its URL.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.certificates import TestAuthority, serial_of, shown_serial
from support.oidc_issuer import issuing
from support.system_world import EXIT_LIMIT_S, FOREWARN, START_LIMIT_S
from support.waiting import wait_until

PORTS = {
    "serve": ("--guest", "127.0.0.1:0", "--operator", "127.0.0.1:0"),
    "control": ("--hosts", "127.0.0.1:0", "--operator", "127.0.0.1:0"),
    "simulate": ("--guest", "127.0.0.1:0", "--operator", "127.0.0.1:0"),
}


class Program:
    """A command of the program that runs, and a person elsewhere who knows its URL."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.where: Any = wait_until(self._said, "it starts", limit_s=START_LIMIT_S)

    def _said(self) -> Any:
        out = (self.folder / "out").read_text(encoding="utf-8")
        if self.process.poll() is not None:
            pytest.fail(f"it ended: {out}{self.err()}")
        return json.loads(out) if out.endswith("\n") else None

    def err(self) -> str:
        return (self.folder / "err").read_text(encoding="utf-8")

    @property
    def url(self) -> str:
        return str(self.where["operator_url"])

    def cli(
        self, *arguments: str, token: str = "", trusted: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        mine = Path(self.where["operator_token_file"]).read_text(encoding="utf-8").strip()
        environment = {"FOREWARN_URL": self.url, "FOREWARN_TOKEN": token or mine}
        if trusted is not None:
            environment["FOREWARN_CA_FILE"] = str(trusted)
        return command(self.folder, *arguments, environment=environment)

    def serial(self, trusted: ssl.SSLContext) -> int:
        """Which certificate it shows now."""
        parts = urlsplit(self.url)
        address = (parts.hostname or "", parts.port or 0)
        with (
            socket.create_connection(address, timeout=EXIT_LIMIT_S) as plain,
            trusted.wrap_socket(plain, server_hostname=address[0]) as secure,
        ):
            return shown_serial(secure)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(EXIT_LIMIT_S)


def command(
    folder: Path, *arguments: str, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    home = folder / "elsewhere"
    home.mkdir(exist_ok=True)
    plain = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "COLUMNS": "200"}
    return subprocess.run(
        [str(FOREWARN), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=EXIT_LIMIT_S,
        stdin=subprocess.DEVNULL,
        env={**plain, **environment},
    )


@contextmanager
def running(kind: str, folder: Path, settings: str) -> Iterator[Program]:
    folder.mkdir(exist_ok=True)
    (folder / "settings.toml").write_text(settings, encoding="utf-8")
    asked = [str(FOREWARN), kind, "--data", str(folder / "data"), "--json", *PORTS[kind]]
    asked += ["--settings", str(folder / "settings.toml")]
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            asked,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder)},
            start_new_session=True,
        )
    try:
        yield Program(process, folder)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(EXIT_LIMIT_S)


@pytest.mark.parametrize("kind", PORTS)
def test_the_command_line_reaches_it_over_tls_with_a_copy_of_its_authority(
    tmp_path: Path, kind: str
) -> None:
    with running(kind, tmp_path / "it", 'operator_tls = "own"\n') as program:
        assert program.url.startswith("https://127.0.0.1:")
        url_file = tmp_path / "it" / "data" / "operator.url"
        assert url_file.read_text() == f"{program.url}\n"
        authority = Path(program.where["operator_authority_file"])
        copy = tmp_path / "copy.crt"
        copy.write_bytes(authority.read_bytes())

        assert program.cli("vm", "list", trusted=copy).returncode == 0
        stranger = program.cli("vm", "list")
        assert stranger.returncode == 3
        assert "not by an authority of this system" in stranger.stderr
        plain = command(
            program.folder,
            *("vm", "list"),
            environment={
                "FOREWARN_URL": program.url.replace("https:", "http:"),
                "FOREWARN_TOKEN": "a-token-of-20-characters",
            },
        )
        assert plain.returncode == 1
        assert "This port speaks HTTPS" in plain.stderr
        assert program.stop() == 0
    assert not url_file.exists()
    with running(kind, tmp_path / "it", 'operator_tls = "own"\n') as program:
        assert program.cli("vm", "list", trusted=copy).returncode == 0  # the authority stays


@pytest.mark.parametrize("kind", ["serve", "control"])
def test_a_new_certificate_is_used_by_itself_and_at_once_at_sighup(
    tmp_path: Path, kind: str
) -> None:
    authority = TestAuthority(tmp_path / "pki")
    files = authority.pair("127.0.0.1")
    settings = f'operator_certificate = "{files[0]}"\noperator_key = "{files[1]}"\n'
    with running(kind, tmp_path / "it", settings) as program:
        assert "operator_authority_file" not in program.where
        for told in (False, True):
            authority.pair("127.0.0.1")
            wanted = serial_of(files[0].read_bytes())
            if told:
                program.process.send_signal(signal.SIGHUP)

            def shown(wanted: int = wanted) -> bool:
                return program.serial(authority.trusting()) == wanted

            wait_until(shown, "the new certificate is shown")
        files[1].write_bytes(b"no key")
        program.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "operator_certificate_refused" in program.err(), "it is logged")
        assert program.cli("vm", "list", trusted=authority.file).returncode == 0
        assert program.stop() == 0


def test_a_reload_of_a_control_without_tls_is_harmless(tmp_path: Path) -> None:
    with running("control", tmp_path / "it", "") as program:
        program.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "told_to_look_again" in program.err(), "it has heard it")
        assert program.cli("vm", "list").returncode == 0


def test_a_certificate_that_cannot_be_used_stops_the_start_for_good(tmp_path: Path) -> None:
    files = TestAuthority(tmp_path / "pki").pair()
    files[1].write_bytes(b"no key")
    settings = f'operator_certificate = "{files[0]}"\noperator_key = "{files[1]}"\n'
    (tmp_path / "s.toml").write_text(settings)
    for kind, status in (("serve", 78), ("control", 78), ("simulate", 1)):
        asked = (kind, "--data", str(tmp_path / kind), "--settings", str(tmp_path / "s.toml"))
        ran = command(tmp_path, *asked, *PORTS[kind], environment={})
        assert ran.returncode == status, ran
        assert f"{files[0]} with the key {files[1]} cannot be used" in ran.stderr


@pytest.mark.parametrize("kind", PORTS)
def test_the_command_line_comes_in_with_the_token_of_an_issuer(tmp_path: Path, kind: str) -> None:
    with issuing() as issuer:
        settings = (
            'operator_tls = "own"\n'
            f'[[oidc]]\nissuer = "{issuer.url}"\naudience = "forewarn"\nrole_claim = "groups"\n'
            'roles = { "ops" = "operator", "all" = "viewer" }\n'
        )
        with running(kind, tmp_path / "it", settings) as program:
            trusted = Path(program.where["operator_authority_file"])
            now_s = int(datetime.now(UTC).timestamp())
            viewer = issuer.token(now_s, groups=["all"])
            assert program.cli("vm", "list", token=viewer, trusted=trusted).returncode == 0
            order = ("host", "close", "nothing")
            refused = program.cli(*order, token=viewer, trusted=trusted)
            assert refused.returncode == 1
            assert "operate" in refused.stderr
            operator = issuer.token(now_s, groups=["ops"])
            found = program.cli(*order, token=operator, trusted=trusted)
            assert "There is no host nothing" in found.stderr
            old = issuer.token(now_s - 7_200, groups=["ops"])
            expired = program.cli("vm", "list", token=old, trusted=trusted)
            assert "The token has expired." in expired.stderr


def test_without_the_library_for_tokens_of_issuers_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        '[[oidc]]\nissuer = "https://login.example.com"\n'
        'audience = "x"\nroles = { "a" = "admin" }\n'
    )
    code = (
        "import sys; sys.modules['jwt'] = None\n"
        "from forewarn.cli.main import main\n"
        f"main(['serve', '--data', {str(tmp_path / 'd')!r}, '--settings',"
        f" {str(tmp_path / 's.toml')!r}, '--guest', '127.0.0.1:0', '--operator', '127.0.0.1:0'])\n"
    )
    python = FOREWARN.with_name("python")
    ran = subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, check=False, timeout=EXIT_LIMIT_S
    )
    assert ran.returncode == 78, ran
    assert "pip install 'forewarn[oidc]'" in ran.stderr
