"""kill -9 of a host daemon, and of control, at every durable step of an action: once, and ended.

Control is the real command, hosts are real processes over the real link; their machines are a
file, so that what was begun goes on whoever dies. The judge reads that file and the journal.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lasting_machines import make_world, read_world
from system_world import FOREWARN, QUICK, Guest, copy_folder, request, wait_until

TESTS = Path(__file__).parent.parent
START_LIMIT_S = 60.0
END_LIMIT_S = 100.0
REBOOT_SECONDS = "1"

STEPS = [
    f"{when}:{step}"
    for step in ("sight", "confirm", "approve", "claim", "holds", "begin", "report")
    for when in ("before", "after")
]


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
    """`forewarn control` and one host daemon, with one VM."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world = folder / "world.json"
        make_world(self.world, {"solo": "h1"})
        self._control = Child(folder, "control")
        self._host = Child(folder, "host")
        self._hosts_listen = "127.0.0.1:0"
        self._token = ""
        self._where: Any = None

    def start_control(self) -> None:
        data = str(self.folder / "control")
        command = [str(FOREWARN), "control", "--data", data, "--operator", "127.0.0.1:0"]
        command += ["--hosts", self._hosts_listen, "--json"]
        variables = {**QUICK, "FOREWARN_REBOOT_SECONDS": REBOOT_SECONDS}
        self._control.launch(command, **variables)
        self._where = self._control.ready()
        self._hosts_listen = self._where["hosts_listen"]
        self._token = self._token or self.ask("POST", "hosts/h1/invite")["token"]

    def launch_host(self, dies: str = "") -> None:
        data, program = str(self.folder / "h1"), str(TESTS / "dying_host.py")
        arguments = [data, str(self.world), self._where["hosts_url"], "h1", self._token]
        self._host.launch([sys.executable, program, *arguments], DIES=dies)

    def start_host(self) -> None:
        self.launch_host()
        self._host.ready()

    def host_died(self) -> bool:
        return self._host.died()

    def host_log(self) -> str:
        return self._host.log()

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


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Cloud]:
    made = Cloud(tmp_path)
    try:
        made.start_control()
        yield made
    finally:
        made.close()


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


@pytest.mark.parametrize("dies", STEPS)
def test_a_host_that_is_killed_at_any_step_does_what_was_begun_once(
    there: Cloud, dies: str
) -> None:
    enabled(there)
    there.kill_host()
    event_id = ordered(there)
    there.launch_host(dies)
    wait_until(
        lambda: there.host_died() or approves(there, event_id),
        "it is approved, or nobody is there to hear it",
        limit_s=END_LIMIT_S,
    )
    wait_until(there.host_died, f"it dies {dies}", limit_s=END_LIMIT_S)

    there.start_host()
    wait_until(lambda: approves(there, event_id), "it is approved (again)", limit_s=END_LIMIT_S)
    judge(there, event_id)


@pytest.mark.parametrize("after", ["scheduled", "confirmed", "approved", "started", "claimed"])
def test_a_control_that_is_killed_after_any_fact_goes_on_from_it(there: Cloud, after: str) -> None:
    enabled(there)
    event_id = ordered(there)
    if after not in ("scheduled", "confirmed"):
        wait_until(lambda: approves(there, event_id), "it is approved", limit_s=END_LIMIT_S)
    wait_until(lambda: after in there.journal(event_id), after, limit_s=END_LIMIT_S)
    there.kill_control()
    before = there.try_(lambda guest: guest.incarnation())
    assert before is not None

    there.start_control()
    wait_until(lambda: approves(there, event_id), "it is approved (again)", limit_s=END_LIMIT_S)
    judge(there, event_id)
    after_all = wait_until(
        lambda: there.try_(lambda guest: not guest.events() and guest.incarnation()),
        "the event leaves the document",
        limit_s=END_LIMIT_S,
    )
    assert after_all > before


def test_a_daemon_that_is_started_twice_refuses_the_second_time(there: Cloud) -> None:
    there.start_host()
    second = subprocess.run(
        [str(FOREWARN), "host", "--data", str(there.folder / "h1"), "--metrics", ""],
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(there.folder)},
        check=False,
    )

    assert second.returncode == 1
    assert "is in use by process" in second.stderr


