"""Who wants a change: the principal of every command, and of what it leaves in the journal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PrincipalKind(StrEnum):
    OPERATOR = "operator"
    HOST = "host"
    VM = "vm"
    CONTROL = "control"  # control itself: its ticker, its clock, its inventory file


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody who may want something. `name` is what the journal says."""

    kind: PrincipalKind
    id: str
    name: str

    def __str__(self) -> str:
        return self.name


def the_host(name: str) -> Principal:
    """The daemon of a host."""
    return Principal(kind=PrincipalKind.HOST, id=name, name=name)


def the_vm(name: str) -> Principal:
    """A guest, by the VM that it runs in."""
    return Principal(kind=PrincipalKind.VM, id=name, name=name)


def _control(part: str) -> Principal:
    return Principal(kind=PrincipalKind.CONTROL, id=part, name=part)


OPERATOR = Principal(kind=PrincipalKind.OPERATOR, id="operator", name="operator")
TICKER = _control("ticker")
CLOCK = _control("clock")
INVENTORY_FILE = _control("inventory")
