"""What a rule may ask about everything outside the scope it decides on.

The control plane answers from its memory, including what the same transaction has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from forewarn.core.model import Host, Operation, Scope, Vm


class Fleet(Protocol):
    """Read-only. Names that do not exist answer None; the rules turn that into refusals."""

    def host(self, name: str) -> Host | None: ...

    def hosts(self) -> Iterable[Host]: ...

    def alive(self, host: str) -> bool:
        """True while the host's heartbeat is fresh."""
        ...

    def silent_ms(self, host: str) -> int:
        """For how long the host has not been heard."""
        ...

    def may_be_on(self, host: str) -> bool:
        """True while the host is heard, or was not listened for long enough to take it for off."""
        ...

    def hypervisor_unreachable(self, host: str) -> str:
        """Why the host cannot reach its own hypervisor; empty if it can, or never said so."""
        ...

    def refuses(self, host: str) -> str:
        """Why the host obeys nothing of this control, in its words; empty if it does obey."""
        ...

    def two_daemons(self, host: str) -> bool:
        """True while two daemons speak as the host: two machines have its credentials."""
        ...

    def shut_out(self, host: str) -> bool:
        """True for a host that has to join to be heard and is no member: revoked, or not yet."""
        ...

    def scope(self, name: str) -> Scope | None: ...

    def scopes_on(self, host: str) -> Sequence[Scope]:
        """Scopes with VMs on the host or open events about it, in name order."""
        ...

    def vm_count(self, host: str) -> int:
        """How many VMs are on the host."""
        ...

    def arriving(self, host: str) -> Sequence[tuple[str, Vm]]:
        """(scope name, VM) of VMs that a started action is bringing to the host."""
        ...

    def strangers(self, host: str) -> Sequence[str]:
        """Names of VMs that the host shows to run and that the fleet does not have there."""
        ...

    def places(self) -> Sequence[tuple[Host, int]]:
        """`placement.places` of this fleet: computed once for many VMs that look for a place."""
        ...

    def operation(self, operation_id: str) -> Operation | None: ...

    def operations_on(self, host: str) -> Sequence[Operation]:
        """Open operations of the host, oldest first."""
        ...
