"""How an inventory is cut: whole scopes, and those together between which something moves."""

from __future__ import annotations

import pytest

from forewarn.core.inventory import slicing
from forewarn.core.inventory.entries import HostEntry, Inventory, ScopeEntry, VmEntry
from forewarn.core.model import Scope, ScopeKind, Vm
from support.profiles import described


def entry(name: str, scope: str, **keys: object) -> VmEntry:
    return described(VmEntry(name=name, scope=scope, host="h1"), **keys)


def wanted(*vms: VmEntry) -> Inventory:
    names = sorted({vm.scope for vm in vms})
    return Inventory(
        hosts=(HostEntry(name="h1"),),
        scopes=tuple(ScopeEntry(name=name, kind=ScopeKind.PLACEMENT_GROUP) for name in names),
        vms=vms,
    )


def scope(name: str, *vms: Vm, deleted: tuple[str, ...] = ()) -> Scope:
    return Scope(name=name, kind=ScopeKind.PLACEMENT_GROUP, vms=vms, deleted=deleted)


def vm(name: str, **keys: object) -> Vm:
    made = Vm(name=name, vm_id=name, update_domain=0, host="h1")
    return described(made, **keys)


def cut(
    after: Inventory, *before: Scope, changed: set[str] | None = None, vms_max: int = 1
) -> list[tuple[str, ...]]:
    scopes = {one.name: one for one in before}
    names = changed or {*scopes, *(one.name for one in after.scopes)}
    found = slicing.slices(names, after, scopes=scopes, vms_max=vms_max)
    return [slicing.names_of(part) for part in found]


def test_slices_are_filled_with_whole_scopes_by_name() -> None:
    after = wanted(*(entry(f"vm-{n}", f"s{n // 2}") for n in range(10)))
    assert cut(after, vms_max=5) == [("s0", "s1"), ("s2", "s3"), ("s4",)]


def test_a_scope_larger_than_a_slice_is_a_slice_of_its_own() -> None:
    after = wanted(*(entry(f"vm-{n}", "large") for n in range(9)), entry("last", "small"))
    assert cut(after, vms_max=4) == [("large",), ("small",)]


def test_a_scope_that_goes_counts_by_the_vms_that_it_has() -> None:
    gone = scope("gone", *(vm(f"old-{n}") for n in range(5)))
    assert cut(wanted(entry("a", "s1")), gone, vms_max=5) == [("gone",), ("s1",)]


def test_what_does_not_change_is_in_no_slice() -> None:
    after = wanted(entry("a", "s1"), entry("b", "s2"))
    assert cut(after, changed={"s2"}) == [("s2",)]


CASES = {
    "a VM moves": (
        wanted(entry("a", "s2"), entry("b", "s1")),
        [scope("s1", vm("a"), vm("b")), scope("s2")],
    ),
    "an address changes hands": (
        wanted(entry("a", "s1", address="192.0.2.2"), entry("b", "s2", address="192.0.2.1")),
        [scope("s1", vm("a", address="192.0.2.1")), scope("s2", vm("b", address="192.0.2.2"))],
    ),
    "the address of a VM that goes is taken": (
        wanted(entry("b", "s2", address="192.0.2.1")),
        [scope("s1", vm("a", address="192.0.2.1")), scope("s2")],
    ),
    "a listener changes hands": (
        wanted(entry("b", "s2", listen="127.0.0.1:81")),
        [scope("s1", vm("a", listen="127.0.0.1:81")), scope("s2")],
    ),
    "a name comes back in other letters": (
        wanted(entry("WEB-0", "s2")),
        [scope("s1", vm("web-0")), scope("s2")],
    ),
    "the mark of a deleted VM moves": (
        wanted(entry("a", "s2"), entry("b", "s1")),
        [scope("s1", vm("b"), deleted=("a",)), scope("s2")],
    ),
    "a VM joins whose own scope was kept": (wanted(entry("s1", "s2")), [scope("s1"), scope("s2")]),
    "a scope comes back in other letters": (wanted(entry("a", "S1")), [scope("s1", vm("a"))]),
}


@pytest.mark.parametrize("what", CASES)
def test_scopes_between_which_something_moves_are_in_one_slice(what: str) -> None:
    after, before = CASES[what]
    assert len(cut(after, *before)) == 1


def test_what_moves_in_a_chain_is_one_slice_and_the_rest_is_not() -> None:
    names = [f"s{n}" for n in range(5)]
    before = [scope(name, vm(f"of-{name}")) for name in names]
    moved = [entry(f"of-s{n}", f"s{n + 1}") for n in range(3)]
    after = wanted(*moved, entry("of-s4", "s4"), entry("new", "s0"))
    assert cut(after, *before) == [("s0", "s1", "s2", "s3"), ("s4",)]


def test_a_slice_is_halved_down_to_the_scopes_that_go_together() -> None:
    before = {"s0": scope("s0", vm("a")), "s1": scope("s1")}
    after = wanted(entry("a", "s1"), entry("b", "s0"), entry("c", "s2"), entry("d", "s3"))
    (whole,) = slicing.slices({"s0", "s1", "s2", "s3"}, after, scopes=before, vms_max=9)
    assert whole == (("s0", "s1"), ("s2",), ("s3",))
    one, rest = slicing.halves(whole)
    assert (one, slicing.halves(rest)) == ((("s0", "s1"),), ((("s2",),), (("s3",),)))
    assert slicing.halves(one) == (one,)


def test_free_ports_bind_nobody() -> None:
    free = "127.0.0.1:0"
    before = [scope("s1", vm("a", listen=free)), scope("s2", vm("b", listen=free))]
    assert (
        len(cut(wanted(entry("a", "s1", listen=free), entry("b", "s2", listen=free)), *before)) == 2
    )


def test_a_scope_that_only_reads_another_takes_it_into_its_slice() -> None:
    """Also one that does not change: what a slice looks at is all in it."""
    after = wanted(entry("s9", "s1"))
    assert cut(after, scope("s9"), scope("s1"), changed={"s1"}) == [("s1", "s9")]


def test_a_slice_follows_vms_that_have_moved_since_it_was_cut() -> None:
    after = slicing.by_scope(wanted(entry("a", "s1"), entry("b", "s3"), entry("c", "s4")))
    now = {"s1": scope("s1"), "s2": scope("s2", vm("a"), vm("b")), "s4": scope("s4", vm("c"))}
    where = {one.name: name for name, found in now.items() for one in found.vms}
    assert slicing.closed(["s1"], after, now.get, where) == {"s1", "s2", "s3"}


def test_a_part_has_the_hosts_scopes_and_vms_of_some_scopes() -> None:
    whole = wanted(entry("a", "s1"), entry("b", "s2"))
    part = slicing.by_scope(whole).part(["s2", "gone"])
    assert (part.hosts, part.scopes, part.vms) == (whole.hosts, whole.scopes[1:], whole.vms[1:])
