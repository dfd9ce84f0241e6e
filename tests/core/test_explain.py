"""`explain` says for everything open what holds it, since when, until when, and the way out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from forewarn.control.hosts.leases import TWO_DAEMONS_MS
from forewarn.control.transaction import Transaction
from forewarn.core import explain
from forewarn.core.model import (
    HOUR_MS,
    Decision,
    EventType,
    Host,
    Outcome,
    Phase,
    Policy,
    ScheduledEvent,
)
from forewarn.core.starting import Hold, HoldReason
from support.clock import START_MS
from support.core_fleet import WEB, Cloud, minutes, reasons, scope, vm

RECOVERY = Policy(domain_recovery_ms=minutes(10))


REFUSAL = "The document of scope web would go back. Say `forewarn host accept-control` there."


def web(**more: object) -> Cloud:
    return Cloud(scope("web", WEB), **more)  # type: ignore[arg-type]


def platform(cloud: Cloud, host: str = "h2", **more: object) -> ScheduledEvent:
    """An approved platform event on the host."""
    event = cloud.events_of(cloud.maintain(host, EventType.FREEZE, **more))[0]
    cloud.approve(event)
    return event


def consent() -> list[Hold]:
    cloud = web()
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.show()
    return cloud.holds(event)


def clock() -> list[Hold]:
    cloud = Cloud(scope("web", WEB, enabled=False))
    operation = cloud.maintain("h1", EventType.FREEZE, not_before_ms=START_MS + HOUR_MS)
    return cloud.holds(cloud.events_of(operation)[0])


def not_yet_served() -> list[Hold]:
    cloud = web()
    return cloud.holds(cloud.order("web_0", EventType.REBOOT))


def vm_busy() -> list[Hold]:
    cloud = web()
    cloud.start(cloud.order("web_0", EventType.REBOOT))
    event = cloud.order("web_0", EventType.TERMINATE)
    cloud.approve(event)
    return cloud.holds(event)


def domain_started() -> list[Hold]:
    cloud = web()
    cloud.start(cloud.order("web_0", EventType.REBOOT))
    return cloud.holds(platform(cloud))


def domain_recovering() -> list[Hold]:
    cloud = web(policy=RECOVERY)
    cloud.carry_out(cloud.order("web_0", EventType.REBOOT))
    return cloud.holds(platform(cloud))


def scope_held() -> list[Hold]:
    cloud = web()
    cloud.start(cloud.order("web_0", EventType.REBOOT))
    cloud.work(Outcome.FAILED)
    return cloud.holds(platform(cloud))


def host_silent() -> list[Hold]:
    cloud = web()
    event = platform(cloud)
    cloud.hearing.falls_silent("h2")
    cloud.clock.pass_ms(minutes(3))
    return cloud.holds(event)


def hypervisor_unreachable() -> list[Hold]:
    cloud = web()
    event = platform(cloud)
    cloud.observed.hypervisor_lost("h2", "Libvirt cannot be reached. Is it running?")
    return cloud.holds(event)


def host_refuses() -> list[Hold]:
    cloud = web()
    event = platform(cloud)
    refuses(cloud, "h2", REFUSAL)
    return cloud.holds(event)


def two_daemons() -> list[Hold]:
    cloud = web()
    event = platform(cloud)
    speak_two(cloud, "h2")
    return cloud.holds(event)


def speak_two(cloud: Cloud, host: str) -> None:
    """Two daemons speak as the host: the first also after the second has begun."""
    for daemon in ("true", "copy", "true"):
        cloud.observed.hears_daemon(host, daemon)
        cloud.clock.pass_ms(1)


def host_not_joined() -> list[Hold]:
    cloud = web()
    event = platform(cloud)
    revoked(cloud, "h2")
    return cloud.holds(event)


def revoked(cloud: Cloud, host: str) -> None:
    """As a control has it: every host has joined, but this one no more."""
    cloud.hosts_join()
    for name, known in list(cloud.index.hosts.items()):
        cloud.index.put_host(name, replace(known, joined=name != host))


def refuses(cloud: Cloud, host: str, why: str) -> None:
    cloud.observed.heard(host, at_ms=cloud.clock.monotonic_ms(), refuses=why)


def host_failed() -> list[Hold]:
    cloud = web()
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.approve(event)
    cloud.fail("h1")
    return [h for h in cloud.holds(event) if h.reason is not HoldReason.VM_BUSY]


def host_busy() -> list[Hold]:
    cloud = Cloud()
    cloud.maintain("h1", EventType.FREEZE)
    cloud.tick()
    return cloud.operation_holds(cloud.maintain("h1", EventType.REBOOT))


def vm_arriving() -> list[Hold]:
    cloud = Cloud(scope("web", {"w": (0, "h1")}))
    cloud.start(cloud.order("w", EventType.REDEPLOY))
    return cloud.operation_holds(cloud.maintain("h2", EventType.FREEZE))


def vm_without_notice() -> list[Hold]:
    cloud = Cloud(scope("web", {"w": (0, "h1")}))
    event = platform(cloud, "h1")
    owner = cloud.scope()
    joined = replace(owner, vms=(*owner.vms, vm("late", 0, "h1")))
    cloud.run(lambda tx: tx.apply(Decision(scopes=(joined,))))
    return cloud.holds(event)


def two_domains() -> list[Hold]:
    """A VM of another update domain came to the host after the order was accepted."""
    cloud = Cloud(scope("web", {"w": (0, "h1")}))
    event = platform(cloud, "h1")
    owner = cloud.scope()
    joined = replace(owner, vms=(*owner.vms, vm("late", 1, "h1")))
    cloud.run(lambda tx: tx.apply(Decision(scopes=(joined,))))
    cloud.tick()
    cloud.approve(*cloud.scope().events)
    return cloud.holds(event)


def no_target() -> list[Hold]:
    cloud = Cloud(scope("web", WEB), hosts=[Host(name="h1"), Host(name="h2")])
    event = cloud.order("web_0", EventType.REDEPLOY)
    cloud.approve(event)
    return cloud.holds(event)


def no_host() -> list[Hold]:
    cloud = web()
    cloud.fail("h1")
    return cloud.holds(cloud.scope().events[0])


def unclaimed() -> list[Hold]:
    cloud = web()
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.start(event)
    return cloud.holds(event)


def window_closed() -> list[Hold]:
    cloud = web()
    window = (START_MS + HOUR_MS, START_MS + 2 * HOUR_MS)
    event = cloud.order("web_0", EventType.REBOOT, window=window)
    cloud.start(event)
    return cloud.holds(event)


def running() -> list[Hold]:
    cloud = web()
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.start(event)
    cloud.claim("h1")
    return cloud.holds(event)


# Reason: (how it comes about, names, since, until, way out). None: nobody can know.
EXPLAINED: dict[HoldReason, tuple[Callable[[], list[Hold]], str, int | None, int | None, str]] = {
    HoldReason.CONSENT: (consent, "scope web", 0, minutes(15), "event approve"),
    HoldReason.WINDOW_CLOSED: (
        window_closed,
        "not opened yet",
        0,
        HOUR_MS,
        "Wait until the window opens",
    ),
    HoldReason.CLOCK: (clock, "the order named", 0, HOUR_MS, "event approve"),
    HoldReason.NOT_YET_SERVED: (not_yet_served, "host h1", 0, None, "next heartbeat"),
    HoldReason.VM_BUSY: (vm_busy, "web_0", 0, minutes(30), "ends by itself"),
    HoldReason.DOMAIN_STARTED: (
        domain_started,
        "update domain 0",
        0,
        minutes(30),
        "ends by itself",
    ),
    HoldReason.DOMAIN_RECOVERING: (domain_recovering, "web_0", 0, minutes(10), "poll"),
    HoldReason.SCOPE_HELD: (scope_held, "web_0: no", 0, None, "forewarn scope release web"),
    HoldReason.HOST_SILENT: (host_silent, "host h2", 0, None, "heartbeat"),
    HoldReason.HYPERVISOR_UNREACHABLE: (
        hypervisor_unreachable,
        "hypervisor of host h2",
        None,
        None,
        "Is it running?",
    ),
    HoldReason.TWO_DAEMONS: (two_daemons, "two daemons speak as host h2", None, None, "host.pem"),
    HoldReason.HOST_REFUSES: (
        host_refuses,
        "host h2 takes no orders",
        None,
        None,
        "accept-control",
    ),
    HoldReason.HOST_NOT_JOINED: (
        host_not_joined,
        "does not listen to host h2: it was revoked",
        None,
        None,
        "forewarn host invite h2",
    ),
    HoldReason.HOST_FAILED: (host_failed, "host h1", 0, None, "forewarn host repair h1"),
    HoldReason.HOST_BUSY: (host_busy, "host h1", 0, minutes(15), "ends by itself"),
    HoldReason.VM_ARRIVING: (vm_arriving, "w is on its way to host h2", 0, minutes(60), "arrived"),
    HoldReason.VM_WITHOUT_NOTICE: (vm_without_notice, "late", None, None, "next tick"),
    HoldReason.TWO_DOMAINS: (two_domains, "update domains 0, 1", 0, None, "vm redeploy"),
    HoldReason.NO_TARGET: (no_target, "web_0", 0, None, "forewarn host open"),
    HoldReason.NO_HOST: (no_host, "web_0", 0, minutes(24 * 60), "--fenced"),
    HoldReason.UNCLAIMED: (unclaimed, "host h1", 0, minutes(30), "next look"),
    HoldReason.RUNNING: (running, "reboot-vm of web_0", 0, minutes(30), "report"),
}


def test_every_reason_to_hold_is_explained() -> None:
    assert set(EXPLAINED) == set(HoldReason)


@pytest.mark.parametrize("reason", EXPLAINED)
def test_a_hold_says_who_since_when_until_when_and_what_would_free_it(reason: HoldReason) -> None:
    produce, names, since, until, remedy = EXPLAINED[reason]
    [hold] = produce()
    assert hold.reason is reason
    assert names in hold.what
    assert hold.since_ms == (None if since is None else START_MS + since)
    assert hold.until_ms == (None if until is None else START_MS + until)
    assert remedy in hold.remedy


def test_nothing_starts_on_a_host_as_which_two_daemons_speak_until_one_is_silent() -> None:
    cloud = web()
    speak_two(cloud, "h1")
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.start(event)
    assert reasons(cloud.holds(event)) == {HoldReason.TWO_DAEMONS}
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.clock.pass_ms(TWO_DAEMONS_MS)
    cloud.observed.hears_daemon("h1", "true")
    cloud.tick()
    assert cloud.event(event).phase is Phase.STARTED


def test_what_has_started_where_two_daemons_speak_is_explained_by_that() -> None:
    cloud = web()
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.start(event)
    speak_two(cloud, "h1")
    assert reasons(cloud.holds(event)) == {HoldReason.TWO_DAEMONS}


def test_no_vm_is_moved_to_a_host_as_which_two_daemons_speak() -> None:
    cloud = Cloud(scope("web", {"web_0": (0, "h1")}))
    speak_two(cloud, "h2")
    speak_two(cloud, "h3")
    event = cloud.order("web_0", EventType.REDEPLOY)
    cloud.approve(event)
    [hold] = cloud.holds(event)
    assert hold.reason is HoldReason.NO_TARGET
    assert "h2: two daemons speak as it" in hold.what


def test_a_host_at_work_whose_hypervisor_does_not_answer_is_explained_in_its_own_words() -> None:
    cloud = web()
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.start(event)
    cloud.claim("h1")
    cloud.observed.hypervisor_lost("h1", "Libvirt cannot be reached. Is it running?")
    [hold] = cloud.holds(event)
    assert "the hypervisor of host h1 does not answer" in hold.what
    assert hold.remedy == "Libvirt cannot be reached. Is it running?"


def test_nothing_starts_on_a_host_whose_hypervisor_does_not_answer() -> None:
    cloud = web()
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.approve(event)
    cloud.observed.hypervisor_lost("h1", "Libvirt cannot be reached. Is it running?")
    cloud.tick()
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.observed.sees("h1")
    cloud.tick()
    assert cloud.event(event).phase is Phase.STARTED


def test_nothing_starts_on_a_host_that_refuses_control_or_was_revoked() -> None:
    cloud = web()
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.approve(event)
    refuses(cloud, "h1", REFUSAL)
    cloud.tick()
    assert cloud.event(event).phase is Phase.SCHEDULED
    refuses(cloud, "h1", "")
    revoked(cloud, "h1")
    cloud.tick()
    assert cloud.event(event).phase is Phase.SCHEDULED
    revoked(cloud, "")
    cloud.tick()
    assert cloud.event(event).phase is Phase.STARTED


def test_no_vm_is_moved_to_a_host_that_refuses_control_or_was_revoked() -> None:
    cloud = Cloud(scope("web", {"w": (0, "h1")}), hosts=[Host(name="h1"), Host(name="h2")])
    event = cloud.order("w", EventType.REDEPLOY)
    cloud.approve(event)
    refuses(cloud, "h2", REFUSAL)
    [hold] = cloud.holds(event)
    assert "h2: it takes no orders from this control" in hold.what
    refuses(cloud, "h2", "")
    revoked(cloud, "h2")
    [hold] = cloud.holds(event)
    assert "h2: it has not joined" in hold.what
    revoked(cloud, "")
    assert cloud.holds(event) == []


def test_the_way_out_without_a_host_changes_once_the_old_host_is_fenced() -> None:
    cloud = Cloud(scope("web", WEB), hosts=[Host(name="h1"), Host(name="h2")])
    cloud.fail("h1", fenced=True)
    cloud.tick()
    [hold] = cloud.holds(cloud.scope().events[0])
    assert "forewarn host open" in hold.remedy


def test_an_operation_names_every_scope_that_has_not_consented() -> None:
    cloud = Cloud(scope("one", {"a": (0, "h1")}), scope("two", {"b": (0, "h1")}))
    operation = cloud.maintain("h1", EventType.FREEZE)
    first, second = cloud.events_of(operation)
    cloud.show()
    holds = cloud.operation_holds(operation)
    assert [hold.reason for hold in holds] == [HoldReason.CONSENT] * 2
    assert {"scope one" in holds[0].what, "scope two" in holds[1].what} == {True}
    cloud.approve(first)
    [left] = cloud.holds(first)  # an approved event still waits for the other scope
    assert second.event_id in left.remedy


def test_a_redeploy_operation_waits_for_each_of_its_events() -> None:
    cloud = Cloud(scope("one", {"a": (0, "h1")}), scope("two", {"b": (0, "h1")}))
    operation = cloud.maintain("h1", EventType.REDEPLOY)
    first, _ = cloud.events_of(operation)
    cloud.show()
    cloud.start(first)
    assert reasons(cloud.operation_holds(operation)) == {HoldReason.UNCLAIMED, HoldReason.CONSENT}


def test_a_started_operation_is_explained_by_its_one_action() -> None:
    cloud = Cloud(scope("one", {"a": (0, "h1")}), scope("two", {"b": (0, "h1")}))
    operation = cloud.maintain("h1", EventType.FREEZE)
    events = cloud.events_of(operation)
    cloud.start(*events)
    [hold] = cloud.holds(events[0])
    assert (hold.reason, "freeze-host of host h1" in hold.what) == (HoldReason.UNCLAIMED, True)
    cloud.hearing.falls_silent("h1")
    assert reasons(cloud.holds(events[0])) == {HoldReason.HOST_SILENT}


def test_everything_is_free_by_the_latest_of_the_known_times() -> None:
    cloud = Cloud(scope("web", WEB))
    event = cloud.order("web_1", EventType.REBOOT)
    cloud.start(cloud.order("web_0", EventType.REBOOT))
    cloud.show()

    def until(tx: Transaction) -> int | None:
        owner = tx.need_scope("web")
        found = owner.event(event.event_id)
        assert found is not None
        return explain.explain_event(owner, found, tx, tx.now_ms).until_ms

    assert cloud.run(until) == START_MS + minutes(30)
    cloud.hearing.falls_silent("h2")
    assert cloud.run(until) is None  # a host that is not heard may never come back


def test_what_nothing_holds_has_no_explanation_and_starts_with_the_next_tick() -> None:
    cloud = Cloud(scope("web", WEB))
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.approve(event)
    assert cloud.holds(event) == []
    cloud.tick()
    assert cloud.event(event).started_ms is not None
