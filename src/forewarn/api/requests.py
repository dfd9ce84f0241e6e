"""Reading requests: bodies with a limit and a deadline, and queries by their schema."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request

from forewarn.control.operator_overview import ITEMS_DEFAULT, ITEMS_MAX
from forewarn.core.attributes import TAG_NAME_CHARS_MAX, TAG_VALUE_CHARS_MAX
from forewarn.core.errors import Invalid
from forewarn.core.model import Cause, EventType, FactKind, OperationPhase, Phase
from forewarn.ports import ListFilter
from forewarn.wire.instants import parse_past

BODY_TIMEOUT_S = 20.0
FOLLOW_WAIT_S_MAX = 30
NAME_CHARS_MAX = 256
TAG_CHARS_MAX = TAG_NAME_CHARS_MAX + len("=") + TAG_VALUE_CHARS_MAX

Name = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
Limit = Annotated[int, Meta(ge=1, le=ITEMS_MAX)]


class NoQuery(Struct, forbid_unknown_fields=True):
    """Nothing can be asked for."""


class NamesQuery(Struct, forbid_unknown_fields=True):
    """Things by name: at most `limit` of them, those after `after`."""

    after: Name = ""
    limit: Limit = ITEMS_DEFAULT


class VmsQuery(Struct, forbid_unknown_fields=True):
    """VMs by name; of one scope, or on one host."""

    after: Name = ""
    limit: Limit = ITEMS_DEFAULT
    scope: Name = ""
    host: Name = ""


class FilterQuery(Struct, forbid_unknown_fields=True):
    """What events, operations and lines of the journal can be asked for by.

    `tag` is `key=value`; `by` ordered or approved it, or did what a line says; `since` and `until`
    are times with a zone, or how long ago (`-2h`).
    """

    scope: Name = ""
    host: Name = ""
    vm: Name = ""
    tag: Annotated[str, Meta(max_length=TAG_CHARS_MAX)] = ""
    type: EventType | None = None
    cause: Cause | None = None
    by: Name = ""
    since: Name = ""
    until: Name = ""


class EventsQuery(FilterQuery, forbid_unknown_fields=True):
    """Events, newest first; `all`, or a phase in which they have, includes those that have ended.

    `after` is what `next` of the page before says.
    """

    all: bool = False
    phase: Phase | None = None
    after: Name = ""
    limit: Limit = ITEMS_DEFAULT


class OperationsQuery(FilterQuery, forbid_unknown_fields=True):
    """Operations, newest first; `all`, or the phase `ended`, includes those that have ended.

    `after` is what `next` of the page before says.
    """

    all: bool = False
    phase: OperationPhase | None = None
    after: Name = ""
    limit: Limit = ITEMS_DEFAULT


class JournalQuery(FilterQuery, forbid_unknown_fields=True):
    """Lines after a number, oldest first.

    `type`, `phase` and `cause` are those of the event or operation that a line is about. With
    `wait`, if there is no line yet, the answer comes with the next one or after that many seconds.
    """

    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Limit = ITEMS_DEFAULT
    phase: Phase | None = None
    event: Name = ""
    kind: FactKind | None = None
    wait: Annotated[int, Meta(ge=0, le=FOLLOW_WAIT_S_MAX)] = 0


def list_filter(asked: EventsQuery | OperationsQuery | JournalQuery, now_ms: int) -> ListFilter:
    """What is listed. Raises Invalid for a tag without a value, or no time."""
    if asked.tag and "=" not in asked.tag:
        raise Invalid(f"The tag {asked.tag!r} has no value.", "KEY=VALUE would be accepted.")
    return ListFilter(
        scope=asked.scope or None,
        host=asked.host or None,
        vm=asked.vm or None,
        tag=asked.tag or None,
        event_type=asked.type,
        phase=asked.phase,
        cause=asked.cause,
        by=asked.by or None,
        since_ms=parse_past(asked.since, now_ms=now_ms) if asked.since else None,
        until_ms=parse_past(asked.until, now_ms=now_ms) if asked.until else None,
        kind=asked.kind if isinstance(asked, JournalQuery) else None,
    )


Query = TypeVar("Query", bound=Struct)


def read_query(request: Request, kind: type[Query]) -> Query:
    """The query as `kind`. Raises Invalid for unknown, repeated and impossible parameters."""
    pairs = request.query_params.multi_items()
    given = dict(pairs)
    accepted = ", ".join(kind.__struct_fields__)
    accepted = f"Accepted here: {accepted}, each once." if accepted else "There are none here."
    if len(given) != len(pairs):
        raise Invalid("A query parameter is given more than once.", accepted)
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        wrong = re.search(r"\$\.(\w+)", str(error))
        words = _words_of(kind, wrong[1]) if wrong else ()
        if wrong and words:
            accepted = f"Accepted as `{wrong[1]}`: {', '.join(words)}."
        raise Invalid(f"The query was not understood: {error}.", accepted) from None


def _words_of(kind: type[Struct], name: str) -> Sequence[str]:
    """The words that a parameter takes, if only some are taken."""
    hint = get_type_hints(kind).get(name)
    enums = (one for one in get_args(hint) if isinstance(one, type) and issubclass(one, StrEnum))
    return [word.value for enum in enums for word in enum]


async def read_body(
    request: Request, *, bytes_max: int, timeout_s: float = BODY_TIMEOUT_S
) -> bytes:
    """The whole body. Answers 413 for one that is too long and 408 for one that is too slow."""
    too_long = HTTPException(413, f"A body of at most {bytes_max} bytes is accepted.")
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > bytes_max:
        raise too_long
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > bytes_max:
                    raise too_long
    except TimeoutError:
        raise HTTPException(
            408, f"The body did not arrive within {timeout_s:.0f} seconds."
        ) from None
    return bytes(body)
