"""Lengths of time are read as people write them, and written as they are read."""

from __future__ import annotations

import pytest

from forewarn_guest.durations import DURATION_S_MAX, in_words, read_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5_400),
        ("1d2h3m4s", 93_784),
        ("0.5s", 0.5),
        ("0s", 0),
        ("7d", DURATION_S_MAX),
    ],
)
def test_a_text_is_seconds(text: str, seconds: float) -> None:
    assert read_seconds(text) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "5",
        "5 m",
        "m",
        "30m1h",
        "-5s",
        "1e3s",
        "1.5h",
        "5M",
        "\u0665s",
        "8d",
        "9" * 40 + "s",
        5,
        1.5,
        True,
        None,
        ["5s"],
    ],
)
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"^must be"):
        read_seconds(value)


@pytest.mark.parametrize("text", ["0s", "0.5s", "1m", "1m1s", "1h30m", "2d", "1.25s", "1h0.1s"])
def test_what_is_written_is_read_again(text: str) -> None:
    assert in_words(read_seconds(text)) == text
