"""`forewarn control` as a process: hosts join, it is killed, and what was promised still holds."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from forewarn.core.inventory.host_report import Nic, Power, SeenVm
from forewarn.wire import link as wire
from support.link_world import Machine, run
from support.shown_scopes import sighting
from support.system_world import EXIT_LIMIT_S, FOREWARN, START_LIMIT_S, request, running
from support.waiting import wait_until


class ControlProcess:
    """A data folder and the control plane that runs on it, if it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(folder),
            "COLUMNS": "200",
            "FOREWARN_ENABLEMENT": "always",
        }
        self._launches = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str, descriptors: int | None = None) -> ControlProcess:
        self._launches += 1
        command = [str(FOREWARN), "control", "--data", str(self.data), *options]
        if descriptors is not None:
            command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
        command += ["--operator", "127.0.0.1:0", "--hosts", "127.0.0.1:0"]
        with self._file("out").open("wb") as out, self._file("err").open("wb") as err:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=self.environment,
                start_new_session=True,
            )
        wait_until(self._says_where, "control starts", limit_s=START_LIMIT_S)
        return self

    def _says_where(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            pytest.fail(f"control ended: {self.out()}{self._file('err').read_text()}")
        return bool(re.search(r"host (invite|list)", self.out())) and self.out().endswith("\n")

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}-{self._launches}"

    def out(self) -> str:
        return self._file("out").read_text(encoding="utf-8")

    def kill(self) -> None:
        """kill -9, whatever it is doing."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(EXIT_LIMIT_S)
            self._process = None

    def stop(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(EXIT_LIMIT_S)
        self._process = None
        return code

    def said(self, pattern: str) -> str:
        found = re.search(pattern, self.out(), re.MULTILINE)
        assert found is not None, self.out()
        return found[1]

    def token(self, name: str) -> str:
        """What an operator is given for a host."""
        said = self.cli("host", "invite", name).stdout
        (token,) = re.findall(r"^ *(fw1\.\S+)$", said, re.MULTILINE)
        return str(token)

    def machine(self, name: str) -> Machine:
        url = self.said(r"hosts connect +(https://\S+)")
        return Machine(url, self.folder / f"machine-{name}", name)

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(FOREWARN), "--data", str(self.data), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=EXIT_LIMIT_S,
            stdin=subprocess.DEVNULL,
            env=self.environment,
        )

    def order(self, path: str) -> Any:
        address, _, port = self.said(r"operator API +http://(\S+)").rpartition(":")
        token = (self.data / "operator.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        answer = request("POST", (address, int(port)), f"/v1/{path}", body=b"", headers=headers)
        assert answer.status == 200, answer
        return answer.json()


@pytest.fixture
def control(tmp_path: Path) -> Iterator[ControlProcess]:
    process = ControlProcess(tmp_path)
    yield process
    process.kill()


def vm(number: int = 0) -> SeenVm:
    return SeenVm(
        name=f"vm{number}",
        vm_id=f"00000000-0000-4000-8000-00000000000{number + 1}",
        power=Power.RUNNING,
        nics=(Nic(mac=f"52:54:00:00:00:0{number + 1}", tap=f"vnet{number}", bridge="br0"),),
    )


def moved(machine: Machine, control: ControlProcess) -> Machine:
    """The machine, told where control is now: its port is another after each start."""
    machine.url = control.machine(machine.name).url
    return machine


def test_what_was_promised_to_hosts_holds_after_kill_9(control: ControlProcess) -> None:
    control.start()
    token = control.token("h1")

    async def before() -> tuple[Machine, wire.Changes]:
        host = await control.machine("h1").join(token)
        await host.ask("turn", wire.Turn(), wire.TurnTaken)
        await host.ask("sight", sighting((vm(),)), wire.Sighted)
        control.order("vms/vm0/restart")
        return host, await host.changes()

    host, told = run(before)
    (event,) = told.scopes[0].events
    control.kill()
    control.start()
    assert "No host has joined" not in control.out()

    async def after() -> None:
        moved(host, control)
        new = await host.changes(wire.Since(told.epoch, told.position), wait_s=25)
        assert new.epoch != told.epoch
        assert new.names == told.names
        assert new.scopes == (), "it has been told, by the control that was killed"
        again = await host.changes()
        assert again.scopes[0].incarnation >= told.scopes[0].incarnation
        assert [one.event_id for one in again.scopes[0].events] == [event.event_id]
        await host.ask("approve", wire.Approve("vm0", (event.event_id,)), wire.Done)
        answer = await control.machine("h2").ask_to_join(token)
        assert (answer.status_code, answer.json()["code"]) == (403, "not-invited")
        assert "used already, by host h1" in answer.json()["detail"]

    run(after)
    # An approval that was answered survives kill -9 (I5).
    control.kill()
    control.start()
    shown = json.loads(control.cli("event", "show", event.event_id, "--json").stdout)
    assert shown["approved_by"] == "vm0"


def test_a_host_is_told_only_what_has_changed_since_after_kill_9(control: ControlProcess) -> None:
    control.start()
    token = control.token("h1")

    async def before() -> tuple[Machine, wire.Changes]:
        host = await control.machine("h1").join(token)
        await host.ask("turn", wire.Turn(), wire.TurnTaken)
        await host.ask("sight", sighting((vm(0), vm(1), vm(2))), wire.Sighted)
        return host, await host.changes()

    host, told = run(before)
    assert [one.name for one in told.scopes] == ["vm0", "vm1", "vm2"]
    control.order("vms/vm1/restart")  # and the host does not hear of it
    control.kill()
    control.start()
    control.order("vms/vm2/restart")

    async def after() -> None:
        moved(host, control)
        new = await host.changes(wire.Since(told.epoch, told.position), wait_s=25)
        assert new.names == told.names
        assert [(one.name, len(one.events)) for one in new.scopes] == [("vm1", 1), ("vm2", 1)]
        for unknown in (told.position + 10_000, -1):
            all_of_it = await host.changes(wire.Since(told.epoch, unknown), wait_s=25)
            assert [one.name for one in all_of_it.scopes] == ["vm0", "vm1", "vm2"]

    run(after)


def test_a_token_that_nobody_has_used_is_good_after_kill_9(control: ControlProcess) -> None:
    control.start()
    token = control.token("h1")
    control.kill()
    control.start()

    async def story() -> None:
        await control.machine("h1").join(token)

    run(story)
    assert "h1" in control.cli("host", "list").stdout


def test_a_host_that_was_revoked_is_out_after_kill_9_too(control: ControlProcess) -> None:
    control.start()

    async def join() -> Machine:
        return await control.machine("h1").join(control.token("h1"))

    host = run(join)
    listed = control.cli("host", "list")
    assert "h1" in listed.stdout
    said = control.cli("host", "revoke", "h1")
    assert (said.returncode, "is revoked" in said.stdout) == (0, True), said
    control.kill()
    control.start()

    async def after() -> None:
        moved(host, control)
        assert await host.refused("turn", wire.Turn()) == (403, "not-member")

    run(after)
    assert control.cli("host", "revoke", "h1").returncode == 1


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[ControlProcess]:
    """The control of another machine."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    process = ControlProcess(folder)
    yield process
    process.kill()


