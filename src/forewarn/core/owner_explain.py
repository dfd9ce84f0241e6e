"""What an owner is told of the things that hold an event of a scope of his.

What is his own is said in full. Of the rest he learns that it holds, and until when: not which
other scope, VM or host it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from msgspec.structs import replace

from forewarn.core import explain, starting
from forewarn.core.explain import Explanation
from forewarn.core.facts import VmChangedDetail
from forewarn.core.fleet import Fleet
from forewarn.core.model import Fact, Operation, Phase, ScheduledEvent, Scope
from forewarn.core.starting import Hold, HoldReason

REMEDY = "The operator sees what it is."
# None: the words name the host of the event and nothing else, and are said as they are.
WORDS: Mapping[HoldReason, str | None] = {
    HoldReason.CONSENT: "another scope on the host has not approved it and its notice still runs",
    HoldReason.CLOCK: None,
    HoldReason.WINDOW_CLOSED: None,
    HoldReason.NOT_YET_SERVED: "the host has not confirmed that it shows it to another scope",
    HoldReason.VM_BUSY: "a VM of another scope on the host is in a started event",
    HoldReason.DOMAIN_STARTED: "an update domain of another scope on the host is started",
    HoldReason.DOMAIN_RECOVERING: "an update domain of another scope on the host is recovering",
    HoldReason.SCOPE_HELD: "another scope on the host is held",
    HoldReason.HOST_SILENT: None,
    HoldReason.HOST_NOT_JOINED: None,
    HoldReason.TWO_DAEMONS: None,
    HoldReason.HOST_REFUSES: None,
    HoldReason.HYPERVISOR_UNREACHABLE: None,
    HoldReason.HOST_FAILED: None,
    HoldReason.HOST_BUSY: "another operation of the host is started",
    HoldReason.VM_ARRIVING: "a VM is on its way to the host",
    HoldReason.VM_WITHOUT_NOTICE: "a VM on the host has no notice yet, or can have none",
    HoldReason.TWO_DOMAINS: "a second update domain of a scope has come to the host",
    HoldReason.NO_TARGET: "no open host can take it",
    HoldReason.NO_HOST: "its host has failed, and it has nowhere to start yet",
    HoldReason.UNCLAIMED: None,
    HoldReason.RUNNING: None,
}


# What names the scope, the VMs or the domains of the event itself, where it is alone.
_OF_SCOPES = frozenset(
    {
        HoldReason.CONSENT,
        HoldReason.CLOCK,
        HoldReason.WINDOW_CLOSED,
        HoldReason.NOT_YET_SERVED,
        HoldReason.VM_BUSY,
        HoldReason.DOMAIN_STARTED,
        HoldReason.DOMAIN_RECOVERING,
        HoldReason.SCOPE_HELD,
    }
)


def explain_event(
    scope: Scope, event: ScheduledEvent, fleet: Fleet, now_ms: int, *, own: Collection[str]
) -> Explanation:
    """What the event waits for now, as an owner of these scopes is told."""
    explained = explain.explain_event(scope, event, fleet, now_ms)
    operation = fleet.operation(event.operation_id) if event.operation_id else None
    members = operation.members if operation else ((scope.name, event.event_id),)
    known = set(_own_holds(members, fleet, now_ms, own))
    told = (hold if hold in known else _in_words(hold) for hold in explained.holds)
    return Explanation(phase=explained.phase, holds=tuple(dict.fromkeys(told)))


def explain_operation(
    operation: Operation, fleet: Fleet, now_ms: int, *, own: Collection[str]
) -> Explanation:
    """What the owner's own events of the operation wait for."""
    found: list[Hold] = []
    for scope_name, event_id in operation.members:
        scope = fleet.scope(scope_name) if scope_name in own else None
        event = scope.event(event_id) if scope else None
        if scope is not None and event is not None:
            found.extend(explain_event(scope, event, fleet, now_ms, own=own).holds)
    return Explanation(phase=operation.phase.value, holds=tuple(dict.fromkeys(found)))


def fact(written: Fact, own: Collection[str]) -> Fact:
    """A line of the journal as an owner of these scopes reads it: it names no other scope."""
    detail = written.detail
    if not isinstance(detail, VmChangedDetail) or detail.from_scope in own:
        return written
    return replace(written, detail=replace(detail, from_scope=""))


def _own_holds(
    members: Collection[tuple[str, str]], fleet: Fleet, now_ms: int, own: Collection[str]
) -> Iterator[Hold]:
    """The holds of the owner's own scopes, of all that an event has."""
    for scope_name, event_id in members:
        scope = fleet.scope(scope_name) if scope_name in own else None
        event = scope.event(event_id) if scope else None
        if scope is not None and event is not None and event.phase is Phase.SCHEDULED:
            yield from starting.notice_holds(scope, event, now_ms)
            yield from starting.scope_holds(scope, event)


def hold(held: Hold, *, own: bool) -> Hold:
    """What would hold an order of an owner; `own`: of what belongs to a scope it is in his.

    What names other operations, VMs and hosts is said in words all the same.
    """
    return held if own and held.reason in _OF_SCOPES else _in_words(held)


def _in_words(hold: Hold) -> Hold:
    words = WORDS[hold.reason]
    return replace(hold, what=hold.what if words is None else words, since_ms=None, remedy=REMEDY)
