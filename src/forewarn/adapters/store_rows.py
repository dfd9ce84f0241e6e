"""How values become rows and rows become values. Nothing here runs a query.

Tuples that no query looks into are JSON text. Every field of every value is here twice, once in
each direction; the round trip is tested field by field.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Row

import msgspec

from forewarn.core.marks import VmKey
from forewarn.core.model import (
    Action,
    ActionKind,
    ActionPhase,
    Cause,
    EventSource,
    EventType,
    Fact,
    FactKind,
    Health,
    Host,
    Operation,
    OperationPhase,
    Outcome,
    Phase,
    Priority,
    Recovery,
    ScheduledEvent,
    Scope,
    ScopeHold,
    ScopeKind,
    Vm,
)
from forewarn.ports import Definition, DepartedVm, FirstRead, JournalLine, Remembered

Cells = dict[str, str | int | None]

_encoder = msgspec.json.Encoder()
_names = msgspec.json.Decoder(tuple[str, ...])
_tags = msgspec.json.Decoder(tuple[tuple[str, str], ...])
_event_types = msgspec.json.Decoder(frozenset[EventType])
_recoveries = msgspec.json.Decoder(tuple[Recovery, ...])
_detail = msgspec.json.Decoder(dict[str, object])


def _json(value: object) -> str:
    return _encoder.encode(value).decode()


def host_cells(host: Host) -> Cells:
    return {
        "name": host.name,
        "revision": host.revision,
        "capacity": host.capacity,
        "closed": int(host.closed),
        "health": host.health.value,
        "fenced": int(host.fenced),
        "listed": int(host.listed),
        "joined": int(host.joined),
        "boot_id": host.boot_id,
    }


def host_value(row: Row) -> Host:
    return Host(
        name=row["name"],
        revision=row["revision"],
        capacity=row["capacity"],
        closed=bool(row["closed"]),
        health=Health(row["health"]),
        fenced=bool(row["fenced"]),
        listed=bool(row["listed"]),
        joined=bool(row["joined"]),
        boot_id=row["boot_id"],
    )


def scope_cells(scope: Scope, *, shown_commit: int | None) -> Cells:
    """The scope's own row, without its VMs and events.

    `shown_commit` is the commit that changes what hosts are shown of it; None if none does.
    """
    return {
        "name": scope.name,
        "kind": scope.kind.value,
        "revision": scope.revision,
        "incarnation": scope.incarnation,
        "terminate_notice_ms": scope.terminate_notice_ms,
        "auto_approve": _json(sorted(scope.auto_approve)),
        "enabled": int(scope.enabled),
        "polled_ms": scope.polled_ms,
        "hold_since_ms": None if scope.hold is None else scope.hold.since_ms,
        "hold_event_id": None if scope.hold is None else scope.hold.event_id,
        "hold_reason": None if scope.hold is None else scope.hold.reason,
        "recoveries": _json(scope.recoveries),
        "deleted": _json(scope.deleted),
        "shown_commit": shown_commit,
    }


def scope_value(row: Row, vms: Sequence[Vm], events: Sequence[ScheduledEvent]) -> Scope:
    hold = None
    if row["hold_since_ms"] is not None:
        hold = ScopeHold(
            since_ms=row["hold_since_ms"],
            event_id=row["hold_event_id"],
            reason=row["hold_reason"],
        )
    return Scope(
        name=row["name"],
        kind=ScopeKind(row["kind"]),
        revision=row["revision"],
        incarnation=row["incarnation"],
        terminate_notice_ms=row["terminate_notice_ms"],
        auto_approve=_event_types.decode(row["auto_approve"]),
        enabled=bool(row["enabled"]),
        polled_ms=row["polled_ms"],
        hold=hold,
        recoveries=_recoveries.decode(row["recoveries"]),
        vms=tuple(vms),
        events=tuple(events),
        deleted=_names.decode(row["deleted"]),
    )


def vm_cells(vm: Vm, *, scope: str, position: int) -> Cells:
    return {
        "name": vm.name,
        "scope": scope,
        "position": position,
        "vm_id": vm.vm_id,
        "update_domain": vm.update_domain,
        "host": vm.host,
        "priority": vm.priority.value,
        "address": vm.address,
        "listen": vm.listen,
        "tags": _json(vm.tags),
        "fault_domain": vm.fault_domain,
        "zone": vm.zone,
        "os_type": vm.os_type,
        "computer_name": vm.computer_name,
        "may_run_on": vm.may_run_on,
        "off": int(vm.off),
        "went_down": int(vm.went_down),
    }


def vm_value(row: Row) -> Vm:
    return Vm(
        name=row["name"],
        vm_id=row["vm_id"],
        update_domain=row["update_domain"],
        host=row["host"],
        priority=Priority(row["priority"]),
        address=row["address"],
        listen=row["listen"],
        tags=_tags.decode(row["tags"]),
        fault_domain=row["fault_domain"],
        zone=row["zone"],
        os_type=row["os_type"],
        computer_name=row["computer_name"],
        may_run_on=row["may_run_on"],
        off=bool(row["off"]),
        went_down=bool(row["went_down"]),
    )


def event_cells(event: ScheduledEvent) -> Cells:
    """The event's own row, without its actions."""
    return {
        "event_id": event.event_id,
        "scope": event.scope,
        "event_type": event.event_type.value,
        "event_source": event.event_source.value,
        "cause": event.cause.value,
        "phase": event.phase.value,
        "update_domain": event.update_domain,
        "host": event.host,
        "resources": _json(event.resources),
        "not_before_ms": event.not_before_ms,
        "minimum_notice_ms": event.minimum_notice_ms,
        "scheduled_ms": event.scheduled_ms,
        "description": event.description,
        "duration_s": event.duration_s,
        "silent": int(event.silent),
        "ordered_not_before_ms": event.ordered_not_before_ms,
        "ordered_by": event.ordered_by,
        "operation_id": event.operation_id,
        "breaks_domains": int(event.breaks_domains),
        "appeared_incarnation": event.appeared_incarnation,
        "shown_ms": event.shown_ms,
        "unreadable_ms": event.unreadable_ms,
        "approved_ms": event.approved_ms,
        "approved_by": event.approved_by,
        "started_ms": event.started_ms,
        "deadline_ms": event.deadline_ms,
        "ended_ms": event.ended_ms,
        "outcome": event.outcome,
    }


