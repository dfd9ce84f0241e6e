"""One update domain at a time: who waits, who is exempt and counted, recovering, held."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from forewarn.core import starting
from forewarn.core.errors import NotFound
from forewarn.core.model import (
    SECOND_MS,
    Cause,
    EventType,
    FactKind,
    Outcome,
    Phase,
    Policy,
    ScheduledEvent,
    Scope,
    ScopeKind,
)
from forewarn.core.starting import HoldReason
from forewarn.core.vm_profile import Priority
from support import ordered
from support.clock import START_MS
from support.core_fleet import WEB, Cloud, minutes, reasons, scope, spot, vm
from support.journal import said

THREE = {"a": (0, "h1"), "b": (1, "h2"), "c": (2, "h3")}
RECOVERY = Policy(domain_recovery_ms=600 * SECOND_MS)


def phase(cloud: Cloud, event: ScheduledEvent) -> Phase:
    return cloud.event(event).phase


@pytest.mark.parametrize("second", [EventType.REBOOT, EventType.REDEPLOY])
def test_two_domains_of_a_scope_are_never_started_together(second: EventType) -> None:
    cloud = Cloud(scope("web", WEB))
    events = [cloud.order("web_0", EventType.REBOOT), cloud.order("web_1", second)]
    cloud.start(*events)
    assert [phase(cloud, e) for e in events] == [Phase.STARTED, Phase.SCHEDULED]
    cloud.work()
    assert [phase(cloud, e) for e in events] == [Phase.COMPLETED, Phase.STARTED]


def test_platform_events_wait_for_another_domain_too() -> None:
    cloud = Cloud(scope("web", WEB))
    user = cloud.order("web_0", EventType.REBOOT)
    [platform] = cloud.events_of(cloud.maintain("h2", EventType.FREEZE))
    cloud.start(user, platform)
    assert phase(cloud, platform) is Phase.SCHEDULED


def test_two_vms_of_one_domain_may_start_together() -> None:
    cloud = Cloud(scope("web", {"a": (0, "h1"), "b": (0, "h2")}))
    events = [cloud.order(name, EventType.REBOOT) for name in ("a", "b")]
    cloud.start(*events)
    assert [phase(cloud, e) for e in events] == [Phase.STARTED, Phase.STARTED]


def test_scopes_do_not_wait_for_each_other() -> None:
    cloud = Cloud(scope("one", {"a": (0, "h1")}), scope("two", {"b": (1, "h2")}))
    events = [cloud.order(name, EventType.REBOOT) for name in ("a", "b")]
    cloud.start(*events)
    assert [phase(cloud, e) for e in events] == [Phase.STARTED, Phase.STARTED]


# Exemptions.


def mixed() -> Cloud:
    """Domain 0 regular on h1, domain 1 a spot VM on h2."""
    owner = Scope(
        name="web",
        kind=ScopeKind.PLACEMENT_GROUP,
        enabled=True,
        polled_ms=START_MS,
        vms=(vm("web_0", 0, "h1"), vm("web_1", 1, "h2", priority=Priority.SPOT)),
    )
    return Cloud(owner)


@pytest.mark.parametrize("exempt", [EventType.PREEMPT, EventType.TERMINATE])
def test_evictions_and_deletions_do_not_wait_and_are_counted(exempt: EventType) -> None:
    cloud = mixed()
    reboot = cloud.order("web_0", EventType.REBOOT)
    cloud.start(reboot)
    event = cloud.order("web_1", exempt)
    cloud.start(event)
    assert phase(cloud, event) is Phase.STARTED
    [fact] = cloud.facts(FactKind.EXEMPTED)
    assert fact.event_id == event.event_id
    assert said(fact) == {"because": exempt.value, "other_events": [reboot.event_id]}


def test_a_host_failure_does_not_wait_and_is_counted() -> None:
    cloud = mixed()
    reboot = cloud.order("web_0", EventType.REBOOT)
    cloud.start(reboot)
    cloud.fail("h2")
    [fact] = cloud.facts(FactKind.EXEMPTED)
    assert said(fact)["other_events"] == [reboot.event_id]
    assert phase(cloud, reboot) is Phase.STARTED


def test_an_exempt_event_that_meets_nobody_is_not_counted() -> None:
    cloud = mixed()
    cloud.start(cloud.order("web_1", EventType.PREEMPT))
    assert cloud.facts(FactKind.EXEMPTED) == []


@pytest.mark.parametrize("exempt", [EventType.PREEMPT, EventType.TERMINATE, None])
def test_exempt_events_make_the_others_wait(exempt: EventType | None) -> None:
    cloud = mixed()
    reboot = cloud.order("web_0", EventType.REBOOT)
    if exempt is None:
        cloud.fail("h2")
    else:
        cloud.start(cloud.order("web_1", exempt))
    cloud.start(reboot)
    assert phase(cloud, reboot) is Phase.SCHEDULED
    assert reasons(cloud.holds(reboot)) == {HoldReason.DOMAIN_STARTED}


# Recovering.


def after_reboot(event_type: EventType = EventType.REBOOT) -> Cloud:
    cloud = Cloud(scope("web", {"a": (0, "h1"), "b": (0, "h1"), "c": (1, "h2")}), policy=RECOVERY)
    if event_type is EventType.REDEPLOY:
        cloud.carry_out(*[cloud.order(name, event_type) for name in ("a", "b")])
    else:
        cloud.carry_out(*cloud.events_of(cloud.maintain("h1", event_type)))
    return cloud


@pytest.mark.parametrize("event_type", [EventType.REBOOT, EventType.REDEPLOY])
def test_platform_events_of_other_domains_wait_until_each_vm_has_polled_again(
    event_type: EventType,
) -> None:
    cloud = after_reboot(event_type)
    [platform] = cloud.events_of(cloud.maintain("h2", EventType.FREEZE))
    cloud.start(platform)
    assert reasons(cloud.holds(platform)) == {HoldReason.DOMAIN_RECOVERING}
    cloud.polls("web", "a")
    cloud.polls("web", "c")
    cloud.tick()
    assert phase(cloud, platform) is Phase.SCHEDULED
    cloud.polls("web", "b")
    cloud.tick()
    assert phase(cloud, platform) is Phase.STARTED
    assert len(cloud.facts(FactKind.RECOVERED)) == 1


def test_platform_events_of_other_domains_wait_no_longer_than_the_setting_says() -> None:
    cloud = after_reboot()
    [platform] = cloud.events_of(cloud.maintain("h2", EventType.FREEZE))
    cloud.approve(platform)
    cloud.pass_time(RECOVERY.domain_recovery_ms - 1)
    assert phase(cloud, platform) is Phase.SCHEDULED
    cloud.pass_time(1)
    cloud.tick()
    assert phase(cloud, platform) is Phase.STARTED


def test_user_events_do_not_wait_for_a_recovering_domain() -> None:
    cloud = after_reboot()
    user = cloud.order("c", EventType.REBOOT)
    cloud.start(user)
    assert phase(cloud, user) is Phase.STARTED


def test_the_recovering_domain_itself_does_not_wait() -> None:
    cloud = after_reboot()
    [platform] = cloud.events_of(cloud.maintain("h1", EventType.FREEZE))
    cloud.start(platform)
    assert phase(cloud, platform) is Phase.STARTED


def test_a_freeze_leaves_nobody_recovering() -> None:
    cloud = after_reboot(EventType.FREEZE)
    assert cloud.scope().recoveries == ()


def test_a_domain_that_is_rebooted_vm_by_vm_waits_for_all_of_them() -> None:
    cloud = Cloud(scope("web", {"a": (0, "h1"), "b": (0, "h1"), "c": (1, "h2")}), policy=RECOVERY)
    cloud.carry_out(cloud.order("a", EventType.REBOOT))
    cloud.clock.pass_ms(minutes(1))
    cloud.carry_out(cloud.order("b", EventType.REBOOT))
    [recovery] = cloud.scope().recoveries
    assert recovery.waiting_for == ("a", "b")
    assert recovery.until_ms == cloud.clock.wall + RECOVERY.domain_recovery_ms


def test_a_deleted_vm_is_not_waited_for() -> None:
    cloud = after_reboot()
    cloud.polls("web", "a")
    cloud.carry_out(cloud.order("b", EventType.TERMINATE))
    assert cloud.scope().recoveries == ()


def test_with_zero_recovery_seconds_nobody_waits() -> None:
    cloud = Cloud(scope("web", WEB))
    cloud.carry_out(cloud.order("web_0", EventType.REBOOT))
    [platform] = cloud.events_of(cloud.maintain("h2", EventType.FREEZE))
    cloud.start(platform)
    assert phase(cloud, platform) is Phase.STARTED


def test_ten_minutes_is_the_default_time_to_recover() -> None:
    assert Policy().domain_recovery_ms == minutes(10)


@pytest.mark.parametrize("lost", ["downtime", "step"])
def test_time_in_which_nobody_could_poll_does_not_end_a_recovery(lost: str) -> None:
    cloud = after_reboot()
    if lost == "downtime":
        cloud.crash(down_ms=minutes(30))
    else:
        cloud.clock.wall += minutes(30)
    cloud.pass_time(minutes(9))
    assert [recovery.waiting_for for recovery in cloud.scope().recoveries] == [("a", "b")]


# Held after a failure.


def after_failed_event() -> tuple[Cloud, ScheduledEvent]:
    cloud = Cloud(scope("web", THREE), spot("spotty", "h1"))
    event = cloud.order("a", EventType.REBOOT)
    cloud.start(event)
    cloud.work(Outcome.FAILED)
    return cloud, event


def test_after_a_failed_event_platform_events_of_the_scope_wait_for_the_operator() -> None:
    cloud, failed = after_failed_event()
    [platform] = cloud.events_of(cloud.maintain("h2", EventType.FREEZE))
    cloud.start(platform)
    [hold] = cloud.holds(platform)
    assert hold.reason is HoldReason.SCOPE_HELD
    assert failed.event_id in hold.what
    assert "forewarn scope release web" in hold.remedy
    cloud.run(ordered.release_scope("web", by="ann"))
    cloud.tick()
    assert phase(cloud, platform) is Phase.STARTED
    [fact] = cloud.facts(FactKind.RELEASED)
    assert (fact.by, fact.event_id) == ("ann", failed.event_id)


def test_a_failed_event_holds_neither_user_events_nor_other_scopes() -> None:
    cloud, _ = after_failed_event()
    user = cloud.order("b", EventType.REBOOT)
    other = cloud.order("spotty", EventType.PREEMPT)
    cloud.start(user, other)
    assert [phase(cloud, e) for e in (user, other)] == [Phase.STARTED, Phase.STARTED]


def test_a_failed_event_does_not_hold_an_eviction() -> None:
    cloud = mixed()
    failing = cloud.order("web_0", EventType.REBOOT)
    cloud.start(failing)
    cloud.work(Outcome.FAILED)
    eviction = cloud.order("web_1", EventType.PREEMPT)
    cloud.start(eviction)
    assert phase(cloud, eviction) is Phase.STARTED


def test_a_failed_event_leaves_the_document_and_the_journal_says_why() -> None:
    cloud, failed = after_failed_event()
    assert cloud.scope().events == ()
    assert cloud.event(failed).outcome == "a: no"
    assert said(cloud.facts(FactKind.FAILED)[-1]) == {
        "event_type": "Reboot",
        "resources": ["a"],
        "reason": "a: no",
    }
    assert len(cloud.facts(FactKind.HELD)) == 1


def test_the_first_failure_is_the_one_that_holds() -> None:
    cloud, first = after_failed_event()
    second = cloud.order("b", EventType.REBOOT)
    cloud.start(second)
    cloud.work(Outcome.FAILED)
    hold = cloud.scope().hold
    assert hold is not None
    assert hold.event_id == first.event_id


def test_releasing_a_scope_that_is_not_held_is_refused() -> None:
    with pytest.raises(NotFound, match="not held"):
        Cloud(scope("web", WEB)).run(ordered.release_scope("web", by="ann"))


@pytest.mark.parametrize("seed", range(30))
def test_the_events_that_may_start_are_all_that_are_due_and_that_no_domain_holds(seed: int) -> None:
    """However many wait; the ticker looks into the holds of these only."""
    rng = random.Random(seed)
    cloud = Cloud(scope("web", {f"v{n}": (n % 3, f"h{n}") for n in range(8)}))
    for number in range(8):
        cloud.order(f"v{number}", rng.choice([EventType.REBOOT, EventType.REDEPLOY]))
    made = cloud.scope("web")
    now_ms = cloud.clock.now_ms()

    def some(event: ScheduledEvent) -> ScheduledEvent:
        started = rng.random() < 0.2
        return replace(
            event,
            phase=Phase.STARTED if started else Phase.SCHEDULED,
            approved_ms=now_ms if started or rng.random() < 0.5 else None,
            silent=rng.random() < 0.2,
            breaks_domains=rng.random() < 0.2,
            cause=rng.choice([Cause.ORDER, Cause.ORDER, Cause.FAILURE]),
        )

    vms = tuple(replace(vm, off=seed % 2 == 0 and rng.random() < 0.3) for vm in made.vms)
    web = replace(made, vms=vms, events=tuple(map(some, made.events)))
    found = [event.event_id for event in starting.due_events(web, now_ms)]
    free = [
        event.event_id
        for event in web.events
        if event.phase is Phase.SCHEDULED
        and starting.due(web, event, now_ms)
        and HoldReason.DOMAIN_STARTED
        not in {hold.reason for hold in starting.scope_holds(web, event)}
    ]
    assert set(free) <= set(found)
    due = {e.event_id for e in web.events if starting.due(web, e, now_ms)}
    assert set(found) <= due
    if not any(e.breaks_domains or e.silent for e in web.events):
        assert found == free
