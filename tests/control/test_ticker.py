"""What time causes: a survey nominates, each command decides again, and nobody is starved."""

from __future__ import annotations

from typing import Any

import pytest

from forewarn.control import ticker
from forewarn.control.command_handlers import decide
from forewarn.control.ticker import COMMANDS_PER_TICK_MAX
from forewarn.control.transaction import Transaction
from forewarn.control.writer import Wanted
from forewarn.core import starting
from forewarn.core.errors import Conflict
from forewarn.core.model import (
    SECOND_MS,
    EventType,
    FactKind,
    Host,
    OperationPhase,
    Phase,
    Policy,
    ScheduledEvent,
    Scope,
)
from support import ordered
from support.core_fleet import WEB, Cloud, minutes, scope
from support.journal import said


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("web", WEB))


def test_a_survey_changes_nothing(cloud: Cloud) -> None:
    cloud.approve(cloud.order("web_0", EventType.REBOOT))
    before, commits = cloud.everything(), len(cloud.commits)
    assert cloud.run(ticker.survey) != []
    assert (cloud.everything(), len(cloud.commits)) == (before, commits)


def test_an_idle_fleet_needs_no_commands(cloud: Cloud) -> None:
    cloud.order("web_0", EventType.REBOOT)
    assert cloud.run(ticker.survey) == []


