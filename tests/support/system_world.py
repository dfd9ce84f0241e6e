"""A real `forewarn serve` as a child process, and those who use it: guests, operators, a person.

Nothing of the product is imported here: guests and operators speak HTTP, the person uses the
command line. Every process has a group of its own, which is killed when its test ends.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest

from programs import needs
from support.waiting import WAIT_S, wait_until

FOREWARN = Path(sys.executable).with_name("forewarn")
# They end a hang, on a busy machine too.
START_LIMIT_S = 60.0
EXIT_LIMIT_S = 60.0
ANSWER_LIMIT_S = 60.0
API_VERSION = "2020-07-01"

# Impacts that take no time, domains that do not wait, guests that may ask as often as they like.
QUICK = {
    "FOREWARN_GUEST_REQUESTS_PER_SECOND": "0",
    "FOREWARN_DOMAIN_RECOVERY_SECONDS": "0",
    "FOREWARN_FREEZE_SECONDS": "0",
    "FOREWARN_REBOOT_SECONDS": "0",
    "FOREWARN_REDEPLOY_SECONDS": "0",
    "FOREWARN_DELETE_SECONDS": "0",
}

HOSTS = "".join(f'[[host]]\nname = "h{number}"\n' for number in (1, 2, 3))

FLEET = f"""{HOSTS}
[[scope]]
name = "web"
kind = "placement-group"

[[vm]]
name = "web_0"
scope = "web"
update_domain = 0
host = "h1"
listen = "127.0.0.1:0"

[[vm]]
name = "web_1"
scope = "web"
update_domain = 1
host = "h2"
listen = "127.0.0.1:0"

[[vm]]
name = "vm0"
host = "h1"
listen = "127.0.0.1:0"

[[vm]]
name = "spot0"
host = "h3"
listen = "127.0.0.1:0"
priority = "spot"
"""

T = TypeVar("T")


def standalone_fleet(count: int) -> str:
    """A fleet of VMs `vm0`, `vm1`, ... with a scope and a listener each."""
    one = '[[vm]]\nname = "vm{}"\nhost = "h{}"\nlisten = "127.0.0.1:0"\n'
    return HOSTS + "".join(one.format(number, number % 3 + 1) for number in range(count))


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back over HTTP."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def request(
    method: str,
    where: tuple[str, int],
    target: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    source: str | None = None,
) -> Answer:
    """One request on a connection of its own. Raises OSError or HTTPException without answer."""
    connection = http.client.HTTPConnection(
        *where, timeout=ANSWER_LIMIT_S, source_address=(source, 0) if source else None
    )
    try:
        connection.request(method, target, body=body, headers=dict(headers or {}))
        answer = connection.getresponse()
        kept = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, kept, answer.read())
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class Guest:
    """Software in a VM: it reads its document and approves. It has nothing but HTTP."""

    where: tuple[str, int]
    source: str | None = None

    def get(self, target: str | None = None, **headers: str) -> Answer:
        chosen = target or f"/metadata/scheduledevents?api-version={API_VERSION}"
        sent = {"Metadata": "true"} | {n.replace("_", "-"): v for n, v in headers.items()}
        return request("GET", self.where, chosen, headers=sent, source=self.source)

    def document(self) -> Any:
        answer = self.get()
        assert answer.status == 200, answer
        return answer.json()

    def incarnation(self) -> int:
        incarnation: int = self.document()["DocumentIncarnation"]
        return incarnation

    def events(self) -> dict[str, Any]:
        """The events of the document by their id."""
        return {event["EventId"]: event for event in self.document()["Events"]}

    def approve(self, *event_ids: str) -> Answer:
        asked = {"StartRequests": [{"EventId": event_id} for event_id in event_ids]}
        return request(
            "POST",
            self.where,
            f"/metadata/scheduledevents?api-version={API_VERSION}",
            body=json.dumps(asked).encode(),
            headers={"Metadata": "true"},
            source=self.source,
        )


def copy_folder(source: Path, target: Path) -> None:
    """Copy a data folder as a file system would give it back: sockets are of processes only."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.sock"))


def no_events(guest: Guest) -> bool:
    """True if nothing is in the guest's document."""
    return not guest.events()


