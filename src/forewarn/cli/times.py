"""Times as people read them: UTC, and how far away. Text in, text out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import ceil

from forewarn.text.durations import span


def parse(text: str) -> datetime:
    """An instant of the API."""
    return datetime.fromisoformat(text)


def from_ms(ms: int) -> str:
    """An instant in milliseconds, as the API writes it."""
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat()


def clock(text: str | None, now: datetime) -> str:
    """`10:15:00`, with the date in front if it is another day than today."""
    if text is None:
        return ""
    at = parse(text)
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"


def away(text: str | None, now: datetime) -> str:
    """`in 14m 32s`, `3m 5s ago`, or `now` for less than a second."""
    if text is None:
        return ""
    left = parse(text) - now
    if abs(left) < timedelta(seconds=1):
        return "now"
    if left < timedelta(0):
        return f"{span(-left.total_seconds())} ago"
    return f"in {span(ceil(left.total_seconds()))}"  # no less than is left


def window(start: str, end: str, now: datetime) -> str:
    """`22:00:00 to 23:00:00, opens in 3h 5m`."""
    if now < parse(start):
        how = f"opens {away(start, now)}"
    elif now < parse(end):
        how = f"open, closes {away(end, now)}"
    else:
        how = "closed"
    return f"{clock(start, now)} to {clock(end, now)}, {how}"


def both(text: str | None, now: datetime) -> str:
    """`10:15:00, in 14m 32s`."""
    return "" if text is None else f"{clock(text, now)}, {away(text, now)}"
