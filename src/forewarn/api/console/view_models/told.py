"""What a person is told of the things that hold an event: in full, or as the owner of scopes is."""

from __future__ import annotations

from forewarn.control.fleet_reader import FleetLook
from forewarn.core import explain, owner_explain
from forewarn.core.access import Access
from forewarn.core.explain import Explanation
from forewarn.core.model import ScheduledEvent, Scope


def explained(look: FleetLook, scope: Scope, event: ScheduledEvent, access: Access) -> Explanation:
    """What the event waits for; of what is not an owner's, only that it holds."""
    if access.all_scopes:
        return explain.explain_event(scope, event, look, look.now_ms)
    return owner_explain.explain_event(scope, event, look, look.now_ms, own=access.scopes)
