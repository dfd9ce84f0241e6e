"""Whose VM is whose: what a host may speak for, and what of a scope it is shown.

A host speaks for the VMs that are on it, and for those that a started action is bringing to it:
they may run there a moment before their move is reported. For everything else it is refused, so
a host that was broken into can approve, enable and confirm nothing of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from forewarn.control import metadata
from forewarn.control.transaction import Transaction
from forewarn.control.writer import Command
from forewarn.core.errors import Conflict, NotYours
from forewarn.core.model import ScheduledEvent, Scope, Vm
from forewarn.core.whereabouts import arrivals
from forewarn.ports import FirstRead
from forewarn.wire.host_json import ReadBefore, Traces


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


class Showing:
    """What of one scope each host is shown: visible events, and its own VMs only.

    What no guest can see is left out: it is no business of the host, and when it changes nothing
    needs to be sent. Of `shown_ms` it matters only whether the host has still to confirm. What is
    the same for every host is made once, when the first one asks.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._vms: dict[str, tuple[Vm, ...]] | None = None
        self._same: Scope = scope

    def to(self, host: str) -> Scope:
        """What this host is shown."""
        if self._vms is None:
            self._vms = self._prepare()
        same = self._same
        events = same.events
        if any(one.host == host and one.shown_ms is None for one in self._scope.events):
            events = tuple(_as_shown(one, host) for one in self._scope.events if one.visible)
        return replace(same, vms=self._vms.get(host, ()), events=events)

    def _prepare(self) -> dict[str, tuple[Vm, ...]]:
        scope = self._scope
        self._same = replace(
            scope,
            revision=0,
            vms=(),
            events=tuple(_as_shown(event, "") for event in scope.events if event.visible),
            polled_ms=None,
            hold=None,
            deleted=(),
        )
        by_host: dict[str, list[Vm]] = {}
        for vm in scope.vms:
            by_host.setdefault(vm.host, []).append(vm)
        coming = {target for target, _ in arrivals(scope)}
        coming.update(vm.host for vm in scope.vms if _not_shown(vm))
        return {
            host: own_vms(scope, host) if host in coming else tuple(by_host[host])
            for host in coming | by_host.keys()
        }


def as_shown_to(scope: Scope, host: str) -> Scope:
    """What of a scope its documents on that host are made of."""
    return Showing(scope).to(host)


def _as_shown(event: ScheduledEvent, host: str) -> ScheduledEvent:
    confirmed = event.host != host or event.shown_ms is not None
    return replace(
        event,
        actions=(),
        shown_ms=event.scheduled_ms if confirmed else None,
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


def approve(host: str, vm: str, event_ids: tuple[str, ...]) -> Command[None]:
    """A VM of the host says go ahead."""

    def command(tx: Transaction) -> None:
        need_own_vm(tx, host, vm)
        metadata.approve(vm, event_ids)(tx)

    return command


def enable(host: str, scope: str, vm: str) -> Command[None]:
    """A VM of the host polled a scope that was not enabled."""

    def command(tx: Transaction) -> None:
        found = need_own_vm(tx, host, vm)
        if found.name != scope:
            raise NotYours(
                f"VM {vm} is in scope {found.name}, not in {scope}.",
                "Show the scopes of the last answer to /link/changes.",
            )
        metadata.enable(scope, vm=vm)(tx)

    return command


def confirm(host: str, scope: str, incarnation: int) -> Command[None]:
    """The host shows an incarnation. Raises Conflict for one that never was.

    A scope that has left since it was shown is no reason to refuse anything.
    """

    def command(tx: Transaction) -> None:
        found = tx.scope(scope)
        if found is not None and incarnation > found.incarnation:
            raise Conflict(
                f"Host {host} cannot show incarnation {incarnation} of scope {scope}, which is at"
                f" {found.incarnation}.",
                "Show what the last answer to /link/changes has, and confirm that.",
            )
        metadata.confirm(host, scope, incarnation)(tx)

    return command


def keep_traces(host: str, traces: Traces) -> Command[None]:
    """Keep what guests of the host did in passing; what is not of its own VMs is left out.

    Nothing of it may be refused: a VM that has left meanwhile must not cost the others theirs.
    """

    def command(tx: Transaction) -> None:
        own = {scope.name: {vm.name for vm in own_vms(scope, host)} for scope in tx.scopes_on(host)}
        own = {name: vms for name, vms in own.items() if vms}
        reads = list(_first_reads(tx, own, traces.first_reads))
        if reads:
            metadata.save_first_reads(reads)(tx)
        metadata.save_polls(
            {
                name: _at_ms(tx.now_ms, age_ms)
                for name, age_ms in traces.polls.items()
                if name in own
            }
        )(tx)
        everybody = set().union(*own.values())
        for vm in traces.returned:
            if vm in everybody:
                metadata.returned(vm)(tx)

    return command


def _first_reads(
    tx: Transaction, own: Mapping[str, set[str]], given: Iterable[ReadBefore]
) -> Iterator[FirstRead]:
    by_scope: dict[str, list[ReadBefore]] = {}
    for read in given:
        if read.vm in own.get(read.scope, ()):
            by_scope.setdefault(read.scope, []).append(read)
    for scope, reads in by_scope.items():
        known = tx.known_ids(scope, {read.event_id for read in reads})
        for read in reads:
            if read.event_id in known:
                read_ms = _at_ms(tx.now_ms, read.age_ms)
                yield FirstRead(scope=scope, event_id=read.event_id, vm=read.vm, read_ms=read_ms)


def _at_ms(now_ms: int, age_ms: int) -> int:
    """When something was that is so old: never in the future, nor before time began."""
    return max(0, now_ms - max(0, age_ms))
