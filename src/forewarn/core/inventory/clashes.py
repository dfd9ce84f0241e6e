"""Why an inventory file cannot be applied now: which part, what is in the way, the remedy."""

from __future__ import annotations

from msgspec import Struct

from forewarn.core.inventory.entries import HostEntry, ScopeEntry, VmEntry
from forewarn.core.model import Phase, ScheduledEvent


class Clash(Struct, frozen=True, kw_only=True):
    """One reason why the file cannot be applied now. `where` is the part of the file, if any."""

    where: HostEntry | ScopeEntry | VmEntry | None
    refused: str
    accepted: str


def event_words(event: ScheduledEvent) -> str:
    """An event that stands in the way, as a clash names it."""
    return f"the {event.phase.value} {event.event_type.value} event {event.event_id}"


def remedy(event: ScheduledEvent) -> str:
    """What gets an event out of the way of a file."""
    if event.phase is not Phase.SCHEDULED:
        return "Apply the file again when that event has ended."
    return (
        "Apply the file again when that event has ended, or cancel it: "
        f"`forewarn event cancel {event.event_id}`."
    )
