"""Where a scope has many events, a change costs what changed: what was kept is what is true.

Everything that is kept from one commit to the next (the index, what hosts are shown, what was
rendered, whether guests can see a change) is compared with the same made anew.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress

import pytest

from forewarn.control.fleet_index import FleetIndex
from forewarn.control.hosts.host_feed import HostFeed
from forewarn.control.metrics import ControlMetrics
from forewarn.core import document
from forewarn.core.errors import Refusal
from forewarn.core.model import EventType, Host, Outcome, Scope
from forewarn.ports import Change
from forewarn.wire.api_versions import API_VERSIONS
from forewarn.wire.documents import Renderer
from support.core_fleet import Cloud, minutes, scope
from support.shown_scopes import as_shown, render, shown_event_ids

SEEDS = 20
STEPS = 80
HOSTS = ("h1", "h2", "h3")
VMS = {f"web_{n}": (n % 3, HOSTS[n % 3]) for n in range(12)}


def crowded() -> Cloud:
    """A scope with an open event for each of its VMs, shown and confirmed."""
    cloud = Cloud(scope("web", VMS), hosts=[Host(name=name) for name in HOSTS])
    for vm in VMS:
        cloud.order(vm, EventType.REBOOT)
    cloud.show()
    return cloud


class Kept:
    """What is kept from commit to commit, told of each."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.host_feed = HostFeed()
        self.host_feed.load(cloud.index.scopes.values(), cloud.index.operations.values())
        self.measures = ControlMetrics()
        self.measures.loaded(cloud.index.scopes.values())
        self.renderer = Renderer()
        self._published = len(cloud.commits)
        self.judged = 0  # scopes that a commit changed

    def fresh(self) -> list[Change]:
        """What was committed since this was last asked."""
        found = self.cloud.commits[self._published :]
        self._published = len(self.cloud.commits)
        self.host_feed.published(found)
        self.measures.committed(found)
        return found

    def judge(self) -> None:
        for change in self.fresh():
            for before, after in change.scopes:
                if before is not None:
                    seen = document.content(before) != document.content(after)
                    assert document.changed(before, after) == seen
                self._judge_documents(after)
                self.judged += 1
        stored = FleetIndex(self.cloud.store.load())
        assert indexed(self.cloud.index) == indexed(stored)
        assert open_events(self.measures) == open_events(loaded(stored.scopes.values()))

    def _judge_documents(self, after: Scope) -> None:
        rendered = self.renderer.render(as_shown(after))
        for name, version in API_VERSIONS.items():
            assert rendered[name] == (render(after, version), shown_event_ids(after, version))


def indexed(index: FleetIndex) -> tuple[object, ...]:
    return (
        index.scopes,
        index.scope_of_event,
        index.busy_scopes,
        {host: [one.name for one in index.scopes_on(host)] for host in HOSTS},
        {host: index.arriving(host) for host in HOSTS},
        {host: index.acts(host) for host in HOSTS},
    )


def loaded(scopes: Iterable[Scope]) -> ControlMetrics:
    measures = ControlMetrics()
    measures.loaded(scopes)
    return measures


def open_events(measures: ControlMetrics) -> list[str]:
    lines = measures.exposition().decode().splitlines()
    return [line for line in lines if line.startswith("forewarn_events{")]


def something(cloud: Cloud, chance: random.Random) -> None:
    """One thing happens, if the rules allow it now."""
    events = cloud.scope().events
    vms = [vm.name for vm in cloud.scope().vms]
    deeds: list[Callable[[], object]] = [
        lambda: cloud.approve(chance.choice(events)),
        lambda: cloud.cancel(chance.choice(events)),
        lambda: cloud.order(chance.choice(vms), EventType.REDEPLOY),
        lambda: cloud.maintain(chance.choice(HOSTS), EventType.FREEZE),
        cloud.tick,
        cloud.show,
        lambda: cloud.work(chance.choice((Outcome.DONE, Outcome.FAILED))),
        lambda: cloud.clock.pass_ms(minutes(chance.randint(1, 10))),
    ]
    with suppress(Refusal, IndexError):  # not now, or nothing there to choose from
        chance.choice(deeds)()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_kept_from_commit_to_commit_is_what_is_true(seed: int) -> None:
    chance = random.Random(seed)
    cloud = crowded()
    kept = Kept(cloud)
    for _ in range(STEPS):
        something(cloud, chance)
        kept.judge()
    assert kept.judged > 0, "nothing was committed"


def test_an_approval_wakes_no_host_and_a_start_wakes_all_that_show_it() -> None:
    async def story() -> None:
        cloud = crowded()
        kept = Kept(cloud)
        known = {host: await kept.host_feed.changes(host, None, 0) for host in HOSTS}
        kept.host_feed.take_rung()
        event = cloud.scope().events[0]
        cloud.approve(event)
        assert kept.fresh()
        assert kept.host_feed.take_rung() == []
        assert all(changes.scopes for changes in known.values())

        cloud.tick()
        assert kept.fresh()
        assert kept.host_feed.take_rung() == list(HOSTS)

    asyncio.run(story())