def test_moving_to_another_machine_is_one_command_on_each_side(
    control: ControlProcess, elsewhere: ControlProcess, tmp_path: Path
) -> None:
    control.start()
    file = tmp_path / "moved"

    async def join(name: str) -> Machine:
        host = await control.machine(name).join(control.token(name))
        await host.ask("turn", wire.Turn(), wire.TurnTaken)
        return host

    host, revoked = run(lambda: join("h1")), run(lambda: join("h2"))
    assert control.cli("host", "revoke", "h2").returncode == 0
    token = (control.data / "operator.token").read_text()

    gone = control.cli("backup", str(file), "--move")  # it ends the service itself

    assert gone.returncode == 0, gone
    assert "restore moved" in gone.stdout
    assert file.stat().st_mode & 0o777 == 0o600
    again = control.cli("control", "--operator", "127.0.0.1:0", "--hosts", "127.0.0.1:0")
    assert (again.returncode, "was moved" in again.stderr) == (78, True), again

    came = elsewhere.cli("restore", str(file))

    assert came.returncode == 0, came
    assert re.search(r"whose list reaches until \S+Z: h1\.", came.stdout), came.stdout
    assert "Revoked, and no members: h2." in came.stdout
    elsewhere.start()
    assert (elsewhere.data / "operator.token").read_text() == token

    async def after() -> None:
        for machine in (host, revoked):
            machine.url = elsewhere.machine(machine.name).url
        await host.ask("turn", wire.Turn(), wire.TurnTaken)  # by the certificate that it has
        assert await revoked.refused("turn", wire.Turn()) == (403, "not-member")

    run(after)


