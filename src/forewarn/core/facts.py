"""The lines of the journal, by what they are about, so that each names all it can name."""

from __future__ import annotations

from collections.abc import Mapping

from forewarn.core.model import Fact, FactKind, Operation, ScheduledEvent, Vm
from forewarn.core.principal import PrincipalKind

Detail = Mapping[str, object]


def event_fact(
    kind: FactKind,
    event: ScheduledEvent,
    at_ms: int,
    *,
    by: str | None = None,
    vm: str | None = None,
    host: str | None = None,
    detail: Detail | None = None,
) -> Fact:
    """Something happened to an event; `host` if it is about another host than the event's."""
    return Fact(
        kind=kind,
        at_ms=at_ms,
        scope=event.scope,
        event_id=event.event_id,
        operation_id=event.operation_id,
        host=host or event.host,
        vm=vm,
        by=by,
        detail=detail or {},
    )


def approved_fact(
    event: ScheduledEvent,
    at_ms: int,
    *,
    by: str | None,
    by_kind: PrincipalKind,
    reason: str = "",
) -> Fact:
    """An event was approved. Who is no VM is told from one by kind: names can be the same.

    An operator overrides the VMs, for a `reason`.
    """
    detail: dict[str, object] = {} if by_kind is PrincipalKind.VM else {"by_kind": by_kind.value}
    if reason:
        detail |= {"overridden_by": by, "reason": reason}
    return event_fact(FactKind.APPROVED, event, at_ms, by=by, detail=detail)


def approved_by_kind(fact: Fact) -> PrincipalKind:
    """Of what kind it was who approved."""
    return PrincipalKind(str(fact.detail.get("by_kind", PrincipalKind.VM)))


def operation_fact(
    kind: FactKind,
    operation: Operation,
    at_ms: int,
    *,
    by: str | None = None,
    detail: Detail | None = None,
) -> Fact:
    """Something happened to an operation."""
    return Fact(
        kind=kind,
        at_ms=at_ms,
        operation_id=operation.operation_id,
        host=operation.host,
        by=by,
        detail=detail or {},
    )


def host_fact(
    kind: FactKind, host: str, at_ms: int, *, by: str | None = None, detail: Detail | None = None
) -> Fact:
    """Something was said of a host."""
    return Fact(kind=kind, at_ms=at_ms, host=host, by=by, detail=detail or {})


def vm_fact(
    kind: FactKind, scope: str, vm: Vm, at_ms: int, *, detail: Detail | None = None
) -> Fact:
    """Something was seen of a VM, which is on the host it is on."""
    return Fact(kind=kind, at_ms=at_ms, scope=scope, host=vm.host, vm=vm.name, detail=detail or {})
