"""Tokens of a real service: the command line comes in by one, and no file ever has its secret."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from support.system_world import EXIT_LIMIT_S, FOREWARN, Service, running


def by_token(service: Service, token: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line as on another machine: by URL and token, without the socket."""
    host, port = service.operator_where()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(service.folder),
        "FOREWARN_URL": f"http://{host}:{port}",
        "FOREWARN_TOKEN": token,
    }
    return subprocess.run(
        [str(FOREWARN), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=EXIT_LIMIT_S,
        check=False,
    )


def made(service: Service, *options: str) -> str:
    done = service.cli("token", "make", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_command_line_comes_in_by_the_socket_and_by_a_token_as_who_it_is(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as service:
        token = made(service, "olga", "--role", "operator")
        assert token.startswith("fwt_")
        here = json.loads(service.cli("whoami", "--json").stdout)
        assert (here["role"], here["id"]) == ("admin", f"socket:{os.geteuid()}")
        there = json.loads(by_token(service, token, "whoami", "--json").stdout)
        assert (there["role"], there["name"]) == ("operator", "olga")
        assert by_token(service, token, "host", "close", "h3").returncode == 0
        refused = by_token(service, token, "token", "list")
        assert refused.returncode == 1
        assert "no right administer" in refused.stderr
        assert service.cli("token", "revoke", "olga").returncode == 0
        gone = by_token(service, token, "vm", "list")
        assert gone.returncode != 0
        assert "was revoked" in gone.stderr
        assert token.rpartition("_")[2] not in gone.stderr


def test_lists_of_an_owner_say_on_the_command_line_that_they_are_a_part(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        scope = service.look("scopes")["items"][0]["name"]
        token = made(service, "ann", "--role", "owner", "--scope", scope)
        listed = by_token(service, token, "vm", "list")
        assert listed.returncode == 0, listed.stderr
        assert "your scopes" in listed.stdout + listed.stderr


def test_no_file_line_or_backup_ever_has_the_secret_of_a_token(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        tokens = [made(service, "one", "--role", "admin")]
        assert by_token(service, tokens[0], "vm", "list").returncode == 0
        tokens.append(service.cli("token", "rotate", "one").stdout.strip())
        assert by_token(service, tokens[0], "vm", "list").returncode != 0
        path = f"/v1/vms?token={tokens[1]}"
        assert service.ask("GET", path).status == 400
        assert service.cli("backup", str(tmp_path / "saved.db")).returncode == 0
        assert service.cli("token", "revoke", "one").returncode == 0
        assert len(service.journal()) > 3
        service.kill()
        said = f"{service.out()}{service.err()}".encode()
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    assert any(path.name == "forewarn.db" for path in files)
    for token in tokens:
        secret = token.rpartition("_")[2].encode()
        assert len(secret) == 40
        assert secret not in said
        assert [path for path in files if secret in path.read_bytes()] == []
