"""One event: why it has not happened yet, its receipt for each VM, its actions and its journal.

The same values make the page of an operator and the receipt that is sent to a customer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from forewarn.api.console.view_models.explaining import explained_event
from forewarn.api.console.view_models.lines import Line, line
from forewarn.api.console.view_models.values import (
    HoldRow,
    Offers,
    OrderLink,
    Ref,
    given,
    hold_row,
    of_event,
)
from forewarn.control import receipt
from forewarn.control.fleet_reader import FleetLook
from forewarn.control.operator_overview import find_event
from forewarn.core import notice, postponing
from forewarn.core.access import Access
from forewarn.core.model import Action, Cause, Fact, FactKind, Phase, ScheduledEvent
from forewarn.core.notice import NoticeVerdict
from forewarn.ports import JournalLine, ListFilter, Store

LINES_MAX = 300


class EventRead(Struct, frozen=True, kw_only=True):
    """What the store has of an event."""

    event: ScheduledEvent
    reads: Mapping[str, int]
    lines: tuple[JournalLine, ...]

    @property
    def scopes(self) -> tuple[str, ...]:
        return (self.event.scope,)


def read_event(store: Store, given: str) -> EventRead:
    """The event that an id, or the beginning of one, means. Raises NotFound or Invalid."""
    event = find_event(store, given)
    about = ListFilter(event_id=event.event_id, scope=event.scope)
    return EventRead(
        event=event,
        reads={one.vm: one.read_ms for one in store.first_reads(event.event_id)},
        lines=tuple(store.journal(about, after=0, limit=LINES_MAX)),
    )


class EventStep(Struct, frozen=True, kw_only=True):
    """One step of the life of an event; `at_ms` is None if it has not come, or never did."""

    word: str
    at_ms: int | None
    note: str = ""
    tone: str = "plain"
    expected_ms: int | None = None


class VmReceipt(Struct, frozen=True, kw_only=True):
    """What one VM was told: since when it could read it, when it first did, whether it is back."""

    vm: str
    told_ms: int | None
    read_ms: int | None
    before_start_ms: int | None
    impacted: bool  # False for another VM of the scope, which read of it too
    back: str  # yes, not yet, or empty where nothing is waited for


class ActionRow(Struct, frozen=True, kw_only=True):
    kind: str
    vm: str
    host: str
    target: str
    phase: str
    epoch: int
    outcome: str
    detail: str


class ReceiptView(Struct, frozen=True, kw_only=True):
    """Promised, readable and read notice, and the verdict."""

    promised_ms: int
    readable_ms: int
    read_ms: int | None
    verdict: str
    tone: str
    why: str
    vms: tuple[VmReceipt, ...]


class EventView(Struct, frozen=True, kw_only=True):
    """Everything about one event. `earliest_ms`: it may start later than guests were told."""

    ref: Ref
    title: str
    event: ScheduledEvent
    operation: Ref | None
    postponed_from: Ref | None
    postponed_to: Ref | None
    steps: tuple[EventStep, ...]
    holds: tuple[HoldRow, ...]
    until_ms: int | None
    earliest_ms: int | None
    receipt: ReceiptView
    actions: tuple[ActionRow, ...]
    lines: tuple[Line, ...]
    orders: tuple[OrderLink, ...]


def event_page(look: FleetLook, read: EventRead, offers: Offers) -> EventView:
    """The event as it is in the fleet, else as the store has it."""
    found = look.open_event(read.event.event_id)
    event = found[1] if found else read.event
    holds, until_ms = _explained(look, event, offers.access)
    operation = look.operation(event.operation_id) if event.operation_id else None
    actions = event.actions or ((operation.action,) if operation and operation.action else ())
    return EventView(
        ref=Ref("event", event.event_id),
        title=of_event(event),
        event=event,
        operation=Ref("operation", event.operation_id) if event.operation_id else None,
        postponed_from=_event_ref(event.postponed_from),
        postponed_to=_event_ref(event.postponed_to),
        steps=tuple(_steps(event)),
        holds=holds,
        until_ms=until_ms,
        earliest_ms=notice.earliest_start_ms(event),
        receipt=receipt_view(look, event, read),
        actions=tuple(map(_action, actions)),
        lines=tuple(map(line, read.lines)),
        orders=_orders(look, event, offers),
    )


def _explained(
    look: FleetLook, event: ScheduledEvent, access: Access
) -> tuple[tuple[HoldRow, ...], int | None]:
    found = look.open_event(event.event_id)
    if found is None:
        return (), None
    explained = explained_event(look, access, *found)
    return tuple(map(hold_row, explained.holds)), explained.until_ms


def _event_ref(event_id: str | None) -> Ref | None:
    return None if event_id is None else Ref("event", event_id)


def _orders(look: FleetLook, event: ScheduledEvent, offers: Offers) -> tuple[OrderLink, ...]:
    if event.phase is not Phase.SCHEDULED:
        return ()
    approve = None
    if event.approved_ms is None:
        approve = offers.link("event-approve", event.event_id, "Approve", event.scope)
    cancel = offers.link("event-cancel", event.event_id, "Cancel", event.scope)
    return given(approve, postpone_link(look, event, offers), cancel)


def postpone_link(look: FleetLook, event: ScheduledEvent, offers: Offers) -> OrderLink | None:
    """The order to postpone an event, where that would be accepted."""
    found = look.open_event(event.event_id)
    link = offers.link("event-postpone", event.event_id, "Postpone", event.scope)
    if found is None or link is None or event.phase is not Phase.SCHEDULED:
        return None
    left = postponing.allowance(
        *found, look, by=offers.access.principal.kind, policy=look.policy, now_ms=look.now_ms
    )
    return link if left.refused is None else None


def _steps(event: ScheduledEvent) -> Iterable[EventStep]:
    by = f"by {event.ordered_by}" if event.ordered_by else ""
    yield EventStep(word="Scheduled", at_ms=event.scheduled_ms, note=by)
    if not event.silent:
        yield EventStep(word="Shown to its VMs", at_ms=event.shown_ms)
    if event.approved_ms is not None:
        overridden = bool(event.override_reason)
        yield EventStep(
            word="Overridden" if overridden else "Approved",
            at_ms=event.approved_ms,
            note=f"by {event.approved_by}" + (f": {event.override_reason}" if overridden else ""),
            tone="bad" if overridden else "good",
        )
    waits = event.phase is Phase.SCHEDULED
    yield EventStep(
        word="Started",
        at_ms=event.started_ms,
        tone="active" if event.started_ms else "plain",
        expected_ms=notice.earliest_start_ms(event) or event.not_before_ms if waits else None,
    )
    tones = {Phase.COMPLETED: "good", Phase.FAILED: "bad"}
    yield EventStep(
        word=event.phase.value.capitalize() if event.phase.ended else "Ended",
        at_ms=event.ended_ms,
        note="" if event.outcome == event.phase.value else event.outcome,
        tone=tones.get(event.phase, "plain"),
        expected_ms=event.deadline_ms if event.ended_ms is None else None,
    )


def receipt_view(look: FleetLook, event: ScheduledEvent, read: EventRead) -> ReceiptView:
    verdict = receipt.judge(event, read.reads)
    facts = [found.fact for found in read.lines]
    appeared_ms = _first(facts, FactKind.APPEARED)
    confirmed_ms = _first(facts, FactKind.CONFIRMED)
    told_ms = None if event.silent else confirmed_ms or appeared_ms
    waited_for = _waited_for(look, event)
    return ReceiptView(
        promised_ms=receipt.promised_ms(event),
        readable_ms=receipt.readable_ms(event, look.now_ms) // 1_000 * 1_000,
        read_ms=receipt.read_ms(event, read.reads),
        verdict=_word(event, verdict.kept),
        tone=_TONES.get(verdict.kept, ""),
        why=verdict.why,
        vms=tuple(
            _vm_receipt(vm, event, read.reads.get(vm), told_ms, waited_for)
            for vm in dict.fromkeys((*event.resources, *read.reads))
        ),
    )


_TONES = {
    NoticeVerdict.YES: "good",
    NoticeVerdict.NO: "bad",
    NoticeVerdict.UNREAD: "warn",
    NoticeVerdict.OVERRIDDEN: "warn",
}
_WORDS = {
    NoticeVerdict.YES: "notice given",
    NoticeVerdict.NO: "notice too short",
    NoticeVerdict.UNREAD: "readable, not read",
    NoticeVerdict.OVERRIDDEN: "overridden",
    NoticeVerdict.NOT_YET: "not started yet",
}


def _word(event: ScheduledEvent, verdict: NoticeVerdict) -> str:
    """The verdict in a word or two; where no notice was due, why not."""
    if verdict in _WORDS:
        return _WORDS[verdict]
    if event.cause is Cause.FAILURE:
        return "a failure"
    if event.silent:
        return "not told"
    return "canceled" if event.started_ms is None else "approved early"


def _first(facts: Sequence[Fact], kind: FactKind) -> int | None:
    return next((fact.at_ms for fact in facts if fact.kind is kind), None)


def _waited_for(look: FleetLook, event: ScheduledEvent) -> frozenset[str]:
    scope = look.scope(event.scope)
    recoveries = scope.recoveries if scope else ()
    return frozenset(vm for one in recoveries for vm in one.waiting_for)


def _vm_receipt(
    vm: str,
    event: ScheduledEvent,
    read_ms: int | None,
    told_ms: int | None,
    waited_for: frozenset[str],
) -> VmReceipt:
    before_ms = None
    if read_ms is not None and event.started_ms is not None:
        before_ms = event.started_ms - read_ms
    impacted = vm in event.resources
    back = ""
    if impacted and event.phase is Phase.COMPLETED:
        back = "not yet" if vm in waited_for else "yes"
    return VmReceipt(
        vm=vm,
        told_ms=told_ms,
        read_ms=read_ms,
        before_start_ms=before_ms,
        impacted=impacted,
        back=back,
    )


def _action(action: Action) -> ActionRow:
    return ActionRow(
        kind=action.kind.value,
        vm=action.vm or "",
        host=action.host or "",
        target=action.target_host or "",
        phase=action.phase.value,
        epoch=action.epoch,
        outcome=action.outcome.value if action.outcome else "",
        detail=action.detail,
    )
