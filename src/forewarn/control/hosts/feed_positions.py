"""Feed positions: how far a host is in what control tells it, in numbers of the store.

A position is the number of a commit, and belongs to an epoch: one life of a control on a store. The
store keeps which epochs committed in it and from which number on. So every control on that store
knows what a position means, whichever control gave it. A control on a copy, or on a restored
backup, tells a host everything if the host's position is of commits that this control does not
have. Values and rules only.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from msgspec import Struct, field

from forewarn.core import document
from forewarn.core.model import ScheduledEvent, Scope
from forewarn.ports import Snapshot, Store
from forewarn.wire.link import Since

EPOCH_BYTES = 12
NOTHING = -1  # the position of a host that has to be told everything


def new_epoch() -> str:
    """A name that no other life of a control has."""
    return secrets.token_urlsafe(EPOCH_BYTES)


class History(Struct, frozen=True):
    """What a control goes on from: its own epoch, and the last commit of each one before it."""

    epoch: str = field(default_factory=new_epoch)
    position: int = 0
    earlier: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def after(cls, snapshot: Snapshot) -> History:
        """A new epoch after all that a store has. Each of those ended before the next one began."""
        firsts = [epoch.first_commit for epoch in snapshot.epochs]
        lasts = [*(first - 1 for first in firsts[1:]), snapshot.position]
        earlier = {
            epoch.epoch_id: last for epoch, last in zip(snapshot.epochs, lasts, strict=False)
        }
        return cls(position=snapshot.position, earlier=earlier)

    def position_of(self, since: Since | None, newest: int) -> int:
        """The position of a host as far as it is in this history; NOTHING if it is not.

        `newest` is the last commit by now. Above the last commit of its epoch, a host was told
        what this store has lost.
        """
        if since is None or since.position < 0:
            return NOTHING
        last = newest if since.epoch == self.epoch else self.earlier.get(since.epoch, NOTHING)
        return since.position if since.position <= last else NOTHING


def begin(store: Store, snapshot: Snapshot) -> History:
    """Begin a life of control on a store that was just loaded.

    Its epoch is kept with its first commit. If it ends without one, hosts that it told anything
    are told everything by the next.
    """
    history = History.after(snapshot)
    store.begin_epoch(history.epoch)
    return history


def shown_alike(before: Scope, after: Scope) -> bool:
    """True if every host is surely shown the same of both; `ScopeByHost` says what that is.

    A host that has confirmed what it shows is not told so: it knows. Asked of every commit of a
    scope, so what may be another thing is taken for one.
    """
    if before.incarnation != after.incarnation or before.enabled is not after.enabled:
        return False
    if before.vms is not after.vms and before.vms != after.vms:
        return False
    if before.recoveries != after.recoveries or before.kind is not after.kind:
        return False
    pairs = document.in_place(before.events, after.events)
    return pairs is not None and all(_event_alike(old, new) for old, new in pairs)


def _event_alike(old: ScheduledEvent, new: ScheduledEvent) -> bool:
    if new.shown_ms is None and old.shown_ms is not None:
        return False  # its host has to confirm it again
    return (
        old.phase is new.phase
        and old.silent is new.silent
        and old.host == new.host
        and old.actions == new.actions
        and old.event_type is new.event_type
        and old.event_source is new.event_source
        and old.not_before_ms == new.not_before_ms
        and old.resources == new.resources
        and old.description == new.description
        and old.duration_s == new.duration_s
    )
