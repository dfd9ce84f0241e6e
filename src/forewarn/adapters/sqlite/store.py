"""`ports.Store` on SQLite: what a change writes, and what can be read back.

A change is written as the difference between what was loaded and what follows, so a poll of a
scope with a hundred VMs writes one row. The queries are in `sql/queries.sql`, the mapping of
values to rows and what writes them in `rows`, connections and failures in `database`.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from sqlite3 import Row

from forewarn.adapters.sqlite import list_queries, rows
from forewarn.adapters.sqlite.data_folder import damaged, refuse_damaged
from forewarn.adapters.sqlite.database import Database, QueryReader, Unstorable
from forewarn.adapters.sqlite.list_queries import ListQuery
from forewarn.adapters.sqlite.opening import open_database
from forewarn.adapters.sqlite.table_columns import Cells
from forewarn.core import document
from forewarn.core.model import DAY_MS, Action, Host, Operation, ScheduledEvent, Scope
from forewarn.core.retention import SLICE_EVENTS_MAX, SLICE_LINES_MAX, Prunable
from forewarn.ports import (
    Change,
    Epoch,
    FirstRead,
    JournalExtent,
    JournalLine,
    ListedEvent,
    ListedOperation,
    ListFilter,
    RememberedAnswer,
    Snapshot,
    StaleRevision,
    StoreFailed,
    VmDefinition,
)
from forewarn.wire import packed

REMEMBERED_MS = 7 * DAY_MS  # for how long the answer to an order is kept, at least
# Of older answers, as many go with each new one at most: more than come, so that none pile up.
REMEMBERED_DELETED_MAX = 10
AFTER_ALL_IDS = "~"  # no id has it, and what ids have comes before it
BACKUP_LOOKED_FOR_LINES_MAX = 200_000  # of the journal, at a start, for when the last one was given


class SqliteStore:
    """`ports.Store`. Made by `in_folder` or `in_memory`; `close` it.

    The writing half (begin, save, commit, rollback, and remembered, known_ids and kept_*, which
    see what was saved since begin) belongs to the thread that called begin until it commits or
    rolls back. In memory the other reads of that thread see uncommitted changes too, and those of
    other threads wait for the transaction to end.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def in_folder(cls, data_dir: Path, *, new: bool = False) -> SqliteStore:
        """The store of a data folder, made if it is not there. Only one process can have it.

        Raises a `data_folder.DatabaseRefused` that says what is wrong with the folder and what to
        do, or StoreFailed. `new`: what would be refused as lost, damaged or another database is
        kept aside for a new one.
        """
        return cls(open_database(data_dir, new=new))

    @classmethod
    def in_memory(cls) -> SqliteStore:
        """A new, empty store that ends with the process."""
        return cls(Database.in_memory())

    # The writing half

    def position(self) -> int:
        """The number of the last commit; the next one has the number that follows."""
        return self._database.commits

    def begin_epoch(self, epoch: str) -> None:
        """A life of control begins: the next commit is the first one of this epoch."""
        self._database.begin_epoch(epoch)

    def begin(self) -> None:
        """Open the transaction that `commit` or `rollback` ends. May raise StoreFailed."""
        self._database.begin()

    def save(self, change: Change) -> None:
        """Write one change, whole or not at all. StaleRevision or StoreFailed.

        A change that no correct rule makes (a phase that goes back, a lower incarnation, an event
        that vanishes) is Unstorable, which is a bug and not an answer. A failed save leaves the
        other saves of the transaction as they are, unless the failure made SQLite undo the
        transaction: then later saves and `commit` raise StoreFailed.
        """
        with self._database.change():
            _Saving(self._database, change).save()

    def commit(self) -> None:
        """Durable when it returns. StoreFailed otherwise, and then nothing since begin holds."""
        self._database.commit()

    def rollback(self) -> None:
        """Forget everything since begin. Never raises."""
        self._database.rollback()

    def remembered(self, key: str) -> RememberedAnswer | None:
        """The answer kept under an idempotency key, also one saved since begin."""
        with self._database.reading_own() as reading:
            row = reading.row("remembered", {"idempotency_key": key})
        return None if row is None else rows.REMEMBERED.value(row)

    def known_ids(self, scope: str, event_ids: Collection[str]) -> frozenset[str]:
        """Those of the (upper-case) ids that the scope has or ever had, also since begin."""
        with self._database.reading_own() as reading:
            return frozenset(
                event_id
                for event_id in event_ids
                if reading.row("event_known", {"scope": scope, "event_id": event_id}) is not None
            )

    def prunable(self, before_ms: int) -> Prunable:
        """A slice of what ended before that, oldest first, also as saved since begin.

        Only the oldest are looked at, so that a slice costs the same in a store of any size. The
        newest event and operation stay, so that no later one gets the number of one that went.
        """
        of_lines = {"before_ms": before_ms, "limit": SLICE_LINES_MAX}
        of_events = {"before_ms": before_ms, "limit": SLICE_EVENTS_MAX}
        with self._database.reading_own() as reading:
            lines = reading.rows("prunable_lines", of_lines)
            events = reading.rows("prunable_events", of_events)
            operations = reading.rows("prunable_operations", of_events)
            reads = [reading.row("count_first_reads", {"event_id": r["event_id"]}) for r in events]
        return Prunable(
            lines=tuple(row["number"] for row in lines),
            events=tuple(row["event_id"] for row in events),
            operations=tuple(row["operation_id"] for row in operations),
            receipts=sum(row["count"] for row in reads if row is not None),
        )

    def kept_event(self, event_id: str) -> ScheduledEvent | None:
        """An event, open or ended, also as saved since begin."""
        with self._database.reading_own() as reading:
            row = reading.row("event", {"event_id": event_id})
            return None if row is None else _event(reading, row)

    def kept_operation(self, operation_id: str) -> Operation | None:
        """An operation, open or ended, also as saved since begin."""
        with self._database.reading_own() as reading:
            row = reading.row("operation", {"operation_id": operation_id})
            return None if row is None else _operation(reading, row)

    def kept_event_ids(self, beginning: str, limit: int) -> Sequence[str]:
        """Ids of events, open or ended, that begin so, by id; also as saved since begin."""
        return self._kept_ids("event_ids", beginning, limit)

    def kept_operation_ids(self, beginning: str, limit: int) -> Sequence[str]:
        """The same of operations."""
        return self._kept_ids("operation_ids", beginning, limit)

    def _kept_ids(self, query: str, beginning: str, limit: int) -> Sequence[str]:
        with self._database.reading_own() as reading:
            return [row[0] for row in reading.rows(query, _beginning(beginning, limit))]

    # The reading half

    def load(self) -> Snapshot:
        """Everything that is open: scopes and hosts by name, operations oldest first.

        Raises StoreFailed, or DamagedDatabase if a row cannot have been written by us.
        """
        path = self._database.path
        try:
            with self._database.reading() as reading:
                return _snapshot(reading, self._database.commits)
        except StoreFailed as failed:
            if path is not None and isinstance(failed.__cause__, sqlite3.Error):
                refuse_damaged(failed.__cause__, path)
            raise
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            if path is None:
                raise
            raise damaged(path, f"a row makes no sense: {error}") from error

    def event(self, event_id: str) -> ScheduledEvent | None:
        """An event, open or ended, as last committed."""
        with self._database.reading() as reading:
            row = reading.row("event", {"event_id": event_id})
            return None if row is None else _event(reading, row)

    def events(
        self, where: ListFilter, *, open_only: bool, limit: int, below: int | None = None
    ) -> Sequence[ListedEvent]:
        """Committed events, newest first; those with a number below `below`."""
        queries = [
            list_queries.events(one, open_only=open_only, below=below, limit=limit)
            for one in list_queries.each_scope(where)
        ]
        with self._database.reading() as reading:
            return tuple(
                ListedEvent(number=row["sequence"], event=_event(reading, row))
                for row in _merged(reading, queries, "sequence", limit=limit, newest_first=True)
            )

    def event_ids(self, beginning: str, *, limit: int) -> Sequence[str]:
        """Ids of events, open or ended, that begin so, in order. `beginning` is upper case."""
        wanted = _beginning(beginning, limit)
        with self._database.reading() as reading:
            return tuple(row["event_id"] for row in reading.rows("event_ids", wanted))

    def operation(self, operation_id: str) -> Operation | None:
        """An operation, open or ended, as last committed."""
        with self._database.reading() as reading:
            row = reading.row("operation", {"operation_id": operation_id})
            return None if row is None else _operation(reading, row)

    def operations(
        self, where: ListFilter, *, open_only: bool, limit: int, below: int | None = None
    ) -> Sequence[ListedOperation]:
        """Committed operations, newest first; those with a number below `below`."""
        queries = [
            list_queries.operations(one, open_only=open_only, below=below, limit=limit)
            for one in list_queries.each_scope(where)
        ]
        with self._database.reading() as reading:
            return tuple(
                ListedOperation(number=row["sequence"], operation=_operation(reading, row))
                for row in _merged(reading, queries, "sequence", limit=limit, newest_first=True)
            )

    def operation_ids(self, beginning: str, *, limit: int) -> Sequence[str]:
        """Ids of operations, open or ended, that begin so, in order."""
        wanted = _beginning(beginning, limit)
        with self._database.reading() as reading:
            return tuple(row["operation_id"] for row in reading.rows("operation_ids", wanted))

    def definition(self, vm: str) -> VmDefinition | None:
        """What a VM was when a host last showed it otherwise, as last committed."""
        with self._database.reading() as reading:
            row = reading.row("definition", {"vm": vm})
        return None if row is None else rows.DEFINITIONS.value(row)

    def first_reads(self, event_id: str) -> Sequence[FirstRead]:
        """The receipts of an event, oldest first."""
        with self._database.reading() as reading:
            found = reading.rows("first_reads", {"event_id": event_id})
        return tuple(rows.FIRST_READS.value(row) for row in found)

    def journal(self, where: ListFilter, *, after: int, limit: int) -> Sequence[JournalLine]:
        """Committed facts with a number above `after`, oldest first."""
        queries = [
            list_queries.journal(one, after=after, limit=limit)
            for one in list_queries.each_scope(where)
        ]
        with self._database.reading() as reading:
            found = _merged(reading, queries, "number", limit=limit, newest_first=False)
        return tuple(rows.journal_line(row) for row in found)

    def open_first_reads(self) -> Sequence[FirstRead]:
        """The receipts of all events that are scheduled."""
        with self._database.reading() as reading:
            found = reading.rows("first_reads_of_scheduled")
        return tuple(rows.FIRST_READS.value(row) for row in found)

    def last_backup_ms(self) -> int | None:
        """When a backup was last given; None if none of the newest lines of the journal says so."""
        after = self.journal_end() - BACKUP_LOOKED_FOR_LINES_MAX
        with self._database.reading() as reading:
            row = reading.row("last_backup", {"after": after})
        return None if row is None else int(row["at_ms"])

    def sizes(self) -> Mapping[str, int]:
        """The bytes of the database file and of its WAL; 0 of what is not there."""
        path = self._database.path
        if path is None:
            return {"database": 0, "wal": 0}
        files = {"database": path, "wal": path.with_name(f"{path.name}-wal")}
        return {name: _bytes_of(file) for name, file in files.items()}

    def journal_end(self) -> int:
        """The number of the newest committed fact, 0 while there is no fact."""
        with self._database.reading() as reading:
            return _journal_end(reading)

    def backup(
        self,
        target: Path,
        *,
        overwrite: bool = False,
        files: Callable[[], Mapping[str, bytes]] = dict,
    ) -> None:
        """Write a consistent copy of what is committed while the store is in use, and `files`.

        The target is whole and on the disk when this returns, else it is as it was. Raises
        `data_folder.FileExists` if it exists and `overwrite` was not asked for, and StoreFailed
        (never a fatal one) if it cannot be written.
        """
        # With the first backup: an emulator makes none.
        from forewarn.adapters.sqlite.backup import write_backup  # noqa: PLC0415 - see above

        write_backup(self._database, target, overwrite=overwrite, files=files)

    def close(self) -> None:
        """End it. Everything committed stays. A second call does nothing."""
        self._database.close()


