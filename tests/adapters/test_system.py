"""The clock and the ids of the machine."""

from __future__ import annotations

import re

from forewarn.adapters.system import RandomIds, SystemClock
from forewarn.core.model import DAY_MS

A_DAY_IN_2024_MS = 1_704_067_200_000


def test_event_ids_are_upper_case_version_4_guids_and_never_repeat() -> None:
    """Contract 1.5: GUID, 8-4-4-4-12, upper case."""
    ids = RandomIds()
    made = [ids.event_id() for _ in range(1_000)]
    shape = re.compile(r"[0-9A-F]{8}-[0-9A-F]{4}-4[0-9A-F]{3}-[89AB][0-9A-F]{3}-[0-9A-F]{12}")
    assert all(shape.fullmatch(event_id) for event_id in made)
    assert len(set(made)) == len(made)


def test_wall_time_is_utc_in_milliseconds() -> None:
    now_ms = SystemClock().now_ms()
    assert A_DAY_IN_2024_MS < now_ms < A_DAY_IN_2024_MS + 100 * 365 * DAY_MS


def test_monotonic_time_never_goes_back() -> None:
    clock = SystemClock()
    readings = [clock.monotonic_ms() for _ in range(10_000)]
    assert readings == sorted(readings)
