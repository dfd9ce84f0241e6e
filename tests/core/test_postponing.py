"""An event is withdrawn and announced anew, later: what may be, how often, how far, for whom."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from forewarn.control.transaction import Transaction
from forewarn.core import document, postponing, vm_power
from forewarn.core.errors import (
    AlreadyEnded,
    AlreadyStarted,
    Invalid,
    NotFound,
    NotPostponable,
    PostponedTooFar,
    PostponedTooOften,
    Refusal,
)
from forewarn.core.facts import detail_words
from forewarn.core.model import (
    DAY_MS,
    HOUR_MS,
    SECOND_MS,
    Cause,
    Decision,
    EventType,
    FactKind,
    Operation,
    OperationPhase,
    Phase,
    Policy,
    ScheduledEvent,
    Scope,
)
from forewarn.core.notice import MINIMUM_NOTICE_MS
from forewarn.core.principal import OPERATOR, Principal, PrincipalKind
from forewarn.core.scheduling import EVENTS_PER_SCOPE_MAX, POSTPONEMENTS_MAX
from forewarn.core.starting import HoldReason
from support import ordered
from support.clock import START_MS
from support.core_fleet import NO_RECOVERY, WEB, Cloud, minutes, reasons, scope, spot, vm

WHOLE_HOST = (EventType.FREEZE, EventType.REBOOT)
OF_HOSTS = (*WHOLE_HOST, EventType.REDEPLOY)
DB = {"db_0": (0, "h1"), "db_1": (1, "h2")}
ANN = ordered.owner("ann")


def web(**more: object) -> Cloud:
    return Cloud(scope("web", WEB), **more)  # type: ignore[arg-type]


def two_scopes(**more: object) -> Cloud:
    """`db` and `web` have a VM each on h1."""
    return Cloud(scope("web", WEB), scope("db", DB), **more)  # type: ignore[arg-type]


def announced(cloud: Cloud, event_type: EventType, **more: object) -> ScheduledEvent:
    """Maintenance of h1 with one event, which is shown."""
    (event,) = cloud.events_of(cloud.maintain("h1", event_type, **more))
    cloud.show()
    return event


def both(cloud: Cloud, event_type: EventType) -> tuple[Operation, dict[str, ScheduledEvent]]:
    """Maintenance of h1 with an event of each scope, by scope."""
    operation = cloud.maintain("h1", event_type)
    cloud.show()
    return operation, {event.scope: event for event in cloud.events_of(operation)}


def left(cloud: Cloud, event: ScheduledEvent, by: PrincipalKind) -> postponing.Allowance:
    def question(tx: Transaction) -> postponing.Allowance:
        found = tx.open_event(event.event_id)
        assert found is not None
        return postponing.allowance(*found, tx, by=by, policy=tx.policy, now_ms=tx.now_ms)

    return cloud.run(question)


def refused(cloud: Cloud, event: ScheduledEvent, in_ms: int, by: Principal = ANN) -> Refusal:
    """Why it is refused, with nothing changed."""
    before, lines = cloud.everything(), len(cloud.journal())
    with pytest.raises(Refusal) as why:
        cloud.postpone(event, in_ms, by=by)
    assert (cloud.everything(), len(cloud.journal())) == (before, lines)
    assert why.value.refused
    assert why.value.accepted
    return why.value


# The two events.


@pytest.mark.parametrize("event_type", OF_HOSTS)
def test_the_old_event_is_withdrawn_and_a_new_one_is_announced_in_one_step(
    event_type: EventType,
) -> None:
    cloud = web()
    old = announced(cloud, event_type)
    incarnation = cloud.scope("web").incarnation
    commits = len(cloud.commits)
    new = cloud.postpone(old, 2 * HOUR_MS)
    assert len(cloud.commits) == commits + 1
    assert cloud.scope("web").incarnation == incarnation + 1
    assert [event.event_id for event in document.visible(cloud.scope("web"))] == [new.event_id]
    assert new.event_id != old.event_id
    assert new.not_before_ms == START_MS + 2 * HOUR_MS
    assert (new.phase, new.silent) == (Phase.SCHEDULED, False)
    same = ("scope", "event_type", "event_source", "cause", "update_domain", "host", "resources")
    more = ("description", "duration_s", "window", "ordered_by", "operation_id", "breaks_domains")
    for field in (*same, *more):
        assert getattr(new, field) == getattr(old, field), field


def test_the_words_and_the_length_that_the_order_said_stay() -> None:
    cloud = web()
    old = announced(cloud, EventType.FREEZE, duration_s=31, description="New firmware.")
    new = cloud.postpone(old, HOUR_MS)
    assert (new.duration_s, new.description) == (31, "New firmware.")


def test_the_two_name_each_other_and_the_old_one_says_who_and_why() -> None:
    cloud = web()
    old = announced(cloud, EventType.REBOOT)
    new = cloud.postpone(old, HOUR_MS, reason="  the sale ends at noon ")
    ended = cloud.event(old)
    assert (ended.phase, ended.ended_ms) == (Phase.CANCELED, START_MS)
    assert ended.outcome == "postponed by ann: the sale ends at noon"
    assert (ended.postponed_from, ended.postponed_to) == (None, new.event_id)
    assert (new.postponed_from, new.postponed_to) == (old.event_id, None)
    assert (new.postponements, new.postponed_ms) == (1, minutes(45))
    later = cloud.postpone(new, 2 * HOUR_MS)
    assert cloud.event(new).outcome == "postponed by ann"
    assert (later.postponed_from, cloud.event(new).postponed_to) == (new.event_id, later.event_id)
    assert (later.postponements, later.postponed_ms) == (2, minutes(105))


def test_the_journal_says_who_has_what_postponed_and_to_when() -> None:
    cloud = web()
    old = announced(cloud, EventType.REDEPLOY)
    new = cloud.postpone(old, HOUR_MS, reason="a sale")
    (fact,) = cloud.facts(FactKind.POSTPONED)
    assert (fact.event_id, fact.scope, fact.by) == (old.event_id, "web", "ann")
    assert detail_words(fact.detail) == {
        "postponed_to": new.event_id,
        "not_before_ms": new.not_before_ms,
        "postponements": 1,
        "postponed_ms": minutes(50),
        "reason": "a sale",
    }
    scheduled = cloud.facts(FactKind.SCHEDULED)[-1]
    assert (scheduled.event_id, detail_words(scheduled.detail)["postponed_from"]) == (
        new.event_id,
        old.event_id,
    )
    assert scheduled.by == "operator"  # who ordered the maintenance


@pytest.mark.parametrize("event_type", OF_HOSTS)
def test_the_old_event_never_starts_and_the_new_one_not_before_its_time(
    event_type: EventType,
) -> None:
    cloud = web()
    old = announced(cloud, event_type)
    new = cloud.postpone(old, HOUR_MS)
    cloud.pass_time(HOUR_MS - 1)
    assert cloud.event(new).phase is Phase.SCHEDULED
    assert reasons(cloud.holds(new)) == {HoldReason.CONSENT}
    cloud.pass_time(1)
    assert cloud.event(new).phase is Phase.STARTED
    cloud.work()
    assert cloud.event(new).phase is Phase.COMPLETED
    ended = cloud.event(old)
    assert (ended.phase, ended.started_ms, ended.actions) == (Phase.CANCELED, None, ())
    assert new.operation_id is not None
    (operation,) = [cloud.store.operation(new.operation_id)]
    cloud.tick()
    assert operation is not None
    assert cloud.operation(operation).outcome == "completed"


@pytest.mark.parametrize("event_type", OF_HOSTS)
def test_an_approval_is_of_the_old_event_alone(event_type: EventType) -> None:
    """It was given for a time at which it suited; the receipt of the old one keeps it."""
    cloud = web()
    window = (START_MS + minutes(60), START_MS + minutes(240))
    (old,) = cloud.events_of(cloud.maintain("h1", event_type, window=window))
    cloud.show()
    cloud.approves("web_0", [old.event_id])
    new = cloud.postpone(old, minutes(90))
    assert (new.approved_ms, new.approved_by) == (None, None)
    assert cloud.event(old).approved_by == "web_0"
    cloud.pass_time(minutes(89))
    assert cloud.event(new).phase is Phase.SCHEDULED
    cloud.approves("web_0", [new.event_id])
    cloud.tick()
    assert cloud.event(new).phase is Phase.STARTED


def test_a_guest_that_approves_the_old_event_too_late_is_answered_and_starts_nothing() -> None:
    cloud = web()
    old = announced(cloud, EventType.REBOOT)
    new = cloud.postpone(old, HOUR_MS)
    cloud.approves("web_0", [old.event_id])
    cloud.pass_time(minutes(30))
    assert cloud.event(new).phase is Phase.SCHEDULED
    assert cloud.event(new).approved_ms is None


@pytest.mark.parametrize("event_type", OF_HOSTS)
def test_the_notice_of_the_new_event_begins_anew(event_type: EventType) -> None:
    """However long the old one could be read: what is said too soon is raised to the notice."""
    cloud = web()
    old = announced(cloud, event_type, not_before_ms=START_MS + minutes(30))
    cloud.pass_time(minutes(29))
    new = cloud.postpone(old, minutes(2))
    least_ms = MINIMUM_NOTICE_MS[event_type]
    assert new.not_before_ms == cloud.clock.wall + least_ms
    assert (new.shown_ms, new.unreadable_ms) == (None, 0)
    cloud.show()
    cloud.hearing.falls_silent("h1")
    cloud.clock.pass_ms(minutes(5))
    cloud.run(ordered.host_silent("h1"))
    cloud.hearing.returns("h1")
    cloud.pass_time(least_ms - minutes(5))
    assert cloud.event(new).phase is Phase.SCHEDULED  # NotBefore is there, the notice is not
    cloud.pass_time(minutes(5))
    assert cloud.event(new).phase is Phase.STARTED


def test_not_before_is_a_whole_second_and_never_sooner_than_was_asked_for() -> None:
    cloud = web()
    old = announced(cloud, EventType.REBOOT)
    new = cloud.postpone(old, HOUR_MS + 1)
    assert new.not_before_ms == START_MS + HOUR_MS + SECOND_MS


# What may be postponed.


def of_cause(cause: Cause, event_type: EventType) -> tuple[Cloud, ScheduledEvent] | None:
    """A cloud with such an event, Scheduled as far as there is such a thing."""
    cloud = Cloud(spot("web_0"), scope("db", {"db_0": (0, "h2")}))
    events: list[ScheduledEvent] = []
    match cause:
        case Cause.MAINTENANCE if event_type in OF_HOSTS:
            events = cloud.events_of(cloud.maintain("h1", event_type))
        case Cause.DEGRADED if event_type is EventType.REDEPLOY:
            events = cloud.events_of(cloud.degrade("h1"))
        case Cause.ORDER if event_type not in (EventType.FREEZE, EventType.PREEMPT):
            events = [cloud.order("web_0", event_type)]
        case Cause.EVICTION if event_type is EventType.PREEMPT:
            events = [cloud.order("web_0", event_type)]
        case Cause.FAILURE if event_type is EventType.REBOOT:
            cloud.fail("h1")
            events = list(cloud.scope("web_0").events)
    return (cloud, events[0]) if events else None


EVERY_KIND = [
    (cause, event_type)
    for cause, event_type in product(Cause, EventType)
    if of_cause(cause, event_type) is not None
]


def test_every_cause_has_an_event_below() -> None:
    assert {cause for cause, _ in EVERY_KIND} == set(Cause)
    assert {event_type for _, event_type in EVERY_KIND} == set(EventType)


@pytest.mark.parametrize("by", [ANN, OPERATOR], ids=["owner", "operator"])
@pytest.mark.parametrize(("cause", "event_type"), EVERY_KIND)
def test_planned_maintenance_is_postponed_and_nothing_else(
    cause: Cause, event_type: EventType, by: Principal
) -> None:
    made = of_cause(cause, event_type)
    assert made is not None
    cloud, event = made
    if cause is Cause.MAINTENANCE:
        assert cloud.postpone(event, HOUR_MS, by=by).postponed_from == event.event_id
    elif cause is Cause.FAILURE:
        assert isinstance(refused(cloud, event, HOUR_MS, by), AlreadyStarted)
    else:
        assert isinstance(refused(cloud, event, 8 * DAY_MS, by), NotPostponable)


def test_a_refusal_says_what_the_owner_of_such_a_vm_can_do() -> None:
    cloud = Cloud(scope("web", WEB))
    ordered_event = cloud.order("web_0", EventType.REBOOT)
    assert ordered_event.event_id in refused(cloud, ordered_event, HOUR_MS).accepted
    (degraded,) = cloud.events_of(cloud.degrade("h2"))
    assert "`forewarn vm redeploy web_1`" in refused(cloud, degraded, 8 * DAY_MS).accepted


@pytest.mark.parametrize("event_type", OF_HOSTS)
def test_what_has_started_or_ended_is_not_postponed(event_type: EventType) -> None:
    cloud = web()
    event = announced(cloud, event_type)
    cloud.start(event)
    assert isinstance(refused(cloud, event, HOUR_MS), AlreadyStarted)
    cloud.work()
    assert isinstance(refused(cloud, event, HOUR_MS), AlreadyEnded)


def test_postponing_the_old_event_again_is_refused_and_names_the_new_one() -> None:
    cloud = web()
    old = announced(cloud, EventType.REBOOT)
    new = cloud.postpone(old, HOUR_MS)
    why = refused(cloud, old, 2 * HOUR_MS)
    assert isinstance(why, AlreadyEnded)
    assert new.event_id in why.accepted


def test_an_id_that_never_was_is_not_found() -> None:
    with pytest.raises(NotFound):
        web().run(ordered.postpone_event("F" * 36, by=ANN, until_ms=START_MS + HOUR_MS))


@pytest.mark.parametrize("in_ms", [0, minutes(14), minutes(15)])
def test_a_time_that_is_not_later_is_refused(in_ms: int) -> None:
    cloud = web()
    event = announced(cloud, EventType.REBOOT)
    why = refused(cloud, event, in_ms)
    assert isinstance(why, Invalid)
    assert "starts 15 min from now" in why.refused


def test_a_time_that_has_passed_is_refused() -> None:
    cloud = web()
    assert isinstance(refused(cloud, announced(cloud, EventType.REBOOT), -1), Invalid)


def test_what_is_held_beyond_its_time_can_still_be_postponed() -> None:
    """The count begins when it is asked for: what held it before is nobody's postponing."""
    cloud = web()
    other = cloud.order("web_1", EventType.REBOOT)
    event = announced(cloud, EventType.REBOOT)
    cloud.start(other)
    cloud.pass_time(minutes(25))
    assert reasons(cloud.holds(event)) == {HoldReason.DOMAIN_STARTED}
    new = cloud.postpone(event, minutes(30))
    assert (new.not_before_ms, new.postponed_ms) == (START_MS + minutes(55), minutes(30))


