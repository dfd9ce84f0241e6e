"""What guests cause, as their hosts tell it: each function decides one command.

A host is believed of its own VMs only (`hosts.own_vms`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from forewarn.control import commands
from forewarn.control.hosts.own_vms import need_own_vm, own_vms
from forewarn.control.transaction import Transaction
from forewarn.core import polls_and_approvals, scheduling, vm_power
from forewarn.core.errors import Conflict, NotFound, NotYours
from forewarn.ports import FirstRead


def approve_events(tx: Transaction, command: commands.ApproveEvents) -> None:
    scope, event_ids = need_own_vm(tx, command.host, command.vm), command.event_ids
    polls_and_approvals.refuse_unseen(scope, event_ids)
    missing = [i for i in event_ids if scope.event(i) is None]
    known = tx.known_ids(scope.name, missing) if missing else frozenset()
    tx.apply(
        polls_and_approvals.approve(scope, event_ids, known=known, by=command.by, now_ms=tx.now_ms)
    )


def enable_scope(tx: Transaction, command: commands.EnableScope) -> None:
    scope = need_own_vm(tx, command.host, command.vm)
    if scope.name != command.scope:
        raise NotYours(
            f"VM {command.vm} is in scope {scope.name}, not in {command.scope}.",
            "Show the scopes of the last answer to /link/changes.",
        )
    tx.apply(polls_and_approvals.enable(scope, vm=command.vm, now_ms=tx.now_ms))


def confirm_scope(tx: Transaction, host: str, name: str, incarnation: int) -> None:
    """The host shows an incarnation. Refused for one that never was.

    A scope that has left since it was shown is no reason to refuse anything.
    """
    scope = tx.scope(name)
    if scope is None:
        return
    if incarnation > scope.incarnation:
        raise Conflict(
            f"Host {host} cannot show incarnation {incarnation} of scope"
            f" {name}, which is at {scope.incarnation}.",
            "Show what the last answer to /link/changes has, and confirm that.",
        )
    tx.apply(
        polls_and_approvals.confirm(scope, host=host, incarnation=incarnation, now_ms=tx.now_ms)
    )


def keep_traces(tx: Transaction, command: commands.TakeTurn) -> None:
    """Nothing of it may be refused: a VM that has left must not cost the others theirs."""
    traces = (command.first_reads, command.polls, command.returned, command.first_polls)
    if not any(traces) and not command.rebooted:
        return
    host = command.host
    own = {scope.name: {vm.name for vm in own_vms(scope, host)} for scope in tx.scopes_on(host)}
    own = {name: vms for name, vms in own.items() if vms}
    tx.receipts(_first_reads(tx, own, command.first_reads))
    for name, age_ms in command.polls.items():
        scope = tx.scope(name) if name in own else None
        if scope is not None and scope.enabled:
            tx.apply(polls_and_approvals.polled(scope, _at_ms(tx.now_ms, age_ms)))
    for name, vms in own.items():
        scope = tx.scope(name) if vms.intersection(command.first_polls) else None
        if scope is not None:
            tx.apply(polls_and_approvals.first_polls(scope, vms.intersection(command.first_polls)))
    all_own = set().union(*own.values())
    for vm in command.returned:
        if vm in all_own:
            _returned(tx, vm)
    for name, vms in own.items():
        scope = tx.scope(name) if vms.intersection(command.rebooted) else None
        if scope is not None and scheduling.is_enabled(scope, tx.policy):
            tx.apply(vm_power.rebooted(scope, vms.intersection(command.rebooted), tx.now_ms))


def _returned(tx: Transaction, vm: str) -> None:
    """A VM that a recovering domain waits for has polled again."""
    try:
        scope = tx.need_scope_of_vm(vm)
    except NotFound:
        return  # deleted since it polled
    tx.apply(polls_and_approvals.returned(scope, vm, tx.now_ms))


def _first_reads(
    tx: Transaction, own: Mapping[str, set[str]], given: Iterable[commands.ReadAgo]
) -> Iterator[FirstRead]:
    by_scope: dict[str, list[commands.ReadAgo]] = {}
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
