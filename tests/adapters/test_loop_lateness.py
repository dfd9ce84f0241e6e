"""The lateness of the event loop, as it is counted."""

from __future__ import annotations

import asyncio

import pytest

from forewarn.adapters.loop_lateness import TICK_S, TICKS_MISSED_MAX, WATCHED_S, LoopLateness
from forewarn.metrics import Exposition


def counts(lateness: LoopLateness) -> dict[str, float]:
    """What /metrics says: how many ticks were late by at most so much, and the sum."""
    shown = Exposition()
    shown.add(lateness)
    found = {}
    for line in shown.text().decode().splitlines():
        if line.startswith("forewarn_loop_lateness_seconds"):
            name, _, value = line.rpartition(" ")
            found[name.removeprefix("forewarn_loop_lateness_seconds_")] = float(value)
    return found


def test_a_tick_in_time_is_counted_once() -> None:
    lateness = LoopLateness()
    lateness.ticked(0.0004)
    lateness.ticked(-0.001)
    found = counts(lateness)
    assert found['bucket{le="0.001"}'] == found['bucket{le="+Inf"}'] == 2
    assert found["sum"] == pytest.approx(0.0004)


def test_a_late_tick_counts_for_all_that_it_kept_from_coming() -> None:
    lateness = LoopLateness()
    lateness.ticked(0.105)
    found = counts(lateness)
    assert found["count"] == 11
    assert found['bucket{le="0.01"}'] == 1
    assert found['bucket{le="0.05"}'] == 5
    assert found['bucket{le="0.1"}'] == 10
    assert found['bucket{le="0.2"}'] == 11


def test_a_day_of_standing_still_is_counted_in_a_moment() -> None:
    lateness = LoopLateness()
    lateness.ticked(86_400.0)
    assert counts(lateness)["count"] == 1 + TICKS_MISSED_MAX


def test_a_loop_that_stands_still_is_seen_and_the_timer_is_fine_while_somebody_looks() -> None:
    now_s = 100.0
    asked_s: list[float] = []

    async def go() -> dict[str, float]:
        nonlocal now_s
        lateness = LoopLateness(lambda: now_s)
        loop = asyncio.get_running_loop()
        later = loop.call_later

        def at_once(after_s: float, act: object, *args: object) -> asyncio.TimerHandle:
            nonlocal now_s
            asked_s.append(round(after_s, 3))
            now_s += after_s + (0.03 if len(asked_s) == 3 else 0.0)
            return later(0, act, *args)  # type: ignore[arg-type]

        loop.call_later = at_once  # type: ignore[method-assign,assignment]
        running = loop.create_task(lateness.run())
        while len(asked_s) < 2:  # noqa: ASYNC110 - one turn of the loop after the other
            await asyncio.sleep(0)
        counts(lateness)
        while len(asked_s) < 8:  # noqa: ASYNC110 - one turn of the loop after the other
            await asyncio.sleep(0)
        now_s += WATCHED_S
        while len(asked_s) < 10:  # noqa: ASYNC110 - one turn of the loop after the other
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return counts(lateness)

    found = asyncio.run(go())
    assert asked_s[:2] == [1.0, 1.0]
    assert asked_s[2:8] == [TICK_S] * 6
    assert asked_s[-1] == 1.0
    assert found['bucket{le="0.05"}'] - found['bucket{le="0.02"}'] >= 1
