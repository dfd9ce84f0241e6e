"""Where events stand in a document: Started first, then by NotBefore, then as scheduled."""

from __future__ import annotations

import pytest

from forewarn.core import document
from forewarn.core.model import EventType, Phase
from support.core_fleet import Cloud, scope
from support.shown import as_shown_to


@pytest.fixture
def cloud() -> Cloud:
    """Three VMs of one scope, each in a domain of its own."""
    return Cloud(scope("one", {"a": (0, "h1"), "b": (1, "h2"), "c": (2, "h3")}))


def in_document(cloud: Cloud) -> list[str]:
    """The VMs of the events as every host of the scope is shown them."""
    shown = [as_shown_to(cloud.scope("one"), host).events for host in ("h1", "h2", "h3")]
    assert shown[0] == shown[1] == shown[2]
    assert [event.event_id for event in document.visible(cloud.scope("one"))] == [
        event.event_id for event in shown[0]
    ]
    return [event.resources[0] for event in shown[0]]


def test_what_comes_sooner_stands_first_and_equals_stand_as_scheduled(cloud: Cloud) -> None:
    cloud.order("c", EventType.REBOOT)  # in fifteen minutes
    cloud.order("b", EventType.REBOOT)
    cloud.order("a", EventType.REDEPLOY)  # in ten
    assert in_document(cloud) == ["a", "c", "b"]


def test_an_approval_moves_nothing_and_a_start_moves_to_the_front(cloud: Cloud) -> None:
    sooner = cloud.order("a", EventType.REDEPLOY)
    later = cloud.order("b", EventType.REBOOT)
    before = cloud.scope("one")
    cloud.approve(later)
    assert in_document(cloud) == ["a", "b"]
    assert cloud.scope("one").incarnation == before.incarnation
    cloud.start(later)
    assert cloud.event(later).phase is Phase.STARTED
    assert in_document(cloud) == ["b", "a"]
    assert cloud.scope("one").incarnation == before.incarnation + 1
    assert cloud.event(sooner).phase is Phase.SCHEDULED
