"""What the Now page says of a fleet: what is broken, under way, next and unheard, and its room."""

from __future__ import annotations

import pytest

from forewarn.api.console.view_models import inbox, now, open_orders
from forewarn.api.console.view_models.grid import grid, groups, legend
from forewarn.api.console.view_models.now import Broken, Deaf
from forewarn.api.console.view_models.open_orders import Going, OpenOrders
from forewarn.api.console.view_models.values import Offers
from forewarn.core.access import Role
from forewarn.core.model import HOUR_MS, MINUTE_MS, EventType, Health, Host, Outcome, Policy
from support import ordered
from support.console_views import OPERATOR, VIEWER, summary_of, who
from support.core_fleet import WEB, Cloud, scope

DB = {"db_0": (0, "h3"), "db_1": (1, "h2")}


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("web", WEB), scope("db", DB))


def broken(cloud: Cloud, offers: Offers = OPERATOR) -> Broken:
    return now.broken(cloud.published.look(), summary_of(cloud), offers)


def going(cloud: Cloud, offers: Offers = OPERATOR) -> OpenOrders:
    return open_orders.work(cloud.published.look(), summary_of(cloud), offers)


def deaf(cloud: Cloud, offers: Offers = OPERATOR) -> Deaf:
    return now.deaf(cloud.published.look(), summary_of(cloud), offers)


def fail_an_event(cloud: Cloud, vm: str) -> None:
    cloud.start(cloud.order(vm, EventType.REBOOT))
    cloud.work(Outcome.FAILED)


def test_a_fleet_that_is_well_has_no_trouble_and_says_how_large_it_is(cloud: Cloud) -> None:
    found = broken(cloud)
    assert (found.troubles, found.more) == ((), 0)
    assert (found.hosts, found.scopes, found.vms) == (3, 2, 4)


def test_each_trouble_names_its_remedy_and_the_worst_comes_first(cloud: Cloud) -> None:
    fail_an_event(cloud, "web_0")
    cloud.hearing.falls_silent("h3")
    cloud.fail("h2")
    found = broken(cloud).troubles
    assert [one.what for one in found] == [
        "Host h2 has failed",
        "Scope web is held",
        "Host h3 is silent",
    ]
    assert all(one.remedy for one in found)
    assert [[link.order for link in one.orders] for one in found] == [
        ["host-repair", "host-fail"],
        ["scope-release"],
        ["host-fail"],
    ]


def test_a_vm_of_a_fenced_host_that_no_host_can_take_is_a_trouble() -> None:
    hosts = [Host(name="h1"), Host(name="h2"), Host(name="h3", closed=True)]
    cloud = Cloud(scope("web", WEB), hosts=hosts)
    cloud.fail("h1", fenced=True)
    cloud.tick()
    found = broken(cloud).troubles
    assert any("nowhere to start" in one.what and "web_0" in one.why for one in found)


def test_who_only_looks_is_offered_no_order(cloud: Cloud) -> None:
    fail_an_event(cloud, "web_0")
    assert [one.orders for one in broken(cloud, VIEWER).troubles] == [()]
    cloud.order("db_0", EventType.REBOOT)
    assert [row.cancel for row in going(cloud, VIEWER).rows] == [None]


def test_an_owner_sees_the_troubles_of_own_scopes_and_no_hosts(cloud: Cloud) -> None:
    fail_an_event(cloud, "web_0")
    cloud.fail("h3")
    owner, other = who(Role.OWNER, "web"), who(Role.OWNER, "db")
    assert [one.what for one in broken(cloud, owner).troubles] == ["Scope web is held"]
    assert not any(one.ref.kind == "host" for one in broken(cloud, other).troubles)
    assert (broken(cloud, owner).hosts, broken(cloud, owner).vms) == (0, 2)


def test_many_silent_hosts_are_counted_and_the_first_are_named() -> None:
    cloud = Cloud(hosts=[Host(name=f"h{n}") for n in range(30)])
    for n in range(30):
        cloud.hearing.falls_silent(f"h{n}")
    found = broken(cloud)
    assert (len(found.troubles), found.count) == (now.TROUBLES_MAX, 30)


