"""`forewarn host` without a command: the daemon, and what it says when it cannot start."""

from __future__ import annotations

import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from support.cli_runner import forewarn

NOWHERE = "https://127.0.0.1:1"


def test_without_anything_it_says_what_there_is(tmp_path: Path) -> None:
    ran = forewarn("host", environment={"HOME": str(tmp_path)})

    assert ran.code == 2
    assert "--control" in ran.out
    assert "invite" in ran.out


def test_options_of_the_daemon_are_refused_with_a_command(tmp_path: Path) -> None:
    ran = forewarn("host", "--name", "h1", "list", environment={"HOME": str(tmp_path)})

    assert ran.code == 2
    assert "--name is for the daemon, not for `host list`." in ran.err


def test_a_token_that_would_be_valid_for_too_short_or_too_long_is_refused_in_words() -> None:
    for valid in ("1s", "31d"):
        ran = forewarn("host", "invite", "h1", "--valid", valid)
        assert (ran.code, "Accepted: 10s to 30d." in ran.err) == (2, True)


def test_a_host_that_has_not_joined_is_told_how(tmp_path: Path) -> None:
    ran = forewarn("host", "--control", NOWHERE, "--name", "h1", "--data", str(tmp_path))

    assert ran.code == 1
    assert "has not joined a control yet" in ran.err
    assert "forewarn host invite NAME" in ran.err


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_folder_that_others_may_write_to_starts_no_daemon(tmp_path: Path, mode: int) -> None:
    """They could have it follow another control, or accept one that it refuses."""
    tmp_path.chmod(mode)
    ran = forewarn("host", "--control", NOWHERE, "--name", "h1", "--data", str(tmp_path))

    assert ran.code == 78
    assert f"Other users may write to {tmp_path}" in ran.err
    assert f"chmod go-w {tmp_path}" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_control_that_is_not_there_is_said_in_words(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("fw1.secret.fingerprint\n")
    options = ("--control", NOWHERE, "--name", "h1", "--token-file", str(token))
    ran = forewarn("host", *options, "--data", str(tmp_path))

    assert ran.code == 1
    assert f"Control at {NOWHERE} cannot be reached: Connection refused." in ran.err


def test_what_is_no_token_and_no_url_is_said_in_words(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("x")
    options = ("--control", NOWHERE, "--name", "h1", "--token-file", str(token))
    ran = forewarn("host", *options, "--data", str(tmp_path))
    assert (ran.code, "That is not a token to join with." in ran.err) == (78, True)

    ran = forewarn("host", "--control", "ctl.example", "--data", str(tmp_path))
    assert ran.code == 2
    assert "like https://ctl:8256" in ran.err


def test_settings_come_from_the_environment_and_mistakes_stop_the_start(tmp_path: Path) -> None:
    ran = forewarn(
        "host", environment={"HOME": str(tmp_path), "FOREWARN_HOST_LISTEN": "everywhere"}
    )

    assert ran.code == 2
    assert "FOREWARN_HOST_LISTEN" in ran.err


def test_without_the_libraries_of_hosts_it_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['httpcore'] = None\n"
        "from forewarn.cli.main import main\n"
        f"main(['host', '--control', {NOWHERE!r}, '--data', {str(tmp_path)!r}])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert ran.returncode == 1
    assert "pip install 'forewarn[hosts,libvirt]'" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_token_on_the_command_line_is_refused_with_the_ways_that_others_cannot_read(
    tmp_path: Path,
) -> None:
    options = ("--control", NOWHERE, "--name", "h1", "--token", "fw1.secret.fingerprint")
    both = forewarn("host", *options, "--token-file", "-", "--data", str(tmp_path))
    ran = forewarn("host", *options, "--data", str(tmp_path))

    assert both == ran
    assert (ran.code, ran.out) == (2, "")
    assert "can be read by every user of this machine" in ran.err
    assert "--token-file FILE" in ran.err
    assert "--token-file -" in ran.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--token-file", "--token"])
def test_a_token_comes_by_standard_input(
    tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO("fw1.secret.fingerprint\n"))
    options = ("--control", NOWHERE, "--name", "h1", option, "-")
    ran = forewarn("host", *options, "--data", str(tmp_path))

    assert ran.code == 1
    assert f"Control at {NOWHERE} cannot be reached" in ran.err


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    options = ("--control", NOWHERE, "--name", "h1", "--token-file", str(tmp_path / "none"))
    ran = forewarn("host", *options, "--data", str(tmp_path))

    assert (ran.code, ran.out) == (2, "")
    assert f"{tmp_path / 'none'}: No such file" in ran.err
