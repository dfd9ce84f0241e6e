"""The thaw guard: a process of its own that resumes frozen VMs when the daemon cannot any more.

It is started before the first VM is paused, is told when they must go on, and outlives the daemon,
a kill -9 of it and restarts of libvirt. It resumes what carries the mark of its action and nothing
else; what the daemon has resumed already it finds running. If the daemon dies before it has said
when, the guard thaws at once. Run: `python -m forewarn.adapters.libvirt.thaw_guard URI ACTION-ID`.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import Protocol

from forewarn.adapters.libvirt.blocking_calls import LibvirtSession
from forewarn.adapters.libvirt.connection import LibvirtConnection, open_libvirt
from forewarn.adapters.libvirt.domain_xml import read_mark
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import ActionKind
from forewarn.ports import HypervisorFailed

READY = b"ready\n"
READY_S = 20.0
WORDS_BYTES_MAX = 2_000
TOLD_S = 120.0  # how long the daemon may take from the start of the guard to the first pause
TRY_AGAIN_S = 0.5
TRY_FOR_S = 30 * 60.0
# A libvirt that hung may say that a VM runs, and then do the pause that it was asked for before.
LOOK_ONCE_MORE_S = 2.0


class Guard(Protocol):
    """A process that thaws the VMs even if the daemon dies."""

    def thaw_at(self, monotonic_ms: int) -> None:
        """From now on VMs may be paused, until then. HypervisorFailed if the guard has died."""
        ...

    def dismiss(self) -> None:
        """Let it go; it ends by itself."""
        ...


class ProcessGuard:
    """A guard that stands ready in a process and a session of its own."""

    def __init__(self, uri: str, action_id: str) -> None:
        command = [sys.executable, "-m", "forewarn.adapters.libvirt.thaw_guard", uri, action_id]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, by our own Python
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd="/",
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,
            )
        except OSError as error:
            raise HypervisorFailed(
                f"The thaw guard cannot be started, so nothing is frozen: {error}"
            ) from None
        said = self._first_words()
        if said != READY:
            self.dismiss()
            words = said.decode(errors="replace").strip() or f"it said nothing in {READY_S:g} s"
            raise HypervisorFailed(f"The thaw guard is not ready, so nothing is frozen: {words}")

    def _first_words(self) -> bytes:
        stdout = self._process.stdout
        if stdout is None or not select.select([stdout], [], [], READY_S)[0]:
            return b""
        return os.read(stdout.fileno(), WORDS_BYTES_MAX)

    def thaw_at(self, monotonic_ms: int) -> None:
        stdin = self._process.stdin
        try:
            if stdin is not None:
                stdin.write(b"%d\n" % monotonic_ms)
                stdin.flush()
        except OSError as error:
            raise HypervisorFailed(
                f"The thaw guard has died, so nothing is frozen: {error}"
            ) from None

    def dismiss(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # it has died with unread words in the pipe
        threading.Thread(target=self._process.wait, daemon=True).start()  # no zombie


def start_guard(uri: str, action_id: str) -> Guard:
    """A guard that is ready. It blocks for a moment. HypervisorFailed if there can be none."""
    return ProcessGuard(uri, action_id)


# In the process of the guard.


def thaw(session: LibvirtSession, action_id: str) -> bool:
    """Resume what carries the mark. False if something of it would not go on."""
    all_run = True
    for view in session.domains():
        mark = read_mark(view.live_xml) if view.active else None
        if mark is None or mark.kind is not ActionKind.FREEZE_HOST or mark.ended:
            continue
        if mark.action_id == action_id and view.power is Power.PAUSED:
            session.resume(view.name)
            all_run = False  # looked at once more
    return all_run


async def _thaw_until_done(connection: LibvirtConnection, action_id: str) -> bool:
    """Usually the daemon does it at the same moment, so the first refusal says nothing."""
    give_up_at_s = time.monotonic() + TRY_FOR_S
    refused, said, all_run = 0, "", False
    while time.monotonic() < give_up_at_s:
        try:
            before = all_run
            all_run = await connection.call(lambda s: thaw(s, action_id), what="resume frozen VMs")
            if all_run and before:
                return True
            await asyncio.sleep(LOOK_ONCE_MORE_S if all_run else 0.0)
        except HypervisorFailed as failed:
            refused += 1
            if refused > 1 and str(failed) != said:
                said = str(failed)
                sys.stderr.write(f"thaw guard: {failed}\n")
            await asyncio.sleep(TRY_AGAIN_S)
    return False


def _told_when() -> float:
    """When to thaw, in seconds of the monotonic clock; now if the daemon died before it said."""
    readable, _, _ = select.select([sys.stdin], [], [], TOLD_S)
    line = sys.stdin.readline() if readable else ""
    return int(line) / 1_000 if line.strip().isdigit() else time.monotonic()


async def _guard(uri: str, action_id: str) -> int:
    connection = open_libvirt(uri)
    try:
        try:
            await connection.call(lambda s: s.domains(), what="list the domains")
        except HypervisorFailed as failed:
            sys.stdout.write(f"{failed}\n")
            return 1
        sys.stdout.buffer.write(READY)
        sys.stdout.flush()
        thaw_at_s = await asyncio.get_running_loop().run_in_executor(None, _told_when)
        await asyncio.sleep(max(0.0, thaw_at_s - time.monotonic()))
        return 0 if await _thaw_until_done(connection, action_id) else 1
    finally:
        connection.close()


def main(arguments: list[str]) -> int:
    """Guard one action. 0 if everything of it runs again."""
    if len(arguments) != 2:
        sys.stderr.write("usage: python -m forewarn.adapters.libvirt.thaw_guard URI ACTION-ID\n")
        return 2
    # It ends by itself; a service that is stopped must not leave VMs paused.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return asyncio.run(_guard(arguments[0], arguments[1]))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
