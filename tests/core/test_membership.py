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
    after = membership.revoke(joined(invited()), "h1", now_ms=NOW)
    with pytest.raises(NotMember, match=r"has not joined, or was revoked.*host invite h1"):
        membership.need_member(after, name="h1", key="k1")
    with pytest.raises(NotInvited):
        joined(after)


def test_who_has_not_joined_cannot_be_revoked() -> None:
    with pytest.raises(NotFound, match=r"No host has joined as h9\. There are: h1\."):
        membership.revoke(joined(invited()), "h9", now_ms=NOW)


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


# Two lists put together: that of a backup, and that of the machine.


def both(*names: str) -> Members:
    known = Members()
    for number, name in enumerate(names):
        known = invited(name, known=known, digest=f"d-{name}")
        known = joined(known, name, key=f"k-{name}", digest=f"d-{name}", now_ms=NOW + number)
    return known


def test_a_host_that_was_revoked_after_a_list_was_saved_is_no_member_when_that_comes_back() -> None:
    saved = both("h1", "h2")
    own = membership.revoke(saved, "h1", now_ms=NOW + HOUR_MS)

    after = membership.rejoined(saved, own, ())

    assert list(after.members) == ["h2"]
    assert [(one.name, one.key) for one in after.revoked] == [("h1", "k-h1")]
    with pytest.raises(NotInvited):  # and its used token is worth nothing again
        joined(after, "h1", key="k-h1", digest="d-h1")


def test_a_revocation_counts_wherever_it_is_found() -> None:
    saved = both("h1", "h2")
    elsewhere = membership.revoke(saved, "h2", now_ms=NOW + HOUR_MS).revoked
    assert list(membership.rejoined(saved, None, elsewhere).members) == ["h1"]


def test_a_host_that_joined_again_with_the_same_key_after_it_was_revoked_is_a_member() -> None:
    saved = both("h1")
    own = membership.revoke(saved, "h1", now_ms=NOW + HOUR_MS)
    own = invited("h1", known=own, digest="again", now_ms=NOW + 2 * HOUR_MS)
    own = joined(own, "h1", key="k-h1", digest="again", now_ms=NOW + 2 * HOUR_MS)

    assert list(membership.rejoined(saved, own, ()).members) == ["h1"]


def test_the_key_that_another_machine_took_the_place_of_does_not_come_back() -> None:
    saved = both("h1")
    own = invited("h1", known=saved, digest="new", replaces=True)
    own = joined(own, "h1", key="k-new", digest="new", now_ms=NOW + 1_000)
    assert [one.key for one in own.revoked] == ["k-h1"]

    for lists in ((saved, own), (own, saved)):
        assert membership.rejoined(*lists, ()).members["h1"].key == "k-new"


def test_an_invitation_that_was_open_when_a_list_was_saved_lets_no_host_in() -> None:
    saved = invited("h2", known=both("h1"), digest="open")
    own = invited("h3", known=both("h1"), digest="own")
    after = membership.rejoined(saved, own, ())
    assert {one.digest for one in after.invitations} == {"d-h1", "own"}


def test_a_token_that_was_used_on_the_machine_is_used_whatever_the_saved_list_says() -> None:
    used = both("h1")
    unused = invited("h1", digest="d-h1")
    for lists in ((unused, used), (used, unused)):
        (one,) = membership.rejoined(*lists, ()).invitations
        assert one.used_key == "k-h1"


def test_a_revocation_is_forgotten_when_the_certificate_has_long_expired() -> None:
    first = membership.revoke(both("h1", "h2"), "h1", now_ms=NOW + HOUR_MS)
    later = NOW + HOUR_MS + membership.REVOKED_KEPT_MS

    def revoked(now_ms: int) -> list[str]:
        return [one.name for one in membership.revoke(first, "h2", now_ms=now_ms).revoked]

    assert revoked(later - 1) == ["h1", "h2"]
    assert revoked(later) == ["h2"]
