"""Forewarn on the rig: control on its machine, a host daemon on every hypervisor."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rig.building import Rig
from rig.cells import CommandFailed, Daemon
from rig.clock import ControlTime
from rig.operator import Operator, Refused, Unreachable
from rig.waiting import wait_for

START_LIMIT_S = 40.0
# What a guest that ignores its power button may take; short, so that tests are.
SHUTDOWN_SECONDS = 6
LOG_LINES_SHOWN = 25
GONE_LIMIT_S = 90.0
ROOT = Path(__file__).resolve().parents[1]

_CONTROL = """\
data = "{data}"
operator = "127.0.0.1:8255"
hosts = "0.0.0.0:8256"
hosts_url = "https://control:8256"
domain_recovery_seconds = 0
freeze_seconds = 4
"""
_HOST = """\
data = "{data}"
name = "{name}"
control = "https://control:8256"
migrate_uri = "qemu+tcp://{{host}}/system"
shutdown_seconds = {shutdown_seconds}
boot_id_file = "{boot_id_file}"
reboot_command = ["touch", "{reboot_wanted}"]
"""

# What `rig power` asks for.
OFF, ON = "off", "on"


class Service:
    """What is started, killed and asked. Belongs to one `Rig`, whose end is its end."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.data = rig.folder / "control-data"
        self.clock = ControlTime(rig.folder / "clock")
        self.operator = Operator(rig.control, self.data)
        self.control: Daemon | None = None
        self.hosts: dict[str, Daemon] = {}
        self._settings = rig.folder / "control.toml"
        self._settings.write_text(_CONTROL.format(data=self.data), encoding="utf-8")

    def close(self) -> None:
        """End the processes as an operator would, hosts first."""
        for host in self.hosts.values():
            host.stop()
        if self.control is not None:
            self.control.stop()
        self.operator.close()

    def forewarn(self, *words: str) -> str:
        """What the command line says on the machine of control."""
        program = Path(sys.executable).with_name("forewarn")
        return self.rig.control.run(str(program), "--data", str(self.data), *words)

    # Control.

    def start_control(self) -> None:
        """Start control and wait until it answers."""
        words = [sys.executable, "-m", "rig.control_process", str(self.clock.path)]
        log = self.rig.folder / "control.log"
        control = self.rig.control.start(
            "control", [*words, str(self._settings)], log=log, PYTHONPATH=str(ROOT)
        )
        self.control = control

        def answers() -> bool:
            if not control.alive:
                raise CommandFailed(f"control has ended:\n{control.tail()}")
            try:
                self.operator.get("/v1/health")
            except (Unreachable, Refused):
                return False
            return True

        wait_for("control answers", answers, within_s=START_LIMIT_S)

    def restart_control(self) -> None:
        """kill -9, and start it again."""
        assert self.control is not None
        self.control.kill()
        self.start_control()

    # Hosts.

    def start_host(self, name: str, *, steppable: bool = False) -> None:
        """Start the daemon of a hypervisor, which joins if it has not yet.

        `steppable` gives it a wall clock for `step_clock`.
        """
        hypervisor = self.rig.hypervisors[name]
        data = hypervisor.folder / "host-data"
        settings = hypervisor.folder / "host.toml"
        settings.write_text(
            _HOST.format(
                data=data,
                name=name,
                shutdown_seconds=SHUTDOWN_SECONDS,
                boot_id_file=hypervisor.boot_id_file,
                reboot_wanted=self.reboot_wanted(name),
            ),
            encoding="utf-8",
        )
        program = [str(Path(sys.executable).with_name("forewarn"))]
        if steppable:
            self.step_clock(name, 0)
            program = [sys.executable, "-m", "rig.host_process", str(self._offset(name))]
        words = [*program, "--settings", str(settings), "host"]
        if not data.exists():
            token = hypervisor.folder / "join-token"
            token.touch(mode=0o600)
            token.write_text(self.invite(name), encoding="ascii")
            words += ["--token-file", str(token)]
        log = hypervisor.folder / "host.log"
        self.hosts[name] = hypervisor.cell.start(
            f"host {name}", words, log=log, PYTHONPATH=str(ROOT)
        )
        self.wait_for_host(name)

    def step_clock(self, name: str, seconds: int) -> None:
        """Set the wall clock of a steppable host daemon ahead or back."""
        beside = self._offset(name).with_suffix(".new")
        beside.write_text(str(seconds), encoding="ascii")
        beside.replace(self._offset(name))

    def _offset(self, name: str) -> Path:
        return self.rig.hypervisors[name].folder / "clock-offset"

    def wait_for_host(self, name: str) -> None:
        """Until control has heard of the daemon since its start."""
        host = self.hosts[name]

        def ready() -> bool:
            if not host.alive:
                raise CommandFailed(f"{host.name} has ended:\n{host.tail()}")
            answer = self.rig.hypervisors[name].cell.run(
                "busybox", "wget", "-q", "-O", "-", "http://127.0.0.1:8257/healthz", check=False
            )
            return bool(answer)

        wait_for(f"{host.name} is ready", ready, within_s=START_LIMIT_S)

    def invite(self, name: str) -> str:
        """A one-time token for a hypervisor."""
        answer = json.loads(self.forewarn("--json", "host", "invite", name))
        return str(answer["token"])

    def reboot_wanted(self, name: str) -> Path:
        """The file that the host's reboot command makes: the rig's button for a power cycle."""
        return self.rig.hypervisors[name].folder / "reboot-wanted"

    def reboot_those_who_want(self) -> list[str]:
        """Power-cycle every hypervisor whose reboot command was run. Their names."""
        wanting = [name for name in self.rig.hypervisors if self.reboot_wanted(name).exists()]
        for name in wanting:
            self.reboot_wanted(name).unlink()
            self.power_cycle(name)
        return wanting

    def power_as_wanted(self) -> list[str]:
        """Switch hypervisors off and on as `rig power` has asked for. What was done, in words."""
        done = []
        for name, hypervisor in self.rig.hypervisors.items():
            wanted = power_wanted(self.rig.folder, name)
            if not wanted.exists():
                continue
            word = wanted.read_text(encoding="utf-8")
            if word == OFF and hypervisor.cell.on:
                self.fail_host(name)
                self.reboot_wanted(name).unlink(missing_ok=True)
            elif word == ON and not hypervisor.cell.on:
                hypervisor.power_on()
                self.rig.note()
                self.start_host(name)
            wanted.unlink()
            done.append(f"{name} is {word}.")
        return done

    # How it is.

    def logs(self) -> dict[str, str]:
        """The end of what every daemon has written, by file."""
        names = ["control.log", *(f"{host}/host.log" for host in self.rig.hypervisors)]
        paths = [self.rig.folder / name for name in names]
        return {
            str(path.relative_to(self.rig.folder)): "\n".join(_lines(path)[-LOG_LINES_SHOWN:])
            for path in paths
        }

    def errors(self) -> list[str]:
        """What daemons of ours have logged as errors."""
        names = ["control.log", *(f"{host}/host.log" for host in self.rig.hypervisors)]
        lines = [line for name in names for line in _lines(self.rig.folder / name)]
        return [line for line in lines if "level=error" in line or "Traceback" in line]

    def heal(self) -> None:
        """Everything on, connected, awake and alive; the clock as time itself."""
        self.clock.run(1)
        self.rig.wire.mend_all()
        for name, hypervisor in self.rig.hypervisors.items():
            if not hypervisor.cell.on:
                self.hosts.pop(name, None)
                hypervisor.power_on()
                self.rig.note()
            hypervisor.allow_migrations()
            libvirtd = hypervisor.libvirtd
            if libvirtd is None or not libvirtd.alive:
                hypervisor.start_libvirtd()
            else:
                libvirtd.wake()
        if self.control is None or not self.control.alive:
            self.start_control()
        for name in self.rig.hypervisors:
            host = self.hosts.get(name)
            if host is None or not host.alive:
                self.start_host(name)
            else:
                host.wake()
            if self.operator.get(f"/v1/hosts/{name}")["health"] != "ok":
                self.operator.post(
                    f"/v1/hosts/{name}/repair", force=True, reason="its power is back"
                )

    def remove_guests(self) -> None:
        """Delete every VM, as an operator in a hurry, and what control does not know by hand."""
        for vm in self.operator.get("/v1/vms")["items"]:
            ordered = self.operator.post(f"/v1/vms/{vm['name']}/delete")
            if ordered["phase"] == "scheduled":
                self.operator.post(f"/v1/events/{ordered['event_id']}/approve", reason="the rig")
        wait_for("the VMs are deleted", self._no_vms, within_s=GONE_LIMIT_S)
        for hypervisor in self.rig.hypervisors.values():
            for vm, power in hypervisor.vms().items():
                if power != "shut off":
                    hypervisor.virsh("destroy", vm)
                hypervisor.virsh("undefine", vm)
        self.rig.guests.clear()

    def _no_vms(self) -> bool:
        return not self.operator.get("/v1/vms")["items"]

    def power_cycle(self, name: str) -> None:
        """Switch a hypervisor off and on, as its reboot does; its daemon starts with it."""
        self.fail_host(name)
        self.rig.hypervisors[name].power_on()
        self.rig.note()
        self.start_host(name)

    def fail_host(self, name: str) -> None:
        """Pull the plug of a hypervisor."""
        self.rig.hypervisors[name].power_off()
        self.hosts.pop(name, None)


def power_wanted(folder: Path, name: str) -> Path:
    """Where another process asks the one that keeps a rig for the power of a hypervisor."""
    return folder / f"power-{name}"


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
