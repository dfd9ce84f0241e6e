"""What time control has, from what was heard and the time since then."""

from __future__ import annotations

from forewarn.host.control_clock import STEP_MS, WAY_MS_MAX, ControlClock

WALL_MS = 1_772_532_000_000


def heard(time: ControlClock, wall_ms: int, asked_ms: int, heard_ms: int) -> None:
    time.heard(wall_ms, asked_monotonic_ms=asked_ms, heard_monotonic_ms=heard_ms)


def test_nothing_is_known_before_control_was_heard() -> None:
    time = ControlClock()

    assert not time.known
    assert time.now_ms(5_000) == 0


def test_time_goes_on_with_the_monotonic_clock() -> None:
    time = ControlClock()
    heard(time, WALL_MS, 1_000, 1_000)

    assert time.known
    assert time.now_ms(1_000) == WALL_MS
    assert time.now_ms(3_601_000) == WALL_MS + 3_600_000


def test_half_of_the_way_is_counted() -> None:
    time = ControlClock()
    heard(time, WALL_MS, 1_000, 1_040)

    assert time.now_ms(1_040) == WALL_MS + 20


def test_a_long_wait_for_an_answer_is_not_taken_for_a_long_way() -> None:
    time = ControlClock()
    heard(time, WALL_MS, 0, 25_000)

    assert time.now_ms(25_000) == WALL_MS + WAY_MS_MAX


def test_a_slow_answer_does_not_blur_what_a_quick_one_said() -> None:
    time = ControlClock()
    heard(time, WALL_MS, 1_000, 1_004)
    heard(time, WALL_MS + 9_000, 1_004, 11_003)

    assert abs(time.now_ms(11_003) - (WALL_MS + 10_001)) <= 2
    assert time.steps == 0


def test_a_small_correction_does_not_take_time_back() -> None:
    time = ControlClock()
    heard(time, WALL_MS, 0, 400)
    told = time.now_ms(400)
    heard(time, WALL_MS + 10, 408, 410)  # says that the first answer was on its way for long

    later = time.now_ms(411)
    assert told <= later
    assert time.now_ms(411 + STEP_MS) > later


def test_a_clock_of_control_that_was_set_back_is_followed() -> None:
    time = ControlClock()
    heard(time, WALL_MS, 1_000, 1_002)
    time.now_ms(1_002)
    heard(time, WALL_MS - 3_600_000, 2_000, 2_002)

    assert time.now_ms(2_002) == WALL_MS - 3_600_000 + 1
    assert time.steps == 1


def test_a_clock_of_control_that_was_set_ahead_or_runs_fast_is_followed() -> None:
    time = ControlClock()
    for second in range(10):
        at_ms = second * 1_000
        heard(time, WALL_MS + second * 30_000, at_ms, at_ms + 2)

    assert time.now_ms(9_002) == WALL_MS + 270_000 + 1


def test_drift_between_two_good_clocks_is_no_step() -> None:
    time = ControlClock()
    for minute in range(60):
        at_ms = minute * 60_000
        heard(time, WALL_MS + at_ms + minute * 3, at_ms, at_ms + 2)  # 50 in a million

    assert time.steps == 0
    assert abs(time.now_ms(59 * 60_000 + 2) - (WALL_MS + 59 * 60_000 + 59 * 3)) < 20