def test_what_was_held_leaves_its_owner_the_whole_time() -> None:
    cloud = web(policy=replace(NO_RECOVERY, postpone_ms_max=minutes(30)))
    other = cloud.order("web_1", EventType.REBOOT)
    event = announced(cloud, EventType.REBOOT)
    cloud.start(other)
    cloud.pass_time(minutes(25))
    assert isinstance(refused(cloud, event, minutes(31)), PostponedTooFar)
    assert cloud.postpone(event, minutes(30)).postponed_ms == minutes(30)


def test_the_soonest_time_may_be_the_latest() -> None:
    cloud = web(policy=replace(NO_RECOVERY, postpone_ms_max=minutes(14)))
    event = announced(cloud, EventType.REBOOT)
    cloud.pass_time(minutes(14))
    new = cloud.postpone(event, minutes(2))
    assert new.not_before_ms == START_MS + minutes(29)


@pytest.mark.parametrize("reason", ["x" * 201, "two\nlines", "a\x00b", "\x1b[31mred"])
def test_a_reason_is_one_line_of_text(reason: str) -> None:
    cloud = web()
    event = announced(cloud, EventType.REBOOT)
    with pytest.raises(Invalid, match="200 printable characters"):
        cloud.postpone(event, HOUR_MS, reason=reason)