class Service:
    """A data folder, an inventory, and the process that serves them, if it runs."""

    def __init__(
        self, folder: Path, *, fleet: str = FLEET, settings: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.data = folder / "data"
        self.inventory = folder / "inventory.toml"
        self.inventory.write_text(fleet, encoding="utf-8")
        self.environment = {
            "PATH": f"{FOREWARN.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "HOME": str(folder),
            "COLUMNS": "200",
            **(QUICK if settings is None else settings),
        }
        self.with_inventory = True
        self._launches = 0
        self._process: subprocess.Popen[bytes] | None = None

    # Its life.

    def launch(
        self, *options: str, under: Sequence[str] = (), stderr_to: int | None = None
    ) -> None:
        """Start the process and do not wait until it listens."""
        assert self._process is None, "it runs already"
        self._launches += 1
        command = [*under, str(FOREWARN), "serve", "--data", str(self.data)]
        command += ["--inventory", str(self.inventory)] if self.with_inventory else []
        command += ["--guest", "127.0.0.1:0", "--operator", "127.0.0.1:0", *options]
        with self._file("out").open("wb") as out, self._file("err").open("wb") as err:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err if stderr_to is None else stderr_to,
                env=self.environment,
                start_new_session=True,
            )

    def start(
        self, *options: str, under: Sequence[str] = (), stderr_to: int | None = None
    ) -> Service:
        """Start the process and return once it has said where it listens."""
        self.launch(*options, under=under, stderr_to=stderr_to)
        wait_until(self._has_said_where, "the service starts", limit_s=START_LIMIT_S)
        return self

    def _has_said_where(self) -> bool:
        if self.process.poll() is not None:
            pytest.fail(f"the service ended: {self.out()}{self.err()}")
        listeners = "listen = " in self.inventory.read_text(encoding="utf-8")
        last = "vm restart" if listeners else "guest endpoint"
        said = self.out()
        return last in said and said.endswith("\n")

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it does not run"
        return self._process

    def exit_code(self) -> int:
        """Wait until the process ends by itself."""
        code = self.process.wait(EXIT_LIMIT_S)
        self._process = None
        return code

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask the process to end, and say how it did."""
        self.process.send_signal(number)
        return self.exit_code()

    def kill(self) -> None:
        """kill -9, whatever it is doing, and everything that it started."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(EXIT_LIMIT_S)
        self._process = None

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}-{self._launches}"

    def out(self) -> str:
        """What the last process has printed."""
        return self._file("out").read_text(encoding="utf-8")

    def err(self) -> str:
        """What the last process has complained about."""
        return self._file("err").read_text(encoding="utf-8")

    # Those who use it.

    def operator_where(self) -> tuple[str, int]:
        return _where(r"operator API +(http://\S+)", self.out())

    def guest_where(self) -> tuple[str, int]:
        """The shared listener, where guests are known by their address."""
        return _where(r"guest endpoint +(http://\S+)", self.out())

    def guest(self, vm: str) -> Guest:
        """The software in a VM with a listener of its own."""
        return Guest(_where(rf"^    {re.escape(vm)} +(http://\S+)$", self.out()))

    def token(self) -> str:
        return (self.data / "operator.token").read_text(encoding="utf-8").strip()

    def ask(self, method: str, path: str, body: object = None, *, key: str | None = None) -> Answer:
        """One request of an operator; the path is under `/v1/` unless it begins with a slash."""
        headers = {"Authorization": f"Bearer {self.token()}"}
        if key is not None:
            headers["Idempotency-Key"] = key
        content = None if body is None else json.dumps(body).encode()
        where = self.operator_where()
        target = path if path.startswith("/") else f"/v1/{path}"
        return request(method, where, target, body=content, headers=headers)

    def look(self, path: str) -> Any:
        """What an operator sees there."""
        answer = self.ask("GET", path)
        assert answer.status == 200, answer
        return answer.json()

    def order(self, path: str, body: object = None) -> Any:
        """An operator's order that is carried out."""
        answer = self.ask("POST", path, body)
        assert answer.status == 200, answer
        return answer.json()

    def journal(self, event_id: str = "") -> list[Any]:
        """All lines of the journal, or those of one event."""
        query = f"&event={event_id}" if event_id else ""
        lines: list[Any] = self.look(f"journal?limit=1000{query}")["items"]
        return lines

    def metric(self, name: str) -> float:
        """One number of `/metrics`."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self._metrics(), re.MULTILINE)
        assert found is not None, f"/metrics has no {name}"
        return float(found[1])

    def _metrics(self) -> str:
        return self.ask("GET", "/metrics").body.decode()

    def wait_for_phase(self, event_id: str, *phases: str, limit_s: float = WAIT_S) -> Any:
        """The event, once it is in one of the phases."""

        def look() -> Any:
            event = self.look(f"events/{event_id}")
            return event if event["phase"] in phases else None

        return wait_until(look, f"event {event_id} is {' or '.join(phases)}", limit_s=limit_s)

    def cli(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The command line, told nothing but the data folder."""
        return self.run([str(FOREWARN), "--data", str(self.data), *arguments], environment)

    def run(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Any command, as the person who started the service would run it."""
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=ANSWER_LIMIT_S,
            stdin=subprocess.DEVNULL,
            env=self.environment | dict(environment or {}),
        )


def _where(pattern: str, text: str) -> tuple[str, int]:
    found = re.search(pattern, text, re.MULTILINE)
    assert found is not None, f"{pattern} is not in {text}"
    parts = urlsplit(found[1])
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


@contextmanager
def service_in(
    folder: Path, *, fleet: str = FLEET, settings: Mapping[str, str] | None = None
) -> Iterator[Service]:
    """A service that does not run yet. Whatever runs at the end is killed."""
    service = Service(folder, fleet=fleet, settings=settings)
    try:
        yield service
    finally:
        service.kill()


@contextmanager
def running(
    folder: Path, *, fleet: str = FLEET, settings: Mapping[str, str] | None = None
) -> Iterator[Service]:
    """A service that runs."""
    with service_in(folder, fleet=fleet, settings=settings) as service:
        yield service.start()


needs_strace = needs("strace")


@contextmanager
def traced(service: Service, *options: str) -> Iterator[Path]:
    """Trace the running service with strace, or put faults into it, until the block ends.

    Yields the file of the trace, which is complete after the block. Skips the test where a
    process may not be traced.
    """
    trace, said = service.folder / "trace", service.folder / "strace-said"
    command = ["strace", "-f", "-y", "-o", str(trace), *options, "-p", str(service.process.pid)]
    with said.open("wb") as err:
        strace = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=err, start_new_session=True
        )
    try:
        wait_until(lambda: "attached" in said.read_text() or strace.poll(), "strace attaches")
        if strace.poll():
            pytest.skip(f"strace may not trace here: {said.read_text().strip()}")
        yield trace
    finally:
        strace.send_signal(signal.SIGINT)  # it lets the service go on untraced
        strace.wait(EXIT_LIMIT_S)