def test_a_daemon_that_waits_for_control_stops_when_it_is_told(there: Cloud) -> None:
    there.start_host()
    there.kill_host()
    there.kill_control()
    there.launch_host()
    wait_until(lambda: "control_lost" in there.host_log(), "it says that control is away")

    assert there.stop_host() == 0
    assert there.host_log().count("control_lost") == 1


# Nothing older, whatever dies and whoever control is.


@pytest.mark.parametrize("dies", ["before:mark", "after:mark"])
def test_a_daemon_killed_around_marking_what_it_is_about_to_show_shows_nothing_older(
    there: Cloud, dies: str
) -> None:
    enabled(there)
    first = ordered(there)
    reading(there, {first})
    before = incarnation(there)
    there.kill_host()
    second = str(there.ask("POST", "vms/solo/redeploy")["event_id"])
    there.launch_host(dies)
    wait_until(there.host_died, f"it dies {dies}", limit_s=END_LIMIT_S)
    there.kill_control()

    # With control away nobody can read what was marked and not shown, nor anything older than
    # what was read; when control is back, everybody reads the newest.
    there.launch_host()
    wait_until(lambda: "control_lost" in there.host_log(), "it finds that control is away")
    assert there.try_(lambda guest: guest.incarnation()) in (None, before)
    there.start_control()
    reading(there, {first, second})
    assert incarnation(there) > before


def test_a_daemon_that_is_killed_and_joined_to_an_old_control_lets_no_guest_read_less(
    there: Cloud,
) -> None:
    enabled(there)
    there.kill_control()
    copy_folder(there.folder / "control", there.folder / "old")
    there.start_control()
    event_id = ordered(there)
    reading(there, {event_id})
    there.ask("POST", f"events/{event_id}/cancel")
    reading(there, set())
    before = incarnation(there)

    there.kill_control()
    (there.folder / "control").rename(there.folder / "right")
    (there.folder / "old").rename(there.folder / "control")
    there.start_control()
    seen = [incarnation(there)]
    # What is shown is kept for the next daemon at most a second later; a kill may come before.
    wait_until(lambda: before in kept_incarnations(there), "the daemon keeps what it shows")
    for restart in (there.kill_host, there.stop_host):
        restart()
        there.start_host()
        wait_until(lambda: there.ask("GET", "hosts/h1")["refuses"], "control is told")
        seen.append(incarnation(there))
    there.join_again()
    there.kill_host()
    there.start_host()
    wait_until(lambda: there.ask("GET", "hosts/h1")["refuses"], "control is told")
    seen.append(incarnation(there))
    assert seen == [before] * 4

    accepted = subprocess.run(
        [str(FOREWARN), "--data", str(there.folder / "h1"), "host", "accept-control", "--yes"],
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(there.folder)},
        check=False,
    )
    assert (accepted.returncode, accepted.stderr) == (0, "")
    assert "Host h1 has forgotten it" in accepted.stdout
    wait_until(lambda: not there.ask("GET", "hosts/h1")["refuses"], "it obeys")
    assert incarnation(there) < before


def reading(there: Cloud, event_ids: set[str]) -> None:
    """Wait until the VM reads exactly these events."""
    wait_until(
        lambda: there.try_(lambda guest: set(guest.events()) == event_ids),
        f"the VM reads {event_ids or 'nothing'}",
        limit_s=END_LIMIT_S,
    )


def kept_incarnations(there: Cloud) -> list[int]:
    """Of the scopes that the next daemon would show while control is away."""
    kept = there.folder / "h1" / "documents.json"
    if not kept.exists():
        return []
    return [scope["incarnation"] for scope in json.loads(kept.read_bytes())["scopes"]]


def incarnation(there: Cloud) -> int:
    found = wait_until(
        lambda: there.try_(lambda guest: guest.incarnation()), "the VM reads", limit_s=END_LIMIT_S
    )
    return int(found)
