"""The power of simulated hosts: cut before one is said to have failed, or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forewarn.control.command_handlers import decide
from forewarn.control.commands import Answer, FailHost, Once
from forewarn.control.hosts.liveness import Observed
from forewarn.control.hosts.simulated_power import HostPower
from forewarn.control.transaction import Transaction
from forewarn.control.writer import Wanted
from forewarn.core.errors import Conflict, NotFound
from forewarn.core.model import FactKind, Health
from forewarn.ports import StoreFailed
from support import ordered
from support.clock import ManualClock
from support.core_fleet import WEB, Cloud, scope
from support.journal import said
from support.ordered import Given
from support.watched_store import WatchedStore, disk_full


class Simulated(Cloud):
    """Every host is simulated, and was heard a moment ago."""

    def __init__(self, store: WatchedStore | None = None) -> None:
        self.power = HostPower()
        super().__init__(scope("web", WEB), store=store)
        for host in ("h1", "h2", "h3"):
            self.observed.heard(host, at_ms=self.clock.monotonic_ms())

    def _observe(self) -> Observed:
        return Observed(self.clock, power=self.power)


def failing(host: str, *, key: str | None = None) -> Wanted[Answer]:
    """The order as the operator API gives it to the writer."""

    order = FailHost(by=ordered.operator("op"), host=host, fenced=True)
    access = ordered.full_access(order.by)
    return Once(by=order.by, order=order, access=access, key=key, fingerprint=f"fail {host}")


def test_a_simulated_host_is_off_before_it_is_said_to_be() -> None:
    cloud = Simulated()
    assert cloud.observed.alive("h1")
    cloud.run(failing("h1"))
    assert (cloud.host("h1").health, cloud.host("h1").fenced) == (Health.FAILED, True)
    assert not cloud.power.on("h1")
    assert not cloud.observed.alive("h1")
    (fact,) = cloud.facts(FactKind.HOST_FAILED)
    assert "forced" not in said(fact)


def test_what_it_said_before_its_power_was_cut_does_not_make_it_heard() -> None:
    cloud = Simulated()
    cloud.run(failing("h1"))
    cloud.observed.heard("h1", at_ms=cloud.clock.monotonic_ms())
    assert not cloud.observed.alive("h1")


def test_a_host_that_has_power_again_is_heard_once_it_speaks() -> None:
    cloud = Simulated()
    cloud.run(failing("h1"))
    cloud.observed.lost("h1")
    cloud.run(ordered.repair_host("h1", by="op"))
    assert cloud.power.on("h1")
    assert not cloud.observed.alive("h1")
    cloud.observed.heard("h1", at_ms=cloud.clock.monotonic_ms())
    assert cloud.observed.alive("h1")


def test_an_order_that_is_repeated_under_its_key_does_not_cut_the_power_again() -> None:
    cloud = Simulated()
    first = cloud.run(failing("h1", key="k"))
    cloud.run(ordered.repair_host("h1", by="op"))
    again = cloud.run(failing("h1", key="k"))
    assert (again.text, again.repeated) == (first.text, True)
    assert cloud.power.on("h1")
    assert cloud.host("h1").health is Health.OK


def two_hosts(second: str) -> Given[None]:
    """Both fail, or none: as a step of a scenario that means more than one host."""

    def command(tx: Transaction) -> None:
        decide(tx, ordered.fail_host("h1", by="op", fenced=True))
        decide(tx, ordered.fail_host(second, by="op", fenced=True))

    return command


def broken(tx: Transaction) -> None:
    decide(tx, ordered.fail_host("h1", by="op", fenced=True))
    raise Conflict("No.", "Another day.")


@pytest.mark.parametrize("order", [two_hosts("nowhere"), broken])
def test_a_refused_order_has_cut_no_power(order: Given[None]) -> None:
    cloud = Simulated()
    with pytest.raises((NotFound, Conflict)):
        cloud.run(order)
    assert cloud.power.on("h1")
    assert cloud.observed.alive("h1")
    assert cloud.host("h1").health is Health.OK


def test_an_order_that_cannot_be_kept_has_cut_no_power_and_can_be_given_again() -> None:
    store = WatchedStore()
    cloud = Simulated(store)
    store.fails["commit"] = disk_full()
    with pytest.raises(StoreFailed):
        cloud.run(failing("h1"))
    assert cloud.power.on("h1")
    assert cloud.observed.alive("h1")
    cloud.run(failing("h1"))
    assert not cloud.power.on("h1")


def test_a_repair_that_cannot_be_kept_leaves_the_host_off() -> None:
    store = WatchedStore()
    cloud = Simulated(store)
    cloud.run(failing("h1"))
    store.fails["commit"] = disk_full()
    with pytest.raises(StoreFailed):
        cloud.run(ordered.repair_host("h1", by="op"))
    assert not cloud.power.on("h1")


def test_a_host_that_leaves_the_fleet_while_it_is_off_has_power_when_it_comes_back() -> None:
    cloud = Simulated()
    cloud.run(failing("h3"))
    cloud.run(lambda tx: tx.remove_host("h3"))
    assert cloud.power.on("h3")


def test_no_power_is_cut_of_hosts_that_are_machines_of_their_own() -> None:
    cloud = Cloud(scope("web", WEB))
    cloud.run(ordered.fail_host("h1", by="op", fenced=False, force=True))
    assert cloud.observed.power is None
    assert cloud.observed.alive("h1")


def test_a_fleet_on_another_clock_loses_a_host_at_once() -> None:
    """In the emulator no time passes on the clock of heartbeats."""
    observed = Observed(ManualClock())
    observed.heard("h1", at_ms=1_000_000)
    look: Callable[[str], bool] = observed.alive
    assert look("h1")
    observed.lost("h1")
    assert not look("h1")
    observed.heard("h1", at_ms=1_000_000)
    assert look("h1")