def test_commands_of_an_old_survey_do_no_harm(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.approve(event)
    old = [cloud.run(ticker.survey) for _ in range(3)]
    for commands in old:
        for command in commands:
            cloud.run(command)
    assert len(cloud.facts(FactKind.STARTED)) == 1
    cloud.work()
    before = cloud.everything()
    for commands in old:
        for command in commands:
            cloud.run(command)
    assert cloud.everything() == before


def test_a_nominated_start_looks_again_for_what_holds_it(cloud: Cloud) -> None:
    first, second = (cloud.order(name, EventType.REBOOT) for name in WEB)
    cloud.approve(first, second)
    [nominated] = cloud.run(ticker.survey)  # the oldest; its domain would hold the other
    cloud.run(ordered.start_event("web", second.event_id))
    assert cloud.run(nominated) is False
    assert [cloud.event(e).phase for e in (first, second)] == [Phase.SCHEDULED, Phase.STARTED]


MANY = {f"web_{n}": (n % 2, f"h{n % 3 + 1}") for n in range(6)}


def test_what_may_start_together_is_one_change_for_guests() -> None:
    cloud = Cloud(scope("web", MANY))
    events = [cloud.order(name, EventType.REBOOT) for name in MANY]
    cloud.approve(*events)
    before = cloud.scope().incarnation
    cloud.tick()
    assert cloud.scope().incarnation == before + 1
    started = [e.resources[0] for e in cloud.scope().events if e.phase is Phase.STARTED]
    assert started == ["web_0", "web_2", "web_4"]
    assert len(cloud.facts(FactKind.STARTED)) == 3
    cloud.work()
    assert [e.resources[0] for e in cloud.scope().events if e.phase is Phase.STARTED] == [
        "web_1",
        "web_3",
        "web_5",
    ]


def test_events_outside_the_rule_of_domains_start_with_any() -> None:
    cloud = Cloud(scope("web", MANY))
    restart = cloud.order("web_0", EventType.REBOOT)
    delete = cloud.order("web_1", EventType.TERMINATE)
    cloud.approve(restart, delete)
    cloud.tick()
    assert [cloud.event(e).phase for e in (restart, delete)] == [Phase.STARTED, Phase.STARTED]


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_one_start_that_is_refused_keeps_no_other_from_starting(
    monkeypatch: pytest.MonkeyPatch, bad: int
) -> None:
    cloud = Cloud(scope("web", MANY))
    events = [cloud.order(name, EventType.REBOOT) for name in ("web_0", "web_2", "web_4")]
    cloud.approve(*events)
    real = starting.start_event

    def start(scope: Scope, event: ScheduledEvent, *given: Any, **named: Any) -> Any:
        if event.event_id == events[bad].event_id:
            raise Conflict("Not this one.")
        return real(scope, event, *given, **named)

    monkeypatch.setattr(starting, "start_event", start)
    [command] = cloud.run(ticker.survey)
    assert cloud.run(command) is True
    found = [cloud.event(event).phase for event in events]
    assert found == [Phase.SCHEDULED if n == bad else Phase.STARTED for n in range(3)]
    with pytest.raises(Conflict, match="Not this one"):
        cloud.run(ordered.start_event("web", events[bad].event_id))


def test_a_nominated_start_is_not_done_when_the_event_was_canceled(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.approve(event)
    [command] = cloud.run(ticker.survey)
    cloud.cancel(event)
    assert cloud.run(command) is False
    assert cloud.event(event).phase is Phase.CANCELED


def test_an_operation_that_was_canceled_meanwhile_does_not_start(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.FREEZE)
    [event] = cloud.events_of(operation)
    cloud.approve(event)
    [command] = cloud.run(ticker.survey)
    cloud.cancel(event)
    assert cloud.run(command) is False
    assert cloud.operation(operation).phase is OperationPhase.ENDED


@pytest.mark.parametrize("what", ["event", "operation", "scope", "host"])
def test_commands_for_what_is_no_longer_there_do_nothing(cloud: Cloud, what: str) -> None:
    commands: dict[str, list[Wanted[Any]]] = {
        "event": [
            ordered.start_event("web", "GONE"),
            ordered.expire_event("web", "GONE"),
            ordered.assign("web", "GONE"),
        ],
        "operation": [
            ordered.start_operation("GONE"),
            ordered.expire_operation("GONE"),
            ordered.settle_operation("GONE"),
            ordered.tell_newcomers("GONE"),
        ],
        "scope": [
            ordered.start_event("gone", "GONE"),
            ordered.end_recoveries("gone"),
            ordered.disable("gone"),
        ],
        "host": [ordered.host_silent("gone")],
    }
    before = cloud.everything()
    for command in commands[what]:
        cloud.run(command)
    assert cloud.everything() == before


def test_the_oldest_due_is_tried_first_whatever_its_scope() -> None:
    owners = [scope(f"s{i}", {f"v{i}": (0, "h1")}) for i in range(4)]
    cloud = Cloud(*owners)
    events = [cloud.order(f"v{i}", EventType.REBOOT) for i in range(4)]
    for number in (2, 0, 3, 1):
        cloud.approve(events[number])
        cloud.clock.pass_ms(1)
    cloud.tick()
    started = [fact.event_id for fact in cloud.facts(FactKind.STARTED)]
    assert started == [events[number].event_id for number in (2, 0, 3, 1)]


def many(count: int, host: str) -> list[Scope]:
    return [scope(f"{host}-{i:04}", {f"{host}-vm-{i:04}": (0, host)}) for i in range(count)]


def test_any_number_of_held_events_leaves_room_for_the_others() -> None:
    held = many(COMMANDS_PER_TICK_MAX + 5, "h1")
    cloud = Cloud(*held, scope("web", {"w": (0, "h2")}))

    def order_all(tx: Transaction) -> None:
        for owner in held:
            event = decide(tx, ordered.order_vm(owner.vms[0].name, EventType.REBOOT, by="o"))
            decide(tx, ordered.approve_event(event.event_id, by="o"))

    cloud.run(order_all)
    cloud.hearing.falls_silent("h1")
    cloud.clock.pass_ms(1)
    event = cloud.order("w", EventType.REBOOT)
    cloud.start(event)
    assert cloud.event(event).phase is Phase.STARTED


def test_vms_without_a_place_leave_room_for_the_others() -> None:
    cloud = Cloud(*many(COMMANDS_PER_TICK_MAX + 5, "h1"), scope("web", {"w": (0, "h2")}))
    cloud.fail("h1")
    event = cloud.order("w", EventType.REBOOT)
    cloud.start(event)
    assert cloud.event(event).phase is Phase.STARTED
    assert cloud.run(ticker.survey) == []


def test_a_tick_has_a_limit_and_the_next_goes_on() -> None:
    owners = many(COMMANDS_PER_TICK_MAX + 5, "h1")
    cloud = Cloud(*(owner for owner in owners), policy=Policy(domain_recovery_ms=0))

    def order_all(tx: Transaction) -> None:
        for owner in owners:
            event = decide(tx, ordered.order_vm(owner.vms[0].name, EventType.REBOOT, by="o"))
            decide(tx, ordered.approve_event(event.event_id, by="o"))

    cloud.run(order_all)
    assert len(cloud.run(ticker.survey)) == COMMANDS_PER_TICK_MAX
    cloud.tick()
    assert len(cloud.run(ticker.survey)) == 5


def test_lost_actions_of_a_started_operation_are_left_to_the_operations_deadline() -> None:
    cloud = Cloud(scope("web", WEB))
    operation = cloud.maintain("h1", EventType.REBOOT)
    cloud.start(*cloud.events_of(operation))
    cloud.pass_time(minutes(30))
    assert cloud.operation(operation).phase is OperationPhase.ENDED
    assert len([f for f in cloud.facts(FactKind.FAILED) if f.event_id]) == 1


def test_a_silent_host_stops_the_notice_of_its_events_once(cloud: Cloud) -> None:
    cloud.order("web_0", EventType.REBOOT)
    cloud.show()
    cloud.hearing.falls_silent("h1")
    cloud.clock.pass_ms(15 * SECOND_MS - 1)
    cloud.tick()
    assert cloud.scope().events[0].shown_ms is not None
    for _ in range(3):
        cloud.clock.pass_ms(SECOND_MS)
        cloud.tick()
    assert cloud.scope().events[0].shown_ms is None
    assert len(cloud.facts(FactKind.DOWNTIME)) == 1


def test_a_canceled_redeploy_tells_nobody_new() -> None:
    cloud = Cloud(
        scope("web", {"w": (0, "h1")}),
        scope("api", {"x": (0, "h2")}),
        scope("db", {"z": (0, "h2")}),
        hosts=[Host(name="h1"), Host(name="h2")],
    )
    cloud.start(cloud.order("w", EventType.REDEPLOY))  # on its way to h2
    operation = cloud.maintain("h2", EventType.REDEPLOY)
    first, second = cloud.events_of(operation)
    cloud.start(first)
    cloud.cancel(second)
    [action] = cloud.claim("h1")
    cloud.report("h1", action)
    cloud.tick()
    assert cloud.where("w") == "h2"
    assert cloud.operation(operation).phase is OperationPhase.STARTED
    assert len(cloud.events_of(operation)) == 2


def test_the_first_start_ever_is_no_downtime() -> None:
    cloud = Cloud(scope("web", WEB))
    cloud.run(ordered.was_down(None))
    assert cloud.facts(FactKind.DOWNTIME) == []
    assert cloud.store.load().heartbeat_ms == cloud.clock.wall


def test_a_heartbeat_row_is_what_downtime_is_measured_from(cloud: Cloud) -> None:
    cloud.clock.pass_ms(minutes(7))
    cloud.run(ordered.heartbeat())
    cloud.crash(down_ms=minutes(2))
    assert said(cloud.facts(FactKind.DOWNTIME)[-1]) == {"lost_ms": minutes(2)}


def test_every_event_ends_though_no_host_ever_reports_and_no_guest_approves(cloud: Cloud) -> None:
    """I7."""
    events = [cloud.order(name, EventType.REBOOT) for name in WEB]
    events += [cloud.order(name, EventType.TERMINATE) for name in WEB]
    operation = cloud.maintain("h3", EventType.FREEZE)
    cloud.fail("h3")
    for _ in range(30):
        cloud.pass_time(minutes(60))
    assert {cloud.event(event).phase for event in events} == {Phase.FAILED}
    assert cloud.operation(operation).phase is OperationPhase.ENDED
    assert cloud.scope().events == ()
