"""What every Store keeps: run against SQLite in a file and in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from forewarn.adapters.sqlite.database import Unstorable
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
    RememberedAnswer,
    StaleRevision,
    Store,
    StoreFailed,
)
from support.journal import lines_of
from support.store_values import Values, is_open, open_part

T = TypeVar("T")

A_LOT = 10_000


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteStore]:
    in_file = request.param == "file"
    made = SqliteStore.in_folder(tmp_path / "data") if in_file else SqliteStore.in_memory()
    yield made
    made.close()


def commit(store: Store, *changes: Change) -> None:
    store.begin()
    for change in changes:
        store.save(change)
    store.commit()


def only(field: str, before: object, after: object) -> Change:
    """A change of one aggregate; `field` is scopes, hosts or operations."""
    pairs: Any = {field: ((before, after),)}
    return Change(**pairs)


def raised(store: Store, change: Change) -> Exception | None:
    """Save inside an open transaction and say how it was refused."""
    try:
        store.save(change)
    except (StaleRevision, Unstorable) as error:
        return error
    return None


def facts(store: Store, *, after: int = 0, limit: int = A_LOT) -> list[Fact]:
    return [line.fact for line in store.journal(EVERYTHING, after=after, limit=limit)]


def events(store: Store, where: ListFilter, *, open_only: bool, limit: int) -> list[ScheduledEvent]:
    return [one.event for one in store.events(where, open_only=open_only, limit=limit)]


def operations(store: Store, where: ListFilter, *, open_only: bool, limit: int) -> list[Operation]:
    return [one.operation for one in store.operations(where, open_only=open_only, limit=limit)]


class StoreWorld:
    """Everything that was saved, beside the store, to compare with."""

    def __init__(self, seed: int) -> None:
        self.values = Values(seed)
        self.scopes: dict[str, Scope] = {}
        self.hosts: dict[str, Host] = {}
        self.operations: dict[str, Operation] = {}
        self.events: dict[str, ScheduledEvent] = {}
        self.facts: list[Fact] = []

    def grow(self) -> Change:
        """A change that adds some of everything."""
        values = self.values
        return Change(
            scopes=tuple((None, values.scope()) for _ in range(3)),
            hosts=tuple((None, values.host()) for _ in range(2)),
            operations=tuple((None, values.operation()) for _ in range(2)),
            lines=lines_of((values.fact() for _ in range(3)), after=len(self.facts)),
            heartbeat_ms=values.any(int),
            inventory=values.any(str),
        )

    def evolve(self) -> Change:
        """A change that changes about half of everything."""
        values = self.values

        def some(what: dict[str, T]) -> list[T]:
            return [value for value in what.values() if values.rng.random() < 0.5]

        return Change(
            scopes=tuple((s, values.evolve_scope(s)) for s in some(self.scopes)),
            hosts=tuple((h, values.evolve_host(h)) for h in some(self.hosts)),
            operations=tuple((o, values.evolve_operation(o)) for o in some(self.operations)),
            lines=lines_of([values.fact()], after=len(self.facts)),
        )

    def saved(self, change: Change) -> None:
        for _, scope in change.scopes:
            self.events.update({event.event_id: event for event in scope.events})
            self.scopes[scope.name] = open_part(scope)
        self.hosts.update({host.name: host for _, host in change.hosts})
        for _, operation in change.operations:
            self.operations.pop(operation.operation_id, None)
            if is_open(operation):
                self.operations[operation.operation_id] = operation
        self.facts += [line.fact for line in change.lines]


@pytest.mark.parametrize("seed", range(25))
def test_every_field_of_every_value_survives_any_number_of_changes(
    store: SqliteStore, seed: int
) -> None:
    world = StoreWorld(seed)
    for turn in range(8):
        change = world.grow() if turn % 4 == 0 else world.evolve()
        commit(store, change)
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
        commit(store, change)
        world.saved(change)
        before = store.load()
        store.close()
    store = SqliteStore.in_folder(tmp_path)
    assert facts(store) == world.facts
    store.close()


def test_a_new_store_is_empty(store: SqliteStore) -> None:
    snapshot = store.load()
    assert (snapshot.scopes, snapshot.hosts, snapshot.operations) == ((), (), ())
    assert (snapshot.heartbeat_ms, snapshot.inventory) == (None, None)
    assert store.journal_end() == 0


def test_scopes_and_hosts_load_by_name_and_operations_by_age(store: SqliteStore) -> None:
    values = Values(1)
    waiting = replace(values.operation(), phase=OperationPhase.WAITING, action=None)
    for operation_id in ("z", "a"):
        operation = replace(waiting, operation_id=operation_id)
        commit(store, Change(operations=((None, operation),)))
    hosts = tuple((None, Host(name=name)) for name in "cab")
    scopes = tuple((None, Scope(name=name, kind=ScopeKind.STANDALONE)) for name in "cab")
    commit(store, Change(hosts=hosts, scopes=scopes))
    snapshot = store.load()
    assert [host.name for host in snapshot.hosts] == ["a", "b", "c"]
    assert [scope.name for scope in snapshot.scopes] == ["a", "b", "c"]
    assert [operation.operation_id for operation in snapshot.operations] == ["z", "a"]


@pytest.mark.parametrize("what", ["scope", "host", "operation"])
def test_a_stale_revision_is_refused_and_changes_nothing(store: SqliteStore, what: str) -> None:
    values = Values(2)
    field = f"{what}s"
    made: Any = getattr(values, what)()
    if what == "operation":  # one that has ended takes no change at all
        made = replace(made, phase=OperationPhase.WAITING, action=None)
    evolve = getattr(values, f"evolve_{what}")
    commit(store, only(field, None, made))
    newer = evolve(made)
    commit(store, only(field, made, newer))
    before = store.load()
    lines = lines_of([values.fact()])
    late = replace(only(field, made, evolve(made)), lines=lines, heartbeat_ms=1)
    store.begin()
    assert isinstance(raised(store, late), StaleRevision)
    store.commit()
    assert store.load() == replace(before, position=before.position + 1)
    assert facts(store) == []


@pytest.mark.parametrize("what", ["scopes", "hosts", "operations"])
def test_making_what_is_there_already_is_stale(store: SqliteStore, what: str) -> None:
    values = Values(3)
    made: Any = getattr(values, what.removesuffix("s"))()
    commit(store, only(what, None, made))
    store.begin()
    assert isinstance(raised(store, only(what, None, made)), StaleRevision)
    store.rollback()


def test_removing_what_is_not_there_is_stale(store: SqliteStore) -> None:
    store.begin()
    assert isinstance(raised(store, Change(removed_scopes=("none",))), StaleRevision)
    assert isinstance(raised(store, Change(removed_hosts=("none",))), StaleRevision)
    store.rollback()


def test_a_write_without_a_new_revision_is_a_bug(store: SqliteStore) -> None:
    host = Host(name="h")
    commit(store, Change(hosts=((None, host),)))
    store.begin()
    assert isinstance(
        raised(store, Change(hosts=((host, replace(host, closed=True)),))), Unstorable
    )
    store.rollback()


def test_an_unchanged_pair_writes_nothing(store: SqliteStore) -> None:
    scope = Values(4).scope()
    commit(store, Change(scopes=((None, scope),)))
    commit(store, Change(scopes=((scope, scope),)))
    assert store.load().scopes == (scope,)


def test_a_failed_save_does_not_hurt_the_other_saves_of_its_transaction(store: SqliteStore) -> None:
    first, second = Host(name="first"), Host(name="second")
    stale = Change(hosts=((None, Host(name="third")), (replace(first, revision=7), first)))
    store.begin()
    store.save(Change(hosts=((None, first),)))
    assert raised(store, stale) is not None
    store.save(Change(hosts=((None, second),)))
    store.commit()
    assert store.load().hosts == (first, second)


def test_rollback_forgets_everything_since_begin(store: SqliteStore) -> None:
    store.begin()
    store.save(Change(hosts=((None, Host(name="h")),), heartbeat_ms=1))
    store.rollback()
    assert store.load().hosts == ()
    assert store.load().heartbeat_ms is None


def test_rollback_without_begin_does_nothing(store: SqliteStore) -> None:
    store.rollback()
    commit(store, Change(heartbeat_ms=1))
    store.rollback()
    assert store.load().heartbeat_ms == 1


def test_saving_or_committing_without_begin_is_a_bug(store: SqliteStore) -> None:
    with pytest.raises(RuntimeError, match="begin"):
        store.save(Change())
    with pytest.raises(RuntimeError, match="begin"):
        store.commit()


def test_beginning_twice_is_a_bug_and_leaves_the_first_transaction_open(store: SqliteStore) -> None:
    store.begin()
    store.save(Change(heartbeat_ms=3))
    with pytest.raises(RuntimeError, match="begin"):
        store.begin()
    store.commit()
    assert store.load().heartbeat_ms == 3


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
    store: SqliteStore, bend: Callable[[Scope], Scope]
) -> None:
    scope, bent = _bent_scope(Values(5), bend)
    commit(store, Change(scopes=((None, scope),)))
    store.begin()
    error = raised(store, Change(scopes=((scope, bent),)))
    store.save(Change(heartbeat_ms=9))
    store.commit()
    assert isinstance(error, Unstorable)
    assert store.load().scopes == (scope,)
    assert store.load().heartbeat_ms == 9


def test_a_vm_may_leave_one_scope_for_another_in_one_change(store: SqliteStore) -> None:
    vm = Vm(name="v", vm_id="1", update_domain=0, host="h")
    old = Scope(name="z", kind=ScopeKind.STANDALONE, vms=(vm,))
    new = Scope(name="a", kind=ScopeKind.STANDALONE)
    commit(store, Change(scopes=((None, old), (None, new))))
    moved = (replace(new, revision=1, vms=(vm,)), replace(old, revision=1, vms=()))
    commit(store, Change(scopes=((old, moved[1]), (new, moved[0]))))
    assert store.load().scopes == moved


def test_a_vm_cannot_be_in_two_scopes(store: SqliteStore) -> None:
    vm = Vm(name="v", vm_id="1", update_domain=0, host="h")
    commit(store, Change(scopes=((None, Scope(name="z", kind=ScopeKind.STANDALONE, vms=(vm,))),)))
    second = Scope(name="a", kind=ScopeKind.STANDALONE, vms=(vm,))
    store.begin()
    assert isinstance(raised(store, Change(scopes=((None, second),))), Unstorable)
    store.rollback()


def test_removed_scopes_and_hosts_are_gone_and_their_ended_events_stay(store: SqliteStore) -> None:
    values = Values(6)
    scope = replace(values.scope(), events=())
    event = values.event(scope.name, Phase.CANCELED)
    host = values.host()
    commit(store, Change(scopes=((None, replace(scope, events=(event,))),), hosts=((None, host),)))
    commit(store, Change(removed_scopes=(scope.name,), removed_hosts=(host.name,)))
    assert (store.load().scopes, store.load().hosts) == ((), ())
    assert store.event(event.event_id) == event


def test_a_scope_with_open_events_cannot_be_removed(store: SqliteStore) -> None:
    event = Values(7).event("s", Phase.SCHEDULED)
    scope = Scope(name="s", kind=ScopeKind.STANDALONE, events=(event,))
    commit(store, Change(scopes=((None, scope),)))
    store.begin()
    assert isinstance(raised(store, Change(removed_scopes=("s",))), Unstorable)
    store.commit()
    assert store.load().scopes == (scope,)


def test_a_scope_can_be_changed_and_removed_in_one_change(store: SqliteStore) -> None:
    values = Values(7)
    event = values.event("s", Phase.SCHEDULED)
    scope = Scope(name="s", kind=ScopeKind.STANDALONE, events=(event,))
    commit(store, Change(scopes=((None, scope),)))
    ended = replace(event, phase=Phase.CANCELED, ended_ms=1)
    last = replace(scope, revision=1, events=(ended,))
    commit(store, Change(scopes=((scope, last),), removed_scopes=("s",)))
    assert store.load().scopes == ()
    assert store.event(event.event_id) == ended


def test_known_ids_are_those_the_scope_ever_had_also_since_begin(store: SqliteStore) -> None:
    values = Values(8)
    opened, ended = values.event("s", Phase.SCHEDULED), values.event("s", Phase.COMPLETED)
    foreign = values.event("other", Phase.SCHEDULED)
    mine = Scope(name="s", kind=ScopeKind.STANDALONE, events=(opened, ended))
    other = Scope(name="other", kind=ScopeKind.STANDALONE, events=(foreign,))
    wanted = {opened.event_id, ended.event_id, foreign.event_id, "NEVER"}
    store.begin()
    store.save(Change(scopes=((None, mine), (None, other))))
    assert store.known_ids("s", wanted) == {opened.event_id, ended.event_id}
    store.commit()
    assert store.known_ids("s", wanted) == {opened.event_id, ended.event_id}
    assert store.known_ids("s", ()) == frozenset()


def test_the_writer_sees_events_and_operations_as_saved_since_begin(store: SqliteStore) -> None:
    values = Values(8)
    event = values.event("s", Phase.SCHEDULED)
    scope = Scope(name="s", kind=ScopeKind.STANDALONE, events=(event,))
    commit(store, Change(scopes=((None, scope),)))
    ended = replace(event, phase=Phase.CANCELED, ended_ms=1)
    store.begin()
    store.save(Change(scopes=((scope, replace(scope, revision=1, events=(ended,))),)))
    assert store.kept_event(event.event_id) == ended
    store.rollback()
    assert store.kept_event(event.event_id) == event
    assert store.kept_event("NEVER") is None
    assert store.kept_event_ids(event.event_id[:3], 9) == [event.event_id]
    assert store.kept_event_ids("NEVER", 9) == []
    operation = values.operation()
    store.begin()
    store.save(Change(operations=((None, operation),)))
    assert store.kept_operation(operation.operation_id) == operation
    store.commit()
    assert store.kept_operation(operation.operation_id) == operation
    assert store.kept_operation("NEVER") is None
    assert store.kept_operation_ids(operation.operation_id, 9) == [operation.operation_id]
    assert store.kept_operation_ids("NEVER", 9) == []


def test_events_are_read_newest_first_by_scope_and_by_openness(store: SqliteStore) -> None:
    values = Values(9)
    scopes = [Scope(name=name, kind=ScopeKind.STANDALONE) for name in "ab"]
    made = []
    for turn in range(6):
        scope = scopes[turn % 2]
        phase = Phase.SCHEDULED if turn < 4 else Phase.CANCELED
        made.append(values.event(scope.name, phase))
        following = replace(scope, revision=turn + 1, events=(*scope.events, made[-1]))
        commit(store, Change(scopes=((scope if turn > 1 else None, following),)))
        scopes[turn % 2] = open_part(following)
    newest = made[::-1]
    assert events(store, EVERYTHING, open_only=False, limit=A_LOT) == newest
    assert events(store, EVERYTHING, open_only=False, limit=2) == newest[:2]
    assert events(store, EVERYTHING, open_only=True, limit=A_LOT) == newest[2:]
    assert events(store, ListFilter(scope="a"), open_only=False, limit=A_LOT) == newest[1::2]
    assert events(store, ListFilter(scope="a"), open_only=True, limit=A_LOT) == newest[3::2]
    assert events(store, ListFilter(scope="a"), open_only=True, limit=0) == []
    assert store.event("NEVER") is None


def test_operations_are_read_newest_first_with_members_and_action(store: SqliteStore) -> None:
    values = Values(10)
    made = [values.operation() for _ in range(12)]
    for operation in made:
        commit(store, Change(operations=((None, operation),)))
    newest = made[::-1]
    assert operations(store, EVERYTHING, open_only=False, limit=A_LOT) == newest
    assert operations(store, EVERYTHING, open_only=False, limit=3) == newest[:3]
    assert operations(store, EVERYTHING, open_only=True, limit=A_LOT) == [
        o for o in newest if is_open(o)
    ]
    assert [store.operation(o.operation_id) for o in made] == made
    assert store.operation("never") is None


def test_the_journal_grows_at_its_end_and_can_be_followed(store: SqliteStore) -> None:
    values = Values(11)
    made = [values.fact(scope=scope, event_id=e) for scope in ("a", "b") for e in ("1", "2", None)]
    commit(store, Change(lines=lines_of(made[:4])))
    commit(store, Change(lines=lines_of(made[4:], after=4)))
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


def test_lines_go_on_where_the_journal_ends_or_nothing_is_saved(store: SqliteStore) -> None:
    fact = Fact(kind=FactKind.HOST_CLOSED, at_ms=1)
    commit(store, Change(lines=lines_of([fact, fact])))
    one, two, three = (JournalLine(number=number, fact=fact) for number in (3, 4, 5))
    store.begin()
    assert isinstance(raised(store, Change(lines=lines_of([fact], after=1))), StaleRevision)
    for wrong in ((two,), (one, three), (one, one), (two, one)):
        assert isinstance(raised(store, Change(lines=wrong, heartbeat_ms=1)), Unstorable)
    store.save(Change(lines=(one,)))
    store.save(Change(lines=(two,)))  # it goes on also within a transaction
    store.rollback()
    commit(store, Change(lines=(one, two)))
    snapshot = store.load()
    assert (snapshot.journal.end, snapshot.heartbeat_ms) == (4, None)
    assert [line.number for line in store.journal(EVERYTHING, after=0, limit=9)] == [1, 2, 3, 4]


def test_the_store_knows_up_to_where_lines_were_pruned(store: SqliteStore) -> None:
    fact = Fact(kind=FactKind.HOST_CLOSED, at_ms=1)
    commit(store, Change(lines=lines_of([fact] * 9)))
    assert store.load().journal.pruned_through == 0
    for number, gone in enumerate([(1, 2, 5), (3,), ()], 10):
        pruned = Prunable(lines=gone, events=("never",))
        line = JournalLine(number=number, fact=fact)
        commit(store, Change(pruned=pruned, lines=(line,)))
        assert store.load().journal.pruned_through == 5
    assert [one.number for one in store.journal(EVERYTHING, after=0, limit=4)] == [4, 6, 7, 8]


def test_two_stores_in_files_are_two_installations(tmp_path: Path) -> None:
    found = set()
    for name in ("a", "b", "a"):
        made = SqliteStore.in_folder(tmp_path / name)
        found.add(made.load().journal.installation)
        made.close()
    assert len(found) == 2


def test_a_journal_line_of_a_failed_save_is_not_there(store: SqliteStore) -> None:
    fact = Fact(kind=FactKind.ORDERED, at_ms=1)
    store.begin()
    raised(store, Change(lines=lines_of([fact]), removed_hosts=("none",)))
    store.save(Change(lines=lines_of([replace(fact, at_ms=2)])))
    store.commit()
    assert [line.at_ms for line in facts(store)] == [2]


def test_an_answer_is_remembered_once_also_since_begin(store: SqliteStore) -> None:
    first = RememberedAnswer(key="k", fingerprint="f", answer="{}", at_ms=1)
    store.begin()
    assert store.remembered("k") is None
    store.save(Change(remembered=first))
    assert store.remembered("k") == first
    second = replace(first, answer="other")
    assert isinstance(raised(store, Change(remembered=second)), StaleRevision)
    store.commit()
    assert store.remembered("k") == first


def test_a_second_first_read_does_not_change_the_first(store: SqliteStore) -> None:
    first = FirstRead(scope="s", event_id="E", vm="b", read_ms=10)
    other = FirstRead(scope="s", event_id="E", vm="a", read_ms=20)
    commit(store, Change(first_reads=(other, first)))
    commit(store, Change(first_reads=(replace(first, read_ms=5), replace(other, read_ms=99))))
    assert list(store.first_reads("E")) == [first, other]
    assert list(store.first_reads("OTHER")) == []


def test_the_heartbeat_and_the_inventory_are_replaced_apart(store: SqliteStore) -> None:
    commit(store, Change(heartbeat_ms=1, inventory="one"))
    commit(store, Change(heartbeat_ms=2))
    assert (store.load().heartbeat_ms, store.load().inventory) == (2, "one")
    commit(store, Change(inventory="two"))
    assert (store.load().heartbeat_ms, store.load().inventory) == (2, "two")


def test_another_thread_reads_only_what_is_committed(store: SqliteStore) -> None:
    """In a file it reads at once; in memory it waits for the commit. Either way: committed."""
    seen: list[int | None] = []
    commit(store, Change(heartbeat_ms=1))
    store.begin()
    store.save(Change(heartbeat_ms=2))
    store.rollback()
    store.begin()
    store.save(Change(heartbeat_ms=3))
    reader = threading.Thread(target=lambda: seen.append(store.load().heartbeat_ms))
    reader.start()
    store.commit()
    reader.join()
    assert seen in ([1], [3])
    assert store.load().heartbeat_ms == 3


def test_closing_twice_is_harmless(store: SqliteStore) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreFailed):
        store.begin()
