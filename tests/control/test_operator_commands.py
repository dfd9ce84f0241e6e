"""Orders as commands: what they answer, what they refuse, and that an order is one commit."""

from __future__ import annotations

import pytest

from forewarn.core.errors import AlreadyStarted, Invalid, NotFound
from forewarn.core.model import (
    Cause,
    EventType,
    FactKind,
    Health,
    OperationPhase,
    Phase,
)
from support import ordered
from support.core_fleet import WEB, Cloud, scope, spot
from support.journal import said


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("web", WEB), spot("spotty", "h3"))


@pytest.mark.parametrize("event_type", [EventType.PREEMPT, EventType.TERMINATE])
def test_a_host_can_only_be_frozen_rebooted_or_emptied(cloud: Cloud, event_type: EventType) -> None:
    with pytest.raises(Invalid, match="Freeze, Reboot or Redeploy"):
        cloud.run(ordered.maintain_host("h1", event_type, by="operator"))


@pytest.mark.parametrize(
    "order",
    [
        ordered.maintain_host("no", EventType.FREEZE, by="o"),
        ordered.degrade_host("no", by="o"),
        ordered.fail_host("no", by="o", fenced=False),
        ordered.repair_host("no", by="o"),
        ordered.close_host("no", by="o"),
        ordered.open_host("no", by="o"),
        ordered.release_scope("no", by="o"),
        ordered.approve_event("nothing", by="o"),
        ordered.order_vm("no", EventType.REBOOT, by="o"),
    ],
)
def test_an_order_for_something_that_is_not_there_is_refused(cloud: Cloud, order: object) -> None:
    before = cloud.everything()
    with pytest.raises(NotFound):
        cloud.run(order)  # type: ignore[arg-type]
    assert cloud.everything() == before


def test_an_order_answers_the_event_it_made(cloud: Cloud) -> None:
    event = cloud.run(ordered.order_vm("spotty", EventType.PREEMPT, by="placer"))
    assert (event.cause, event.ordered_by, event.phase) == (
        Cause.EVICTION,
        "placer",
        Phase.SCHEDULED,
    )


def test_an_auto_approved_order_is_one_commit() -> None:
    cloud = Cloud(scope("web", WEB, auto_approve=frozenset({EventType.REBOOT})))
    commits = len(cloud.commits)
    event = cloud.run(ordered.order_vm("web_0", EventType.REBOOT, by="owner"))
    assert event.phase is Phase.STARTED
    assert len(cloud.commits) == commits + 1


def test_an_order_for_a_host_is_one_commit_over_all_its_scopes() -> None:
    cloud = Cloud(scope("one", {"a": (0, "h1")}), scope("two", {"b": (0, "h1")}))
    commits = len(cloud.commits)
    operation = cloud.maintain("h1", EventType.REBOOT)
    [change] = cloud.commits[commits:]
    assert [after.name for _, after in change.scopes] == ["one", "two"]
    assert operation.phase is OperationPhase.WAITING
    assert operation.named == ("a", "b")


def test_an_operator_may_approve_in_the_name_of_a_scope(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    approved = cloud.run(ordered.approve_event(event.event_id.lower(), by="ann"))
    assert approved.approved_by == "ann"


@pytest.mark.parametrize("order", [ordered.approve_event, ordered.cancel_event])
def test_an_event_that_has_ended_says_how(cloud: Cloud, order: object) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.cancel(event)
    with pytest.raises(AlreadyStarted, match="canceled"):
        cloud.run(order(event.event_id, by="ann"))  # type: ignore[operator]


def test_health_orders_answer_the_host_as_it_is_now(cloud: Cloud) -> None:
    cloud.degrade("h1")
    failed = cloud.run(ordered.fail_host("h1", by="ann", fenced=True, force=True)).host
    assert (failed.health, failed.fenced) == (Health.FAILED, True)
    repaired = cloud.run(ordered.repair_host("h1", by="ann"))
    assert (repaired.health, repaired.fenced) == (Health.OK, False)
    assert said(cloud.facts(FactKind.HOST_REPAIRED)[-1]) == {"was": "failed"}


def test_an_aborted_maintenance_leaves_no_host_closed_and_no_event_behind(cloud: Cloud) -> None:
    """I9."""
    before = cloud.everything()[1]
    for event_type in (EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY):
        operation = cloud.maintain("h1", event_type)
        cloud.cancel(cloud.events_of(operation)[0])
    cloud.degrade("h1")
    cloud.repair("h1")
    assert cloud.scope().events == ()
    assert cloud.index.operations == {}
    after = cloud.everything()[1]
    assert {name: (h.closed, h.health) for name, h in after.items()} == {
        name: (h.closed, h.health) for name, h in before.items()
    }


def test_every_order_says_in_the_journal_who_gave_it(cloud: Cloud) -> None:
    cloud.run(ordered.order_vm("web_0", EventType.REBOOT, by="owner"))
    cloud.maintain("h2", EventType.FREEZE, by="ann")
    cloud.run(ordered.close_host("h3", by="bob"))
    cloud.run(ordered.fail_host("h1", by="eve", fenced=False, force=True))
    kinds = (FactKind.SCHEDULED, FactKind.ORDERED, FactKind.HOST_CLOSED, FactKind.HOST_FAILED)
    named = [{fact.by for fact in cloud.facts(kind)} for kind in kinds]
    assert named == [{"owner", "ann", "eve"}, {"ann"}, {"bob"}, {"eve"}]
