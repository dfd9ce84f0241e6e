"""What the pages of single things, the timeline, the fleet and the journal say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from forewarn.api.console.view_models import event as event_view
from forewarn.api.console.view_models import fleet, host_vm_scope_operation, notice_week
from forewarn.api.console.view_models.event import EventRead, EventView
from forewarn.api.console.view_models.lines import LineDetail, line
from forewarn.api.console.view_models.notice_week import NoticeLedger
from forewarn.api.console.view_models.open_orders import Going
from forewarn.api.console.view_models.timeline import Timeline, read_ended, timeline
from forewarn.api.console.view_models.values import Ref
from forewarn.control.fleet_summary import HostCondition
from forewarn.core.access import Role
from forewarn.core.errors import NotFound
from forewarn.core.facts import ApprovedDetail, EarlierDetail
from forewarn.core.model import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    Decision,
    EventType,
    Fact,
    FactKind,
    Host,
    Outcome,
    Policy,
    ScheduledEvent,
)
from forewarn.ports import EVERYTHING, FirstRead, JournalLine, ListFilter
from support.console_views import OPERATOR, VIEWER, summary_of, who
from support.core_fleet import WEB, Cloud, scope

DB = {"db_0": (0, "h3"), "db_1": (1, "h2")}


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("web", WEB), scope("db", DB))


def page(cloud: Cloud, event: ScheduledEvent) -> EventView:
    read = event_view.read_event(cloud.store, event.event_id)
    return event_view.event_page(cloud.published.look(), read, OPERATOR)


def read_by(cloud: Cloud, event: ScheduledEvent, vm: str) -> None:
    """A VM reads an event now."""
    seen = FirstRead(scope=event.scope, event_id=event.event_id, vm=vm, read_ms=cloud.clock.wall)
    cloud.run(lambda tx: tx.receipts([seen]))


# An event.


def test_the_page_of_an_event_says_why_it_has_not_happened_and_offers_what_helps(
    cloud: Cloud,
) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.show()
    found = page(cloud, event)
    assert found.title == "Reboot of web_0"
    assert [hold.reason for hold in found.holds] == ["consent"]
    assert [order.order for order in found.orders] == ["event-approve", "event-cancel"]
    assert found.receipt.verdict == "not started yet"
    read = event_view.read_event(cloud.store, event.event_id[:8])
    assert event_view.event_page(cloud.published.look(), read, VIEWER).orders == ()


def test_the_receipt_says_for_each_vm_when_it_was_told_read_and_back() -> None:
    cloud = Cloud(scope("web", WEB), policy=Policy())
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.show()
    cloud.clock.pass_ms(MINUTE_MS)
    read_by(cloud, event, "web_0")
    cloud.clock.pass_ms(MINUTE_MS)
    cloud.carry_out(event)
    [vm] = page(cloud, event).receipt.vms
    assert vm.told_ms is not None
    assert vm.read_ms is not None
    assert (vm.read_ms - vm.told_ms, vm.before_start_ms) == (MINUTE_MS, MINUTE_MS)
    assert vm.back == "not yet"
    cloud.polls("web", "web_0")
    assert page(cloud, event).receipt.vms[0].back == "yes"
    words = [step.word for step in page(cloud, event).steps]
    assert words == ["Scheduled", "Shown to its VMs", "Overridden", "Started", "Completed"]


def test_the_receipt_of_a_kept_promise_says_so(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.show()
    read_by(cloud, event, "web_0")
    cloud.pass_time(16 * MINUTE_MS)
    shown = page(cloud, event).receipt
    assert (shown.verdict, shown.tone) == ("notice given", "good")
    assert (shown.promised_ms, shown.readable_ms >= 15 * MINUTE_MS) == (15 * MINUTE_MS, True)


def test_an_ended_event_waits_for_nothing_and_cannot_be_canceled(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.carry_out(event)
    found = page(cloud, event)
    assert (found.holds, found.orders) == ((), ())
    assert [action.outcome for action in found.actions] == ["done"]
    assert [one.kind for one in found.lines][:2] == ["scheduled", "approved"]
    with pytest.raises(NotFound):
        event_view.read_event(cloud.store, "0" * 36)


def test_an_event_that_was_pruned_meanwhile_is_shown_as_it_was_read(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    read = EventRead(event=event, reads={}, lines=())
    cloud.cancel(event)
    assert event_view.event_page(cloud.published.look(), read, OPERATOR).holds == ()


# Hosts, VMs, scopes, operations.


def test_a_host_is_shown_with_its_vms_and_what_can_be_ordered(cloud: Cloud) -> None:
    operation = cloud.maintain("h2", EventType.REBOOT)
    look = cloud.published.look()
    found = host_vm_scope_operation.host_page(look, "h2", cloud.journal(), OPERATOR)
    assert [row.name for row in found.vms] == ["db_1", "web_1"]
    assert {row.word for row in found.vms} == {"announced"}
    assert [row.ref.name for row in found.operations] == [operation.operation_id]
    assert [order.order for order in found.orders] == ["host-maintain"]
    assert [say.order for say in found.says] == ["host-close", "host-degrade", "host-fail"]
    cloud.fail("h2")
    found = host_vm_scope_operation.host_page(cloud.published.look(), "h2", (), OPERATOR)
    assert found.orders == ()
    assert [say.words for say in found.says] == ["Close", "Repair", "Is surely off"]
    assert {row.word for row in found.vms} == {"no host"}
    assert host_vm_scope_operation.host_page(cloud.published.look(), "h2", (), VIEWER).says == ()
    with pytest.raises(NotFound):
        host_vm_scope_operation.host_page(cloud.published.look(), "nothing", (), OPERATOR)


def test_a_vm_can_be_restarted_by_its_owner_and_by_no_other_owner(cloud: Cloud) -> None:
    look = cloud.published.look()
    owner, other = who(Role.OWNER, "web"), who(Role.OWNER, "db")
    assert [o.order for o in host_vm_scope_operation.vm_page(look, "web_0", (), owner).orders] == [
        "vm-restart",
        "vm-redeploy",
    ]
    assert host_vm_scope_operation.vm_page(look, "web_0", (), other).orders == ()
    with pytest.raises(NotFound):
        host_vm_scope_operation.vm_page(look, "nothing", (), OPERATOR)


def test_a_scope_is_a_matrix_of_domains_and_vms(cloud: Cloud) -> None:
    cloud.start(cloud.order("web_0", EventType.REBOOT))
    found = host_vm_scope_operation.scope_page(cloud.published.look(), "web", (), OPERATOR)
    assert [(row.update_domain, row.word) for row in found.domains] == [(0, "working"), (1, "well")]
    assert [vm.word for row in found.domains for vm in row.vms] == ["working", "well"]
    cloud.work(Outcome.FAILED)
    found = host_vm_scope_operation.scope_page(cloud.published.look(), "web", (), OPERATOR)
    assert [order.order for order in found.orders] == ["scope-release"]


def test_an_operation_is_shown_open_and_ended(cloud: Cloud) -> None:
    operation = cloud.maintain("h2", EventType.FREEZE)
    cloud.show()
    read = host_vm_scope_operation.read_operation(cloud.store, operation.operation_id)
    found = host_vm_scope_operation.operation_page(cloud.published.look(), read, OPERATOR)
    assert (found.word, len(found.events)) == ("waiting", 2)
    assert {hold.reason for hold in found.holds} == {"consent"}
    assert [order.order for order in found.orders] == ["operation-cancel"]
    cloud.carry_out(*cloud.events_of(operation))
    read = host_vm_scope_operation.read_operation(cloud.store, operation.operation_id)
    found = host_vm_scope_operation.operation_page(cloud.published.look(), read, OPERATOR)
    assert (found.word, found.holds, found.orders) == ("completed", (), ())
    assert {row.phase.value for row in found.events} == {"completed"}
    assert found.lines


# The fleet.


def test_hosts_are_listed_by_how_they_are_page_by_page() -> None:
    cloud = Cloud(hosts=[Host(name=f"h{n}") for n in range(1, 12)])
    cloud.hearing.falls_silent("h10")
    look, summary = cloud.published.look(), summary_of(cloud)
    names: list[str] = []
    after: str | None = ""
    while after is not None:
        found = fleet.host_list(look, summary, condition=None, after=after, rows_max=4)
        names += [row.name for row in found.rows]
        after = found.after
    assert names == [f"h{n}" for n in range(1, 12)]
    silent = fleet.host_list(look, summary, condition=HostCondition.SILENT)
    assert [(row.name, row.word) for row in silent.rows] == [("h10", "silent")]
    assert [r.name for r in fleet.host_list(look, summary, condition=None, find="H11").rows] == [
        "h11"
    ]


def test_scopes_are_listed_by_whether_they_listen(cloud: Cloud) -> None:
    mute = scope("mute", {"m": (0, "h1")}, enabled=False)
    cloud.run(lambda tx: tx.apply(Decision(scopes=(mute,))))

    def names(which: str, **more: str) -> list[str]:
        found = fleet.scope_list(cloud.published, summary_of(cloud), OPERATOR, which=which, **more)
        return [row.name for row in found.rows]

    assert names("all") == ["db", "mute", "web"]
    assert names("all", after="db") == ["mute", "web"]
    assert names("all", find="WE") == ["web"]
    assert names("silent") == ["mute"]
    assert names("stopped") == []
    cloud.clock.pass_ms(HOUR_MS)
    assert names("stopped") == ["db", "web"]
    owner = who(Role.OWNER, "web", "gone")
    found = fleet.scope_list(cloud.published, summary_of(cloud), owner)
    assert [row.name for row in found.rows] == ["web"]
    assert fleet.fleet_page(cloud.published.look(), summary_of(cloud), owner).stopped == 1


# The timeline.


def over(cloud: Cloud, range_: str = "6h", **more: str) -> Timeline:
    since = ListFilter(since_ms=cloud.clock.wall - DAY_MS)
    return timeline(
        cloud.published.look(),
        summary_of(cloud),
        read_ended(cloud.store, since),
        OPERATOR,
        range_=range_,
        **more,
    )


def test_an_order_is_a_span_from_its_announcement_over_its_start_to_its_end(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.show()
    [row] = over(cloud).rows
    assert (row.span.going, row.impact_width) == (Going.WAITING, 0)
    assert row.notice_x == 40.0
    assert row.notice_width == pytest.approx(15 / 3.6, abs=0.01)
    cloud.start(event)
    cloud.clock.pass_ms(18 * MINUTE_MS)
    [row] = over(cloud).rows
    assert (row.span.going, row.notice_width, row.impact_width) == (Going.UNDER_WAY, 0, 5.0)
    cloud.work()
    [row] = over(cloud).rows
    assert row.span.going is Going.DONE
    cloud.clock.pass_ms(4 * HOUR_MS)
    assert over(cloud).rows == (), "what is long over has left the picture"
    assert len(over(cloud, "24h").rows) == 1


def test_the_timeline_can_be_of_one_scope_or_host(cloud: Cloud) -> None:
    cloud.maintain("h2", EventType.REBOOT)
    cloud.order("web_0", EventType.REBOOT)
    assert len(over(cloud).rows) == 2
    assert [row.span.what for row in over(cloud, scope="db").rows] == ["Reboot of host h2"]
    assert [row.span.what for row in over(cloud, host="h1").rows] == ["Reboot of web_0"]


def test_a_window_is_a_band_and_what_was_canceled_never_started(cloud: Cloud) -> None:
    now_ms = cloud.clock.wall
    window = (now_ms + HOUR_MS, now_ms + 2 * HOUR_MS)
    event = cloud.order("web_0", EventType.REBOOT, window=window)
    [row] = over(cloud).rows
    assert row.window_width == pytest.approx(100 / 6, abs=0.01)
    cloud.cancel(event)
    [row] = over(cloud).rows
    assert (row.span.going, row.impact_width) == (Going.CANCELED, 0)


# Notice of a week.


def test_the_notice_of_a_week_is_summed_by_type_and_day(cloud: Cloud) -> None:
    ledger = NoticeLedger()
    cloud.published.on_publish(ledger.committed)
    assert not ledger.week(cloud.clock.wall).known
    ledger.known = True
    kept = cloud.order("web_0", EventType.REBOOT)
    cloud.show()
    read_by(cloud, kept, "web_0")
    cloud.pass_time(15 * MINUTE_MS)
    cloud.work()
    unread = cloud.order("db_0", EventType.REBOOT)
    cloud.pass_time(20 * MINUTE_MS)
    pending = ledger.pending()
    assert [event.event_id for event in pending] == [kept.event_id, unread.event_id]
    ledger.add(notice_week.read_given(cloud.store, pending))
    assert ledger.pending() == ()
    found = ledger.week(cloud.clock.wall)
    [row] = found.rows
    assert (row.starts, row.kept, row.unread, row.short) == (2, 1, 1, 0)
    assert row.read_ms == 15 * MINUTE_MS
    assert [day.starts for day in found.days] == [0, 0, 0, 0, 0, 0, 2]
    begun = notice_week.summed(
        notice_week.read_week(cloud.store, cloud.clock.wall), cloud.clock.wall
    )
    assert begun == found, "one that begins now reads the same"
    assert ledger.week(cloud.clock.wall + 8 * DAY_MS).starts == 0


# Lines.


def lines(*facts: Fact) -> Sequence[JournalLine]:
    return [JournalLine(number=n, fact=fact) for n, fact in enumerate(facts, 1)]


def test_a_line_names_what_it_is_about_and_leaves_out_what_machines_need() -> None:
    fact = Fact(
        kind=FactKind.SCHEDULED,
        at_ms=5,
        scope="web",
        event_id="E",
        operation_id="O",
        vm="web_0",
        by="operator",
        detail=EarlierDetail(
            said={
                "action_id": "x",
                "not_before_ms": 1_772_532_000_000,
                "lost_ms": 61_000,
                "resources": [f"vm{n}" for n in range(10)],
                "silent": True,
                "nothing": "",
            }
        ),
    )
    [found] = map(line, lines(fact))
    assert [(ref.kind, ref.name) for ref in found.refs] == [
        ("event", "E"),
        ("scope", "web"),
        ("vm", "web_0"),
    ]
    assert found.details == (
        LineDetail("not before", "", 1_772_532_000_000),
        LineDetail("lost", "1m 1s"),
        LineDetail("resources", "vm0, vm1, vm2, vm3, vm4, vm5, vm6, vm7 and 2 more"),
        LineDetail("", "silent"),
    )


def test_a_line_about_an_event_says_in_words_what_is_done_to_whom() -> None:
    said = {
        "event_type": "Reboot",
        "resources": [f"vm{n}" for n in range(5)],
        "update_domain": 2,
        "postponed_from": "AB",
    }
    [found] = map(
        line,
        lines(Fact(kind=FactKind.SCHEDULED, at_ms=5, detail=EarlierDetail(said=said))),
    )
    assert found.summary == "Reboot of vm0, vm1, vm2 and 2 more, domain 2"
    assert found.details == (LineDetail("postponed from", "", ref=Ref("event", "AB")),)


def test_every_kind_of_line_can_be_shown(cloud: Cloud) -> None:
    for kind in FactKind:
        [found] = map(
            line,
            lines(Fact(kind=kind, at_ms=0, detail=EarlierDetail(said={"x": {"y": [1, None]}}))),
        )
        assert found.kind == kind.value
    overridden = Fact(
        kind=FactKind.APPROVED, at_ms=0, detail=ApprovedDetail(overridden_by="operator")
    )
    assert line(*lines(overridden)).tone == "bad"
    cloud.order("web_0", EventType.REBOOT)
    assert [line(one).number for one in cloud.store.journal(EVERYTHING, after=0, limit=9)]
