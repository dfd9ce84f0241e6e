"""Who looks at the console in tests of what it shows, and what they may do. No test lives here."""

from __future__ import annotations

from forewarn.api.console.view_models.values import ConsentNeeded, Offers
from forewarn.control.fleet_summary import FleetSummary
from forewarn.core.access import Access, Right, Role
from forewarn.core.principal import Principal, PrincipalKind
from support.core_fleet import Cloud

NEEDED = {
    "vm-restart": ConsentNeeded(Right.ORDER_VM, by_scope=True),
    "vm-redeploy": ConsentNeeded(Right.ORDER_VM, by_scope=True),
    "event-approve": ConsentNeeded(Right.CONSENT, by_scope=True),
    "event-cancel": ConsentNeeded(Right.OPERATE, by_scope=False),
    "operation-cancel": ConsentNeeded(Right.OPERATE, by_scope=False),
    "scope-release": ConsentNeeded(Right.OPERATE, by_scope=False),
    "host-maintain": ConsentNeeded(Right.OPERATE, by_scope=False),
    "host-open": ConsentNeeded(Right.OPERATE, by_scope=False),
    "host-close": ConsentNeeded(Right.OPERATE, by_scope=False),
    "host-repair": ConsentNeeded(Right.OPERATE, by_scope=False),
    "host-degrade": ConsentNeeded(Right.OPERATE, by_scope=False),
    "host-fail": ConsentNeeded(Right.OPERATE, by_scope=False),
}


def who(role: Role, *scopes: str) -> Offers:
    kind = PrincipalKind.OWNER if role is Role.OWNER else PrincipalKind.OPERATOR
    principal = Principal(kind=kind, id=f"token:{role.value}", name=f"the {role.value}")
    return Offers(Access(principal=principal, role=role, scopes=scopes), NEEDED)


OPERATOR = who(Role.OPERATOR)
VIEWER = who(Role.VIEWER)


def summary_of(cloud: Cloud) -> FleetSummary:
    return FleetSummary(cloud.published)
