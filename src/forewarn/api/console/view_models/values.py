"""What pages are made of: things that have a page of their own, and orders that can be given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from forewarn.core.access import Access, Right
from forewarn.core.model import Operation, ScheduledEvent
from forewarn.core.starting import Hold

ID_CHARS_SHOWN = 8
VMS_NAMED_MAX = 3

Kind = Literal["host", "vm", "scope", "event", "operation", "token"]


class Ref(Struct, frozen=True):
    """Something with a page of its own."""

    kind: Kind
    name: str

    @property
    def label(self) -> str:
        """What people read: a name, or the beginning of an id."""
        return self.name[:ID_CHARS_SHOWN] if self.kind in ("event", "operation") else self.name


class OrderLink(Struct, frozen=True):
    """An order that can be given from a page: `order` on `target`, in `words`."""

    order: str
    target: str
    words: str


class Names(Struct, frozen=True):
    """The first names of several, and how many there are more."""

    first: tuple[str, ...]
    more: int = 0


class HoldRow(Struct, frozen=True, kw_only=True):
    """One thing that something waits for."""

    reason: str
    what: str
    remedy: str
    since_ms: int | None
    until_ms: int | None


def named(names: Sequence[str], limit: int = VMS_NAMED_MAX) -> Names:
    return Names(tuple(names[:limit]), max(0, len(names) - limit))


def hold_row(hold: Hold) -> HoldRow:
    return HoldRow(
        reason=hold.reason.value,
        what=hold.what,
        remedy=hold.remedy,
        since_ms=hold.since_ms,
        until_ms=hold.until_ms,
    )


def of_event(event: ScheduledEvent) -> str:
    """What an event does, in words: `Reboot of web_0`."""
    vms = named(event.resources)
    more = f" and {vms.more} more" if vms.more else ""
    return f"{event.event_type.value} of {', '.join(vms.first)}{more}"


def of_failed_host(host: str, events: Sequence[ScheduledEvent]) -> str:
    """What a failed host means, in words: `3 VMs of failed host h1`."""
    count = sum(len(event.resources) for event in events)
    return f"{count} VM{'' if count == 1 else 's'} of failed host {host}"


def of_operation(operation: Operation) -> str:
    """What an operation does, in words: `Reboot of host h1`."""
    return f"{operation.event_type.value} of host {operation.host}"


def given(*links: OrderLink | None) -> tuple[OrderLink, ...]:
    """Those of the orders that are offered."""
    return tuple(link for link in links if link is not None)


class ConsentNeeded(Struct, frozen=True):
    """What an order needs, as the route table says it."""

    right: Right
    by_scope: bool  # an owner has it in his own scopes


class Offers(Struct, frozen=True):
    """Which orders are offered to a person: those that the route table allows."""

    access: Access
    needed: Mapping[str, ConsentNeeded]

    def link(
        self, order: str, target: str, words: str, scope: str | None = None
    ) -> OrderLink | None:
        """The order, if this person may give it. `scope` is that of its target."""
        needed = self.needed.get(order)
        if needed is None or not self.access.may(needed.right, scope):
            return None
        if not needed.by_scope and not self.access.all_scopes:
            return None
        return OrderLink(order, target, words)
