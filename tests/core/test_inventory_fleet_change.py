"""The engine that files and reports of hosts change the fleet by, each rule of it alone."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from forewarn.core.inventory.desired import as_it_is, by_host, desired, vm_of
from forewarn.core.inventory.entries import ScopeEntry, Source, VmEntry
from forewarn.core.inventory.fleet_change import FleetChange
from forewarn.core.inventory.host_report import Power, SeenVm, Traits
from forewarn.core.inventory.names import KnownNames
from forewarn.core.model import FactKind, Recovery, Scope, ScopeKind, Vm
from forewarn.core.vm_profile import VmProfile
from support.core_fleet import scope as scope_of
from support.core_fleet import vm
from support.wire_samples import FREEZE

NOW_MS = 1_000
WEB = scope_of("web", {"web_0": (0, "h1"), "web_1": (1, "h2")}, enabled=False)
API = scope_of("api", {"api_0": (0, "h1")}, enabled=False)


def change_of(*scopes: Scope) -> FleetChange:
    return FleetChange({scope.name: scope for scope in scopes}, now_ms=NOW_MS)


def names(change: FleetChange, scope: str) -> list[str]:
    found = change.scope(scope)
    return [] if found is None else [one.name for one in found.vms]


def with_event(scope: Scope, *vms: str, silent: bool = False) -> Scope:
    event = replace(FREEZE, scope=scope.name, resources=vms, silent=silent)
    return replace(scope, events=(event,))


def test_what_is_only_looked_at_does_not_change() -> None:
    change = change_of(WEB, API)
    assert change.vm("web", "web_0") == vm("web_0", 0, "h1")
    assert change.scope("web") is WEB
    assert (change.changed(), change.to_save()) == ((), ())


def test_a_vm_that_changes_keeps_its_place_and_one_that_comes_is_the_last() -> None:
    change = change_of(WEB)
    change.put_vm("web", replace(vm("web_0", 0, "h1"), off=True))
    change.join("web", vm("web_2", 2, "h3"))
    assert names(change, "web") == ["web_0", "web_1", "web_2"]
    (saved,) = change.to_save()
    assert saved.vms[0].off


def test_a_vm_that_moves_takes_the_scope_above_what_it_may_have_read() -> None:
    change = change_of(replace(WEB, incarnation=7), replace(API, incarnation=3))
    change.become("web", vm("web_0", 0, "h1"), wanted="api")
    assert (names(change, "web"), names(change, "api")) == (["web_1"], ["api_0", "web_0"])
    api = change.scope("api")
    assert api is not None
    assert api.incarnation == 8


def test_a_vm_that_comes_back_into_a_group_goes_on_above_the_scope_it_had_alone() -> None:
    alone = Scope(name="web_9", kind=ScopeKind.STANDALONE, incarnation=5)
    change = change_of(WEB, alone)
    change.join("web", vm("web_9", 0, "h1"))
    web = change.scope("web")
    assert web is not None
    assert web.incarnation == 6


def test_a_vm_that_leaves_is_awaited_no_more_and_leaves_its_silent_events() -> None:
    waiting = Recovery(update_domain=0, since_ms=0, until_ms=1, waiting_for=("web_0",))
    web = replace(with_event(WEB, "web_0", silent=True), recoveries=(waiting,))
    change = change_of(web)
    change.leave("web", "web_0", because="no longer there")
    left = change.scope("web")
    assert left is not None
    assert (names(change, "web"), left.recoveries) == (["web_1"], ())
    assert [fact.kind for fact in change.facts] == [
        FactKind.RECOVERED,
        FactKind.AVOIDED,
        FactKind.CANCELED,
    ]


def test_what_an_event_depends_on_is_named_with_that_event() -> None:
    web = with_event(WEB, "web_0")
    after = replace(vm("web_0", 4, "h1"), profile=VmProfile(address="192.0.2.9"))
    found = change_of(web).bound("web", vm("web_0", 0, "h1"), after, wanted="api")
    assert [what for what, _ in found] == ["scope", "update_domain", "address"]
    assert {event for _, event in found} == set(web.events)


def test_the_kind_of_a_scope_stays_while_an_event_is_visible() -> None:
    entry = ScopeEntry(name="web", kind=ScopeKind.PLACEMENT_GROUP, terminate_notice_ms=600_000)
    change = change_of(with_event(WEB, "web_0"))
    assert change.describe(entry) is not None
    web = change.scope("web")
    assert web is not None
    assert (web.kind, web.terminate_notice_ms) == (WEB.kind, 600_000)
    assert names(change, "web") == ["web_0", "web_1"]


@pytest.mark.parametrize(
    ("before", "moves", "goes"),
    [
        (API, False, True),
        (API, True, False),  # the row of the VM still names it
        (replace(API, incarnation=2), False, False),  # guests have read it
        (with_event(API, "api_0", silent=True), False, False),
    ],
)
def test_the_row_of_an_empty_scope_goes_only_if_nothing_needs_it(
    before: Scope, *, moves: bool, goes: bool
) -> None:
    change = change_of(replace(before, enabled=True), WEB)
    if moves:
        change.become("api", vm("api_0", 0, "h1"), wanted="web")
    else:
        change.leave("api", "api_0", because="gone")
    gone, _ = change.drop_empty(["api"], at_once=True)
    assert gone == ({"api"} if goes else set())
    kept = change.scope("api")
    assert goes or (kept is not None and not kept.enabled)


def test_rows_that_go_later_are_named_and_a_scope_that_never_was_is_forgotten() -> None:
    change = change_of(API)
    change.leave("api", "api_0", because="gone")
    change.put(Scope(name="new", kind=ScopeKind.STANDALONE))
    assert change.drop_empty(["api", "new"], at_once=False) == (set(), {"api"})
    assert change.scope("new") is None


def test_names_that_differ_in_case_only_are_the_same() -> None:
    known = KnownNames(["web"])
    known.add("Api")
    assert (known.taken_by("WEB"), known.taken_by("api"), known.taken_by("db")) == (
        "web",
        "Api",
        None,
    )
    change = change_of(WEB)
    assert change.scope_named_like("Web") == "web"
    change.put(Scope(name="db", kind=ScopeKind.STANDALONE))
    assert change.scope_named_like("DB") == "db"


def test_a_file_says_how_a_vm_is_wanted_and_else_its_host_does() -> None:
    traits = Traits(scope="web", update_domain=2, profile=VmProfile(zone="1"))
    seen = SeenVm(name="web_0", vm_id="7", power=Power.RUNNING, traits=traits)
    listed = VmEntry(name="web_0", scope="api", host="h9")
    assert desired(seen, "h1", file_vms={"web_0": listed}) is listed
    said = desired(seen, "h1", file_vms={})
    assert (said.scope, said.host, said.source) == ("web", "h1", Source.HOST)
    assert vm_of(said, vm_id="7", host="h1") == Vm(
        name="web_0", vm_id="7", update_domain=2, host="h1", profile=VmProfile(zone="1")
    )
    alone = by_host(replace(seen, traits=Traits()), "h1")
    assert (alone.scope, alone.update_domain) == ("web_0", 0)


def test_a_vm_that_stays_as_it_is_wants_nothing_else() -> None:
    there = replace(vm("web_0", 3, "h1"), profile=VmProfile(zone="2"))
    assert vm_of(as_it_is("web", there), vm_id=there.vm_id, host="h1") == there