def test_operations_are_under_way_waiting_or_stuck(cloud: Cloud) -> None:
    first = cloud.maintain("h1", EventType.REBOOT)
    assert (going(cloud).waiting, going(cloud).rows[0].going) == (1, Going.WAITING)
    cloud.show()
    cloud.start(*cloud.events_of(first))
    found = going(cloud)
    assert (found.under_way, found.waiting, found.stuck) == (1, 0, 0)
    second = cloud.maintain("h2", EventType.REBOOT)
    cloud.show()
    cloud.approve(*cloud.events_of(second))
    [stuck, under_way] = going(cloud).rows
    assert (stuck.going, under_way.going) == (Going.STUCK, Going.UNDER_WAY)
    assert stuck.ref.name == second.operation_id
    assert "update domain 0 of scope web is started" in stuck.holds[0].what
    assert (stuck.approved, stuck.total, stuck.done) == (2, 2, 0)
    assert stuck.cancel is not None
    assert under_way.cancel is None, "what has started goes on to its end"


def test_an_order_of_an_owner_is_a_row_of_its_own(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REDEPLOY)
    [row] = going(cloud).rows
    assert (row.what, row.ref.name, row.by) == ("Redeploy of web_0", event.event_id, "owner")
    assert [one.ref.name for one in going(cloud, who(Role.OWNER, "db")).rows] == []


def test_a_redeploy_with_one_vm_that_finds_no_place_is_stuck() -> None:
    cloud = Cloud(
        scope("web", WEB),
        scope("db", {"db_0": (0, "h1"), "db_1": (1, "h2")}),
        hosts=[Host(name="h1"), Host(name="h2", capacity=3)],
    )
    operation = cloud.maintain("h1", EventType.REDEPLOY)
    cloud.show()
    first, *_ = cloud.events_of(operation)
    cloud.start(first)
    [row] = going(cloud).rows
    assert row.going is Going.STUCK
    assert any(hold.reason == "no-target" for hold in row.holds)


def test_the_vms_of_a_failed_host_are_one_row(cloud: Cloud) -> None:
    cloud.fail("h2")
    [row] = going(cloud).rows
    assert (row.what, row.ref.name, row.going) == ("2 VMs of failed host h2", "h2", Going.STUCK)
    [under_way] = now.coming(cloud.published.look(), summary_of(cloud), OPERATOR).under_way
    assert (under_way.what, under_way.vms) == ("2 VMs of failed host h2", 2)


def test_what_has_ended_says_how(cloud: Cloud) -> None:
    done = cloud.maintain("h1", EventType.FREEZE)
    cloud.show()
    cloud.carry_out(*cloud.events_of(done))
    canceled = cloud.order("db_0", EventType.REBOOT)
    cloud.clock.pass_ms(1_000)
    cloud.cancel(canceled)
    rows = open_orders.ended_rows([cloud.operation(done)], [cloud.event(canceled)])
    assert [(row.what, row.going) for row in rows] == [
        ("Reboot of db_0", Going.CANCELED),
        ("Freeze of host h1", Going.DONE),
    ]


def test_what_comes_next_is_listed_by_its_time_with_a_row_for_each_operation(cloud: Cloud) -> None:
    later = cloud.maintain("h2", EventType.REBOOT)  # VMs of two scopes
    sooner = cloud.order("web_0", EventType.REDEPLOY)
    found = now.coming(cloud.published.look(), summary_of(cloud), OPERATOR)
    assert [(row.ref.name, row.vms) for row in found.upcoming] == [
        (sooner.event_id, 1),
        (later.operation_id, 2),
    ]
    cloud.start(sooner)
    found = now.coming(cloud.published.look(), summary_of(cloud), OPERATOR)
    assert [row.ref.name for row in found.under_way] == [sooner.event_id]
    assert found.under_way[0].at_ms is not None, "when it is given up"


