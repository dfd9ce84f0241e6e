"""When a webhook is tried again, and when it is given up."""

from __future__ import annotations

import random

import pytest

from forewarn.core.model import HOUR_MS, MINUTE_MS
from forewarn.core.webhook_retries import (
    GIVE_UP_MS,
    RETRY_AFTER_MS_MAX,
    RETRY_EVERY_MS,
    RETRY_MS,
    GiveUp,
    GoOn,
    ReceiverAnswer,
    Streak,
    TryAgain,
    after,
)

FAILED = ReceiverAnswer(status=500)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_answer_of_success_is_taken(status: int) -> None:
    step = after(Streak(failures=3), ReceiverAnswer(status=status), waited_ms=5, chance=0.5)
    assert step == GoOn()


@pytest.mark.parametrize("status", [0, 100, 199, 300, 302, 400, 401, 404, 429, 500, 503])
def test_everything_else_is_sent_again(status: int) -> None:
    step = after(Streak(), ReceiverAnswer(status=status), waited_ms=0, chance=0.5)
    assert isinstance(step, TryAgain)
    assert step.streak == Streak(failures=1, failing_ms=0)


def test_the_schedule_is_that_of_the_page() -> None:
    waits = [
        step.wait_ms
        for failures in range(6)
        if isinstance(
            step := after(Streak(failures=failures), FAILED, waited_ms=0, chance=0.5), TryAgain
        )
    ]
    assert waits == [*RETRY_MS, RETRY_EVERY_MS, RETRY_EVERY_MS]
    assert list(RETRY_MS) == [5_000, 30_000, 120_000, 600_000]


@pytest.mark.parametrize(("chance", "minutes"), [(0.0, 24), (0.5, 30), (1.0, 36)])
def test_what_is_tried_every_half_hour_is_spread(chance: float, minutes: int) -> None:
    step = after(Streak(failures=9), FAILED, waited_ms=0, chance=chance)
    assert isinstance(step, TryAgain)
    assert step.wait_ms == minutes * MINUTE_MS


def test_gone_gives_up_at_the_first_word() -> None:
    assert isinstance(after(Streak(), ReceiverAnswer(status=410), waited_ms=0, chance=0.5), GiveUp)


def test_a_wait_that_is_asked_for_is_never_shorter_than_ours_nor_without_end() -> None:
    for asked_ms, waits_ms in ((0, 5_000), (1, 5_000), (HOUR_MS, HOUR_MS)):
        answer = ReceiverAnswer(status=503, retry_after_ms=asked_ms)
        step = after(Streak(), answer, waited_ms=0, chance=0.5)
        assert isinstance(step, TryAgain)
        assert step.wait_ms == waits_ms
    answer = ReceiverAnswer(status=503, retry_after_ms=10**15)
    step = after(Streak(), answer, waited_ms=0, chance=0.5)
    assert isinstance(step, TryAgain)
    assert step.wait_ms == RETRY_AFTER_MS_MAX


@pytest.mark.parametrize("seed", range(50))
def test_whatever_comes_back_it_ends_or_goes_on_in_time(seed: int) -> None:
    """A receiver that never takes it is given up between three days of trying and one wait more."""
    chance = random.Random(seed)
    streak, tried_ms, waited_ms = Streak(), 0, 0
    while True:
        answer = ReceiverAnswer(
            status=chance.choice([0, 100, 302, 404, 429, 500, 503]),
            retry_after_ms=chance.choice([None, None, 0, 1_000, 10**9, 10**15]),
        )
        step = after(streak, answer, waited_ms=waited_ms, chance=chance.random())
        assert isinstance(step, TryAgain | GiveUp)
        assert step.streak.failures == streak.failures + 1
        assert step.streak.failing_ms == tried_ms
        if isinstance(step, GiveUp):
            assert tried_ms >= GIVE_UP_MS
            assert tried_ms - waited_ms < GIVE_UP_MS
            return
        assert tried_ms < GIVE_UP_MS
        assert RETRY_MS[0] <= step.wait_ms <= RETRY_AFTER_MS_MAX
        was_off = chance.random() < 0.1  # or a clock went back: nothing is counted
        waited_ms = chance.choice([0, -(10**9)]) if was_off else step.wait_ms
        tried_ms += max(0, waited_ms)
        streak = step.streak
