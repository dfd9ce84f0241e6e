"""Who may do what: four roles, the rights that each has, and what is said when one is missing.

Rules only; how a principal comes in is `api.access`. What no role is given here is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from forewarn.core.attributes import NAME
from forewarn.core.errors import Forbidden
from forewarn.core.principal import Principal

SCOPES_NAMED_MAX = 3
_GROUP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


class Role(StrEnum):
    """What a principal is. Each but the owner is for the whole fleet."""

    VIEWER = "viewer"
    OWNER = "owner"
    OPERATOR = "operator"
    ADMIN = "admin"


class Right(StrEnum):
    """What a principal may do. Every route names one."""

    VIEW = "view"  # read what is there
    CONSENT = "consent"  # approve events of a scope as its owner
    ORDER_VM = "order-vm"  # restart or redeploy a VM, postpone an event, as its owner
    OPERATE = "operate"  # orders on hosts, operations, scopes and VMs
    OVERRIDE = "override"  # approve in a guest's name, break domains, fence by force: for a reason
    ADMINISTER = "administer"  # tokens, webhooks, members, backup, inventory


_OWNER = frozenset({Right.VIEW, Right.CONSENT, Right.ORDER_VM})
_OPERATOR = _OWNER | {Right.OPERATE, Right.OVERRIDE}

RIGHTS: Mapping[Role, frozenset[Right]] = {
    Role.VIEWER: frozenset({Right.VIEW}),
    Role.OWNER: _OWNER,  # in his own scopes only
    Role.OPERATOR: _OPERATOR,
    Role.ADMIN: _OPERATOR | {Right.ADMINISTER},
}


class SocketGroup(Struct, frozen=True, kw_only=True):
    """What members of a local group may do by the operator's socket; an owner in one scope."""

    group: str
    role: Role
    scope: str | None = None


SOCKET_GROUP_ACCEPTED = 'a role is viewer, operator, admin or owner:SCOPE, like "web=owner:web"'


def socket_group(text: str) -> SocketGroup:
    """What a text like `ops=operator` or `web-team=owner:web` says. Raises ValueError."""
    group, _, rest = text.partition("=")
    role, colon, scope = rest.partition(":")
    if not _GROUP.fullmatch(group) or (Role(role) is Role.OWNER) != bool(colon):
        raise ValueError(text)
    if colon and not NAME.fullmatch(scope):
        raise ValueError(text)
    return SocketGroup(group=group, role=Role(role), scope=scope if colon else None)


class Access(Struct, frozen=True, kw_only=True):
    """A principal with its role; `scopes` are those of an owner, by their exact names.

    `ends_ms` is when it ends by itself; None where that is found out elsewhere, or it does not.
    """

    principal: Principal
    role: Role
    scopes: tuple[str, ...] = ()
    ends_ms: int | None = None

    @property
    def all_scopes(self) -> bool:
        """Whether the rights hold for every scope, and for what belongs to no scope."""
        return self.role is not Role.OWNER

    def sees(self, scope: str | None) -> bool:
        """Whether what belongs to this scope is shown; None for what belongs to no scope."""
        return self.all_scopes or scope in self.scopes

    def may(self, right: Right, scope: str | None = None) -> bool:
        """Whether the right is there, in this scope; without one: whether it is there at all."""
        return right in RIGHTS[self.role] and (scope is None or self.sees(scope))

    def need(self, right: Right, *, scope: str | None = None, what: str) -> None:
        """Raises Forbidden without the right. `what` is wanted, as in "to restart VM web-0"."""
        if right not in RIGHTS[self.role]:
            raise Forbidden(
                f"{self.principal} has no right {right.value}, which is needed {what}:"
                f" the role is {self.role.value}.",
                f"The right {right.value} comes with the role {_roles_with(right)}.",
            )
        if scope is not None and not self.sees(scope):
            raise Forbidden(
                f"{self.principal} has no right {right.value} in the scope {scope}, which is"
                f" needed {what}.",
                f"As an owner, {self.principal} has it in {_named(self.scopes)}; an admin can make"
                " a token for other scopes.",
            )

    def need_everywhere(self, right: Right, *, what: str) -> None:
        """Raises Forbidden unless the right is there for the whole fleet."""
        self.need(right, what=what)
        if not self.all_scopes:
            raise Forbidden(
                f"{self.principal} has the right {right.value} in {_named(self.scopes)} only; it is"
                f" needed {what} for the whole fleet.",
                f"The role {_roles_with(right, everywhere=True)} has it there.",
            )


def not_yours(access: Access, what: str) -> Forbidden:
    """To an owner: whether something is there that is not his is not said either."""
    return Forbidden(
        f"There is no {what} in {_named(access.scopes)}, which is all that {access.principal} sees"
        " as an owner.",
        "The lists show what there is; an admin can make a token for other scopes.",
    )


def _roles_with(right: Right, *, everywhere: bool = False) -> str:
    roles = [role for role in Role if not (everywhere and role is Role.OWNER)]
    names = [role.value for role in roles if right in RIGHTS[role]]
    return " or ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else names[0]


def _named(scopes: tuple[str, ...]) -> str:
    named = ", ".join(scopes[:SCOPES_NAMED_MAX]) or "no scope"
    more = len(scopes) - SCOPES_NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named
