"""Who leads: by time that each control has seen pass, and by nothing that another's clock says."""

from __future__ import annotations

import random

import pytest

from forewarn.core import leadership
from forewarn.core.leadership import (
    LEASE_MS,
    RENEW_AFTER_MS,
    LeadershipRow,
    LeadershipStanding,
    LeadershipStep,
)

SPREAD_MS = leadership.SPREAD_MS_MAX


def follower(**known: object) -> LeadershipStanding:
    return LeadershipStanding(name="b", **known)  # type: ignore[arg-type]


def leader(since_ms: int = 0) -> LeadershipStanding:
    return leadership.won(LeadershipStanding(name="a"), LeadershipRow(3, 7, "a"), since_ms)


def test_a_follower_waits_while_the_row_moves_and_bids_once_it_stands_still() -> None:
    standing = follower(spread_share=1.0)
    now_ms = 0
    for batch in range(5):
        now_ms += LEASE_MS - 1
        standing = leadership.looked(standing, LeadershipRow(3, batch, "a"), now_ms)
        assert leadership.next_step(standing, now_ms) is LeadershipStep.WAIT
    standing = leadership.looked(
        standing, LeadershipRow(3, 4, "a"), now_ms + LEASE_MS + SPREAD_MS - 1
    )
    assert leadership.next_step(standing, now_ms + LEASE_MS + SPREAD_MS - 1) is LeadershipStep.WAIT
    assert leadership.next_step(standing, now_ms + LEASE_MS + SPREAD_MS) is LeadershipStep.BID


def test_a_control_that_has_just_begun_gives_the_leader_a_whole_lease() -> None:
    standing = follower(since_ms=50_000)
    assert leadership.next_step(standing, 50_000 + LEASE_MS - 1) is LeadershipStep.WAIT
    standing = leadership.looked(standing, LeadershipRow(9, 9, "a"), 53_000)
    assert leadership.next_step(standing, 53_000 + LEASE_MS - 1) is LeadershipStep.WAIT


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_leader_that_has_resigned_is_replaced_at_once(share: float) -> None:
    standing = leadership.looked(follower(spread_share=share), LeadershipRow(3, 4, "a"), 10_000)
    standing = leadership.looked(standing, LeadershipRow(3, 5, ""), 11_000)
    soon_ms = 11_000 + leadership.RESIGNED_SPREAD_MS_MAX
    assert leadership.next_step(standing, soon_ms) is LeadershipStep.BID


def test_a_new_epoch_is_a_new_lease_also_for_a_row_that_has_no_new_batch() -> None:
    standing = leadership.looked(follower(), LeadershipRow(3, 4, "a"), 0)
    standing = leadership.looked(standing, LeadershipRow(4, 4, "c"), LEASE_MS)
    assert leadership.next_step(standing, LEASE_MS + LEASE_MS - 1) is LeadershipStep.WAIT


def test_a_leader_renews_what_it_has_not_renewed_by_writing() -> None:
    standing = leader()
    assert leadership.next_step(standing, RENEW_AFTER_MS - 1) is LeadershipStep.LEAD
    assert leadership.next_step(standing, RENEW_AFTER_MS) is LeadershipStep.RENEW
    standing = leadership.confirmed(standing, 8, RENEW_AFTER_MS)
    assert leadership.next_step(standing, 2 * RENEW_AFTER_MS - 1) is LeadershipStep.LEAD


def test_a_leader_steps_down_when_another_may_lead_counted_from_when_it_sent_its_batch() -> None:
    """The answer may have been on its way for long: the row has moved before it came."""
    standing = leadership.confirmed(leader(), 8, sent_ms=500)
    assert leadership.next_step(standing, 500 + LEASE_MS - 1) is not LeadershipStep.STEP_DOWN
    assert leadership.next_step(standing, 500 + LEASE_MS) is LeadershipStep.STEP_DOWN


def test_a_leader_that_sees_another_epoch_leads_no_longer() -> None:
    standing = leadership.looked(leader(), LeadershipRow(4, 9, "c"), 100)
    assert standing.leads_epoch is None
    assert leadership.confirmed(standing, 10, 200) == standing


def test_a_leader_that_has_lost_its_session_gives_the_next_one_a_whole_lease() -> None:
    standing = leadership.lost(leader(), 2_000)
    assert leadership.next_step(standing, 2_000 + LEASE_MS - 1) is LeadershipStep.WAIT
    assert leadership.next_step(standing, 2_000 + LEASE_MS) is LeadershipStep.BID


@pytest.mark.parametrize("seed", range(20))
def test_a_leader_has_stepped_down_before_a_follower_bids_whatever_is_late(seed: int) -> None:
    """While clocks run alike: looks and batches take any time, and one side stands still."""
    rng = random.Random(seed)
    row, leads, follows = LeadershipRow(1, 0, "a"), leader(), follower(spread_share=rng.random())
    leads = leadership.won(LeadershipStanding(name="a"), row, 0)
    now_ms, cut_ms = 0, rng.randrange(1_000, 20_000)
    while leadership.next_step(follows, now_ms) is not LeadershipStep.BID:
        now_ms += rng.randrange(1, 400)
        if now_ms < cut_ms and leadership.next_step(leads, now_ms) is LeadershipStep.RENEW:
            sent_ms = now_ms
            now_ms += rng.randrange(1, 300)  # written now, confirmed later
            row = LeadershipRow(1, row.batch + 1, "a")
            leads = leadership.confirmed(leads, row.batch, sent_ms)
        if rng.random() < 0.7:
            follows = leadership.looked(follows, row, now_ms)
        assert now_ms < 60_000, "nobody ever bids"
    assert leadership.next_step(leads, now_ms) is LeadershipStep.STEP_DOWN
