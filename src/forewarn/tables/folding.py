"""A batch of changes folded into rows: each row that it touches is written once, as it is last.

Pure: a database executes the `Batch` that comes of it. The numbers of events, operations and lines,
and the places of VMs, are counted here and never asked of the database. A change that no correct
rule makes is refused before it touches the batch, so it costs the others nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Literal, TypeVar

from msgspec import Struct

from forewarn.core import document
from forewarn.core.model import (
    Action,
    Host,
    Operation,
    OperationPhase,
    Phase,
    ScheduledEvent,
    Scope,
)
from forewarn.core.retention import Prunable
from forewarn.ports import (
    Batch,
    Cell,
    Change,
    JournalLine,
    Snapshot,
    StaleRevision,
    TableWrites,
    Unstorable,
)
from forewarn.tables import table_specs
from forewarn.tables.columns import Cells
from forewarn.tables.table_specs import REVISION_BEFORE, SPECS, TABLES, VMS_OF_SCOPE
from forewarn.wire import packed

K = TypeVar("K")
V = TypeVar("V")
Way = Literal["", "insert", "update", "upsert"]
Key = tuple[Cell, ...]

_FORWARD = {
    Phase.SCHEDULED: frozenset(Phase),
    Phase.STARTED: frozenset({Phase.STARTED, Phase.COMPLETED, Phase.FAILED}),
}


class RowNumbers(Struct):
    """What the writer counts, as last committed. `Folding` counts on and does not change it."""

    commit: int
    line: int
    event: int
    operation: int
    open_events: dict[str, dict[str, int]]  # their numbers, by scope and id
    positions: dict[str, tuple[int, ...]]  # see `ports.Numbers`

    @classmethod
    def after(cls, snapshot: Snapshot) -> RowNumbers:
        """What is counted on from what a store holds."""
        numbers = snapshot.numbers
        events: dict[str, dict[str, int]] = {}
        for scope in snapshot.scopes:
            if scope.events:
                events[scope.name] = {
                    event.event_id: numbers.open_events[event.event_id] for event in scope.events
                }
        return cls(
            commit=snapshot.position,
            line=snapshot.journal.end,
            event=numbers.events,
            operation=numbers.operations,
            open_events=events,
            positions=dict(numbers.positions),
        )


class _Write(Struct, frozen=True):
    """One write of one row: what names it is deleted, or the row becomes this."""

    table: str
    key: Key
    way: Way
    cells: Cells


class _Row(Struct):
    """What a batch does to one row: delete what was there, then write it, or one of both."""

    deleted: Cells | None
    way: Way
    cells: Cells


class Folding:
    """The rows of one batch, change by change; `batch` is what a store is given."""

    def __init__(self, counted: RowNumbers) -> None:
        self._counted = counted
        self.commit = counted.commit + 1
        self._line, self._event = counted.line, counted.event
        self._operation = counted.operation
        self._open: dict[str, dict[str, int]] = {}  # of scopes whose open events are others now
        self._positions: dict[str, tuple[int, ...]] = {}  # an empty one: 1, 2, 3 and so on
        self._tables: dict[str, dict[Key, _Row]] = defaultdict(dict)
        self._pruned: list[Prunable] = []

    def add(self, change: Change) -> None:
        """Add a change, or nothing of it. StaleRevision or Unstorable."""
        if change.commit not in (0, self.commit):
            raise Unstorable(f"a change for commit {change.commit} is in commit {self.commit}")
        adding = _Adding(self, change)
        undo: list[tuple[dict[Key, _Row], Key, _Row | None]] = []
        try:
            for write in adding.writes():
                known = self._tables[write.table]
                row = known.get(write.key)
                undo.append((known, write.key, row and copy(row)))
                self._fold(known, row, write)
        except StaleRevision:
            for known, key, before in reversed(undo):
                _put_or_forget(known, key, before)
            raise
        self._line, self._event = adding.line, adding.event
        self._operation = adding.operation
        self._open.update(adding.open)
        self._positions.update(adding.positions)
        for name in change.removed_scopes:
            self._forget_scope(name)
        if change.pruned is not None:
            self._pruned.append(change.pruned)

    def batch(self) -> Batch:
        """Everything that was added."""
        return Batch(
            commit=self.commit,
            tables={
                spec.name: _writes_of(self._tables[spec.name].values())
                for spec in TABLES
                if spec.name in self._tables
            },
            pruned=_together(self._pruned) if self._pruned else None,
        )

    def committed(self) -> None:
        """The batch is durable: what was counted counts."""
        counted = self._counted
        counted.commit, counted.line = self.commit, self._line
        counted.event, counted.operation = self._event, self._operation
        for scope, numbers in self._open.items():
            _put_or_forget(counted.open_events, scope, numbers)
        for scope, positions in self._positions.items():
            _put_or_forget(counted.positions, scope, positions)

    # What a change goes on from.

    def counts(self) -> tuple[int, int, int]:
        """The last line, event and operation."""
        return self._line, self._event, self._operation

    def open_events(self, scope: str) -> dict[str, int]:
        """The numbers of its open events, by id."""
        found = self._open.get(scope)
        return self._counted.open_events.get(scope, {}) if found is None else found

    def positions(self, scope: str) -> tuple[int, ...]:
        """The places of its VMs; empty for 1, 2, 3 and so on."""
        found = self._positions.get(scope)
        return self._counted.positions.get(scope, ()) if found is None else found

    def _fold(self, known: dict[Key, _Row], row: _Row | None, write: _Write) -> None:
        """Go on from what this batch has made of the row. Raises StaleRevision if it cannot."""
        if row is None:
            deleted = None if write.way else write.cells
            known[write.key] = _Row(deleted, write.way, write.cells)
        elif not write.way:
            if not row.way and SPECS[write.table].must_be_there:
                raise StaleRevision(f"{_name(write)} is not there")
            self._fold_deletion(known, row, write)
        elif not (row.way and SPECS[write.table].first_stays):
            _refuse_stale(row, write)
            row.cells = _after(row, write.cells)
            row.way = row.way or write.way

    @staticmethod
    def _fold_deletion(known: dict[Key, _Row], row: _Row, write: _Write) -> None:
        if row.way == "insert" and row.deleted is None:
            del known[write.key]  # it never was there
            return
        if row.deleted is None:
            row.deleted = write.cells
        row.way, row.cells = "", {}

    def _forget_scope(self, name: str) -> None:
        """The VMs of a scope go with it: those that the database has, and those of this batch."""
        vms = self._tables["vm"]
        for key, row in list(vms.items()):
            if row.way and row.cells["scope"] == name:
                self._fold_deletion(
                    vms, row, _Write("vm", key, "", {"name": key[0], "scope": name})
                )
        self._open[name], self._positions[name] = {}, ()


class _Adding:
    """What one change writes, counted on from what was folded before. Nothing is folded here."""

    def __init__(self, folding: Folding, change: Change) -> None:
        self._folding = folding
        self._change = change
        self.line, self.event, self.operation = folding.counts()
        self.open: dict[str, dict[str, int]] = {}
        self.positions: dict[str, tuple[int, ...]] = {}
        self._writes: list[_Write] = []

    def writes(self) -> Sequence[_Write]:
        """Aggregates in the order of their names. May raise StaleRevision and Unstorable."""
        change = self._change
        scopes = sorted(change.scopes, key=lambda pair: pair[1].name)
        for host_before, host in sorted(change.hosts, key=lambda pair: pair[1].name):
            self._host(host_before, host)
        for scope_before, scope in scopes:
            self._scope(scope_before, scope)
        for scope_before, scope in scopes:
            # Of all scopes before any arrives: a VM may leave one scope for another.
            self._leaving_vms(scope_before, scope)
        for scope_before, scope in scopes:
            self._vms(scope_before, scope)
            self._events(scope_before, scope)
        for before, operation in sorted(change.operations, key=lambda p: p[1].operation_id):
            self._operation(before, operation)
        for name in sorted(change.removed_scopes):
            self._removed_scope(name)
        for name in sorted(change.removed_hosts):
            self._delete("host", name=name)
        self._lines(change.lines)
        self._rest(change)
        return self._writes

    def _put(self, table: str, way: Way, cells: Cells) -> None:
        key = tuple(cells[column] for column in SPECS[table].key)
        self._writes.append(_Write(table, key, way, cells))

    def _delete(self, table: str, **named: str | int) -> None:
        key = tuple(named[column] for column in SPECS[table].key if column in named)
        self._writes.append(_Write(table, key, "", dict(named)))

    def _host(self, before: Host | None, host: Host) -> None:
        if before != host:
            self._locked("host", before, host, table_specs.HOSTS.cells(host))

    def _locked(
        self,
        table: str,
        before: Host | Scope | Operation | None,
        after: Host | Scope | Operation,
        cells: Cells,
    ) -> None:
        """A row that changes only if no other write came since it was loaded."""
        if before is None:
            self._put(table, "insert", cells)
            return
        if after.revision <= before.revision:  # the next writer could not tell that this one was
            what = f"{table} {cells[SPECS[table].key[0]]}"
            raise Unstorable(
                f"{what}: a write needs a revision above {before.revision}, not {after.revision}"
            )
        cells[REVISION_BEFORE] = before.revision
        self._put(table, "update", cells)

    def _scope(self, before: Scope | None, scope: Scope) -> None:
        if before == scope:
            return
        if before is not None and scope.incarnation < before.incarnation:
            raise Unstorable(
                f"scope {scope.name}: the incarnation {before.incarnation} may not go back to"
                f" {scope.incarnation}"
            )
        shown = before is None or scope.name in self._change.shown
        commit = self._folding.commit if shown else None
        self._locked("scope", before, scope, table_specs.SCOPES.cells(scope, shown_commit=commit))

    def _leaving_vms(self, before: Scope | None, scope: Scope) -> None:
        if before is None or before.vms == scope.vms:
            return
        stays = {vm.name for vm in scope.vms}
        for vm in before.vms:
            if vm.name not in stays:
                self._delete("vm", name=vm.name, scope=scope.name)

    def _vms(self, before: Scope | None, scope: Scope) -> None:
        """The VMs that are new, changed, or no longer after their predecessor."""
        known = () if before is None else before.vms
        if known == scope.vms:
            return
        values_before = {vm.name: vm for vm in known}
        places = self._folding.positions(scope.name) or range(1, len(known) + 1)
        positions_before = dict(zip(values_before, places, strict=True))
        positions, position = [], 0
        for vm in scope.vms:
            position = max(position + 1, positions_before.get(vm.name, 0))
            positions.append(position)
            if (vm, position) == (values_before.get(vm.name), positions_before.get(vm.name)):
                continue
            self._put(
                "vm", "upsert", table_specs.VMS.cells(vm, scope=scope.name, position=position)
            )
        gapless = not positions or positions[-1] == len(positions)
        self.positions[scope.name] = () if gapless else tuple(positions)

    def _events(self, before: Scope | None, scope: Scope) -> None:
        moved = document.moved(before, scope)
        for event_before, event in moved.pairs:
            if event_before != event:
                self._scheduled_event(scope, event_before, event)
        for event in moved.gone:
            if not event.phase.ended:
                raise Unstorable(f"event {event.event_id} left scope {scope.name} without an end")

    def _scheduled_event(
        self, scope: Scope, before: ScheduledEvent | None, event: ScheduledEvent
    ) -> None:
        if event.scope != scope.name:
            raise Unstorable(f"event {event.event_id} of {event.scope} is in scope {scope.name}")
        number = self._number(scope.name, before, event)
        if before is None:
            self._put("scheduled_event", "insert", table_specs.EVENTS.cells(event, sequence=number))
        else:
            _refuse_to_go_back(before, event)
            self._put("scheduled_event", "update", table_specs.EVENTS.cells(event))
        if number is not None:
            for what, word in table_specs.mentions(before, event, scope):
                self._put(
                    "event_mention", "insert", {"what": what, "word": word, "sequence": number}
                )
        known = () if before is None else before.actions
        self._actions(known, event.actions, event_id=event.event_id)

    def _number(
        self, scope: str, before: ScheduledEvent | None, event: ScheduledEvent
    ) -> int | None:
        """The number of the event. A new one gets the next; one that ends has it no longer."""
        numbers = self.open.get(scope)
        if numbers is None and (before is None or event.phase.ended):
            numbers = self.open[scope] = dict(self._folding.open_events(scope))
        if numbers is None:
            return self._folding.open_events(scope).get(event.event_id)
        if before is None:
            self.event += 1
            numbers[event.event_id] = self.event
        number = numbers.get(event.event_id)
        if event.phase.ended:
            numbers.pop(event.event_id, None)
        return number

    def _operation(self, before: Operation | None, operation: Operation) -> None:
        if before == operation:
            return
        operation_id, cells = operation.operation_id, table_specs.OPERATIONS.cells(operation)
        if before is None:
            self.operation += 1
            cells["sequence"] = self.operation
        elif before.phase is OperationPhase.ENDED is not operation.phase:
            phase = operation.phase.value
            raise Unstorable(f"operation {operation_id} has ended and may not become {phase}")
        self._locked("operation", before, operation, cells)
        self._members(before, operation)
        known = () if before is None or before.action is None else (before.action,)
        actions = () if operation.action is None else (operation.action,)
        self._actions(known, actions, operation_id=operation_id)

    def _members(self, before: Operation | None, operation: Operation) -> None:
        known = () if before is None else before.members
        if known == operation.members:
            return
        key = operation.operation_id
        for position in range(len(known)):
            cells: Cells = {"operation_id": key, "position": position}
            self._writes.append(_Write("operation_member", (key, position), "", cells))
        for position, (scope, event_id) in enumerate(operation.members):
            cells = {"operation_id": key, "position": position}
            self._put("operation_member", "insert", {**cells, "scope": scope, "event_id": event_id})

    def _actions(
        self,
        before: Sequence[Action],
        actions: Sequence[Action],
        *,
        event_id: str | None = None,
        operation_id: str | None = None,
    ) -> None:
        known = {action.action_id: (place, action) for place, action in enumerate(before)}
        for position, action in enumerate(actions):
            was = known.pop(action.action_id, None)
            if was == (position, action):
                continue
            if was is not None and action.epoch < was[1].epoch:
                raise Unstorable(f"action {action.action_id} has an epoch above {action.epoch}")
            cells = table_specs.ACTIONS.cells(
                action, position=position, event_id=event_id, operation_id=operation_id
            )
            self._put("action", "upsert", cells)
        for action_id in known:
            self._delete("action", action_id=action_id)

    def _removed_scope(self, name: str) -> None:
        numbers = self.open.get(name)
        if numbers or (numbers is None and self._folding.open_events(name)):
            raise Unstorable(f"scope {name} has open events and may not be removed")
        self._writes.append(_Write(VMS_OF_SCOPE, (name,), "", {"scope": name}))
        self._delete("scope", name=name)

    def _lines(self, lines: Sequence[JournalLine]) -> None:
        """Under the numbers that they have, which are those that follow."""
        if not lines:
            return
        if self.line >= lines[0].number:
            raise StaleRevision(
                f"the journal has line {lines[0].number} already, and ends at {self.line}"
            )
        following = list(range(self.line + 1, self.line + 1 + len(lines)))
        if [line.number for line in lines] != following:
            raise Unstorable(f"line {lines[0].number} would follow line {self.line} of the journal")
        for line in lines:
            self._put("journal", "insert", table_specs.line_cells(line))
        self.line += len(lines)

    def _rest(self, change: Change) -> None:
        for read in change.first_reads:
            self._put("receipt", "insert", table_specs.FIRST_READS.cells(read))
        for vm in change.removed_definitions:
            self._delete("definition", vm=vm)
        for definition in change.definitions:
            self._put("definition", "upsert", table_specs.DEFINITIONS.cells(definition))
        for name, vm_id in change.forgotten_vms:
            self._delete("departed_vm", name=name, vm_id=vm_id)
        for departed in change.departed_vms:
            self._put("departed_vm", "upsert", table_specs.DEPARTED_VMS.cells(departed))
        self._of_admins(change)
        if change.remembered is not None:
            self._put("remembered", "insert", table_specs.REMEMBERED.cells(change.remembered))
        self._what_there_is_one_of(change)

    def _of_admins(self, change: Change) -> None:
        for token_id in change.removed_tokens:
            self._delete("token", token_id=token_id)
        for token in change.tokens:
            self._put("token", "upsert", table_specs.TOKENS.cells(token))
        for webhook_id in change.removed_webhooks:
            self._delete("webhook", webhook_id=webhook_id)
        for webhook in change.webhooks:
            self._put("webhook", "upsert", table_specs.WEBHOOKS.cells(webhook))

    def _what_there_is_one_of(self, change: Change) -> None:
        if change.heartbeat_ms is not None:
            self._put("meta", "upsert", {"name": "heartbeat_ms", "value": str(change.heartbeat_ms)})
        if change.inventory is not None:
            text = change.inventory_packed or packed.pack(change.inventory)
            self._put("meta", "upsert", {"name": "inventory", "value": text})
        if change.unfinished:
            self._put("unfinished_inventory", "upsert", {"only_one": 1, "about": change.unfinished})
        elif change.unfinished is not None:
            self._delete("unfinished_inventory", only_one=1)


def fold(changes: Sequence[Change], counted: RowNumbers) -> Folding:
    """All these changes in one batch."""
    folding = Folding(counted)
    for change in changes:
        folding.add(change)
    return folding


def _after(row: _Row, cells: Cells) -> Cells:
    """What follows of a row that this batch has written before: its key and lock stay."""
    for column in ("sequence", REVISION_BEFORE):
        if column in row.cells:
            cells[column] = row.cells[column]
        elif row.way == "insert":
            cells.pop(column, None)
    if cells.get("shown_commit", 0) is None:
        cells["shown_commit"] = row.cells.get("shown_commit")
    return cells


def _refuse_to_go_back(before: ScheduledEvent, event: ScheduledEvent) -> None:
    forward = event.phase is before.phase or event.phase in _FORWARD.get(before.phase, ())
    if not forward or (not before.silent and before.not_before_ms != event.not_before_ms):
        raise Unstorable(
            f"event {event.event_id} may not become {event.phase.value}"
            f" with not_before_ms {event.not_before_ms}"
        )


def _refuse_stale(row: _Row, write: _Write) -> None:
    if write.way == "insert" and row.way:
        raise StaleRevision(f"{_name(write)} is there already")
    before = write.cells.get(REVISION_BEFORE)
    if before is not None and row.cells.get("revision") != before:
        raise StaleRevision(f"{_name(write)} is no longer at revision {before}")


def _name(write: _Write) -> str:
    return f"{write.table} {'/'.join(map(str, write.key))}"


def _put_or_forget(known: dict[K, V], key: K, value: V | None) -> None:
    if value:
        known[key] = value
    else:
        known.pop(key, None)


def _writes_of(found: Iterable[_Row]) -> TableWrites:
    by_way: dict[Way, list[Cells]] = defaultdict(list)
    deleted = []
    for row in found:
        if row.deleted is not None:
            deleted.append(row.deleted)
        by_way[row.way].append(row.cells)
    return TableWrites(
        deleted=tuple(deleted),
        inserted=tuple(by_way["insert"]),
        updated=tuple(by_way["update"]),
        upserted=tuple(by_way["upsert"]),
    )


def _together(pruned: Sequence[Prunable]) -> Prunable:
    """All slices of a batch."""
    return Prunable(
        lines=tuple(dict.fromkeys(n for one in pruned for n in one.lines)),
        events=tuple(dict.fromkeys(n for one in pruned for n in one.events)),
        operations=tuple(dict.fromkeys(n for one in pruned for n in one.operations)),
        receipts=sum(one.receipts for one in pruned),
    )
