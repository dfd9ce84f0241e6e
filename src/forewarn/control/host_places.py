"""The place of a host in the fleet: given when its daemon joins, taken when it is retired."""

from __future__ import annotations

from dataclasses import replace

from forewarn.control.inventory_keys import need_host_name
from forewarn.control.transaction import Transaction
from forewarn.control.writer import Command
from forewarn.core.errors import Conflict
from forewarn.core.facts import host_fact
from forewarn.core.model import Decision, FactKind, Host


def host_joined(name: str, *, by: str) -> Command[None]:
    """A host has a daemon and a certificate: it is in the fleet, whatever a file lists.

    Raises Invalid for a bad name, and Conflict for one that differs from another host's in case
    only. A host that joins again keeps everything that was said of it.
    """
    need_host_name(name)

    def command(tx: Transaction) -> None:
        taken = next((h.name for h in tx.hosts() if h.name.casefold() == name.casefold()), name)
        if taken != name:
            raise Conflict(
                f"There is a host {taken}, and a difference in case is none.",
                "Choose another name.",
            )
        known = tx.host(name)
        joined = replace(known or Host(name=name), joined=True, listed=True)
        detail = {"again": known is not None and known.joined}
        fact = host_fact(FactKind.HOST_JOINED, name, tx.now_ms, by=by, detail=detail)
        tx.apply(Decision(hosts=(joined,), facts=(fact,)))

    return command


def host_left(name: str, *, by: str, listed_by_file: bool = False) -> Command[None]:
    """A host has no certificate any more. It leaves the fleet unless something is still there.

    A host that VMs are on, or that an event or operation is about, stays without new VMs until it
    is retired again; one that an inventory file lists stays as the file's.
    """

    def command(tx: Transaction) -> None:
        host = tx.host(name)
        if host is None:
            return
        needed = bool(tx.scopes_on(name) or tx.operations_on(name) or tx.arriving(name))
        stays = needed or listed_by_file
        fact = host_fact(FactKind.HOST_LEFT, name, tx.now_ms, by=by, detail={"stays": stays})
        left = replace(host, joined=False, listed=listed_by_file)
        tx.apply(Decision(hosts=(left,), facts=(fact,)))
        if not stays:
            tx.remove_host(name)

    return command
