"""Where a VM goes, judged by a slow reading of the rule, and what looking for a place costs."""

from __future__ import annotations

import random

import pytest

from forewarn.control import ticker
from forewarn.control.transaction import Transaction
from forewarn.core import placement
from forewarn.core.model import EventType, Health, Host, Scope, Vm
from support.core_fleet import Cloud, Hearing, minutes, scope

FLEETS = 60


def a_fleet(seed: int) -> tuple[Cloud, random.Random]:
    """Some hosts with places, some closed, failed or full; VMs anywhere, some on their way."""
    chance = random.Random(seed)
    names = [f"h{number}" for number in range(chance.randint(1, 7))]
    hosts = [
        Host(
            name=name,
            capacity=chance.choice((None, 2, 3, 5)),
            closed=chance.random() < 0.15,
            health=Health.DEGRADED if chance.random() < 0.1 else Health.OK,
        )
        for name in names
    ]
    scopes = [
        scope(
            f"s{group}",
            {f"s{group}_{i}": (i % 3, chance.choice(names)) for i in range(chance.randint(1, 4))},
            enabled=False,
        )
        for group in range(3)
    ]
    cloud = Cloud(*scopes, hosts=hosts)
    for group in range(2):
        cloud.order(f"s{group}_0", EventType.REDEPLOY)
        cloud.tick()
    if chance.random() < 0.5:
        cloud.hearing.falls_silent(chance.choice(names))
    return cloud, chance


def slowly(owner: Scope, vm: Vm, tx: Transaction, planned: dict[str, int]) -> str | None:
    """The rule as the design says it, host by host."""
    hosts = list(tx.hosts())
    if len(hosts) == 1:
        return vm.host
    fit: list[tuple[int, str]] = []
    for host in hosts:
        coming = tx.arriving(host.name)
        load = tx.vm_count(host.name) + len(coming) + planned.get(host.name, 0)
        there = [other for other in owner.vms if other.host == host.name]
        there += [other for name, other in coming if name == owner.name]
        if (
            host.name != vm.host
            and placement.open_to_placement(host, tx)
            and (host.capacity is None or load < host.capacity)
            and all(other.update_domain == vm.update_domain for other in there)
        ):
            fit.append((load, host.name))
    return min(fit)[1] if fit else None


@pytest.mark.parametrize("seed", range(FLEETS))
def test_a_vm_goes_where_the_rule_says_in_any_fleet(seed: int) -> None:
    cloud, chance = a_fleet(seed)

    def compare(tx: Transaction) -> None:
        for owner in tx.scopes.values():
            for vm in owner.vms:
                planned = {name: chance.randint(0, 2) for name in tx.hosts_by_name}
                expected = slowly(owner, vm, tx, planned)
                assert placement.choose_target(owner, vm, tx, planned) == expected

    cloud.run(compare)


class RowNumbers(Hearing):
    """Counts how often a host's heartbeat was asked for: once for each host looked at."""

    asked = 0

    def alive(self, host: str) -> bool:
        self.asked += 1
        return super().alive(host)


def test_many_vms_without_a_target_look_at_every_host_once_and_not_once_each() -> None:
    hosts = [Host(name=f"h{number:03}", capacity=1) for number in range(100)]
    full = [scope(f"s{h.name}", {f"v{h.name}": (0, h.name)}, enabled=False) for h in hosts]
    cloud = Cloud(*full, hosts=hosts)
    for host in hosts[:50]:
        cloud.maintain(host.name, EventType.REDEPLOY)
    cloud.clock.pass_ms(minutes(60))
    cloud.hearing = counted = RowNumbers(cloud.clock)
    cloud.crash(down_ms=0)
    assert cloud.run(ticker.survey) == []
    assert 50 <= counted.asked <= 50 + 2 * len(hosts)
