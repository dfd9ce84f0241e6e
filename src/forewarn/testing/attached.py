"""`cloud.vm(NAME).attach(pid)`: a process that feels what happens to its VM.

Signals only: SIGSTOP and SIGCONT around a Freeze, SIGKILL when the VM goes down. What is attached
is the caller's; only what a command started here is ended here.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

from forewarn.core.errors import Conflict, Invalid
from forewarn.core.suggestions import shown
from forewarn.emulator.impacts import Impact, ImpactKind
from forewarn.testing.background import Background
from forewarn.testing.literals import EventTypeName
from forewarn.testing.tracebacks import for_refusals
from forewarn.testing.values import HasPid, ImpactFelt, Restart, time_of
from forewarn.wiring.simulate import Emulator

FELT_S_MAX = 5.0  # until a signal has done its work; the kernel needs microseconds
LOOK_EVERY_S = 0.001
__tracebackhide__ = for_refusals


class AttachedProcess:
    """A process that feels what happens to its VM, until `detach` or the end of the cloud.

    `pid` is the process at present: another one after a restart. `impacts` is what it has felt.
    """

    def __init__(
        self, background: Background, vm: str, pid: int, *, group: bool, restart: Restart | None
    ) -> None:
        self._background = background
        self._group = group
        self._restart = restart
        self._ours: subprocess.Popen[bytes] | None = None  # what our own restart has started
        self._stopped = False
        self._impacts: list[ImpactFelt] = []
        self.vm = vm
        self.pid = pid
        self._handle: int | None = _handle(pid, group=group)

    def __repr__(self) -> str:
        return f"<AttachedProcess {self.pid} of {self.vm}>"

    @property
    def impacts(self) -> tuple[ImpactFelt, ...]:
        """What has happened to it so far, oldest first."""
        return tuple(self._impacts)

    def detach(self) -> None:
        """It feels nothing any more; if it is frozen, it goes on. A second time is no mistake."""

        async def work(emulator: Emulator) -> None:
            emulator.impacts.remove(self.feel)

        self._background.call(work)
        self.release()

    def release(self) -> None:
        """Leave the process as it would be without us: thawed, and ended if we started it."""
        if self._stopped:
            self._thaw()
        if self._ours is not None:
            self._signal(signal.SIGKILL)
            self._ours.wait()
            self._ours = None
        self._close()

    async def feel(self, impact: Impact) -> str | None:
        """`emulator.impacts.Receiver`."""
        if impact.vm != self.vm:
            return None
        return await asyncio.to_thread(self._feel, impact)

    def _feel(self, impact: Impact) -> str | None:
        if impact.kind is ImpactKind.START and self._restart is None:
            return None
        if self._handle is None and impact.kind is not ImpactKind.START:
            return None  # it is down already
        wrong = {
            ImpactKind.FREEZE: self._freeze,
            ImpactKind.THAW: self._thaw,
            ImpactKind.KILL: self._kill,
            ImpactKind.START: self._start,
        }[impact.kind]()
        self._impacts.append(
            ImpactFelt(
                impact=impact.kind.value,
                pid=self.pid,
                event_id=impact.event_id,
                event_type=cast("EventTypeName", impact.event_type),
                at=time_of(impact.at_ms),
                failed=wrong or "",
                lose_disk=impact.lose_disk,
            )
        )
        return wrong

    def _freeze(self) -> str | None:
        self._stopped = True
        if not self._signal(signal.SIGSTOP):
            return self._gone()
        _until(lambda: _letter(self.pid) in ("T", "Z", ""))
        return None

    def _thaw(self) -> str | None:
        self._stopped = False
        return None if self._signal(signal.SIGCONT) else self._gone()

    def _kill(self) -> str | None:
        self._stopped = False
        found = self._signal(signal.SIGKILL)
        if found and self._handle is not None:
            select.select([self._handle], [], [], FELT_S_MAX)  # readable once it has ended
        if self._ours is not None:
            self._ours.wait()
            self._ours = None
        self._close()
        return None if found else self._gone()

    def _start(self) -> str | None:
        restart = self._restart
        if restart is None:
            return None
        try:
            if callable(restart):
                made = restart()
                pid = made if isinstance(made, int) else made.pid
            else:
                self._ours = subprocess.Popen(  # noqa: S603 - the caller's own command
                    list(restart), stdin=subprocess.DEVNULL, start_new_session=True
                )
                pid = self._ours.pid
            self._handle = _handle(pid, group=self._group)
        except Exception as error:  # noqa: BLE001 - the caller's own code; the test is told
            return f"the restart of what runs in {self.vm} failed: {error!r}"
        self.pid = pid
        return None

    def _gone(self) -> str:
        return f"process {self.pid} of {self.vm} was gone already"

    def _signal(self, number: signal.Signals) -> bool:
        """Send it; False if there is no such process any more. A pid of another is never hit."""
        if self._handle is None:
            return False
        try:
            signal.pidfd_send_signal(self._handle, 0)
            if self._group:
                os.killpg(self.pid, number)
            else:
                signal.pidfd_send_signal(self._handle, number)
        except ProcessLookupError:
            return False
        return True

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def attach(
    background: Background,
    vm: str,
    pid: int | HasPid,
    *,
    group: bool,
    restart: Restart | None,
) -> AttachedProcess:
    """Have a process feel what happens to its VM. Raises Invalid for one that cannot."""
    number = pid if isinstance(pid, int) else pid.pid
    if isinstance(restart, str) or not (
        restart is None or callable(restart) or all(isinstance(word, str) for word in restart)
    ):
        raise Invalid(
            f"restart is {shown(restart)}.",
            'Give a function that starts the app and returns its pid, or words like ["app", "-v"].',
        )
    attached = AttachedProcess(background, vm, number, group=group, restart=restart)

    async def work(emulator: Emulator) -> None:
        emulator.impacts.add(attached.feel)

    background.call(work)
    background.at_end(attached.release)
    return attached


def _handle(pid: int, *, group: bool) -> int:
    """A descriptor of the process, which no later process of that number shares.

    Raises Invalid, or Conflict where there are no such descriptors.
    """
    if not hasattr(os, "pidfd_open"):
        raise Conflict("Processes can be attached on Linux only.", "Signal it in the test itself.")
    if isinstance(pid, bool) or pid <= 1:
        raise Invalid(f"{shown(pid)} is no process.", "Give the pid of the app, or its Popen.")
    if pid == os.getpid():
        raise Invalid(
            "The test cannot be attached: it would freeze or kill itself.",
            "Start the app as a process of its own.",
        )
    try:
        if group and os.getpgid(pid) != pid:
            raise Invalid(
                f"Process {pid} leads no group of its own.",
                "Start it with `start_new_session=True`, or leave out `group`.",
            )
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise Invalid(f"There is no process {pid}.", "Give the pid of one that runs.") from None


def _letter(pid: int) -> str:
    """The state of a process in one letter; empty if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2][:1]
    return ""


def _until(look: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + FELT_S_MAX
    while not look() and time.monotonic() < give_up_s:
        time.sleep(LOOK_EVERY_S)
