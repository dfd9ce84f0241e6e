"""The place of a host in the fleet: given when its daemon joins, taken when it is retired."""

from __future__ import annotations

from msgspec.structs import replace

from forewarn.control import commands
from forewarn.control.inventory.file_fields import need_host_name
from forewarn.control.transaction import Transaction
from forewarn.core.errors import Conflict
from forewarn.core.facts import HostJoinedDetail, HostLeftDetail, host_fact
from forewarn.core.inventory.names import KnownNames, in_case_only
from forewarn.core.model import Decision, FactKind, Host
from forewarn.core.principal import Who


def host_joined(tx: Transaction, command: commands.HostJoined) -> None:
    name = command.host
    need_host_name(name)
    taken = KnownNames(host.name for host in tx.hosts()).taken_by(name)
    if taken not in (None, name):
        raise Conflict(f"{name} is refused: {in_case_only('host', taken)}", "Choose another name.")
    known = tx.host(name)
    joined = replace(known or Host(name=name), joined=True, listed=True)
    detail = HostJoinedDetail(again=known is not None and known.joined)
    fact = host_fact(FactKind.HOST_JOINED, name, tx.now_ms, by=command.by, detail=detail)
    tx.apply(Decision(hosts=(joined,), facts=(fact,)))


def hosts_left(tx: Transaction, command: commands.HostsLeft) -> None:
    text = tx.inventory
    if (None if text is None else tx.volatile.files.digest(text)) != command.inventory:
        raise Conflict("Another inventory was applied meanwhile.", "Look at it and say it again.")
    for name in command.hosts:
        _left(tx, name, by=command.by, listed_by_file=name in command.listed_by_file)


def _left(tx: Transaction, name: str, *, by: Who, listed_by_file: bool) -> None:
    host = tx.host(name)
    if host is None:
        return
    needed = bool(tx.scopes_on(name) or tx.operations_on(name) or tx.arriving(name))
    stays = needed or listed_by_file
    detail = HostLeftDetail(stays=stays)
    fact = host_fact(FactKind.HOST_LEFT, name, tx.now_ms, by=by, detail=detail)
    left = replace(host, joined=False, listed=listed_by_file)
    tx.apply(Decision(hosts=(left,), facts=(fact,)))
    if not stays:
        tx.remove_host(name)
