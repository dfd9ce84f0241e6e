"""The agent in a VM: what it costs while nothing happens, and how soon its first step has begun.

The endpoint is the emulator. To be polled it stands behind a relay that knows neither tags nor
waiting, as the real service.
"""

from __future__ import annotations

import http.client
import http.server
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from bench.figures import Figure
from bench.processes import Failed, cpu_s, resident_mib
from forewarn.testing import Cloud, CloudVm, Event

IDLE_S = 20.0
RESIDENT_MIB_MAX = 30.0
CPU_PERCENT_MAX = 0.2
EVENTS_WAITED_FOR = 20
EVENTS_POLLED = 8
WAITED_MS_MAX = 50.0
POLLED_MS_MAX = 1_100.0
PREEMPTS = 4
PREEMPT_LEFT_S_MIN = 28.0
LIMIT_S = 20.0
LOOK_EVERY_S = 0.005
ANSWER_LIMIT_S = 10.0
# Before each event: an agent that has just had news asks again after a fifth of a second, and polls
# and orders must not keep step.
REST_S = 0.3
SHIFT_S = 0.137

SPOT = """
[[host]]
name = "host0"
[[scope]]
name = "vm0"
kind = "standalone"
[[vm]]
name = "vm0"
scope = "vm0"
host = "host0"
listen = "127.0.0.1:0"
priority = "spot"
"""

RULES = """
[[rule]]
name = "work"
[[rule.prepare]]
name = "drain"
shell = "date +%s.%N >{file}.new; cat >>{file}.new; mv {file}.new {file}"
limit = "30s"
[[rule]]
name = "evicted"
types = ["Preempt"]
[[rule.prepare]]
name = "drain"
shell = "date +%s.%N >{file}.new; cat >>{file}.new; mv {file}.new {file}"
limit = "30s"
"""


def in_a_vm(folder: Path) -> Iterator[Figure]:
    """The figures of the agent."""
    folder.mkdir(parents=True, exist_ok=True)
    with Cloud() as cloud, _polled(cloud.vm("vm0")) as url, _agent(folder / "idle", url) as agent:
        yield from _idle(agent)
    with Cloud() as cloud:
        vm = cloud.vm("vm0")
        with _agent(folder / "waits", vm.url) as agent:
            rounds = [_reboot(cloud, agent, number) for number in range(EVENTS_WAITED_FOR)]
            yield _soon("waiting", [one.began_ms for one in rounds], WAITED_MS_MAX)
        with _polled(vm) as url, _agent(folder / "polls", url) as agent:
            rounds = [_reboot(cloud, agent, number) for number in range(EVENTS_POLLED)]
            yield _soon("polling", [one.began_ms for one in rounds], POLLED_MS_MAX)
    lefts = [_preempt_left_s(folder / f"preempt{n}", n * 3) for n in range(PREEMPTS)]
    yield Figure(
        name="Agent, what a Preempt leaves to the first step, polling",
        measured=min(lefts),
        unit="s",
        at_least=PREEMPT_LEFT_S_MIN,
        note=f"the limit that the step is given, of 30 s; the least of {PREEMPTS}",
        raw={"lefts_s": lefts},
    )


def _soon(how: str, began_ms: list[float], most_ms: float) -> Figure:
    return Figure(
        name=f"Agent, from the order of an event to its first step, {how}",
        measured=max(began_ms),
        unit="ms",
        at_most=most_ms,
        note=f"order included; the longest of {len(began_ms)}, median {median(began_ms):.1f} ms",
        raw={"began_ms": began_ms},
    )


@dataclass(frozen=True, slots=True)
class Agent:
    """A running agent, and the file that its step writes when it begins."""

    pid: int
    file: Path
    status: Path


@dataclass(frozen=True, slots=True)
class Begun:
    """A step that has begun, and what it was given."""

    began_ms: float
    given: Any


