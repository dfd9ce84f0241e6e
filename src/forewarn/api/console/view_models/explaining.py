"""What an event or an operation waits for, in the words for who looks.

An owner is told of other scopes only that they hold what is his (`core.owner_explain`).
"""

from __future__ import annotations

from forewarn.control.fleet_reader import FleetLook
from forewarn.core import explain, owner_explain
from forewarn.core.access import Access
from forewarn.core.explain import Explanation
from forewarn.core.model import Operation, ScheduledEvent, Scope


def explained_event(
    look: FleetLook, access: Access, scope: Scope, event: ScheduledEvent
) -> Explanation:
    if access.all_scopes:
        return explain.explain_event(scope, event, look, look.now_ms)
    return owner_explain.explain_event(scope, event, look, look.now_ms, own=access.scopes)


def explained_operation(look: FleetLook, access: Access, operation: Operation) -> Explanation:
    if access.all_scopes:
        return explain.explain_operation(operation, look, look.now_ms)
    return owner_explain.explain_operation(operation, look, look.now_ms, own=access.scopes)