def event_value(row: Row, actions: Sequence[Action]) -> ScheduledEvent:
    return ScheduledEvent(
        event_id=row["event_id"],
        scope=row["scope"],
        event_type=EventType(row["event_type"]),
        event_source=EventSource(row["event_source"]),
        cause=Cause(row["cause"]),
        phase=Phase(row["phase"]),
        update_domain=row["update_domain"],
        host=row["host"],
        resources=_names.decode(row["resources"]),
        not_before_ms=row["not_before_ms"],
        minimum_notice_ms=row["minimum_notice_ms"],
        scheduled_ms=row["scheduled_ms"],
        description=row["description"],
        duration_s=row["duration_s"],
        silent=bool(row["silent"]),
        ordered_not_before_ms=row["ordered_not_before_ms"],
        ordered_by=row["ordered_by"],
        operation_id=row["operation_id"],
        breaks_domains=bool(row["breaks_domains"]),
        appeared_incarnation=row["appeared_incarnation"],
        shown_ms=row["shown_ms"],
        unreadable_ms=row["unreadable_ms"],
        approved_ms=row["approved_ms"],
        approved_by=row["approved_by"],
        started_ms=row["started_ms"],
        deadline_ms=row["deadline_ms"],
        ended_ms=row["ended_ms"],
        outcome=row["outcome"],
        actions=tuple(actions),
    )


def action_cells(
    action: Action, *, position: int, event_id: str | None = None, operation_id: str | None = None
) -> Cells:
    """An action's row; its owner is the event or the operation."""
    return {
        "action_id": action.action_id,
        "event_id": event_id,
        "operation_id": operation_id,
        "position": position,
        "kind": action.kind.value,
        "host": action.host,
        "vm": action.vm,
        "target_host": action.target_host,
        "duration_s": action.duration_s,
        "phase": action.phase.value,
        "epoch": action.epoch,
        "boot_id": action.boot_id,
        "target_failed": int(action.target_failed),
        "only_off": int(action.only_off),
        "outcome": None if action.outcome is None else action.outcome.value,
        "detail": action.detail,
    }


def action_value(row: Row) -> Action:
    return Action(
        action_id=row["action_id"],
        kind=ActionKind(row["kind"]),
        host=row["host"],
        vm=row["vm"],
        target_host=row["target_host"],
        duration_s=row["duration_s"],
        phase=ActionPhase(row["phase"]),
        epoch=row["epoch"],
        boot_id=row["boot_id"],
        target_failed=bool(row["target_failed"]),
        only_off=bool(row["only_off"]),
        outcome=None if row["outcome"] is None else Outcome(row["outcome"]),
        detail=row["detail"],
    )


