"""What is remembered of claims: as long as there is something to hold, and no longer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forewarn.control import commands
from forewarn.core.model import EventType, Outcome, Phase
from forewarn.ports import StoreFailed
from support import ordered
from support.core_fleet import WEB, Cloud, minutes, scope
from support.watched_store import WatchedStore, disk_full

TIMES = 40


def claimed(cloud: Cloud, vm: str = "web_0") -> str:
    event = cloud.order(vm, EventType.REBOOT)
    cloud.start(event)
    [action] = cloud.claim("h1")
    assert action.action_id in cloud.volatile.leases
    return event.event_id


def given_up(cloud: Cloud) -> None:
    """No host says how it ended by the deadline."""
    claimed(cloud)
    cloud.clock.pass_ms(minutes(60))
    cloud.tick()
    cloud.run(ordered.release_scope("web", by="op"))


def host_fails(cloud: Cloud) -> None:
    claimed(cloud)
    cloud.fail("h1")
    cloud.repair("h1")
    cloud.clock.pass_ms(minutes(60))
    cloud.tick()
    cloud.work()
    cloud.run(ordered.release_scope("web", by="op"))


def operation_given_up(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.FREEZE)
    cloud.approve(*(event for event in cloud.scope("web").events))
    cloud.tick()
    cloud.claim("h1")
    assert operation.operation_id in cloud.volatile.leases
    cloud.clock.pass_ms(minutes(60))
    cloud.tick()
    assert operation.operation_id not in cloud.index.operations
    cloud.run(ordered.release_scope("web", by="op"))


def reported(cloud: Cloud) -> None:
    claimed(cloud)
    cloud.clock.pass_ms(31_000)
    cloud.work()


@pytest.mark.parametrize("ends", [given_up, host_fails, operation_given_up, reported])
def test_a_lease_goes_with_its_action_however_that_ends(ends: Callable[[Cloud], None]) -> None:
    cloud = Cloud(scope("web", WEB))
    for _ in range(TIMES):
        ends(cloud)
        assert not [event for event in cloud.scope("web").events if event.phase is Phase.STARTED]
        assert cloud.volatile.leases == {}


def test_a_lease_is_still_there_if_the_end_of_its_action_was_not_kept() -> None:
    store = WatchedStore()
    cloud = Cloud(scope("web", WEB), store=store)
    claimed(cloud)
    leases = dict(cloud.volatile.leases)
    [(action_id, lease)] = leases.items()
    ended = commands.EndedAction(action_id=action_id, epoch=lease.epoch, outcome=Outcome.DONE)
    store.fails["commit"] = disk_full()
    with pytest.raises(StoreFailed):
        cloud.run(ordered.turn("h1", ended=(ended,)))
    assert cloud.volatile.leases == leases
    cloud.run(ordered.turn("h1", ended=(ended,)))
    assert cloud.volatile.leases == {}


def test_what_goes_on_beside_it_keeps_its_lease() -> None:
    cloud = Cloud(scope("web", {"a": (0, "h1"), "b": (0, "h1")}))
    for vm in ("a", "b"):
        cloud.start(cloud.order(vm, EventType.REBOOT))
    one, other = cloud.claim("h1")
    cloud.report("h1", one)
    assert list(cloud.volatile.leases) == [other.action_id]
