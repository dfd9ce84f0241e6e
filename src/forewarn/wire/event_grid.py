"""Lines about events in the words of Azure Event Grid, for receivers that know only those.

The names are those of Microsoft.ResourceNotifications.MaintenanceResources (preview of 2026-05):
articles/virtual-machines/scheduled-events-event-grid.md of MicrosoftDocs/azure-compute-docs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from forewarn.core.model import SECOND_MS, EventSource, FactKind, ScheduledEvent, ScopeKind
from forewarn.wire.cloud_events import CloudEvent
from forewarn.wire.documents import http_date
from forewarn.wire.instance import ResourceLocation

EVENT_TYPE = "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted"
RESOURCE_TYPE = "microsoft.maintenance/scheduledEvents"
DATA_VERSION = "3.0"
METADATA_VERSION = "1"
API_VERSION = "2024-07-01"
SCHEDULED_EVENTS_VERSION = "2020-07-01"

_SCHEDULED, _STARTED, _COMPLETED, _CANCELED = "Scheduled", "Started", "Completed", "Canceled"
# That dialect knows no failure: what has failed is over, and the document has it no more.
STATUSES: Mapping[FactKind, str] = {
    FactKind.SCHEDULED: _SCHEDULED,
    FactKind.APPEARED: _SCHEDULED,
    FactKind.STARTED: _STARTED,
    FactKind.COMPLETED: _COMPLETED,
    FactKind.FAILED: _COMPLETED,
    FactKind.CANCELED: _CANCELED,
    FactKind.POSTPONED: _CANCELED,
}
_TYPES: Mapping[ScopeKind, str] = {
    ScopeKind.STANDALONE: "virtualMachines",
    ScopeKind.CLOUD_SERVICE: "cloudServices",
    ScopeKind.AVAILABILITY_SET: "availabilitySets",
    ScopeKind.PLACEMENT_GROUP: "virtualMachineScaleSets",
}
Tree = dict[str, Any]


def grid_event(
    line: CloudEvent,
    event: ScheduledEvent | None,
    kind: ScopeKind | None,
    place: ResourceLocation,
) -> Tree | None:
    """The line in that dialect; None for what is not about an event.

    `event` is the one that it is about and `kind` that of its scope, as far as they are still
    known; what only they say is blank otherwise.
    """
    data = line.data
    status = STATUSES.get(data.kind)
    if status is None or not data.event_id or not data.scope:
        return None
    subject = _event_id(data.event_id, data.scope, kind, place)
    return {
        "id": _id(line),
        "topic": f"/subscriptions/{place.subscription_id}",
        "subject": subject,
        "eventType": EVENT_TYPE,
        "eventTime": line.time,
        "data": {
            "resourceInfo": {
                "id": subject,
                "name": data.event_id.upper(),
                "type": RESOURCE_TYPE,
                "location": place.location,
                "properties": _properties(line, event, status),
            },
            "operationalInfo": {"resourceEventTime": line.time},
            "apiVersion": API_VERSION,
        },
        "dataVersion": DATA_VERSION,
        "metadataVersion": METADATA_VERSION,
    }


def _properties(line: CloudEvent, event: ScheduledEvent | None, status: str) -> Tree:
    data = line.data
    said = data.detail
    not_before_ms = said.get("not_before_ms", 0 if event is None else event.not_before_ms)
    if data.kind is FactKind.POSTPONED and event is not None:
        not_before_ms = event.not_before_ms  # of this event, not of the later one
    resources = said.get("resources") or (() if event is None else event.resources)
    source = said.get("event_source") or (event.event_source if event else EventSource.PLATFORM)
    upcoming = status in (_SCHEDULED, _CANCELED) and not_before_ms
    return {
        "EventId": (data.event_id or "").upper(),
        "EventType": said.get("event_type") or (event.event_type if event else ""),
        "ResourceType": "VirtualMachine",
        "Resources": list(resources),
        "EventStatus": status,
        # Blank once it has started (N4).
        "NotBefore": http_date(not_before_ms // SECOND_MS) if upcoming else "",
        "Description": "" if event is None else event.description,
        "EventSource": source,
        "DurationInSeconds": -1 if event is None else event.duration_s,
        "ScheduledEventApiVersion": SCHEDULED_EVENTS_VERSION,
    }


def _event_id(event_id: str, scope: str, kind: ScopeKind | None, place: ResourceLocation) -> str:
    compute = _TYPES[ScopeKind.PLACEMENT_GROUP if kind is None else kind]
    return (
        f"/subscriptions/{place.subscription_id}/resourceGroups/{place.resource_group}"
        f"/providers/Microsoft.Compute/{compute}/{scope}"
        f"/providers/microsoft.maintenance/scheduledevents/{event_id.upper()}"
    )


def _id(line: CloudEvent) -> str:
    """A GUID that is the same whenever the line is sent, and that no other line has."""
    text = hashlib.sha256(f"{line.source} {line.id}".encode()).hexdigest()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:32]))
