"""The clocks of tests: those that a test turns, and one that runs. No test lives here."""

from __future__ import annotations

from forewarn.adapters.system import SystemClock

START_MS = 1_772_532_000_000  # 2026-03-03T10:00:00Z
MONOTONIC_START_MS = 1_000_000


class ManualClock:
    """`ports.Clock` that a test turns by hand.

    `pass_ms` moves wall and monotonic time together. A test that steps the wall clock sets `wall`.
    """

    def __init__(self, wall: int = START_MS, monotonic: int = MONOTONIC_START_MS) -> None:
        self.wall = wall
        self.monotonic = monotonic

    def now_ms(self) -> int:
        return self.wall

    def monotonic_ms(self) -> int:
        return self.monotonic

    def pass_ms(self, ms: int) -> None:
        self.wall += ms
        self.monotonic += ms


class RestlessClock(ManualClock):
    """Time passes whenever a caller looks at it: everything takes a while."""

    def __init__(self, each_look_ms: int = 1) -> None:
        super().__init__()
        self._each_look_ms = each_look_ms

    def monotonic_ms(self) -> int:
        self.pass_ms(self._each_look_ms)
        return super().monotonic_ms()


class MonotonicClock(ManualClock):
    """The machine's clock, as a test turns it, for code that must not ask for its wall time."""

    def now_ms(self) -> int:
        raise AssertionError("the wall time of the machine was asked for")


class RunningClock(SystemClock):
    """The machine's clock. A test turns it ahead, or steps its wall time alone by `step_ms`."""

    def __init__(self, *, step_ms: int = 0) -> None:
        self.step_ms = step_ms
        self.asked = 0
        self._ahead_ms = 0

    def now_ms(self) -> int:
        self.asked += 1
        return super().now_ms() + self._ahead_ms + self.step_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self._ahead_ms

    def pass_ms(self, ms: int) -> None:
        self._ahead_ms += ms
