"""What guests of a scope can see: which events, and what of them.

`content` is what the incarnation counts: it moves if and only if this changes (invariant I4), and
when VMs join that come from a scope whose incarnation they may have read.
How it looks on the wire, per api-version, is `wire.documents`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import is_not
from typing import NamedTuple

from forewarn.core.model import EventSource, EventType, Phase, ScheduledEvent, Scope

# Everything of an event that the newest api-version shows.
Content = tuple[str, EventType, EventSource, bool, tuple[str, ...], int, str, int]


Pairs = Sequence[tuple[ScheduledEvent, ScheduledEvent]]


class _LookedAt(NamedTuple):
    """An answer of `in_place`, with what was asked: while that is kept, its ids are its own."""

    before: Sequence[ScheduledEvent]
    after: Sequence[ScheduledEvent]
    pairs: Pairs | None


# Every reader of a commit asks the same of the same two values, in two threads. An entry is put and
# found in one step each, and what is found is the answer, whichever thread has put it there.
LOOKED_AT_MAX = 128
_looked_at: dict[tuple[int, int], _LookedAt] = {}


def visible(scope: Scope) -> tuple[ScheduledEvent, ...]:
    """The events of the scope's document in its order: Started first, then by NotBefore, then as
    scheduled.

    Clients that read only the first one read what is most urgent. The order follows from what the
    document shows, so it moves only when that does: an approval moves nothing.
    """
    return tuple(sorted((event for event in scope.events if event.visible), key=_place))


def _place(event: ScheduledEvent) -> tuple[bool, int]:
    """Where an event stands among those of its scope; of a started one no NotBefore is shown."""
    if event.phase is Phase.STARTED:
        return False, 0
    return True, event.not_before_ms


def content(scope: Scope) -> tuple[Content, ...]:
    """The visible content of the scope as a value that can be compared."""
    return tuple(map(_content, visible(scope)))


class EventChanges(NamedTuple):
    """What became of the events of a scope. Those that are the same value are not named.

    `pairs` are those that changed or came, each with what it was, None if it is new.
    """

    pairs: Sequence[tuple[ScheduledEvent | None, ScheduledEvent]]
    gone: Sequence[ScheduledEvent] = ()


def moved(before: Scope | None, after: Scope) -> EventChanges:
    """The events that are not as they were. Cheap while a scope with many events changes few."""
    old_events = before.events if before is not None else ()
    pairs = in_place(old_events, after.events)
    if pairs is not None:
        return EventChanges(pairs)
    known = {event.event_id: event for event in old_events}
    found = [(known.pop(event.event_id, None), event) for event in after.events]
    return EventChanges([(old, new) for old, new in found if old is not new], tuple(known.values()))


def changed(before: Scope, after: Scope) -> bool:
    """Whether `content` is another one. Events that are the same value are not looked into."""
    pairs = in_place(before.events, after.events)
    if pairs is None:
        return content(before) != content(after)
    return any(_shown(old) != _shown(new) for old, new in pairs)


def in_place(before: Sequence[ScheduledEvent], after: Sequence[ScheduledEvent]) -> Pairs | None:
    """The events that changed, if all are where they were; None if one came, went or moved."""
    if before is after:
        return ()
    if len(before) != len(after):
        return None
    key = id(before), id(after)
    known = _looked_at.get(key)
    if known is None:
        if len(_looked_at) >= LOOKED_AT_MAX:
            _looked_at.clear()
        known = _looked_at[key] = _LookedAt(before, after, _pairs(before, after))
    return known.pairs


def _pairs(before: Sequence[ScheduledEvent], after: Sequence[ScheduledEvent]) -> Pairs | None:
    pairs = tuple(compress(zip(before, after, strict=True), map(is_not, before, after)))
    return pairs if all(old.event_id == new.event_id for old, new in pairs) else None


def _shown(event: ScheduledEvent) -> Content | None:
    return _content(event) if event.visible else None


def _content(event: ScheduledEvent) -> Content:
    started = event.phase is Phase.STARTED
    return (
        event.event_id,
        event.event_type,
        event.event_source,
        started,
        event.resources,
        0 if started else event.not_before_ms,
        event.description,
        event.duration_s,
    )


def joined(before: Scope, after: Scope) -> frozenset[str]:
    """Names of VMs that read this scope's document from now on and did not before.

    A VM that has the name of another one by now is not that one.
    """
    if before.vms is after.vms:
        return frozenset()
    known = {(vm.name, vm.vm_id) for vm in before.vms}
    return frozenset(vm.name for vm in after.vms if (vm.name, vm.vm_id) not in known)