class _Saving:
    """Writes one change, inside a savepoint. Aggregates go in the order of their names."""

    def __init__(self, database: Database, change: Change) -> None:
        self._database = database
        self._change = change
        self._commit = database.commits + 1

    def save(self) -> None:
        change = self._change
        if change.commit not in (0, self._commit):
            raise Unstorable(f"a change for commit {change.commit} is in commit {self._commit}")
        scopes = sorted(change.scopes, key=lambda pair: pair[1].name)
        for host_before, host in sorted(change.hosts, key=lambda pair: pair[1].name):
            self._save_host(host_before, host)
        for scope_before, scope in scopes:
            self._save_scope_row(scope_before, scope)
        for scope_before, scope in scopes:
            # Of all scopes before any arrives: a VM may leave one scope for another.
            self._delete_vms(scope_before, scope)
        for scope_before, scope in scopes:
            self._save_vms(scope_before, scope)
            self._save_events(scope_before, scope)
        for before, operation in sorted(change.operations, key=lambda p: p[1].operation_id):
            self._save_operation(before, operation)
        for name in sorted(change.removed_scopes):
            self._remove_scope(name)
        for name in sorted(change.removed_hosts):
            self._expect_one("delete_host", {"name": name}, f"host {name} is not there")
        self._save_the_rest(change)

    def _save_the_rest(self, change: Change) -> None:
        self._save_lines(change.lines)
        self._database.write_all(
            "insert_first_read", map(rows.FIRST_READS.cells, change.first_reads)
        )
        gone = ({"vm": vm} for vm in change.removed_definitions)
        self._database.write_all("delete_definition", gone)
        self._database.write_all(
            "upsert_definition", map(rows.DEFINITIONS.cells, change.definitions)
        )
        self._database.write_all("delete_departed_vm", map(rows.vm_key_cells, change.forgotten_vms))
        self._database.write_all(
            "upsert_departed_vm", map(rows.DEPARTED_VMS.cells, change.departed_vms)
        )
        gone = ({"token_id": token_id} for token_id in change.removed_tokens)
        self._database.write_all("delete_token", gone)
        self._database.write_all("upsert_token", map(rows.TOKENS.cells, change.tokens))
        gone = ({"webhook_id": webhook_id} for webhook_id in change.removed_webhooks)
        self._database.write_all("delete_webhook", gone)
        self._database.write_all("upsert_webhook", map(rows.WEBHOOKS.cells, change.webhooks))
        if change.remembered is not None:
            self._remember(change.remembered)
        if change.heartbeat_ms is not None:
            heartbeat = str(change.heartbeat_ms)
            self._database.write("upsert_meta", {"name": "heartbeat_ms", "value": heartbeat})
        if change.inventory is not None:
            kept = change.inventory_packed or packed.pack(change.inventory)
            self._database.write("upsert_meta", {"name": "inventory", "value": kept})
        if change.pruned is not None:
            self._prune(change.pruned)
        if change.unfinished:
            self._database.write("upsert_unfinished_inventory", {"about": change.unfinished})
        elif change.unfinished is not None:
            self._database.write("delete_unfinished_inventory", {})

    def _save_lines(self, lines: Sequence[JournalLine]) -> None:
        """Under the numbers that they have, which are those that follow."""
        if not lines:
            return
        with self._database.reading_own() as reading:
            end = _journal_end(reading)
        if end >= lines[0].number:
            raise StaleRevision(
                f"the journal has line {lines[0].number} already, and ends at {end}"
            )
        if [line.number for line in lines] != list(range(end + 1, end + 1 + len(lines))):
            raise Unstorable(f"line {lines[0].number} would follow line {end} of the journal")
        self._database.write_all("insert_line", map(rows.line_cells, lines))

    def _prune(self, pruned: Prunable) -> None:
        """After the lines: the one that says so has the highest number, and no later one its."""
        self._database.write_all("delete_line", ({"number": number} for number in pruned.lines))
        if pruned.lines:
            self._database.write("prune_through", {"number": max(pruned.lines)})
        events = [{"event_id": event_id} for event_id in pruned.events]
        operations = [{"operation_id": operation_id} for operation_id in pruned.operations]
        self._database.write_all("delete_first_reads", events)
        self._database.write_all("delete_actions_of_event", events)
        self._database.write_all("delete_ended_event", events)
        self._database.write_all("delete_operation_members", operations)
        self._database.write_all("delete_actions_of_operation", operations)
        self._database.write_all("delete_ended_operation", operations)

    def _remember(self, remembered: RememberedAnswer) -> None:
        self._expect_one(
            "insert_remembered",
            rows.REMEMBERED.cells(remembered),
            f"an answer is already kept under the idempotency key {remembered.key}",
        )
        oldest_kept_ms = remembered.at_ms - REMEMBERED_MS
        self._database.write(
            "delete_remembered", {"before_ms": oldest_kept_ms, "limit": REMEMBERED_DELETED_MAX}
        )

    def _save_host(self, before: Host | None, host: Host) -> None:
        if before == host:
            return
        cells = rows.HOSTS.cells(host)
        what = f"host {host.name}"
        if before is None:
            self._insert("insert_host", cells, what)
            return
        _refuse_same_revision(before.revision, host.revision, what)
        stale = f"{what} is no longer at revision {before.revision}"
        self._expect_one("update_host", {**cells, "revision_before": before.revision}, stale)

    def _save_scope_row(self, before: Scope | None, scope: Scope) -> None:
        if before == scope:
            return
        shown = before is None or scope.name in self._change.shown
        cells = rows.SCOPES.cells(scope, shown_commit=self._commit if shown else None)
        what = f"scope {scope.name}"
        if before is None:
            self._insert("insert_scope", cells, what)
            return
        _refuse_same_revision(before.revision, scope.revision, what)
        if self._database.write("update_scope", {**cells, "revision_before": before.revision}):
            return
        with self._database.reading_own() as reading:
            found = reading.row("scope_revision", {"name": scope.name})
        if found is None or found["revision"] != before.revision:
            raise StaleRevision(f"{what} is no longer at revision {before.revision}")
        raise Unstorable(
            f"{what}: the incarnation {found['incarnation']} may not go back to {scope.incarnation}"
        )

    def _delete_vms(self, before: Scope | None, scope: Scope) -> None:
        if before is None or before.vms == scope.vms:
            return
        stays = {vm.name for vm in scope.vms}
        for vm in before.vms:
            if vm.name not in stays:
                self._database.write("delete_vm", {"name": vm.name, "scope": scope.name})

    def _save_vms(self, before: Scope | None, scope: Scope) -> None:
        """Write the VMs that are new, changed, or no longer after their predecessor."""
        known = () if before is None else before.vms
        if known == scope.vms:
            return
        values_before = {vm.name: vm for vm in known}
        with self._database.reading_own() as reading:
            found = reading.rows("vm_positions", {"scope": scope.name})
        positions_before: dict[str, int] = {row["name"]: row["position"] for row in found}
        position = 0
        for vm in scope.vms:
            position = max(position + 1, positions_before.get(vm.name, 0))
            if (vm, position) == (values_before.get(vm.name), positions_before.get(vm.name)):
                continue
            cells = rows.VMS.cells(vm, scope=scope.name, position=position)
            if self._database.write("upsert_vm", cells) != 1:
                raise Unstorable(f"VM {vm.name} of scope {scope.name} is in another scope already")

    def _save_events(self, before: Scope | None, scope: Scope) -> None:
        moved = document.moved(before, scope)
        for event_before, event in moved.pairs:
            if event_before != event:
                self._save_event(scope, event_before, event)
        for event in moved.gone:
            if not event.phase.ended:
                raise Unstorable(f"event {event.event_id} left scope {scope.name} without an end")

    def _save_event(
        self, scope: Scope, before: ScheduledEvent | None, event: ScheduledEvent
    ) -> None:
        if event.scope != scope.name:
            raise Unstorable(f"event {event.event_id} of {event.scope} is in scope {scope.name}")
        cells = rows.EVENTS.cells(event)
        if before is None:
            self._database.write("insert_event", cells)
        elif self._database.write("update_event", cells) != 1:
            raise Unstorable(
                f"event {event.event_id} may not become {event.phase.value}"
                f" with not_before_ms {event.not_before_ms}"
            )
        mentions = rows.mentions(before, event, scope)
        self._database.write_all("insert_event_mentions", mentions)
        self._save_actions(() if before is None else before.actions, event.actions, event=event)

    def _save_operation(self, before: Operation | None, operation: Operation) -> None:
        if before == operation:
            return
        cells = rows.OPERATIONS.cells(operation)
        what = f"operation {operation.operation_id}"
        if before is None:
            self._insert("insert_operation", cells, what)
        else:
            _refuse_same_revision(before.revision, operation.revision, what)
            self._update_operation(before, cells, what)
        self._save_members(() if before is None else before.members, operation)
        self._save_actions(
            () if before is None or before.action is None else (before.action,),
            () if operation.action is None else (operation.action,),
            operation=operation,
        )

    def _update_operation(self, before: Operation, cells: Cells, what: str) -> None:
        if self._database.write("update_operation", {**cells, "revision_before": before.revision}):
            return
        with self._database.reading_own() as reading:
            found = reading.row("operation_revision", {"operation_id": before.operation_id})
        if found is None or found["revision"] != before.revision:
            raise StaleRevision(f"{what} is no longer at revision {before.revision}")
        raise Unstorable(f"{what} has ended and may not become {cells['phase']}")

    def _save_members(self, before: Sequence[tuple[str, str]], operation: Operation) -> None:
        if before == operation.members:
            return
        operation_id = operation.operation_id
        self._database.write("delete_operation_members", {"operation_id": operation_id})
        for position, (scope, event_id) in enumerate(operation.members):
            self._database.write(
                "insert_operation_member",
                {
                    "operation_id": operation_id,
                    "position": position,
                    "scope": scope,
                    "event_id": event_id,
                },
            )

    def _save_actions(
        self,
        before: Sequence[Action],
        actions: Sequence[Action],
        *,
        event: ScheduledEvent | None = None,
        operation: Operation | None = None,
    ) -> None:
        known = {action.action_id: (place, action) for place, action in enumerate(before)}
        for position, action in enumerate(actions):
            if known.pop(action.action_id, None) == (position, action):
                continue
            cells = rows.ACTIONS.cells(
                action,
                position=position,
                event_id=None if event is None else event.event_id,
                operation_id=None if operation is None else operation.operation_id,
            )
            if self._database.write("upsert_action", cells) != 1:
                raise Unstorable(
                    f"action {action.action_id} has another owner or an epoch above {action.epoch}"
                )
        for action_id in known:
            self._database.write("delete_action", {"action_id": action_id})

    def _remove_scope(self, name: str) -> None:
        with self._database.reading_own() as reading:
            if reading.row("event_of_scope_open", {"scope": name}) is not None:
                raise Unstorable(f"scope {name} has open events and may not be removed")
        self._database.write("delete_vms_of_scope", {"scope": name})
        self._expect_one("delete_scope", {"name": name}, f"scope {name} is not there")

    def _insert(self, query: str, cells: Cells, what: str) -> None:
        self._expect_one(query, cells, f"{what} is there already")

    def _expect_one(self, query: str, cells: Mapping[str, str | int | None], stale: str) -> None:
        if self._database.write(query, cells) != 1:
            raise StaleRevision(stale)


