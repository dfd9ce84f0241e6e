"""What a host sees on its hypervisor: VMs as they are there, whoever made them.

Values only. What the fleet makes of them is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forewarn.core.model import EventType, Priority, ScopeKind


class Power(StrEnum):
    """Whether a VM runs."""

    RUNNING = "running"
    PAUSED = "paused"
    OFF = "off"
    CRASHED = "crashed"


class WhenHostGoesDown(StrEnum):
    """What becomes of a VM when its host is rebooted."""

    MOVE = "move"  # live to another host; shut down and started again if that cannot be
    RESTART = "restart"  # shut down before, started again after


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What the owner of a VM has said of it, in its domain's metadata element.

    None (and an empty scope) is what nobody said. `scope_kind`, `terminate_notice_ms` and
    `auto_approve` are of the scope; the VMs of one scope should agree on them.
    """

    scope: str = ""
    update_domain: int | None = None
    scope_kind: ScopeKind | None = None
    terminate_notice_ms: int | None = None
    auto_approve: frozenset[EventType] | None = None
    priority: Priority | None = None
    address: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    fault_domain: int | None = None
    zone: str = ""
    freeze_by_move: bool = False  # a Freeze of its host moves it away instead of pausing it
    when_host_goes_down: WhenHostGoesDown = WhenHostGoesDown.RESTART


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """One interface of a VM: its MAC address, and the tap on the host while it runs.

    `bridge` is where the tap is plugged in; None for a tap that stands alone.
    """

    mac: str
    tap: str | None = None
    bridge: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenVm:
    """A VM as its hypervisor shows it now.

    `definition` is what another host needs to start it; `problem` says what about it cannot be
    used, in words for the operator.
    """

    name: str
    vm_id: str
    power: Power
    traits: Traits = Traits()
    nics: tuple[Nic, ...] = ()
    definition: str = ""
    problem: str = ""
