"""What the claims of a token grant: for us, for now, and as the settings say; else nothing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from forewarn.core.access import Role
from forewarn.core.errors import BadToken, NoRole
from forewarn.core.oidc_claims import (
    LEEWAY_S,
    LIFETIME_S,
    SUBJECT_CHARS_MAX,
    IssuerRules,
    granted,
)
from forewarn.core.principal import OPERATOR_NAME_CHARS_MAX, RESERVED_NAMES, PrincipalKind

NOW_S = 1_772_532_000
ISSUER = "https://login.example.com/realms/ops"
RULES = IssuerRules(
    issuer=ISSUER,
    audience=("forewarn", "forewarn-too"),
    roles={
        "ops": Role.OPERATOR,
        "boss": Role.ADMIN,
        "guests": Role.VIEWER,
        "team": Role.OWNER,
    },
    scopes_claim=("groups",),
    scopes_prefix="scope/",
)


def claims(**changed: object) -> dict[str, Any]:
    """Good claims, but for what is given; None leaves a claim out."""
    said = {
        "iss": ISSUER,
        "aud": "forewarn",
        "sub": "u-1",
        "iat": NOW_S - 10,
        "exp": NOW_S + 600,
        "roles": ["ops"],
        "preferred_username": "ann",
        **changed,
    }
    return {name: value for name, value in said.items() if value is not None}


def refused(**changed: object) -> str:
    with pytest.raises(BadToken) as raised:
        granted(claims(**changed), RULES, now_s=NOW_S)
    return raised.value.refused


def test_claims_give_a_principal_with_a_name_and_a_role() -> None:
    found = granted(claims(), RULES, now_s=NOW_S)

    assert found.role is Role.OPERATOR
    assert found.scopes == ()
    assert found.principal.kind is PrincipalKind.OPERATOR
    assert found.principal.id == f"oidc:{ISSUER}#u-1"
    assert found.principal.name == "ann"


@pytest.mark.parametrize("audience", ["forewarn", "forewarn-too", ["x", "forewarn"]])
def test_one_of_our_audiences_is_enough(audience: object) -> None:
    assert granted(claims(aud=audience), RULES, now_s=NOW_S).role is Role.OPERATOR


@pytest.mark.parametrize(
    "audience", [None, "", "Forewarn", "forewar", "other", [], ["other"], [["forewarn"]], {}, 7]
)
def test_a_token_for_another_audience_is_refused(audience: object) -> None:
    assert "audience" in refused(aud=audience)


@pytest.mark.parametrize(
    "issuer", [None, "", f"{ISSUER}/", ISSUER.upper(), "https://other.example.com", [ISSUER]]
)
def test_a_token_of_another_issuer_is_refused(issuer: object) -> None:
    assert "issuer" in refused(iss=issuer)


def test_a_token_is_good_until_its_end_and_the_leeway_after_it() -> None:
    granted(claims(exp=NOW_S - LEEWAY_S + 1), RULES, now_s=NOW_S)
    assert "expired" in refused(exp=NOW_S - LEEWAY_S)
    assert "expired" in refused(exp=0, iat=0)


def test_a_token_is_good_from_its_beginning_and_the_leeway_before_it() -> None:
    granted(claims(nbf=NOW_S + LEEWAY_S, iat=NOW_S + LEEWAY_S), RULES, now_s=NOW_S)
    assert "not valid yet" in refused(nbf=NOW_S + LEEWAY_S + 1)
    assert "not valid yet" in refused(iat=NOW_S + LEEWAY_S + 1)
    assert "not valid yet" in refused(iat=NOW_S + LEEWAY_S + 1, nbf=NOW_S)


def test_a_token_that_lives_too_long_is_refused_however_new_it_is() -> None:
    granted(claims(iat=NOW_S, exp=NOW_S + LIFETIME_S), RULES, now_s=NOW_S)
    assert "lives longer" in refused(iat=NOW_S, exp=NOW_S + LIFETIME_S + 1)
    short = replace(RULES, lifetime_s=300)
    with pytest.raises(BadToken, match="at most 300 s"):
        granted(claims(), short, now_s=NOW_S)


@pytest.mark.parametrize("name", ["exp", "iat", "sub", "aud", "iss"])
def test_a_claim_that_must_be_there_is_missed(name: str) -> None:
    assert refused(**{name: None})


@pytest.mark.parametrize("name", ["exp", "iat", "nbf"])
@pytest.mark.parametrize(
    "value", ["1772532600", True, [], {}, -1, float("nan"), float("inf"), 10**400, 1 << 50]
)
def test_what_is_no_time_is_refused(name: str, value: object) -> None:
    assert refused(**{name: value})


@pytest.mark.parametrize(
    "subject", ["", 7, ["u"], "x" * (SUBJECT_CHARS_MAX + 1), "a\nb", "a\u202eb", "\ud800", "\0"]
)
def test_a_subject_that_cannot_be_written_down_is_refused(subject: object) -> None:
    assert "`sub`" in refused(sub=subject)


def test_tokens_that_are_not_shown_by_callers_are_refused() -> None:
    assert "bound to a key" in refused(cnf={"jkt": "x"})
    logout: dict[str, object] = {"http://schemas.openid.net/event/backchannel-logout": {}}
    assert "lets no caller in" in refused(events=logout)


@pytest.mark.parametrize(
    ("roles", "role"),
    [
        ("ops", Role.OPERATOR),
        (["guests", "ops"], Role.OPERATOR),
        (["boss", "guests", "nothing"], Role.ADMIN),
        (["guests", 7, None, ["boss"]], Role.VIEWER),
    ],
)
def test_the_highest_role_of_a_claim_counts(roles: object, role: Role) -> None:
    assert granted(claims(roles=roles), RULES, now_s=NOW_S).role is role


@pytest.mark.parametrize(
    "roles", [None, "", "Ops", "ops boss", [], ["nothing"], {"ops": True}, True, [["ops"]]]
)
def test_without_a_value_that_the_settings_name_there_is_no_role(roles: object) -> None:
    with pytest.raises(NoRole) as raised:
        granted(claims(roles=roles), RULES, now_s=NOW_S)
    assert "gives no role" in raised.value.refused
    assert raised.value.accepted


def test_a_claim_in_another_claim_and_one_of_several_words_are_found() -> None:
    nested = replace(RULES, role_claim=("realm_access", "roles"))
    found = granted(claims(roles=None, realm_access={"roles": ["boss"]}), nested, now_s=NOW_S)
    assert found.role is Role.ADMIN
    for wrong in ("boss", ["boss"], {"roles": None}, {}):
        with pytest.raises(NoRole):
            granted(claims(realm_access=wrong), nested, now_s=NOW_S)
    spaced = replace(RULES, role_claim=("scope",))
    assert granted(claims(scope="openid ops"), spaced, now_s=NOW_S).role is Role.OPERATOR
    subject = replace(RULES, role_claim=("sub",), roles={"repo:x:ref:main": Role.OPERATOR})
    assert granted(claims(sub="repo:x:ref:main"), subject, now_s=NOW_S).role is Role.OPERATOR


def test_an_owner_has_the_scopes_that_the_claim_names_and_no_others() -> None:
    groups = ["scope/web", "scope/db", "scope/web", "web-2", "scope/", "scope/a b", "scope/../x", 7]
    found = granted(claims(roles="team", groups=groups), RULES, now_s=NOW_S)

    assert found.role is Role.OWNER
    assert found.principal.kind is PrincipalKind.OWNER
    assert found.scopes == ("web", "db")
    assert granted(claims(roles=["team", "ops"], groups=groups), RULES, now_s=NOW_S).scopes == ()


@pytest.mark.parametrize("groups", [None, [], "web", ["web"], {"scope/web": 1}])
def test_an_owner_without_a_scope_gets_in_nowhere(groups: object) -> None:
    with pytest.raises(NoRole, match="names no scope"):
        granted(claims(roles="team", groups=groups), RULES, now_s=NOW_S)


@pytest.mark.parametrize(
    ("claimed", "name"),
    [
        ("Ann Müller", "Ann Müller"),
        ("  ann\t\n x ", "ann x"),
        ("安娜", "安娜"),
        ("ann\u202egnp.exe", "ann gnp.exe"),
        ("\x1b[31mann", "[31mann"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("x" * 500, "x" * OPERATOR_NAME_CHARS_MAX),
        ("a\ud800b", "a b"),
        ("", "u-1"),
        ("\u200b\u200b", "u-1"),
        (None, "u-1"),
        (7, "u-1"),
        (["ann"], "u-1"),
    ],
)
def test_a_name_is_what_can_be_shown_of_the_claim_else_the_subject(
    claimed: object, name: str
) -> None:
    found = granted(claims(preferred_username=claimed), RULES, now_s=NOW_S).principal.name

    assert found == name
    assert found.isprintable()


@pytest.mark.parametrize("taken", [*sorted(RESERVED_NAMES), "Ticker", "\uff23lock", " policy "])
def test_no_token_acts_under_a_name_of_control_itself(taken: str) -> None:
    assert granted(claims(preferred_username=taken), RULES, now_s=NOW_S).principal.name == "u-1"
    both = claims(preferred_username=taken, sub="ticker")
    assert granted(both, RULES, now_s=NOW_S).principal.name == "oidc ticker"


def test_the_same_subject_of_two_issuers_is_two_principals() -> None:
    other = replace(RULES, issuer="https://login.example.org")
    one = granted(claims(), RULES, now_s=NOW_S).principal
    two = granted(claims(iss=other.issuer), other, now_s=NOW_S).principal

    assert one.name == two.name
    assert one.id != two.id
