"""A batch of changes is folded into rows: what is written at once is what would come one by one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.core.model import Fact, FactKind, Host, Phase, Scope, ScopeKind, Vm
from forewarn.core.retention import Prunable
from forewarn.ports import (
    EVERYTHING,
    Batch,
    Change,
    FirstRead,
    StaleRevision,
    Store,
    TableWrites,
    Unstorable,
)
from forewarn.tables.folding import Folding, RowNumbers, fold
from support.batches import keep
from support.journal import lines_of
from support.store_values import StoreWorld, Values

A_LOT = 10_000


def nothing_yet() -> RowNumbers:
    return RowNumbers(commit=0, line=0, event=0, operation=0, open_events={}, positions={})


def folded(*changes: Change) -> Batch:
    return fold(changes, nothing_yet()).batch()


def writes(batch: Batch, table: str) -> TableWrites:
    return batch.tables.get(table, TableWrites())


def kept(store: Store) -> tuple[Any, ...]:
    """Everything that a store shows, but for numbers of commits."""
    snapshot = store.load()
    return (
        replace(snapshot, position=0, shown={}),
        store.events(EVERYTHING, open_only=False, limit=A_LOT),
        store.operations(EVERYTHING, open_only=False, limit=A_LOT),
        store.journal(EVERYTHING, after=0, limit=A_LOT),
    )


@pytest.mark.parametrize("seed", range(20))
def test_changes_in_one_batch_leave_what_they_leave_one_by_one(seed: int) -> None:
    world = StoreWorld(seed)
    changes = []
    for turn in range(8):
        change = world.grow() if turn % 4 == 0 else world.evolve()
        changes.append(change)
        world.saved(change)
    apart, together, halves = (SqliteStore.in_memory() for _ in range(3))
    for change in changes:
        keep(apart, change)
    keep(together, *changes)
    keep(halves, *changes[:4])
    keep(halves, *changes[4:])
    assert kept(together) == kept(halves) == kept(apart)
    assert [one.position() for one in (apart, together, halves)] == [8, 1, 2]


def test_a_row_that_changes_often_is_written_once_as_it_is_last() -> None:
    first = Host(name="h")
    second, third = replace(first, revision=1), replace(first, revision=2, closed=True)
    written = writes(
        folded(Change(hosts=((first, second),)), Change(hosts=((second, third),))), "host"
    )
    assert (written.inserted, written.upserted, written.deleted) == ((), (), ())
    [row] = written.updated
    assert (row["revision"], row["closed"], row["revision_before"]) == (2, 1, 0)


def test_what_comes_and_goes_in_one_batch_is_not_written() -> None:
    host = Host(name="h")
    batch = folded(Change(hosts=((None, host),)), Change(removed_hosts=("h",)))
    assert writes(batch, "host") == TableWrites()


def test_what_goes_and_comes_again_is_deleted_and_inserted() -> None:
    host = Host(name="h", revision=7)
    batch = folded(Change(removed_hosts=("h",)), Change(hosts=((None, Host(name="h")),)))
    assert writes(batch, "host").deleted == ({"name": "h"},)
    assert [row["revision"] for row in writes(batch, "host").inserted] == [0]
    store = SqliteStore.in_memory()
    keep(store, Change(hosts=((None, host),)))
    keep(store, Change(removed_hosts=("h",)), Change(hosts=((None, Host(name="h")),)))
    assert store.load().hosts == (Host(name="h"),)


def test_a_change_that_is_refused_leaves_the_batch_as_it_was() -> None:
    first, second = Host(name="first"), Host(name="second")
    folding = Folding(nothing_yet())
    folding.add(Change(hosts=((None, first),), lines=lines_of([fact()])))
    before = folding.batch()
    stale = Change(
        hosts=((None, Host(name="other")), (replace(first, revision=7), replace(first, revision=8)))
    )
    bug = Change(hosts=((None, second),), lines=lines_of([fact()], after=5))
    with pytest.raises(StaleRevision):
        folding.add(stale)
    assert folding.batch() == before
    with pytest.raises(Unstorable):
        folding.add(bug)
    assert folding.batch() == before
    folding.add(Change(hosts=((None, second),), lines=lines_of([fact()], after=1)))
    assert [row["name"] for row in writes(folding.batch(), "host").inserted] == ["first", "second"]


def fact() -> Fact:
    return Fact(kind=FactKind.HOST_CLOSED, at_ms=1)


def test_numbers_count_on_only_once_a_batch_is_durable() -> None:
    values, counted = Values(3), nothing_yet()
    event = values.event("s", Phase.SCHEDULED)
    scope = Scope(name="s", kind=ScopeKind.STANDALONE, events=(event,))
    change = Change(
        scopes=((None, scope),), operations=((None, values.operation()),), lines=lines_of([fact()])
    )
    lost = fold([change], counted)
    again = fold([change], counted)
    assert lost.batch() == again.batch()
    again.committed()
    assert (counted.commit, counted.line, counted.event, counted.operation) == (1, 1, 1, 1)
    assert counted.open_events == {"s": {event.event_id: 1}}
    ended = replace(event, phase=Phase.CANCELED, ended_ms=1)
    fold(
        [Change(scopes=((scope, replace(scope, revision=1, events=(ended,))),))], counted
    ).committed()
    assert counted.open_events == {}


def test_of_several_first_reads_the_first_one_counts() -> None:
    read = FirstRead(scope="s", event_id="E", vm="v", read_ms=1)
    batch = folded(Change(first_reads=(read,)), Change(first_reads=(replace(read, read_ms=9),)))
    assert [row["read_ms"] for row in writes(batch, "receipt").inserted] == [1]


def test_a_scope_that_goes_takes_the_vms_with_it_that_came_in_the_same_batch() -> None:
    vm = Vm(name="v", vm_id="1", update_domain=0, host="h")
    old = Scope(name="old", kind=ScopeKind.STANDALONE, vms=(vm,))
    store = SqliteStore.in_memory()
    keep(store, Change(scopes=((None, old),)))
    other = replace(old, revision=1, vms=(vm, replace(vm, name="w")))
    new = Scope(name="new", kind=ScopeKind.STANDALONE, vms=(vm,))
    keep(
        store,
        Change(scopes=((old, other),)),
        Change(removed_scopes=("old",)),
        Change(scopes=((None, new),)),
    )
    assert store.load().scopes == (new,)


def test_slices_that_are_pruned_in_one_batch_go_together() -> None:
    one, other = Prunable(lines=(1, 2), receipts=1), Prunable(lines=(2, 3), events=("E",))
    batch = folded(Change(pruned=one), Change(pruned=other))
    assert batch.pruned == Prunable(lines=(1, 2, 3), events=("E",), receipts=1)


def test_a_scope_keeps_the_commit_of_the_last_change_that_hosts_are_shown() -> None:
    scope = Scope(name="s", kind=ScopeKind.STANDALONE)
    second, third = replace(scope, revision=1), replace(scope, revision=2)
    shown = Change(scopes=((scope, second),), shown=("s",))
    batch = folded(shown, Change(scopes=((second, third),)))
    assert [row["shown_commit"] for row in writes(batch, "scope").updated] == [1]