# A Freeze or Reboot of a host is done once for all.


@pytest.mark.parametrize("event_type", WHOLE_HOST)
def test_all_events_of_an_operation_move_together(event_type: EventType) -> None:
    cloud = two_scopes()
    operation, old = both(cloud, event_type)
    new = cloud.postpone(old["web"], HOUR_MS)
    (other,) = cloud.scope("db").events
    assert other.postponed_from == old["db"].event_id
    assert cloud.event(old["db"]).postponed_to == other.event_id
    assert other.not_before_ms == new.not_before_ms == START_MS + HOUR_MS
    moved = cloud.operation(operation)
    assert moved.phase is OperationPhase.WAITING
    assert moved.members[2:] == (("web", new.event_id), ("db", other.event_id))
    assert (moved.postponements, moved.postponed_ms) == (1, minutes(45))
    cloud.pass_time(HOUR_MS - 1)
    assert {cloud.event(e).phase for e in (new, other)} == {Phase.SCHEDULED}
    cloud.pass_time(1)
    assert {cloud.event(e).phase for e in (new, other)} == {Phase.STARTED}
    cloud.work()
    assert cloud.operation(operation).outcome == "completed"


def test_a_move_of_a_vm_is_postponed_alone() -> None:
    cloud = two_scopes()
    operation, old = both(cloud, EventType.REDEPLOY)
    new = cloud.postpone(old["web"], HOUR_MS)
    assert cloud.event(old["db"]) == old["db"]
    assert cloud.operation(operation).postponements == 0
    cloud.pass_time(minutes(10))
    assert cloud.event(old["db"]).phase is Phase.STARTED
    cloud.work()
    cloud.tick()
    assert cloud.operation(operation).phase is OperationPhase.STARTED  # it waits for the other
    cloud.pass_time(minutes(50))
    cloud.work()
    assert cloud.event(new).phase is Phase.COMPLETED
    cloud.tick()
    assert cloud.operation(operation).outcome == "completed"


