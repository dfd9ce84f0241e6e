"""Lines of the journal as CloudEvents 1.0: what readers of the feed, and webhooks, are sent.

One table says under which type each kind of fact goes. Nothing here decides who may read a line.
The word "event" of that specification is ours for nothing else: see `docs/glossary.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from forewarn.core.errors import Invalid
from forewarn.core.facts import DETAILS, EarlierDetail, detail_words
from forewarn.core.model import Fact, FactKind
from forewarn.core.principal import PrincipalKind
from forewarn.wire.instants import needed_time_text

SPEC_VERSION = "1.0"
BATCH_CONTENT_TYPE = "application/cloudevents-batch+json"
EVENT_BYTES_MAX = 20_000  # of one; what is longer is shortened, and says so
TYPE_PREFIX = "io.forewarn."
SCHEMA_PREFIX = "urn:forewarn:feed:"
GENERATION_DIGITS = 10  # a generation is a time in seconds
NUMBER_DIGITS = 16  # 2**53 - 1 has as many
# How many items of a list and characters of a text are left, tried in this order.
_SHORTER = ((100, 1_000), (20, 200), (5, 64))

# By kind; with the prefix it is the `type`. It never changes: what is another thing is a v2.
TYPES: Mapping[FactKind, str] = {
    FactKind.ORDERED: "operation.ordered.v1",
    FactKind.SCHEDULED: "event.scheduled.v1",
    FactKind.APPEARED: "event.appeared.v1",
    FactKind.CONFIRMED: "event.confirmed.v1",
    FactKind.APPROVED: "event.approved.v1",
    FactKind.STARTED: "event.started.v1",
    FactKind.EXEMPTED: "event.exempted.v1",
    FactKind.ASSIGNED: "event.assigned.v1",
    FactKind.CLAIMED: "action.claimed.v1",
    FactKind.REPORTED: "action.reported.v1",
    FactKind.COMPLETED: "event.completed.v1",
    FactKind.FAILED: "event.failed.v1",
    FactKind.CANCELED: "event.canceled.v1",
    FactKind.POSTPONED: "event.postponed.v1",
    FactKind.AVOIDED: "event.avoided.v1",
    FactKind.MOVED: "vm.moved.v1",
    FactKind.DELETED: "vm.deleted.v1",
    FactKind.RECOVERING: "scope.recovering.v1",
    FactKind.RECOVERED: "scope.recovered.v1",
    FactKind.HELD: "scope.held.v1",
    FactKind.RELEASED: "scope.released.v1",
    FactKind.ENABLED: "scope.enabled.v1",
    FactKind.DISABLED: "scope.disabled.v1",
    FactKind.HOST_CLOSED: "host.closed.v1",
    FactKind.HOST_OPENED: "host.opened.v1",
    FactKind.HOST_DEGRADED: "host.degraded.v1",
    FactKind.HOST_FAILED: "host.failed.v1",
    FactKind.HOST_FENCED: "host.fenced.v1",
    FactKind.HOST_REPAIRED: "host.repaired.v1",
    FactKind.HOST_JOINED: "host.joined.v1",
    FactKind.HOST_LEFT: "host.left.v1",
    FactKind.ADOPTION_ORDERED: "vm.adoption-ordered.v1",
    FactKind.VM_SEEN: "vm.seen.v1",
    FactKind.VM_CHANGED: "vm.changed.v1",
    FactKind.VM_POWER: "vm.power.v1",
    FactKind.VM_ON_TWO_HOSTS: "vm.on-two-hosts.v1",
    FactKind.VM_GONE: "vm.gone.v1",
    FactKind.INVENTORY_APPLIED: "service.inventory-applied.v1",
    FactKind.DOWNTIME: "service.downtime.v1",
    FactKind.CLOCK_STEPPED: "service.clock-stepped.v1",
    FactKind.RESTORED: "service.restored.v1",
    FactKind.BACKED_UP: "service.backed-up.v1",
    FactKind.PRUNED: "service.pruned.v1",
    FactKind.WEBHOOK_MADE: "webhook.made.v1",
    FactKind.WEBHOOK_CHANGED: "webhook.changed.v1",
    FactKind.WEBHOOK_ROTATED: "webhook.rotated.v1",
    FactKind.WEBHOOK_REPLAYED: "webhook.replayed.v1",
    FactKind.WEBHOOK_SKIPPED: "webhook.skipped.v1",
    FactKind.WEBHOOK_ENABLED: "webhook.enabled.v1",
    FactKind.WEBHOOK_DISABLED: "webhook.disabled.v1",
    FactKind.WEBHOOK_REMOVED: "webhook.removed.v1",
    FactKind.TOKEN_MADE: "access.token-made.v1",
    FactKind.TOKEN_ROTATED: "access.token-rotated.v1",
    FactKind.TOKEN_REVOKED: "access.token-revoked.v1",
    FactKind.ACCESS_REFUSED: "access.refused.v1",
}
# Of these kinds, lines that name no event are about an operation.
OPERATION_TYPES: Mapping[FactKind, str] = {
    FactKind.STARTED: "operation.started.v1",
    FactKind.COMPLETED: "operation.completed.v1",
    FactKind.FAILED: "operation.failed.v1",
    FactKind.CANCELED: "operation.canceled.v1",
    FactKind.POSTPONED: "operation.postponed.v1",
}


class FeedPrincipal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who did it. Lines of earlier versions have the name alone."""

    name: str
    kind: PrincipalKind | None = None
    id: str | None = None


