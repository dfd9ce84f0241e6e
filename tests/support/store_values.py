"""Random but legal scopes, hosts, operations and facts, from a seed.

Every field of a value is filled from its type, so a field that is added to the model is covered
without a change here. `evolve_*` make a next value that the rules could have made.
"""

from __future__ import annotations

import random
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from forewarn.core.facts import DETAILS, NOTHING_MORE, EarlierDetail, detail_text
from forewarn.core.model import (
    Action,
    ActionPhase,
    Detail,
    Fact,
    FactKind,
    Host,
    Operation,
    OperationPhase,
    Outcome,
    Phase,
    ScheduledEvent,
    Scope,
    Vm,
    Window,
)
from forewarn.ports import Change
from support.journal import lines_of

T = TypeVar("T", bound=Struct)
V = TypeVar("V")

WORDS = (
    "",
    "a",
    "it's",
    '"quoted"',
    "tab\there",
    "línea\n",
    "日本語",
    "🦀",
    "x" * 300,
    "100%",
    ":name",
)
NASTY = {"words": list(WORDS), "count": 1 << 60, "share": 0.25, "deep": {"x": None}}
NEXT_PHASES = {
    Phase.SCHEDULED: (Phase.SCHEDULED, Phase.STARTED, Phase.CANCELED),
    Phase.STARTED: (Phase.STARTED, Phase.COMPLETED, Phase.FAILED),
}


class Values:
    """A source of values. The same seed gives the same values."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._names = 0

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}-{self.rng.randrange(1_000)}-{self._names}"

    def any(self, hint: Any) -> Any:
        """A value of a type; of a dataclass, one with every field filled at random."""
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return self.any(self.rng.choice(args))
        if origin is tuple and args[-1] is Ellipsis:
            return tuple(self.any(args[0]) for _ in range(self.rng.randrange(4)))
        if origin is tuple:
            return tuple(self.any(arg) for arg in args)
        if origin is Mapping:
            return dict(NASTY)
        if origin is frozenset:
            return frozenset(self.any(args[0]) for _ in range(self.rng.randrange(4)))
        return self._plain(hint)

    def _plain(self, hint: Any) -> Any:
        if hint is type(None):
            return None
        if hint is bool:
            return self.rng.random() < 0.5
        if hint is int:
            return self.rng.choice((0, 1, self.rng.randrange(1 << 53)))
        if hint is str:
            return self.rng.choice(WORDS)
        if isinstance(hint, type) and issubclass(hint, StrEnum):
            return self.rng.choice(list(hint))
        return self._window() if hint is Window else self.filled(hint)

    def _window(self) -> Window:
        """The one value whose fields depend on each other."""
        start_ms = self.any(int)
        return Window(start_ms=start_ms, end_ms=start_ms + 1 + self.any(int))

    def filled(self, kind: type[T], /, **given: Any) -> T:
        """A struct with every field that was not given filled from its type."""
        hints = typing.get_type_hints(kind)
        names = [name for name in kind.__struct_fields__ if name not in given]
        return kind(**given, **{name: self.any(hints[name]) for name in names})

    def action(self, action_id: str, **given: Any) -> Action:
        phase = self.any(ActionPhase)
        outcome = self.any(Outcome) if phase is ActionPhase.ENDED else None
        return self.filled(Action, action_id=action_id, phase=phase, outcome=outcome, **given)

    def event(self, scope: str, phase: Phase, **given: Any) -> ScheduledEvent:
        known = {
            "event_id": self.name("E").upper(),
            "scope": scope,
            "phase": phase,
            "resources": ("vm", *self.any(tuple[str, ...])),
            "unreadable_ms": self.rng.randrange(-5_000, 5_000),
            "duration_s": self.rng.randrange(-1, 100),
            "started_ms": None if phase is Phase.SCHEDULED else self.any(int | None),
            "ended_ms": self.any(int) if phase.ended else None,
            "postponed_to": self.any(str | None) if phase is Phase.CANCELED else None,
            "actions": tuple(self.action(self.name("action")) for _ in range(3)),
            **given,
        }
        return self.filled(ScheduledEvent, **known)

    def vm(self) -> Vm:
        return self.filled(Vm, name=self.name("vm"))

    def scope(self) -> Scope:
        name = self.name("scope")
        return self.filled(
            Scope,
            name=name,
            incarnation=self.rng.randrange(1, 1_000),
            vms=tuple(self.vm() for _ in range(self.rng.randrange(5))),
            events=tuple(
                self.event(name, self.rng.choice((Phase.SCHEDULED, Phase.STARTED)))
                for _ in range(self.rng.randrange(4))
            ),
        )

    def host(self) -> Host:
        return self.filled(Host, name=self.name("host"))

    def operation(self) -> Operation:
        operation_id = self.name("operation")
        return self.filled(
            Operation,
            operation_id=operation_id,
            action=self.rng.choice((None, self.action(operation_id))),
        )

    def fact(self, **given: Any) -> Fact:
        """One that says what its kind says, or what an earlier version said."""
        kind = self.any(FactKind)
        detail: Detail = EarlierDetail(said=NASTY)
        if self.rng.random() < 0.8:
            detail = self.filled(DETAILS[kind])
        said = None if detail_text(detail) == NOTHING_MORE else detail
        return self.filled(Fact, kind=kind, detail=said, **given)

    def evolve_event(self, event: ScheduledEvent) -> ScheduledEvent:
        if event.phase.ended:
            return event
        phase = self.rng.choice(NEXT_PHASES[event.phase])
        given: dict[str, Any] = {"event_id": event.event_id}
        if not event.silent:
            given["not_before_ms"] = event.not_before_ms
            given["silent"] = False  # what guests have seen is never hidden from them
        kept = [replace(self.action(a.action_id), epoch=a.epoch + 1) for a in event.actions]
        self.rng.shuffle(kept)
        given["actions"] = (*kept[: self.rng.randrange(4)], self.action(self.name("action")))
        return self.event(event.scope, phase, **given)

    def evolve_scope(self, scope: Scope) -> Scope:
        vms = [vm for vm in scope.vms if self.rng.random() < 0.8]
        vms = [vm if self.rng.random() < 0.5 else self.filled(Vm, name=vm.name) for vm in vms]
        for _ in range(self.rng.randrange(3)):
            vms.insert(self.rng.randrange(len(vms) + 1), self.vm())
        if self.rng.random() < 0.3:
            self.rng.shuffle(vms)
        events = [e if self.rng.random() < 0.5 else self.evolve_event(e) for e in scope.events]
        events += [self.event(scope.name, Phase.SCHEDULED) for _ in range(self.rng.randrange(2))]
        return self.filled(
            Scope,
            name=scope.name,
            revision=scope.revision + 1,
            incarnation=scope.incarnation + self.rng.randrange(2),
            vms=tuple(vms),
            events=tuple(events),
        )

    def evolve_host(self, host: Host) -> Host:
        return self.filled(Host, name=host.name, revision=host.revision + 1)

    def evolve_operation(self, operation: Operation) -> Operation:
        action = operation.action
        if action is not None:
            action = replace(self.action(action.action_id), epoch=action.epoch + 1)
        return self.filled(
            Operation,
            operation_id=operation.operation_id,
            revision=operation.revision + 1,
            action=action,
        )


def open_part(scope: Scope) -> Scope:
    """The scope as `Store.load` returns it: without what has ended."""
    return replace(scope, events=tuple(e for e in scope.events if not e.phase.ended))


def is_open(operation: Operation) -> bool:
    return operation.phase is not OperationPhase.ENDED


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

        def some(what: dict[str, V]) -> list[V]:
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
