"""Whose VM is whose: what a host may speak for, and what of a scope it is shown.

A host speaks for the VMs that are on it, and for those that a started action is bringing to it:
they may run there a moment before their move is reported. For everything else it is refused, so
a host that was broken into can approve, enable and confirm nothing of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from forewarn.control.transaction import Transaction
from forewarn.core.errors import NotYours
from forewarn.core.model import ScheduledEvent, Scope, Vm
from forewarn.core.whereabouts import arrivals, mention_the_same


def own_vms(scope: Scope, host: str) -> tuple[Vm, ...]:
    """The VMs of a scope that are on the host, or that a started action is bringing there."""
    coming = {vm.name for target, vm in arrivals(scope) if target == host}
    return tuple(
        replace(vm, may_run_on=None, off=False, went_down=False) if _not_shown(vm) else vm
        for vm in scope.vms
        if vm.host == host or vm.name in coming
    )


def _not_shown(vm: Vm) -> bool:
    """True if there is something of the VM that hosts are not shown."""
    return vm.may_run_on is not None or vm.off or vm.went_down


# What hosts are shown of a scope, besides its events.
_SHOWN = tuple(
    name
    for name in Scope.__slots__
    if name not in ("revision", "events", "polled_ms", "hold", "deleted")
)


class _Event(NamedTuple):
    """A visible event as committed, as hosts are shown it, and as its own host is if it differs."""

    event: ScheduledEvent
    shown: ScheduledEvent
    unconfirmed: ScheduledEvent | None


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What hosts are shown of `scope`: `same` by all of them, with no VMs in it.

    `events` are the visible ones by id; `unconfirmed`, by host, what it is shown instead of those
    that it has still to confirm, by their place among the events.
    """

    scope: Scope
    same: Scope
    fields: Mapping[str, Any]  # of `same`, by name
    vms: Mapping[str, tuple[Vm, ...]]
    events: Mapping[str, _Event]
    unconfirmed: Mapping[str, Mapping[int, ScheduledEvent]]


class Showing:
    """What of one scope each host is shown: visible events, and its own VMs only.

    What no guest can see is left out: it is no business of the host, and when it changes nothing
    needs to be sent. Of `shown_ms` it matters only whether the host has still to confirm. What is
    the same for every host is made once, when the first one asks; what has not changed since
    `before`, the last commit of the scope, is taken from there.
    """

    def __init__(self, scope: Scope, before: Showing | None = None) -> None:
        self.scope = scope
        then = None if before is None else before.prepared
        self.prepared: _Prepared | None = None
        if then is not None:
            self.prepared = _unseen(scope, then) or _prepare(scope, then)

    def to(self, host: str) -> Scope:
        """What this host is shown."""
        if self.prepared is None:
            self.prepared = _prepare(self.scope)
        made = self.prepared
        events = made.same.events
        if host in made.unconfirmed:
            its_own = list(events)
            for place, event in made.unconfirmed[host].items():
                its_own[place] = event
            events = tuple(its_own)
        # As `replace` does it, in a fraction of the time: a change may concern hundreds of hosts.
        return Scope(**{**made.fields, "vms": made.vms.get(host, ()), "events": events})

    def same_as(self, before: Showing) -> bool:
        """True if every host is surely shown the same as before."""
        now, then = self.prepared, before.prepared
        if now is None or then is None:
            return False
        same = now.same is then.same and now.vms is then.vms
        return same and now.unconfirmed == then.unconfirmed

    def waits_as(self, before: Showing) -> bool:
        """True if hosts surely have the same left to confirm as before."""
        now, then = self.prepared, before.prepared
        return now is not None and then is not None and now.unconfirmed is then.unconfirmed

    def differs(self, before: Showing, host: str) -> bool:
        """Whether the host is shown something else than before, as far as that was looked at."""
        now, then = self.prepared, before.prepared
        if now is None or then is None:
            return True
        return (
            now.same is not then.same
            or now.vms.get(host) != then.vms.get(host)
            or now.unconfirmed.get(host) != then.unconfirmed.get(host)
        )


