"""Hosts in the process of control: what is new reaches each of them, whatever another one does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from forewarn.adapters.simulated.hypervisor import SimulatedHypervisor
from forewarn.host.daemon import Hosts
from forewarn.host.identity import Identity
from forewarn.host.in_process_hosts import InProcessHosts
from forewarn.host.served_documents import Documents
from forewarn.wire.link import Changes, ShownScope, Since
from support.clock import ManualClock
from support.core_fleet import scope
from support.scripted_link import ScriptedLink
from support.shown_scopes import as_shown

HOSTS = ("h1", "h2", "h3")


class Together:
    """Three hosts, each with a scope of its own to show and with work, told until it is taken."""

    def __init__(self) -> None:
        self.clock, self.script = ManualClock(), ScriptedLink()
        self.documents = Documents(Identity())
        self.breaks: Callable[[str], bool] = lambda _: False
        self.asked: list[str] = []
        self.hosts = Hosts(
            HOSTS,
            links=self.script.of,
            hypervisor=SimulatedHypervisor(self.clock),
            documents=self.documents,
            monotonic_ms=self.clock.monotonic_ms,
        )
        self.together = InProcessHosts(
            links=self.script.of,
            now=self.now,
            documents=self.documents,
            hosts=self.hosts,
            clock=self.clock,
            shown_as=self.shown_as,
        )

    def now(self, host: str, since: Since | None) -> Changes | None:
        self.asked.append(host)
        if since is not None:
            return None
        shown = as_shown(scope(f"of-{host}", {f"vm-{host}": (0, host)}))
        return Changes("life", 1, (shown.name,), (shown,), work=True)

    def shown_as(self, shown: ShownScope) -> ShownScope:
        if self.breaks(shown.name):
            raise ZeroDivisionError("a bug of ours")
        return shown

    @property
    def shown(self) -> set[str]:
        return {host for host in HOSTS if self.documents.page(f"of-{host}") is not None}

    def claiming(self) -> list[str]:
        """Who asks for work, because it was rung."""
        before = len(self.script.claims)
        asyncio.run(self.hosts.work_once())
        return sorted(host for host, _ in self.script.claims[before:])


@pytest.fixture
def world() -> Together:
    world = Together()
    world.claiming()  # every host asks once when it begins
    return world


def test_a_ring_is_not_lost_because_another_host_breaks(world: Together) -> None:
    """Control says of a ring only once."""
    world.breaks = lambda name: name == "of-h1"
    world.together.take_over(HOSTS)
    assert world.shown == {"h2", "h3"}
    assert world.claiming() == ["h2", "h3"]
    assert world.together.failures == 1


def test_a_host_that_broke_takes_over_the_next_time_though_nobody_rings_for_it(
    world: Together,
) -> None:
    world.breaks = lambda name: name == "of-h1"
    world.together.take_over(HOSTS)
    world.claiming()
    world.breaks = lambda _: False
    world.together.take_over([])
    assert world.shown == set(HOSTS)
    assert world.claiming() == ["h1"]
    world.asked.clear()
    world.together.take_over([])
    assert world.asked == []


def test_a_host_that_breaks_again_and_again_is_said_once(world: Together) -> None:
    world.breaks = lambda name: name == "of-h1"
    with capture_logs() as logs:
        for _ in range(3):
            world.together.take_over(["h1"])
    assert [(line["event"], line["host"]) for line in logs] == [("taking_over_broke", "h1")]
    assert world.together.failures == 3


def test_a_host_that_has_left_is_not_tried_again(world: Together) -> None:
    world.breaks = lambda name: name == "of-h1"
    world.together.take_over(["h1"])
    world.together.forget(["h1"])
    world.asked.clear()
    world.together.take_over(["h2"])
    assert world.asked == ["h2"]