def _bytes_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _refuse_same_revision(before: int, after: int, what: str) -> None:
    """Without a new revision the next writer could not tell that this one was here."""
    if after <= before:
        raise Unstorable(f"{what}: a write needs a revision above {before}, not {after}")


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


def _event(reading: QueryReader, row: Row) -> ScheduledEvent:
    found = reading.rows("actions_of_event", {"event_id": row["event_id"]})
    return rows.EVENTS.value(row, actions=tuple(map(rows.ACTIONS.value, found)))


def _operation(reading: QueryReader, row: Row) -> Operation:
    wanted = {"operation_id": row["operation_id"]}
    members = tuple((m["scope"], m["event_id"]) for m in reading.rows("operation_members", wanted))
    found = reading.row("actions_of_operation", wanted)
    action = None if found is None else rows.ACTIONS.value(found)
    return rows.OPERATIONS.value(row, members=members, action=action)


def _snapshot(reading: QueryReader, commits: int) -> Snapshot:
    """Everything that is open; `commits` counts those of a database that does not do so itself."""
    lineage = reading.row("lineage")
    meta = {row["name"]: row["value"] for row in reading.rows("meta")}
    heartbeat = meta.get("heartbeat_ms")
    unfinished = reading.row("unfinished_inventory")
    return Snapshot(
        scopes=_open_scopes(reading),
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


def _open_scopes(reading: QueryReader) -> tuple[Scope, ...]:
    """Every scope with its VMs and open events: four queries, however many scopes there are."""
    vms = defaultdict(list)
    for row in reading.rows("vms"):
        vms[row["scope"]].append(rows.VMS.value(row))
    actions = defaultdict(list)
    for row in reading.rows("actions_of_open_events"):
        actions[row["event_id"]].append(rows.ACTIONS.value(row))
    events = defaultdict(list)
    for row in reading.rows("events_open"):
        events[row["scope"]].append(rows.EVENTS.value(row, actions=tuple(actions[row["event_id"]])))
    return tuple(
        rows.SCOPES.value(row, vms=tuple(vms[row["name"]]), events=tuple(events[row["name"]]))
        for row in reading.rows("scopes")
    )


def _open_operations(reading: QueryReader) -> tuple[Operation, ...]:
    members = defaultdict(list)
    for row in reading.rows("operation_members_open"):
        members[row["operation_id"]].append((row["scope"], row["event_id"]))
    found = reading.rows("actions_of_open_operations")
    actions = {row["operation_id"]: rows.ACTIONS.value(row) for row in found}
    return tuple(
        rows.OPERATIONS.value(
            row,
            members=tuple(members[row["operation_id"]]),
            action=actions.get(row["operation_id"]),
        )
        for row in reading.rows("operations_open")
    )
