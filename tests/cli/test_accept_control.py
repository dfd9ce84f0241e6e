"""`forewarn host accept-control`: what it says before, what it leaves, and what it refuses."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from forewarn.adapters import host_credentials, marks_file
from forewarn.adapters.certificate_authority import Authority
from forewarn.core.incarnation_marks import Marks
from forewarn.wiring.accept_control import accept_control
from support.cli_runner import Ran, forewarn

MARKS = Marks(of_vm={("web_0", "id-0"): 1_000_009, ("web_1", "id-1"): 7})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of a host that has joined and has shown something."""
    authority = Authority(tmp_path / "authority")
    made = tmp_path / "h1"
    key = host_credentials.joining_key(made)
    request = host_credentials.signing_request(key, "h1")
    host_credentials.keep(
        made,
        key_pem=key,
        certificate_pem=authority.sign(request, name="h1"),
        authority_pem=authority.pem,
        control="https://ctl.example:8256",
        token_digest=host_credentials.digest_of("fw1.a.b"),
    )
    marks_file.keep(made, MARKS)
    return made


def accept(folder: Path, *more: str) -> Ran:
    return forewarn("host", "accept-control", "--data", str(folder), *more)


def test_with_yes_the_word_is_left_for_the_next_daemon(folder: Path) -> None:
    ran = accept(folder, "--yes")

    assert (ran.code, ran.err) == (0, "")
    assert "No daemon runs here; the next one of host h1 begins with it." in ran.out
    assert marks_file.accepting(folder)
    assert marks_file.load(folder) == MARKS  # the daemon's files stay its own


def test_without_anybody_to_say_yes_it_says_what_it_means_and_does_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    ran = accept(folder)

    assert ran.code == 2
    for words in (
        "forgets what 2 VMs have read (incarnations up to 1000009)",
        "https://ctl.example:8256",
        "Guests may read a lower incarnation",
        "forewarn restore",
        "Give --yes.",
    ):
        assert words in ran.err
    assert not marks_file.accepting(folder)


@pytest.mark.parametrize(("answer", "done"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_at_a_terminal_it_asks(
    folder: Path, answer: str, monkeypatch: pytest.MonkeyPatch, *, done: bool
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal(answer))
    ran = accept(folder)

    assert ran.code == (0 if done else 1)
    assert marks_file.accepting(folder) is done


def test_marks_that_are_damaged_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / marks_file.MARKS_FILE
    path.write_bytes(path.read_bytes()[:-5])
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    assert "1 of 2 marks could be read" in accept(folder).err


def test_in_json_it_says_whether_it_was_carried_out(folder: Path) -> None:
    assert accept(folder, "--yes", "--json").json == {
        "name": "h1",
        "control": "https://ctl.example:8256",
        "vms": 2,
        "highest_incarnation": 1_000_009,
        "taken": False,
    }


def test_it_names_the_control_of_the_settings_and_not_the_one_that_was_joined(
    folder: Path, tmp_path: Path
) -> None:
    """The daemon asks where its settings say: its control may have moved since."""
    (tmp_path / "host.toml").write_text('control = "https://new.example:8256"\n')
    ran = accept(folder, "--settings", str(tmp_path / "host.toml"), "--yes", "--json")
    assert ran.json["control"] == "https://new.example:8256"


def test_a_folder_of_no_host_is_refused_in_words(tmp_path: Path) -> None:
    ran = accept(tmp_path, "--yes")

    assert ran.code == 1
    assert "is not the data folder of a host" in ran.err
    assert "--data DIR (of the unit: /var/lib/forewarn-host)" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_daemon_that_runs_is_waited_for_until_it_has_carried_it_out(folder: Path) -> None:
    (folder / "forewarn.lock").write_text(f"{os.getpid()}\n")  # we are the daemon here

    assert accept_control(folder, sleep=lambda _: marks_file.forget(folder))
    assert marks_file.load(folder) == Marks()


def test_a_daemon_that_does_not_take_it_up_is_not_waited_for_for_ever(folder: Path) -> None:
    (folder / "forewarn.lock").write_text(f"{os.getpid()}\n")
    slept: list[float] = []

    assert not accept_control(folder, limit_s=1.0, sleep=slept.append)
    assert sum(slept) == pytest.approx(1.0, abs=0.2)
    assert marks_file.accepting(folder)
