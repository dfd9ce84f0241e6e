"""The messages of the link by question, taken apart field by field. No test lives here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from forewarn.wire import link as wire

# What each question says, and what it is answered.
MESSAGES: Mapping[str, tuple[type[msgspec.Struct], type[msgspec.Struct]]] = {
    "join": (wire.Join, wire.Joined),
    "renew": (wire.Renew, wire.Joined),
    "changes": (wire.AskChanges, wire.Changes),
    "turn": (wire.Turn, wire.TurnTaken),
    "claim": (wire.Claim, wire.Claimed),
    "holds": (wire.Holds, wire.Held),
    "approve": (wire.Approve, wire.Done),
    "enable": (wire.Enable, wire.Done),
    "sight": (wire.Sighting, wire.Sighted),
    "blind": (wire.Blind, wire.Done),
    "adopted": (wire.Adopted, wire.Done),
    "targets": (wire.AskTargets, wire.Targets),
    "definition": (wire.AskDefinition, wire.Definition),
}
# Of a host's own disk: it never goes over the link.
NO_MESSAGES = ("LastShown",)


def kinds() -> list[type[msgspec.Struct]]:
    """Every kind of message, and of what messages are made of, that there is."""
    found = (kind for kind in vars(wire).values() if isinstance(kind, type))
    return sorted(
        (
            kind
            for kind in found
            if issubclass(kind, msgspec.Struct)
            and not kind.__name__.startswith("_")
            and kind.__name__ not in NO_MESSAGES
        ),
        key=lambda kind: kind.__name__,
    )


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """What a field is if nobody says it; NODEFAULT if somebody has to."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def structs_in(value: Any) -> Iterator[msgspec.Struct]:
    """The message and every message in it."""
    if isinstance(value, msgspec.Struct):
        yield value
        for field in value.__struct_fields__:
            yield from structs_in(getattr(value, field))
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from structs_in(one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from structs_in(one)


def differences(recorded: Any, read: Any, where: str = "") -> Iterator[str]:
    """What was said in `recorded` (JSON) and is not in the message that was `read` of it.

    And what is in the message and was not said, unless that is the default.
    """
    if isinstance(read, msgspec.Struct):
        yield from _of_struct(recorded, read, where)
    elif isinstance(read, Mapping) and isinstance(recorded, Mapping):
        if recorded.keys() != read.keys():
            yield f"{where}: {sorted(recorded)} was read as {sorted(read)}"
            return
        for key, value in recorded.items():
            yield from differences(value, read[key], f"{where}[{key}]")
    elif isinstance(read, tuple | list) and isinstance(recorded, list):
        if len(recorded) != len(read):
            yield f"{where}: {len(recorded)} were read as {len(read)}"
            return
        for number, value in enumerate(recorded):
            yield from differences(value, read[number], f"{where}[{number}]")
    elif recorded != read:
        yield f"{where}: {recorded!r} was read as {read!r}"


def _of_struct(recorded: Mapping[str, Any], read: msgspec.Struct, where: str) -> Iterator[str]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(read)}
    for name in recorded.keys() - fields.keys():
        yield f"{where}.{name}: nobody reads it any more"
    for name, field in fields.items():
        value = getattr(read, field.name)
        if name in recorded:
            yield from differences(recorded[name], value, f"{where}.{name}")
        elif value != default_of(field):
            yield f"{where}.{name}: nobody said {value!r}"
