"""A Redeploy that loses the local disk: ordered as one, kept as one, refused where it cannot be."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from forewarn.control import commands
from forewarn.core.errors import Invalid, LocalDiskKept, OtherDisk
from forewarn.core.facts import detail_words
from forewarn.core.model import EventType, FactKind, ScheduledEvent
from support import ordered
from support.core_fleet import WEB, Cloud, minutes, scope


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("web", WEB))


def redeployed(cloud: Cloud, *, lose_disk: bool) -> ScheduledEvent:
    order = ordered.order_vm("web_0", EventType.REDEPLOY, by="ann")
    assert isinstance(order, commands.RedeployVm)
    return cloud.event(cloud.run(replace(order, lose_disk=lose_disk)))


@pytest.mark.parametrize("lose_disk", [False, True])
def test_a_redeploy_keeps_the_local_disk_unless_it_is_ordered_otherwise(
    cloud: Cloud, *, lose_disk: bool
) -> None:
    event = redeployed(cloud, lose_disk=lose_disk)
    cloud.show()
    cloud.approves("web_0", [event.event_id])
    cloud.tick()
    cloud.crash(down_ms=0)
    assert cloud.event(event).lose_disk is lose_disk
    assert [action.lose_disk for action in cloud.claim("h1")] == [lose_disk]
    (line,) = cloud.facts(FactKind.SCHEDULED)
    assert detail_words(line.detail).get("lose_disk", False) is lose_disk


def test_all_that_a_host_moves_away_loses_its_disk_if_the_operation_does(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.REDEPLOY, lose_disk=True)
    assert [event.lose_disk for event in cloud.events_of(operation)] == [True]
    assert cloud.operation(operation).lose_disk
    (line,) = cloud.facts(FactKind.ORDERED)
    assert detail_words(line.detail)["lose_disk"] is True
    cloud.show()
    cloud.pass_time(minutes(15))
    assert [action.lose_disk for action in cloud.claim("h1")] == [True]


@pytest.mark.parametrize("event_type", [EventType.FREEZE, EventType.REBOOT])
def test_only_a_redeploy_can_lose_the_disk(cloud: Cloud, event_type: EventType) -> None:
    with pytest.raises(Invalid, match="does not lose the local disk"):
        cloud.maintain("h1", event_type, lose_disk=True)
    assert not cloud.scope("web").events


def test_the_same_order_with_the_other_fate_of_the_disk_is_refused(cloud: Cloud) -> None:
    event = redeployed(cloud, lose_disk=True)
    assert redeployed(cloud, lose_disk=True).event_id == event.event_id
    with pytest.raises(OtherDisk, match=event.event_id):
        redeployed(cloud, lose_disk=False)


def test_hosts_with_a_daemon_of_their_own_are_not_asked_to_lose_a_disk(cloud: Cloud) -> None:
    """They could not do it, and no guest is told of what will not happen."""
    cloud.hosts_join()
    with pytest.raises(LocalDiskKept, match="keep every disk"):
        redeployed(cloud, lose_disk=True)
    with pytest.raises(LocalDiskKept):
        cloud.maintain("h1", EventType.REDEPLOY, lose_disk=True)
    assert not cloud.scope("web").events
