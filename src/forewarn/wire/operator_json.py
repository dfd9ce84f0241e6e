"""Values of the core as the operator API, the command line and the console show them.

Conversions only: core value in, JSON-ready dict out, and the one reader of times that people
type. Keys are the words of the glossary; times are ISO 8601 in UTC with milliseconds, or null.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec

from forewarn.core import errors
from forewarn.core.model import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    Action,
    Fact,
    Host,
    Operation,
    ScheduledEvent,
    Scope,
    Vm,
)

Json = dict[str, object]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# The last whole second the date formats of the wire can hold: NotBefore is rounded up to one (N7).
LAST_MS = (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - _EPOCH) // _MILLISECOND

_FROM_NOW = re.compile(r"\+([0-9]{1,12})([smhd])")
_UNIT_MS = {"s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
_ACCEPTED_TIME = (
    "A time with its zone, like 2026-03-03T10:15:00Z or 2026-03-03T11:15:00+01:00, or a time from"
    " now, like +90s, +30m, +2h or +7d, would be accepted."
)
_QUOTED_CHARS_MAX = 64


def time_text(ms: int | None) -> str | None:
    """An instant as `2026-03-03T10:15:00.000Z`; None stays None."""
    if ms is None:
        return None
    at = _EPOCH + ms * _MILLISECOND
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Instant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A point in time as somebody wrote it: a date, or so long after the moment of deciding."""

    said: str
    at_ms: int | None = None
    from_now_ms: int | None = None

    def instant_ms(self, now_ms: int) -> int:
        """The instant in milliseconds. Raises errors.Invalid for one that no date can be."""
        at_ms = now_ms + (self.from_now_ms or 0) if self.at_ms is None else self.at_ms
        if not 0 <= at_ms <= LAST_MS:
            raise errors.Invalid(
                f"The time {self.said[:_QUOTED_CHARS_MAX]!r} is not between {time_text(0)} and"
                f" {time_text(LAST_MS)}.",
                _ACCEPTED_TIME,
            )
        return at_ms

    def to_come_ms(self, now_ms: int) -> int:
        """As `instant_ms`. Raises errors.Invalid if it has passed."""
        at_ms = self.instant_ms(now_ms)
        if at_ms < now_ms:
            raise errors.Invalid(
                f"The time {self.said[:_QUOTED_CHARS_MAX]} has passed.",
                "A time from now on would be accepted.",
            )
        return at_ms


