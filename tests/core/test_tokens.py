"""Tokens: made, found, used, ended; what is kept of them, and when they let no caller in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from forewarn.core import tokens
from forewarn.core.access import Role
from forewarn.core.errors import Conflict, Invalid, NotFound, TokenEnded, TokenExists
from forewarn.core.model import DAY_MS, FactKind
from forewarn.core.principal import OPERATOR, Principal, PrincipalKind
from forewarn.core.tokens import Token, TokenTerms, token_text

NOW = 1_772_532_000_000
SECRET = "a" * 40
IDS = iter(f"{letter}{second}aaaaaaaa" for letter in "abcdefgh" for second in "abcdefgh")


def terms(name: str = "ci", role: Role = Role.VIEWER, *scopes: str, **changed: Any) -> TokenTerms:
    made = TokenTerms(
        token_id=next(IDS),
        name=name,
        role=role,
        scopes=scopes,
        secret_hash=tokens.hash_of("x"),
        valid_ms=DAY_MS,
        later=False,
    )
    return msgspec.structs.replace(made, **changed)


def make(wanted: TokenTerms, *there: Token, now_ms: int = NOW) -> tokens.TokenChange:
    known = {one.token_id: one for one in there}
    return tokens.make(known, wanted, scopes={"web", "db"}, by=OPERATOR, now_ms=now_ms)


def test_a_token_has_an_id_that_is_public_and_a_secret_of_which_a_hash_is_kept() -> None:
    text = token_text("abcdefghij", SECRET)
    assert text == f"fwt_abcdefghij_{SECRET}"
    assert tokens.id_of(text) == "abcdefghij"
    assert SECRET not in tokens.hash_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fwt_",
        "fwt_abcdefghij",
        f"fwt_abcdefghij_{SECRET}a",
        f"fwt_abcdefghij_{SECRET[:-1]}",
        f" fwt_abcdefghij_{SECRET}",
        f"fwt_abcdefghij_{SECRET}\n",
        f"FWT_ABCDEFGHIJ_{SECRET}",
        f"fwt_abcdefghi1_{SECRET}",
        f"fwt_abcdefghij_{SECRET[:-1]}\u0430",
    ],
)
def test_what_is_not_a_whole_token_has_no_id(text: str) -> None:
    assert tokens.id_of(text) is None


def test_the_journal_says_who_made_a_token_and_nothing_of_its_secret() -> None:
    made = make(terms("ci", Role.OWNER, "web"))
    assert made.fact.kind is FactKind.TOKEN_MADE
    assert (made.fact.by, made.fact.by_kind, made.fact.by_id) == (
        "operator",
        PrincipalKind.OPERATOR,
        "operator",
    )
    written = msgspec.json.encode(made.fact.detail)
    assert b"web" in written
    assert made.token.secret_hash.encode() not in written


@pytest.mark.parametrize(
    ("role", "scopes", "why"),
    [
        (Role.OWNER, (), "An owner needs scopes"),
        (Role.VIEWER, ("web",), "has no scopes"),
        (Role.OPERATOR, ("web",), "has no scopes"),
        (Role.OWNER, ("web", "web"), "one of them twice"),
        (Role.OWNER, ("wbe",), "Did you mean web"),
        (Role.OWNER, ("",), "There is no scope"),
        (Role.OWNER, ("web\x1b[2J",), "There is no scope"),
        (Role.OWNER, tuple(f"s{n}" for n in range(101)), "101 scopes"),
    ],
)
def test_scopes_that_make_no_sense_are_refused(
    role: Role, scopes: tuple[str, ...], why: str
) -> None:
    with pytest.raises(Invalid, match=why):
        make(terms("ci", role, *scopes))


def test_scopes_that_are_to_come_have_to_be_said_to() -> None:
    token = make(terms("ci", Role.OWNER, "soon", later=True)).token
    assert token.access().sees("soon")
    with pytest.raises(Invalid, match="no scope"):
        make(terms("ci", Role.OWNER, "so\non", later=True))


@pytest.mark.parametrize(
    "name", ["", " ci", "a\nb", "\x1b[31m", "x" * 65, "Ticker", "control\u202e"]
)
def test_a_name_that_the_journal_cannot_show_is_refused(name: str) -> None:
    with pytest.raises(Invalid):
        make(terms(name))


@pytest.mark.parametrize("valid_ms", [0, -1, 59_999, 367 * DAY_MS])
def test_a_token_is_valid_from_a_minute_to_a_year(valid_ms: int) -> None:
    with pytest.raises(Invalid):
        make(terms(valid_ms=valid_ms))


def test_a_name_is_that_of_one_token_that_lets_in() -> None:
    first = make(terms("ci")).token
    with pytest.raises(TokenExists, match="fwt_"):
        make(terms("ci"), first)
    make(terms("ci"), first, now_ms=first.expires_ms)
    revoked = tokens.revoke(first, by=OPERATOR, now_ms=NOW)
    assert revoked is not None
    make(terms("ci"), revoked.token)


def test_a_token_is_found_by_its_id_by_its_name_and_not_by_a_part() -> None:
    one = make(terms("ci")).token
    known = {one.token_id: one}
    assert tokens.find(known, one.token_id) is one
    assert tokens.find(known, f"fwt_{one.token_id}") is one
    assert tokens.find(known, "ci") is one
    with pytest.raises(NotFound, match="Did you mean ci"):
        tokens.find(known, "cii")


def test_of_one_name_the_token_that_lets_in_is_meant() -> None:
    old = make(terms("ci")).token
    gone = tokens.revoke(old, by=OPERATOR, now_ms=NOW)
    assert gone is not None
    new = make(terms("ci", valid_ms=60_000), gone.token).token
    assert tokens.find({old.token_id: gone.token, new.token_id: new}, "ci") is new


def test_a_token_lets_in_until_it_expires_or_is_revoked() -> None:
    token = make(terms()).token
    by = token.access().principal
    known = {token.token_id: token}
    tokens.refuse_ended(known, by, token.expires_ms - 1)
    with pytest.raises(TokenEnded, match="expired"):
        tokens.refuse_ended(known, by, token.expires_ms)
    gone = tokens.revoke(token, by=OPERATOR, now_ms=NOW)
    assert gone is not None
    with pytest.raises(TokenEnded, match="revoked"):
        tokens.refuse_ended({token.token_id: gone.token}, by, NOW)
    with pytest.raises(TokenEnded, match="revoked"):
        tokens.refuse_ended({}, by, NOW)
    assert tokens.revoke(gone.token, by=OPERATOR, now_ms=NOW) is None


def test_who_came_another_way_has_no_token_that_could_end() -> None:
    for by in (OPERATOR, Principal(kind=PrincipalKind.OPERATOR, id="socket:0", name="root")):
        tokens.refuse_ended({}, by, NOW)


def test_a_token_that_is_rotated_has_another_secret_and_a_new_expiry() -> None:
    token = make(terms()).token
    later = NOW + 1_000
    made = tokens.rotate(token, secret_hash="new", valid_ms=DAY_MS, by=OPERATOR, now_ms=later)
    assert (made.token.secret_hash, made.token.token_id) == ("new", token.token_id)
    assert (made.token.expires_ms, made.token.rotated_ms) == (later + DAY_MS, later)
    gone = tokens.revoke(token, by=OPERATOR, now_ms=NOW)
    assert gone is not None
    with pytest.raises(Conflict, match="stays revoked"):
        tokens.rotate(gone.token, secret_hash="new", valid_ms=DAY_MS, by=OPERATOR, now_ms=later)


def test_the_last_use_is_kept_now_and_then_only() -> None:
    token = tokens.used(make(terms()).token, NOW)
    assert token is not None
    assert token.used_ms == NOW
    assert tokens.used(token, NOW + tokens.USED_EVERY_MS - 1) is None
    assert tokens.used(token, NOW - 1) is None  # the clock was set back
    assert tokens.used(None, NOW) is None
    again = tokens.used(token, NOW + tokens.USED_EVERY_MS)
    assert again is not None
    assert again.used_ms == NOW + tokens.USED_EVERY_MS


def test_tokens_that_have_ended_make_room_the_first_to_end_first_and_no_other_does() -> None:
    full = {
        f"{n:010}": msgspec.structs.replace(
            make(terms()).token if n == 0 else full_of[0], token_id=f"{n:010}", name=f"n{n}"
        )
        for full_of in [[make(terms()).token]]
        for n in range(tokens.TOKENS_MAX)
    }
    with pytest.raises(Conflict, match="1000 tokens"):
        make(terms("one more"), *full.values())
    full["0000000007"] = msgspec.structs.replace(full["0000000007"], revoked_ms=NOW - 5)
    full["0000000003"] = msgspec.structs.replace(full["0000000003"], revoked_ms=NOW - 9)
    assert make(terms("one more"), *full.values()).dropped == ("0000000003",)


def test_an_owner_is_told_from_an_operator_by_the_kind_of_its_principal() -> None:
    owner = make(terms("ann", Role.OWNER, "web")).token.access()
    assert owner.principal.kind is PrincipalKind.OWNER
    assert (
        make(terms("olga", Role.OPERATOR)).token.access().principal.kind is PrincipalKind.OPERATOR
    )
    assert owner.principal.id.startswith("token:")
