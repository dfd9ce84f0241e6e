"""Whose VM is whose: what a host may speak for, and what of a scope it is shown.

A host speaks for the VMs that are on it, and for those that a started action is bringing to it:
they may run there a moment before their move is reported. For everything else it is refused, so
a host that was broken into can approve, enable and confirm nothing of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import msgspec
from msgspec import Struct

from forewarn.control.transaction import Transaction
from forewarn.core import document
from forewarn.core.errors import NotYours
from forewarn.core.model import ScheduledEvent, Scope, Vm
from forewarn.core.unfinished_moves import arrivals, arrive_the_same, mention_the_same
from forewarn.wire.link import ShownEvent, ShownScope, ShownVm
from forewarn.wire.link_values import profile_said

_encode = msgspec.json.Encoder().encode


def own_vms(scope: Scope, host: str) -> tuple[Vm, ...]:
    """The VMs of a scope that are on the host, or that a started action is bringing there."""
    coming = {vm.name for target, vm in arrivals(scope) if target == host}
    return tuple(vm for vm in scope.vms if vm.host == host or vm.name in coming)


class _Head(NamedTuple):
    """What every host is shown of a scope besides its events."""

    name: str
    kind: str
    incarnation: int
    enabled: bool
    waiting_for: tuple[str, ...]


class _AroundVms(NamedTuple):
    """The JSON of a scope before the VMs of a host and after them.

    `to_confirm` is what follows for a host that has to confirm the scope, `confirmed` for others.
    """

    before: bytes
    confirmed: bytes
    to_confirm: bytes


class _Prepared(Struct, frozen=True, dict=True):
    """What hosts are shown of `scope`: head and events by all of them, VMs by host.

    `made` are the same events by id; `to_confirm` the hosts that have still to say that they show
    one of theirs.
    """

    scope: Scope
    head: _Head
    events: tuple[ShownEvent, ...]
    made: Mapping[str, ShownEvent]
    vms: Mapping[str, tuple[ShownVm, ...]]
    to_confirm: frozenset[str]

    @cached_property
    def around_vms(self) -> _AroundVms:
        """What is the same for every host, as it goes over the wire: encoded once for all."""
        name, kind, incarnation, enabled, waiting_for = self.head
        before = _encode(ShownScope(name, kind, incarnation, enabled))[:-1]
        whole = ShownScope(name, kind, incarnation, enabled, (), self.events, waiting_for)
        confirm = msgspec.structs.replace(whole, to_confirm=True)
        size = len(before)
        return _AroundVms(before, _encode(whole)[size:], _encode(confirm)[size:])


class ScopeByHost:
    """What of one scope each host is shown: visible events, and its own VMs only.

    What no guest can see is left out: it is no business of the host, and when it changes nothing
    needs to be sent. What is the same for every host is made once, when the first one asks; what
    has not changed since `before`, the last commit of the scope, is taken from there.
    """

    def __init__(self, scope: Scope, before: ScopeByHost | None = None) -> None:
        self.scope = scope
        then = None if before is None else before.prepared
        self.prepared: _Prepared | None = None
        if then is not None:
            self.prepared = _unseen(scope, then) or _prepare(scope, then)

    def to(self, host: str) -> ShownScope:
        """What this host is shown."""
        made = self._made()
        name, kind, incarnation, enabled, waiting_for = made.head
        vms, to_confirm = made.vms.get(host, ()), host in made.to_confirm
        # In the order of its fields: this is done for each host of each scope that changes.
        return ShownScope(
            name, kind, incarnation, enabled, vms, made.events, waiting_for, to_confirm
        )

    def encoded(self, host: str) -> msgspec.Raw:
        """The JSON of what this host is shown. Only its VMs are encoded for it alone."""
        made = self._made()
        before, confirmed, to_confirm = made.around_vms
        after = to_confirm if host in made.to_confirm else confirmed
        vms = made.vms.get(host)
        return msgspec.Raw(
            b"".join((before, b',"vms":', _encode(vms), after) if vms else (before, after))
        )

    @property
    def incarnation(self) -> int:
        """That of the document that hosts are shown."""
        return self.scope.incarnation

    def _made(self) -> _Prepared:
        if self.prepared is None:
            self.prepared = _prepare(self.scope)
        return self.prepared

    def same_as(self, before: ScopeByHost) -> bool:
        """True if every host is surely shown the same as before, or has just confirmed it."""
        now, then = self.prepared, before.prepared
        if now is None or then is None:
            return False
        same = now.events is then.events and now.head == then.head and now.vms is then.vms
        return same and now.to_confirm <= then.to_confirm

    def confirmed_since(self, before: ScopeByHost) -> frozenset[str]:
        """The hosts that have confirmed, since then, what they show."""
        now, then = self.prepared, before.prepared
        return frozenset() if now is None or then is None else then.to_confirm - now.to_confirm

    def waits_as(self, before: ScopeByHost) -> bool:
        """True if hosts surely have the same left to confirm as before."""
        now, then = self.prepared, before.prepared
        return now is not None and then is not None and now.to_confirm is then.to_confirm

    def differs_for_all(self, before: ScopeByHost) -> bool:
        """Whether every host is shown something else than before, as far as that was looked at."""
        now, then = self.prepared, before.prepared
        return now is None or then is None or now.events is not then.events or now.head != then.head

    def differs(self, before: ScopeByHost, host: str) -> bool:
        """Whether the host is shown something else than before, as far as that was looked at.

        One that has confirmed what it shows knows that.
        """
        now, then = self.prepared, before.prepared
        if now is None or then is None or self.differs_for_all(before):
            return True
        if host in now.to_confirm and host not in then.to_confirm:
            return True
        return now.vms is not then.vms and now.vms.get(host) != then.vms.get(host)


def _head(scope: Scope) -> _Head:
    waiting = tuple(vm for recovery in scope.recoveries for vm in recovery.waiting_for)
    return _Head(scope.name, scope.kind.value, scope.incarnation, scope.enabled, waiting)


def _unseen(scope: Scope, before: _Prepared) -> _Prepared | None:
    """What was prepared, for a scope of which no host is shown anything new; None if one may be.

    That is an approval, and most of what happens while many events wait.
    """
    if not mention_the_same(before.scope, scope) or _head(scope) != before.head:
        return None
    for old, new in document.in_place(before.scope.events, scope.events) or ():
        known = before.made.get(new.event_id)
        if known is None or not new.visible or (old.shown_ms is None) != (new.shown_ms is None):
            return None
        if _as_shown(new) != known:
            return None
    return _Prepared(scope, before.head, before.events, before.made, before.vms, before.to_confirm)


def _prepare(scope: Scope, before: _Prepared | None = None) -> _Prepared:
    then = {} if before is None else {event.event_id: event for event in before.scope.events}
    earlier: Mapping[str, ShownEvent] = {} if before is None else before.made
    made: dict[str, ShownEvent] = {}
    to_confirm: set[str] = set()
    for event in document.visible(scope):
        shown = earlier.get(event.event_id)
        if shown is None or then[event.event_id] is not event:
            now = _as_shown(event)
            shown = shown if shown == now else now  # the same value is found to be so at once
        made[event.event_id] = shown
        if event.shown_ms is None:
            to_confirm.add(event.host)
    events = tuple(made.values())
    if before is not None and before.events == events:
        events = before.events
    return _Prepared(
        scope=scope,
        head=_head(scope),
        events=events,
        made=made,
        vms=_vms_by_host(scope, before),
        to_confirm=frozenset(to_confirm),
    )


def _vms_by_host(scope: Scope, before: _Prepared | None) -> Mapping[str, tuple[ShownVm, ...]]:
    if before is not None and arrive_the_same(before.scope, scope):
        return before.vms
    coming = [(target, vm) for target, vm in arrivals(scope) if target != vm.host]
    by_host: dict[str, list[ShownVm]] = {}
    arrive: dict[str, set[str]] = {}
    for target, vm in coming:
        arrive.setdefault(vm.name, set()).add(target)
    for vm in scope.vms:
        shown = vm_as_shown(vm)
        for host in (vm.host, *sorted(arrive.get(vm.name, ()))):
            by_host.setdefault(host, []).append(shown)
    return {host: tuple(vms) for host, vms in by_host.items()}


def _as_shown(event: ScheduledEvent) -> ShownEvent:
    """What every host is shown of a visible event."""
    return ShownEvent(
        event_id=event.event_id,
        event_type=event.event_type.value,
        event_source=event.event_source.value,
        phase=event.phase.value,
        not_before_ms=event.not_before_ms,
        resources=event.resources,
        description=event.description,
        duration_s=event.duration_s,
    )


def vm_as_shown(vm: Vm) -> ShownVm:
    return ShownVm(
        name=vm.name,
        vm_id=vm.vm_id,
        host=vm.host,
        update_domain=vm.update_domain,
        **profile_said(vm.profile),
    )


def need_own_vm(tx: Transaction, host: str, vm: str) -> Scope:
    """The scope of a VM that the host may speak for. Raises NotFound or NotYours."""
    scope = tx.need_scope_of_vm(vm)
    known = scope.vm(vm)
    if known is not None and known.host == host:
        return scope
    if any(own.name == vm for own in own_vms(scope, host)):
        return scope
    raise NotYours(
        f"Host {host} cannot speak for VM {vm}, which is on {known.host if known else 'no host'}.",
        "A host speaks for its own VMs only; what it sees next says which these are.",
    )