def parse_instant(text: str) -> Instant:
    """The instant that `text` names; fractions of a millisecond are cut.

    Raises errors.Invalid for everything that is not a time with a zone or a time from now.
    """
    from_now = _FROM_NOW.fullmatch(text)
    if from_now is not None:
        return Instant(said=text, from_now_ms=int(from_now[1]) * _UNIT_MS[from_now[2]])
    return Instant(said=text, at_ms=(_zoned(text) - _EPOCH) // _MILLISECOND)


def parse_time(text: str, *, now_ms: int) -> int:
    """The instant that `text` names, in milliseconds. Raises errors.Invalid as `parse_instant`."""
    return parse_instant(text).instant_ms(now_ms)


def event_json(event: ScheduledEvent) -> Json:
    return {
        "event_id": event.event_id,
        "event_type": event.event_type.value,
        "event_source": event.event_source.value,
        "phase": event.phase.value,
        "not_before": time_text(event.not_before_ms),
        "resources": list(event.resources),
        "scope": event.scope,
        "update_domain": event.update_domain,
        "host": event.host,
        "cause": event.cause.value,
        "silent": event.silent,
        "description": event.description,
        "duration_seconds": event.duration_s,
        "minimum_notice_seconds": _seconds(event.minimum_notice_ms),
        "scheduled": time_text(event.scheduled_ms),
        "ordered_not_before": time_text(event.ordered_not_before_ms),
        "ordered_by": event.ordered_by,
        "operation_id": event.operation_id,
        "breaks_domains": event.breaks_domains,
        "shown": time_text(event.shown_ms),
        "unreadable_seconds": _seconds(event.unreadable_ms),
        "approved": time_text(event.approved_ms),
        "approved_by": event.approved_by,
        "started": time_text(event.started_ms),
        "deadline": time_text(event.deadline_ms),
        "ended": time_text(event.ended_ms),
        "outcome": event.outcome,
        "actions": [action_json(action) for action in event.actions],
    }


def action_json(action: Action) -> Json:
    return {
        "action_id": action.action_id,
        "kind": action.kind.value,
        "host": action.host,
        "vm": action.vm,
        "target_host": action.target_host,
        "duration_seconds": action.duration_s,
        "phase": action.phase.value,
        "epoch": action.epoch,
        "outcome": None if action.outcome is None else action.outcome.value,
        "detail": action.detail,
    }


def vm_json(vm: Vm, scope_name: str) -> Json:
    return {
        "name": vm.name,
        "vm_id": vm.vm_id,
        "scope": scope_name,
        "update_domain": vm.update_domain,
        "host": vm.host,
        "priority": vm.priority.value,
        "address": vm.address,
        "listen": vm.listen,
        "tags": dict(vm.tags),
        "fault_domain": vm.fault_domain,
        "zone": vm.zone,
        "os_type": vm.os_type,
        "computer_name": vm.computer_name,
        "may_run_on": vm.may_run_on,
        "off": vm.off,
        "went_down": vm.went_down,
    }


def host_json(host: Host) -> Json:
    return {
        "name": host.name,
        "capacity": host.capacity,
        "closed": host.closed,
        "health": host.health.value,
        "fenced": host.fenced,
        "listed": host.listed,
        "joined": host.joined,
        "boot_id": host.boot_id,
        "revision": host.revision,
    }


def scope_json(scope: Scope) -> Json:
    """A scope with its VMs and its open events, silent ones included."""
    hold = scope.hold
    return {
        "name": scope.name,
        "kind": scope.kind.value,
        "incarnation": scope.incarnation,
        "revision": scope.revision,
        "enabled": scope.enabled,
        "polled": time_text(scope.polled_ms),
        "terminate_notice_seconds": _seconds(scope.terminate_notice_ms),
        "auto_approve": sorted(event_type.value for event_type in scope.auto_approve),
        "hold": None
        if hold is None
        else {
            "since": time_text(hold.since_ms),
            "event_id": hold.event_id,
            "reason": hold.reason,
        },
        "recoveries": [
            {
                "update_domain": recovery.update_domain,
                "since": time_text(recovery.since_ms),
                "until": time_text(recovery.until_ms),
                "waiting_for": list(recovery.waiting_for),
            }
            for recovery in scope.recoveries
        ],
        "vms": [vm_json(vm, scope.name) for vm in scope.vms],
        "events": [event_json(event) for event in scope.events],
        "deleted": list(scope.deleted),
    }


def operation_json(operation: Operation) -> Json:
    return {
        "operation_id": operation.operation_id,
        "host": operation.host,
        "event_type": operation.event_type.value,
        "cause": operation.cause.value,
        "phase": operation.phase.value,
        "ordered": time_text(operation.ordered_ms),
        "ordered_by": operation.ordered_by,
        "ordered_not_before": time_text(operation.ordered_not_before_ms),
        "duration_seconds": operation.duration_s,
        "description": operation.description,
        "broke_domains_by": operation.broke_domains_by,
        "members": [
            {"scope": scope, "event_id": event_id} for scope, event_id in operation.members
        ],
        "action": None if operation.action is None else action_json(operation.action),
        "started": time_text(operation.started_ms),
        "deadline": time_text(operation.deadline_ms),
        "ended": time_text(operation.ended_ms),
        "outcome": operation.outcome,
        "revision": operation.revision,
    }


def fact_json(fact: Fact, number: int) -> Json:
    """A line of the journal under its number."""
    return {
        "number": number,
        "kind": fact.kind.value,
        "at": time_text(fact.at_ms),
        "scope": fact.scope,
        "event_id": fact.event_id,
        "operation_id": fact.operation_id,
        "host": fact.host,
        "vm": fact.vm,
        "by": fact.by,
        "detail": dict(fact.detail),
    }


def _zoned(text: str) -> datetime:
    quoted = repr(text[:_QUOTED_CHARS_MAX])
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise errors.Invalid(f"{quoted} is not a time.", _ACCEPTED_TIME) from None
    if at.tzinfo is None:
        raise errors.Invalid(f"The time {quoted} names no zone.", _ACCEPTED_TIME)
    return at


def _seconds(ms: int) -> int | float:
    """Whole seconds as an integer, others with their fraction."""
    return ms // SECOND_MS if ms % SECOND_MS == 0 else ms / SECOND_MS
