"""The window of an order: the wall time in which it may start at all, approved or not.

What keeps an event from starting meanwhile is a hold (`starting`); here is what a window allows,
and what becomes of what cannot start before it closes.
"""

from __future__ import annotations

from forewarn.core import scope_edits
from forewarn.core.errors import Invalid, OtherWindow, WindowTooShort
from forewarn.core.facts import CanceledDetail, event_fact
from forewarn.core.model import (
    MINUTE_MS,
    SECOND_MS,
    EventType,
    Fact,
    FactKind,
    ScheduledEvent,
    Window,
)
from forewarn.core.principal import TICKER

WITHDRAWN = "withdrawn"
CLOSED = "withdrawn: its window closed before it could start"
TOLD_TOO_LATE = (
    f"{WITHDRAWN}: its VMs can be told now, too late for its notice to end in its window"
)


def ordered(start_ms: int, end_ms: int, now_ms: int) -> Window:
    """The window that an order names. Raises Invalid for one in which nothing can start any more.

    It may be open already.
    """
    if end_ms <= start_ms:
        raise Invalid(
            "The window closes before it opens.",
            "START/END is accepted, each a time or a time from now, and END later than START.",
        )
    if end_ms <= now_ms:
        raise Invalid("The window has closed.", "A window that closes later would be accepted.")
    return Window(start_ms=start_ms, end_ms=end_ms)


def is_open(window: Window | None, now_ms: int) -> bool:
    """True if what has this window may start now."""
    return window is None or window.start_ms <= now_ms < window.end_ms


def closed_for_good(window: Window | None, now_ms: int) -> bool:
    return window is not None and now_ms >= window.end_ms


def opens_ms(window: Window | None) -> int:
    """From when on it may start, as far as its window goes."""
    return 0 if window is None else window.start_ms


def refuse_too_short(
    window: Window | None,
    event_type: EventType,
    *,
    ordered_not_before_ms: int | None,
    not_before_ms: int,
    whom: str,
    now_ms: int,
) -> None:
    """Raises WindowTooShort, or Invalid, if what is ordered can only start when it is closed."""
    if window is None or not_before_ms < window.end_ms:
        return
    if ordered_not_before_ms is not None and ordered_not_before_ms >= window.end_ms:
        raise Invalid(
            "The earliest start that was named is not in the window: it closes before that.",
            "Name an earlier one with --not-before, or leave that out.",
        )
    late = _length(max(SECOND_MS, not_before_ms - window.end_ms))
    raise WindowTooShort(
        f"The notice of a {event_type.value} for {whom} ends {late} after the window has closed.",
        f"A window that closes more than {_length(not_before_ms - now_ms)} from now would be"
        " accepted.",
    )


def refuse_other(existing: ScheduledEvent, window: Window | None) -> None:
    """Raises OtherWindow if what is ordered is there already, and its window is another one."""
    if existing.window == window:
        return
    has = "without a window" if existing.window is None else "with another window"
    raise OtherWindow(
        f"The same is ordered already, {has}: event {existing.event_id}.",
        f"Cancel it first (`forewarn event cancel {existing.event_id}`), then order it again.",
    )


def withdrawn(event: ScheduledEvent, reason: str, now_ms: int) -> tuple[ScheduledEvent, Fact]:
    """The event as it is withdrawn, and the line that says so."""
    ended = scope_edits.cancel_event(event, now_ms, reason)
    detail = CanceledDetail(reason=reason)
    return ended, event_fact(FactKind.CANCELED, event, now_ms, by=TICKER, detail=detail)


def _length(ms: int) -> str:
    """So long in words, and not less."""
    if ms <= MINUTE_MS:
        return f"{-(-ms // SECOND_MS)} s"
    return f"{-(-ms // MINUTE_MS)} min"
