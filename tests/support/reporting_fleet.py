"""A small control plane that hosts show their VMs to: the real writer and store, a set clock.

Shared by the tests of host reports; no test lives here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from forewarn.control.commands import Command, HandedOut, ReportTaken
from forewarn.control.hosts import move_targets
from forewarn.control.hosts.report_intake import ReportIntake
from forewarn.control.hosts.report_slices import SLICE_VMS_MAX, digested
from forewarn.control.transaction import Transaction
from forewarn.core.inventory.host_report import Power, SeenVm
from forewarn.core.model import Action, EventType, Fact, FactKind, Operation, Policy
from forewarn.core.starting import Hold, operation_holds
from support import ordered, profiles
from support.inventory_fleet import InventoryFleet

_NAMES = UUID("6ba7b812-9dad-11d1-80b4-00c04fd430c8")


def id_of(name: str) -> str:
    """The UUID that tests give a domain of that name."""
    return str(uuid5(_NAMES, name))


def seen(
    name: str, power: Power = Power.RUNNING, *, vm_id: str = "", problem: str = "", **said: Any
) -> SeenVm:
    """A domain; `said` are its traits."""
    return SeenVm(
        name=name,
        vm_id=vm_id or id_of(name),
        power=power,
        traits=profiles.traits(**said),
        definition=f"<domain><name>{name}</name></domain>",
        problem=problem,
    )


def web(number: int, **keys: Any) -> SeenVm:
    """A domain of scope web, each in an update domain of its own."""
    return seen(f"web-{number}", **{"scope": "web", "update_domain": number, **keys})


class ReportingFleet(InventoryFleet):
    """Hosts that have joined, and what they show. `restart` forgets what is not durable."""

    def __init__(
        self,
        *hosts: str,
        folder: Path | None = None,
        policy: Policy | None = None,
        slice_vms: int = SLICE_VMS_MAX,
    ) -> None:
        super().__init__(folder, policy=policy)
        self._slice_vms = slice_vms
        self.report_intake = ReportIntake(self.clock, self.volatile, slice_vms=slice_vms)
        for host in hosts or ("h1", "h2", "h3"):
            self.run(ordered.host_joined(host, by="operator"))

    def restart(self) -> None:
        super().restart()
        self.report_intake = ReportIntake(self.clock, self.volatile, slice_vms=self._slice_vms)

    def shows(
        self,
        host: str,
        *vms: SeenVm,
        between: Callable[[], None] = lambda: None,
        boot_id: str = "",
    ) -> Mapping[str, str]:
        """A host shows its VMs; the problems with them. `between` happens between two slices."""
        problems = self.settled(host, vms, boot_id)
        if problems is not None:
            return problems
        first, *others = self.report_intake.steps(host, vms, boot_id)
        problems = self.take(host, first)
        for step in others:
            between()
            problems = self.take(host, step)
        return problems

    def take(self, host: str, *steps: Command[ReportTaken]) -> Mapping[str, str]:
        """Carry out steps of taking a report, as the service does; what the last one answers."""
        problems: Mapping[str, str] = {}
        for step in steps:
            taken = self.run(step)
            problems = taken.problems
            self.observed.sees(host)
        return problems

    def settled(
        self, host: str, vms: Sequence[SeenVm], boot_id: str = ""
    ) -> Mapping[str, str] | None:
        """The answer to a report without anybody having to look at it; None if somebody has to."""
        return self.report_intake.settled(self.published, host, digested(host, vms), boot_id)

    def targets(self, host: str, *vms: str) -> dict[str, str | None]:
        return move_targets.targets(self.published.look(), host, vms)

    def definition(self, host: str, vm: str) -> str | None:
        """What a host is told of a VM that comes to it."""
        if not move_targets.is_coming(self.published.look(), host, vm):
            return None
        kept = self.store.definition(vm)
        return kept.text if kept else None

    def later(self, seconds: float) -> None:
        """Time goes by, in the writer's eyes too."""
        self.clock.pass_ms(round(seconds * 1_000))

    def maintain(self, host: str, event_type: EventType) -> Operation:
        return self.run(
            ordered.maintain_host(
                host,
                event_type,
                by="operator",
                not_before_ms=None,
                duration_s=None,
                description=None,
                break_domains=False,
            )
        )

    def handed_out(self, host: str) -> Sequence[HandedOut]:
        return self.run(ordered.claim(host, "boot-1")).work

    def claim(self, host: str) -> list[Action]:
        """What a host is handed to do."""
        return [one.action for one in self.run(ordered.claim(host, "boot-1")).work]

    def operation_holds(self, operation: Operation) -> list[Hold]:
        """Why an operation has not started yet."""

        def question(tx: Transaction) -> list[Hold]:
            found = tx.operations[operation.operation_id]
            return list(operation_holds(found, tx, tx.now_ms))

        return self.run(question)

    def names(self) -> list[str]:
        return sorted(self.index.scope_of_vm)

    def facts(self, *kinds: FactKind) -> list[Fact]:
        return [line.fact for line in self.journal() if not kinds or line.fact.kind in kinds]
