"""The Event Grid dialect: its shape is that of the page that documents it, key by key."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from forewarn.core.facts import (
    CanceledDetail,
    ClaimedDetail,
    CompletedDetail,
    FailedDetail,
    PostponedDetail,
    ScheduledDetail,
    StartedDetail,
)
from forewarn.core.model import (
    Cause,
    Detail,
    EventSource,
    EventType,
    Fact,
    FactKind,
    Phase,
    ScheduledEvent,
    ScopeKind,
)
from forewarn.wire.cloud_events import CloudEvent, cloud_event, encoded
from forewarn.wire.event_grid import grid_event
from forewarn.wire.instance import ResourceLocation

ID = "4d6a3a5b-6b0e-4d5a-9c9b-0f5b3d1e7a11"
AT_MS = 1_772_532_000_000
PLACE = ResourceLocation(location="westus", resource_group="rg", subscription_id="sub-1")
EVENT = ScheduledEvent(
    event_id=ID,
    scope="web",
    event_type=EventType.REBOOT,
    event_source=EventSource.PLATFORM,
    cause=Cause.MAINTENANCE,
    phase=Phase.SCHEDULED,
    update_domain=0,
    host="h1",
    resources=("web_0", "web_1"),
    not_before_ms=AT_MS,
    minimum_notice_ms=0,
    scheduled_ms=0,
    description="Host server is undergoing maintenance.",
    duration_s=-1,
)
ABOUT: dict[str, Any] = {"event_type": EventType.REBOOT, "resources": EVENT.resources}
SCHEDULED = ScheduledDetail(
    event_type=EventType.REBOOT,
    event_source=EventSource.PLATFORM,
    cause=Cause.MAINTENANCE,
    resources=EVENT.resources,
    update_domain=0,
    not_before_ms=AT_MS,
    silent=False,
)


def line(kind: FactKind, detail: Detail | None, number: int = 7, **more: Any) -> CloudEvent:
    about = {"scope": "web", "event_id": ID, "host": "h1", **more}
    fact = Fact(kind=kind, at_ms=AT_MS, detail=detail, **about)
    made = encoded(cloud_event(fact, number, generation=1, installation="x"))
    return msgspec.json.decode(made, type=CloudEvent)


def grid(one: CloudEvent, event: ScheduledEvent | None = EVENT) -> Any:
    return grid_event(one, event, ScopeKind.PLACEMENT_GROUP, PLACE)


def test_a_scheduled_event_has_the_documented_shape() -> None:
    made = grid(line(FactKind.SCHEDULED, SCHEDULED))
    arm = (
        "/subscriptions/sub-1/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets"
        f"/web/providers/microsoft.maintenance/scheduledevents/{ID.upper()}"
    )
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made.pop("id"))
    assert made == {
        "topic": "/subscriptions/sub-1",
        "subject": arm,
        "eventType": "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted",
        "eventTime": "2026-03-03T10:00:00.000Z",
        "data": {
            "resourceInfo": {
                "id": arm,
                "name": ID.upper(),
                "type": "microsoft.maintenance/scheduledEvents",
                "location": "westus",
                "properties": {
                    "EventId": ID.upper(),
                    "EventType": "Reboot",
                    "ResourceType": "VirtualMachine",
                    "Resources": ["web_0", "web_1"],
                    "EventStatus": "Scheduled",
                    "NotBefore": "Tue, 03 Mar 2026 10:00:00 GMT",
                    "Description": "Host server is undergoing maintenance.",
                    "EventSource": "Platform",
                    "DurationInSeconds": -1,
                    "ScheduledEventApiVersion": "2020-07-01",
                },
            },
            "operationalInfo": {"resourceEventTime": "2026-03-03T10:00:00.000Z"},
            "apiVersion": "2024-07-01",
        },
        "dataVersion": "3.0",
        "metadataVersion": "1",
    }


@pytest.mark.parametrize(
    ("kind", "detail", "status", "not_before"),
    [
        (FactKind.STARTED, StartedDetail(**ABOUT), "Started", ""),
        (FactKind.COMPLETED, CompletedDetail(**ABOUT), "Completed", ""),
        (FactKind.FAILED, FailedDetail(**ABOUT), "Completed", ""),
        (
            FactKind.CANCELED,
            CanceledDetail(**ABOUT, reason="x"),
            "Canceled",
            "Tue, 03 Mar 2026 10:00:00 GMT",
        ),
        (
            FactKind.POSTPONED,
            PostponedDetail(not_before_ms=AT_MS + 1, postponements=1, postponed_ms=1),
            "Canceled",
            "Tue, 03 Mar 2026 10:00:00 GMT",
        ),
    ],
)
def test_its_status_follows_the_line_and_not_before_is_blank_once_it_started(
    kind: FactKind, detail: Detail, status: str, not_before: str
) -> None:
    properties = grid(line(kind, detail))["data"]["resourceInfo"]["properties"]
    assert (properties["EventStatus"], properties["NotBefore"]) == (status, not_before)


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (ScopeKind.STANDALONE, "virtualMachines/web"),
        (ScopeKind.AVAILABILITY_SET, "availabilitySets/web"),
        (ScopeKind.PLACEMENT_GROUP, "virtualMachineScaleSets/web"),
        (None, "virtualMachineScaleSets/web"),
    ],
)
def test_the_resource_is_named_by_the_kind_of_its_scope(kind: ScopeKind | None, named: str) -> None:
    made = grid_event(line(FactKind.SCHEDULED, SCHEDULED), EVENT, kind, PLACE)
    assert made is not None
    assert f"/Microsoft.Compute/{named}/providers/" in made["subject"]


def test_each_line_has_an_id_of_its_own_and_keeps_it() -> None:
    one, again = (grid(line(FactKind.SCHEDULED, SCHEDULED))["id"] for _ in range(2))
    assert one == again
    assert grid(line(FactKind.SCHEDULED, SCHEDULED, number=8))["id"] != one


def test_an_event_that_was_pruned_is_told_as_far_as_the_line_says() -> None:
    made = grid(line(FactKind.SCHEDULED, SCHEDULED), None)
    properties = made["data"]["resourceInfo"]["properties"]
    assert properties["Resources"] == ["web_0", "web_1"]
    assert properties["Description"] == ""


def test_what_is_not_about_an_event_is_not_said_in_that_dialect() -> None:
    assert grid(line(FactKind.CLAIMED, ClaimedDetail(action_id="a", epoch=1))) is None
    assert grid(line(FactKind.STARTED, StartedDetail(), event_id=None, operation_id="O")) is None
    assert grid(line(FactKind.HOST_CLOSED, None, event_id=None, scope=None)) is None