def _idle(agent: Agent) -> Iterator[Figure]:
    _wait(lambda: bool(_shown(agent).get("agent", {}).get("last_answer")), "the first answer")
    began_s, before_s = time.perf_counter(), cpu_s(agent.pid)
    time.sleep(IDLE_S)
    took_s = time.perf_counter() - began_s
    percent = (cpu_s(agent.pid) - before_s) / took_s * 100
    yield Figure(
        name="Agent, resident memory while it polls each second",
        measured=resident_mib(agent.pid),
        unit="MiB",
        at_most=RESIDENT_MIB_MAX,
        note=f"Python {sys.version_info.major}.{sys.version_info.minor}",
    )
    yield Figure(
        name="Agent, CPU while it polls each second",
        measured=percent,
        unit="% of a core",
        at_most=CPU_PERCENT_MAX,
        note=f"over {took_s:.0f} s, pauses measured four times a second",
    )


def _reboot(cloud: Cloud, agent: Agent, number: int) -> Begun:
    """A reboot from order to gone; when its first step began."""
    _rest(number)
    ordered_s = time.time()
    event = cloud.restart("vm0")
    begun = _begun(agent, ordered_s)
    cloud.expect_approved(event, within=LIMIT_S)
    _end(cloud, event, agent)
    return begun


def _rest(number: int) -> None:
    time.sleep(REST_S + number * SHIFT_S % 1.0)


def _end(cloud: Cloud, event: Event, agent: Agent) -> None:
    cloud.clock.next()
    cloud.expect_gone(event, within=LIMIT_S)
    _wait(lambda: _shown(agent).get("events") == [], "the end of the event")
    agent.file.unlink()


def _begun(agent: Agent, ordered_s: float) -> Begun:
    _wait(agent.file.exists, "the first step")
    began, _, given = agent.file.read_text(encoding="ascii").partition("\n")
    return Begun((float(began) - ordered_s) * 1_000, json.loads(given))


def _preempt_left_s(folder: Path, number: int) -> float:
    """How long the first step may take, in a cloud whose clock runs."""
    with (
        Cloud(inventory=SPOT, clock="real") as cloud,
        _polled(cloud.vm("vm0")) as url,
        _agent(folder, url) as agent,
    ):
        _wait(lambda: bool(_shown(agent).get("incarnation")), "the first document")
        _rest(number)
        ordered_s = time.time()
        cloud.evict("vm0")
        begun = _begun(agent, ordered_s)
        truly_s = 30.0 - begun.began_ms / 1_000
        return min(truly_s, float(begun.given["limit_seconds"]))


def _shown(agent: Agent) -> dict[str, Any]:
    """What the status file says; nothing while there is none."""
    if not agent.status.exists():
        return {}
    found: dict[str, Any] = json.loads(agent.status.read_text(encoding="ascii"))
    return found


def _wait(condition: Callable[[], bool], what: str) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > until_s:
            raise Failed(f"the agent did not come to {what} within {LIMIT_S:.0f} s")
        time.sleep(LOOK_EVERY_S)


@contextmanager
def _agent(folder: Path, url: str) -> Iterator[Agent]:
    """A running agent that knows its endpoint."""
    folder.mkdir(parents=True)
    file, status = folder / "begun", folder / "status.json"
    (folder / "agent.toml").write_text(
        f'[agent]\nendpoint = "{url}"\nvm = "vm0"\nfolder = "{folder / "data"}"\n'
        f'status_file = "{status}"\nmetrics_file = "{folder / "agent.prom"}"\n'
        + RULES.format(file=file),
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "forewarn_guest", "run", "--config"]
    with (
        (folder / "agent.log").open("wb") as log,
        subprocess.Popen([*command, str(folder / "agent.toml")], stderr=log) as process,
    ):
        try:
            _wait(status.exists, "its status file")
            yield Agent(process.pid, file, status)
        finally:
            process.kill()


@contextmanager
def _polled(vm: CloudVm) -> Iterator[str]:
    """The address of a relay to the VM's endpoint that answers every GET at once and in full."""
    netloc = urlsplit(vm.url).netloc

    class Relay(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._relay(None)

        def do_POST(self) -> None:
            self._relay(self.rfile.read(int(self.headers["Content-Length"])))

        def _relay(self, body: bytes | None) -> None:
            there = http.client.HTTPConnection(netloc, timeout=ANSWER_LIMIT_S)
            there.request(self.command, self.path, body, {"Metadata": "true"})
            answer = there.getresponse()
            content = answer.read()
            there.close()
            head = f"HTTP/1.1 {answer.status} Relayed\r\nDate: {answer.headers['Date']}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
            self.wfile.write(head.encode("latin-1") + content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Relay)
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