@pytest.mark.parametrize("event_type", WHOLE_HOST)
def test_another_scope_reads_that_it_moved_and_not_who_wanted_it(event_type: EventType) -> None:
    cloud = two_scopes()
    operation, old = both(cloud, event_type)
    order = ordered.postpone_event(
        old["web"].event_id, by=ANN, until_ms=START_MS + HOUR_MS, reason="our sale"
    )
    answer = cloud.run(order)
    assert (answer.withdrawn, answer.announced) == (
        (old["web"].event_id,),
        (answer.event.event_id,),
    )
    assert cloud.event(old["db"]).outcome == "postponed with its operation"
    told = {fact.scope: fact for fact in cloud.facts(FactKind.POSTPONED)}
    assert (told["web"].by, detail_words(told["web"].detail)["reason"]) == ("ann", "our sale")
    assert told["db"].by is None
    assert "reason" not in detail_words(told["db"].detail)
    of_operation = told[None]
    assert (of_operation.operation_id, of_operation.by) == (operation.operation_id, "ann")
    assert detail_words(of_operation.detail)["reason"] == "our sale"


@pytest.mark.parametrize("event_type", WHOLE_HOST)
def test_an_operator_is_named_everywhere_and_told_of_all_events(event_type: EventType) -> None:
    cloud = two_scopes()
    _, old = both(cloud, event_type)
    order = ordered.postpone_event(old["web"].event_id, by=OPERATOR, until_ms=START_MS + HOUR_MS)
    answer = cloud.run(order)
    assert answer.withdrawn == (old["web"].event_id, old["db"].event_id)
    assert [cloud.event(one).postponed_from for one in answer.announced] == list(answer.withdrawn)
    assert cloud.event(old["db"]).outcome == "postponed by operator"
    assert {fact.by for fact in cloud.facts(FactKind.POSTPONED)} == {"operator"}


