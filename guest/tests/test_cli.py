"""The program at a terminal: what it says, what it refuses, and with which exit code it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn_guest import __version__
from forewarn_guest.journal import Journal
from outside_world import AgentProcess, environment, guest
from scripted_endpoint import Asked, Reply, ScriptedEndpoint, document, event

NAME = Reply(body=b'{"name": "vm0"}')
RULES = """
[[rule]]
name = "work"
types = ["Reboot"]
[[rule.prepare]]
name = "drain"
run = ["/bin/true", "--wait"]
limit = "2m"
[[rule.recover]]
run = ["/bin/true"]
[[rule]]
name = "short"
ignore = true
types = ["Freeze"]
"""


def endpoint_with(*events: dict[str, object], approval: Reply | None = None) -> ScriptedEndpoint:
    """An endpoint that knows its VM's name, shows these events and answers approvals."""

    def answer(asked: Asked) -> Reply:
        if asked.target.startswith("/metadata/instance"):
            return NAME
        if asked.method == "POST":
            return approval or Reply()
        return document(3, *events, Date="Tue, 03 Mar 2026 10:00:00 GMT")

    return ScriptedEndpoint(answer)


def write_config(tmp_path: Path, url: str = "", rules: str = RULES) -> str:
    path = tmp_path / "agent.toml"
    told = f'endpoint = "{url}"\n' if url else ""
    path.write_text(f'[agent]\n{told}folder = "{tmp_path / "data"}"\n{rules}')
    return str(path)


# Words and exit codes.


def test_the_version_is_said() -> None:
    assert guest("--version").stdout == f"forewarn-guest {__version__}\n"


COMMANDS = (
    *("run", "status", "journal", "check", "list", "watch", "approve", "discover"),
    *("install", "uninstall"),
)


def test_the_help_names_every_command_and_every_exit_code() -> None:
    told = guest("--help")
    assert told.returncode == 0
    for command in COMMANDS:
        assert re.search(rf"^    {command}\b", told.stdout, re.MULTILINE)
    assert "exit codes:" in told.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    told = guest(command, "--help")
    assert told.returncode == 0
    assert "--config FILE" in told.stdout


@pytest.mark.parametrize("arguments", [[], ["fly"], ["list", "--fast"], ["approve"]])
def test_a_command_line_that_means_nothing_is_refused_with_2(arguments: list[str]) -> None:
    ended = guest(*arguments)
    assert ended.returncode == 2
    assert ended.stderr.startswith("usage:")


def test_an_endpoint_that_is_not_there_is_3_in_one_sentence() -> None:
    with ScriptedEndpoint(document()) as endpoint:
        nobody = endpoint.url
    for command in (["list"], ["approve", "A1"]):
        ended = guest(*command, "--endpoint", nobody)
        assert ended.returncode == 3
        assert ended.stderr.count("\n") == 1


def test_wrong_configurations_are_refused_with_2_and_every_line(tmp_path: Path) -> None:
    path = write_config(tmp_path, rules='[[rule]]\nnaem = "x"\n[[rule.prepare]]\nrun = ["/none"]\n')
    for command in ("run", "check", "list", "status", "journal"):
        ended = guest(command, "--config", path)
        assert ended.returncode == 2
        assert f"{path}:4:" in ended.stderr
        assert f"{path}:6:" in ended.stderr


# list, watch, approve, discover.


def test_list_shows_the_events_and_marks_what_names_this_vm() -> None:
    with endpoint_with(event("A1"), event("B2", Resources=["vm1"])) as endpoint:
        shown = guest("list", "--endpoint", endpoint.url)
    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    assert re.match(
        r"\*  Reboot  Scheduled  2026-03-03 10:15:00Z  15m00s  User .* A1 +vm0", lines[2]
    )
    assert re.match(r"   Reboot .* B2 +vm1", lines[3])


def test_list_as_json_has_everything_that_was_sent() -> None:
    with endpoint_with(event("A1", Unheard="of")) as endpoint:
        shown = json.loads(guest("list", "--json", "--endpoint", endpoint.url).stdout)
    assert (shown["vm"], shown["incarnation"]) == ("vm0", "3")
    (found,) = shown["events"]
    assert found["names_this_vm"] is True
    assert found["seconds_left"] == 900.0
    assert found["raw"]["Unheard"] == "of"


def test_list_says_when_there_is_nothing() -> None:
    with endpoint_with() as endpoint:
        assert "No event is scheduled." in guest("list", "--endpoint", endpoint.url).stdout


def test_nothing_that_a_document_says_reaches_the_terminal_as_a_command() -> None:
    evil = "\x1b]0;gone\x07\x1b[2J"
    shown_event = event("A1", EventType=evil, Resources=["vm0", evil], EventSource=evil)
    with endpoint_with(shown_event) as endpoint:
        shown = guest("list", "--endpoint", endpoint.url)
    assert shown.returncode == 0
    assert "\x1b" not in shown.stdout
    assert "\x07" not in shown.stdout


