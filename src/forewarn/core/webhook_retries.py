"""What to do next with a webhook, by what its receiver has answered. Pure: it is told the time.

How long it fails is counted in the time between tries, not by the clock: neither a step of the
clock nor a night in which the service was off gives a receiver up.
"""

from __future__ import annotations

from http import HTTPStatus

from msgspec import Struct

from forewarn.core.model import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

RETRY_MS = (5 * SECOND_MS, 30 * SECOND_MS, 2 * MINUTE_MS, 10 * MINUTE_MS)
RETRY_EVERY_MS = 30 * MINUTE_MS  # after those, more or less
SPREAD = 0.2  # so that many that have failed together do not come together
RETRY_AFTER_MS_MAX = 6 * HOUR_MS  # of what a receiver may ask for
GIVE_UP_MS = 3 * DAY_MS
ANSWER_BYTES_MAX = 4_096  # of the body, for admins to look at


class ReceiverAnswer(Struct, frozen=True, kw_only=True):
    """What came back: a status, or 0 and the `problem` for which there is none.

    `retry_after_ms` is what the receiver asks for; `body` is the beginning of what it says.
    """

    status: int = 0
    problem: str = ""
    retry_after_ms: int | None = None
    body: bytes = b""
    took_ms: int = 0
    address: str = ""

    @property
    def taken(self) -> bool:
        """Whether the receiver has what it was sent."""
        return 200 <= self.status < 300

    @property
    def words(self) -> str:
        """What came back, in a few words."""
        if not self.status:
            return self.problem or "no answer"
        if 300 <= self.status < 400:
            return f"answered {self.status}; redirects are not followed"
        return f"answered {self.status}"


class Streak(Struct, frozen=True, kw_only=True):
    """How often it has failed since it was well, and for how long it was tried in all."""

    failures: int = 0
    failing_ms: int = 0


class GoOn(Struct, frozen=True):
    """The receiver has it: go on with what follows."""


class TryAgain(Struct, frozen=True, kw_only=True):
    """Send the same again after so long."""

    streak: Streak
    wait_ms: int
    why: str


class GiveUp(Struct, frozen=True, kw_only=True):
    """Send nothing any more until an admin says so."""

    streak: Streak
    why: str


Next = GoOn | TryAgain | GiveUp


def after(streak: Streak, answer: ReceiverAnswer, *, waited_ms: int, chance: float) -> Next:
    """What to do next. `waited_ms` is the time since the last try that failed, 0 for the first.

    `chance`, from 0 to 1, spreads what is tried every 30 minutes.
    """
    if answer.taken:
        return GoOn()
    failed = Streak(failures=streak.failures + 1, failing_ms=streak.failing_ms + max(0, waited_ms))
    if answer.status == HTTPStatus.GONE:
        return GiveUp(streak=failed, why="its receiver is gone (410)")
    if failed.failing_ms >= GIVE_UP_MS:
        days = GIVE_UP_MS // DAY_MS
        return GiveUp(streak=failed, why=f"{answer.words}, {days} days long")
    asked_ms = min(answer.retry_after_ms or 0, RETRY_AFTER_MS_MAX)
    wait_ms = max(_scheduled_ms(failed.failures, chance), asked_ms)
    return TryAgain(streak=failed, wait_ms=wait_ms, why=answer.words)


def _scheduled_ms(failures: int, chance: float) -> int:
    if failures <= len(RETRY_MS):
        return RETRY_MS[failures - 1]
    return round(RETRY_EVERY_MS * (1 - SPREAD + 2 * SPREAD * chance))
