"""A place with a /run and control groups of its own, where a real systemd or journald can run.

It is a mount namespace (for a systemd of the system a process namespace too), so nothing of the
machine's own is seen or touched.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from programs import program
from support.guest_steps_world import PATIENCE_S, running
from support.waiting import wait_until

MOUNT = "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/systemd/journal /run/units"
SYSTEMD = "/usr/lib/systemd/systemd"
JOURNALD = "/usr/lib/systemd/systemd-journald"
GROUPS = "mount -t cgroup2 none /sys/fs/cgroup"


def private(script: str) -> list[str]:
    """The command for a script in a mount namespace of its own."""
    unshare = program("unshare")
    return [unshare, "--mount", "--propagation", "private", "sh", "-ec", script]


def refuse_without(script: str, what: str) -> None:
    """Skip the test where this cannot be done."""
    if os.getuid() != 0:
        pytest.skip(f"{what} in a place of its own wants root")
    tried = subprocess.run(
        private(script), capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    if tried.returncode != 0:
        pytest.skip(f"{what} cannot have a place of its own here: {tried.stderr.strip()}")


def entering(pid: int, *, processes: bool = False) -> list[str]:
    """The command that runs another one in the place of a process."""
    nsenter = program("nsenter")
    more = ["--pid", "--net"] if processes else []
    return [nsenter, "--target", str(pid), "--mount", *more, "--"]


def is_there(inside: list[str], path: str) -> bool:
    command = [*inside, "test", "-e", path]
    return (
        subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_S).returncode
        == 0
    )


@contextlib.contextmanager
def own_groups() -> Iterator[str]:
    """The name of a new control group, which is removed with all below it."""
    name = f"forewarn-test-{uuid.uuid4().hex[:12]}"
    possible = f"{MOUNT} && {GROUPS} && test -x {SYSTEMD}"
    refuse_without(f"{possible} && mkdir /sys/fs/cgroup/{name}", "systemd")
    gone = f"cd /sys/fs/cgroup; find {name} -depth -type d -exec rmdir {{}} \\;"

    def is_removed() -> bool:
        remove = private(f"{GROUPS}; {gone}; test ! -e {name}")
        done = subprocess.run(remove, capture_output=True, check=False, timeout=PATIENCE_S)
        return done.returncode == 0

    try:
        yield name
    finally:
        wait_until(is_removed, f"the control group {name} is removed")


def with_units(units: dict[str, str]) -> str:
    """A script that writes unit files."""
    return "\n".join(
        f"printf %s {shlex.quote(text)} > /run/units/{shlex.quote(name)}"
        for name, text in units.items()
    )


@contextlib.contextmanager
def user_systemd(units: dict[str, str], log: Path) -> Iterator[list[str]]:
    """A `systemd --user` with these units; yields the command that runs others beside it."""
    program("systemctl")
    with own_groups() as name, log.open("wb") as said:
        script = f"""{MOUNT}
{GROUPS}
echo $$ > /sys/fs/cgroup/{name}/cgroup.procs
mkdir -p /run/user/0
{with_units(units)}
export XDG_RUNTIME_DIR=/run/user/0 HOME=/run/user/0
export SYSTEMD_UNIT_PATH=/run/units:/usr/lib/systemd/user
exec {SYSTEMD} --user --unit=basic.target --log-target=console"""
        with running(private(script), stdout=said, stderr=said) as process:
            inside = entering(process.pid)
            ready = "/run/user/0/systemd/private"
            wait_until(lambda: is_there(inside, ready), "systemd --user starts")
            yield inside


def systemd_below(pid: int) -> int:
    """The systemd that a process has started, 0 while it is another program or none."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                return int(child)
    return 0


@contextlib.contextmanager
def system_systemd(
    units: dict[str, str], log: Path, *, before: str = "", network: bool = False
) -> Iterator[list[str]]:
    """A systemd as the first process of a process namespace, with these units and no others.

    `before` is a script that makes its place ready; `network` gives it a network of its own.
    """
    program("systemctl")
    own = {"basic.target": "[Unit]\nDefaultDependencies=no\n", **units}
    with own_groups() as name, log.open("wb") as said:
        script = f"""{MOUNT}
{GROUPS}
echo $$ > /sys/fs/cgroup/{name}/cgroup.procs
{with_units(own)}
{before}
export SYSTEMD_UNIT_PATH=/run/units container=forewarn-test
exec unshare --cgroup --uts --ipc --pid {"--net" if network else ""} --kill-child --mount-proc \
  {SYSTEMD} --system --unit=basic.target --log-target=console"""
        with running(private(script), stdout=said, stderr=said) as process:
            wait_until(lambda: systemd_below(process.pid) > 0, "unshare starts systemd")
            first = systemd_below(process.pid)
            try:
                inside = entering(first, processes=True)
                ready = "/run/systemd/private"
                wait_until(lambda: is_there(inside, ready), "systemd starts")
                yield inside
            finally:  # the first process of a namespace takes all others with it
                os.kill(first, signal.SIGKILL)


@contextlib.contextmanager
def journald(log: Path) -> Iterator[list[str]]:
    """A journald that keeps its lines in /run; yields the command that runs others beside it."""
    program("journalctl")
    refuse_without(f"{MOUNT} && test -s /etc/machine-id && test -x {JOURNALD}", "journald")
    script = f"{MOUNT}; mkdir -p /run/log/journal; exec {JOURNALD}"
    with log.open("wb") as said, running(private(script), stdout=said, stderr=said) as process:
        inside = entering(process.pid)
        ready = "/run/systemd/journal/socket"
        wait_until(lambda: is_there(inside, ready), "journald starts")
        yield inside
