"""Lengths of time as people write them in a configuration and read them at a terminal: `1h30m`."""

from __future__ import annotations

import re

DURATION_S_MAX = 7 * 86_400.0
_CHARS_MAX = 32
_UNIT_S = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_TEXT = re.compile(
    r"(?:(?P<d>[0-9]+)d)?(?:(?P<h>[0-9]+)h)?(?:(?P<m>[0-9]+)m)?(?:(?P<s>[0-9]+(?:\.[0-9]+)?)s)?"
)
ACCEPTS = 'a length of time like "90s", "5m" or "1h30m"'


def read_seconds(value: object) -> float:
    """The seconds of a text; zero is a length of time too. Raises ValueError, "must be ..."."""
    if not isinstance(value, str) or not 0 < len(value) <= _CHARS_MAX:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        unit = ". A number wants its unit" if number else ""
        raise ValueError(f"must be {ACCEPTS}{unit}")
    found = _TEXT.fullmatch(value)
    if found is None:
        raise ValueError(f"must be {ACCEPTS}")
    seconds = sum(float(n) * _UNIT_S[unit] for unit, n in found.groupdict().items() if n)
    if seconds > DURATION_S_MAX:
        raise ValueError(f"must be at most {in_words(DURATION_S_MAX)}")
    return seconds


def in_words(seconds: float) -> str:
    """As `read_seconds` reads it: `1h30m`, `0.5s`, `0s`."""
    parts = []
    rest = round(seconds, 3)
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, _UNIT_S[unit])
        if count:
            parts.append(f"{count:.0f}{unit}")
    if rest or not parts:
        parts.append(f"{rest:.3f}".rstrip("0").rstrip(".") + "s")
    return "".join(parts)


def duration(seconds: float | None) -> str:
    """As a terminal shows it: `5s`, `3m05s`, from an hour on to the minute; `-` for none."""
    if seconds is None:
        return "-"
    sign, whole = ("-", round(-seconds)) if seconds < 0 else ("", round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{sign}{hours}h{minutes:02}m"
    return f"{sign}{minutes}m{rest:02}s" if minutes else f"{sign}{rest}s"
