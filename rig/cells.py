"""Cells: one machine of the rig each, made of namespaces (network, mount, UTS, IPC, PID).

The kernel cleans up: a cell's first process dies with the process that made the cell, and with it
everything that runs there, its interfaces and its mounts, also after kill -9 of the rig.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rig.needs import SEARCH_PATH, CannotBuild, program
from rig.waiting import wait_for

START_LIMIT_S = 20.0
STOP_LIMIT_S = 20.0
COMMAND_LIMIT_S = 30.0


class CommandFailed(Exception):  # noqa: N818 - says what is the case
    """A command in a cell failed; the message has its words."""


def children(pid: int) -> list[int]:
    """The processes that a process has started and that still are."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(word) for word in text.split()]


def start_time(pid: int) -> str | None:
    """When a process was started, so that its number is never taken for another's."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()[19]


class Daemon:
    """A process that was started in a cell and stays. `kill` is kill -9, of it and nothing else."""

    def __init__(self, name: str, entering: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.log = log
        self._entering = entering
        found = wait_for(
            f"{name} starts", lambda: children(entering.pid) or self._ended(), within_s=10
        )
        self.pid = found[0] if isinstance(found, list) else 0

    def _ended(self) -> bool | None:
        return True if self._entering.poll() is not None else None

    @property
    def alive(self) -> bool:
        return self._entering.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process itself, if it is there."""
        if self.alive and self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wake()
        self._entering.wait(STOP_LIMIT_S)

    def wake(self) -> None:
        """Let it go on if it was stopped, and nsenter, which stops with what it has started."""
        self._entering.send_signal(signal.SIGCONT)
        self.signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it as an operator would; kill -9 if it does not end."""
        self.signal(signal.SIGTERM)
        try:
            self._entering.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def tail(self, lines: int = 15) -> str:
        """The end of what it has written."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])


class Cell:
    """One machine of the rig. `power_off` is a power failure; `power_on` makes it anew."""

    def __init__(self, name: str, folder: Path, binds: Mapping[Path, str]) -> None:
        self.name = name
        self.folder = folder
        self._binds = dict(binds)
        self._log = folder / f"{name}.cell.log"
        self._unshare: subprocess.Popen[bytes] | None = None
        self._daemons: list[Daemon] = []
        self.pid = 0

    @property
    def on(self) -> bool:
        return self._unshare is not None and self._unshare.poll() is None

    def power_on(self) -> None:
        """Make the namespaces and the mounts. Must be called by a thread that outlives the cell."""
        init = str(Path(__file__).with_name("cell_init.py"))
        binds = [f"{source}:{target}" for source, target in self._binds.items()]
        apart = [program("unshare"), "--net", "--mount", "--uts", "--ipc", "--pid", "--fork"]
        apart += ["--kill-child=KILL", "--"]
        with self._log.open("ab") as errors:
            self._unshare = subprocess.Popen(
                [*dying_with_us(), *apart, sys.executable, "-I", init, self.name, *binds],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(),
                start_new_session=True,  # Ctrl-C at the terminal is for the rig alone
            )
        self._await_ready(self._unshare)
        self.pid = children(self._unshare.pid)[0]

    def _await_ready(self, unshare: subprocess.Popen[bytes]) -> None:
        assert unshare.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(unshare.stdout, selectors.EVENT_READ)
            said = unshare.stdout.readline() if selector.select(START_LIMIT_S) else b""
        unshare.stdout.close()
        if said != b"ready\n":
            self.power_off()
            raise CannotBuild(
                f"The namespaces of {self.name} could not be made; a container needs --privileged "
                f"for that. {self._log.read_text(encoding='utf-8', errors='replace').strip()}"
            )

    def power_off(self) -> None:
        """Everything in the cell is gone at once, as when the plug is pulled."""
        if self._unshare is None:
            return
        for daemon in self._daemons:
            daemon.wake()
        if self.pid:  # its parent waits for it, and so is told when everything in there is gone
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        else:
            self._unshare.kill()
        self._unshare.wait(STOP_LIMIT_S)
        for daemon in self._daemons:
            daemon.kill()
        self._daemons.clear()
        self.pid, self._unshare = 0, None

    def entering(self) -> list[str]:
        """The words before a command that is to run in the cell."""
        at = ["--target", str(self.pid), "--net", "--mount", "--uts", "--ipc", "--pid"]
        return [program("nsenter"), *at, "--"]

    def run(
        self, *words: str, given: str = "", limit_s: float = COMMAND_LIMIT_S, check: bool = True
    ) -> str:
        """The output of a command in the cell. CommandFailed if it fails or takes too long."""
        try:
            done = subprocess.run(
                [*self.entering(), *words],
                input=given,
                capture_output=True,
                text=True,
                timeout=limit_s,
                check=False,
                env=environment(),
            )
        except subprocess.TimeoutExpired as why:
            raise CommandFailed(f"{self.name}: {' '.join(words)}: not in {limit_s:g} s") from why
        if check and done.returncode != 0:
            said = done.stderr.strip() or done.stdout.strip()
            raise CommandFailed(f"{self.name}: {' '.join(words)}: {said}")
        return done.stdout

    def start(self, name: str, words: Sequence[str], *, log: Path, **variables: str) -> Daemon:
        """Start a process that stays, with its output appended to `log`."""
        with log.open("ab") as output:
            entering = subprocess.Popen(
                [*dying_with_us(), *self.entering(), *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environment(), **variables},
                start_new_session=True,
            )
        daemon = Daemon(name, entering, log)
        self._daemons.append(daemon)
        return daemon


def dying_with_us() -> list[str]:
    """The words before a command that the kernel is to kill when this process is gone."""
    return [program("setpriv"), "--pdeathsig", "KILL"]


def environment() -> dict[str, str]:
    """What processes of the rig get: nothing of whoever runs it."""
    return {"PATH": SEARCH_PATH, "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}
