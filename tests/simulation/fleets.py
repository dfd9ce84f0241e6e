"""The fleets of the simulated worlds: hosts and VMs, as a seed has them, and who of them talks."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from uuid import NAMESPACE_DNS, uuid5

from forewarn.core.inventory.host_report import Power, SeenVm, Traits
from forewarn.core.model import MINUTE_MS, EventType, Host, Policy, ScopeKind
from forewarn.core.vm_profile import Priority
from simulation.world import SimulationWorld
from support import profiles

HOSTS = (2, 4)
SCOPES = (1, 4)


@dataclass
class Cast:
    """Who behaves how in this world."""

    talkers: list[str] = field(default_factory=list)  # VMs that poll all the time
    late: list[str] = field(default_factory=list)  # VMs that begin to poll at some point
    mute: list[str] = field(default_factory=list)


def machine(name: str, traits: Traits) -> SeenVm:
    """A VM as its hypervisor shows it."""
    return SeenVm(
        name=name,
        vm_id=str(uuid5(NAMESPACE_DNS, name)),
        power=Power.RUNNING,
        traits=traits,
        definition=f"<domain>{name}</domain>",
    )


def new_scope(rng: random.Random, name: str, homes: list[str]) -> list[tuple[str, SeenVm]]:
    """A scope of chance: its VMs, and the host that each is on."""
    kind = rng.choice(list(ScopeKind))
    alone = kind is ScopeKind.STANDALONE
    domains, per_domain = (1, 1) if alone else (rng.randint(1, 3), rng.randint(1, 2))
    auto = frozenset({EventType.REBOOT}) if rng.random() < 0.2 else frozenset()
    notice_ms = rng.randint(5, 15) * MINUTE_MS
    vms: list[tuple[str, SeenVm]] = []
    for domain in range(domains):
        # Mostly one host per domain, as a scheduler would place them.
        home = homes[domain % len(homes)]
        for number in range(per_domain):
            traits = profiles.traits(
                scope=name,
                update_domain=domain,
                scope_kind=kind,
                terminate_notice_ms=notice_ms,
                auto_approve=auto,
                priority=rng.choice([Priority.REGULAR, Priority.SPOT]),
            )
            host = home if rng.random() < 0.9 else rng.choice(homes)
            vms.append((host, machine(f"{name}-d{domain}-{number}", traits)))
    return vms


def first_hosts(rng: random.Random) -> list[Host]:
    return [
        Host(name=f"h{i}", capacity=rng.choice([None, None, 6, 10]))
        for i in range(rng.randint(*HOSTS))
    ]


def hosts_of(seed: int) -> list[Host]:
    """The hosts that the world of a seed begins with."""
    return first_hosts(_chance(seed))


def _chance(seed: int) -> random.Random:
    return random.Random(f"{seed} fleet")


def build(seed: int, log: list[bytes] | None = None) -> tuple[SimulationWorld, Cast]:
    """The world of a seed, with its first guests polling. See SimulationWorld for `log`."""
    rng = _chance(seed)
    hosts = first_hosts(rng)
    names = [host.name for host in hosts]
    vms: list[tuple[str, SeenVm]] = []
    cast = Cast()
    for index in range(rng.randint(*SCOPES)):
        first = index % len(names)
        made = new_scope(rng, f"s{index}", names[first:] + names[:first])
        vms.extend(made)
        chosen = rng.choices([cast.talkers, cast.late, cast.mute], [6, 2, 1])[0]
        chosen.extend(seen.name for _, seen in made)
    policy = Policy(
        domain_recovery_ms=rng.choice([0, 60_000, 600_000]),
        hosts_join=True,
        postponements_max=2,
        postpone_ms_max=180 * MINUTE_MS,
    )
    world = SimulationWorld(seed, hosts, vms, policy, log=log)
    for vm in cast.talkers:
        world.pass_time(1_000)
        if world.guests.poll(vm) is not None:
            world.judge.told_scopes.add(world.judge.domains[vm][0])
    world.wire.weather = rng.choice([0.0, 0.03, 0.1])
    return world, cast
