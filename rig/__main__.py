"""`python -m rig`: bring the rig up and stay until Ctrl-C.

`python -m rig down` removes what a killed rig has left; `python -m rig forewarn WORDS` says
something to the control plane of the rig that is up, `python -m rig virsh h1 WORDS` to a libvirt.
`python -m rig power off h2` pulls the plug of a hypervisor, `power on h2` boots it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import FrameType

from rig import leftovers, needs
from rig.building import Rig
from rig.cells import CommandFailed
from rig.domains import Guest
from rig.service import Service, power_wanted
from rig.waiting import NotInTime, wait_for

BOOT_LIMIT_S = 90.0
POWER_LIMIT_S = 120.0
REBOOT_LOOK_S = 0.5  # how soon a hypervisor that wants to reboot is rebooted
SPEED_VARIABLE = "FOREWARN_RIG_SPEED"
SPEED_MAX = 600


def _web(number: int) -> Guest:
    traits = {"scope": "web", "update-domain": str(number)}
    return Guest(name=f"web-{number}", number=21 + number, approves=True, traits=traits)


GUESTS = (
    (_web(0), "h1"),
    (Guest(name="db-0", number=23), "h1"),
    (_web(1), "h2"),
    (Guest(name="app-0", number=24, approves=True), "h2"),
    (Guest(name="job-0", number=25, agent=True), "h2"),
)

PICTURE = """
   control 192.0.2.1          h1 192.0.2.11                   h2 192.0.2.12
  +------------------+       +-------------------------+     +-------------------------+
  | forewarn control |       | libvirtd  forewarn host |     | libvirtd  forewarn host |
  +--------+---------+       | br0: web-0  db-0        |     | br0: web-1 app-0 job-0  |
           |                 +-----------+-------------+     +-----------+-------------+
           +----------------- wire ------+-------------------------------+

web-0, web-1 (one scope) and app-0 approve what they are told. db-0 never does: its notice runs out.
job-0 runs the guest agent, which prepares, approves and recovers.
{clock}
Everything is in {folder}; Ctrl-C takes it all down.

In another terminal, as root:
  rig/forewarn vm list
  rig/forewarn vm restart web-0             # a Reboot, as soon as web-0 has approved it
  tail -f {folder}/consoles/web-0.log   # what web-0 sees, second by second
  rig/forewarn vm redeploy app-0            # live to the other host: its uptime goes on
  rig/forewarn vm redeploy job-0            # its console says what the agent does
  rig/forewarn host maintain h2 --type Freeze
  rig/forewarn host maintain h2 --type Reboot
  rig/forewarn vm restart db-0              # nobody approves: after a quarter of an hour
  rig/forewarn watch
  .venv/bin/python -m rig virsh h1 list --all
  .venv/bin/python -m rig power off h2      # pull its plug; `power on h2` boots it
"""


def main(words: list[str]) -> int:
    """The exit code."""
    try:
        match words:
            case []:
                code = _stay()
            case ["down"]:
                code = _down()
            case ["forewarn", *rest]:
                code = _enter("forewarn", rest)
            case ["virsh", host, *rest]:
                code = _enter(f"virsh-{host}", rest)
            case ["power", "off" | "on" as word, host]:
                code = _power(word, host)
            case _:
                print(__doc__, file=sys.stderr)
                code = 2
    except (needs.CannotBuild, NotInTime, CommandFailed) as why:
        print(why, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nEverything is taken down.")
        return 0
    return code


def _down() -> int:
    for folder in leftovers.remove_leftovers():
        print(f"Removed {folder}.")
    return 0


def _enter(script: str, words: list[str]) -> int:
    """Become the command of the rig that is up."""
    folder = leftovers.living(script)
    if folder is None:
        raise needs.CannotBuild(
            f"No rig is up that has {script}. Start one with `make rig`; one that is being started"
            " says when its guests have booted."
        )
    return subprocess.run([folder / script, *words], check=False).returncode


def _power(word: str, host: str) -> int:
    """Have the rig that is up switch a hypervisor off or on, and wait until it has."""
    folder = leftovers.living("forewarn")
    if folder is None:
        raise needs.CannotBuild("No rig is up. Start one with `make rig`.")
    known = sorted(path.name for path in folder.iterdir() if (path / "libvirtd.log").exists())
    if host not in known:
        raise needs.CannotBuild(f"There is no hypervisor {host}; there are {' and '.join(known)}.")
    wanted = power_wanted(folder, host)
    unfinished = wanted.with_suffix(".unfinished")
    unfinished.write_text(word, encoding="utf-8")
    unfinished.rename(wanted)
    wait_for(f"{host} is {word}", lambda: not wanted.exists(), within_s=POWER_LIMIT_S)
    print(f"{host} is {word}.")
    return 0


def _stay() -> int:
    for number in (signal.SIGTERM, signal.SIGINT):  # a shell's background ignores the second
        signal.signal(number, _interrupt)
    speed = _speed()
    with Rig() as rig:
        for folder in rig.removed:
            print(f"Removed what was left of a rig in {folder}.")
        service = Service(rig)
        print("Starting control and the hosts ...", flush=True)
        service.start_control()
        for name in rig.hypervisors:
            service.start_host(name)
        print("Booting the guests ...", flush=True)
        for guest, on in GUESTS:
            rig.define(guest, on)
        for guest, _ in GUESTS:
            read = partial(rig.consoles.last_poll, guest.name)
            wait_for(f"{guest.name} reads its document", read, within_s=BOOT_LIMIT_S)
        write_scripts(service)
        service.clock.run(speed)
        print(PICTURE.format(folder=rig.folder, clock=_clock_words(speed)), flush=True)
        while True:
            for name in service.reboot_those_who_want():
                write_scripts(service)  # it has other processes now
                print(f"{name} was rebooted.", flush=True)
            for done in service.power_as_wanted():
                write_scripts(service)
                print(done, flush=True)
            time.sleep(REBOOT_LOOK_S)


def _speed() -> int:
    text = os.environ.get(SPEED_VARIABLE, "1")
    if not text.isdecimal() or not 1 <= int(text) <= SPEED_MAX:
        raise needs.CannotBuild(f"SPEED={text!r} is no speed; 1 to {SPEED_MAX} is accepted.")
    return int(text)


def _clock_words(speed: int) -> str:
    if speed == 1:
        return "Time is real; `make rig SPEED=60` makes a minute of notice pass in a second."
    return f"Control's clock runs {speed} times as fast, so that notice passes sooner."


def write_scripts(service: Service) -> None:
    """Programs in the rig's folder that do their work inside a cell."""
    rig = service.rig
    forewarn = [str(Path(sys.executable).with_name("forewarn")), "--data", str(service.data)]
    _script(rig.folder / "forewarn", [*rig.control.entering(), *forewarn])
    for name, hypervisor in rig.hypervisors.items():
        if not hypervisor.cell.on:
            (rig.folder / f"virsh-{name}").unlink(missing_ok=True)
            continue
        virsh = [needs.program("virsh"), "--connect", "qemu:///system"]
        _script(rig.folder / f"virsh-{name}", [*hypervisor.cell.entering(), *virsh])


def _script(path: Path, words: list[str]) -> None:
    quoted = " ".join(f"'{word}'" for word in words)
    path.write_text(f'#!/bin/sh\nexec {quoted} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
