"""What systemd is told, over real datagram sockets; and that only the main loop keeps it calm."""

from __future__ import annotations

import io
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forewarn_guest.agent import Agent
from forewarn_guest.cli_run import AgentEndpoint
from forewarn_guest.client import Client
from forewarn_guest.config_file import parse
from forewarn_guest.errors import JournalError
from forewarn_guest.http1 import Stop
from forewarn_guest.logs import Log
from forewarn_guest.status_writer import StatusWriter
from forewarn_guest.step_processes import Steps
from forewarn_guest.systemd import Notifier
from outside_world import NOTE, AgentProcess
from scripted_endpoint import ScriptedEndpoint, document, event


class Listener:
    """The socket of systemd."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._socket.settimeout(60.0)

    def hear(self) -> str:
        """The next thing that is said."""
        return self._socket.recv(4096).decode()

    def hear_until(self, wanted: str) -> list[str]:
        heard = [self.hear()]
        while heard[-1] != wanted:
            heard.append(self.hear())
        return heard

    def nothing_within(self, seconds: float) -> bool:
        self._socket.settimeout(seconds)
        try:
            self._socket.recv(4096)
        except socket.timeout:
            return True
        finally:
            self._socket.settimeout(60.0)
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["file", "abstract"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Listener]:
    name = f"@forewarn-test-{secrets.token_hex(8)}"
    found = Listener(str(tmp_path / "notify") if request.param == "file" else name)
    yield found
    found.close()


def test_each_thing_is_said_in_the_words_of_systemd(listener: Listener) -> None:
    notifier = Notifier(listener.address, watchdog_s=3.0)
    notifier.ready()
    notifier.say("web_0: no\nevent")
    notifier.beat(100.0)
    notifier.stopping()
    notifier.close()
    said = [listener.hear() for _ in range(4)]
    assert said == ["READY=1", "STATUS=web_0: no event", "WATCHDOG=1", "STOPPING=1"]


def test_the_same_sentence_is_said_once(listener: Listener) -> None:
    notifier = Notifier(listener.address)
    notifier.say("one")
    notifier.say("one")
    notifier.say("two")
    notifier.close()
    assert [listener.hear(), listener.hear()] == ["STATUS=one", "STATUS=two"]


def test_a_beat_is_sent_in_time_and_not_with_every_turn(listener: Listener) -> None:
    notifier = Notifier(listener.address, watchdog_s=6.0)
    assert notifier.beat_every_s == 2.0
    for now_s in (0.0, 0.1, 0.2, 0.9, 1.0, 1.1):
        notifier.beat(now_s)
    notifier.close()
    assert [listener.hear(), listener.hear()] == ["WATCHDOG=1", "WATCHDOG=1"]
    assert listener.nothing_within(0.1)


def test_the_environment_says_where_and_how_often_and_steps_do_not_get_it() -> None:
    environment = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "9000000", "PATH": "/bin"}
    environment["WATCHDOG_PID"] = str(os.getpid())
    notifier = Notifier.of(environment)
    notifier.close()
    assert notifier.beat_every_s == 3.0
    assert environment == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NOTIFY_SOCKET": "", "WATCHDOG_USEC": "9000000"},
        {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "often"},
        {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "0"},
        {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "9000000", "WATCHDOG_PID": "1"},
    ],
)
def test_without_a_watchdog_of_its_own_nobody_is_beaten_for(environment: dict[str, str]) -> None:
    notifier = Notifier.of(environment)
    assert notifier.beat_every_s is None
    notifier.beat(0.0)
    notifier.close()


def test_a_systemd_that_is_gone_disturbs_nobody(tmp_path: Path) -> None:
    notifier = Notifier(str(tmp_path / "gone"), watchdog_s=3.0)
    notifier.ready()
    notifier.beat(0.0)
    notifier.say("still here")
    notifier.close()


def test_an_agent_says_ready_beats_and_says_that_it_stops(
    listener: Listener, tmp_path: Path
) -> None:
    with ScriptedEndpoint(document(1)) as endpoint:
        agent = AgentProcess(tmp_path, endpoint.url)
        watched = {"NOTIFY_SOCKET": listener.address, "WATCHDOG_USEC": "900000"}
        with agent.running(**watched):
            assert listener.hear() == "READY=1"
            for _ in range(3):
                listener.hear_until("WATCHDOG=1")
            agent.signal(signal.SIGTERM)
            assert listener.hear_until("STOPPING=1")
            assert agent.ended() == 0


def test_an_agent_that_still_looks_for_its_endpoint_is_ready_and_beats(
    listener: Listener, tmp_path: Path
) -> None:
    with ScriptedEndpoint(document(1)) as endpoint:
        nobody = endpoint.url
    agent = AgentProcess(tmp_path, nobody, vm="")
    watched = {"NOTIFY_SOCKET": listener.address, "WATCHDOG_USEC": "900000"}
    with agent.running(**watched):
        assert "READY=1" in listener.hear_until("WATCHDOG=1")
        listener.hear_until("WATCHDOG=1")
        agent.await_log("kind=unreachable")
        assert agent.log().count("kind=unreachable") == 1
        assert agent.status()["agent"]["last_answer"] is None


class HangingJournal:
    """A disk that does not answer when the first event appears."""

    large = False

    def __init__(self) -> None:
        self.hangs, self.go_on = threading.Event(), threading.Event()

    def append(self, lines: list[dict[str, Any]]) -> None:
        if any(line["fact"] == "appeared" for line in lines):
            self.hangs.set()
            self.go_on.wait(100.0)

    def compact(self, lines: list[dict[str, Any]]) -> None:
        raise JournalError(f"{len(lines)} facts cannot be put: the disk does not answer.")


def test_an_agent_whose_main_loop_hangs_is_not_reported_alive(
    listener: Listener, tmp_path: Path
) -> None:
    configuration = parse(NOTE, "a.toml", look=lambda name: name)
    configuration = replace(configuration, folder=tmp_path)
    log, notifier = Log(stream=io.StringIO()), Notifier(listener.address, watchdog_s=0.3)
    outside = StatusWriter(configuration, tmp_path / "a.toml", log=log, notifier=notifier)
    journal, stop = HangingJournal(), Stop()
    with (
        ScriptedEndpoint(document(1), document(2, event())) as endpoint,
        Client(endpoint.url) as client,
    ):
        agent = Agent(
            configuration,
            endpoint=AgentEndpoint(client, outside),
            journal=journal,
            kept=(),
            steps=Steps(tmp_path / "steps"),
            vm="vm0",
            log=log,
            show=outside.show,
            look_every_s=outside.look_every_s,
        )
        main_loop = threading.Thread(target=agent.run, args=(stop,))
        main_loop.start()
        listener.hear_until("WATCHDOG=1")
        assert journal.hangs.wait(60.0)
        asked = len(endpoint.asked)
        endpoint.await_asked(asked + 2)  # the other threads go on for more than a second
        while not listener.nothing_within(0.0001):
            pass  # what it had said before
        assert listener.nothing_within(0.5)
        journal.go_on.set()
        listener.hear_until("WATCHDOG=1")
        stop.set()
        agent.tell(None)
        main_loop.join(60.0)
        assert not main_loop.is_alive()
    outside.end()
    notifier.close()
