"""Hosts that lie: each says what is not so, with a good certificate, and nothing may come of it.

What a lie must not change is the whole fleet but the liar's own VMs: each is told right after
everybody concerned has told the truth, so that nothing else is new.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec.structs import replace

from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.inventory.host_report import Power, SeenVm
from forewarn.core.model import Action, ActionPhase, EventType, Health, Outcome, Scope, Vm
from forewarn.core.unfinished_moves import acted_on, arrivals
from forewarn.wire import link as wire
from simulation.hosts import SimHost
from simulation.judge import Broken
from simulation.service import Service
from simulation.world import SimulationWorld
from support import ordered
from support.control import run_now
from support.shown_scopes import sighting

Question = tuple[str, msgspec.Struct]


class Liars:
    """Lets hosts of a world lie."""

    def __init__(self, world: SimulationWorld) -> None:
        self._world = world
        self._rng = world.rng

    def lie(self) -> None:
        """One host that control listens to tells one lie."""
        hosts = [host for host in self._world.hosts.values() if self._is_heard(host)]
        if not hosts:
            return
        liar = self._rng.choice(hosts)
        lies = (
            self._of_actions,
            self._of_actions,
            self._of_incarnations,
            self._of_guests,
            self._of_guests,
            self._of_vms,
            self._of_vms,
        )
        try:
            self._rng.choice(lies)(liar)
        except (Refusal, Unavailable):
            return  # control has died over it, or would not take an order

    def _is_heard(self, host: SimHost) -> bool:
        world = self._world
        known = world.service.fleet.host(host.name) if world.service is not None else None
        dead = world.hypervisor.inner.dead(host.name)
        return known is not None and host.up and not dead and world.is_member(host)

    def _service(self) -> Service:
        if self._world.service is None:
            raise Unavailable("down")
        return self._world.service

    def _ask(self, host: SimHost, question: Question) -> tuple[int, bytes]:
        """One question by a clear way."""
        name, body = question
        return self._world.answer(host.disk.certificate, name, msgspec.json.encode(body))

    def _tell_truth(self, host: SimHost) -> Sequence[SeenVm]:
        seen = tuple(run_now(host.machines.seen()))
        status, _ = self._ask(host, ("sight", sighting(seen)))
        if status != HTTPStatus.OK:
            raise Unavailable("the truth was not heard")
        return seen

    def _fleet(self, liar: str) -> dict[str, Any]:
        """Everything but the liar's own VMs: what it said of those may be looked at anew.

        Looking also clears the names of deleted VMs in scopes that no inventory lists, where they
        mean nothing.
        """
        fleet = self._service().fleet
        listed = fleet.inventory or ""
        others = {
            f"scope {name}": replace(
                scope,
                revision=0,
                vms=tuple(vm for vm in scope.vms if vm.host != liar),
                deleted=scope.deleted if f'[[scope]]\nname = "{name}"' in listed else (),
            )
            for name, scope in fleet.scopes.items()
        }
        return {
            **others,
            **{f"host {host.name}": host for host in fleet.hosts()},
            **{f"operation {one}": value for one, value in fleet.operations.items()},
        }

    def _tell(self, liar: SimHost, lie: str, question: Question) -> bytes:
        """Tell a lie; nothing may be otherwise afterwards."""
        self._world.say(f"  {liar.name} lies: {lie}")
        self._world.submit(lambda _: None)  # a clock that was set is accounted for
        self._ask(liar, ("turn", wire.Turn()))  # so is that it was not heard for a while
        before = self._fleet(liar.name)
        status, answer = self._ask(liar, question)
        self._world.judge.lied(liar.name, lie, before, self._fleet(liar.name))
        return answer if status == HTTPStatus.OK else b""

    # Claims and reports.

    def _of_actions(self, liar: SimHost) -> None:
        if not self._actions():
            self._have_one_begun()
        self._tell_truth(liar)
        others = [action for action in self._actions() if action.host != liar.name]
        own = [action for action in self._actions() if action.host == liar.name]
        outcome = self._rng.choice([Outcome.DONE, Outcome.FAILED])
        if others:
            action = self._rng.choice(others)
            ended = wire.Turn(ended=(wire.Ended(action.action_id, action.epoch, outcome),))
            self._tell(liar, "another's action has ended", ("turn", ended))
            held = wire.Holds(action.action_id, action.epoch)
            answer = self._tell(liar, "another's claim is its own", ("holds", held))
            if answer and msgspec.json.decode(answer, type=wire.Held).holds:
                raise Broken(f"claims: {liar.name} is told that {action.action_id} is its own")
        for action in own[:1]:
            for epoch in (action.epoch - 1, action.epoch + 1):
                late = wire.Turn(ended=(wire.Ended(action.action_id, epoch, outcome),))
                self._tell(liar, "what it claimed once has ended", ("turn", late))

    def _have_one_begun(self) -> None:
        """Somebody restarts a VM, which takes long."""
        world = self._world
        vm = self._rng.choice(list(world.judge.domains))
        world.hypervisor.inner.slow_next(vm, extra_s=600)
        self._order(vm)
        for scope in self._scopes():
            for event in scope.events:
                if vm in event.resources and event.event_type is EventType.REBOOT:
                    world.judge.may_be_approved(event.event_id)
                    world.submit(ordered.approve_event(event.event_id, by="operator"))
        world.pass_time(15_000)

    def _actions(self) -> list[Action]:
        """Those that are claimed now."""
        fleet = self._service().fleet
        events = (event for scope in fleet.scopes.values() for event in scope.events)
        found = [action for event in events for action in event.actions]
        found += [one.action for one in fleet.operations.values() if one.action is not None]
        return [action for action in found if action.phase is ActionPhase.CLAIMED]

    # Documents.

    def _of_incarnations(self, liar: SimHost) -> None:
        """It confirms what it cannot show yet, because nobody has made it."""
        self._tell_truth(liar)
        own = [vm.name for scope in self._scopes() for vm in scope.vms if vm.host == liar.name]
        if own:
            self._order(self._rng.choice(own))
        for scope in self._scopes():
            incarnation = scope.incarnation + self._rng.choice([1, 2, 1_000_000])
            confirm = wire.Turn(confirms={scope.name: incarnation})
            self._tell(liar, "it shows what never was", ("turn", confirm))

    def _order(self, vm: str) -> None:
        """An event that no host has been told of yet."""
        self._world.judge.ordered([vm], EventType.REBOOT.value)
        self._world.submit(ordered.order_vm(vm, EventType.REBOOT, by="owner"))

    def _scopes(self) -> list[Scope]:
        return list(self._service().fleet.scopes.values())

    # What guests of others do.

    def _of_guests(self, liar: SimHost) -> None:
        foreign = list(self._foreign(liar))
        if not foreign:
            return
        scope, vm = self._rng.choice(foreign)
        if all(event.approved_ms is not None for event in scope.events):
            self._order(vm.name)
        self._tell_truth(liar)
        scope, foreign = self._service().fleet.scopes[scope.name], list(self._foreign(liar))
        ids = tuple(event.event_id for event in scope.events if event.visible)
        self._tell(liar, "another's VM approves", ("approve", wire.Approve(vm.name, ids)))
        self._tell(liar, "another's VM polls", ("enable", wire.Enable(scope.name, vm.name)))
        waiting = [name for scope, vm in foreign for name in _waited_for(scope, vm)]
        strange = all(one in foreign for one in ((scope, other) for other in scope.vms))
        polls = {scope.name: 0} if strange else {}
        traces = wire.Turn(polls=polls, returned=tuple(waiting))
        self._tell(liar, "another's VM is back", ("turn", traces))

    def _foreign(self, liar: SimHost) -> Iterator[tuple[Scope, Vm]]:
        """VMs that the liar has nothing to do with."""
        for scope in self._scopes():
            coming = {vm.name for _, vm in arrivals(scope)}
            for vm in scope.vms:
                if vm.host != liar.name and vm.name not in coming:
                    yield scope, vm

    # Reports of VMs.

    def _of_vms(self, liar: SimHost) -> None:
        """It shows a VM that runs elsewhere, where control sees it run."""
        victims = [
            (vm, home) for scope, vm in self._foreign(liar) if (home := self._seen(scope, vm))
        ]
        if not victims:
            return
        vm, home = self._rng.choice(victims)
        shown = {seen.name: seen for seen in self._tell_truth(home)}
        own = self._tell_truth(liar)
        if vm.name not in shown or shown[vm.name].power is not Power.RUNNING:
            return
        power = self._rng.choice([Power.RUNNING, Power.PAUSED, Power.OFF])
        stolen = replace(shown[vm.name], power=power)
        sight = sighting((*own, stolen))
        self._tell(liar, f"another's VM is here and {power.value}", ("sight", sight))
        self._tell_truth(liar)

    def _seen(self, scope: Scope, vm: Vm) -> SimHost | None:
        """The host of a VM, if that is heard and shows it, and nothing is being done to it."""
        world = self._world
        home, known = world.hosts.get(vm.host), self._service().fleet.host(vm.host)
        if home is None or known is None or known.health is Health.FAILED:
            return None
        heard = self._is_heard(home) and self._service().fleet.alive(vm.host)
        there = world.hypervisor.inner.where(vm.name) == vm.host and vm.may_run_on is None
        return home if heard and there and not acted_on(scope, vm.name) else None


def _waited_for(scope: Scope, vm: Vm) -> list[str]:
    return [vm.name for recovery in scope.recoveries if vm.name in recovery.waiting_for]