def test_watch_writes_a_line_for_each_change_and_ends_with_ctrl_c() -> None:
    answers = [document(1, event("A1")), document(2, event("A1", "Started")), document(3)]

    def answer(asked: Asked) -> Reply:
        if asked.target.startswith("/metadata/instance"):
            return NAME
        return answers.pop(0) if len(answers) > 1 else answers[0]

    with ScriptedEndpoint(answer) as endpoint:
        command = [sys.executable, "-m", "forewarn_guest", "watch", "--json"]
        with subprocess.Popen(
            [*command, "--endpoint", endpoint.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            # In the background of a shell SIGINT is ignored, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        ) as watching:
            assert watching.stdout is not None
            seen = [json.loads(watching.stdout.readline()) for _ in range(3)]
            os.kill(watching.pid, signal.SIGINT)
            rest, complaint = watching.communicate(timeout=60)
    assert [change["what"] for change in seen] == ["appeared", "started", "gone"]
    assert all(change["names_this_vm"] for change in seen)
    assert (watching.returncode, rest, complaint) == (0, b"", b"")


def test_approve_sends_the_id_as_the_document_has_it_and_says_what_came_back() -> None:
    with endpoint_with(event("AB-1")) as endpoint:
        ended = guest("approve", "ab-1", "--endpoint", endpoint.url)
        sent = [asked.body for asked in endpoint.asked if asked.method == "POST"]
    assert ended.returncode == 0
    assert "AB-1" in ended.stdout
    assert sent == [b'{"StartRequests":[{"EventId":"AB-1"}]}']


def test_approve_refuses_an_id_that_the_document_does_not_have() -> None:
    with endpoint_with(event("A1")) as endpoint:
        ended = guest("approve", "B2", "--endpoint", endpoint.url)
        assert not [asked for asked in endpoint.asked if asked.method == "POST"]
    assert ended.returncode == 1
    assert "there is A1" in ended.stderr
    assert "--anyway" in ended.stderr


def test_approve_anyway_says_what_the_endpoint_has_against_it() -> None:
    refusal = Reply(status=400, body=b'{"error": "Unknown EventId: B2."}')
    with endpoint_with(approval=refusal) as endpoint:
        ended = guest("approve", "B2", "--anyway", "--endpoint", endpoint.url)
    assert ended.returncode == 1
    assert "Unknown EventId" in ended.stderr


def test_discover_says_what_was_tried() -> None:
    with endpoint_with() as endpoint:
        told = {"FOREWARN_ENDPOINT": endpoint.url}
        shown = guest("discover", "-v", **told)
        found = json.loads(guest("discover", "--json", **told).stdout)
    assert shown.stdout.splitlines()[-1] == endpoint.url
    assert "FOREWARN_ENDPOINT" in shown.stdout
    assert found["url"] == endpoint.url


def test_discover_says_whether_an_address_that_was_told_answers_and_uses_it_in_any_case() -> None:
    with endpoint_with() as endpoint:
        answers = guest("discover", "-v", "--endpoint", endpoint.url)
    away = guest("discover", "-v", "--endpoint", endpoint.url)
    assert "is used as told, and answers" in answers.stdout
    assert "is used as told, although: " in away.stdout
    assert "connection refused" in away.stdout
    assert {answers.stdout.splitlines()[-1], away.stdout.splitlines()[-1]} == {endpoint.url}


def test_discover_refuses_an_address_that_is_none() -> None:
    ended = guest("discover", "--endpoint", "ftp://x")
    assert ended.returncode == 3
    assert "is not the address of an endpoint" in ended.stderr


# check.


def test_check_says_of_every_event_what_would_be_done(tmp_path: Path) -> None:
    events = [
        event("A1"),
        event("B2", EventType="Freeze"),
        event("C3", Resources=["vm1"]),
        event("D4", EventType="Terminate"),
        event("E5", "Started"),
    ]
    with endpoint_with(*events) as endpoint:
        path = write_config(tmp_path, endpoint.url)
        shown = guest("check", "--config", path, "--json")
        text = guest("check", "--config", path)
        assert not [asked for asked in endpoint.asked if asked.method == "POST"]
    assert (shown.returncode, text.returncode) == (0, 0)
    assert text.stdout.endswith("`forewarn-guest status` says what was done.\n")
    found = {one["event_id"]: one for one in json.loads(shown.stdout)["events"]}
    drain = found["A1"]["parts"]["prepare"][0]
    assert found["A1"]["rule"] == "work"
    assert found["A1"]["now"] == ["run step drain of prepare, for 120 s at most"]
    assert drain["limit_seconds"] == 120.0
    assert drain["run"] == ["/bin/true", "--wait"]
    assert drain["environment"]["FOREWARN_EVENT_SECONDS_LEFT"] == "900.0"
    assert drain["environment"]["FOREWARN_EVENT_FIRST_NAMED"] == "yes"
    assert found["A1"]["approval"] == "when every prepare step is done"
    assert "leaves it alone" in found["B2"]["approval"]
    assert "does not name this VM" in found["C3"]["approval"]
    assert "no rule matches" in found["D4"]["approval"]
    assert "prepare" not in found["E5"]["parts"]
    assert "drain (line" in text.stdout
    assert not (tmp_path / "data").exists()


def test_check_doubts_a_name_that_the_endpoint_does_not_know_this_vm_by(tmp_path: Path) -> None:
    with endpoint_with() as endpoint:
        config = Path(write_config(tmp_path, endpoint.url))
        config.write_text(config.read_text().replace("[agent]", '[agent]\nvm = "web_7"'))
        doubted = guest("check", "--config", str(config))
        config.write_text(config.read_text().replace("web_7", "VM0"))
        believed = guest("check", "--config", str(config))
    assert doubted.returncode == 0
    assert "warning: The configuration calls this VM web_7, the endpoint calls it vm0:" in (
        doubted.stdout
    )
    assert "warning" not in believed.stdout


def test_check_works_from_a_saved_document_without_an_endpoint(tmp_path: Path) -> None:
    saved = tmp_path / "document.json"
    saved.write_text(json.dumps({"DocumentIncarnation": 1, "Events": [event("A1")]}))
    path = write_config(tmp_path)
    arguments = ("check", "--config", path, "--document", str(saved))
    nameless = guest(*arguments)
    assert nameless.returncode == 1
    assert "--vm NAME" in nameless.stderr
    shown = guest(*arguments, "--vm", "VM0")
    assert shown.returncode == 0
    assert "now: run step drain of prepare, for 120 s at most" in shown.stdout


@pytest.mark.parametrize("content", [b"", b"<html>", b"[]"])
def test_check_refuses_what_is_no_document(tmp_path: Path, content: bytes) -> None:
    saved = tmp_path / "document.json"
    saved.write_bytes(content)
    path = write_config(tmp_path)
    ended = guest("check", "--config", path, "--document", str(saved), "--vm", "vm0")
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr


# status and journal.


def test_status_of_an_agent_that_runs_was_killed_and_was_told_to_end(tmp_path: Path) -> None:
    with endpoint_with(event("A1")) as endpoint:
        agent = AgentProcess(tmp_path, endpoint.url)
        with agent.running():
            agent.await_log("appeared")
            agent.status()
            runs = guest("status", "--config", str(agent.config))
        killed = guest("status", "--config", str(agent.config))
        with agent.running():
            agent.await_log("looked after", times=2)
            agent.signal(signal.SIGTERM)
            assert agent.ended() == 0
        told = guest("status", "--config", str(agent.config), "--json")
    assert runs.returncode == 0
    assert "The agent runs" in runs.stdout
    assert killed.returncode == 1
    assert "is gone" in killed.stdout
    assert "A1" in killed.stdout
    assert told.returncode == 1
    assert json.loads(told.stdout)["agent"]["ended"] is True


def test_an_old_status_is_called_old_and_says_what_was_not_brought_back(tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    with endpoint_with() as endpoint:
        agent = AgentProcess(tmp_path, endpoint.url)
        with agent.running():
            content = dict(agent.status())
            content["agent"] = {**content["agent"], "written": "2026-03-03T10:00:00.000+00:00"}
            content["counts"] = {"not_brought_back": 2}
            old.write_text(json.dumps(content))
            shown = guest("status", "--file", str(old))
    assert shown.returncode == 0
    assert "what follows is how it was then" in shown.stdout.splitlines()[0]
    assert "After 2 events not everything was brought back" in shown.stdout


def test_status_without_an_agent_says_how_to_start_one(tmp_path: Path) -> None:
    ended = guest("status", "--file", str(tmp_path / "none.json"))
    assert ended.returncode == 1
    assert "forewarn-guest run" in ended.stderr


def test_journal_prints_the_facts_while_an_agent_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path) as journal:
        journal.append(
            [{"fact": "gone", "at": "2026-03-03T10:00:00+00:00", "tracked_event": "A1#1"}]
        )
        shown = guest("journal", "--file", str(path))
        as_json = guest("journal", "--file", str(path), "--json")
    assert shown.stdout == "2026-03-03T10:00:00+00:00 A1#1 gone\n"
    assert json.loads(as_json.stdout)["tracked_event"] == "A1#1"


def test_a_journal_that_cannot_be_looked_at_is_refused_in_one_sentence(tmp_path: Path) -> None:
    ended = guest("journal", "--file", str(tmp_path / ("j" * 300)))
    assert ended.returncode == 1
    assert "cannot be read: File name too long." in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_damaged_journal_is_2_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"this\nis\nno journal\n")
    ended = guest("journal", "--file", str(path))
    assert ended.returncode == 2
    assert "move the file away" in ended.stderr


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path) as journal:
        journal.append(
            [{"fact": "gone", "at": "x", "tracked_event": "y" * 100} for _ in range(5000)]
        )
    command = [sys.executable, "-m", "forewarn_guest", "journal", "--file", str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as printing:
        assert printing.stdout is not None
        assert printing.stderr is not None
        printing.stdout.readline()
        printing.stdout.close()
        assert printing.wait(60) == 0
        assert printing.stderr.read() == b""
