"""What can be read back of the tables, over any database that runs the named queries.

Nothing here writes, and nothing here knows a database.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from forewarn.core.model import Operation, ScheduledEvent, Scope
from forewarn.core.retention import SLICE_EVENTS_MAX, SLICE_LINES_MAX, Prunable
from forewarn.ports import (
    Cell,
    Epoch,
    FirstRead,
    JournalExtent,
    JournalLine,
    ListedEvent,
    ListedOperation,
    ListFilter,
    Numbers,
    Questions,
    RecallResult,
    Snapshot,
    VmDefinition,
)
from forewarn.tables import list_queries
from forewarn.tables import table_specs as rows
from forewarn.tables.columns import Cells, Row, json_text
from forewarn.tables.list_queries import ListQuery
from forewarn.wire import packed

BACKUP_LOOKED_FOR_LINES_MAX = 200_000  # of the journal, at a start, for when the last one was given
AFTER_ALL_IDS = "~"  # no id has it, and what ids have comes before it


class QueryReader(Protocol):
    """Runs queries as of one instant."""

    def rows(self, name: str, parameters: Mapping[str, Cell] | None = None) -> Sequence[Row]:
        """All rows of a named query."""
        ...

    def row(self, name: str, parameters: Mapping[str, Cell] | None = None) -> Row | None:
        """The first row of a named query, or None."""
        ...

    def listed(self, query: ListQuery) -> Sequence[Row]:
        """All rows of a list."""
        ...


class TablesRead:
    """The reading half of `ports.Store`. A store says how it reads: `reading`."""

    def reading(self) -> AbstractContextManager[QueryReader]:
        """What is committed, as of one instant. Any thread."""
        raise NotImplementedError

    def recall(self, questions: Questions) -> RecallResult:
        """What is kept of what is asked for, as last committed."""
        asked = questions
        with self.reading() as reading:
            answers = reading.rows("remembered", _in(asked.keys)) if asked.keys else ()
            events = reading.rows("events", _in(asked.events)) if asked.events else ()
            ops = reading.rows("operations", _in(asked.operations)) if asked.operations else ()
            before_ms = asked.prunable_before_ms
            return RecallResult(
                remembered={row["idempotency_key"]: rows.REMEMBERED.value(row) for row in answers},
                events={event.event_id: event for event in _events(reading, events)},
                operations={one.operation_id: one for one in _operations(reading, ops)},
                event_ids=_begun(reading, "event_ids", asked.event_ids, asked.ids_max),
                operation_ids=_begun(reading, "operation_ids", asked.operation_ids, asked.ids_max),
                prunable=Prunable() if before_ms is None else _prunable(reading, before_ms),
            )

    def event(self, event_id: str) -> ScheduledEvent | None:
        """An event, open or ended, as last committed."""
        with self.reading() as reading:
            found = reading.rows("events", _in([event_id]))
            return next(iter(_events(reading, found)), None)

    def events(
        self, where: ListFilter, *, open_only: bool, limit: int, below: int | None = None
    ) -> Sequence[ListedEvent]:
        """Committed events, newest first; those with a number below `below`."""
        queries = [
            list_queries.events(one, open_only=open_only, below=below, limit=limit)
            for one in list_queries.each_scope(where)
        ]
        with self.reading() as reading:
            found = _merged(reading, queries, "sequence", limit=limit, newest_first=True)
            return tuple(
                ListedEvent(number=row["sequence"], event=event)
                for row, event in zip(found, _events(reading, found), strict=True)
            )

    def event_ids(self, beginning: str, *, limit: int) -> Sequence[str]:
        """Ids of events, open or ended, that begin so, in order. `beginning` is upper case."""
        wanted = _beginning(beginning, limit)
        with self.reading() as reading:
            return tuple(row["event_id"] for row in reading.rows("event_ids", wanted))

    def operation(self, operation_id: str) -> Operation | None:
        """An operation, open or ended, as last committed."""
        with self.reading() as reading:
            found = reading.rows("operations", _in([operation_id]))
            return next(iter(_operations(reading, found)), None)

    def operations(
        self, where: ListFilter, *, open_only: bool, limit: int, below: int | None = None
    ) -> Sequence[ListedOperation]:
        """Committed operations, newest first; those with a number below `below`."""
        queries = [
            list_queries.operations(one, open_only=open_only, below=below, limit=limit)
            for one in list_queries.each_scope(where)
        ]
        with self.reading() as reading:
            found = _merged(reading, queries, "sequence", limit=limit, newest_first=True)
            return tuple(
                ListedOperation(number=row["sequence"], operation=operation)
                for row, operation in zip(found, _operations(reading, found), strict=True)
            )

    def operation_ids(self, beginning: str, *, limit: int) -> Sequence[str]:
        """Ids of operations, open or ended, that begin so, in order."""
        wanted = _beginning(beginning, limit)
        with self.reading() as reading:
            return tuple(row["operation_id"] for row in reading.rows("operation_ids", wanted))

    def definition(self, vm: str) -> VmDefinition | None:
        """What a VM was when a host last showed it otherwise, as last committed."""
        with self.reading() as reading:
            row = reading.row("definition", {"vm": vm})
        return None if row is None else rows.DEFINITIONS.value(row)

    def first_reads(self, event_id: str) -> Sequence[FirstRead]:
        """The receipts of an event, oldest first."""
        with self.reading() as reading:
            found = reading.rows("first_reads", {"event_id": event_id})
        return tuple(rows.FIRST_READS.value(row) for row in found)

    def journal(self, where: ListFilter, *, after: int, limit: int) -> Sequence[JournalLine]:
        """Committed facts with a number above `after`, oldest first."""
        queries = [
            list_queries.journal(one, after=after, limit=limit)
            for one in list_queries.each_scope(where)
        ]
        with self.reading() as reading:
            found = _merged(reading, queries, "number", limit=limit, newest_first=False)
        return tuple(rows.journal_line(row) for row in found)

    def open_first_reads(self) -> Sequence[FirstRead]:
        """The receipts of all events that are scheduled."""
        with self.reading() as reading:
            found = reading.rows("first_reads_of_scheduled")
        return tuple(rows.FIRST_READS.value(row) for row in found)

    def journal_end(self) -> int:
        """The number of the newest committed fact, 0 while there is no fact."""
        with self.reading() as reading:
            return _journal_end(reading)

    def last_backup_ms(self) -> int | None:
        """When a backup was last given; None if none of the newest lines of the journal says so."""
        after = self.journal_end() - BACKUP_LOOKED_FOR_LINES_MAX
        with self.reading() as reading:
            row = reading.row("last_backup", {"after": after})
        return None if row is None else int(row["at_ms"])


def _merged(
    reading: QueryReader,
    queries: Sequence[ListQuery],
    number: str,
    *,
    limit: int,
    newest_first: bool,
) -> Sequence[Row]:
    """The first rows of all these lists together, in their order and each once."""
    if len(queries) == 1:
        return reading.listed(queries[0])
    found = {row[number]: row for query in queries for row in reading.listed(query)}
    return [found[key] for key in sorted(found, reverse=newest_first)[:limit]]


def _beginning(beginning: str, limit: int) -> Cells:
    return {"beginning": beginning, "end": beginning + AFTER_ALL_IDS, "limit": limit}


def _in(ids: Iterable[str]) -> Cells:
    """Which rows are meant, as one parameter."""
    return {"ids": json_text(sorted(ids))}


def _begun(
    reading: QueryReader, query: str, beginnings: Iterable[str], limit: int
) -> dict[str, tuple[str, ...]]:
    column = query.removesuffix("s")
    return {
        one: tuple(row[column] for row in reading.rows(query, _beginning(one, limit)))
        for one in sorted(beginnings)
    }


def _prunable(reading: QueryReader, before_ms: int) -> Prunable:
    """A slice of what ended before that, oldest first. Nothing of it belongs to what is open.

    Only the oldest are looked at, so that a slice costs the same in a store of any size. The
    newest event and operation stay, so that no later one gets the number of one that went.
    """
    lines = reading.rows("prunable_lines", {"before_ms": before_ms, "limit": SLICE_LINES_MAX})
    of_events: Cells = {"before_ms": before_ms, "limit": SLICE_EVENTS_MAX}
    events = tuple(row["event_id"] for row in reading.rows("prunable_events", of_events))
    operations = reading.rows("prunable_operations", of_events)
    reads = reading.row("count_first_reads", _in(events)) if events else None
    return Prunable(
        lines=tuple(row["number"] for row in lines),
        events=events,
        operations=tuple(row["operation_id"] for row in operations),
        receipts=0 if reads is None else reads["count"],
    )


def _events(reading: QueryReader, found: Sequence[Row]) -> Sequence[ScheduledEvent]:
    """The events of these rows, in their order."""
    actions = defaultdict(list)
    if found:
        for row in reading.rows("actions_of_events", _in(row["event_id"] for row in found)):
            actions[row["event_id"]].append(rows.ACTIONS.value(row))
    return [rows.EVENTS.value(row, actions=tuple(actions[row["event_id"]])) for row in found]


def _operations(reading: QueryReader, found: Sequence[Row]) -> Sequence[Operation]:
    """The operations of these rows, in their order."""
    if not found:
        return ()
    ids = _in(row["operation_id"] for row in found)
    members = reading.rows("members_of_operations", ids)
    return _whole(found, members, reading.rows("actions_of_operations", ids))


def _whole(
    found: Sequence[Row], of_members: Sequence[Row], of_actions: Sequence[Row]
) -> Sequence[Operation]:
    members = defaultdict(list)
    for row in of_members:
        members[row["operation_id"]].append((row["scope"], row["event_id"]))
    actions = {row["operation_id"]: rows.ACTIONS.value(row) for row in of_actions}
    return [
        rows.OPERATIONS.value(
            row,
            members=tuple(members[row["operation_id"]]),
            action=actions.get(row["operation_id"]),
        )
        for row in found
    ]


def snapshot(reading: QueryReader, commits: int) -> Snapshot:
    """Everything that is open; `commits` counts those of a database that does not do so itself."""
    lineage = reading.row("lineage")
    meta = {row["name"]: row["value"] for row in reading.rows("meta")}
    heartbeat = meta.get("heartbeat_ms")
    unfinished = reading.row("unfinished_inventory")
    vms, events = reading.rows("vms"), reading.rows("events_open")
    return Snapshot(
        scopes=_open_scopes(reading, vms, events),
        hosts=tuple(rows.HOSTS.value(row) for row in reading.rows("hosts")),
        operations=_open_operations(reading),
        heartbeat_ms=None if heartbeat is None else int(heartbeat),
        inventory=packed.unpack(meta["inventory"]) if "inventory" in meta else None,
        unfinished=unfinished["about"] if unfinished is not None else "",
        digests={r["vm"]: r["digest"] for r in reading.rows("definition_digests")},
        departed_vms=tuple(map(rows.DEPARTED_VMS.value, reading.rows("departed_vms"))),
        position=commits if lineage is None else lineage["commits"],
        epochs=tuple(Epoch(r["epoch_id"], r["first_commit"]) for r in reading.rows("epochs")),
        shown={r["name"]: r["shown_commit"] for r in reading.rows("shown_commits")},
        journal=_journal_extent(reading),
        tokens=tuple(map(rows.TOKENS.value, reading.rows("tokens"))),
        webhooks=tuple(map(rows.WEBHOOKS.value, reading.rows("webhooks"))),
        numbers=_numbers(reading, vms, events),
    )


def _numbers(reading: QueryReader, vms: Sequence[Row], events: Sequence[Row]) -> Numbers:
    """What is counted on from there; `vms` are by scope and in their order."""
    places = defaultdict(list)
    for row in vms:
        places[row["scope"]].append(row["position"])
    last = reading.row("last_numbers")
    return Numbers(
        events=0 if last is None else last["events"],
        operations=0 if last is None else last["operations"],
        open_events={row["event_id"]: row["sequence"] for row in events},
        positions={s: tuple(those) for s, those in places.items() if those[-1] != len(those)},
    )


def _journal_extent(reading: QueryReader) -> JournalExtent:
    extent = reading.row("journal_extent")
    if extent is None:
        raise LookupError("it is not known whose journal this is")
    return JournalExtent(
        installation=extent["installation_id"],
        generations=tuple(map(rows.GENERATIONS.value, reading.rows("generations"))),
        end=_journal_end(reading),
        pruned_through=extent["pruned_through"],
    )


def _journal_end(reading: QueryReader) -> int:
    row = reading.row("journal_end")
    return 0 if row is None else int(row["number"])


def _open_scopes(
    reading: QueryReader, of_vms: Sequence[Row], of_events: Sequence[Row]
) -> tuple[Scope, ...]:
    """Every scope with its VMs and open events: four queries, however many scopes there are."""
    vms = defaultdict(list)
    for row in of_vms:
        vms[row["scope"]].append(rows.VMS.value(row))
    actions = defaultdict(list)
    for row in reading.rows("actions_of_open_events"):
        actions[row["event_id"]].append(rows.ACTIONS.value(row))
    events = defaultdict(list)
    for row in of_events:
        events[row["scope"]].append(rows.EVENTS.value(row, actions=tuple(actions[row["event_id"]])))
    return tuple(
        rows.SCOPES.value(row, vms=tuple(vms[row["name"]]), events=tuple(events[row["name"]]))
        for row in reading.rows("scopes")
    )


def _open_operations(reading: QueryReader) -> tuple[Operation, ...]:
    members = reading.rows("operation_members_open")
    actions = reading.rows("actions_of_open_operations")
    return tuple(_whole(reading.rows("operations_open"), members, actions))