def test_a_restore_on_a_machine_without_a_list_names_the_members_and_takes_revocations(
    control: ControlProcess, elsewhere: ControlProcess, tmp_path: Path
) -> None:
    control.start()
    file = tmp_path / "saved"
    hosts = [
        run(lambda name=name: control.machine(name).join(control.token(name)))  # type: ignore[misc]
        for name in ("h1", "h2")
    ]
    assert control.cli("backup", str(file)).returncode == 0
    kinds = [line["kind"] for line in json.loads(control.cli("journal", "--json").stdout)["items"]]
    assert kinds[-1] == "backed-up"

    shown = elsewhere.cli("restore", str(file)).stdout
    assert re.search(r"whose list reaches until \S+Z: h1, h2\.", shown)
    (command,) = re.findall(r"`forewarn (.*) --revoke NAME`", shown)
    wrong = elsewhere.cli(*command.split(), "--revoke", "h9")
    assert (wrong.returncode, "The members are: h1, h2." in wrong.stderr) == (1, True), wrong
    assert elsewhere.cli(*command.split(), "--revoke", "h2").returncode == 0
    elsewhere.start()

    async def after() -> None:
        for machine in hosts:
            machine.url = elsewhere.machine(machine.name).url
        await hosts[0].ask("turn", wire.Turn(), wire.TurnTaken)
        assert await hosts[1].refused("turn", wire.Turn()) == (403, "not-member")

    run(after)


def test_a_backup_with_the_keys_is_not_given_over_tcp(control: ControlProcess) -> None:
    control.start()
    address, _, port = control.said(r"operator API +http://(\S+)").rpartition(":")
    token = (control.data / "operator.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    answer = request("GET", (address, int(port)), "/v1/backup", headers=headers)
    assert (answer.status, answer.json()["code"]) == (403, "socket-only")
    assert "forewarn backup FILE" in answer.json()["remedy"]


DESCRIPTORS = 512
SOURCES = 15
OF_EACH = 40


def test_silent_connections_to_the_link_leave_descriptors_for_hosts_and_operators(
    control: ControlProcess,
) -> None:
    control.start(descriptors=DESCRIPTORS)
    host = run(lambda: control.machine("h1").join(control.token("h1")))
    address, _, port = host.url.removeprefix("https://").rpartition(":")

    async def beat() -> None:
        await host.ask("turn", wire.Turn(), wire.TurnTaken)

    with ExitStack() as stack:
        for number in range(SOURCES * OF_EACH):  # more than control may open
            source = (f"127.0.1.{number // OF_EACH + 1}", 0)
            stack.enter_context(
                socket.create_connection((address, int(port)), EXIT_LIMIT_S, source)
            )
            if number % OF_EACH == 0:
                run(beat)
        run(beat)
        listed = control.cli("host", "list")
        assert (listed.returncode, "h1" in listed.stdout) == (0, True), listed
    assert control.stop() == 0


def test_what_the_command_line_refuses_it_refuses_with_a_remedy(control: ControlProcess) -> None:
    control.start()
    for arguments, code, words in (
        (("host", "invite", "no good"), 1, "letters, digits"),
        (("host", "invite", "h1", "--valid", "soon"), 2, "70s, 1.5s, 2m"),
        (("host", "invite", "h1", "--valid", "1s"), 2, "10s to 30d"),
        (("host", "revoke", "h1"), 1, "No host has joined as h1"),
    ):
        said = control.cli(*arguments)
        assert (said.returncode, words in said.stderr) == (code, True), said


def test_it_stops_when_it_is_told_and_leaves_no_address_behind(control: ControlProcess) -> None:
    control.start()
    assert (control.data / "operator.url").exists()
    assert control.stop() == 0
    assert not (control.data / "operator.url").exists()


def test_a_program_is_told_where_in_one_line_of_json(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            *(str(FOREWARN), "control", "--json", "--data", str(tmp_path / "data")),
            *("--operator", "127.0.0.1:0", "--hosts", "127.0.0.1:0"),
        ],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(tmp_path)},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        where = json.loads(process.stdout.readline())
        assert where["hosts_url"].startswith("https://127.0.0.1:")
        assert "fw1." not in json.dumps(where)
        assert where["members"] == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(EXIT_LIMIT_S) == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(EXIT_LIMIT_S)
        if process.stdout is not None:
            process.stdout.close()


def test_two_controls_do_not_share_a_data_folder(control: ControlProcess) -> None:
    control.start()
    second = control.cli("control", "--operator", "127.0.0.1:0", "--hosts", "127.0.0.1:0")
    assert second.returncode == 1
    assert "is in use by process" in second.stderr


def test_simulated_hosts_never_answer_for_real_ones(control: ControlProcess) -> None:
    control.start()

    async def join() -> None:
        await control.machine("h1").join(control.token("h1"))

    run(join)
    assert control.stop() == 0
    said = control.cli("serve", "--operator", "127.0.0.1:0", "--guest", "127.0.0.1:0")
    assert said.returncode == 78
    assert "of a control that host h1 has joined" in said.stderr
    assert "forewarn control" in said.stderr


def test_a_serve_has_nobody_who_could_join(tmp_path: Path) -> None:
    with running(tmp_path / "serve") as service:
        said = service.cli("host", "invite", "h9")
        assert (said.returncode, "in its own process" in said.stderr) == (1, True), said