def test_an_operation_that_may_break_domains_still_may() -> None:
    cloud = Cloud(scope("split", {"s0": (0, "h1"), "s1": (1, "h1")}))
    operation = cloud.maintain("h1", EventType.REBOOT, break_domains=True)
    cloud.show()
    cloud.postpone(cloud.events_of(operation)[0], HOUR_MS)
    assert [event.breaks_domains for event in cloud.scope("split").events] == [True, True]
    cloud.pass_time(HOUR_MS)
    assert cloud.operation(operation).phase is OperationPhase.STARTED


def test_an_approval_of_another_scope_is_taken_back_with_its_event() -> None:
    cloud = two_scopes()
    operation, old = both(cloud, EventType.REBOOT)
    cloud.approves("db_0", [old["db"].event_id])
    cloud.postpone(old["web"], HOUR_MS)
    (other,) = cloud.scope("db").events
    assert other.approved_ms is None
    cloud.show()
    cloud.approves("web_0", [cloud.scope("web").events[0].event_id])
    cloud.tick()
    assert cloud.operation(operation).phase is OperationPhase.WAITING
    cloud.approves("db_0", [other.event_id])
    cloud.tick()
    assert cloud.operation(operation).phase is OperationPhase.STARTED


def test_the_limits_of_an_operation_are_counted_once_for_all_its_scopes() -> None:
    cloud = two_scopes(policy=replace(NO_RECOVERY, postponements_max=2))
    _, old = both(cloud, EventType.REBOOT)
    cloud.postpone(old["web"], minutes(30))
    (other,) = cloud.scope("db").events
    cloud.postpone(other, minutes(45), by=ordered.owner("bo"))
    for name in ("web", "db"):
        (event,) = cloud.scope(name).events
        assert isinstance(refused(cloud, event, HOUR_MS), PostponedTooOften)


