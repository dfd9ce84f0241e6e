"""Hosts that show anything, orders at any time, restarts: whatever comes, the fleet makes sense.

Every save checks the invariants itself; here it is judged what VMs could read, and what is left.
"""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from forewarn.control.hosts.report_slices import SLICE_VMS_MAX
from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.inventory.host_report import Power, SeenVm
from forewarn.core.model import EventType, ScopeKind
from forewarn.core.vm_profile import Priority
from support import ordered
from support.fleets import HOSTS, WEB, alone, vm
from support.reporting_fleet import ReportingFleet, id_of, seen

SEEDS = 12
TURNS = 150
NAMES = ("a", "b", "c", "web", "A", "web_0")
SCOPES = ("", "", "web", "web", "api", "Web", "a")
FILES = (HOSTS, HOSTS + WEB + vm("web_0"), HOSTS + alone("a"), HOSTS + WEB + vm("a") + vm("b"))


class Anything:
    """A fleet to which anything happens, from a seed."""

    def __init__(self, seed: int, folder: Path, slice_vms: int) -> None:
        self.rng = random.Random(seed)
        self.fleet = ReportingFleet(folder=folder, slice_vms=slice_vms)
        self._between = False
        self.read: dict[tuple[str, str], int] = {}  # the highest incarnation a VM could read

    def turn(self) -> None:
        happens = self.rng.choices(
            (self.shows, self.orders, self.works, self.later, self.host, self.file, self.restart),
            (10, 3, 3, 3, 1, 1, 0.3),
        )[0]
        with suppress(Refusal, Unavailable):
            happens()
        self.judge()

    def domain(self) -> SeenVm:
        name = self.rng.choice(NAMES)
        return seen(
            name,
            self.rng.choices(tuple(Power), (6, 1, 2, 1))[0],
            vm_id=id_of(name if self.rng.random() < 0.9 else f"{name} anew"),
            scope=self.rng.choice(SCOPES),
            update_domain=self.rng.choice((None, 0, 1, 2)),
            scope_kind=self.rng.choice((None, None, *ScopeKind)),
            priority=self.rng.choice((None, Priority.SPOT)),
            address=self.rng.choice((None, "192.0.2.1")),
            terminate_notice_ms=self.rng.choice((None, 300_000, 1)),
            problem=self.rng.choice(("", "", "", "it has a problem.")),
        )

    def shows(self) -> None:
        vms = {one.name: one for one in (self.domain() for _ in range(self.rng.randrange(5)))}
        host = self.rng.choice(("h1", "h2", "h3"))
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            self.fleet.shows(host, *vms.values(), between=self.between)
            if self.rng.random() < 0.3:
                self.later()

    def between(self) -> None:
        """Between two slices of a report anything may happen, and that the rest never comes."""
        self.judge()
        if self._between or self.rng.random() < 0.4:
            return
        self._between = True
        try:
            self.turn()
        finally:
            self._between = False
        if self.rng.random() < 0.2:
            raise Unavailable("The host hung up.")

    def orders(self) -> None:
        if self.rng.random() < 0.3:
            kind = self.rng.choice((EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY))
            self.fleet.maintain(self.rng.choice(("h1", "h2", "h3")), kind)
            return
        kind = self.rng.choice((EventType.REBOOT, EventType.REDEPLOY, EventType.TERMINATE))
        event = self.fleet.order(self.rng.choice(NAMES), kind)
        if self.rng.random() < 0.7:
            self.fleet.approve(event)

    def works(self) -> None:
        self.fleet.tick()
        if self.rng.random() < 0.6:
            self.fleet.hosts_do_their_work()

    def later(self) -> None:
        self.fleet.later(self.rng.choice((1, 20, 40, 1_000)))

    def host(self) -> None:
        host = self.rng.choice(("h1", "h2", "h3"))
        silent = self.fleet.heard_from.silent
        what = self.rng.randrange(4)
        if what == 0:
            silent.symmetric_difference_update({host})
        elif what == 1:
            fenced = self.rng.random() < 0.5
            self.fleet.run(ordered.fail_host(host, by="operator", fenced=fenced, force=True))
        else:
            self.fleet.run(ordered.repair_host(host, by="operator", force=True))

    def file(self) -> None:
        self.fleet.apply(self.rng.choice(FILES))

    def restart(self) -> None:
        before = self.fleet.everything()
        digests = dict(self.fleet.index.digests)
        self.fleet.restart()
        assert (self.fleet.everything(), self.fleet.index.digests) == (before, digests)

    def judge(self) -> None:
        memory = self.fleet.index
        names = [vm.name for scope in memory.scopes.values() for vm in scope.vms]
        assert len(names) == len({name.casefold() for name in names})
        assert memory.digests.keys() <= set(names)
        for scope in memory.scopes.values():
            if scope.kind is ScopeKind.STANDALONE:
                assert len(scope.vms) <= 1, scope
            open_names = {name for event in scope.events for name in event.resources}
            started = {n for e in scope.events if e.started_ms for n in e.resources}
            assert open_names - started <= {vm.name for vm in scope.vms}, scope
            for one in scope.vms:
                who = (one.name, one.vm_id)
                assert scope.incarnation >= self.read.get(who, 1), who  # I4, for whoever reads it
                self.read[who] = scope.incarnation


@pytest.mark.parametrize("slice_vms", [1, SLICE_VMS_MAX])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_hosts_show_the_fleet_makes_sense(
    seed: int, slice_vms: int, tmp_path: Path
) -> None:
    world = Anything(seed, tmp_path, slice_vms)
    for _ in range(TURNS):
        world.turn()
    assert world.read  # else nothing was ever judged
    world.fleet.close()
