"""The receipt of an event: when it was told, to whom, and whether the promised notice was given.

Everything is read from what is committed. Nothing here decides; whether an event may start is
`core.notice`, and this page only says afterwards how it went.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forewarn.core import notice
from forewarn.core.model import SECOND_MS, Cause, FactKind, Phase, ScheduledEvent
from forewarn.ports import Store
from forewarn.wire.operator_answers import FirstRead, Kept, Receipt
from forewarn.wire.operator_json import needed_time_text, time_text

FACTS_SEARCHED_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    kept: Kept
    why: str


def given_ms(event: ScheduledEvent, now_ms: int) -> int:
    """For how long the event could be read before it started, ended, or by now."""
    until_ms = event.started_ms
    if until_ms is None:
        until_ms = now_ms if event.ended_ms is None else event.ended_ms
    return notice.readable_ms(event, until_ms)


def promised_ms(event: ScheduledEvent) -> int:
    """The notice that was promised: none for a failure, and none where nobody was told."""
    return 0 if event.silent or event.cause is Cause.FAILURE else event.minimum_notice_ms


def judge(event: ScheduledEvent) -> Verdict:
    """Was the notice that the event's type promises given, and why (not)."""
    if event.cause is Cause.FAILURE:
        return Verdict(kept=Kept.NOT_APPLICABLE, why="a failure gives no notice")
    if event.silent:
        why = f"nobody in scope {event.scope} polled, so nobody was told"
        return Verdict(kept=Kept.NOT_APPLICABLE, why=why)
    if event.started_ms is None:
        if event.phase is Phase.CANCELED:
            return Verdict(kept=Kept.NOT_APPLICABLE, why="it was canceled before it started")
        return Verdict(kept=Kept.NOT_YET, why="it has not started")
    return _judge_started(event, event.started_ms)


def _judge_started(event: ScheduledEvent, started_ms: int) -> Verdict:
    in_full = notice.readable_ms(event, started_ms) >= event.minimum_notice_ms
    if in_full and started_ms >= event.not_before_ms:
        return Verdict(kept=Kept.YES, why="it could be read for its minimum notice")
    if event.approved_ms is not None:
        why = f"{event.approved_by} approved it, and did not need the rest of the notice"
        return Verdict(kept=Kept.NOT_APPLICABLE, why=why)
    why = "it started before not_before" if in_full else "it could not be read for long enough"
    return Verdict(kept=Kept.NO, why=why)


def receipt_json(event: ScheduledEvent, store: Store, now_ms: int) -> Receipt:
    """The receipt: what was promised, what happened when, and who read it when."""
    verdict = judge(event)
    first = _first_facts(event, store)
    appeared_ms = None if event.silent else first.get(FactKind.APPEARED, event.scheduled_ms)
    return Receipt(
        scheduled=needed_time_text(event.scheduled_ms),
        appeared=time_text(appeared_ms),
        shown=time_text(first.get(FactKind.CONFIRMED)),
        first_reads=tuple(_first_reads(event, store)),
        approved=time_text(event.approved_ms),
        approved_by=event.approved_by,
        started=time_text(event.started_ms),
        ended=time_text(event.ended_ms),
        notice_promised_seconds=promised_ms(event) / SECOND_MS,
        notice_given_seconds=given_ms(event, now_ms) / SECOND_MS,
        kept=verdict.kept,
        why=verdict.why,
    )


def _first_facts(event: ScheduledEvent, store: Store) -> dict[FactKind, int]:
    """When each kind of fact was first written down about the event.

    An event comes into the document at once, or (APPEARED) when its silent scope is enabled; its
    host confirms it (CONFIRMED) once more after every outage, and the first time is what counts.
    """
    lines = store.journal(
        after=0, limit=FACTS_SEARCHED_MAX, scope=event.scope, event_id=event.event_id
    )
    found: dict[FactKind, int] = {}
    for line in lines:
        found.setdefault(line.fact.kind, line.fact.at_ms)
    return found


def _first_reads(event: ScheduledEvent, store: Store) -> Iterator[FirstRead]:
    """One entry per VM: those it impacts, read or not, then others of the scope that read it."""
    read = {receipt.vm: receipt.read_ms for receipt in store.first_reads(event.event_id)}
    for vm in dict.fromkeys((*event.resources, *read)):
        read_ms = read.get(vm)
        before_start_s = None
        if read_ms is not None and event.started_ms is not None:
            before_start_s = (event.started_ms - read_ms) / SECOND_MS
        yield FirstRead(vm=vm, read=time_text(read_ms), notice_seconds=before_start_s)
