"""The time of the rig's control plane: it runs as fast as the rig wants, and never goes back.

The rig writes into a small file from which instant on the clock runs how fast; control reads it.
So a notice of fifteen minutes passes in seconds, what is done to a VM takes the time it takes, and
a control that is killed and started again goes on where the clock is.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from pathlib import Path

_FORMAT = struct.Struct("<qqq")


@dataclass(frozen=True, slots=True)
class Stretch:
    """From `real_ms` on (monotonic), control's clock goes on from `wall_ms` at `speed`."""

    real_ms: int
    wall_ms: int
    speed: int

    def wall_at(self, real_ms: int) -> int:
        return self.wall_ms + (real_ms - self.real_ms) * self.speed


def _real_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class ControlTime:
    """The rig's hand on the clock. Remembers every stretch, to tell afterwards when things were."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stretches = [Stretch(_real_ms(), time.time_ns() // 1_000_000, 1)]
        self._write()

    def run(self, speed: int) -> None:
        """From now on, so many times as fast as time itself."""
        now = _real_ms()
        last = self._stretches[-1]
        if last.speed != speed:
            self._stretches.append(Stretch(now, last.wall_at(now), speed))
            self._write()

    @property
    def speed(self) -> int:
        return self._stretches[-1].speed

    def now_ms(self) -> int:
        return self._stretches[-1].wall_at(_real_ms())

    def at_ms(self, at_s: float) -> int:
        """What control's clock showed at an instant of this machine's monotonic clock."""
        real_ms = int(at_s * 1000)
        fitting = [stretch for stretch in self._stretches if stretch.real_ms <= real_ms]
        return (fitting[-1] if fitting else self._stretches[0]).wall_at(real_ms)

    def when_s(self, wall_ms: int) -> float:
        """The instant of this machine's monotonic clock at which control's showed a time."""
        fitting = [stretch for stretch in self._stretches if stretch.wall_ms <= wall_ms]
        stretch = fitting[-1] if fitting else self._stretches[0]
        return (stretch.real_ms + (wall_ms - stretch.wall_ms) / stretch.speed) / 1000

    def _write(self) -> None:
        last = self._stretches[-1]
        beside = self.path.with_suffix(".new")
        beside.write_bytes(_FORMAT.pack(last.real_ms, last.wall_ms, last.speed))
        beside.replace(self.path)


class FollowedClock:
    """`ports.Clock` in the process of control: what the rig has written is the time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = (0, 0)
        self._stretch = Stretch(0, 0, 1)
        self._look()
        self._began_ms = self._stretch.wall_at(_real_ms())

    def _look(self) -> None:
        """Each stretch is a file of its own under the same name."""
        about = self._path.stat()
        file = about.st_ino, about.st_mtime_ns
        if file != self._file:
            self._stretch = Stretch(*_FORMAT.unpack(self._path.read_bytes()))
            self._file = file

    def now_ms(self) -> int:
        """UTC wall time of the rig."""
        self._look()
        return self._stretch.wall_at(_real_ms())

    def monotonic_ms(self) -> int:
        """Runs with the wall clock, so that a change of speed is no step."""
        return self.now_ms() - self._began_ms
