"""Inventories that the running fleet forbids: refused whole, with the reason and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.control.inventory.apply_at_once import NameChanges
from forewarn.core.errors import InventoryConflict
from forewarn.core.model import EventType, FactKind, Phase, Policy
from support import ordered
from support.fleets import BOTH, HOSTS, WEB, alone, vm
from support.inventory_fleet import InventoryFleet


@pytest.fixture(params=["file", "memory"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InventoryFleet]:
    made = InventoryFleet(tmp_path / "data" if request.param == "file" else None)
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

    assert fleet.vm("web_0").profile.zone == "3"


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
    unpolled.run(ordered.degrade_host("h1", by="op"))
    (event,) = unpolled.scope("web").events
    assert event.silent

    assert event.event_id in refusal(unpolled, BOTH.replace(*CHANGES["update_domain"]))
    assert event.event_id in refusal(unpolled, BOTH.replace(*CHANGES["scope"]))
    assert unpolled.apply(BOTH.replace(*CHANGES["address"])).vms.changed == ("web_0",)


def test_a_removed_vm_leaves_its_silent_events(unpolled: InventoryFleet) -> None:
    unpolled.apply(HOSTS + WEB + vm("web_0") + vm("web_1") + alone("lonely"))
    unpolled.run(ordered.degrade_host("h1", by="op"))
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
    assert unpolled.index.scope_of_vm == {"web_0": "web"}


def test_a_vm_whose_silent_event_has_started_cannot_be_removed(unpolled: InventoryFleet) -> None:
    unpolled.apply(BOTH)
    event = unpolled.order("web_1", EventType.REBOOT)
    unpolled.tick()

    message = refusal(unpolled, HOSTS + WEB + vm("web_0"))

    assert f"the started Reboot event {event.event_id}" in message


# Placing new VMs.


def test_a_new_vm_is_not_placed_on_a_closed_degraded_or_failed_host(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    fleet.run(ordered.close_host("h1", by="op"))
    fleet.run(ordered.degrade_host("h2", by="op"))
    fleet.run(ordered.fail_host("h3", by="op", fenced=False, force=True))

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
    operation = fleet.run(ordered.maintain_host("h1", EventType.REBOOT, by="op"))

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

    assert fleet.apply(small + vm("b")).vms == NameChanges(added=("b",), removed=("a",))


def test_a_capacity_below_what_is_there_moves_nobody(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH + vm("a"))

    fleet.apply((BOTH + vm("a")).replace('name = "h1"', 'name = "h1"\ncapacity = 1'))

    assert fleet.index.vm_count("h1") == 2


# Dropping hosts.


def test_a_host_that_still_has_vms_cannot_be_removed(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    fleet.carry_out("web_0", EventType.REDEPLOY)

    message = refusal(fleet, BOTH.replace('[[host]]\nname = "h3"\n', ""))

    assert "host h3 is not in the file, but VMs are there: web_0." in message
    assert "forewarn host maintain h3 --type Redeploy" in message


def test_a_host_with_an_open_operation_cannot_be_removed(fleet: InventoryFleet) -> None:
    fleet.apply(BOTH)
    operation = fleet.run(
        ordered.maintain_host("h3", EventType.FREEZE, by="op", not_before_ms=2**42)
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
