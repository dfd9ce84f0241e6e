"""Scopes, VMs and events that the tests of the wire render; the golden files show these scopes."""

from __future__ import annotations

from msgspec.structs import replace

from forewarn.core.model import (
    MINUTE_MS,
    EventSource,
    EventType,
    Phase,
    ScheduledEvent,
    Scope,
    ScopeKind,
    Vm,
)
from forewarn.wire.instance import ResourceLocation
from support.clock import START_MS
from support.events import an_event
from support.profiles import described

SCHEDULED_MS = START_MS

PLACE = ResourceLocation("testland", "rg-one", "00000000-0000-4000-8000-000000000001")

FREEZE = an_event(
    "0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0",
    host="host-1",
    resources=("web_0", "web_1"),
    description="Host server is undergoing maintenance.",
    duration_s=5,
)

STARTED = replace(FREEZE, phase=Phase.STARTED, started_ms=SCHEDULED_MS + MINUTE_MS)


def vm(name: str = "web_0", **changes: object) -> Vm:
    """A VM with nothing special about it."""
    plain = Vm(
        name=name,
        vm_id="02aab8a4-74ef-476e-8182-f6d2ba4166a6",
        update_domain=2,
        host="host-1",
    )
    return described(plain, **{"address": "10.0.0.4", "fault_domain": 1, **changes})


def scope(*events: ScheduledEvent, kind: ScopeKind = ScopeKind.AVAILABILITY_SET) -> Scope:
    """A scope named `web` with these events, at incarnation 7."""
    return Scope(name="web", kind=kind, incarnation=7, events=events, vms=(vm(),))


def _of_type(event_type: EventType, number: int) -> ScheduledEvent:
    user = event_type in (EventType.REBOOT, EventType.TERMINATE)
    return replace(
        FREEZE,
        event_id=f"{number:08X}-0000-4000-8000-00000000ABCD",
        event_type=event_type,
        event_source=EventSource.USER if user else EventSource.PLATFORM,
        resources=(f"web_{number}",),
        not_before_ms=FREEZE.not_before_ms + number * MINUTE_MS,
        description="" if event_type is EventType.PREEMPT else f"Sample {number}.",
        duration_s=5 if event_type is EventType.FREEZE else -1,
    )


# File name without .json -> what it shows.
GOLDEN_SCOPES: dict[str, Scope] = {
    "empty": replace(scope(), incarnation=1),
    "freeze-scheduled": scope(FREEZE),
    "freeze-started": scope(STARTED),
    "all-types": scope(*(_of_type(event_type, n) for n, event_type in enumerate(EventType))),
    "silent-and-ended": scope(
        replace(FREEZE, silent=True),
        replace(FREEZE, phase=Phase.COMPLETED),
        replace(FREEZE, phase=Phase.CANCELED),
        replace(FREEZE, phase=Phase.FAILED),
    ),
    "standalone": scope(replace(FREEZE, resources=("lonely",)), kind=ScopeKind.STANDALONE),
    "cloud-service": scope(
        replace(FREEZE, resources=("FrontEnd_IN_0", "BackEnd_IN_0")), kind=ScopeKind.CLOUD_SERVICE
    ),
    "placement-group": scope(
        replace(STARTED, event_id="11111111-4B5A-6978-8796-A5B4C3D2E1F0", resources=("web_17",)),
        FREEZE,
        kind=ScopeKind.PLACEMENT_GROUP,
    ),
    "json-escapes": scope(
        replace(
            FREEZE,
            resources=('quote"', "back\\slash", "tab\t", "line\nfeed", "nul\x00", "del\x7f"),
            description="Ünïcode, 雪, 😀, \u2028 and </script>.",
        )
    ),
}
