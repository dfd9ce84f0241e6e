"""Numbers of the fleet that can be alerted on: each value of a label is there from the start."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.control.fleet_metrics import NOT_HELD, FleetMetrics
from forewarn.control.metrics import ControlMetrics
from forewarn.core.model import EndedAs, EventType, Health, Outcome
from forewarn.core.starting import HoldReason
from forewarn.metrics import Family
from support import ordered
from support.operator_world import FLEET, OperatorWorld, running
from support.ordered import WHY

Numbers = Callable[[], dict[tuple[str, str], float]]


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running() as made:
        yield made


def watched(world: OperatorWorld) -> Numbers:
    """Has the world count its fleet too; gives what then reads the numbers."""

    async def begin() -> None:
        counted = FleetMetrics(world.control.fleet)
        world.control.fleet.on_publish(counted.committed)
        world.measures.add(counted)

    world.run(begin())
    return lambda: parsed(world.call("GET", "/metrics").body)


def begun(world: OperatorWorld) -> list[Family]:
    """What one shows that begins now."""

    async def collected() -> list[Family]:
        return list(FleetMetrics(world.control.fleet).collect())

    return world.run(collected())


def parsed(exposition: bytes) -> dict[tuple[str, str], float]:
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(exposition.decode())
        for sample in family.samples
    }


def test_every_value_of_a_label_is_there_at_0_from_the_start(world: OperatorWorld) -> None:
    found = watched(world)()
    for reason in set(HoldReason) - NOT_HELD:
        assert found["forewarn_scopes_held", reason.value] == 0
    for event_type in EventType:
        assert found["forewarn_events_overdue", event_type.value] == 0
        assert found["forewarn_started_unread_total", event_type.value] == 0
        assert found["forewarn_notice_short_total", event_type.value] == 0
        assert found["forewarn_notice_seconds_count", event_type.value] == 0
        for phase in ("completed", "failed", "canceled"):
            assert found["forewarn_events_ended_total", f"{event_type.value},{phase}"] == 0
    for end in EndedAs:
        assert found["forewarn_operations_ended_total", end.value] == 0
    for by in ("guest", "operator", "policy"):
        assert found["forewarn_approvals_total", by] == 0
    for outcome in ("accepted", "repeated", "refused", "failed"):
        assert found["forewarn_orders_total", f"vm-restart,{outcome}"] == 0
    assert found["forewarn_facts_total", "pruned"] == 0
    assert {found["forewarn_hosts", health.value] for health in Health} == {0, 3}


def test_no_label_is_the_name_of_a_host_a_scope_or_a_vm(world: OperatorWorld) -> None:
    watched(world)
    world.polls("web", "web-0")
    world.order("/v1/hosts/h1/maintain", {"event_type": "Freeze"})
    world.order("/v1/hosts/h2/fail", {"force": True, "reason": WHY})
    text = world.call("GET", "/metrics").body.decode()
    values = {
        value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        for value in sample.labels.values()
    }
    assert not values & {"web", "lonely", "spotty", "web-0", "web-1", "h1", "h2", "h3"}


def test_a_scope_is_held_from_the_failure_to_its_release(world: OperatorWorld) -> None:
    numbers = watched(world)
    world.polls("web", "web-0")
    event_id = world.order("/v1/vms/web-0/restart")["event_id"]
    world.hosts_beat()
    world.approves("web-0", event_id)
    world.tick()
    world.hosts_work(Outcome.FAILED)
    assert numbers()["forewarn_scopes_held", "scope-held"] == 1
    later = {(f.name, *s.labels.values()): s.value for f in begun(world) for s in f.samples}
    assert later["forewarn_scopes_held", "scope-held"] == 1, "one that begins now knows it too"
    world.order("/v1/scopes/web/release")
    assert numbers()["forewarn_scopes_held", "scope-held"] == 0


def test_an_event_that_could_start_and_does_not_is_overdue_and_says_why(
    world: OperatorWorld,
) -> None:
    numbers = watched(world)
    world.polls("web", "web-0")
    event_id = world.order("/v1/vms/web-0/restart")["event_id"]
    world.hosts_beat()
    world.approves("web-0", event_id)
    world.clock.pass_ms(14 * 60_000)  # without a heartbeat
    world.tick()
    found = numbers()
    assert found["forewarn_scopes_held", "host-silent"] == 1
    assert found["forewarn_events_overdue", "Reboot"] == 0
    assert found["forewarn_hosts_silent", ""] == 3
    world.clock.pass_ms(2 * 60_000)
    assert numbers()["forewarn_events_overdue", "Reboot"] == 1
    world.hosts_beat()
    world.tick()
    found = numbers()
    assert found["forewarn_events_overdue", "Reboot"] == 0
    assert found["forewarn_scopes_held", "host-silent"] == 0
    assert found["forewarn_hosts_silent", ""] == 0


def test_vms_of_a_failed_host_have_no_host_until_it_is_fenced(world: OperatorWorld) -> None:
    numbers = watched(world)
    world.order("/v1/hosts/h1/fail", {"force": True, "reason": WHY})
    found = numbers()
    assert found["forewarn_hosts", "failed"] == 1
    assert found["forewarn_vms_without_host", ""] == 2
    world.clock.pass_ms(60_000)
    for host in ("h2", "h3"):
        world.run(world.control.turns.take(ordered.turn(host)))
    world.order("/v1/hosts/h1/fail", {"fenced": True, "force": True, "reason": WHY})
    world.tick()
    assert numbers()["forewarn_vms_without_host", ""] == 0


def test_free_capacity_is_that_of_hosts_that_take_vms() -> None:
    sized = FLEET.replace('name = "h1"\n', 'name = "h1"\ncapacity = 4\n', 1)
    sized = sized.replace('name = "h2"\n', 'name = "h2"\ncapacity = 1\n', 1)
    with running(fleet=sized) as world:
        numbers = watched(world)
        found = numbers()
        assert found["forewarn_free_places", ""] == 2  # h1 has two of four, h2 one of one
        assert found["forewarn_hosts_with_room", "counted"] == 1
        assert found["forewarn_hosts_with_room", "unlimited"] == 1
        world.order("/v1/hosts/h1/close")
        world.order("/v1/hosts/h3/close")
        found = numbers()
        assert found["forewarn_free_places", ""] == 0
        assert found["forewarn_hosts_with_room", "unlimited"] == 0


def test_agents_that_have_stopped_polling_are_counted(world: OperatorWorld) -> None:
    """Agents, and not scopes: web has two, of which one goes on."""
    numbers = watched(world)

    def heard(**ages_ms: int) -> None:
        world.hosts_beat()
        polls = {name.replace("_", "-"): ms for name, ms in ages_ms.items()}
        for host in ("h1", "h2", "h3"):
            first = world.control.turns.hear_polls(host, polls)
            world.run(world.control.turns.take(ordered.turn(host, first_polls=first)))

    world.polls("web", "web-0")
    world.polls("lonely", "lonely")
    heard(web_0=0, web_1=0, lonely=0)
    world.clock.pass_ms(29 * 60_000)
    heard(web_0=0)
    assert numbers()["forewarn_agents_silent", ""] == 0
    world.clock.pass_ms(2 * 60_000)
    assert numbers()["forewarn_agents_silent", ""] == 0, "who would tell? No host is heard"
    heard()
    assert numbers()["forewarn_agents_silent", ""] == 2
    heard(web_1=0)
    assert numbers()["forewarn_agents_silent", ""] == 1


def test_an_approved_event_that_waits_for_its_window_is_not_overdue(world: OperatorWorld) -> None:
    numbers = watched(world)
    world.polls("web", "web-0")
    window = {"start": "+1h", "end": "+3h"}
    event_id = world.order("/v1/vms/web-0/restart", {"window": window})["event_id"]
    world.hosts_beat()
    world.approves("web-0", event_id)
    world.clock.pass_ms(59 * 60_000)
    assert numbers()["forewarn_events_overdue", "Reboot"] == 0
    world.clock.pass_ms(15 * 60_000)  # without a heartbeat
    assert numbers()["forewarn_events_overdue", "Reboot"] == 0
    world.clock.pass_ms(2 * 60_000)
    assert numbers()["forewarn_events_overdue", "Reboot"] == 1


def test_operations_are_counted_by_how_they_ended(world: OperatorWorld) -> None:
    numbers = watched(world)
    done = world.order("/v1/hosts/h3/maintain", {"event_type": "Freeze"})
    world.pass_minutes(20)
    world.hosts_work()
    assert world.get(f"/v1/operations/{done['operation_id']}")["phase"] == "ended"
    world.polls("web", "web-0")
    world.order("/v1/hosts/h1/maintain", {"event_type": "Freeze"})
    (event,) = [one for one in world.get("/v1/events")["items"] if one["scope"] == "web"]
    world.order(f"/v1/events/{event['event_id']}/cancel")
    found = numbers()
    assert found["forewarn_operations_ended_total", "completed"] == 1
    assert found["forewarn_operations_ended_total", "canceled"] == 1
    assert found["forewarn_operations_ended_total", "failed"] == 0


def test_an_event_that_no_vm_has_read_is_counted_when_it_starts(world: OperatorWorld) -> None:
    numbers = watched(world)
    world.polls("lonely", "lonely")
    for read in (True, False):
        event_id = world.order("/v1/vms/lonely/restart")["event_id"]
        world.hosts_beat()
        if read:
            world.reads("lonely", event_id, "lonely")
        world.pass_minutes(16)
        world.hosts_work()
        assert world.get(f"/v1/events/{event_id}")["phase"] == "completed"
        expected = 0 if read else 1
        assert numbers()["forewarn_started_unread_total", "Reboot"] == expected
    event_id = world.order("/v1/vms/lonely/restart")["event_id"]
    world.approves("lonely", event_id)
    world.tick()
    assert numbers()["forewarn_started_unread_total", "Reboot"] == 1, "it was approved"


def test_what_was_read_before_a_restart_was_read() -> None:
    store = SqliteStore.in_memory()
    with running(store=store) as world:
        world.polls("lonely", "lonely")
        event_id = world.order("/v1/vms/lonely/restart")["event_id"]
        world.hosts_beat()
        world.reads("lonely", event_id, "lonely")
        (read,) = store.open_first_reads()
        assert (read.event_id, read.vm) == (event_id, "lonely")
        after_restart = ControlMetrics()
        after_restart.loaded(store.load().scopes, store.open_first_reads())
        world.control.fleet.on_publish(after_restart.committed)
        world.pass_minutes(16)
        found = parsed(after_restart.exposition())
    assert found["forewarn_notice_seconds_count", "Reboot"] == 1
    assert found["forewarn_started_unread_total", "Reboot"] == 0


def test_the_last_backup_is_known_after_a_restart_too(world: OperatorWorld) -> None:
    numbers = watched(world)
    assert numbers()["forewarn_last_backup_timestamp_seconds", ""] == 0
    world.call("GET", "/v1/backup")
    now_s = world.clock.now_ms() // 1_000
    assert numbers()["forewarn_last_backup_timestamp_seconds", ""] == now_s
    kept_ms = world.run(world.control.read(lambda store: store.last_backup_ms()))  # type: ignore[attr-defined]
    assert kept_ms // 1_000 == now_s