def test_no_event_of_an_operation_gets_an_earlier_time_than_it_had() -> None:
    """A VM that came later was told a later time; what is said must be later than that too."""
    cloud = web()
    event = announced(cloud, EventType.REBOOT)
    cloud.pass_time(minutes(10))
    came = replace(cloud.scope("web"), vms=(*cloud.scope("web").vms, vm("web_2", 0, "h1")))
    cloud.run(lambda tx: tx.apply(Decision(scopes=(came,))))
    cloud.tick()
    (late,) = [e for e in cloud.scope("web").events if e.resources == ("web_2",)]
    assert late.not_before_ms == START_MS + minutes(25)
    assert isinstance(refused(cloud, event, minutes(15)), Invalid)
    new = cloud.postpone(event, minutes(20))
    times = {one.not_before_ms for one in cloud.scope("web").events}
    assert times == {new.not_before_ms} == {START_MS + minutes(30)}
    assert new.postponed_ms == minutes(5)


def test_a_vm_that_comes_afterwards_is_told_the_time_that_the_operation_was_postponed_to() -> None:
    cloud = web()
    cloud.postpone(announced(cloud, EventType.REBOOT), 2 * HOUR_MS)
    came = replace(cloud.scope("web"), vms=(*cloud.scope("web").vms, vm("web_2", 0, "h1")))
    cloud.run(lambda tx: tx.apply(Decision(scopes=(came,))))
    cloud.tick()
    (late,) = [e for e in cloud.scope("web").events if e.resources == ("web_2",)]
    assert late.not_before_ms == START_MS + 2 * HOUR_MS
    assert left(cloud, late, PrincipalKind.OWNER).postponements == 1


# Who is not told.


@pytest.mark.parametrize("event_type", OF_HOSTS)
def test_what_no_guest_is_told_of_is_postponed_too(event_type: EventType) -> None:
    cloud = Cloud(scope("web", WEB, enabled=False))
    at_ms = START_MS + minutes(30)
    (old,) = cloud.events_of(cloud.maintain("h1", event_type, not_before_ms=at_ms))
    incarnation = cloud.scope("web").incarnation
    new = cloud.postpone(old, HOUR_MS)
    assert (new.silent, cloud.scope("web").incarnation) == (True, incarnation)
    cloud.pass_time(HOUR_MS - 1)
    assert cloud.event(new).phase is Phase.SCHEDULED
    cloud.pass_time(1)
    assert cloud.event(new).phase is Phase.STARTED


@pytest.mark.parametrize("event_type", OF_HOSTS)
def test_it_appears_with_its_full_notice_when_its_scope_is_told(event_type: EventType) -> None:
    cloud = Cloud(scope("web", WEB, enabled=False))
    at_ms = START_MS + minutes(30)
    (old,) = cloud.events_of(cloud.maintain("h1", event_type, not_before_ms=at_ms))
    new = cloud.postpone(old, HOUR_MS)
    cloud.pass_time(minutes(55))
    cloud.polls("web", "web_0")
    shown = cloud.event(new)
    assert shown.not_before_ms == cloud.clock.wall + MINIMUM_NOTICE_MS[event_type]
    assert not shown.silent


@pytest.mark.parametrize("event_type", WHOLE_HOST)
def test_vms_that_were_switched_off_since_do_not_bring_the_operation_forward(
    event_type: EventType,
) -> None:
    cloud = web()
    old = announced(cloud, event_type, not_before_ms=START_MS + HOUR_MS)
    cloud.run(
        lambda tx: tx.apply(vm_power.switched_off(tx.need_scope("web"), ("web_0",), tx.now_ms))
    )
    new = cloud.postpone(old, 2 * HOUR_MS)
    assert new.silent
    assert new.operation_id is not None
    cloud.pass_time(2 * HOUR_MS - 1)
    assert cloud.index.operations[new.operation_id].phase is OperationPhase.WAITING
    cloud.pass_time(1)
    assert cloud.index.operations[new.operation_id].phase is OperationPhase.STARTED
    assert cloud.event(new).outcome == "avoided: switched off"


