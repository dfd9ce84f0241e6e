"""Who leads, as one control decides it: pure, by monotonic time that this control has seen pass.

A control looks at one row of the database (`LeadershipRow`): whose epoch it is, and how many
batches that leader has written. No time of another machine is compared with ours. A follower bids
once the row has not moved for a lease, or its holder has resigned; a leader steps down as soon as
it cannot have renewed its own. What stops a leader that is wrong is the fence, not this.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

LEASE_MS = 4_000  # a leader that has written nothing for so long may be replaced
RENEW_AFTER_MS = 1_000  # a leader that has nothing to write writes an empty batch
LOOK_EVERY_MS = 500  # how often a follower looks, if nothing rings
SPREAD_MS_MAX = 500  # bids of followers are as far apart, so that not all come at once
RESIGNED_SPREAD_MS_MAX = 50


class LeadershipStep(StrEnum):
    """What a control does next."""

    WAIT = "wait"
    BID = "bid"
    LEAD = "lead"
    RENEW = "renew"
    STEP_DOWN = "step-down"


class LeadershipRow(Struct, frozen=True):
    """The row as the database had it. An empty holder has resigned."""

    epoch: int
    batch: int
    holder: str


class LeadershipStanding(Struct, frozen=True, kw_only=True):
    """What one control knows. `spread_share` is its own, from 0 to 1, drawn anew for each wait.

    `since_ms` is when the row was last seen to move; of a leader, when it began to send the batch
    that was confirmed last. `leads_epoch` is None while it follows.
    """

    name: str
    spread_share: float = 0.0
    seen: LeadershipRow | None = None
    since_ms: int = 0
    leads_epoch: int | None = None


def looked(standing: LeadershipStanding, seen: LeadershipRow, now_ms: int) -> LeadershipStanding:
    """After a look at the row. A row that has not moved says nothing new."""
    known = replace(standing, seen=seen)
    if standing.leads_epoch is not None:
        # Another epoch is another's leadership, whatever this control believed.
        return known if seen.epoch == standing.leads_epoch else replace(known, leads_epoch=None)
    return known if seen == standing.seen else replace(known, since_ms=now_ms)


def won(standing: LeadershipStanding, seen: LeadershipRow, sent_ms: int) -> LeadershipStanding:
    """Its bid, sent at this time, was taken."""
    return replace(standing, seen=seen, since_ms=sent_ms, leads_epoch=seen.epoch)


def confirmed(standing: LeadershipStanding, batch: int, sent_ms: int) -> LeadershipStanding:
    """A batch of this leader, sent at this time, is durable: that is its renewal."""
    if standing.leads_epoch is None or standing.seen is None:
        return standing
    return replace(standing, seen=replace(standing.seen, batch=batch), since_ms=sent_ms)


def lost(standing: LeadershipStanding, now_ms: int) -> LeadershipStanding:
    """Its session ended, its fence did not hold, or it resigned: it follows, and waits a lease."""
    return replace(standing, leads_epoch=None, since_ms=now_ms)


def next_step(standing: LeadershipStanding, now_ms: int) -> LeadershipStep:
    """What this control does now."""
    passed_ms = now_ms - standing.since_ms
    if standing.leads_epoch is not None:
        if passed_ms >= LEASE_MS:
            return LeadershipStep.STEP_DOWN  # another may lead by now
        return LeadershipStep.RENEW if passed_ms >= RENEW_AFTER_MS else LeadershipStep.LEAD
    return LeadershipStep.BID if passed_ms >= bids_after_ms(standing) else LeadershipStep.WAIT


def bids_after_ms(standing: LeadershipStanding) -> int:
    """How long the row has to stand still before this follower bids."""
    if standing.seen is None:
        return LEASE_MS  # it has not looked yet
    if not standing.seen.holder:
        return int(RESIGNED_SPREAD_MS_MAX * standing.spread_share)
    return LEASE_MS + int(SPREAD_MS_MAX * standing.spread_share)
