"""The receipt of an event: when it was told, to whom, and whether the promised notice was given.

Everything is read from what is committed. Nothing here decides; whether an event may start is
`core.notice`, and this page only says afterwards how it went.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from forewarn.core import notice, windows
from forewarn.core.model import Cause, Phase, ScheduledEvent
from forewarn.core.notice import NoticeVerdict
from forewarn.core.principal import PrincipalKind

Reads = Mapping[str, int]  # when each VM first read an event

VMS_NAMED_MAX = 3


class Verdict(Struct, frozen=True, kw_only=True):
    kept: NoticeVerdict
    why: str


def readable_ms(event: ScheduledEvent, now_ms: int) -> int:
    """For how long the event could be read before it started, ended, or by now."""
    until_ms = event.started_ms
    if until_ms is None:
        until_ms = now_ms if event.ended_ms is None else event.ended_ms
    return notice.readable_ms(event, until_ms)


def promised_ms(event: ScheduledEvent) -> int:
    """The notice that was promised: none for a failure, and none where no VM was told."""
    return 0 if event.silent or event.cause is Cause.FAILURE else event.minimum_notice_ms


def with_approval(event: ScheduledEvent, first_reads: Reads) -> dict[str, int]:
    """When each VM first read it. Who approves an event knows it, by whatever way it came to it."""
    known, by = dict(first_reads), event.approved_by
    if event.approved_ms is not None and by in event.resources and not event.override_reason:
        known.setdefault(by or "", event.approved_ms)
    return known


def unread_by(event: ScheduledEvent, first_reads: Reads) -> tuple[str, ...]:
    """Those of its VMs that had not read the event when it started, or have not by now."""
    return tuple(vm for vm in event.resources if not _in_time(event, first_reads.get(vm)))


def _in_time(event: ScheduledEvent, read_ms: int | None) -> bool:
    return read_ms is not None and (event.started_ms is None or read_ms <= event.started_ms)


def read_ms(event: ScheduledEvent, first_reads: Reads) -> int | None:
    """How long before the start the last of its VMs read it first; None unless all of them did."""
    if event.started_ms is None or not event.resources or unread_by(event, first_reads):
        return None
    return event.started_ms - max(first_reads[vm] for vm in event.resources)


def judge(event: ScheduledEvent, first_reads: Reads | None = None) -> Verdict:
    """Was the notice that the event's type promises given, and why (not).

    With `first_reads`, by VM, also whether it was read.
    """
    if event.cause is Cause.FAILURE:
        return Verdict(kept=NoticeVerdict.NOT_APPLICABLE, why="a failure gives no notice")
    if event.override_reason:
        why = f"by {event.approved_by}: {event.override_reason}"
        return Verdict(kept=NoticeVerdict.OVERRIDDEN, why=why)
    if event.silent:
        why = f"no VM of scope {event.scope} polled, so none was told"
        return Verdict(kept=NoticeVerdict.NOT_APPLICABLE, why=why)
    if event.started_ms is None:
        if event.phase is Phase.CANCELED:
            why = "it was canceled before it started"
            if event.outcome.startswith(windows.WITHDRAWN) or event.postponed_to is not None:
                why = f"it was {event.outcome}"
            return Verdict(kept=NoticeVerdict.NOT_APPLICABLE, why=why)
        return Verdict(kept=NoticeVerdict.NOT_YET, why="it has not started")
    return _judge_started(event, event.started_ms, first_reads)


def _judge_started(event: ScheduledEvent, started_ms: int, first_reads: Reads | None) -> Verdict:
    in_full = notice.readable_ms(event, started_ms) >= event.minimum_notice_ms
    if in_full and started_ms >= event.not_before_ms:
        unread = () if first_reads is None else unread_by(event, first_reads)
        if unread:
            why = f"it could be read for its minimum notice, and {_named(unread)} did not read it"
            return Verdict(kept=NoticeVerdict.UNREAD, why=why)
        why = "it could be read for its minimum notice"
        why = why if first_reads is None else f"{why}, and each of its VMs read it"
        return Verdict(kept=NoticeVerdict.YES, why=why)
    if event.approved_ms is not None:
        owner = event.approved_by_kind is PrincipalKind.OWNER
        who = f"{event.approved_by}, an owner of the scope," if owner else event.approved_by
        why = f"{who} approved it, and did not need the rest of the notice"
        return Verdict(kept=NoticeVerdict.NOT_APPLICABLE, why=why)
    why = "it started before not_before" if in_full else "it could not be read for long enough"
    return Verdict(kept=NoticeVerdict.NO, why=why)


def _named(vms: Sequence[str]) -> str:
    more = len(vms) - VMS_NAMED_MAX
    return ", ".join(vms[:VMS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
