"""Applying inventories: what a file changes, what the running fleet forbids, and what stays."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn import settings
from forewarn.control import inventory, maintenance
from forewarn.control.inventory import Changes
from forewarn.core.errors import BadInventory, InventoryConflict
from forewarn.core.model import (
    EventType,
    FactKind,
    Phase,
    Policy,
    Priority,
    ScopeKind,
)
from forewarn.ports import StoreFailed
from inventory_fleet import InventoryFleet

HOSTS = '[[host]]\nname = "h1"\n[[host]]\nname = "h2"\n[[host]]\nname = "h3"\n'
WEB = '[[scope]]\nname = "web"\nkind = "placement-group"\n'


def vm(name: str, **keys: object) -> str:
    """A VM of scope web on h1 that is known by its address; None leaves a key out."""
    number = sum(name.encode()) % 200 + 1
    given: dict[str, object] = {
        "name": name,
        "scope": "web",
        "update_domain": 0,
        "host": "h1",
        "address": f"192.0.2.{number}",
        **keys,
    }
    lines = (f"{key} = {_toml(value)}" for key, value in given.items() if value is not None)
    return "[[vm]]\n" + "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def alone(name: str, **keys: object) -> str:
    return vm(name, **{"scope": None, "update_domain": None, **keys})


BOTH = HOSTS + WEB + vm("web_0") + vm("web_1", update_domain=1, host="h2")


@pytest.fixture(params=["file", "memory"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InventoryFleet]:
    made = InventoryFleet(tmp_path / "data" if request.param == "file" else None)
    yield made
    made.close()


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[InventoryFleet]:
    made = InventoryFleet(tmp_path / "data")
    yield made
    made.close()


@pytest.fixture
def unpolled(tmp_path: Path) -> Iterator[InventoryFleet]:
    """A fleet whose scopes nobody polls: every event is silent."""
    made = InventoryFleet(tmp_path / "data", policy=Policy(domain_recovery_ms=0))
    yield made
    made.close()


def refusal(fleet: InventoryFleet, text: str) -> str:
    """Apply a file that must be refused, and check that nothing at all has changed."""
    before, written = fleet.everything(), len(fleet.commits)
    with pytest.raises(InventoryConflict) as raised:
        fleet.apply(text)
    assert fleet.everything() == before
    assert len(fleet.commits) == written
    assert raised.value.code == "inventory-conflict"
    return str(raised.value)


# What a file brings.


def test_a_file_becomes_the_fleet_and_says_what_it_added(fleet: InventoryFleet) -> None:
    applied = fleet.apply(settings.demo_inventory())

    assert applied.differs
    assert applied.hosts == Changes(added=("h1", "h2", "h3"))
    assert applied.scopes == Changes(added=("batch0", "db", "vm0", "web"))
    assert applied.vms.added == (
        "batch0",
        "db-primary",
        "db-replica",
        "vm0",
        "web_0",
        "web_1",
        "web_2",
    )
    assert fleet.scope("db").auto_approve == {EventType.REBOOT}
    assert fleet.scope("db").terminate_notice_ms == 600_000
    assert fleet.scope("vm0").kind is ScopeKind.STANDALONE
    assert fleet.vm("batch0").priority is Priority.SPOT
    assert fleet.host("h2").capacity == 6


def test_new_vms_get_an_id_of_their_own_in_lower_case_and_keep_it(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    ids = {name: fleet.vm(name).vm_id for name in ("web_0", "web_1")}

    fleet.apply(BOTH.replace("update_domain = 1", "update_domain = 2") + vm("web_2"))

    assert len({*ids.values(), fleet.vm("web_2").vm_id}) == 3
    assert {name: fleet.vm(name).vm_id for name in ids} == ids
    assert all(vm_id == vm_id.lower() for vm_id in ids.values())


def test_vms_of_a_scope_stand_in_the_order_of_the_file(fleet: InventoryFleet) -> None:
    names = [f"web_{n}" for n in range(12)]
    fleet.apply(
        HOSTS + WEB + "".join(vm(n, address=f"192.0.2.{i}") for i, n in enumerate(names, 1))
    )

    assert [v.name for v in fleet.scope("web").vms] == names


def test_the_journal_says_who_applied_what(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)

    (line,) = fleet.journal()
    assert line.fact.kind is FactKind.INVENTORY_APPLIED
    assert line.fact.by == "operator"
    assert line.fact.detail == {
        "hosts_added": ["h1", "h2", "h3"],
        "scopes_added": ["web"],
        "vms_added": ["web_0", "web_1"],
    }


def test_the_journal_names_a_bounded_number_of_vms(fleet: InventoryFleet) -> None:
    many = "".join(vm(f"v{n}", address=f"192.0.2.{n}") for n in range(1, 81))
    fleet.apply(HOSTS + WEB + many)

    names = fleet.journal()[0].fact.detail["vms_added"]
    assert isinstance(names, list)
    assert names[-1] == "and 30 more"
    assert len(names) == inventory.NAMES_PER_FACT_MAX + 1


def test_a_file_that_is_wrong_is_refused_before_anything_is_submitted() -> None:
    with pytest.raises(BadInventory):
        inventory.apply("nonsense", by="operator")


# The same content.


@pytest.mark.parametrize("seed", range(10))
def test_the_same_content_writes_nothing_whatever_its_order_and_comments(
    fleet: InventoryFleet, seed: int
) -> None:
    chance = random.Random(seed)
    parts = [
        *(f'[[host]]\nname = "h{n}"\ncapacity = {chance.randrange(4, 9)}\n' for n in range(3)),
        WEB,
        *(
            vm(f"web_{n}", update_domain=n, host=f"h{n % 3}", zone=str(chance.randrange(3)))
            for n in range(chance.randrange(1, 4))
        ),
        *(
            alone(f"one-{n}", host=f"h{chance.randrange(3)}", address=f"198.51.100.{n}")
            for n in range(1, chance.randrange(2, 4))
        ),
    ]
    assert fleet.apply("\n".join(parts)).differs
    before, written = fleet.everything(), len(fleet.commits)

    for _ in range(3):
        chance.shuffle(parts)
        again = "\n# remark\n".join(parts)
        assert fleet.apply(again) == inventory.Applied()

    assert fleet.everything() == before
    assert len(fleet.commits) == written


def test_the_last_applied_content_is_known_after_a_restart(durable: InventoryFleet) -> None:
    durable.apply(BOTH)
    before = durable.everything()
    durable.restart()

    assert durable.everything() == before
    assert not durable.apply(BOTH + "# remark\n").differs
    assert durable.apply(BOTH + vm("web_2")).differs


def test_two_files_in_one_commit_are_applied_one_after_the_other(fleet: InventoryFleet) -> None:
    first, second, third = fleet.run_together(
        inventory.apply(BOTH, by="a"),
        inventory.apply(BOTH + "# same\n", by="b"),
        inventory.apply(HOSTS + WEB + vm("web_0"), by="c"),
    )

    assert (first.differs, second.differs) == (True, False)
    assert third.vms == Changes(removed=("web_1",))


def test_a_file_that_could_not_be_kept_was_not_applied(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    before = fleet.everything()

    def broken(_: object) -> None:
        raise StoreFailed("the disk is full", fatal=False)

    with pytest.raises(StoreFailed):
        fleet.run_together(inventory.apply(HOSTS + WEB, by="operator"), broken)

    assert fleet.everything() == before
    assert fleet.apply(HOSTS + WEB).vms.removed == ("web_0", "web_1")


# Changing what is there.


def test_details_of_a_vm_follow_the_file(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    applied = fleet.apply(
        HOSTS
        + WEB
        + vm("web_0", update_domain=4, address="198.51.100.1", priority="spot", zone="2")
        + vm("web_1", update_domain=1, host="h2")
    )

    assert applied.vms == Changes(changed=("web_0",))
    changed = fleet.vm("web_0")
    assert (changed.update_domain, changed.address, changed.zone) == (4, "198.51.100.1", "2")
    assert changed.priority is Priority.SPOT
    assert fleet.scope("web").incarnation == 1


def test_settings_of_a_scope_and_a_host_follow_the_file(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    applied = fleet.apply(
        BOTH.replace(
            'kind = "placement-group"',
            'kind = "availability-set"\nterminate_notice_minutes = 9\nauto_approve = ["redeploy"]',
        ).replace('name = "h1"', 'name = "h1"\ncapacity = 3')
    )

    assert (applied.scopes, applied.hosts) == (Changes(changed=("web",)), Changes(changed=("h1",)))
    assert fleet.scope("web").kind is ScopeKind.AVAILABILITY_SET
    assert fleet.scope("web").terminate_notice_ms == 540_000
    assert fleet.scope("web").auto_approve == {EventType.REDEPLOY}
    assert fleet.host("h1").capacity == 3


def test_what_the_operator_said_of_a_host_survives_a_file(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    fleet.run(maintenance.close_host("h1", by="operator"))

    fleet.apply(BOTH.replace('name = "h1"', 'name = "h1"\ncapacity = 3'))

    assert fleet.host("h1").closed


def test_a_moved_vm_stays_where_it_is_whatever_the_file_says(durable: InventoryFleet) -> None:
    durable.apply(BOTH)
    durable.carry_out("web_0", EventType.REDEPLOY)
    assert durable.vm("web_0").host == "h3"

    durable.apply(BOTH + vm("web_2", update_domain=2))
    durable.apply(BOTH.replace('host = "h1"', 'host = "h2"'))
    durable.restart()

    assert durable.vm("web_0").host == "h3"


def test_vms_can_change_places_between_scopes(durable: InventoryFleet) -> None:
    """Also each with the other: the index of scopes by VM must stay true."""
    db = '[[scope]]\nname = "db"\nkind = "availability-set"\n'
    durable.apply(HOSTS + WEB + db + vm("a") + vm("b", scope="db"))

    applied = durable.apply(HOSTS + WEB + db + vm("a", scope="db") + vm("b"))

    assert applied.vms == Changes(changed=("a", "b"))
    assert durable.memory.scope_of_vm == {"a": "db", "b": "web"}
    before = durable.everything()
    durable.restart()
    assert durable.everything() == before


def test_a_refused_swap_leaves_the_index_as_it_was(fleet: InventoryFleet) -> None:
    db = '[[scope]]\nname = "db"\nkind = "availability-set"\n'
    fleet.apply(HOSTS + WEB + db + vm("a") + vm("b", scope="db"))
    before = fleet.everything()

    def broken(_: object) -> None:
        raise StoreFailed("the disk is full", fatal=False)

    swapped = HOSTS + WEB + db + vm("a", scope="db") + vm("b")
    with pytest.raises(StoreFailed):
        fleet.run_together(inventory.apply(swapped, by="operator"), broken)

    assert fleet.everything() == before


def test_a_vm_moves_from_a_scope_of_its_own_into_a_group_and_back(durable: InventoryFleet) -> None:
    durable.apply(HOSTS + alone("a"))
    vm_id = durable.vm("a").vm_id

    into = durable.apply(HOSTS + WEB + vm("a"))
    assert into.scopes == Changes(added=("web",), removed=("a",))
    assert durable.vm("a").vm_id == vm_id

    durable.apply(HOSTS + WEB + vm("a", zone="1"))
    assert "a" not in durable.memory.scopes  # nothing needs the empty scope any more

    durable.apply(HOSTS + alone("a"))
    assert durable.vm("a").vm_id == vm_id
    assert durable.memory.scope_of_vm == {"a": "a"}


# Removing.


def test_a_vm_that_is_no_longer_listed_is_removed_with_a_scope_of_its_own(
    durable: InventoryFleet,
) -> None:
    durable.apply(BOTH + alone("lonely"))

    applied = durable.apply(HOSTS + WEB + vm("web_0"))

    assert applied.vms == Changes(removed=("lonely", "web_1"))
    assert applied.scopes == Changes(removed=("lonely",))
    durable.restart()
    assert durable.memory.scope_of_vm == {"web_0": "web"}
    assert list(durable.memory.scopes) == ["web"]


def test_a_host_that_is_no_longer_listed_is_removed_when_it_is_empty(
    durable: InventoryFleet,
) -> None:
    durable.apply(BOTH)

    assert durable.apply(BOTH.replace('[[host]]\nname = "h3"\n', "")).hosts.removed == ("h3",)

    durable.restart()
    assert sorted(durable.memory.hosts) == ["h1", "h2"]


def test_a_host_can_go_together_with_its_last_vm(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)

    applied = fleet.apply('[[host]]\nname = "h1"\n' + WEB + vm("web_0"))

    assert applied.hosts.removed == ("h2", "h3")


def test_a_host_that_still_has_vms_cannot_be_removed(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    fleet.carry_out("web_0", EventType.REDEPLOY)

    message = refusal(fleet, BOTH.replace('[[host]]\nname = "h3"\n', ""))

    assert "host h3 is not in the file, but VMs are there: web_0." in message
    assert "forewarn host maintain h3 --type Redeploy" in message


def test_a_host_with_an_open_operation_cannot_be_removed(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    operation = fleet.run(
        maintenance.maintain_host("h3", EventType.FREEZE, by="op", not_before_ms=2**42)
    )

    message = refusal(fleet, BOTH.replace('[[host]]\nname = "h3"\n', ""))

    assert operation.operation_id in message


def test_a_host_that_a_vm_is_moving_to_cannot_be_removed(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    fleet.approve(fleet.order("web_0", EventType.REDEPLOY))
    fleet.tick()

    message = refusal(fleet, BOTH.replace('[[host]]\nname = "h3"\n', ""))

    assert "host h3 is not in the file" in message
    assert "web_0" in message


# Visible events bind.


CHANGES = {
    "scope": ('scope = "web"\nupdate_domain = 0', ""),
    "update_domain": ("update_domain = 0", "update_domain = 7"),
    "address": (vm("web_0").partition("address = ")[2].strip(), '"198.51.100.9"'),
    "listen": (vm("web_0").strip(), vm("web_0", listen="127.0.0.1:18999").strip()),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("phase", [Phase.SCHEDULED, Phase.STARTED])
def test_what_a_visible_event_depends_on_refuses_the_file(
    fleet: InventoryFleet, what: str, phase: Phase
) -> None:
    fleet.apply(BOTH)
    event = fleet.order("web_0", EventType.REBOOT)
    if phase is Phase.STARTED:
        fleet.approve(event)
        fleet.tick()

    # The good part of the file must not be applied either.
    message = refusal(fleet, BOTH.replace(*CHANGES[what]) + alone("new", address="203.0.113.1"))

    assert f"the {what} of VM web_0 cannot change" in message
    assert f"the {phase.value} Reboot event {event.event_id} names it" in message
    line = BOTH[: BOTH.index('"web_0"')].count("\n")
    assert f"line {line}: " in message
    assert ("forewarn event cancel" in message) == (phase is Phase.SCHEDULED)


def test_the_same_change_is_fine_when_the_event_has_ended(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    fleet.carry_out("web_0", EventType.REBOOT)

    applied = fleet.apply(BOTH.replace("update_domain = 0", "update_domain = 7"))

    assert applied.vms.changed == ("web_0",)


def test_other_vms_of_the_scope_may_change_meanwhile(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    event = fleet.order("web_0", EventType.REBOOT)
    incarnation = fleet.scope("web").incarnation

    fleet.apply(BOTH.replace("update_domain = 1", "update_domain = 5") + vm("web_2"))

    assert fleet.vm("web_1").update_domain == 5
    assert fleet.scope("web").incarnation == incarnation
    assert fleet.scope("web").event(event.event_id) == event


def test_tags_and_the_like_of_a_vm_in_a_visible_event_may_change(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    fleet.order("web_0", EventType.REBOOT)

    fleet.apply(HOSTS + WEB + vm("web_0", zone="3") + vm("web_1", update_domain=1, host="h2"))

    assert fleet.vm("web_0").zone == "3"


def test_a_vm_in_a_visible_event_cannot_be_removed(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    event = fleet.order("web_1", EventType.REBOOT)

    message = refusal(fleet, HOSTS + WEB + vm("web_0"))

    assert (
        f"VM web_1 is not in the file, but the scheduled Reboot event {event.event_id}" in message
    )
    assert "forewarn vm delete web_1" in message


def test_the_kind_of_a_scope_with_a_visible_event_cannot_change(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    event = fleet.order("web_1", EventType.REBOOT)

    message = refusal(fleet, BOTH.replace("placement-group", "cloud-service"))

    assert "line 7: scope web cannot become a cloud-service" in message
    assert event.event_id in message


def test_notice_and_approval_of_a_scope_change_for_later_events_only(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    event = fleet.order("web_0", EventType.TERMINATE)

    fleet.apply(BOTH.replace('up"', 'up"\nterminate_notice_minutes = 15'))

    kept = fleet.scope("web").event(event.event_id)
    assert kept == event
    assert fleet.order("web_1", EventType.TERMINATE).minimum_notice_ms == 15 * 60_000


def test_every_clash_is_named_at_once(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    first, second = (fleet.order(name, EventType.REBOOT) for name in ("web_0", "web_1"))

    message = refusal(fleet, HOSTS + WEB + vm("web_0", update_domain=3))

    assert first.event_id in message
    assert second.event_id in message


# Silent events.


def test_a_silent_event_binds_scope_and_domain_but_not_the_address(
    unpolled: InventoryFleet,
) -> None:
    unpolled.apply(BOTH)
    unpolled.run(maintenance.degrade_host("h1", by="op"))
    (event,) = unpolled.scope("web").events
    assert event.silent

    assert event.event_id in refusal(unpolled, BOTH.replace(*CHANGES["update_domain"]))
    assert event.event_id in refusal(unpolled, BOTH.replace(*CHANGES["scope"]))
    assert unpolled.apply(BOTH.replace(*CHANGES["address"])).vms.changed == ("web_0",)


def test_a_removed_vm_leaves_its_silent_events(unpolled: InventoryFleet) -> None:
    unpolled.apply(HOSTS + WEB + vm("web_0") + vm("web_1") + alone("lonely"))
    unpolled.run(maintenance.degrade_host("h1", by="op"))
    (event,) = unpolled.scope("web").events
    (lonely,) = unpolled.scope("lonely").events

    unpolled.apply(HOSTS + WEB + vm("web_0"))

    assert unpolled.scope("web").events[0].resources == ("web_0",)
    avoided = [line.fact for line in unpolled.journal() if line.fact.kind is FactKind.AVOIDED]
    assert sorted((fact.vm, fact.event_id) for fact in avoided) == [
        ("lonely", lonely.event_id),
        ("web_1", event.event_id),
    ]
    ended = unpolled.store.event(lonely.event_id)
    assert ended is not None
    assert ended.phase is Phase.CANCELED
    unpolled.restart()
    assert unpolled.memory.scope_of_vm == {"web_0": "web"}


def test_a_vm_whose_silent_event_has_started_cannot_be_removed(unpolled: InventoryFleet) -> None:
    unpolled.apply(BOTH)
    event = unpolled.order("web_1", EventType.REBOOT)
    unpolled.tick()

    message = refusal(unpolled, HOSTS + WEB + vm("web_0"))

    assert f"the started Reboot event {event.event_id}" in message


# Deleted by an order.


def test_a_deleted_vm_stays_deleted_until_a_file_without_it_was_applied(
    durable: InventoryFleet,
) -> None:
    durable.apply(BOTH)
    old_id = durable.vm("web_1").vm_id
    durable.carry_out("web_1", EventType.TERMINATE)
    assert durable.scope("web").deleted == ("web_1",)

    assert not durable.apply(BOTH).differs
    durable.restart()
    still = durable.apply(BOTH + vm("web_2"))
    assert still.still_deleted == ("web_1",)
    assert still.vms == Changes(added=("web_2",))
    assert "web_1" not in durable.memory.scope_of_vm

    durable.apply(HOSTS + WEB + vm("web_0"))
    assert durable.scope("web").deleted == ()
    durable.restart()

    back = durable.apply(BOTH)
    assert back.vms == Changes(added=("web_1",))
    assert durable.vm("web_1").vm_id != old_id


def test_a_deleted_vm_stays_deleted_when_the_file_lists_it_in_another_scope(
    durable: InventoryFleet,
) -> None:
    durable.apply(HOSTS + alone("a") + alone("b"))
    durable.carry_out("a", EventType.TERMINATE)

    durable.apply(HOSTS + WEB + vm("a") + alone("b"))
    durable.restart()
    assert durable.scope("web").deleted == ("a",)

    durable.apply(HOSTS + WEB + vm("a") + alone("b", zone="1"))
    assert durable.memory.scope_of_vm == {"b": "b"}


def test_an_evicted_spot_vm_stays_deleted_too(fleet: InventoryFleet) -> None:
    fleet.apply(HOSTS + alone("a", priority="spot") + alone("b"))
    fleet.carry_out("a", EventType.PREEMPT)

    fleet.apply(HOSTS + alone("a", priority="spot"))

    assert fleet.memory.scope_of_vm == {}


# Placing new VMs.


def test_a_new_vm_is_not_placed_on_a_closed_degraded_or_failed_host(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    fleet.run(maintenance.close_host("h1", by="op"))
    fleet.run(maintenance.degrade_host("h2", by="op"))
    fleet.run(maintenance.fail_host("h3", by="op", fenced=False))

    text = BOTH + vm("a") + vm("b", host="h2") + vm("c", host="h3")
    message = refusal(fleet, text)

    assert "VM a cannot be placed on host h1, which is closed." in message
    assert "forewarn host open h1" in message
    assert "VM b cannot be placed on host h2, which is degraded." in message
    assert "VM c cannot be placed on host h3, which has failed." in message
    assert "forewarn host repair h3" in message
    line = text[: text.index('name = "a"')].count("\n")
    assert f"line {line}: VM a" in message


def test_a_new_vm_is_not_placed_on_a_host_with_an_open_operation(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    operation = fleet.run(maintenance.maintain_host("h1", EventType.REBOOT, by="op"))

    message = refusal(fleet, BOTH + vm("a"))

    assert f"has an open Reboot operation, {operation.operation_id}" in message


def test_a_new_vm_needs_no_heartbeat_of_its_host(fleet: InventoryFleet) -> None:
    fleet.heard_from.silent.update({"h1", "h2", "h3"})

    assert fleet.apply(BOTH).vms.added == ("web_0", "web_1")


def test_a_file_may_not_put_more_new_vms_on_a_host_than_it_takes(fleet: InventoryFleet) -> None:
    small = BOTH.replace('name = "h1"', 'name = "h1"\ncapacity = 2')
    fleet.apply(small)

    message = refusal(fleet, small + vm("a") + vm("b"))

    assert "line 1: host h1 takes 2 VMs; it has 1 and the file adds 2." in message
    assert fleet.apply(small + vm("a")).vms.added == ("a",)


def test_the_first_file_may_not_overfill_a_host_either(fleet: InventoryFleet) -> None:
    text = BOTH.replace('name = "h1"', 'name = "h1"\ncapacity = 1') + vm("a")

    assert "it has 0 and the file adds 2" in refusal(fleet, text)


def test_a_vm_on_its_way_to_a_host_has_its_place_there(fleet: InventoryFleet) -> None:
    small = BOTH.replace('name = "h3"', 'name = "h3"\ncapacity = 1')
    fleet.apply(small)
    fleet.approve(fleet.order("web_0", EventType.REDEPLOY))
    fleet.tick()

    assert "it has 1 and the file adds 1" in refusal(fleet, small + vm("a", host="h3"))


def test_a_place_that_the_same_file_frees_is_free(fleet: InventoryFleet) -> None:
    small = HOSTS.replace('name = "h1"', 'name = "h1"\ncapacity = 1') + WEB
    fleet.apply(small + vm("a"))

    assert fleet.apply(small + vm("b")).vms == Changes(added=("b",), removed=("a",))


def test_a_capacity_below_what_is_there_moves_nobody(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH + vm("a"))

    fleet.apply((BOTH + vm("a")).replace('name = "h1"', 'name = "h1"\ncapacity = 1'))

    assert fleet.memory.vm_count("h1") == 2


# The incarnation never goes back (I4).


def test_a_scope_that_comes_back_goes_on_where_its_incarnation_was(
    durable: InventoryFleet,
) -> None:
    durable.apply(HOSTS + alone("a") + alone("b"))
    durable.carry_out("a", EventType.REBOOT)
    seen = durable.scope("a").incarnation
    assert seen > 1

    durable.apply(HOSTS + alone("b"))
    assert durable.scope("a").vms == ()
    assert not durable.scope("a").enabled
    durable.restart()
    durable.apply(HOSTS + alone("b", zone="1"))
    back = durable.apply(HOSTS + alone("a") + alone("b"))

    assert back.scopes == Changes(added=("a",))
    assert durable.scope("a").incarnation == seen
    durable.order("a", EventType.REBOOT)
    assert durable.scope("a").incarnation == seen + 1


def test_a_vm_that_changes_scope_moves_neither_incarnation(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH + alone("a"))
    fleet.carry_out("web_0", EventType.REBOOT)
    fleet.carry_out("a", EventType.REBOOT)
    before = {name: fleet.scope(name).incarnation for name in ("web", "a")}

    fleet.apply(BOTH + vm("a", update_domain=2))

    assert {name: fleet.scope(name).incarnation for name in before} == before