@pytest.mark.parametrize("event_type", OF_HOSTS)
def test_a_vm_that_is_switched_on_afterwards_gets_its_full_notice(event_type: EventType) -> None:
    cloud = web()
    old = announced(cloud, event_type, not_before_ms=START_MS + HOUR_MS)
    cloud.run(
        lambda tx: tx.apply(vm_power.switched_off(tx.need_scope("web"), ("web_0",), tx.now_ms))
    )
    new = cloud.postpone(old, 2 * HOUR_MS)
    cloud.pass_time(2 * HOUR_MS - minutes(1))

    def switch_on(tx: Transaction) -> None:
        on = vm_power.switched_on(tx.need_scope("web"), ("web_0",), enabled=True, now_ms=tx.now_ms)
        tx.apply(on)

    cloud.run(switch_on)
    shown = cloud.event(new)
    least_ms = MINIMUM_NOTICE_MS[event_type]
    assert (shown.silent, shown.not_before_ms) == (False, cloud.clock.wall + least_ms)
    cloud.pass_time(least_ms - 1)
    assert cloud.event(new).phase is Phase.SCHEDULED
    cloud.pass_time(1)
    assert cloud.event(new).phase is Phase.STARTED


# Limits.


@pytest.mark.parametrize("most", [1, 2, 5])
def test_an_owner_postpones_an_event_so_often_and_no_more(most: int) -> None:
    cloud = web(policy=replace(NO_RECOVERY, postponements_max=most))
    event = announced(cloud, EventType.REDEPLOY)
    for time in range(most):
        assert left(cloud, event, PrincipalKind.OWNER).times_left == most - time
        event = cloud.postpone(event, HOUR_MS + time * minutes(1))
    assert isinstance(refused(cloud, event, 2 * HOUR_MS), PostponedTooOften)
    found = left(cloud, event, PrincipalKind.OWNER)
    assert (found.times_left, found.postponements) == (0, most)
    assert found.refused is not None


def test_an_owner_postpones_an_event_by_so_much_in_all_and_no_more() -> None:
    cloud = web(policy=replace(NO_RECOVERY, postpone_ms_max=2 * HOUR_MS))
    event = announced(cloud, EventType.REBOOT)  # in 15 minutes
    assert left(cloud, event, PrincipalKind.OWNER).latest_ms == START_MS + minutes(135)
    why = refused(cloud, event, minutes(135) + 1)
    assert isinstance(why, PostponedTooFar)
    assert "+135m at the latest" in why.accepted
    event = cloud.postpone(event, minutes(75))
    assert isinstance(refused(cloud, event, minutes(136)), PostponedTooFar)
    event = cloud.postpone(event, minutes(135))
    assert event.postponed_ms == 2 * HOUR_MS
    why = refused(cloud, event, minutes(136))
    assert isinstance(why, PostponedTooFar)
    assert "cannot be postponed any more" in why.refused


@pytest.mark.parametrize(
    "off",
    [
        {"postponements_max": 0},
        {"postpone_ms_max": 0},
        {"postponements_max": 0, "postpone_ms_max": 0},
    ],
)
def test_with_0_owners_postpone_nothing_and_operators_do(off: dict[str, Any]) -> None:
    cloud = web(policy=replace(NO_RECOVERY, **off))
    event = announced(cloud, EventType.REBOOT)
    why = refused(cloud, event, HOUR_MS)
    assert isinstance(why, NotPostponable)
    assert "switched off" in why.refused
    assert cloud.postpone(event, 30 * DAY_MS, by=OPERATOR).postponements == 1


def test_what_an_operator_postpones_counts_for_the_owner() -> None:
    cloud = web(policy=replace(NO_RECOVERY, postponements_max=1, postpone_ms_max=HOUR_MS))
    event = cloud.postpone(announced(cloud, EventType.REBOOT), 3 * HOUR_MS, by=OPERATOR)
    assert isinstance(refused(cloud, event, 4 * HOUR_MS), PostponedTooOften)
    assert cloud.postpone(event, 5 * HOUR_MS, by=OPERATOR).postponements == 2


def test_an_event_is_postponed_a_hundred_times_at_most_also_by_operators() -> None:
    cloud = web()
    event = announced(cloud, EventType.REDEPLOY)
    for time in range(POSTPONEMENTS_MAX):
        event = cloud.postpone(event, HOUR_MS + time * minutes(1), by=OPERATOR)
    assert isinstance(refused(cloud, event, DAY_MS, OPERATOR), PostponedTooOften)