def _unseen(scope: Scope, before: _Prepared) -> _Prepared | None:
    """What was prepared, for a scope of which no host is shown anything new; None if one may be.

    That is an approval, and most of what happens while many events wait.
    """
    last = before.scope
    if any(getattr(scope, name) is not getattr(last, name) for name in _SHOWN):
        return None
    if not mention_the_same(last, scope):
        return None
    changed: dict[str, _Event] = {}
    for old, new in zip(last.events, scope.events, strict=True):
        if old is new:
            continue
        known = before.events.get(new.event_id)
        now = _prepare_event(new, known) if new.visible else None
        if known is None or now is None:
            return None
        if now.shown is not known.shown or old.shown_ms is not new.shown_ms:
            return None
        changed[new.event_id] = now
    return replace(before, scope=scope, events={**before.events, **changed})


def _prepare(scope: Scope, before: _Prepared | None = None) -> _Prepared:
    then: Mapping[str, _Event] = {} if before is None else before.events
    events: dict[str, _Event] = {}
    unconfirmed: dict[str, dict[int, ScheduledEvent]] = {}
    for event in scope.events:
        known = then.get(event.event_id)
        if known is None or known.event is not event:
            if not event.visible:
                continue
            known = _prepare_event(event, known)
        events[event.event_id] = known
        if known.unconfirmed is not None:
            unconfirmed.setdefault(event.host, {})[len(events) - 1] = known.unconfirmed
    same = replace(
        scope,
        revision=0,
        vms=(),
        events=tuple([one.shown for one in events.values()]),
        polled_ms=None,
        hold=None,
        deleted=(),
    )
    if before is not None and before.same == same:
        same = before.same
    return _Prepared(
        scope=scope,
        same=same,
        fields={name: getattr(same, name) for name in Scope.__slots__},
        vms=_vms_by_host(scope, before),
        events=events,
        unconfirmed=unconfirmed,
    )


def _prepare_event(event: ScheduledEvent, before: _Event | None) -> _Event:
    shown = _as_shown(event)
    if before is not None and before.shown == shown:
        shown = before.shown  # the same value, so that it is found to be the same at once
    waits = event.shown_ms is None
    return _Event(event, shown, replace(shown, shown_ms=None) if waits else None)


def _vms_by_host(scope: Scope, before: _Prepared | None) -> Mapping[str, tuple[Vm, ...]]:
    if before is not None and mention_the_same(before.scope, scope):
        return before.vms
    coming = {target for target, _ in arrivals(scope)}
    coming.update(vm.host for vm in scope.vms if _not_shown(vm))
    by_host: dict[str, list[Vm]] = {}
    for vm in scope.vms:
        by_host.setdefault(vm.host, []).append(vm)
    return {
        host: own_vms(scope, host) if host in coming else tuple(by_host[host])
        for host in coming | by_host.keys()
    }


def as_shown_to(scope: Scope, host: str) -> Scope:
    """What of a scope its documents on that host are made of."""
    return Showing(scope).to(host)


def _as_shown(event: ScheduledEvent) -> ScheduledEvent:
    """What every host is shown of a visible event, and what counts as confirmed."""
    return replace(
        event,
        actions=(),
        shown_ms=event.scheduled_ms,
        unreadable_ms=0,
        approved_ms=None,
        approved_by=None,
        deadline_ms=None,
        ordered_by="",
    )


def need_own_vm(tx: Transaction, host: str, vm: str) -> Scope:
    """The scope of a VM that the host may speak for. Raises NotFound or NotYours."""
    scope = tx.need_scope_of_vm(vm)
    if any(own.name == vm for own in own_vms(scope, host)):
        return scope
    known = scope.vm(vm)
    raise NotYours(
        f"Host {host} cannot speak for VM {vm}, which is on {known.host if known else 'no host'}.",
        "A host speaks for its own VMs only; what it sees next says which these are.",
    )
