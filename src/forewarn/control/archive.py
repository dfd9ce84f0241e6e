"""What the writer knows of what is no longer open. No command reads the store itself.

What came in the batch and what ended lately is in memory. What else a command wants to know is
asked of the store outside of the command: beforehand, for the whole batch at once, where the
command says it (`asked_beforehand`); else the command is taken back, its question is asked, and it
is decided anew. An answer holds until the batch ends: only the writer writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

from forewarn.control.commands import ApproveEvents, Command, Once
from forewarn.control.event_ids import IDS_NAMED_MAX
from forewarn.control.fleet_index import FleetIndex
from forewarn.core import document
from forewarn.core.model import Operation, OperationPhase, ScheduledEvent
from forewarn.core.retention import Prunable
from forewarn.ports import Change, Questions, RecallResult, RememberedAnswer, Store

V = TypeVar("V")

ENDED_KEPT_MAX = 10_000  # events, and operations, that ended last; of older ones the store is asked
IDS_ASKED_MAX = IDS_NAMED_MAX + 1  # enough to know whether one id is meant


class NotRecalled(BaseException):
    """A command wants to know what is not in memory. No refusal, and nothing for it to catch."""

    def __init__(self, questions: Questions) -> None:
        super().__init__(questions)
        self.questions = questions


class Archive:
    """Belongs to the writer. What is asked of it is answered, or raises NotRecalled."""

    def __init__(self, index: FleetIndex, store: Store) -> None:
        self._index = index
        self._store = store
        self._events: dict[str, ScheduledEvent] = {}  # ended ones, the last to end last
        self._operations: dict[str, Operation] = {}
        self._came = _Came()  # with this batch
        self._asked = Questions()  # in this batch
        self._found = RecallResult()

    # What commands ask.

    def events(self, event_ids: Iterable[str]) -> dict[str, ScheduledEvent]:
        """Those of them that are kept, open or ended."""
        found, unknown = {}, []
        for event_id in event_ids:
            scope = self._index.scopes.get(self._index.scope_of_event.get(event_id, ""))
            event = scope.event(event_id) if scope is not None else None
            event = event or self._came.events.get(event_id) or self._events.get(event_id)
            event = event or self._found.events.get(event_id)
            if event is not None:
                found[event_id] = event
            elif event_id not in self._asked.events:
                unknown.append(event_id)
        if unknown:
            raise NotRecalled(Questions(events=frozenset(unknown)))
        return found

    def operation(self, operation_id: str) -> Operation | None:
        """An operation, open or ended."""
        found = self._index.operations.get(operation_id) or self._came.operations.get(operation_id)
        found = found or self._operations.get(operation_id)
        if found is None and operation_id not in self._asked.operations:
            raise NotRecalled(Questions(operations=frozenset({operation_id})))
        return found or self._found.operations.get(operation_id)

    def event_ids(self, beginning: str) -> Sequence[str]:
        """Ids of events, open or ended, that begin so: enough to know whether one does."""
        if beginning not in self._asked.event_ids:
            begun = frozenset({beginning})
            raise NotRecalled(Questions(event_ids=begun, ids_max=IDS_ASKED_MAX))
        return _begun(beginning, self._came.event_ids, self._found.event_ids[beginning])

    def operation_ids(self, beginning: str) -> Sequence[str]:
        """The same of operations."""
        if beginning not in self._asked.operation_ids:
            begun = frozenset({beginning})
            raise NotRecalled(Questions(operation_ids=begun, ids_max=IDS_ASKED_MAX))
        return _begun(beginning, self._came.operation_ids, self._found.operation_ids[beginning])

    def remembered(self, key: str) -> RememberedAnswer | None:
        """The answer kept under an idempotency key."""
        found = self._came.remembered.get(key)
        if found is None and key not in self._asked.keys:
            raise NotRecalled(Questions(keys=frozenset({key})))
        return found or self._found.remembered.get(key)

    def prunable(self, before_ms: int) -> Prunable:
        """A slice of what ended before that; nothing while this batch prunes already."""
        if self._came.prunes:
            return Prunable()
        if self._asked.prunable_before_ms != before_ms:
            raise NotRecalled(Questions(prunable_before_ms=before_ms))
        return self._found.prunable

    # For the writer.

    def begin(self, commands: Sequence[Command[Any]]) -> None:
        """A batch begins with what its commands say that they will ask."""
        self._came, self._asked, self._found = _Came(), Questions(), RecallResult()
        keys = {one.key for one in commands if isinstance(one, Once) and one.key is not None}
        events = {
            event_id
            for one in commands
            if isinstance(one, ApproveEvents)
            for event_id in one.event_ids
            if event_id not in self._index.scope_of_event and event_id not in self._events
        }
        questions = Questions(keys=frozenset(keys), events=frozenset(events))
        if questions:
            self.ask(questions)

    def ask(self, questions: Questions) -> None:
        """Ask the store, and know the answers until the batch ends. May raise StoreFailed."""
        asked, found = self._asked, self._store.recall(questions)
        before_ms = questions.prunable_before_ms
        self._asked = Questions(
            keys=asked.keys | questions.keys,
            events=asked.events | questions.events,
            operations=asked.operations | questions.operations,
            event_ids=asked.event_ids | questions.event_ids,
            operation_ids=asked.operation_ids | questions.operation_ids,
            prunable_before_ms=asked.prunable_before_ms if before_ms is None else before_ms,
        )
        known = self._found
        self._found = RecallResult(
            remembered={**known.remembered, **found.remembered},
            events={**known.events, **found.events},
            operations={**known.operations, **found.operations},
            event_ids={**known.event_ids, **found.event_ids},
            operation_ids={**known.operation_ids, **found.operation_ids},
            prunable=known.prunable if before_ms is None else found.prunable,
        )

    def came(self, change: Change) -> None:
        """A command of the batch has changed this."""
        self._came.add(change)

    def committed(self) -> None:
        """The batch is durable. What it ended is known from now on."""
        keep_the_last(self._events, self._came.events)
        keep_the_last(self._operations, self._came.operations)
        for event_id in self._came.pruned_events:
            self._events.pop(event_id, None)
        for operation_id in self._came.pruned_operations:
            self._operations.pop(operation_id, None)
        self._came = _Came()


class _Came:
    """What the commands of a batch have done so far to what is asked for here."""

    def __init__(self) -> None:
        self.events: dict[str, ScheduledEvent] = {}  # ended ones
        self.operations: dict[str, Operation] = {}
        self.event_ids: set[str] = set()  # new ones
        self.operation_ids: set[str] = set()
        self.remembered: dict[str, RememberedAnswer] = {}
        self.prunes = False
        self.pruned_events: Collection[str] = ()
        self.pruned_operations: Collection[str] = ()

    def add(self, change: Change) -> None:
        for scope_before, scope in change.scopes:
            for event_before, event in document.moved(scope_before, scope).pairs:
                if event_before is None:
                    self.event_ids.add(event.event_id)
                if event.phase.ended:
                    self.events[event.event_id] = event
        for before, operation in change.operations:
            if before is None:
                self.operation_ids.add(operation.operation_id)
            if operation.phase is OperationPhase.ENDED:
                self.operations[operation.operation_id] = operation
        if change.remembered is not None:
            self.remembered[change.remembered.key] = change.remembered
        if change.pruned is not None:
            self.prunes = True
            self.pruned_events, self.pruned_operations = (
                change.pruned.events,
                change.pruned.operations,
            )


def keep_the_last(known: dict[str, V], ended: dict[str, V]) -> None:
    """Know these too, and of all no more than the last to end."""
    known.update(ended)
    for key in list(islice(known, max(0, len(known) - ENDED_KEPT_MAX))):
        del known[key]


def _begun(beginning: str, came: Iterable[str], kept: Iterable[str]) -> Sequence[str]:
    found = {*kept, *(one for one in came if one.startswith(beginning))}
    return sorted(found)[:IDS_ASKED_MAX]