@pytest.mark.parametrize("by", [ANN, OPERATOR], ids=["owner", "operator"])
@pytest.mark.parametrize("event_type", OF_HOSTS)
def test_nothing_is_postponed_beyond_the_window_of_its_order(
    event_type: EventType, by: Principal
) -> None:
    cloud = web()
    closes_ms = START_MS + minutes(120)
    event = announced(cloud, event_type, window=(START_MS, closes_ms))
    for in_ms in (minutes(120), minutes(120) - 1):  # a whole second is announced
        why = refused(cloud, event, in_ms, by)
        assert isinstance(why, PostponedTooFar)
        assert "window" in why.refused
        assert "+119m" in why.accepted
    new = cloud.postpone(event, minutes(120) - SECOND_MS, by=by)
    assert (new.window, new.not_before_ms) == (event.window, closes_ms - SECOND_MS)


@pytest.mark.parametrize("by", [ANN, OPERATOR], ids=["owner", "operator"])
def test_a_window_that_closes_before_a_new_notice_has_ended_leaves_no_time(by: Principal) -> None:
    cloud = web()
    event = announced(cloud, EventType.REBOOT, window=(START_MS, START_MS + minutes(20)))
    cloud.pass_time(minutes(10))
    why = refused(cloud, event, minutes(8), by)
    assert isinstance(why, PostponedTooFar)
    assert "15 min from now at the soonest" in why.refused
    cloud.pass_time(minutes(5))
    assert cloud.event(event).phase is Phase.STARTED


def test_the_time_of_a_suggestion_is_accepted() -> None:
    """Also where now and the limit are no whole seconds."""
    for odd_ms in (0, 1, 499, 999):
        cloud = web(policy=replace(NO_RECOVERY, postpone_ms_max=minutes(20) + 250))
        cloud.clock.pass_ms(odd_ms)
        event = announced(cloud, EventType.REBOOT)
        latest = left(cloud, event, PrincipalKind.OWNER).latest_ms
        assert latest is not None
        assert cloud.postpone(event, latest - cloud.clock.wall).not_before_ms == latest
        cloud = web(policy=replace(NO_RECOVERY, postpone_ms_max=minutes(20) + 250))
        cloud.clock.pass_ms(odd_ms)
        event = announced(cloud, EventType.REBOOT)
        said = refused(cloud, event, DAY_MS).accepted
        in_s = int(said.partition("+")[2].partition("s")[0])
        assert cloud.postpone(event, in_s * SECOND_MS).not_before_ms <= latest


def test_a_scope_that_is_full_does_not_keep_its_events_from_being_postponed() -> None:
    cloud = web()
    event = announced(cloud, EventType.REBOOT)

    def fill(tx: Transaction) -> None:
        owner: Scope = tx.need_scope("web")
        more = tuple(
            replace(event, event_id=f"E{number}", operation_id=None, resources=("web_1",))
            for number in range(EVENTS_PER_SCOPE_MAX - 1)
        )
        tx.apply(Decision(scopes=(replace(owner, events=(*owner.events, *more)),)))

    cloud.run(fill)
    assert cloud.postpone(event, HOUR_MS).postponements == 1
    assert len(cloud.scope("web").events) == EVENTS_PER_SCOPE_MAX


# What dies meanwhile.


def test_both_events_and_what_was_counted_survive_a_crash() -> None:
    cloud = two_scopes(policy=replace(NO_RECOVERY, postponements_max=1))
    operation, old = both(cloud, EventType.REBOOT)
    new = cloud.postpone(old["web"], HOUR_MS)
    before = cloud.operation(operation)
    cloud.crash(down_ms=SECOND_MS)
    assert cloud.operation(operation) == before
    assert cloud.event(new).postponed_from == old["web"].event_id
    assert isinstance(refused(cloud, new, 2 * HOUR_MS), PostponedTooOften)


@pytest.mark.parametrize("event_type", OF_HOSTS)
def test_the_host_of_a_postponed_event_may_fail_and_leaves_nothing_behind(
    event_type: EventType,
) -> None:
    cloud = web()
    new = cloud.postpone(announced(cloud, event_type), HOUR_MS)
    cloud.fail("h1")
    assert cloud.event(new).phase is Phase.CANCELED
    assert cloud.index.operations == {}


def test_canceling_the_new_event_cancels_its_operation() -> None:
    cloud = two_scopes()
    operation, old = both(cloud, EventType.REBOOT)
    cloud.cancel(cloud.postpone(old["web"], HOUR_MS))
    assert cloud.operation(operation).outcome == "canceled"
    assert cloud.scope("db").events == ()


def test_the_defaults_let_an_owner_postpone_three_times_by_a_day_in_all() -> None:
    assert (Policy().postponements_max, Policy().postpone_ms_max) == (3, DAY_MS)