class FeedData(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a line says: of what kind it is, what it is about, by whom, and the detail of its kind.

    `number` is that of the line in the journal. `shortened`: lists and texts of the detail were
    cut; `GET /v1/journal?after=NUMBER-1&limit=1` has all of it.
    """

    kind: FactKind
    number: int
    scope: str | None = None
    event_id: str | None = None
    operation_id: str | None = None
    host: str | None = None
    vm: str | None = None
    by: FeedPrincipal | None = None
    detail: Mapping[str, Any]
    shortened: bool = False


class CloudEvent(Struct, frozen=True, kw_only=True):
    """One line in the envelope of CloudEvents 1.0.

    `id` is unique over all restores of an installation; `sequence` sorts as text.
    """

    specversion: str
    id: str
    source: str
    type: str
    subject: str | UnsetType = UNSET
    time: str
    datacontenttype: str
    dataschema: str | UnsetType = UNSET
    sequence: str
    data: FeedData


class FeedPage(Struct, frozen=True, kw_only=True):
    """Lines of the feed, oldest first. `next` is where to go on: after it, nothing was missed.

    `filtered`: the reader may see some scopes only, and has their lines alone.
    """

    items: tuple[CloudEvent, ...]
    next: str
    more: bool
    filtered: bool


class FeedSchemas(Struct, frozen=True):
    """The names of all schemas: the types of the feed, without their prefix."""

    items: tuple[str, ...]


class FeedPosition(Struct, frozen=True):
    """How far a reader has come: the line that it had last. Without a generation, by number."""

    number: int
    generation: int | None = None

    def __str__(self) -> str:
        return str(self.number) if self.generation is None else f"{self.generation}-{self.number}"


_POSITION = re.compile(r"(?:([0-9]{1,16})-)?([0-9]{1,16})", re.ASCII)


def read_position(text: str) -> FeedPosition:
    """The position that a reader names: an id, or the number of a line. Raises Invalid."""
    found = _POSITION.fullmatch(text)
    if found is None:
        raise Invalid(
            f"{text[:64]!r} is no place in the feed.",
            "The id of a CloudEvent of the feed would be accepted, like 1-503, or the number of a"
            " line, like 503.",
        )
    return FeedPosition(int(found[2]), None if found[1] is None else int(found[1]))


def type_of(fact: Fact) -> str:
    """The `type` of a line."""
    return TYPE_PREFIX + _schema_of(fact)


def _schema_of(fact: Fact) -> str:
    of_operation = None if fact.event_id else OPERATION_TYPES.get(fact.kind)
    return of_operation or TYPES[fact.kind]


def subject_of(fact: Fact) -> str | None:
    """What a line is about, as the path of the thing; None for the service itself."""
    about = _schema_of(fact).partition(".")[0]
    if about == "vm" and fact.vm:
        return f"scopes/{fact.scope}/vms/{fact.vm}" if fact.scope else f"vms/{fact.vm}"
    if about == "scope" and fact.scope:
        return f"scopes/{fact.scope}"
    if about == "host" and fact.host:
        return f"hosts/{fact.host}"
    if fact.event_id and fact.scope:
        return f"scopes/{fact.scope}/events/{fact.event_id}"
    if fact.operation_id:
        return f"operations/{fact.operation_id}"
    return f"hosts/{fact.host}" if fact.host else None


def cloud_event(fact: Fact, number: int, *, generation: int, installation: str) -> CloudEvent:
    """The line of that number, as long as it is."""
    schema = _schema_of(fact)
    return CloudEvent(
        specversion=SPEC_VERSION,
        id=str(FeedPosition(number, generation)),
        source=f"/forewarn/{installation}",
        type=TYPE_PREFIX + schema,
        subject=subject_of(fact) or UNSET,
        time=needed_time_text(fact.at_ms),
        datacontenttype="application/json",
        dataschema=SCHEMA_PREFIX + schema if _has_schema(fact) else UNSET,
        sequence=f"{generation:0{GENERATION_DIGITS}}-{number:0{NUMBER_DIGITS}}",
        data=FeedData(
            kind=fact.kind,
            number=number,
            scope=fact.scope,
            event_id=fact.event_id,
            operation_id=fact.operation_id,
            host=fact.host,
            vm=fact.vm,
            by=_principal_of(fact),
            detail=detail_words(fact.detail),
        ),
    )


def _principal_of(fact: Fact) -> FeedPrincipal | None:
    if fact.by is None:
        return None
    return FeedPrincipal(name=fact.by, kind=fact.by_kind, id=fact.by_id)


def _has_schema(fact: Fact) -> bool:
    """False for what an earlier version wrote otherwise than this one."""
    if fact.detail is None:
        return not _says_something(fact.kind)
    return not isinstance(fact.detail, EarlierDetail)


@cache
def _says_something(kind: FactKind) -> bool:
    return any(field.required for field in msgspec.structs.fields(DETAILS[kind]))


def encoded(event: CloudEvent) -> bytes:
    """Its JSON, in one line, of at most EVENT_BYTES_MAX."""
    text = msgspec.json.encode(event)
    for items, characters in _SHORTER:
        if len(text) <= EVENT_BYTES_MAX:
            break
        detail = {key: _cut(value, items, characters) for key, value in event.data.detail.items()}
        data = msgspec.structs.replace(event.data, detail=detail, shortened=True)
        text = msgspec.json.encode(msgspec.structs.replace(event, data=data))
    if len(text) > EVENT_BYTES_MAX:
        data = msgspec.structs.replace(event.data, detail={}, shortened=True)
        text = msgspec.json.encode(msgspec.structs.replace(event, data=data, dataschema=UNSET))
    return text


def _cut(value: Any, items: int, characters: int) -> Any:
    """The value with shorter lists and texts."""
    if isinstance(value, str):
        return value if len(value) <= characters else f"{value[: characters - 3]}..."
    if isinstance(value, list):
        return [_cut(one, items, characters) for one in value[:items]]
    if isinstance(value, dict):
        first = list(value.items())[:items]
        return {key[:characters]: _cut(one, items, characters) for key, one in first}
    return value


# Schemas of `data`.


def schema_names() -> Iterator[str]:
    """The last part of each `dataschema`, in the order of the kinds."""
    for kind in FactKind:
        yield TYPES[kind]
        if kind in OPERATION_TYPES:
            yield OPERATION_TYPES[kind]


@cache
def schema(name: str) -> bytes | None:
    """The JSON Schema of the `data` of one type, or None if there is no such type."""
    kinds = (*TYPES.items(), *OPERATION_TYPES.items())
    kind = next((kind for kind, schema in kinds if schema == name), None)
    if kind is None:
        return None
    detail = DETAILS[kind]
    _, parts = msgspec.json.schema_components([FeedData, detail], ref_template="#/$defs/{name}")
    data: dict[str, Any] = dict(parts.pop("FeedData"))
    data["properties"]["detail"] = {"$ref": f"#/$defs/{detail.__name__}"}
    data["properties"]["kind"] = {"const": kind.value}
    for part in parts.values():
        part.pop("additionalProperties", None)  # later versions say more
    kinds = parts.pop("FactKind", None)
    if b"#/$defs/FactKind" in msgspec.json.encode([data, parts]):  # the detail names kinds itself
        parts["FactKind"] = kinds
    return msgspec.json.encode(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": SCHEMA_PREFIX + name,
            **data,
            "title": TYPE_PREFIX + name,
            "description": " ".join((detail.__doc__ or "").split()),
            "$defs": parts,
        }
    )
