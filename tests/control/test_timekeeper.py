"""Steps of the wall clock are noticed, told until they were accounted for, and told exactly."""

from __future__ import annotations

import pytest

from forewarn.control.timekeeper import (
    STALL_NOTICED_FROM_MS,
    STEP_NOTICED_FROM_MS,
    Timekeeper,
)
from support.clock import ManualClock


def test_time_that_merely_passes_is_no_step() -> None:
    clock = ManualClock()
    timekeeper = Timekeeper(clock)
    clock.pass_ms(10_000_000)
    reading = timekeeper.read()
    assert (reading.now_ms, reading.monotonic_ms, reading.stepped_ms) == (
        clock.wall,
        clock.monotonic,
        0,
    )


@pytest.mark.parametrize("direction", [1, -1])
def test_a_step_of_more_than_two_seconds_is_told_exactly(direction: int) -> None:
    clock = ManualClock()
    timekeeper = Timekeeper(clock)
    clock.wall += direction * STEP_NOTICED_FROM_MS
    assert timekeeper.read().stepped_ms == 0
    clock.wall += direction
    assert timekeeper.read().stepped_ms == direction * (STEP_NOTICED_FROM_MS + 1)


def test_many_small_steps_are_noticed_as_surely_as_a_large_one() -> None:
    clock = ManualClock()
    timekeeper = Timekeeper(clock)
    told = 0
    for _ in range(100):
        clock.wall += 1_000
        reading = timekeeper.read()
        timekeeper.accounted(reading)
        told += reading.stepped_ms
    assert abs(told - 100_000) <= STEP_NOTICED_FROM_MS


def test_a_step_is_told_again_until_it_was_accounted_for() -> None:
    clock = ManualClock()
    timekeeper = Timekeeper(clock)
    clock.wall += 60_000
    first = timekeeper.read()
    clock.wall += 5_000
    second = timekeeper.read()
    assert (first.stepped_ms, second.stepped_ms) == (60_000, 65_000)
    timekeeper.accounted(second)
    assert timekeeper.read().stepped_ms == 0


def test_a_loop_that_beats_is_no_standstill() -> None:
    clock = ManualClock()
    timekeeper = Timekeeper(clock)
    clock.pass_ms(100_000)
    assert timekeeper.read().stalled_ms == 0, "nobody beats yet"
    for _ in range(100):
        timekeeper.pulse()
        clock.pass_ms(STALL_NOTICED_FROM_MS)
        assert timekeeper.read().stalled_ms == 0


@pytest.mark.parametrize("beats_first", [True, False])
def test_a_standstill_is_told_until_it_was_accounted_for(*, beats_first: bool) -> None:
    clock = ManualClock()
    timekeeper = Timekeeper(clock)
    timekeeper.pulse()
    clock.pass_ms(14_000)
    if beats_first:  # the loop wakes up before the writer looks at the time
        timekeeper.pulse()
    assert timekeeper.read().stalled_ms == 14_000
    timekeeper.pulse()
    reading = timekeeper.read()
    assert reading.stalled_ms == 14_000
    timekeeper.accounted(reading)
    assert timekeeper.read().stalled_ms == 0
    timekeeper.pulse()
    assert timekeeper.read().stalled_ms == 0


def test_a_clock_that_runs_faster_than_the_pulse_beats_is_no_standstill_but_one_is_told() -> None:
    clock, real = ManualClock(), ManualClock()
    timekeeper = Timekeeper(clock, pulse_clock=real)
    timekeeper.pulse()
    for _ in range(100):
        clock.pass_ms(30_000)
        real.pass_ms(250)
        assert timekeeper.read().stalled_ms == 0
        timekeeper.pulse()
    clock.pass_ms(500_000)
    real.pass_ms(STALL_NOTICED_FROM_MS + 1)
    assert timekeeper.read().stalled_ms == 500_000
