"""The receipt of an event: when it was told, to whom, and whether the promised notice was given.

Everything is read from what is committed. Nothing here decides; whether an event may start is
`core.notice`, and this page only says afterwards how it went.
"""

from __future__ import annotations

from msgspec import Struct

from forewarn.core import notice, windows
from forewarn.core.model import Cause, Phase, ScheduledEvent
from forewarn.core.notice import NoticeVerdict


class Verdict(Struct, frozen=True, kw_only=True):
    kept: NoticeVerdict
    why: str


def given_ms(event: ScheduledEvent, now_ms: int) -> int:
    """For how long the event could be read before it started, ended, or by now."""
    until_ms = event.started_ms
    if until_ms is None:
        until_ms = now_ms if event.ended_ms is None else event.ended_ms
    return notice.readable_ms(event, until_ms)


def promised_ms(event: ScheduledEvent) -> int:
    """The notice that was promised: none for a failure, and none where no VM was told."""
    return 0 if event.silent or event.cause is Cause.FAILURE else event.minimum_notice_ms


def judge(event: ScheduledEvent) -> Verdict:
    """Was the notice that the event's type promises given, and why (not)."""
    if event.cause is Cause.FAILURE:
        return Verdict(kept=NoticeVerdict.NOT_APPLICABLE, why="a failure gives no notice")
    if event.silent:
        why = f"no VM of scope {event.scope} polled, so none was told"
        return Verdict(kept=NoticeVerdict.NOT_APPLICABLE, why=why)
    if event.started_ms is None:
        if event.phase is Phase.CANCELED:
            why = "it was canceled before it started"
            if event.outcome.startswith(windows.WITHDRAWN):
                why = f"it was {event.outcome}"
            return Verdict(kept=NoticeVerdict.NOT_APPLICABLE, why=why)
        return Verdict(kept=NoticeVerdict.NOT_YET, why="it has not started")
    return _judge_started(event, event.started_ms)


def _judge_started(event: ScheduledEvent, started_ms: int) -> Verdict:
    in_full = notice.readable_ms(event, started_ms) >= event.minimum_notice_ms
    if in_full and started_ms >= event.not_before_ms:
        return Verdict(kept=NoticeVerdict.YES, why="it could be read for its minimum notice")
    if event.approved_ms is not None:
        why = f"{event.approved_by} approved it, and did not need the rest of the notice"
        return Verdict(kept=NoticeVerdict.NOT_APPLICABLE, why=why)
    why = "it started before not_before" if in_full else "it could not be read for long enough"
    return Verdict(kept=NoticeVerdict.NO, why=why)
