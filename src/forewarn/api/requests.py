"""Reading requests: bodies with a limit and a deadline, and queries by their schema."""

from __future__ import annotations

import asyncio
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request

from forewarn.control.overview import ITEMS_DEFAULT, ITEMS_MAX
from forewarn.core.errors import Invalid

BODY_TIMEOUT_S = 20.0
FOLLOW_WAIT_S_MAX = 30
NAME_CHARS_MAX = 256

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


class EventsQuery(Struct, forbid_unknown_fields=True):
    """Events, newest first; `all` includes those that have ended."""

    all: bool = False
    scope: Name = ""
    limit: Limit = ITEMS_DEFAULT


class OperationsQuery(Struct, forbid_unknown_fields=True):
    """Operations, newest first; `all` includes those that have ended."""

    all: bool = False
    limit: Limit = ITEMS_DEFAULT


class JournalQuery(Struct, forbid_unknown_fields=True):
    """Lines after a number, oldest first.

    With `wait`, if there is none yet, the answer comes with the next one or after that many
    seconds.
    """

    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Limit = ITEMS_DEFAULT
    scope: Name = ""
    event: Name = ""
    wait: Annotated[int, Meta(ge=0, le=FOLLOW_WAIT_S_MAX)] = 0


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
        raise Invalid(f"The query was not understood: {error}.", accepted) from None


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
