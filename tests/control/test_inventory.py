"""Applying inventories: what a file brings, changes and removes, and what stays as it was."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn import settings
from forewarn.control.inventory import apply_at_once
from forewarn.control.inventory.apply_at_once import NameChanges
from forewarn.core.errors import BadInventory
from forewarn.core.model import EventType, FactKind, Policy, ScopeKind
from forewarn.core.vm_profile import Priority
from forewarn.ports import StoreFailed
from support import ordered
from support.fleets import BOTH, HOSTS, WEB, alone, vm
from support.inventory_fleet import InventoryFleet
from support.journal import said


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


# What a file brings.


def test_a_file_becomes_the_fleet_and_says_what_it_added(fleet: InventoryFleet) -> None:
    applied = fleet.apply(settings.demo_inventory())

    assert applied.differs
    assert applied.hosts == NameChanges(added=("h1", "h2", "h3", "h4"))
    assert applied.scopes == NameChanges(added=("batch0", "db", "vm0", "web"))
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
    assert fleet.vm("batch0").profile.priority is Priority.SPOT
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
    assert said(line.fact) == {
        "hosts_added": ["h1", "h2", "h3"],
        "scopes_added": ["web"],
        "vms_added": ["web_0", "web_1"],
    }


def test_the_journal_names_a_bounded_number_of_vms(fleet: InventoryFleet) -> None:
    many = "".join(vm(f"v{n}", address=f"192.0.2.{n}") for n in range(1, 81))
    fleet.apply(HOSTS + WEB + many)

    names = said(fleet.journal()[0].fact)["vms_added"]
    assert isinstance(names, list)
    assert names[-1] == "and 30 more"
    assert len(names) == apply_at_once.NAMES_PER_FACT_MAX + 1


def test_a_file_that_is_wrong_is_refused_before_anything_is_submitted() -> None:
    with pytest.raises(BadInventory):
        apply_at_once.apply("nonsense", by=ordered.operator("operator"))


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
        assert fleet.apply(again) == apply_at_once.Applied()

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
        apply_at_once.apply(BOTH, by=ordered.operator("a")),
        apply_at_once.apply(BOTH + "# same\n", by=ordered.operator("b")),
        apply_at_once.apply(HOSTS + WEB + vm("web_0"), by=ordered.operator("c")),
    )

    assert (first.differs, second.differs) == (True, False)
    assert third.vms == NameChanges(removed=("web_1",))


def test_a_file_that_could_not_be_kept_was_not_applied(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    before = fleet.everything()

    def broken(_: object) -> None:
        raise StoreFailed("the disk is full", fatal=False)

    with pytest.raises(StoreFailed):
        fleet.run_together(
            apply_at_once.apply(HOSTS + WEB, by=ordered.operator("operator")), broken
        )

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

    assert applied.vms == NameChanges(changed=("web_0",))
    changed = fleet.vm("web_0")
    assert (changed.update_domain, changed.profile.address, changed.profile.zone) == (
        4,
        "198.51.100.1",
        "2",
    )
    assert changed.profile.priority is Priority.SPOT
    assert fleet.scope("web").incarnation == 1


def test_settings_of_a_scope_and_a_host_follow_the_file(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    applied = fleet.apply(
        BOTH.replace(
            'kind = "placement-group"',
            'kind = "availability-set"\nterminate_notice_minutes = 9\nauto_approve = ["redeploy"]',
        ).replace('name = "h1"', 'name = "h1"\ncapacity = 3')
    )

    assert (applied.scopes, applied.hosts) == (
        NameChanges(changed=("web",)),
        NameChanges(changed=("h1",)),
    )
    assert fleet.scope("web").kind is ScopeKind.AVAILABILITY_SET
    assert fleet.scope("web").terminate_notice_ms == 540_000
    assert fleet.scope("web").auto_approve == {EventType.REDEPLOY}
    assert fleet.host("h1").capacity == 3


def test_what_the_operator_said_of_a_host_survives_a_file(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    fleet.run(ordered.close_host("h1", by="operator"))

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

    assert applied.vms == NameChanges(changed=("a", "b"))
    assert durable.index.scope_of_vm == {"a": "db", "b": "web"}
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
        fleet.run_together(apply_at_once.apply(swapped, by=ordered.operator("operator")), broken)

    assert fleet.everything() == before


def test_a_vm_moves_from_a_scope_of_its_own_into_a_group_and_back(durable: InventoryFleet) -> None:
    durable.apply(HOSTS + alone("a"))
    vm_id = durable.vm("a").vm_id

    into = durable.apply(HOSTS + WEB + vm("a"))
    assert into.scopes == NameChanges(added=("web",), removed=("a",))
    assert durable.vm("a").vm_id == vm_id

    durable.apply(HOSTS + WEB + vm("a", zone="1"))
    assert "a" not in durable.index.scopes  # nothing needs the empty scope any more

    durable.apply(HOSTS + alone("a"))
    assert durable.vm("a").vm_id == vm_id
    assert durable.index.scope_of_vm == {"a": "a"}


# Removing.


def test_a_vm_that_is_no_longer_listed_is_removed_with_a_scope_of_its_own(
    durable: InventoryFleet,
) -> None:
    durable.apply(BOTH + alone("lonely"))

    applied = durable.apply(HOSTS + WEB + vm("web_0"))

    assert applied.vms == NameChanges(removed=("lonely", "web_1"))
    assert applied.scopes == NameChanges(removed=("lonely",))
    durable.restart()
    assert durable.index.scope_of_vm == {"web_0": "web"}
    assert list(durable.index.scopes) == ["web"]


def test_nobody_waits_for_the_return_of_a_removed_vm(tmp_path: Path) -> None:
    fleet = InventoryFleet(tmp_path / "data", policy=Policy(always_enabled=True))
    fleet.apply(BOTH)
    fleet.carry_out("web_1", EventType.REBOOT)
    assert fleet.scope("web").recoveries[0].waiting_for == ("web_1",)

    fleet.apply(HOSTS + WEB + vm("web_0"))

    assert fleet.scope("web").recoveries == ()
    assert fleet.journal()[-1].fact.kind is FactKind.INVENTORY_APPLIED
    assert fleet.journal()[-2].fact.kind is FactKind.RECOVERED
    fleet.close()


def test_a_host_that_is_no_longer_listed_is_removed_when_it_is_empty(
    durable: InventoryFleet,
) -> None:
    durable.apply(BOTH)

    assert durable.apply(BOTH.replace('[[host]]\nname = "h3"\n', "")).hosts.removed == ("h3",)

    durable.restart()
    assert sorted(durable.index.hosts) == ["h1", "h2"]


def test_a_host_can_go_together_with_its_last_vm(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)

    applied = fleet.apply('[[host]]\nname = "h1"\n' + WEB + vm("web_0"))

    assert applied.hosts.removed == ("h2", "h3")


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
    assert still.vms == NameChanges(added=("web_2",))
    assert "web_1" not in durable.index.scope_of_vm

    durable.apply(HOSTS + WEB + vm("web_0"))
    assert durable.scope("web").deleted == ()
    durable.restart()

    back = durable.apply(BOTH)
    assert back.vms == NameChanges(added=("web_1",))
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
    assert durable.index.scope_of_vm == {"b": "b"}


def test_an_evicted_spot_vm_stays_deleted_too(fleet: InventoryFleet) -> None:
    fleet.apply(HOSTS + alone("a", priority="spot") + alone("b"))
    fleet.carry_out("a", EventType.PREEMPT)

    fleet.apply(HOSTS + alone("a", priority="spot"))

    assert fleet.index.scope_of_vm == {}


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

    assert back.scopes == NameChanges(added=("a",))
    assert durable.scope("a").incarnation == seen
    durable.order("a", EventType.REBOOT)
    assert durable.scope("a").incarnation == seen + 1


def test_a_scope_goes_ahead_of_the_one_that_its_new_vm_left(durable: InventoryFleet) -> None:
    """Whichever is higher: a tag kept from the scope it left must fit no document from here on."""
    durable.apply(BOTH + alone("a") + alone("b"))
    for name in ("a", "a", "web_0"):
        durable.carry_out(name, EventType.REBOOT)
    seen = {name: durable.scope(name).incarnation for name in ("web", "a", "b")}
    assert 1 == seen["b"] < seen["web"] < seen["a"]

    durable.apply(BOTH + vm("a", update_domain=2) + alone("b"))
    ahead = durable.scope("web").incarnation
    assert (ahead, durable.scope("a").incarnation) == (seen["a"] + 1, seen["a"])
    durable.apply(BOTH + alone("a") + alone("b"))
    assert durable.scope("a").incarnation == ahead + 1
    durable.apply(BOTH + alone("a", zone="1") + vm("b", update_domain=3))
    assert durable.scope("web").incarnation == ahead  # the document of b never changed
    before = durable.everything()
    durable.restart()
    assert durable.everything() == before


def test_so_does_one_whose_vm_was_not_listed_for_a_while(durable: InventoryFleet) -> None:
    durable.apply(BOTH + alone("a"))
    durable.carry_out("a", EventType.REBOOT)
    seen = durable.scope("a").incarnation
    durable.apply(BOTH)
    durable.restart()
    durable.apply(BOTH + vm("a", update_domain=2))
    assert durable.scope("web").incarnation == seen + 1


def test_scopes_that_swap_vms_both_go_ahead_of_what_either_showed(durable: InventoryFleet) -> None:
    db = '[[scope]]\nname = "db"\nkind = "availability-set"\n'
    durable.apply(HOSTS + WEB + db + vm("a") + vm("b", scope="db"))
    for name in ("a", "b", "b"):
        durable.carry_out(name, EventType.REBOOT)
    highest = max(durable.scope(name).incarnation for name in ("web", "db"))

    durable.apply(HOSTS + WEB + db + vm("a", scope="db") + vm("b"))

    assert [durable.scope(name).incarnation for name in ("web", "db")] == [highest + 1] * 2


def test_a_new_scope_begins_ahead_of_the_one_that_its_vm_left(durable: InventoryFleet) -> None:
    durable.apply(HOSTS + alone("a"))
    durable.carry_out("a", EventType.REBOOT)
    seen = durable.scope("a").incarnation

    durable.apply(HOSTS + WEB + vm("a"))

    assert durable.scope("web").incarnation == seen + 1


def test_a_new_vm_does_not_move_the_incarnation_of_the_scope_it_joins(
    fleet: InventoryFleet,
) -> None:
    fleet.apply(BOTH)
    fleet.carry_out("web_0", EventType.REBOOT)
    seen = fleet.scope("web").incarnation

    fleet.apply(BOTH + vm("web_2", update_domain=2))

    assert fleet.scope("web").incarnation == seen
