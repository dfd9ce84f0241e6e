"""What every Store keeps: run against each store that there is (`conftest`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.core.model import (
    Fact,
    FactKind,
    Host,
    Operation,
    OperationPhase,
    Phase,
    ScheduledEvent,
    Scope,
    ScopeKind,
    Vm,
)
from forewarn.core.retention import Prunable
from forewarn.ports import (
    EVERYTHING,
    Change,
    FirstRead,
    JournalLine,
    ListFilter,
    Questions,
    RecallResult,
    RememberedAnswer,
    StaleRevision,
    Store,
    StoreFailed,
    Unstorable,
)
from support.batches import Keeper, folded, keep
from support.journal import lines_of
from support.store_values import StoreWorld, Values, is_open, open_part

T = TypeVar("T")

A_LOT = 10_000


def only(field: str, before: object, after: object) -> Change:
    """A change of one aggregate; `field` is scopes, hosts or operations."""
    pairs: Any = {field: ((before, after),)}
    return Change(**pairs)


def refused(store: Store, *changes: Change) -> Exception | None:
    """Commit these changes and say how that was refused."""
    try:
        keep(store, *changes)
    except (StaleRevision, Unstorable) as error:
        return error
    return None


def facts(store: Store, *, after: int = 0, limit: int = A_LOT) -> list[Fact]:
    return [line.fact for line in store.journal(EVERYTHING, after=after, limit=limit)]


def events(store: Store, where: ListFilter, *, open_only: bool, limit: int) -> list[ScheduledEvent]:
    return [one.event for one in store.events(where, open_only=open_only, limit=limit)]


def operations(store: Store, where: ListFilter, *, open_only: bool, limit: int) -> list[Operation]:
    return [one.operation for one in store.operations(where, open_only=open_only, limit=limit)]


@pytest.mark.parametrize("seed", range(25))
def test_every_field_of_every_value_survives_any_number_of_changes(store: Store, seed: int) -> None:
    world = StoreWorld(seed)
    for turn in range(8):
        change = world.grow() if turn % 4 == 0 else world.evolve()
        keep(store, change)
        world.saved(change)
        snapshot = store.load()
        assert {scope.name: scope for scope in snapshot.scopes} == world.scopes
        assert {host.name: host for host in snapshot.hosts} == world.hosts
        assert {o.operation_id: o for o in snapshot.operations} == world.operations
    assert facts(store) == world.facts
    assert {e.event_id: store.event(e.event_id) for e in world.events.values()} == world.events


@pytest.mark.parametrize("seed", range(5))
def test_reopening_keeps_everything(tmp_path: Path, seed: int) -> None:
    world = StoreWorld(seed)
    before = None
    for turn in range(4):
        store = SqliteStore.in_folder(tmp_path)
        assert before is None or store.load() == before
        change = world.grow() if turn % 2 == 0 else world.evolve()
        keep(store, change)
        world.saved(change)
        before = store.load()
        store.close()
    store = SqliteStore.in_folder(tmp_path)
    assert facts(store) == world.facts
    store.close()


def test_a_new_store_is_empty(store: Store) -> None:
    snapshot = store.load()
    assert (snapshot.scopes, snapshot.hosts, snapshot.operations) == ((), (), ())
    assert (snapshot.heartbeat_ms, snapshot.inventory) == (None, None)
    assert store.journal_end() == 0


def test_scopes_and_hosts_load_by_name_and_operations_by_age(store: Store) -> None:
    values = Values(1)
    waiting = replace(values.operation(), phase=OperationPhase.WAITING, action=None)
    for operation_id in ("z", "a"):
        operation = replace(waiting, operation_id=operation_id)
        keep(store, Change(operations=((None, operation),)))
    hosts = tuple((None, Host(name=name)) for name in "cab")
    scopes = tuple((None, Scope(name=name, kind=ScopeKind.STANDALONE)) for name in "cab")
    keep(store, Change(hosts=hosts, scopes=scopes))
    snapshot = store.load()
    assert [host.name for host in snapshot.hosts] == ["a", "b", "c"]
    assert [scope.name for scope in snapshot.scopes] == ["a", "b", "c"]
    assert [operation.operation_id for operation in snapshot.operations] == ["z", "a"]


@pytest.mark.parametrize("what", ["scope", "host", "operation"])
def test_a_stale_revision_is_refused_and_changes_nothing(store: Store, what: str) -> None:
    values = Values(2)
    field = f"{what}s"
    made: Any = getattr(values, what)()
    if what == "operation":  # one that has ended takes no change at all
        made = replace(made, phase=OperationPhase.WAITING, action=None)
    evolve = getattr(values, f"evolve_{what}")
    keep(store, only(field, None, made))
    newer = evolve(made)
    keep(store, only(field, made, newer))
    before = store.load()
    lines = lines_of([values.fact()])
    late = replace(only(field, made, evolve(made)), lines=lines, heartbeat_ms=1)
    assert isinstance(refused(store, late), StaleRevision)
    assert store.load() == before
    assert facts(store) == []


@pytest.mark.parametrize("what", ["scopes", "hosts", "operations"])
def test_making_what_is_there_already_is_stale(store: Store, what: str) -> None:
    values = Values(3)
    made: Any = getattr(values, what.removesuffix("s"))()
    if what == "operations":
        made = replace(made, action=None, members=())
    keep(store, only(what, None, made))
    assert isinstance(refused(store, only(what, None, made)), StaleRevision)


def test_removing_what_is_not_there_is_stale(store: Store) -> None:
    assert isinstance(refused(store, Change(removed_scopes=("none",))), StaleRevision)
    assert isinstance(refused(store, Change(removed_hosts=("none",))), StaleRevision)


def test_a_write_without_a_new_revision_is_a_bug(store: Store) -> None:
    host = Host(name="h")
    keep(store, Change(hosts=((None, host),)))
    changed = Change(hosts=((host, replace(host, closed=True)),))
    assert isinstance(refused(store, changed), Unstorable)


def test_an_unchanged_pair_writes_nothing(store: Store) -> None:
    scope = Values(4).scope()
    keep(store, Change(scopes=((None, scope),)))
    keep(store, Change(scopes=((scope, scope),)))
    assert store.load().scopes == (scope,)


def test_nothing_of_a_batch_is_kept_if_one_row_is_not_as_it_was_loaded(store: Store) -> None:
    first, second = Host(name="first"), Host(name="second")
    keep(store, Change(hosts=((None, first),)))
    before, position = store.load(), store.position()
    stale = Change(hosts=((replace(first, revision=7), replace(first, revision=8)),))
    why = refused(store, Change(hosts=((None, second),), heartbeat_ms=1), stale)
    assert isinstance(why, StaleRevision)
    assert "host first is no longer at revision 7" in str(why)
    assert (store.load(), store.position()) == (before, position)
    keep(store, Change(hosts=((None, second),)))
    assert store.load().hosts == (first, second)


def test_a_batch_that_does_not_follow_the_last_commit_is_refused(store: Store) -> None:
    late = folded(store, Change(heartbeat_ms=1))
    keep(store, Change(heartbeat_ms=2))
    with pytest.raises(StaleRevision, match="does not follow commit 1"):
        store.commit(late)
    assert (store.position(), store.load().heartbeat_ms) == (1, 2)


def _bent_scope(values: Values, bend: Callable[[Scope], Scope]) -> tuple[Scope, Scope]:
    event = values.event("s", Phase.STARTED, silent=False)
    scope = Scope(name="s", kind=ScopeKind.STANDALONE, revision=1, incarnation=5, events=(event,))
    return scope, bend(replace(scope, revision=2))


def _with_event(bent: Scope, /, **changes: Any) -> Scope:
    return replace(bent, events=(replace(bent.events[0], **changes),))


@pytest.mark.parametrize(
    "bend",
    [
        lambda scope: replace(scope, incarnation=4),
        lambda scope: replace(scope, events=()),
        lambda scope: _with_event(scope, phase=Phase.SCHEDULED, started_ms=None),
        lambda scope: _with_event(scope, phase=Phase.COMPLETED, ended_ms=None),
        lambda scope: _with_event(scope, not_before_ms=scope.events[0].not_before_ms + 1),
        lambda scope: _with_event(scope, resources=()),
        lambda scope: _with_event(scope, scope="other"),
        lambda scope: _with_event(scope, shown_ms=1 << 63),
        lambda scope: _with_event(scope, description="\ud800"),
    ],
    ids=[
        "the incarnation goes back",
        "an open event vanishes",
        "a phase goes back",
        "an ended event without an end",
        "a shown not_before moves",
        "an open event without resources",
        "an event of another scope",
        "a number that no row can hold",
        "text that no row can hold",
    ],
)
def test_what_no_correct_rule_makes_is_refused_as_a_bug(
    store: Store, bend: Callable[[Scope], Scope]
) -> None:
    scope, bent = _bent_scope(Values(5), bend)
    keep(store, Change(scopes=((None, scope),)))
    error = refused(store, Change(scopes=((scope, bent),)), Change(heartbeat_ms=9))
    assert isinstance(error, Unstorable)
    assert store.load().scopes == (scope,)
    assert store.load().heartbeat_ms is None
    keep(store, Change(heartbeat_ms=9))
    assert store.load().heartbeat_ms == 9


def test_a_vm_may_leave_one_scope_for_another_in_one_change(store: Store) -> None:
    vm = Vm(name="v", vm_id="1", update_domain=0, host="h")
    old = Scope(name="z", kind=ScopeKind.STANDALONE, vms=(vm,))
    new = Scope(name="a", kind=ScopeKind.STANDALONE)
    keep(store, Change(scopes=((None, old), (None, new))))
    moved = (replace(new, revision=1, vms=(vm,)), replace(old, revision=1, vms=()))
    keep(store, Change(scopes=((old, moved[1]), (new, moved[0]))))
    assert store.load().scopes == moved


def test_a_vm_cannot_be_in_two_scopes(store: Store) -> None:
    vm = Vm(name="v", vm_id="1", update_domain=0, host="h")
    keep(store, Change(scopes=((None, Scope(name="z", kind=ScopeKind.STANDALONE, vms=(vm,))),)))
    second = Scope(name="a", kind=ScopeKind.STANDALONE, vms=(vm,))
    assert isinstance(refused(store, Change(scopes=((None, second),))), Unstorable)


def test_removed_scopes_and_hosts_are_gone_and_their_ended_events_stay(store: Store) -> None:
    values = Values(6)
    scope = replace(values.scope(), events=())
    event = values.event(scope.name, Phase.CANCELED)
    host = values.host()
    keep(store, Change(scopes=((None, replace(scope, events=(event,))),), hosts=((None, host),)))
    keep(store, Change(removed_scopes=(scope.name,), removed_hosts=(host.name,)))
    assert (store.load().scopes, store.load().hosts) == ((), ())
    assert store.event(event.event_id) == event


def test_a_scope_with_open_events_cannot_be_removed(store: Store) -> None:
    event = Values(7).event("s", Phase.SCHEDULED)
    scope = Scope(name="s", kind=ScopeKind.STANDALONE, events=(event,))
    keep(store, Change(scopes=((None, scope),)))
    assert isinstance(refused(store, Change(removed_scopes=("s",))), Unstorable)
    assert store.load().scopes == (scope,)


def test_a_scope_can_be_changed_and_removed_in_one_change(store: Store) -> None:
    values = Values(7)
    event = values.event("s", Phase.SCHEDULED)
    scope = Scope(name="s", kind=ScopeKind.STANDALONE, events=(event,))
    keep(store, Change(scopes=((None, scope),)))
    ended = replace(event, phase=Phase.CANCELED, ended_ms=1)
    last = replace(scope, revision=1, events=(ended,))
    keep(store, Change(scopes=((scope, last),), removed_scopes=("s",)))
    assert store.load().scopes == ()
    assert store.event(event.event_id) == ended


def test_whole_ids_recall_what_is_open_and_what_has_ended(store: Store) -> None:
    values = Values(8)
    opened, ended = values.event("s", Phase.SCHEDULED), values.event("s", Phase.COMPLETED)
    foreign = values.event("other", Phase.SCHEDULED)
    mine = Scope(name="s", kind=ScopeKind.STANDALONE, events=(opened, ended))
    other = Scope(name="other", kind=ScopeKind.STANDALONE, events=(foreign,))
    made = [values.operation() for _ in range(3)]
    ops = tuple((None, operation) for operation in made)
    keep(store, Change(scopes=((None, mine), (None, other)), operations=ops))
    asked = Questions(
        events=frozenset({opened.event_id, ended.event_id, foreign.event_id, "NEVER"}),
        operations=frozenset({made[0].operation_id, made[2].operation_id, "NEVER"}),
    )
    found = store.recall(asked)
    assert found.events == {one.event_id: one for one in (opened, ended, foreign)}
    assert found.operations == {one.operation_id: one for one in (made[0], made[2])}
    assert store.recall(Questions()) == RecallResult()


def test_beginnings_of_ids_recall_the_ids(store: Store) -> None:
    values = Values(8)
    events = tuple(
        values.event("s", phase, event_id=event_id)
        for event_id, phase in [
            ("ABC1", Phase.SCHEDULED),
            ("ABC2", Phase.CANCELED),
            ("ABD", Phase.SCHEDULED),
        ]
    )
    operation = values.operation()
    scope = Scope(name="s", kind=ScopeKind.STANDALONE, events=events)
    keep(store, Change(scopes=((None, scope),), operations=((None, operation),)))
    begun = frozenset({"AB", "ABC", "NEVER"})
    found = store.recall(Questions(event_ids=begun, ids_max=2))
    assert found.event_ids == {"AB": ("ABC1", "ABC2"), "ABC": ("ABC1", "ABC2"), "NEVER": ()}
    key = operation.operation_id
    begun = frozenset({key[:3], "NEVER"})
    found = store.recall(Questions(operation_ids=begun, ids_max=2))
    assert found.operation_ids == {key[:3]: (key,), "NEVER": ()}


def test_events_are_read_newest_first_by_scope_and_by_openness(store: Store) -> None:
    values = Values(9)
    scopes = [Scope(name=name, kind=ScopeKind.STANDALONE) for name in "ab"]
    made = []
    for turn in range(6):
        scope = scopes[turn % 2]
        phase = Phase.SCHEDULED if turn < 4 else Phase.CANCELED
        made.append(values.event(scope.name, phase))
        following = replace(scope, revision=turn + 1, events=(*scope.events, made[-1]))
        keep(store, Change(scopes=((scope if turn > 1 else None, following),)))
        scopes[turn % 2] = open_part(following)
    newest = made[::-1]
    assert events(store, EVERYTHING, open_only=False, limit=A_LOT) == newest
    assert events(store, EVERYTHING, open_only=False, limit=2) == newest[:2]
    assert events(store, EVERYTHING, open_only=True, limit=A_LOT) == newest[2:]
    assert events(store, ListFilter(scope="a"), open_only=False, limit=A_LOT) == newest[1::2]
    assert events(store, ListFilter(scope="a"), open_only=True, limit=A_LOT) == newest[3::2]
    assert events(store, ListFilter(scope="a"), open_only=True, limit=0) == []
    assert store.event("NEVER") is None


def test_operations_are_read_newest_first_with_members_and_action(store: Store) -> None:
    values = Values(10)
    made = [values.operation() for _ in range(12)]
    for operation in made:
        keep(store, Change(operations=((None, operation),)))
    newest = made[::-1]
    assert operations(store, EVERYTHING, open_only=False, limit=A_LOT) == newest
    assert operations(store, EVERYTHING, open_only=False, limit=3) == newest[:3]
    assert operations(store, EVERYTHING, open_only=True, limit=A_LOT) == [
        o for o in newest if is_open(o)
    ]
    assert [store.operation(o.operation_id) for o in made] == made
    assert store.operation("never") is None


def test_the_journal_grows_at_its_end_and_can_be_followed(store: Store) -> None:
    values = Values(11)
    made = [values.fact(scope=scope, event_id=e) for scope in ("a", "b") for e in ("1", "2", None)]
    keep(store, Change(lines=lines_of(made[:4])))
    keep(store, Change(lines=lines_of(made[4:], after=4)))
    lines = store.journal(EVERYTHING, after=0, limit=A_LOT)
    numbers = [line.number for line in lines]
    assert [line.fact for line in lines] == made
    assert numbers == [1, 2, 3, 4, 5, 6]
    assert store.journal_end() == numbers[-1]
    assert facts(store, after=numbers[1], limit=2) == made[2:4]

    def found(scope: str | None, event_id: str | None) -> list[Fact]:
        wanted = store.journal(
            ListFilter(scope=scope, event_id=event_id), after=numbers[0], limit=A_LOT
        )
        return [line.fact for line in wanted]

    assert found("a", None) == made[1:3]
    assert found(None, "1") == [made[3]]
    assert found("b", "2") == [made[4]]


def test_lines_go_on_where_the_journal_ends_or_nothing_is_saved(store: Store) -> None:
    fact = Fact(kind=FactKind.HOST_CLOSED, at_ms=1)
    keep(store, Change(lines=lines_of([fact, fact])))
    one, two, three = (JournalLine(number=number, fact=fact) for number in (3, 4, 5))
    assert isinstance(refused(store, Change(lines=lines_of([fact], after=1))), StaleRevision)
    for wrong in ((two,), (one, three), (one, one), (two, one)):
        assert isinstance(refused(store, Change(lines=wrong, heartbeat_ms=1)), Unstorable)
    keep(store, Change(lines=(one,)), Change(lines=(two,)))  # it goes on also within a batch
    snapshot = store.load()
    assert (snapshot.journal.end, snapshot.heartbeat_ms) == (4, None)
    assert [line.number for line in store.journal(EVERYTHING, after=0, limit=9)] == [1, 2, 3, 4]


def test_the_store_knows_up_to_where_lines_were_pruned(store: Store) -> None:
    fact = Fact(kind=FactKind.HOST_CLOSED, at_ms=1)
    keep(store, Change(lines=lines_of([fact] * 9)))
    assert store.load().journal.pruned_through == 0
    for number, gone in enumerate([(1, 2, 5), (3,), ()], 10):
        pruned = Prunable(lines=gone, events=("never",))
        line = JournalLine(number=number, fact=fact)
        keep(store, Change(pruned=pruned, lines=(line,)))
        assert store.load().journal.pruned_through == 5
    assert [one.number for one in store.journal(EVERYTHING, after=0, limit=4)] == [4, 6, 7, 8]


def test_two_stores_in_files_are_two_installations(tmp_path: Path) -> None:
    found = set()
    for name in ("a", "b", "a"):
        made = SqliteStore.in_folder(tmp_path / name)
        found.add(made.load().journal.installation)
        made.close()
    assert len(found) == 2


def test_a_journal_line_of_a_failed_batch_is_not_there(store: Store) -> None:
    fact = Fact(kind=FactKind.ORDERED, at_ms=1)
    assert refused(store, Change(lines=lines_of([fact]), removed_hosts=("none",))) is not None
    keep(store, Change(lines=lines_of([replace(fact, at_ms=2)])))
    assert [line.at_ms for line in facts(store)] == [2]


def test_an_answer_is_remembered_once(store: Store) -> None:
    first = RememberedAnswer(key="k", fingerprint="f", answer="{}", at_ms=1)
    asked = Questions(keys=frozenset({"k", "other"}))
    assert store.recall(asked).remembered == {}
    keep(store, Change(remembered=first))
    second = replace(first, answer="other")
    assert isinstance(refused(store, Change(remembered=second)), StaleRevision)
    other = replace(first, key="other")
    assert isinstance(
        refused(store, Change(remembered=other), Change(remembered=other)), StaleRevision
    )
    assert store.recall(asked).remembered == {"k": first}


def test_a_second_first_read_does_not_change_the_first(store: Store) -> None:
    first = FirstRead(scope="s", event_id="E", vm="b", read_ms=10)
    other = FirstRead(scope="s", event_id="E", vm="a", read_ms=20)
    keep(store, Change(first_reads=(other, first)))
    keep(store, Change(first_reads=(replace(first, read_ms=5), replace(other, read_ms=99))))
    assert list(store.first_reads("E")) == [first, other]
    assert list(store.first_reads("OTHER")) == []


def test_the_heartbeat_and_the_inventory_are_replaced_apart(store: Store) -> None:
    keep(store, Change(heartbeat_ms=1, inventory="one"))
    keep(store, Change(heartbeat_ms=2))
    assert (store.load().heartbeat_ms, store.load().inventory) == (2, "one")
    keep(store, Change(inventory="two"))
    assert (store.load().heartbeat_ms, store.load().inventory) == (2, "two")


def test_any_thread_reads_what_is_committed_while_batches_are(store: Store) -> None:
    """Every load is of one instant: the line of its heartbeat is there."""
    fact, seen = Fact(kind=FactKind.ORDERED, at_ms=1), list[tuple[int, int]]()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            snapshot = store.load()
            seen.append((snapshot.heartbeat_ms or 0, snapshot.journal.end))

    reader, keeper = threading.Thread(target=read), Keeper(store)
    reader.start()
    for number in range(1, 20):
        keeper.keep(Change(heartbeat_ms=number, lines=lines_of([fact], after=number - 1)))
    done.set()
    reader.join()
    assert all(heartbeat == end for heartbeat, end in seen)
    assert store.load().heartbeat_ms == 19


def test_closing_twice_is_harmless(store: Store) -> None:
    batch = folded(store, Change(heartbeat_ms=1))
    store.close()
    store.close()
    with pytest.raises(StoreFailed):
        store.commit(batch)