def operation_cells(operation: Operation) -> Cells:
    """The operation's own row, without its members and its action."""
    return {
        "operation_id": operation.operation_id,
        "revision": operation.revision,
        "host": operation.host,
        "event_type": operation.event_type.value,
        "cause": operation.cause.value,
        "phase": operation.phase.value,
        "ordered_ms": operation.ordered_ms,
        "ordered_by": operation.ordered_by,
        "ordered_not_before_ms": operation.ordered_not_before_ms,
        "duration_s": operation.duration_s,
        "description": operation.description,
        "broke_domains_by": operation.broke_domains_by,
        "named": _json(operation.named),
        "started_ms": operation.started_ms,
        "deadline_ms": operation.deadline_ms,
        "ended_ms": operation.ended_ms,
        "outcome": operation.outcome,
    }


def operation_value(
    row: Row, members: Sequence[tuple[str, str]], actions: Sequence[Action]
) -> Operation:
    return Operation(
        operation_id=row["operation_id"],
        host=row["host"],
        event_type=EventType(row["event_type"]),
        cause=Cause(row["cause"]),
        phase=OperationPhase(row["phase"]),
        ordered_ms=row["ordered_ms"],
        revision=row["revision"],
        ordered_by=row["ordered_by"],
        ordered_not_before_ms=row["ordered_not_before_ms"],
        duration_s=row["duration_s"],
        description=row["description"],
        broke_domains_by=row["broke_domains_by"],
        members=tuple(members),
        named=_names.decode(row["named"]),
        action=actions[0] if actions else None,
        started_ms=row["started_ms"],
        deadline_ms=row["deadline_ms"],
        ended_ms=row["ended_ms"],
        outcome=row["outcome"],
    )


def fact_cells(fact: Fact) -> Cells:
    return {
        "kind": fact.kind.value,
        "at_ms": fact.at_ms,
        "scope": fact.scope,
        "event_id": fact.event_id,
        "operation_id": fact.operation_id,
        "host": fact.host,
        "vm": fact.vm,
        "by_whom": fact.by,
        "detail": _json(fact.detail),
    }


def journal_line(row: Row) -> JournalLine:
    return JournalLine(
        number=row["number"],
        fact=Fact(
            kind=FactKind(row["kind"]),
            at_ms=row["at_ms"],
            scope=row["scope"],
            event_id=row["event_id"],
            operation_id=row["operation_id"],
            host=row["host"],
            vm=row["vm"],
            by=row["by_whom"],
            detail=_detail.decode(row["detail"]),
        ),
    )


def departed_vm_cells(departed: DepartedVm) -> Cells:
    return {
        **vm_key_cells(departed.key),
        "incarnation": departed.incarnation,
        "left_ms": departed.left_ms,
    }


def vm_key_cells(key: VmKey) -> Cells:
    name, vm_id = key
    return {"name": name, "vm_id": vm_id}


def departed_vm_value(row: Row) -> DepartedVm:
    return DepartedVm(
        key=(row["name"], row["vm_id"]), incarnation=row["incarnation"], left_ms=row["left_ms"]
    )


def definition_cells(definition: Definition) -> Cells:
    return {
        "vm": definition.vm,
        "host": definition.host,
        "definition": definition.text,
        "digest": definition.digest,
        "seen_ms": definition.seen_ms,
    }


def definition_value(row: Row) -> Definition:
    return Definition(
        vm=row["vm"],
        host=row["host"],
        text=row["definition"],
        digest=row["digest"],
        seen_ms=row["seen_ms"],
    )


def first_read_cells(read: FirstRead) -> Cells:
    return {
        "event_id": read.event_id,
        "vm": read.vm,
        "scope": read.scope,
        "read_ms": read.read_ms,
    }


def first_read_value(row: Row) -> FirstRead:
    return FirstRead(
        scope=row["scope"], event_id=row["event_id"], vm=row["vm"], read_ms=row["read_ms"]
    )


def remembered_cells(remembered: Remembered) -> Cells:
    return {
        "idempotency_key": remembered.key,
        "fingerprint": remembered.fingerprint,
        "answer": remembered.answer,
        "at_ms": remembered.at_ms,
    }


def remembered_value(row: Row) -> Remembered:
    return Remembered(
        key=row["idempotency_key"],
        fingerprint=row["fingerprint"],
        answer=row["answer"],
        at_ms=row["at_ms"],
    )
