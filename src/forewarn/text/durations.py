"""Lengths of time as people write them: `70s`, `2m`, `1.5s`, `1h30m`. Text in, text out.

The one place that reads and writes them, for clocks, scenarios, faults and tables alike. No clock
lives here.
"""

from __future__ import annotations

import math
import re

from forewarn.core.errors import Invalid
from forewarn.core.suggestions import shown

# Ten years: longer than anything the emulator plays, and far from where dates end.
DURATION_MS_MAX = 3_653 * 86_400_000
_TEXT_CHARS_MAX = 64

_UNIT_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_NUMBER = r"\d+(?:\.\d+)?"
_TEXT = re.compile("".join(rf"(?:(?P<{unit}>{_NUMBER}){unit}\s*)?" for unit in _UNIT_MS), re.ASCII)
_BARE = re.compile(_NUMBER, re.ASCII)

_ACCEPTED = (
    "Write a number of seconds, or numbers with the units d, h, m, s, ms,"
    " the largest first: 70s, 1.5s, 2m, 1h30m."
)


def parse_duration_ms(text: str | float) -> int:
    """Milliseconds, to the nearest; a number alone is seconds. Zero is a length of time too.

    Raises Invalid for anything else, for less than nothing and for more than ten years.
    """
    ms = _text_ms(text) if isinstance(text, str) else _number_ms(text)
    if ms > DURATION_MS_MAX:
        raise Invalid(
            f"The duration {shown(text)} is too long.",
            f"At most {duration_text(DURATION_MS_MAX)} is accepted.",
        )
    return round(ms)


def duration_text(ms: int) -> str:
    """As `parse_duration_ms` reads it: `1h30m`, `1m10s`, `1.5s`, `250ms`, `0s`."""
    if 0 < ms < _UNIT_MS["s"]:
        return f"{ms}ms"
    parts = []
    rest = ms
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, _UNIT_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if rest or not parts:
        whole, fraction = divmod(rest, _UNIT_MS["s"])
        decimals = f".{fraction:03d}".rstrip("0") if fraction else ""
        parts.append(f"{whole}{decimals}s")
    return "".join(parts)


def span(seconds: float) -> str:
    """A length of time by its two largest units: `14m 32s`, `6d 23h`, `5s`."""
    whole = int(seconds)
    units = []
    for unit in ("d", "h", "m", "s"):
        count, whole = divmod(whole, _UNIT_MS[unit] // _UNIT_MS["s"])
        units.append((count, unit))
    first = next((i for i, (count, _) in enumerate(units) if count), len(units) - 1)
    largest = units[first : first + 2]
    return " ".join(f"{count}{unit}" for i, (count, unit) in enumerate(largest) if count or i == 0)


def _text_ms(text: str) -> float:
    wanted = text.strip()
    if len(wanted) > _TEXT_CHARS_MAX:
        raise _refused(text)
    if wanted.startswith("-"):
        raise _less_than_nothing(text)
    if _BARE.fullmatch(wanted):
        return float(wanted) * _UNIT_MS["s"]
    found = _TEXT.fullmatch(wanted)
    if found is None or not wanted:
        raise _refused(text)
    return sum(float(n) * _UNIT_MS[unit] for unit, n in found.groupdict().items() if n is not None)


def _number_ms(seconds: object) -> float:
    """Of any value at all, because a loosely typed script can bring anything."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise _refused(seconds)
    if isinstance(seconds, float) and not math.isfinite(seconds):
        raise _refused(seconds)
    if seconds < 0:
        raise _less_than_nothing(seconds)
    return min(seconds, DURATION_MS_MAX) * _UNIT_MS["s"]


def _less_than_nothing(text: object) -> Invalid:
    return Invalid(f"The duration {shown(text)} is less than nothing.", _ACCEPTED)


def _refused(text: object) -> Invalid:
    return Invalid(f"The duration {shown(text)} was not understood.", _ACCEPTED)
