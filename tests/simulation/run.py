"""One seed, one world: random operators, guests and misfortunes, then healing and the last word.

`python -m simulation.run SEED [COUNT]` (from tests/) replays seeds and prints what happened.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from forewarn.control.commands import EventPostponed, InventoryTried
from forewarn.control.transaction import Transaction
from forewarn.control.writer import Wanted
from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.explain import explain_event
from forewarn.core.model import (
    MINUTE_MS,
    Cause,
    EventType,
    Health,
    Operation,
    Phase,
    ScheduledEvent,
)
from forewarn.core.principal import Principal
from forewarn.core.starting import HoldReason
from forewarn.ports import WorkOrder
from simulation import seeds
from simulation.faulty_store import Fault
from simulation.fleets import build
from simulation.hosts import SimHost
from simulation.inventories import Inventories
from simulation.judge import Broken
from simulation.lies import Liars
from simulation.world import SimulationWorld
from support import ordered
from support.ordered import Given

REPLAY = "cd tests && PYTHONPATH=. ../.venv/bin/python -m simulation.run {seed}"
STEPS = 50
HEALING_HOURS = 30


class Run:
    """The random walk through one world."""

    def __init__(self, seed: int, log: list[bytes] | None = None) -> None:
        self.world, self.cast = build(seed, log)
        self.rng = self.world.rng
        self.liars = Liars(self.world)
        self.inventories = Inventories(self.world)
        self.unlucky = seeds.unlucky(seed)
        self.powerless = seeds.powerless(seed)
        self.restarting = seeds.RESTARTING_FROM <= seed < seeds.RESTARTING_TO
        self.windowed = seeds.windowed(seed)
        self.postponing = seeds.postponing(seed)
        self.answer: object = None

    def play(self) -> SimulationWorld:
        acts: list[tuple[int, Callable[[], None]]] = [
            (14, self.wait),
            (12, self.guests_poll),
            (8, self.guest_approves),
            (9, self.owner_orders),
            (7, self.operator_maintains),
            (2, self.operator_cancels),
            (2, self.operator_approves),
            (2, self.operator_releases),
            (2, self.host_health),
            (2, self.daemon_dies_or_returns),
            (3, self.service_crashes),
            (2, self.clock_steps),
            (3, self.store_fails),
            (2, self.hypervisor_fails),
            (1, self.intruder_approves),
            (2, self.late_guests_begin),
            (2, self.network_is_cut),
            (2, self.daemon_dies_at_a_step),
            (3, self.host_restarts_alone),
            (2, self.host_gives_its_word_and_is_cut_off),
            (2, self.host_leaves_or_joins),
            (4, self.liars.lie),
            (2, self.inventory_is_applied),
            (1, self.vms_appear),
        ]
        if self.unlucky:
            acts += [
                (10, self.the_worst_moment),
                (4, self.daemon_restarts),
                (6, self.owner_switches),
                (3, self.owner_switches_on_too_late),
            ]
        if self.powerless:
            acts.append((10, self.target_loses_its_power))
        if self.restarting:
            acts.append((10, self.daemon_restarts_during_notice))
        if self.postponing:
            acts += [(6, self.owner_postpones), (5, self.operator_maintains)]
        weights = [weight for weight, _ in acts]
        for _ in range(STEPS):
            act = self.rng.choices([act for _, act in acts], weights)[0]
            self.world.say(act.__name__)
            act()
            self.inventory_goes_on()
        self.heal()
        return self.world

    def order(self, command: Given[object], what: str) -> bool:
        try:
            self.answer = self.world.submit(command)
        except (Refusal, Unavailable) as refusal:
            self.world.say(f"  {what}: {refusal}")
            return False
        self.world.say(f"  {what}: ok")
        self.world.rings()
        return True

    # Time and guests.

    def wait(self) -> None:
        self.world.pass_time(self.rng.choice([500, 5_000, 31_000, 60_000, 300_000, 1_000_000]))
        self.guests_poll()

    def guests_poll(self) -> None:
        for vm in self.cast.talkers:
            if self.rng.random() < 0.8:
                self.world.guests.poll(vm)

    def late_guests_begin(self) -> None:
        """Somebody in a scope that was silent so far starts to poll."""
        if self.cast.late:
            vm = self.rng.choice(self.cast.late)
            if self.world.guests.poll(vm) is not None:
                self.cast.late.remove(vm)
                self.cast.talkers.append(vm)

    def guest_approves(self) -> None:
        pollers = self.cast.talkers or self.cast.late
        if not pollers:
            return
        vm = self.rng.choice(pollers)
        document = self.world.guests.poll(vm)
        if not document or not document["Events"]:
            return
        event_id = self.rng.choice(document["Events"])["EventId"]
        self.world.guests.approve(vm, event_id)

    def intruder_approves(self) -> None:
        others = [e for e in self.world.judge.events.values() if not e.gone]
        vms = list(self.world.judge.domains)
        if not others:
            return
        event, vm = self.rng.choice(others), self.rng.choice(vms)
        if self.world.judge.domains[vm][0] == event.scope:
            return
        self.world.guests.intrude(vm, event.event_id)

    # Operators and owners.

    def owner_orders(self) -> None:
        vm = self.rng.choice(list(self.world.judge.domains))
        wanted = self.rng.choices(
            [EventType.REBOOT, EventType.REDEPLOY, EventType.TERMINATE, EventType.PREEMPT],
            [5, 4, 1, 1],
        )[0]
        window = self.some_window()
        self.world.judge.ordered([vm], wanted.value)
        command = ordered.order_vm(vm, wanted, by="owner", window=window)
        if self.order(command, f"{wanted} {vm} in {window}"):
            self.keep_window(window)

    def some_window(self) -> tuple[int, int] | None:
        """A window as somebody would order it, open already or later; often none."""
        if not self.windowed or self.rng.random() < 0.4:
            return None
        opens_ms = self.world.clock.now_ms() + self.rng.choice([-5, 0, 10, 30, 90]) * MINUTE_MS
        return opens_ms, opens_ms + self.rng.choice([12, 25, 40, 120]) * MINUTE_MS

    def keep_window(self, window: tuple[int, int] | None) -> None:
        """The judge knows what was ordered with which window, whatever the service makes of it."""
        if window is None:
            return
        self.world.judge.count("windows")
        match self.answer:
            case ScheduledEvent(event_id=ordered_id) | Operation(operation_id=ordered_id):
                self.world.judge.windows[ordered_id] = window

    def operator_maintains(self) -> None:
        host = self.rng.choice(list(self.world.hosts))
        wanted = self.rng.choice([EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY])
        later = self.rng.choice([None, None, 30 * MINUTE_MS])
        force = self.rng.random() < 0.3
        window = self.some_window()
        self.world.judge.ordered(self.world.hypervisor.vms_on(host), wanted.value)
        accepted = self.order(
            ordered.maintain_host(
                host,
                wanted,
                by="operator",
                not_before_ms=self.world.clock.now_ms() + later if later else None,
                break_domains=force,
                window=window,
            ),
            f"maintain {host} {wanted} in {window}",
        )
        if accepted:
            self.keep_window(window)
        kept = accepted or self.world.service is None  # it may have died after its commit
        if kept and force and wanted is not EventType.REDEPLOY:
            self.world.judge.broke_domains.add(host)
            self.world.judge.broken_scopes.update(
                self.world.judge.domains[vm][0] for vm in self.world.hypervisor.vms_on(host)
            )

    def open_events(self) -> list[str]:
        try:
            scopes = self.world.submit(lambda tx: list(tx.scopes.values()))
        except Unavailable:
            return []
        return [event.event_id for scope in scopes for event in scope.events]

    def open_operations(self) -> list[str]:
        return self.world.submit(lambda tx: list(tx.operations))

    def operator_cancels(self) -> None:
        events = self.open_events()
        if events:
            event_id = self.rng.choice(events)
            self.order(ordered.cancel_event(event_id, by="operator"), f"cancel {event_id}")

    def operator_approves(self) -> None:
        events = self.open_events()
        if events:
            event_id = self.rng.choice(events)
            self.world.judge.may_be_approved(event_id)
            if self.order(ordered.approve_event(event_id, by="op"), f"approve {event_id}"):
                self.world.judge.approved(event_id)

    def owner_postpones(self) -> None:
        """Maintenance, or what only looks like it, is to be announced anew for a later time.

        Sometimes it was approved before. Now and then an operator asks, some ask again, and the
        store fails, before or after its commit.
        """
        events = self.planned_events() if self.rng.random() < 0.9 else self.open_events()
        if not events:
            self.operator_maintains()
            return
        event_id = self.rng.choice(events)
        if self.rng.random() < 0.3:
            self.world.judge.may_be_approved(event_id)
            if self.order(ordered.approve_event(event_id, by="op"), f"approve {event_id}"):
                self.world.judge.approved(event_id)
        by = ordered.owner("ann") if self.rng.random() < 0.8 else ordered.operator("op")
        if self.rng.random() < 0.15:
            self.world.store.fault = self.rng.choice(list(Fault))
        for _ in range(self.rng.choice([1, 1, 4])):
            event_id = self.postpone(event_id, by) or event_id
        self.ensure_up()

    def postpone(self, event_id: str, by: Principal) -> str | None:
        """The event that was announced in its place; None if none was, or that is not known."""
        judge, later_ms = self.world.judge, self.rng.choice([2, 12, 20, 60, 150]) * MINUTE_MS
        until_ms = self.world.clock.now_ms() + later_ms
        command = ordered.postpone_event(event_id, by=by, until_ms=until_ms, reason="a sale")
        judge.postpones(by.kind, self.world.policy)
        accepted = self.order(command, f"{by} postpones {event_id} by {later_ms} ms")
        judge.postpones(None, self.world.policy)
        if not accepted or not isinstance(self.answer, EventPostponed):
            return None
        judge.answered_postponed(self.answer.withdrawn, self.answer.announced)
        return self.answer.event.event_id

    def planned_events(self) -> list[str]:
        def question(tx: Transaction) -> list[str]:
            return [
                event.event_id
                for scope in tx.scopes.values()
                for event in scope.events
                if event.cause is Cause.MAINTENANCE and event.phase is Phase.SCHEDULED
            ]

        try:
            return self.world.submit(question)
        except Unavailable:
            return []

    def operator_releases(self) -> None:
        # In the order of the world: that of a set differs from process to process.
        for scope in dict.fromkeys(scope for scope, _ in self.world.judge.domains.values()):
            if self.rng.random() < 0.5:
                self.order(ordered.release_scope(scope, by="operator"), f"release {scope}")

    def host_health(self) -> None:
        host = self.rng.choice(list(self.world.hosts))
        choice = self.rng.choice(["degrade", "fail", "fenced", "repair", "repair", "close", "open"])
        soon = self.world.clock.now_ms() + 20 * MINUTE_MS
        commands: dict[str, Callable[[], Wanted[object]]] = {
            "degrade": lambda: ordered.degrade_host(host, by="op", not_before_ms=soon),
            "repair": lambda: ordered.repair_host(host, by="op", force=True),
            "close": lambda: ordered.close_host(host, by="op"),
            "open": lambda: ordered.open_host(host, by="op"),
        }
        if choice == "degrade":
            self.world.judge.ordered(self.world.hypervisor.vms_on(host), "Redeploy")
        if choice in ("fail", "fenced"):
            self.host_fails(host, fenced=choice == "fenced")
            return
        if choice == "repair":
            self.revive(host)
        self.order(commands[choice](), f"{choice} {host}")

    def host_fails(self, host: str, *, fenced: bool) -> None:
        """Fenced means off. A failure that is only suspected may leave the VMs running."""
        if self.world.hosts[host].up:
            self.world.daemon_dies(self.world.hosts[host])
        if fenced or self.rng.random() < 0.5:
            self.world.hypervisor.inner.kill_host(host)
        command = ordered.fail_host(host, by="op", fenced=fenced, force=True)
        if self.order(command, f"{'fenced' if fenced else 'fail'} {host}"):
            self.world.declared(host)

    def the_worst_moment(self) -> None:
        """The source or the target of a move fails while the VM is on its way, or just after."""
        moves = [a for _, a in self.world.hypervisor.inner.under_way() if a.target_host and a.vm]
        if not moves:
            self.begin_a_move()
            return
        move = self.rng.choice(moves)
        if self.rng.random() < 0.25:
            self.arrives_unseen(move)
            return
        if self.rng.random() < 0.3:
            self.world.pass_time(self.rng.choice([5_000, 60_000, 1_000_000]))
        host = self.rng.choice([move.host, move.target_host])
        if host is not None and self.rng.random() < 0.7:
            self.host_fails(host, fenced=self.rng.random() < 0.5)
        elif host is not None and self.world.hosts[host].up:
            self.world.daemon_dies(self.world.hosts[host])

    def owner_switches(self) -> None:
        """Somebody switches a VM off, or one that is off on again, and perhaps leaves it so."""
        vm = self.rng.choice(list(self.world.judge.domains))
        on = vm in self.world.judge.off_since
        self.world.owner_switches(vm, on=on)
        if not on and self.rng.random() < 0.7:
            self.world.pass_time(self.rng.choice([30_000, 300_000]))

    def owner_switches_on_too_late(self) -> None:
        """What nobody was asked for, since the VM was off, has started when it is switched on."""
        off = sorted(self.world.judge.off_since)
        if off:
            vm = self.rng.choice(off)
            wanted = self.rng.choice([EventType.REBOOT, EventType.REDEPLOY])
            self.world.judge.ordered([vm], wanted.value)
            self.order(ordered.order_vm(vm, wanted, by="owner"), f"{wanted} {vm}")
            self.world.pass_time(5_000)
            self.world.owner_switches(vm, on=True)

    def arrives_unseen(self, move: WorkOrder) -> None:
        """Nobody is there to see a VM arrive, and its new host fails before anybody says so."""
        source, target = self.world.hosts[move.host or ""], move.target_host or ""
        if source.up and source.name != target:
            self.world.daemon_dies(source)
            self.world.pass_time(self.rng.choice([60_000, 1_000_000]))
            self.host_fails(target, fenced=self.rng.random() < 0.7)
            if not self.world.hypervisor.inner.dead(source.name):
                self.world.daemon_returns(source)

    def target_loses_its_power(self) -> None:
        """A host is off before a VM arrives there, and the source lives to see how the move ends.

        Somebody has repaired what had failed before, or there would be nowhere to go.
        """
        self.ensure_up()
        for host in sorted(self.world.failed):
            self.revive(host)
            self.order(ordered.repair_host(host, by="op", force=True), f"repair {host}")
        self.world.pass_time(15_000)
        self.begin_a_move()
        inner = self.world.hypervisor.inner
        moves = [(at_ms, a) for at_ms, a in inner.under_way() if a.target_host and a.vm]
        if not moves:
            return
        ends_ms, move = self.rng.choice(moves)
        source, target = self.world.hosts[move.host or ""], move.target_host or ""
        if source.name != target and not inner.dead(source.name):
            if not source.up:
                self.world.daemon_returns(source)
            self.host_fails(target, fenced=True)
            left_ms = max(0, ends_ms - self.world.clock.monotonic_ms())
            self.world.pass_time(left_ms + self.rng.choice([60_000, 300_000]))

    def daemon_restarts(self) -> None:
        """Each time it is back before anybody takes it for silent."""
        host = self.world.hosts[self.rng.choice(list(self.world.hosts))]
        for _ in range(self.rng.choice([1, 4]) if host.up else 0):
            self.restart(host, down_ms=self.rng.choice([2_000, 9_000]))

    def daemon_restarts_during_notice(self) -> None:
        """A daemon is down again and again, and back in time; then the notice is left to end."""

        def question(tx: Transaction) -> list[str]:
            return [
                event.host
                for scope in tx.scopes.values()
                for event in scope.events
                if event.visible and event.phase is Phase.SCHEDULED and event.approved_ms is None
            ]

        self.ensure_up()
        hosts = [self.world.hosts[name] for name in self.world.submit(question)]
        here = [host for host in hosts if host.up]
        if not here:
            self.operator_maintains()
            return
        host = self.rng.choice(here)
        for _ in range(self.rng.choice([1, 4, 8])):
            self.restart(host, down_ms=self.rng.choice([2_000, 9_000, 13_000]))
        self.world.pass_time(1_000_000)

    def restart(self, host: SimHost, *, down_ms: int) -> None:
        self.world.daemon_dies(host)
        self.world.pass_time(down_ms)
        self.world.daemon_returns(host)
        self.world.pass_time(5_000)

    def begin_a_move(self) -> None:
        vm = self.rng.choice(list(self.world.judge.domains))
        self.world.hypervisor.inner.slow_next(vm, extra_s=self.rng.choice([30, 600, 3_000]))
        self.world.judge.ordered([vm], EventType.REDEPLOY.value)
        command = ordered.order_vm(vm, EventType.REDEPLOY, by="owner")
        before = self.open_events()
        if self.order(command, f"Redeploy {vm}"):
            for event_id in [one for one in self.open_events() if one not in before]:
                self.world.judge.may_be_approved(event_id)
                if self.order(ordered.approve_event(event_id, by="op"), f"approve {event_id}"):
                    self.world.judge.approved(event_id)
        self.world.pass_time(15_000)

    # Misfortunes.

    def revive(self, host: str) -> None:
        self.world.hypervisor.inner.boot_host(host)
        self.world.failed.discard(host)
        if not self.world.hosts[host].up:
            self.world.daemon_returns(self.world.hosts[host])

    def daemon_dies_or_returns(self) -> None:
        host = self.world.hosts[self.rng.choice(list(self.world.hosts))]
        if host.up:
            self.world.daemon_dies(host)
        elif not self.world.hypervisor.inner.dead(host.name):
            self.world.daemon_returns(host)

    def service_crashes(self) -> None:
        if self.world.service is not None:
            self.world.crash("killed")
        self.world.pass_time(self.rng.choice([500, 4_000, 30_000, 600_000, 100_000_000]))
        self.ensure_up()

    def clock_steps(self) -> None:
        minutes = self.rng.choice([-120, -20, -1, 1, 20, 120])
        self.world.clock.wall += minutes * MINUTE_MS

    def store_fails(self) -> None:
        self.world.store.fault = self.rng.choice(list(Fault))
        self.owner_orders()
        self.ensure_up()

    def ensure_up(self) -> None:
        while self.world.service is None:
            try:
                self.world.start_service()
            except Unavailable:
                continue

    def hypervisor_fails(self) -> None:
        name = self.rng.choice([*self.world.judge.domains, *self.world.hosts])
        if self.rng.random() < 0.5:
            self.world.hypervisor.inner.fail_next(name, "the hypervisor said no")
        else:
            self.world.hypervisor.inner.slow_next(name, extra_s=self.rng.choice([30, 3_000]))

    # The link.

    def network_is_cut(self) -> None:
        host = self.rng.choice(list(self.world.hosts))
        for_ms = self.rng.choice([3_000, 20_000, 120_000, 900_000])
        self.world.wire.cut_until_ms[host] = self.world.clock.real_ms + for_ms

    def daemon_dies_at_a_step(self) -> None:
        host = self.world.hosts[self.rng.choice(list(self.world.hosts))]
        host.disk.crash_at = self.rng.choice(["before marks", "after marks", "before documents"])

    def host_restarts_alone(self) -> None:
        """A daemon dies right after guests have read something new, and is back without control."""
        vm = self.rng.choice(list(self.world.judge.domains))
        host = self.world.hosts.get(self.world.hypervisor.inner.where(vm) or "")
        if host is None or not host.up:
            return
        self.world.judge.ordered([vm], EventType.REBOOT.value)
        self.order(ordered.order_vm(vm, EventType.REBOOT, by="owner"), f"Reboot {vm}")
        self.guests_poll()
        self.world.daemon_dies(host)
        self.world.wire.cut_until_ms[host.name] = self.world.clock.real_ms + 20_000
        self.world.daemon_returns(host)
        self.guests_poll()

    def host_gives_its_word_and_is_cut_off(self) -> None:
        """A host confirms what it shows, and is not heard from then on until it counts as gone."""
        vm = self.rng.choice(list(self.world.judge.domains))
        host = self.world.hosts.get(self.world.hypervisor.inner.where(vm) or "")
        if host is None:
            return
        self.world.judge.ordered([vm], EventType.REBOOT.value)
        self.order(ordered.order_vm(vm, EventType.REBOOT, by="owner"), f"Reboot {vm}")
        self.world.host_turn(host)
        self.world.wire.cut_until_ms[host.name] = self.world.clock.real_ms + 20_000
        self.world.pass_time(30_000)

    def host_leaves_or_joins(self) -> None:
        """A host is shut out, or invited again; then it joins with a new key and a new daemon."""
        host = self.world.hosts[self.rng.choice(list(self.world.hosts))]
        try:
            if self.world.is_member(host):
                self.world.revoke(host)
            else:
                self.joins(host)
        except (Refusal, Unavailable) as why:
            self.world.say(f"  {host.name} comes or goes: {why}")

    def joins(self, host: SimHost) -> None:
        self.world.join(host)
        if not self.world.hypervisor.inner.dead(host.name):
            self.world.daemon_dies(host)
            self.world.daemon_returns(host)

    def inventory_is_applied(self) -> None:
        try:
            command = self.inventories.apply()
        except Unavailable as why:
            self.world.say(f"  inventory: {why}")
            return
        if self.order(command, "inventory"):
            self.world.judge.count("inventories")

    def inventory_goes_on(self) -> None:
        """The next slice of a file that was decided, if there is one."""
        command = self.inventories.next_slice()
        if command is not None and self.order(command, "slice of the inventory"):
            assert isinstance(self.answer, InventoryTried)
            self.inventories.tried(self.answer)

    def vms_appear(self) -> None:
        hosts = [h.name for h in self.world.hosts.values() if self.world.is_member(h)]
        hosts = [name for name in hosts if not self.world.hypervisor.inner.dead(name)]
        if hosts:
            made = self.inventories.appears(hosts)
            self.rng.choice([self.cast.late, self.cast.mute]).extend(vm.name for vm in made)

    # The end: everything is healed, and every event must end.

    def heal(self) -> None:
        world = self.world
        world.say("healing")
        world.store.fault = None
        world.wire.heal()
        self.ensure_up()
        for one in world.hosts.values():
            one.disk.crash_at = ""
            if not world.is_member(one):
                world.join(one)
        for host in world.hosts:
            self.revive(host)
            self.order(ordered.repair_host(host, by="op", force=True), f"repair {host}")
            self.order(ordered.open_host(host, by="op"), f"open {host}")
        for _ in range(HEALING_HOURS * 4):
            if not self.open_events() and not self.open_operations():
                break
            world.pass_time(15 * MINUTE_MS)
            self.guests_poll()
            self.operator_releases()
            self.cancel_what_needs_an_operator()
        world.judge.end_of_events(self.open_events())
        world.pass_time(2 * MINUTE_MS)  # what was reported and committed last is heard
        world.end()
        self.nothing_stays_closed()

    def cancel_what_needs_an_operator(self) -> None:
        """A Redeploy may have no target for good, and a VM of a second update domain may have been
        switched on where a host is to be frozen; the operator is told and cancels it.
        """

        def question(tx: Transaction) -> list[str]:
            return [
                event.event_id
                for scope in tx.scopes.values()
                for event in scope.events
                for hold in explain_event(scope, event, tx, tx.now_ms).holds
                if hold.reason in (HoldReason.NO_TARGET, HoldReason.TWO_DOMAINS)
            ]

        for event_id in self.world.submit(question):
            self.order(ordered.cancel_event(event_id, by="op"), "held for good: cancel")

    def nothing_stays_closed(self) -> None:
        hosts = self.world.submit(lambda tx: list(tx.hosts()))
        for host in hosts:
            if host.closed or host.health is not Health.OK:
                raise Broken(f"I9: host {host.name} stays {host.health}")
        if self.open_operations():
            raise Broken("I9: an operation outlived its events")


def breach(seed: int, broken: Broken, trace: list[str]) -> Broken:
    """What a person needs who finds a broken world: which one, how to play it again, its end."""
    tail = "\n".join(trace[-40:])
    return Broken(f"seed {seed}: {broken}\nplay it again: {REPLAY.format(seed=seed)}\n{tail}")


@contextmanager
def without_logs() -> Iterator[None]:
    """What control and hosts log of a world that goes wrong all the time is read by nobody."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


def run_seed(seed: int, log: list[bytes] | None = None) -> SimulationWorld:
    """Play one seed, with a command log if one is given. Raises `breach`."""
    trace: list[str] = []
    try:
        with without_logs():
            run = Run(seed, log)
            trace = run.world.trace
            return run.play()
    except Broken as broken:
        raise breach(seed, broken, trace) from broken


def main() -> None:
    first = int(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    for seed in range(first, first + count):
        try:
            world = run_seed(seed)
        except Broken as broken:
            sys.stdout.write(f"{broken}\n")
            sys.exit(1)
        sys.stdout.write(f"seed {seed}: {world.judge.stats}\n")


if __name__ == "__main__":
    main()
