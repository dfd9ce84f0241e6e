"""Four roles, default deny, and what is said when a right is missing."""

from __future__ import annotations

import msgspec
import pytest

from forewarn.core.access import RIGHTS, Access, Right, Role
from forewarn.core.errors import Forbidden
from forewarn.core.principal import OPERATOR, Principal, PrincipalKind

ANNA = Principal(kind=PrincipalKind.OWNER, id="token:abc", name="anna")
OWNER = Access(principal=ANNA, role=Role.OWNER, scopes=("web", "db"))


def test_every_role_has_rights_and_no_right_is_of_nobody() -> None:
    assert set(RIGHTS) == set(Role)
    assert {right for rights in RIGHTS.values() for right in rights} == set(Right)


def test_only_an_admin_administers_and_a_viewer_only_looks() -> None:
    assert [role for role in Role if Right.ADMINISTER in RIGHTS[role]] == [Role.ADMIN]
    assert RIGHTS[Role.VIEWER] == {Right.VIEW}
    assert Right.OVERRIDE not in RIGHTS[Role.OWNER]
    assert Right.OPERATE not in RIGHTS[Role.OWNER]


def test_the_rights_of_an_owner_hold_in_his_scopes_alone() -> None:
    assert OWNER.may(Right.CONSENT)
    assert OWNER.may(Right.CONSENT, "web")
    assert not OWNER.may(Right.CONSENT, "Web")
    assert not OWNER.may(Right.CONSENT, "other")
    assert not OWNER.may(Right.OPERATE, "web")
    assert not OWNER.sees("other")
    assert not OWNER.sees(None)
    assert not OWNER.all_scopes


def test_an_owner_of_no_scope_sees_nothing() -> None:
    nobody = Access(principal=ANNA, role=Role.OWNER)
    assert not nobody.sees("")
    assert not nobody.may(Right.VIEW, "web")


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.ADMIN])
def test_every_other_role_is_for_the_whole_fleet(role: Role) -> None:
    access = Access(principal=OPERATOR, role=role)
    assert access.all_scopes
    assert access.sees("anything")
    assert access.sees(None)


def test_a_refusal_says_which_right_is_missing_for_what_and_who_has_it() -> None:
    with pytest.raises(Forbidden) as told:
        OWNER.need(Right.OPERATE, what="to close host h1")
    assert told.value.code == "forbidden"
    assert "anna has no right operate" in told.value.refused
    assert "to close host h1" in told.value.refused
    assert "operator or admin" in told.value.accepted


def test_a_refusal_in_a_scope_names_the_scope_and_those_that_are_ones_own() -> None:
    with pytest.raises(Forbidden) as told:
        OWNER.need(Right.ORDER_VM, scope="other", what="to restart VM x-0")
    assert "order-vm in the scope other" in told.value.refused
    assert "web, db" in told.value.accepted
    OWNER.need(Right.ORDER_VM, scope="web", what="to restart VM web-0")


def test_a_right_in_some_scopes_is_no_right_for_the_whole_fleet() -> None:
    with pytest.raises(Forbidden, match="for the whole fleet") as told:
        OWNER.need_everywhere(Right.VIEW, what="for GET /metrics")
    assert "owner" not in told.value.accepted


def test_an_access_is_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(OWNER), type=Access) == OWNER
