"""`forewarn control` and a host daemon as real processes; their machines are a file.

The judge reads that file and the journal. Either side may be a peer of another minor version of the
link (`peer_control`, `peer_host`). No test lives here.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.lasting_machines import make_world, read_world
from support.system_world import FOREWARN, QUICK, Guest, request
from support.waiting import wait_until

TESTS = Path(__file__).parent.parent
START_LIMIT_S = 60.0
END_LIMIT_S = 100.0
REBOOT_SECONDS = "1"


class Child:
    """A process in a group of its own that prints one line of JSON when it is ready."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._launches = 0
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self, command: list[str], **variables: str) -> None:
        self._launches += 1
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self._folder),
            "PYTHONPATH": str(TESTS),
            **variables,
        }
        with self._file("out").open("wb") as out, self._file("err").open("wb") as err:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                start_new_session=True,
            )

    def _file(self, what: str) -> Path:
        return self._folder / f"{self._name}-{what}-{self._launches}"

    def said(self) -> Any:
        """What it said when it was ready; None while it is not, or if it died before."""
        text = self._file("out").read_text(encoding="utf-8")
        return json.loads(text) if text.endswith("\n") else None

    def ready(self) -> Any:
        def look() -> Any:
            if self.died():
                pytest.fail(f"{self._name} ended: {self._file('err').read_text()}")
            return self.said()

        return wait_until(look, f"{self._name} is ready", limit_s=START_LIMIT_S)

    def died(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def log(self) -> str:
        return self._file("err").read_text(encoding="utf-8")

    def stop(self) -> int:
        """Ask it to end, and say how it did."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(END_LIMIT_S)

    def kill(self) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(END_LIMIT_S)
        self._process = None


class Cloud:
    """`forewarn control` and one host daemon, with one VM. A peer is `newer`, `older` or ours."""

    def __init__(self, folder: Path, *, control_peer: str = "", host_peer: str = "") -> None:
        self.folder = folder
        self._control_peer = control_peer
        self._host_peer = host_peer
        self.world = folder / "world.json"
        make_world(self.world, {"solo": "h1"})
        self._control = Child(folder, "control")
        self._host = Child(folder, "host")
        self._hosts_listen = "127.0.0.1:0"
        self._token = ""
        self._where: Any = None

    def start_control(self) -> None:
        data = str(self.folder / "control")
        program = [str(FOREWARN)]
        if self._control_peer:
            program = [sys.executable, str(TESTS / "peer_control.py")]
        command = [*program, "control", "--data", data, "--operator", "127.0.0.1:0"]
        command += ["--hosts", self._hosts_listen, "--json"]
        variables = {**QUICK, "FOREWARN_REBOOT_SECONDS": REBOOT_SECONDS, "PEER": self._control_peer}
        self._control.launch(command, **variables)
        self._where = self._control.ready()
        self._hosts_listen = self._where["hosts_listen"]
        self._token = self._token or self.ask("POST", "hosts/h1/invite")["token"]

    def launch_host(self, dies: str = "") -> None:
        program = str(TESTS / ("peer_host.py" if self._host_peer else "dying_host.py"))
        data = str(self.folder / "h1")
        arguments = [data, str(self.world), self._where["hosts_url"], "h1", self._token]
        self._host.launch([sys.executable, program, *arguments], DIES=dies, PEER=self._host_peer)

    def start_host(self) -> None:
        self.launch_host()
        self._host.ready()

    def host_died(self) -> bool:
        return self._host.died()

    def host_log(self) -> str:
        return self._host.log()

    def control_log(self) -> str:
        return self._control.log()

    def stop_host(self) -> int:
        return self._host.stop()

    def kill_host(self) -> None:
        self._host.kill()

    def join_again(self) -> None:
        """Give the host a new token, so that it joins anew at its next start."""
        self._token = self.ask("POST", "hosts/h1/invite", {"replace": True})["token"]

    def kill_control(self) -> None:
        self._control.kill()

    def close(self) -> None:
        self._host.kill()
        self._control.kill()

    # Those who use it.

    def ask(self, method: str, path: str, said: Any = None) -> Any:
        token = Path(self._where["operator_token_file"]).read_text(encoding="utf-8").strip()
        host, _, port = self._where["operator_url"].removeprefix("http://").rpartition(":")
        headers = {"Authorization": f"Bearer {token}"}
        body = json.dumps(said or {}).encode() if method == "POST" else None
        answer = request(method, (host, int(port)), f"/v1/{path}", body=body, headers=headers)
        assert answer.status < 300, answer
        return answer.json()

    def host_versions(self) -> dict[str, int]:
        """How many hosts speak which version of the link beside that of control, as it counts."""
        host, _, port = self._where["operator_url"].removeprefix("http://").rpartition(":")
        token = Path(self._where["operator_token_file"]).read_text(encoding="utf-8").strip()
        headers = {"Authorization": f"Bearer {token}"}
        answer = request("GET", (host, int(port)), "/metrics", headers=headers)
        assert answer.status == 200, answer
        lines = r'(?m)^forewarn_link_hosts\{version="(\w+)"\} (\d+)'
        found = re.findall(lines, answer.body.decode())
        return {word: int(count) for word, count in found if int(count)}

    def guest(self) -> Guest | None:
        said = self._host.said()
        where = (said or {}).get("vms", {}).get("solo")
        return None if where is None else Guest((where[0], where[1]))

    def try_(self, what: Any) -> Any:
        """What a guest gets from a daemon that may die meanwhile; None if nothing."""
        guest = self.guest()
        if guest is None:
            return None
        with suppress(OSError, AssertionError, json.JSONDecodeError):
            return what(guest)
        return None

    def journal(self, event_id: str) -> list[str]:
        lines = self.ask("GET", f"journal?limit=1000&event={event_id}")["items"]
        return [line["kind"] for line in lines]


def polls(there: Cloud) -> bool:
    return there.try_(lambda guest: guest.get().status == 200) is True


def known(there: Cloud) -> bool:
    return any(vm["name"] == "solo" for vm in there.ask("GET", "vms")["items"])


def approves(there: Cloud, event_id: str) -> bool:
    return there.try_(lambda guest: guest.approve(event_id).status == 200) is True


def enabled(there: Cloud) -> None:
    """Have the VM in the fleet and its scope enabled, by a daemon that does not die."""
    there.start_host()
    wait_until(lambda: known(there) and polls(there), "the VM polls", limit_s=END_LIMIT_S)


def ordered(there: Cloud) -> str:
    return str(there.ask("POST", "vms/solo/restart")["event_id"])


def ended(there: Cloud, event_id: str) -> str:
    def look() -> str:
        phase = str(there.ask("GET", f"events/{event_id}")["phase"])
        return phase if phase in ("completed", "failed", "canceled") else ""

    return wait_until(look, f"event {event_id} ends", limit_s=END_LIMIT_S)


def judge(there: Cloud, event_id: str) -> None:
    """The event ended well, its VM was rebooted once, and the journal says so."""
    assert ended(there, event_id) == "completed"
    world = read_world(there.world)
    assert list(world["begun"].values()) == [1]
    assert world["vms"]["solo"]["boots"] == 2
    kinds = there.journal(event_id)
    assert kinds.count("started") == 1
    assert kinds.index("approved") < kinds.index("started") < kinds.index("reported")
    assert kinds[-1] == "completed"
