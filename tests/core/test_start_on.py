"""A VM of a failed host that only the rule of domains keeps down: said, and an order accepts it."""

from __future__ import annotations

from typing import Any

import pytest

from forewarn.core.errors import HostUnfit, Invalid, TwoDomainsOnHost, VmHasHost
from forewarn.core.model import Cause, FactKind, Host, Phase, ScheduledEvent
from forewarn.core.starting import HoldReason
from support import ordered
from support.core_fleet import WEB, Cloud, scope
from support.journal import said

ON_H2: dict[str, Any] = {"break_domains": True, "reason": "the shop is down"}


@pytest.fixture
def cloud() -> Cloud:
    """Of two hosts; web_0 was on h1, which is off, and h2 has the other domain of its scope."""
    found = Cloud(scope("web", WEB), hosts=(Host(name="h1"), Host(name="h2")))
    found.fail("h1", fenced=True)
    found.tick()
    return found


def down(cloud: Cloud) -> ScheduledEvent:
    (event,) = (e for e in cloud.scope("web").events if e.cause is Cause.FAILURE)
    return event


def start(cloud: Cloud, host: str = "h2", vm: str = "web_0", **more: Any) -> None:
    cloud.run(ordered.start_vm(vm, host, by="ann", **more))


def test_explain_names_the_domain_rule_and_the_order_that_accepts_it(cloud: Cloud) -> None:
    (hold,) = cloud.holds(down(cloud))
    assert hold.reason is HoldReason.NO_HOST
    assert "(h2: has another update domain of web)" in hold.what
    assert "`forewarn vm start web_0 --on h2 --break-domains --reason TEXT`" in hold.remedy


def test_a_host_that_is_closed_is_no_place_that_domains_deny(cloud: Cloud) -> None:
    cloud.run(ordered.close_host("h2", by="ann"))
    (hold,) = cloud.holds(down(cloud))
    assert "(h2: closed)" in hold.what
    assert "vm start" not in hold.remedy


def test_the_order_starts_the_vm_there_and_the_journal_keeps_who_and_why(cloud: Cloud) -> None:
    event = down(cloud)
    start(cloud, **ON_H2)
    cloud.work()
    assert cloud.event(event).phase is Phase.COMPLETED
    assert cloud.where("web_0") == "h2"
    (fact,) = cloud.facts(FactKind.ASSIGNED)
    assert (fact.by, fact.vm, fact.host) == ("ann", "web_0", "h2")
    assert (said(fact)["reason"], said(fact)["broke_domains"]) == ("the shop is down", [1])


def test_the_domain_rule_is_not_broken_by_accident_nor_without_a_reason(cloud: Cloud) -> None:
    with pytest.raises(TwoDomainsOnHost, match="h2 has update domain 1 of web already"):
        start(cloud, reason="why not")
    with pytest.raises(Invalid, match="reason"):
        start(cloud, break_domains=True, reason=" ")
    with pytest.raises(Invalid, match="200 printable"):
        start(cloud, break_domains=True, reason="x" * 201)
    assert down(cloud).actions[0].host is None


def test_a_vm_that_has_a_host_is_not_started_on_another(cloud: Cloud) -> None:
    with pytest.raises(VmHasHost, match="web_1 does not wait for a host"):
        start(cloud, vm="web_1", **ON_H2)
    start(cloud, **ON_H2)
    with pytest.raises(VmHasHost):
        start(cloud, **ON_H2)


def test_nothing_starts_while_the_failed_host_may_still_run_it() -> None:
    cloud = Cloud(scope("web", WEB), hosts=(Host(name="h1"), Host(name="h2")))
    cloud.fail("h1")
    with pytest.raises(HostUnfit, match="h1 may still run web_0"):
        start(cloud, **ON_H2)


def test_a_host_that_takes_no_vm_is_refused(cloud: Cloud) -> None:
    cloud.run(ordered.close_host("h2", by="ann"))
    with pytest.raises(HostUnfit, match="Host h2 cannot take web_0: closed"):
        start(cloud, **ON_H2)
    with pytest.raises(HostUnfit, match="Host h1 cannot take web_0: failed"):
        start(cloud, "h1", **ON_H2)
