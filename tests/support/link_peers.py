"""What peers of the link say that are one minor version newer or older than this one.

A newer one says more in every message, and in every message in it. An older one leaves out what
could have been added since: what has a default and is not needed for an event to take its course.
No test lives here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from forewarn.wire import link as wire
from support.link_messages import MESSAGES, default_of

NEWER, OLDER = "newer", "older"
_MAJOR, _MINOR = (int(part) for part in wire.LINK_VERSION.split("."))
VERSIONS = {NEWER: f"{_MAJOR}.{_MINOR + 1}", OLDER: f"{_MAJOR}.{_MINOR - 1}"}
MORE = {"added_since": {"words": ["said by a later version"], "epoch": 5, "vms": None}}
NO_QUESTION = "forecast"  # of a newer host
NO_WORK = "paint-host"  # of a newer control
LATER_QUESTION = "blind"  # that an older control does not know
LATER_WORK = "freeze-host"  # that an older host does not know

LEFT_OUT: Mapping[type[msgspec.Struct], tuple[str, ...]] = {
    # By hosts.
    wire.Turn: ("refuses", "epoch", "polls", "returned", "daemon", "vm_polls"),
    wire.Claim: ("daemon", "epoch"),
    wire.Sighting: ("boot_id",),
    wire.VmTraits: ("os_type",),
    wire.VmSeen: ("traits", "nics", "definition", "problem"),
    wire.Adopted: ("problem",),
    # By control.
    wire.Changes: ("adoptions",),
    wire.ShownVm: (
        *("update_domain", "fault_domain", "priority", "address", "listen"),
        *("tags", "zone", "os_type", "computer_name"),
    ),
    wire.ShownEvent: ("description", "duration_s"),
    wire.ShownScope: ("waiting_for",),
    wire.Work: ("target_host", "boot_id", "only_off", "left_ms"),
    wire.TurnTaken: ("lost", "work"),
}

Change = Callable[[msgspec.Struct, dict[str, Any]], dict[str, Any]]


def taken_apart(value: Any, change: Change) -> Any:
    """A message as JSON, with each message in it changed."""
    if isinstance(value, msgspec.Struct):
        fields = {
            field.encode_name: taken_apart(getattr(value, field.name), change)
            for field in msgspec.structs.fields(value)
            if getattr(value, field.name) != default_of(field)
        }
        return change(value, fields)
    if isinstance(value, Mapping):
        return {key: taken_apart(one, change) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [taken_apart(one, change) for one in value]
    return value


def with_more(_: msgspec.Struct, fields: dict[str, Any]) -> dict[str, Any]:
    return {**MORE, **fields}


def with_less(message: msgspec.Struct, fields: dict[str, Any]) -> dict[str, Any]:
    left_out = LEFT_OUT.get(type(message), ())
    return {key: value for key, value in fields.items() if key not in left_out}


CHANGES: Mapping[str, Change] = {NEWER: with_more, OLDER: with_less}


def as_said_by(peer: str, name: str, body: bytes, *, answer: bool) -> bytes:
    """A question, or its answer, as a peer of another version says it."""
    kinds = MESSAGES.get(name)
    if kinds is None or not body:
        return body
    message = msgspec.json.decode(body, type=kinds[answer])
    return msgspec.json.encode(taken_apart(message, CHANGES[peer]))
