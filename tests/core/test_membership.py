"""Who may speak as a host: tokens let one host in, once; names and keys are nobody else's."""

from __future__ import annotations

import pytest

from forewarn.core import membership
from forewarn.core.errors import NameTaken, NotFound, NotInvited, NotMember
from forewarn.core.membership import (
    ENDED_KEPT_MS,
    INVITATIONS_MAX,
    VALID_MS_MAX,
    Invitation,
    Members,
)
from forewarn.core.model import DAY_MS, HOUR_MS

NOW = 1_800_000_000_000


def invited(
    name: str = "h1",
    *,
    known: Members | None = None,
    digest: str = "d1",
    replaces: bool = False,
    now_ms: int = NOW,
) -> Members:
    return membership.invite(
        known or Members(),
        digest=digest,
        name=name,
        valid_ms=HOUR_MS,
        now_ms=now_ms,
        replaces=replaces,
    )


def joined(
    known: Members, name: str = "h1", *, key: str = "k1", digest: str = "d1", now_ms: int = NOW
) -> Members:
    return membership.join(known, name=name, key=key, digest=digest, now_ms=now_ms)


def test_a_token_lets_the_host_it_names_in() -> None:
    after = joined(invited())
    assert after.members["h1"].key == "k1"
    assert membership.need_member(after, name="h1", key="k1").since_ms == NOW


def test_a_token_for_any_name_that_an_older_control_made_lets_nobody_in() -> None:
    old = Invitation(digest="d1", name=None, expires_ms=NOW + HOUR_MS)
    with pytest.raises(NotInvited, match=r"not one of this .* `forewarn host invite h7`"):
        joined(Members(invitations=(old,)), "h7")


def test_a_token_lets_nobody_in_under_another_name() -> None:
    with pytest.raises(NotInvited, match="is for host h1, not for h2"):
        joined(invited(), "h2")


def test_a_token_that_is_not_ours_says_so_and_how_to_get_one() -> None:
    with pytest.raises(NotInvited, match=r"not one of this .* `forewarn host invite h1`"):
        joined(invited(), digest="other")


def test_a_token_expires() -> None:
    known = invited()
    joined(known, now_ms=NOW + HOUR_MS - 1)
    with pytest.raises(NotInvited, match="has expired"):
        joined(known, now_ms=NOW + HOUR_MS)


@pytest.mark.parametrize(("name", "key"), [("h1", "k2"), ("h2", "k1"), ("h2", "k2")])
def test_a_token_is_used_once(name: str, key: str) -> None:
    known = joined(invited())
    with pytest.raises(NotInvited, match="used already, by host h1"):
        joined(known, name, key=key)


@pytest.mark.parametrize(("name", "remedy"), [("h1", "invite h1 --replace`"), ("h2", "invite h2`")])
def test_the_remedy_for_a_used_token_is_one_that_control_takes(name: str, remedy: str) -> None:
    known = joined(invited())
    with pytest.raises(NotInvited) as refused:
        joined(known, name, key="k2")
    assert remedy in refused.value.accepted


def test_the_same_host_may_ask_again_because_the_answer_may_have_been_lost() -> None:
    known = joined(invited())
    again = joined(known, now_ms=NOW + 1)
    assert again == known


def test_who_was_replaced_does_not_come_back_with_its_old_token() -> None:
    known = invited(known=joined(invited()), digest="d2", replaces=True)
    replaced = joined(known, key="k2", digest="d2")
    with pytest.raises(NameTaken, match=r"Another host has joined as h1.*invite h1 --replace"):
        joined(replaced, key="k1", digest="d1")


def test_a_name_that_is_taken_is_invited_again_only_to_replace() -> None:
    known = joined(invited())
    with pytest.raises(NameTaken, match="invite h1 --replace"):
        invited(known=known, digest="d2")

    after = joined(invited(known=known, digest="d2", replaces=True), key="k2", digest="d2")

    assert membership.need_member(after, name="h1", key="k2").name == "h1"
    with pytest.raises(NotMember, match="Another machine has taken the place"):
        membership.need_member(after, name="h1", key="k1")


def test_until_the_other_machine_has_joined_the_first_one_stays_a_member() -> None:
    known = invited(known=joined(invited()), digest="d2", replaces=True)
    assert membership.need_member(known, name="h1", key="k1").name == "h1"


def test_a_new_invitation_for_a_name_ends_the_last_one() -> None:
    known = invited(known=invited(), digest="d2")
    with pytest.raises(NotInvited):
        joined(known, digest="d1")
    assert joined(known, digest="d2").members


def test_who_is_revoked_is_out_and_its_token_too() -> None:
    after = membership.revoke(joined(invited()), "h1")
    with pytest.raises(NotMember, match=r"has not joined, or was revoked.*host invite h1"):
        membership.need_member(after, name="h1", key="k1")
    with pytest.raises(NotInvited):
        joined(after)


def test_who_has_not_joined_cannot_be_revoked() -> None:
    with pytest.raises(NotFound, match=r"No host has joined as h9\. There are: h1\."):
        membership.revoke(joined(invited()), "h9")


def test_invitations_do_not_pile_up() -> None:
    known = joined(invited())
    for number in range(INVITATIONS_MAX + 5):
        known = invited(f"n{number}", known=known, digest=f"n{number}")
    assert len(known.invitations) == INVITATIONS_MAX
    # The used one went first, then the oldest; the newest is there.
    assert known.invitations[-1].digest == f"n{INVITATIONS_MAX + 4}"
    assert "d1" not in {one.digest for one in known.invitations}

    later = invited("late", known=known, digest="late", now_ms=NOW + HOUR_MS + ENDED_KEPT_MS)
    assert [one.digest for one in later.invitations] == ["late"]


def test_no_token_is_valid_for_ever() -> None:
    known = membership.invite(
        Members(), digest="d", name="h1", valid_ms=10_000 * DAY_MS, now_ms=NOW
    )
    assert known.invitations[0].expires_ms == NOW + VALID_MS_MAX
