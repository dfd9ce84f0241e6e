"""Lists by scope, host, VM, tag, type, phase, cause, principal and time, and what leads to it."""

from __future__ import annotations

import itertools
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from forewarn.adapters.sqlite.data_folder import DATABASE_NAME, MIGRATIONS, migrate
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.core.model import (
    Cause,
    EventSource,
    EventType,
    Fact,
    FactKind,
    Operation,
    OperationPhase,
    Phase,
    ScheduledEvent,
    Scope,
    ScopeKind,
    Vm,
)
from forewarn.core.vm_profile import VmProfile
from forewarn.ports import EVERYTHING, Change, ListFilter, Store
from forewarn.tables import list_queries
from forewarn.tables.list_queries import ListQuery
from forewarn.text.packaged import packaged_text
from support.batches import keep
from support.journal import lines_of

EVENTS = 240
PAGE = 7
TAGS = {"a-0": (("team", "web"), ("cell", "1=2")), "b-0": (("team", "web"),), "b-1": ()}


def vm(name: str) -> Vm:
    profile = VmProfile(tags=TAGS.get(name, ()))
    return Vm(name=name, vm_id=name, update_domain=0, host="h1", profile=profile)


class Lists:
    """Events, operations and lines of two scopes, beside the store that has them."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.rng = random.Random(5)
        self.events: list[ScheduledEvent] = []
        self.named: dict[str, set[str]] = {}  # every VM that an event ever named
        self.operations: list[Operation] = []
        self.facts: list[Fact] = []
        scopes = {
            name: Scope(
                name=name,
                kind=ScopeKind.AVAILABILITY_SET,
                vms=tuple(vm(f"{name}-{n}") for n in range(3)),
            )
            for name in "ab"
        }
        self.save(Change(scopes=tuple((None, scope) for scope in scopes.values())))
        for number in range(EVENTS):
            scope = scopes[self.rng.choice("ab")]
            scopes[scope.name] = self.schedule(scope, number)

    def save(self, change: Change) -> None:
        keep(self.store, change)

    def schedule(self, scope: Scope, number: int) -> Scope:
        """An event, its operation and two lines; then it loses a VM, is approved, or ends."""
        some = self.rng.choice
        at_ms = 1_000 * number + some((0, 0, -3_500))  # a clock that steps back now and then
        vms = self.rng.sample([one.name for one in scope.vms], k=some((1, 2)))
        operation = Operation(
            operation_id=f"OP{number:04}",
            host=some(("h1", "h2")),
            event_type=some((EventType.FREEZE, EventType.REBOOT)),
            cause=some((Cause.MAINTENANCE, Cause.DEGRADED)),
            phase=some(list(OperationPhase)),
            ordered_ms=at_ms,
            ordered_by=some(("alice", "bob")),
        )
        event = ScheduledEvent(
            event_id=f"EV{number:04}",
            scope=scope.name,
            event_type=operation.event_type,
            event_source=EventSource.PLATFORM,
            cause=operation.cause,
            phase=Phase.SCHEDULED,
            update_domain=0,
            host=operation.host,
            resources=tuple(vms),
            not_before_ms=at_ms,
            minimum_notice_ms=0,
            scheduled_ms=at_ms,
            ordered_by=operation.ordered_by,
            operation_id=operation.operation_id,
        )
        facts = (
            Fact(
                kind=FactKind.SCHEDULED,
                at_ms=at_ms,
                scope=scope.name,
                event_id=event.event_id,
                host=event.host,
                by=event.ordered_by,
            ),
            Fact(kind=FactKind.VM_SEEN, at_ms=at_ms, scope=scope.name, host="h1", vm=vms[0]),
            Fact(kind=FactKind.ORDERED, at_ms=at_ms, operation_id=operation.operation_id),
        )
        before = replace(scope, revision=scope.revision + 1, events=(*scope.events, event))
        lines = lines_of(facts, after=len(self.facts))
        self.save(Change(scopes=((scope, before),), operations=((None, operation),), lines=lines))
        moved = replace(event, resources=event.resources[:1], **self.end())
        after = replace(before, revision=before.revision + 1, events=(*scope.events, moved))
        self.save(Change(scopes=((before, after),)))
        self.events.append(moved)
        self.named[event.event_id] = set(vms)
        self.operations.append(operation)
        self.facts.extend(facts)
        return replace(after, events=tuple(e for e in after.events if not e.phase.ended))

    def end(self) -> dict[str, Any]:
        return self.rng.choice(
            (
                {},
                {"approved_by": "a-0", "approved_ms": 1},
                {"phase": Phase.CANCELED, "ended_ms": 1},
                {"phase": Phase.STARTED, "started_ms": 1, "approved_by": "carol"},
            )
        )

    # What is to be found, by the rules in words.

    def tags_of(self, event: ScheduledEvent) -> set[str]:
        found = itertools.chain.from_iterable(
            TAGS.get(one, ()) for one in self.named[event.event_id]
        )
        return {f"{key}={value}" for key, value in found}

    def event_fits(self, event: ScheduledEvent, where: ListFilter) -> bool:
        return (
            where.scope in (None, event.scope)
            and where.host in (None, event.host)
            and (where.vm is None or where.vm in self.named[event.event_id])
            and (where.tag is None or where.tag in self.tags_of(event))
            and where.event_type in (None, event.event_type)
            and where.phase in (None, event.phase)
            and where.cause in (None, event.cause)
            and where.by in (None, event.ordered_by, event.approved_by)
            and (where.since_ms is None or event.scheduled_ms >= where.since_ms)
            and (where.until_ms is None or event.scheduled_ms <= where.until_ms)
        )

    def operation_fits(self, operation: Operation, where: ListFilter) -> bool:
        event = self.events[self.operations.index(operation)]
        return (
            where.scope in (None, event.scope)
            and where.host in (None, operation.host)
            and (where.vm is None or where.vm in self.named[event.event_id])
            and (where.tag is None or where.tag in self.tags_of(event))
            and where.event_type in (None, operation.event_type)
            and where.phase in (None, operation.phase)
            and where.cause in (None, operation.cause)
            and where.by in (None, operation.ordered_by)
            and (where.since_ms is None or operation.ordered_ms >= where.since_ms)
            and (where.until_ms is None or operation.ordered_ms <= where.until_ms)
        )

    def fact_fits(self, fact: Fact, where: ListFilter) -> bool:
        event = next((e for e in self.events if e.event_id == fact.event_id), None)
        operation = next((o for o in self.operations if o.operation_id == fact.operation_id), None)
        about = event or operation
        vms = self.named[event.event_id] if event else {fact.vm}
        tags = {f"{key}={value}" for one in vms for key, value in TAGS.get(one or "", ())}
        return (
            where.scope in (None, fact.scope)
            and where.host in (None, fact.host)
            and (where.vm is None or where.vm in vms)
            and (where.tag is None or where.tag in tags)
            and (where.event_type is None or (about and about.event_type is where.event_type))
            and (where.phase is None or (about and about.phase.value == where.phase))
            and (where.cause is None or (about and about.cause is where.cause))
            and where.by in (None, fact.by)
            and where.kind in (None, fact.kind)
            and where.event_id in (None, fact.event_id)
            and (where.since_ms is None or fact.at_ms >= where.since_ms)
            and (where.until_ms is None or fact.at_ms <= where.until_ms)
        ) is True


@pytest.fixture(scope="module")
def world() -> Iterator[Lists]:
    with closing(SqliteStore.in_memory()) as store:
        yield Lists(store)


COMMON: dict[str, object] = {
    "scope": "a",
    "host": "h2",
    "vm": "a-0",
    "tag": "team=web",
    "event_type": EventType.FREEZE,
    "cause": Cause.DEGRADED,
    "by": "alice",
    "since_ms": 60_000,
    "until_ms": 150_000,
}
PHASES = [("phase", Phase.STARTED), ("phase", Phase.CANCELED)]
ONE_OR_TWO = [
    dict(pair)
    for size in (0, 1, 2)
    for pair in itertools.combinations([*COMMON.items(), *PHASES], size)
    if [name for name, _ in pair] != ["phase", "phase"]
]


def all_events(store: Store, where: ListFilter, *, open_only: bool) -> list[ScheduledEvent]:
    """Read page by page."""
    found: list[ScheduledEvent] = []
    below = None
    while page := store.events(where, open_only=open_only, below=below, limit=PAGE):
        found.extend(one.event for one in page)
        below = page[-1].number
    return found


def all_operations(store: Store, where: ListFilter, *, open_only: bool) -> list[Operation]:
    found: list[Operation] = []
    below = None
    while page := store.operations(where, open_only=open_only, below=below, limit=PAGE):
        found.extend(one.operation for one in page)
        below = page[-1].number
    return found


def all_facts(store: Store, where: ListFilter) -> list[Fact]:
    found: list[Fact] = []
    after = 0
    while page := store.journal(where, after=after, limit=PAGE):
        found.extend(one.fact for one in page)
        after = page[-1].number
    return found


@pytest.mark.parametrize("asked", ONE_OR_TWO, ids=lambda asked: "+".join(asked) or "all")
def test_a_list_has_what_fits_and_nothing_else_over_all_its_pages(
    world: Lists, asked: dict[str, Any]
) -> None:
    where = ListFilter(**asked)
    for open_only in (False, True):
        wanted = [
            event
            for event in reversed(world.events)
            if world.event_fits(event, where) and not (open_only and event.phase.ended)
        ]
        assert all_events(world.store, where, open_only=open_only) == wanted
    if "phase" in asked:
        where = replace(where, phase=OperationPhase.ENDED)
    fitting = [one for one in reversed(world.operations) if world.operation_fits(one, where)]
    assert all_operations(world.store, where, open_only=False) == fitting
    still = [one for one in fitting if one.phase is not OperationPhase.ENDED]
    assert all_operations(world.store, where, open_only=True) == still


@pytest.mark.parametrize("asked", ONE_OR_TWO, ids=lambda asked: "+".join(asked) or "all")
def test_lines_of_the_journal_are_found_by_what_they_are_about(
    world: Lists, asked: dict[str, Any]
) -> None:
    for more in ({}, {"kind": FactKind.VM_SEEN}, {"event_id": "EV0007"}):
        where = ListFilter(**asked, **more)
        fitting = [fact for fact in world.facts if world.fact_fits(fact, where)]
        assert all_facts(world.store, where) == fitting


def test_ids_are_found_by_their_beginning_however_old(world: Lists) -> None:
    assert world.store.event_ids("EV000", limit=3) == ("EV0000", "EV0001", "EV0002")
    assert world.store.event_ids("EV0001", limit=3) == ("EV0001",)
    assert world.store.operation_ids("OP0239", limit=3) == ("OP0239",)
    assert world.store.event_ids("X", limit=3) == ()


Make = Callable[[ListFilter], ListQuery]


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (
            lambda where: list_queries.events(where, open_only=False, below=9, limit=9),
            ("scope", "host", "vm", "tag", "event_type", "cause", "by", "since_ms", "until_ms"),
        ),
        (
            lambda where: list_queries.operations(where, open_only=False, below=9, limit=9),
            ("scope", "host", "vm", "tag", "since_ms", "until_ms"),
        ),
        (
            lambda where: list_queries.journal(where, after=9, limit=9),
            ("scope", "host", "vm", "by", "since_ms", "until_ms"),
        ),
    ],
    ids=["events", "operations", "journal"],
)
def test_an_index_leads_to_what_is_asked_for_and_no_table_is_read_whole(
    make: Make, names: tuple[str, ...]
) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        for name in ("", *names):
            query = make(ListFilter(**{name: COMMON[name]}) if name else EVERYTHING)  # type: ignore[arg-type]
            plan = connection.execute(f"EXPLAIN QUERY PLAN {query.statement}", query.parameters)
            steps = [row[3] for row in plan]
            whole = [step for step in steps if step.startswith("SCAN") and "USING" not in step]
            assert [step for step in whole if "json_each" not in step] == [], (name, steps)


@pytest.mark.parametrize(
    ("phase", "index"),
    [
        (Phase.SCHEDULED, "scheduled_event_open"),
        (Phase.STARTED, "scheduled_event_open"),
        (Phase.FAILED, "scheduled_event_failed"),
        (Phase.CANCELED, "scheduled_event_canceled"),
    ],
)
def test_events_in_a_phase_that_few_are_in_are_not_looked_for_among_all(
    phase: Phase, index: str
) -> None:
    query = list_queries.events(ListFilter(phase=phase), open_only=False, below=None, limit=9)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        plan = connection.execute(f"EXPLAIN QUERY PLAN {query.statement}", query.parameters)
        assert f"USING INDEX {index}" in " ".join(row[3] for row in plan)


def test_what_an_older_database_has_is_found_by_vm_tag_and_principal(tmp_path: Path) -> None:
    before = MIGRATIONS[: MIGRATIONS.index("0014_lists.sql")]
    scripts = [packaged_text("forewarn.adapters.sqlite", f"sql/{name}") for name in before]
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME, isolation_level=None)) as connection:
        migrate(connection, scripts)
        connection.execute("INSERT INTO lineage VALUES ('an older one', 41)")
        connection.execute(
            "INSERT INTO scope VALUES"
            " ('web', 'standalone', 1, 1, 0, '[]', 0, NULL, NULL, NULL, NULL, '[]', '[]', 0)"
        )
        connection.execute(
            "INSERT INTO vm (name, scope, position, vm_id, update_domain, host, priority, tags,"
            " fault_domain, zone, os_type, computer_name) VALUES ('web-0', 'web', 1, '1', 0, 'h1',"
            """ 'regular', '[["team","a=b"]]', 0, '', '', '')"""
        )
        connection.execute(
            "INSERT INTO scheduled_event VALUES ('E1', 1, 'web', 'Reboot', 'User', 'order',"
            """ 'completed', 0, 'h1', '["web-0","gone"]', 0, 0, 5, '', -1, 0, NULL, 'operator',"""
            " NULL, 0, 0, NULL, 0, 6, 'web-0', 7, NULL, 8, '', NULL, NULL)"
        )

    with closing(SqliteStore.in_folder(tmp_path)) as store:
        for asked in (
            {"vm": "web-0"},
            {"vm": "gone"},
            {"tag": "team=a=b"},
            {"by": "operator"},
            {"by": "web-0"},
        ):
            found = store.events(ListFilter(**asked), open_only=False, limit=9)  # type: ignore[arg-type]
            assert [one.event.event_id for one in found] == ["E1"], asked
