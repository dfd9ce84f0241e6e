"""Timestamps of answers, read strictly: one form each, or None."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_WEEK_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_RFC_1123 = re.compile(r"(\w{3}), (\d{2}) (\w{3}) (\d{4}) (\d{2}):(\d{2}):(\d{2}) GMT", re.ASCII)
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})Z", re.ASCII)


def read_rfc_1123(text: str, *, any_day: bool = False) -> int | None:
    """Seconds since 1970 of `Mon, 19 Sep 2016 18:29:47 GMT`; None if it is not of that form.

    The week day has to be the right one, unless any will do.
    """
    found = _RFC_1123.fullmatch(text)
    if found is None or found[3] not in _MONTHS or found[1] not in _WEEK_DAYS:
        return None
    month = _MONTHS.index(found[3]) + 1
    at = _instant(int(found[4]), month, *(int(found[i]) for i in (2, 5, 6, 7)))
    if at is None or not (any_day or _WEEK_DAYS[at.weekday()] == found[1]):
        return None
    return int(at.timestamp())


def read_iso(text: str) -> int | None:
    """Seconds since 1970 of `2016-09-19T18:29:47Z`; None if it is not of that form."""
    found = _ISO.fullmatch(text)
    at = None if found is None else _instant(*map(int, found.groups()))
    return None if at is None else int(at.timestamp())


def _instant(*parts: int) -> datetime | None:
    year, month, day, hour, minute, second = parts
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
