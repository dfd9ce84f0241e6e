"""The agent as a process: how it starts, what it refuses, and how it ends."""

from __future__ import annotations

import io
import os
import signal
import threading
from pathlib import Path

import pytest

from forewarn_guest.cli_run import AgentEndpoint
from forewarn_guest.client import Client
from forewarn_guest.configuration import Configuration
from forewarn_guest.document import Document
from forewarn_guest.http1 import Bell, Stop
from forewarn_guest.journal import Journal, facts_in
from forewarn_guest.logs import Log
from forewarn_guest.status_writer import StatusWriter
from forewarn_guest.systemd import Notifier
from outside_world import AgentProcess, guest, wait_until
from scripted_endpoint import Asked, Reply, ScriptedEndpoint, document, event

NAME = Reply(body=b'{"name": "vm0"}')


def steps(*lines: str) -> str:
    return "\n".join(('[[rule]]\nname = "work"', *lines, ""))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_agent_soon_and_its_step_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    begun, go_on, over = (tmp_path / name for name in ("begun", "go-on", "over"))
    os.mkfifo(go_on)
    script = f"touch {begun}; read line <{go_on}; touch {over}"
    rules = steps("[[rule.prepare]]", 'name = "wait"', f'shell = "{script}"')
    with ScriptedEndpoint(document(1, event(), Date="Tue, 03 Mar 2026 10:00:00 GMT")) as endpoint:
        agent = AgentProcess(tmp_path, endpoint.url, rules)
        with agent.running():
            wait_until(begun.exists, "the step")
            agent.signal(number)
            assert agent.ended() == 0
        assert not over.exists()
        assert agent.status()["agent"]["ended"] is True
        go_on.write_text("now\n")
        wait_until(over.exists, "the end of the step, without an agent")
        with agent.running():
            agent.await_log("outcome=done")
    outcomes = [fact for fact in facts_in(agent.journal) if fact["fact"] == "step-ended"]
    assert [fact["outcome"] for fact in outcomes] == ["done"]


def test_a_hang_up_is_answered_with_a_sentence_and_nothing_else(tmp_path: Path) -> None:
    with ScriptedEndpoint(document(1)) as endpoint:
        agent = AgentProcess(tmp_path, endpoint.url)
        with agent.running():
            agent.await_log("looked after")
            agent.status()
            agent.signal(signal.SIGHUP)
            agent.await_log("SIGHUP changes nothing")
            agent.signal(signal.SIGTERM)
            assert agent.ended() == 0


def test_an_error_that_nobody_foresaw_ends_the_agent_and_is_kept(tmp_path: Path) -> None:
    class Broken(Client):
        def poll(self, bell: Bell, tag: str) -> Document | None:
            raise ZeroDivisionError(f"nobody foresaw this of {tag!r} and {bell}")

    configuration = Configuration(rules=(), folder=tmp_path)
    log = Log(stream=io.StringIO())
    outside = StatusWriter(configuration, tmp_path / "a.toml", log=log, notifier=Notifier())
    stop = Stop()
    with Broken("http://127.0.0.1:1") as client:
        watched = AgentEndpoint(client, outside)
        with pytest.raises(ZeroDivisionError):
            list(watched.documents(stop))
    assert stop.is_set()
    assert isinstance(watched.broken, ZeroDivisionError)
    outside.end(orderly=False)
    assert not (tmp_path / "status.json").exists()


def test_a_damaged_journal_is_refused_with_2_and_what_to_do(tmp_path: Path) -> None:
    agent = AgentProcess(tmp_path, "http://127.0.0.1:1")
    with Journal(agent.journal) as journal:
        for _ in range(3):
            journal.append([{"fact": "begin", "at": "2026-03-03T10:00:00+00:00"}])
    agent.journal.write_bytes(agent.journal.read_bytes().replace(b"begin", b"bogus", 1))
    with agent.running():
        assert agent.ended() == 2
    assert "Line 1 of the journal" in agent.log()
    assert "mv " in agent.log()


@pytest.mark.parametrize("fact", [{"fact": "flown", "at": "2026-03-03T10:00:00+00:00"}, {}])
def test_a_fact_of_no_agent_that_is_known_is_refused_with_2(
    tmp_path: Path, fact: dict[str, str]
) -> None:
    agent = AgentProcess(tmp_path, "http://127.0.0.1:1")
    with Journal(agent.journal) as journal:
        journal.append([fact])
    with agent.running():
        assert agent.ended() == 2
    assert "fact 1 of the journal" in agent.log()


def test_a_second_agent_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with ScriptedEndpoint(document(1)) as endpoint:
        first = AgentProcess(tmp_path, endpoint.url)
        with first.running():
            first.await_log("looked after")
            second = AgentProcess(tmp_path, endpoint.url)
            second.log_file = tmp_path / "second.log"
            with second.running():
                assert second.ended() == 1
            assert str(first.pid) in second.log()
            first.signal(signal.SIGTERM)
            assert first.ended() == 0


