"""How long the VM stood still, as far as one can tell from inside it.

A beat every quarter of a second reads three clocks. What a Freeze does to them depends on the
hypervisor: either the clocks go on and only the process does not run (a gap in the beat), or the
clocks stand still with the VM and the wall clock is set right afterwards (it jumps ahead of the
monotonic one). Both are measured, and told apart. Judging is pure; beating is not.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Callable

from forewarn_guest.http1 import Bell

BEAT_S = 0.25
# A busy machine is late by tenths of a second; a clock that is slewed, by 0.1 s in a second at
# most. What is less than this is no pause.
GAP_S_LEAST = 0.5
JUMP_S_LEAST = 0.5


@dataclass(frozen=True)
class Clocks:
    """Three clocks at one instant, in seconds. `boot_s` also counts while the VM is suspended."""

    monotonic_s: float
    wall_s: float
    boot_s: float | None = None


@dataclass(frozen=True)
class Pause:
    """One time that the VM, or at least this process, stood still.

    `gap_s` is for how long the process did not run while the clocks went on. `jump_s` is how far
    the wall clock was set ahead of the monotonic one: the VM stood still with its clocks, or
    a person or a program set the time. `suspended_s` is how long the VM's own kernel says that it
    slept.
    """

    gap_s: float = 0.0
    jump_s: float = 0.0
    suspended_s: float = 0.0

    @property
    def seconds(self) -> float:
        """For how long it stood still: what the clocks ran through, and what they missed."""
        return self.gap_s + max(self.jump_s, self.suspended_s)

    @property
    def how(self) -> str:
        """gap, jump or suspended: what shows it most."""
        if self.gap_s >= max(self.jump_s, self.suspended_s):
            return "gap"
        return "suspended" if self.suspended_s else "jump"

    def to_json(self) -> dict[str, Any]:
        """The detail of its fact."""
        return {
            "how": self.how,
            "seconds": round(self.seconds, 3),
            "gap_s": round(self.gap_s, 3),
            "jump_s": round(self.jump_s, 3),
            "suspended_s": round(self.suspended_s, 3),
        }


def judge(before: Clocks, after: Clocks, beat_s: float = BEAT_S) -> Pause | None:
    """The pause between two beats that were to be `beat_s` apart; None if there was none.

    A wall clock that was set back shows no pause: nothing that stands still makes it go back.
    """
    ran_s = after.monotonic_s - before.monotonic_s
    gap_s = ran_s - beat_s
    jump_s = after.wall_s - before.wall_s - ran_s
    suspended_s = 0.0
    if before.boot_s is not None and after.boot_s is not None:
        suspended_s = after.boot_s - before.boot_s - ran_s
    found = Pause(
        gap_s=gap_s if gap_s >= GAP_S_LEAST else 0.0,
        jump_s=jump_s if jump_s >= JUMP_S_LEAST else 0.0,
        suspended_s=suspended_s if suspended_s >= JUMP_S_LEAST else 0.0,
    )
    return found if found.seconds else None


def read_clocks() -> Clocks:
    """The clocks now. `boot_s` is None where the system has no clock that counts suspension.

    A pause between two of the readings would be seen as a jump that never was, so readings that
    are apart are taken again.
    """
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    while True:
        began_s = time.monotonic()
        wall_s = time.time()
        boot_s = None if boot is None else time.clock_gettime(boot)
        if time.monotonic() - began_s < GAP_S_LEAST / 2:
            return Clocks(began_s, wall_s, boot_s)


def detect(bell: Bell, found: Callable[[Pause], None]) -> None:
    """Beat until the bell is rung, and hand over every pause.

    The bell waits by a span of time and not until an hour of the wall clock, as locks do on old
    Pythons, so a clock that is set cannot stop the beat.
    """
    before = read_clocks()
    while not bell.wait(BEAT_S):
        after = read_clocks()
        pause = judge(before, after)
        if pause is not None:
            found(pause)
        before = after
