"""The wall clock of control, as a host can know it: what was heard, plus the time since then.

Pure: the host's monotonic time comes in as an argument, and its own wall clock is never asked. So
setting the clock of one host changes nothing for the guests of that host.
"""

from __future__ import annotations

from msgspec import Struct

# Two good clocks drift apart by less than this: one millisecond in ten seconds.
DRIFT_MS_PER_S = 0.1
# What is told does not go back for a correction up to here: it stands until it is right again.
# Beyond it, the clock of control itself was set.
STEP_MS = 2_000
# An answer is written when it is sent: however long it was waited for, its way took less than this.
WAY_MS_MAX = 500


class _Bounds(Struct, frozen=True):
    """Between what control's clock minus our monotonic one must lie, known at `at_ms` of ours."""

    low_ms: float
    high_ms: float
    at_ms: int

    def at(self, monotonic_ms: int) -> _Bounds:
        """The same, later: the longer ago, the less is known."""
        slack_ms = max(0, monotonic_ms - self.at_ms) / 1_000 * DRIFT_MS_PER_S
        return _Bounds(self.low_ms - slack_ms, self.high_ms + slack_ms, monotonic_ms)


class ControlClock:
    """What time control has. Unknown until control was heard once."""

    def __init__(self) -> None:
        self._bounds: _Bounds | None = None
        self._told_ms = 0
        self.steps = 0

    @property
    def known(self) -> bool:
        """True once control was heard."""
        return self._bounds is not None

    def heard(self, now_ms: int, *, asked_monotonic_ms: int, heard_monotonic_ms: int) -> None:
        """Control wrote `now_ms` on an answer, some time between the question and its arrival.

        A quick answer narrows what is known; a slow one, such as that of a long poll, does not
        widen it. One that contradicts what is known means that control's clock was set.
        """
        heard = _Bounds(
            now_ms - heard_monotonic_ms, now_ms - asked_monotonic_ms, heard_monotonic_ms
        )
        if self._bounds is None:
            self._bounds = heard
            return
        known = self._bounds.at(heard_monotonic_ms)
        low_ms = max(known.low_ms, heard.low_ms)
        high_ms = min(known.high_ms, heard.high_ms)
        if low_ms > high_ms:
            self.steps += 1
            self._bounds = heard
        else:
            self._bounds = _Bounds(low_ms, high_ms, heard_monotonic_ms)

    def now_ms(self, monotonic_ms: int) -> int:
        """The wall time of control, as well as it is known; 0 before anything was heard."""
        if self._bounds is None:
            return 0
        low_ms, high_ms = self._bounds.low_ms, self._bounds.high_ms
        now_ms = round(monotonic_ms + min((low_ms + high_ms) / 2, low_ms + WAY_MS_MAX))
        if now_ms < self._told_ms and self._told_ms - now_ms <= STEP_MS:
            return self._told_ms
        self._told_ms = now_ms
        return now_ms
