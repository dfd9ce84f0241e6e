"""What waits for this person: approvals of own scopes, held scopes, hosts that have failed."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from forewarn.api.console.view_models import now
from forewarn.api.console.view_models.event import postpone_link
from forewarn.api.console.view_models.now import heard, owners
from forewarn.api.console.view_models.values import Offers, OrderLink, Ref, given, of_event
from forewarn.control.fleet_reader import FleetLook
from forewarn.control.fleet_summary import (
    FleetSummary,
    HostCondition,
    asks_for_consent,
    starts_ms,
)

ITEMS_MAX = 200


class InboxItem(Struct, frozen=True, kw_only=True):
    """One thing to decide. `at_ms` is when it is decided without this person."""

    topic: str
    what: str
    why: str
    remedy: str
    ref: Ref
    orders: tuple[OrderLink, ...]
    since_ms: int | None = None
    at_ms: int | None = None


class Inbox(Struct, frozen=True, kw_only=True):
    items: tuple[InboxItem, ...]
    more: int


def count(summary: FleetSummary, offers: Offers) -> int:
    """How many items there are, for the sign beside the word Inbox."""
    if offers.access.all_scopes:
        if offers.link("scope-release", "", "") is None:
            return 0  # who only looks has nothing to decide
        return len(summary.held) + summary.counts().get(HostCondition.FAILED, 0)
    sees = offers.access.sees
    return sum(sees(scope.name) and asks_for_consent(one) for scope, one in summary.scheduled())


def inbox(look: FleetLook, summary: FleetSummary, offers: Offers) -> Inbox:
    found = [*_troubles(look, summary, offers), *_approvals(look, summary, offers)]
    return Inbox(items=tuple(found[:ITEMS_MAX]), more=max(0, len(found) - ITEMS_MAX))


def _troubles(look: FleetLook, summary: FleetSummary, offers: Offers) -> Iterator[InboxItem]:
    for trouble in now.to_decide(look, summary, offers):
        if trouble.orders:
            yield InboxItem(
                topic="host" if trouble.ref.kind == "host" else "scope",
                what=trouble.what,
                why=trouble.why,
                remedy=trouble.remedy,
                ref=trouble.ref,
                orders=trouble.orders,
                since_ms=trouble.since_ms,
            )


def _approvals(look: FleetLook, summary: FleetSummary, offers: Offers) -> Iterator[InboxItem]:
    """Only of an owner's own scopes: an operator who approves in place of a VM overrides it."""
    if offers.access.all_scopes:
        return
    for scope, event in summary.scheduled():
        if not asks_for_consent(event) or not offers.access.sees(scope.name):
            continue
        approve = offers.link("event-approve", event.event_id, "Approve", scope.name)
        own = [vm for vm in scope.vms if vm.name in event.resources]
        reading, _ = heard(look, own)
        whose = ", ".join(owners(own))
        yield InboxItem(
            topic="approval",
            what=f"{of_event(event)} waits for an approval",
            why=f"Scope {scope.name}"
            + (f", owner {whose}" if whose else "")
            + f", agent: {reading.value}. {event.description}",
            remedy="Approve it, or let the VM do so; at the time named it starts without.",
            ref=Ref("event", event.event_id),
            orders=given(approve, postpone_link(look, event, offers)),
            since_ms=event.scheduled_ms,
            at_ms=starts_ms(event),
        )