def test_a_vm_whose_name_the_endpoint_does_not_know_is_told_where_to_write_it(
    tmp_path: Path,
) -> None:
    with ScriptedEndpoint(Reply(status=404)) as endpoint:
        agent = AgentProcess(tmp_path, endpoint.url, vm="")
        with agent.running():
            assert agent.ended() == 3
    assert 'vm = "NAME"' in agent.log()


def test_a_name_that_the_endpoint_does_not_know_this_vm_by_is_trouble_and_the_agent_works_on(
    tmp_path: Path,
) -> None:
    def answer(asked: Asked) -> Reply:
        return NAME if asked.target.startswith("/metadata/instance") else document(1, event())

    with ScriptedEndpoint(answer) as endpoint:
        agent = AgentProcess(tmp_path, endpoint.url, vm="web_7")
        with agent.running():
            agent.await_log("trouble kind=name")
            agent.await_log(f"the endpoint answers endpoint={endpoint.url}")
            wait_until(lambda: agent.status().get("errors"), "the doubt is in the status file")
            said = guest("status", "--config", str(agent.config)).stdout
    assert "calls this VM web_7, the endpoint calls it vm0" in agent.log()
    assert "No event is open; the document has 1 for other VMs." in said
    assert "the endpoint calls it vm0" in said


def test_an_endpoint_that_comes_later_is_waited_for_and_missed_once(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Reply:
        return NAME if asked.target.startswith("/metadata/instance") else document(1, event())

    with ScriptedEndpoint(answer) as endpoint:
        port = endpoint.port
    agent = AgentProcess(tmp_path, f"http://127.0.0.1:{port}", vm="")
    with agent.running():
        agent.await_log("kind=unreachable")
        threading.Event().wait(2.5)  # it asks a second time, and does not say so again
        with ScriptedEndpoint(answer, port=port):
            agent.await_log("vm=vm0")
            agent.await_log("appeared")
    assert agent.log().count("kind=unreachable") == 1


def test_an_agent_that_waits_for_its_endpoint_ends_as_soon_as_it_is_told_to(
    tmp_path: Path,
) -> None:
    with ScriptedEndpoint(Reply(body=None)) as endpoint:  # takes the connection, and says nothing
        agent = AgentProcess(tmp_path, endpoint.url, vm="")
        with agent.running():
            endpoint.await_asked(1)
            agent.signal(signal.SIGTERM)
            assert agent.ended() == 0


def test_an_endpoint_that_answers_rubbish_is_survived_counted_and_said_once(
    tmp_path: Path,
) -> None:
    rubbish = [
        Reply(body=b"<html>log in</html>", headers={"Content-Type": "text/html"}),
        Reply(body=b'{"Events": "none"}'),
        Reply(body=b"[1]"),
    ]
    with ScriptedEndpoint(*rubbish, document(1, "x", event())) as endpoint:  # type: ignore[arg-type]
        agent = AgentProcess(tmp_path, endpoint.url)
        with agent.running():
            agent.await_log("appeared")
            counted = {'errors_total{kind="bad-answer"} 3', 'errors_total{kind="no-event"} 1'}

            def all_counted() -> bool:
                lines = agent.metrics_file.read_text().splitlines()
                return counted <= {line.replace("forewarn_guest_", "") for line in lines}

            wait_until(all_counted, f"{counted} in the metrics")
    assert agent.log().count("kind=bad-answer") == 1
    assert agent.log().count("answers again") == 1


def test_the_status_is_written_again_while_nothing_happens(tmp_path: Path) -> None:
    with ScriptedEndpoint(document(1)) as endpoint:
        agent = AgentProcess(tmp_path, endpoint.url)
        with agent.running():
            first = agent.status()["agent"]["written"]
            wait_until(lambda: agent.status()["agent"]["written"] != first, "a newer status")


def test_steps_do_not_get_what_is_between_the_agent_and_systemd(tmp_path: Path) -> None:
    shown = tmp_path / "environment"
    rules = steps("[[rule.prepare]]", f'shell = "env >{shown}.new; mv {shown}.new {shown}"')
    with ScriptedEndpoint(document(1, event(), Date="Tue, 03 Mar 2026 10:00:00 GMT")) as endpoint:
        agent = AgentProcess(tmp_path, endpoint.url, rules)
        systemd = {"NOTIFY_SOCKET": str(tmp_path / "none"), "WATCHDOG_USEC": "60000000"}
        with agent.running(**systemd):
            wait_until(shown.exists, "the environment of the step")
    names = {line.partition("=")[0] for line in shown.read_text().splitlines()}
    assert "FOREWARN_EVENT_ID" in names
    assert not names & {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}
