"""Times as the operator API writes them, and the one reader of times that people type.

They are ISO 8601 in UTC with milliseconds.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec

from forewarn.core import errors, windows
from forewarn.core.model import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Window

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# The last whole second the date formats of the wire can hold: NotBefore is rounded up to one (N7).
LAST_MS = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) // _MILLISECOND

_FROM_NOW = re.compile(r"\+([0-9]{1,12})([smhd])")
_UNIT_MS = {"s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
_ACCEPTED_TIME = (
    "A time with its zone, like 2026-03-03T10:15:00Z or 2026-03-03T11:15:00+01:00, or a time from"
    " now, like +90s, +30m, +2h or +7d, would be accepted."
)
_AGO = re.compile(r"-?([0-9]{1,12})([smhd])")
_ACCEPTED_PAST = (
    "A time with its zone, like 2026-03-03T10:15:00Z or 2026-03-03T11:15:00+01:00, or how long ago"
    " it was, like -90s, -30m, -2h or -7d, would be accepted."
)
_QUOTED_CHARS_MAX = 64


def time_text(ms: int | None) -> str | None:
    """An instant as `2026-03-03T10:15:00.000Z`; None stays None."""
    return None if ms is None else needed_time_text(ms)


def needed_time_text(ms: int) -> str:
    """As `time_text`, of an instant that is surely there."""
    at = _EPOCH + ms * _MILLISECOND
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TimeInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A point in time as the caller wrote it: a date, or so long after the moment of deciding."""

    said: str
    at_ms: int | None = None
    from_now_ms: int | None = None

    def instant_ms(self, now_ms: int) -> int:
        """The instant in milliseconds. Raises errors.Invalid for one that no date can be."""
        at_ms = now_ms + (self.from_now_ms or 0) if self.at_ms is None else self.at_ms
        if not 0 <= at_ms <= LAST_MS:
            raise errors.Invalid(
                f"The time {self.said[:_QUOTED_CHARS_MAX]!r} is not between {time_text(0)} and"
                f" {time_text(LAST_MS)}.",
                _ACCEPTED_TIME,
            )
        return at_ms

    def to_come_ms(self, now_ms: int) -> int:
        """As `instant_ms`. Raises errors.Invalid if it has passed."""
        at_ms = self.instant_ms(now_ms)
        if at_ms < now_ms:
            raise errors.Invalid(
                f"The time {self.said[:_QUOTED_CHARS_MAX]} has passed.",
                "A time from now on would be accepted.",
            )
        return at_ms


class WindowInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A window as the caller wrote it."""

    start: TimeInput
    end: TimeInput

    def window(self, now_ms: int) -> Window:
        """Raises errors.Invalid for one in which nothing can start any more."""
        return windows.ordered(self.start.instant_ms(now_ms), self.end.instant_ms(now_ms), now_ms)


def parse_instant(text: str) -> TimeInput:
    """The instant that `text` names; fractions of a millisecond are cut.

    Raises errors.Invalid for everything that is not a time with a zone or a time from now.
    """
    from_now = _FROM_NOW.fullmatch(text)
    if from_now is not None:
        return TimeInput(said=text, from_now_ms=int(from_now[1]) * _UNIT_MS[from_now[2]])
    return TimeInput(said=text, at_ms=(_zoned(text) - _EPOCH) // _MILLISECOND)


def parse_time(text: str, *, now_ms: int) -> int:
    """The instant that `text` names, in milliseconds. Raises errors.Invalid as `parse_instant`."""
    return parse_instant(text).instant_ms(now_ms)


def parse_past(text: str, *, now_ms: int) -> int:
    """The instant that `text` names, in milliseconds: a time with its zone, or how long ago.

    Raises errors.Invalid for everything else.
    """
    ago = _AGO.fullmatch(text)
    if ago is None:
        return (_zoned(text, _ACCEPTED_PAST) - _EPOCH) // _MILLISECOND
    return max(0, now_ms - int(ago[1]) * _UNIT_MS[ago[2]])


def _zoned(text: str, accepted: str = _ACCEPTED_TIME) -> datetime:
    quoted = repr(text[:_QUOTED_CHARS_MAX])
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise errors.Invalid(f"{quoted} is not a time.", accepted) from None
    if at.tzinfo is None:
        raise errors.Invalid(f"The time {quoted} names no zone.", accepted)
    return at
