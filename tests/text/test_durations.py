"""Durations: what is read, what is written, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from forewarn.core.errors import Invalid
from forewarn.text.durations import DURATION_MS_MAX, duration_text, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("70s", 70_000),
        ("2m", 120_000),
        ("1.5s", 1_500),
        ("250ms", 250),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("1d", 86_400_000),
        ("1d2h3m4s5ms", 93_784_005),
        (" 15m ", 900_000),
        ("0.5h", 1_800_000),
        ("70", 70_000),
        ("0s", 0),
        (70, 70_000),
        (0.1, 100),
        (0, 0),
    ],
)
def test_a_duration_is_read_as_people_write_it(text: str | float, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "soon", "5x", "5M", "-5s", "+5s", "30m1h", "1m1m", "1 h", "s", "1.s", ".5s"),
        *("1e3", "\u0665s", "1" * 100, -1, -0.5, float("nan"), float("inf"), True, None, [1]),
    ],
)
def test_what_is_no_duration_is_refused_with_what_would_be_accepted(text: Any) -> None:
    with pytest.raises(Invalid) as refused:
        parse_duration_ms(text)
    assert "1h30m" in refused.value.accepted


@pytest.mark.parametrize("text", ["-15m", "-1", " -5s", -1, -0.5])
def test_less_than_nothing_is_refused_as_such(text: str | float) -> None:
    with pytest.raises(Invalid, match="is less than nothing"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["3654d", 3_654 * 86_400, "99999999999999999999s", 10**400])
def test_more_than_ten_years_are_refused(text: str | float) -> None:
    with pytest.raises(Invalid, match="too long"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"),
        (250, "250ms"),
        (1_500, "1.5s"),
        (70_000, "1m10s"),
        (60_000, "1m"),
        (61_001, "1m1.001s"),
        (5_400_000, "1h30m"),
        (86_400_000, "1d"),
        (DURATION_MS_MAX, "3653d"),
    ],
)
def test_a_duration_is_written_so_that_it_can_be_read_again(ms: int, text: str) -> None:
    assert duration_text(ms) == text
    assert parse_duration_ms(text) == ms
