"""What guests cause: enabling, approvals, returns and receipts, each as one command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forewarn.control.transaction import Transaction
from forewarn.control.writer import Command
from forewarn.core import consent
from forewarn.core.errors import NotFound
from forewarn.ports import FirstRead


def enable(scope: str, *, vm: str) -> Command[None]:
    """A VM polled a scope that was not enabled."""

    def command(tx: Transaction) -> None:
        tx.apply(consent.enable(tx.need_scope(scope), vm=vm, now_ms=tx.now_ms))

    return command


def approve(vm: str, event_ids: Sequence[str]) -> Command[None]:
    """A VM says go ahead. All of it is applied, or with UnknownEventIds none of it."""

    def command(tx: Transaction) -> None:
        scope = tx.need_scope_of_vm(vm)
        consent.refuse_unseen(scope, event_ids)
        missing = [i for i in event_ids if scope.event(i) is None]
        known = tx.known_ids(scope.name, missing) if missing else frozenset()
        tx.apply(consent.approve(scope, event_ids, known=known, by=vm, now_ms=tx.now_ms))

    return command


def returned(vm: str) -> Command[None]:
    """A VM that a recovering domain waits for has polled again."""

    def command(tx: Transaction) -> None:
        try:
            scope = tx.need_scope_of_vm(vm)
        except NotFound:
            return  # deleted since it polled
        tx.apply(consent.returned(scope, vm, tx.now_ms))

    return command


def save_polls(polls: Mapping[str, int]) -> Command[None]:
    """Save when scopes were last polled."""

    def command(tx: Transaction) -> None:
        for name, polled_ms in polls.items():
            scope = tx.scope(name)
            if scope is not None and scope.enabled:
                tx.apply(consent.polled(scope, polled_ms))

    return command


def save_first_reads(first_reads: Sequence[FirstRead]) -> Command[None]:
    """Save receipts. They may be lost with a crash; approvals never are."""

    def command(tx: Transaction) -> None:
        tx.receipts(first_reads)

    return command


def confirm(host: str, scope: str, incarnation: int) -> Command[None]:
    """A host shows this incarnation of a scope's document."""

    def command(tx: Transaction) -> None:
        shown = tx.scope(scope)
        if shown is not None:
            tx.apply(consent.confirm(shown, host=host, incarnation=incarnation, now_ms=tx.now_ms))

    return command