def test_who_has_not_approved_is_listed_with_how_long_is_left(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    approved = cloud.order("db_0", EventType.REDEPLOY)
    cloud.approve(approved)
    found = now.consent(cloud.published.look(), summary_of(cloud), OPERATOR)
    [row] = found.rows
    assert (row.ref.name, row.scope, row.at_ms) == (event.event_id, "web", event.not_before_ms)
    assert row.approve is not None
    owner = who(Role.OWNER, "db")
    assert now.consent(cloud.published.look(), summary_of(cloud), owner).rows == ()


def test_who_will_not_hear_us_is_named_with_the_reason() -> None:
    cloud = Cloud(scope("web", WEB), scope("mute", {"m": (0, "h3")}, enabled=False))
    cloud.maintain("h3", EventType.REBOOT)
    cloud.order("web_0", EventType.REBOOT)
    found = deaf(cloud)
    assert [(row.scope, row.vms.first) for row in found.rows] == [
        ("mute", ("m",)),
        ("web", ("web_0",)),
    ]
    assert "none is told" in found.rows[0].why
    assert (found.silent, found.silent_named.first, found.stopped) == (1, ("mute",), 0)
    cloud.clock.pass_ms(HOUR_MS)
    assert (deaf(cloud).stopped, deaf(cloud).stopped_named.first) == (1, ("web",))


def test_where_every_scope_is_told_none_is_silent() -> None:
    cloud = Cloud(scope("web", WEB, enabled=False), policy=Policy(always_enabled=True))
    assert deaf(cloud).silent == 0


def test_one_more_host_may_be_lost_while_the_others_have_room() -> None:
    def look(*capacities: int | None) -> now.Capacity:
        hosts = [Host(name=f"h{n}", capacity=c) for n, c in enumerate(capacities, 1)]
        return now.capacity(Cloud(scope("web", WEB), hosts=hosts).published.look())

    roomy = look(2, 2, 2)
    assert (roomy.may_lose, roomy.free) == (True, 4)
    tight = look(1, 1)
    assert (tight.may_lose, tight.free, tight.worst_vms, tight.worst_places) == (False, 0, 1, 0)
    assert look(1, 1, None).may_lose, "a host without a limit takes all"
    assert not look(1, 1, 0).may_lose


def test_the_service_says_when_a_backup_is_late_and_a_certificate_ends_soon() -> None:
    told = now.about(
        100 * now.SOON_MS,
        version="1",
        expiries_ms={"server": 200 * now.SOON_MS, "host": 100 * now.SOON_MS + 1},
        backup_ms=None,
        database_bytes=0,
        kept=True,
    )
    assert [(one.what, one.soon) for one in told.expiries] == [("host", True), ("server", False)]
    assert told.backup_late


def test_the_grid_has_a_cell_for_each_host_and_says_it_in_words(cloud: Cloud) -> None:
    cloud.hearing.falls_silent("h2")
    summary = summary_of(cloud)
    found = grid(summary)
    assert [group.codes for group in found.groups] == ["oso"]
    assert legend(summary).said == "3 hosts: 1 silent, 2 well"
    assert found.named == ((1, "h2"),)


def test_hosts_whose_names_begin_alike_stand_together() -> None:
    racks = tuple(f"r{r}-n{n}" for r in (1, 2) for n in range(1, 4))
    assert [label for label, *_ in groups(racks)] == ["r1-n1 … r1-n3", "r2-n1 … r2-n3"]
    assert len(groups(("alpha", "beta", "gamma"))) == 1
    many = groups(tuple(f"h{n:04d}" for n in range(250)))
    assert [(start, end) for _, start, end in many] == [(0, 100), (100, 200), (200, 250)]
    assert groups(()) == ()


def test_the_inbox_has_what_waits_for_this_person(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    fail_an_event(cloud, "db_0")
    cloud.fail("h2")
    look, summary = cloud.published.look(), summary_of(cloud)
    assert [item.what for item in inbox.inbox(look, summary, OPERATOR).items] == [
        "Host h2 has failed",
        "Scope db is held",
    ]
    assert inbox.count(summary, OPERATOR) == 2
    assert inbox.inbox(look, summary, VIEWER).items == ()
    assert inbox.count(summary, VIEWER) == 0
    owner = who(Role.OWNER, "web")
    [item] = inbox.inbox(look, summary, owner).items
    assert (item.ref.name, item.orders[0].order) == (event.event_id, "event-approve")
    assert inbox.count(summary, owner) == 1


def test_a_host_that_is_degraded_or_closed_is_no_trouble(cloud: Cloud) -> None:
    cloud.run(ordered.close_host("h3", by="operator"))
    cloud.degrade("h1")
    assert cloud.host("h1").health is Health.DEGRADED
    assert broken(cloud).troubles == ()
    cloud.clock.pass_ms(MINUTE_MS)
    assert legend(summary_of(cloud)).said == "3 hosts: 1 announced, 1 closed, 1 well"
