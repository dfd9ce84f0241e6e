"""What a host sees on its hypervisor: all VMs as they are there, ours and others.

Values only. What the fleet makes of them is decided elsewhere.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from forewarn.core.model import EventType, ScopeKind
from forewarn.core.vm_profile import NOTHING_SAID, VmProfile


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


class Traits(Struct, frozen=True, kw_only=True):
    """What the owner of a VM has said of it, in its domain's metadata element.

    None (and an empty scope) stands for what the owner left out; so do the defaults of `profile`.
    `scope_kind`, `terminate_notice_ms` and `auto_approve` are of the scope; the VMs of one scope
    should agree on them.
    """

    scope: str = ""
    update_domain: int | None = None
    scope_kind: ScopeKind | None = None
    terminate_notice_ms: int | None = None
    auto_approve: frozenset[EventType] | None = None
    profile: VmProfile = NOTHING_SAID
    freeze_by_move: bool = False  # a Freeze of its host moves it away instead of pausing it
    when_host_goes_down: WhenHostGoesDown = WhenHostGoesDown.RESTART


class Nic(Struct, frozen=True, kw_only=True):
    """One interface of a VM: its MAC address, and the tap on the host while it runs.

    `bridge` is where the tap is plugged in; None for a tap that stands alone.
    """

    mac: str
    tap: str | None = None
    bridge: str | None = None


class SeenVm(Struct, frozen=True, kw_only=True):
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
