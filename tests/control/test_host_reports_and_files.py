"""An inventory file beside what hosts show: the file wins where it speaks, and removes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.control.inventory import apply_at_once
from forewarn.core.errors import BadInventory, Conflict, Invalid, InventoryConflict
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import MINUTE_MS, EventType, FactKind, ScopeKind
from forewarn.core.vm_profile import Priority
from support import ordered
from support.fleets import BOTH, HOSTS, WEB, alone, vm
from support.reporting_fleet import ReportingFleet, id_of, seen

GRACE_S = 31


@pytest.fixture
def fleet() -> Iterator[ReportingFleet]:
    made = ReportingFleet()
    yield made
    made.close()


def test_what_a_file_says_of_a_vm_wins_over_its_metadata(fleet: ReportingFleet) -> None:
    fleet.apply(BOTH)
    said: dict[str, Any] = {
        "scope": "api",
        "update_domain": 7,
        "priority": Priority.SPOT,
        "tags": (("a", "b"),),
    }
    assert fleet.shows("h1", seen("web_0", **said)) == {}
    found = fleet.vm("web_0")
    assert (fleet.index.scope_of_vm["web_0"], found.update_domain) == ("web", 0)
    assert (found.profile.priority, found.profile.tags) == (Priority.REGULAR, ())
    assert found.vm_id == id_of("web_0")  # that is not the file's to say


def test_the_host_that_a_file_names_is_only_where_a_vm_was_first(fleet: ReportingFleet) -> None:
    fleet.apply(BOTH)
    fleet.shows("h3", seen("web_0"))
    assert fleet.vm("web_0").host == "h3"
    fleet.apply(BOTH + "# again\n" + alone("more"))
    assert fleet.vm("web_0").host == "h3"


def test_a_vm_that_a_file_lists_and_no_host_has_shown_stays_as_the_files(
    fleet: ReportingFleet,
) -> None:
    fleet.apply(BOTH)
    for _ in range(3):
        fleet.shows("h1")
        fleet.shows("h2")
        fleet.later(GRACE_S)
    assert fleet.names() == ["web_0", "web_1"]


def test_applying_a_file_removes_neither_joined_hosts_nor_vms_they_show(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h3", seen("db", terminate_notice_ms=9 * MINUTE_MS))
    applied = fleet.apply(HOSTS.replace('[[host]]\nname = "h3"\n', "") + WEB + vm("web_0"))
    assert (applied.hosts.removed, applied.vms.removed) == ((), ())
    assert fleet.host("h3").joined
    assert fleet.names() == ["db", "web_0"]
    assert fleet.scope("db").terminate_notice_ms == 9 * MINUTE_MS
    applied = fleet.apply(HOSTS)
    assert applied.vms.removed == ("web_0",)
    assert fleet.names() == ["db"]


def test_a_vm_that_leaves_the_file_is_what_its_metadata_says(fleet: ReportingFleet) -> None:
    fleet.apply(BOTH)
    shown = seen("web_0", scope="api", update_domain=3)
    fleet.shows("h1", shown)
    assert fleet.index.scope_of_vm["web_0"] == "web"
    fleet.apply(HOSTS + WEB + vm("web_1", host="h2"))
    fleet.shows("h1", shown)
    assert (fleet.index.scope_of_vm["web_0"], fleet.vm("web_0").update_domain) == ("api", 3)
    assert fleet.scope("api").kind is ScopeKind.AVAILABILITY_SET


def test_a_scope_that_a_file_lists_is_as_the_file_says(fleet: ReportingFleet) -> None:
    fleet.apply(BOTH)
    fleet.shows("h1", seen("x", scope="web", update_domain=1, scope_kind=ScopeKind.CLOUD_SERVICE))
    assert fleet.scope("web").kind is ScopeKind.PLACEMENT_GROUP
    assert fleet.index.scope_of_vm["x"] == "web"
    fleet.shows("h1")
    fleet.later(GRACE_S)
    fleet.shows("h1")
    assert fleet.scope("web").kind is ScopeKind.PLACEMENT_GROUP


def test_a_vm_that_vanished_is_not_made_again_by_the_file_that_lists_it(
    fleet: ReportingFleet,
) -> None:
    fleet.apply(BOTH)
    fleet.shows("h1", seen("web_0"))
    fleet.shows("h1")
    fleet.later(GRACE_S)
    fleet.shows("h1")
    assert fleet.names() == ["web_1"]
    applied = fleet.apply(BOTH + alone("more"))
    assert applied.still_deleted == ("web_0",)
    assert fleet.names() == ["more", "web_1"]
    fleet.shows("h2", seen("web_0"))
    assert fleet.vm("web_0").host == "h2"
    assert fleet.scope("web").deleted == ()


def test_a_vm_that_an_order_deleted_can_be_made_again_by_other_hands(fleet: ReportingFleet) -> None:
    fleet.apply(BOTH)
    fleet.shows("h1", seen("web_0"))
    fleet.carry_out("web_0", EventType.TERMINATE)
    fleet.shows("h1")
    assert fleet.names() == ["web_1"]
    fleet.shows("h1", seen("web_0", vm_id=id_of("another")))
    assert fleet.vm("web_0").vm_id == id_of("another")


def test_a_file_that_no_longer_follows_the_rules_does_not_stop_hosts(tmp_path: Path) -> None:
    fleet = ReportingFleet(folder=tmp_path)
    fleet.run(lambda tx: tx.applied_inventory("written = 'under older rules'"))
    assert fleet.shows("h1", seen("db")) == {}
    assert fleet.names() == ["db"]
    fleet.close()


# Hosts.


def test_a_host_that_joins_is_in_the_fleet_and_keeps_what_was_said_of_it(
    fleet: ReportingFleet,
) -> None:
    fleet.apply(HOSTS.replace('name = "h3"', 'name = "h3"\ncapacity = 4'))
    fleet.run(ordered.host_joined("h3", by="h3"))
    assert (fleet.host("h3").joined, fleet.host("h3").capacity) == (True, 4)
    assert [f.host for f in fleet.facts(FactKind.HOST_JOINED)] == ["h1", "h2", "h3", "h3"]


def test_bad_and_confusing_names_of_hosts_are_refused(fleet: ReportingFleet) -> None:
    with pytest.raises(Conflict, match="more than case"):
        fleet.run(ordered.host_joined("H1", by="H1"))
    with pytest.raises(Invalid):
        fleet.run(ordered.host_joined("no host", by="x"))


def test_a_retired_host_leaves_unless_something_is_still_there(fleet: ReportingFleet) -> None:
    fleet.shows("h1", seen("db", Power.OFF))
    for host in ("h1", "h2", "h9"):
        fleet.run(ordered.host_left(host, by="operator"))
    fleet.run(ordered.host_left("h3", by="operator", listed_by_file=True))
    assert sorted(fleet.index.hosts) == ["h1", "h3"]
    assert (fleet.host("h1").joined, fleet.host("h1").listed) == (False, False)
    assert (fleet.host("h3").joined, fleet.host("h3").listed) == (False, True)


def test_a_file_whose_names_differ_in_case_only_from_what_hosts_show_is_refused(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h1", seen("x", scope="API"), seen("DB"))
    for text in (
        '[[host]]\nname = "H1"\n',
        HOSTS + alone("api"),
        HOSTS + alone("db"),
    ):
        with pytest.raises(InventoryConflict, match="more than case"):
            fleet.apply(text)
    assert fleet.index.inventory is None


def test_a_file_cannot_make_a_scope_standalone_that_shown_vms_share(fleet: ReportingFleet) -> None:
    fleet.shows("h1", seen("x", scope="db"))
    with pytest.raises(InventoryConflict, match="exactly one VM, but VM x"):
        fleet.apply(HOSTS + alone("db"))


def test_a_file_beside_hosts_needs_no_addresses_and_another_does(fleet: ReportingFleet) -> None:
    text = HOSTS + WEB + vm("web_0", address=None)
    with pytest.raises(BadInventory, match="address and listen are missing"):
        fleet.apply(text)
    fleet.run(apply_at_once.apply(text, by=ordered.operator("operator"), needs_channels=False))
    fleet.shows("h2", seen("web_0"))
    assert (fleet.vm("web_0").host, fleet.index.scope_of_vm["web_0"]) == ("h2", "web")
