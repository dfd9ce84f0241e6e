"""Memory and its transactions: indexes stay true, sealing counts, taking back restores it all."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from forewarn.control.archive import Archive
from forewarn.control.command_handlers import decide
from forewarn.control.fleet_index import FleetIndex
from forewarn.control.transaction import Transaction
from forewarn.control.volatile import Volatile
from forewarn.core.errors import NotFound
from forewarn.core.invariants import InvariantBroken
from forewarn.core.model import Decision, EventType, Phase
from forewarn.ports import FirstRead, RememberedAnswer
from support import ordered
from support.core_fleet import WEB, Cloud, minutes, scope, vm


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("web", WEB), scope("api", {"x": (0, "h1")}))


def transaction(cloud: Cloud) -> Transaction:
    return Transaction(
        cloud.index,
        cloud.observed.for_writer(),
        Archive(cloud.index, cloud.store),
        now_ms=cloud.clock.wall,
        monotonic_ms=cloud.clock.monotonic,
        commit=cloud.store.position() + 1,
        volatile=Volatile(0),
        policy=cloud.policy,
        ids=cloud.ids,
    )


def indexes(index: FleetIndex) -> tuple[object, ...]:
    return (
        dict(index.scope_of_vm),
        set(index.busy_scopes),
        {host: [s.name for s in index.scopes_on(host)] for host in ("h1", "h2", "h3")},
        {host: index.vm_count(host) for host in ("h1", "h2", "h3")},
        {host: index.arriving(host) for host in ("h1", "h2", "h3")},
        {host: index.operations_on(host) for host in ("h1", "h2", "h3")},
        index.inventory,
    )


def test_the_indexes_follow_a_vm_that_moves_and_one_that_is_deleted(cloud: Cloud) -> None:
    cloud.carry_out(cloud.order("web_0", EventType.REDEPLOY))
    cloud.carry_out(cloud.order("x", EventType.TERMINATE))
    assert cloud.index.vm_count("h1") == 0
    assert cloud.index.vm_count("h3") == 1
    assert [s.name for s in cloud.index.scopes_on("h3")] == ["web"]
    assert "x" not in cloud.index.scope_of_vm
    assert cloud.index.busy_scopes == set()


def test_a_memory_built_from_the_store_is_the_memory_that_was(cloud: Cloud) -> None:
    cloud.start(cloud.order("web_0", EventType.REDEPLOY))
    cloud.maintain("h2", EventType.FREEZE)
    fresh = FleetIndex(cloud.store.load())
    assert (fresh.scopes, fresh.hosts, fresh.operations) == cloud.everything()
    assert indexes(fresh) == indexes(cloud.index)


def test_a_scope_with_an_event_about_a_host_is_found_there_without_vms(cloud: Cloud) -> None:
    cloud.start(cloud.order("web_0", EventType.REDEPLOY))  # to h3, where nothing of it is yet
    assert [s.name for s in cloud.index.scopes_on("h3")] == ["web"]
    assert [found.name for _, found in transaction(cloud).arriving("h3")] == ["web_0"]


def test_taking_back_restores_scopes_hosts_operations_indexes_and_inventory(
    cloud: Cloud,
) -> None:
    cloud.order("x", EventType.REBOOT)
    operation = cloud.maintain("h2", EventType.FREEZE)
    before, index = cloud.everything(), indexes(cloud.index)
    restored: list[str] = []
    tx = transaction(cloud)
    decide(tx, ordered.order_vm("web_0", EventType.REBOOT, by="o"))
    decide(tx, ordered.close_host("h3", by="o"))
    decide(tx, ordered.cancel_event(operation.members[0][1], by="o"))
    decide(tx, ordered.maintain_host("h1", EventType.REBOOT, by="o"))
    moved = replace(tx.need_scope("web"), vms=(vm("web_1", 1, "h3"),))
    joined = replace(tx.need_scope("api"), vms=(vm("x", 0, "h1"), vm("web_0", 0, "h1")))
    tx.apply(Decision(scopes=(moved, joined)))
    tx.remove_scope("api")
    tx.remove_host("h2")
    tx.applied_inventory("another text")
    tx.on_take_back(lambda: restored.append("second"))
    tx.on_take_back(lambda: restored.append("first"))
    tx.take_back()
    assert cloud.everything() == before
    assert indexes(cloud.index) == index
    assert restored == ["first", "second"]


def test_taking_back_works_after_sealing_too(cloud: Cloud) -> None:
    before, index = cloud.everything(), indexes(cloud.index)
    tx = transaction(cloud)
    decide(tx, ordered.order_vm("web_0", EventType.REBOOT, by="o"))
    assert tx.seal() is not None
    tx.take_back()
    assert cloud.everything() == before
    assert indexes(cloud.index) == index


def test_a_transaction_that_changed_nothing_seals_to_nothing(cloud: Cloud) -> None:
    tx = transaction(cloud)
    tx.apply(Decision(scopes=(cloud.scope(),)))
    assert tx.seal() is None


def test_everything_one_use_case_does_to_a_scope_is_sealed_once(cloud: Cloud) -> None:
    tx = transaction(cloud)
    before = cloud.scope()
    first = decide(tx, ordered.order_vm("web_0", EventType.REBOOT, by="o"))
    decide(tx, ordered.order_vm("web_1", EventType.REBOOT, by="o"))
    decide(tx, ordered.cancel_event(first.event_id, by="o"))
    with pytest.raises(InvariantBroken, match="I3"):
        tx.seal()  # an event that began and ended unseen is a bug, not a change
    tx.take_back()
    tx = transaction(cloud)
    decide(tx, ordered.order_vm("web_0", EventType.REBOOT, by="o"))
    decide(tx, ordered.order_vm("web_1", EventType.REBOOT, by="o"))
    change = tx.seal()
    assert change is not None
    [(was, after)] = change.scopes
    assert was == before
    assert (after.revision, after.incarnation) == (before.revision + 1, before.incarnation + 1)


def test_ended_events_go_to_the_store_and_leave_the_memory(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    tx = transaction(cloud)
    decide(tx, ordered.cancel_event(event.event_id, by="o"))
    change = tx.seal()
    assert change is not None
    assert change.scopes[0][1].events[0].phase is Phase.CANCELED
    assert cloud.scope().events == ()
    tx.take_back()


def test_hosts_and_operations_count_their_revisions(cloud: Cloud) -> None:
    revision = cloud.host("h3").revision
    cloud.run(ordered.close_host("h3", by="o"))
    operation = cloud.maintain("h3", EventType.FREEZE)
    cloud.tick()
    assert cloud.host("h3").revision == revision + 1
    assert cloud.operation(operation).revision == operation.revision + 1


def test_facts_receipts_answers_and_heartbeats_alone_are_a_change(cloud: Cloud) -> None:
    tx = transaction(cloud)
    read = FirstRead(scope="web", event_id="E", vm="web_0", read_ms=1)
    answer = RememberedAnswer(key="k", fingerprint="f", answer="a", at_ms=1)
    tx.receipts([read])
    tx.remember(answer)
    tx.beat()
    change = tx.seal()
    assert change is not None
    assert (change.first_reads, change.remembered, change.heartbeat_ms) == (
        (read,),
        answer,
        cloud.clock.wall,
    )


@pytest.mark.parametrize(
    ("ask", "remedy"),
    [
        (lambda tx: tx.need_host("no"), "forewarn host list"),
        (lambda tx: tx.need_scope("no"), "forewarn scope list"),
        (lambda tx: tx.need_scope_of_vm("no"), "forewarn vm list"),
    ],
)
def test_names_that_do_not_exist_are_refused_with_where_to_look(
    cloud: Cloud, ask: object, remedy: str
) -> None:
    with pytest.raises(NotFound, match=remedy):
        ask(transaction(cloud))  # type: ignore[operator]


def test_operations_of_a_host_come_oldest_first(cloud: Cloud) -> None:
    first = cloud.maintain("h1", EventType.REBOOT)
    cloud.clock.pass_ms(minutes(1))
    second = cloud.maintain("h1", EventType.FREEZE)
    cloud.maintain("h2", EventType.FREEZE)
    found = [o.operation_id for o in transaction(cloud).operations_on("h1")]
    assert found == [first.operation_id, second.operation_id]


def test_a_vm_arrives_only_until_it_is_there(cloud: Cloud) -> None:
    cloud.carry_out(cloud.order("web_0", EventType.REDEPLOY))
    assert [list(cloud.index.arriving(host)) for host in ("h1", "h2", "h3")] == [[], [], []]


def places(tx: Transaction) -> dict[str, int]:
    return {host.name: load for host, load in tx.places()}


def test_places_follow_every_change_of_their_own_transaction(cloud: Cloud) -> None:
    tx = transaction(cloud)
    before = places(tx)
    assert before == {"h1": 2, "h2": 1, "h3": 0}
    decide(tx, ordered.close_host("h3", by="o"))
    assert places(tx) == {"h1": 2, "h2": 1}
    tx.remove_scope("api")
    assert places(tx) == {"h2": 1, "h1": 1}
    tx.remove_host("h2")
    assert places(tx) == {"h1": 1}
    decide(tx, ordered.maintain_host("h1", EventType.FREEZE, by="o"))
    assert places(tx) == {}
    tx.take_back()
    assert places(transaction(cloud)) == before


def test_a_vm_on_its_way_takes_a_place_already(cloud: Cloud) -> None:
    cloud.start(cloud.order("web_0", EventType.REDEPLOY))
    assert places(transaction(cloud)) == {"h1": 2, "h2": 1, "h3": 1}
