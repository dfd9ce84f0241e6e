"""The kinds of faults: what each does, what it takes, and its limits. Nothing here does anything.

`KINDS` is the one table: the command line's help, the checks of an order and the reference in the
docs are made from it.
"""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus

from msgspec import Struct

from forewarn.core.model import SECOND_MS

# L2: the first answer may take up to two minutes; one minute was observed.
SLOW_FIRST_MS_MAX = 120 * SECOND_MS
SLOW_FIRST_MS_DEFAULT = 60 * SECOND_MS
STALL_MS_MAX = 600 * SECOND_MS
STALL_MS_DEFAULT = 30 * SECOND_MS
# E13: a 410 passes within 70 seconds; clients may give up after that.
GONE_FOR_MS_MAX = 70 * SECOND_MS
RETRY_AFTER_MS_MAX = 3_600 * SECOND_MS
SKIPPED_AT_ONCE_MAX = 1_000
SKIPPED_AT_ONCE_DEFAULT = 1
PER_SECOND_MAX = 1_000.0
PER_SECOND_DEFAULT = 5.0  # R1
COUNT_MAX = 1_000_000


class FaultKind(StrEnum):
    """What goes wrong."""

    SLOW_FIRST = "slow-first"
    GONE = "gone"
    THROTTLED = "throttled"
    ERROR = "error"
    UNAVAILABLE = "unavailable"
    EMPTY = "empty"
    CUT = "cut"
    RESET = "reset"
    STALL = "stall"
    SKIP = "skip"
    UNQUOTED_ETAG = "unquoted-etag"
    SHUFFLE = "shuffle"
    RATE_LIMIT = "rate-limit"


class Method(StrEnum):
    """Which requests a fault can be kept to."""

    GET = "GET"
    POST = "POST"


BOTH = (Method.GET, Method.POST)


class KindOfFault(Struct, frozen=True, kw_only=True):
    """One row of the table.

    `takes` are the words of its own, beyond the selectors that every kind has; `methods` those it
    can be kept to (none: it does not look at requests). `can_share`: it can hit a share of what it
    looks at. `status`: it answers with this and the request is not carried out.
    """

    kind: FaultKind
    sentence: str
    takes: tuple[str, ...] = ()
    methods: tuple[Method, ...] = BOTH
    can_share: bool = True
    status: HTTPStatus | None = None


_ROWS = (
    KindOfFault(
        kind=FaultKind.SLOW_FIRST,
        sentence="The first request of each VM is carried out and answered after `seconds`"
        " (60 s, at most 120 s).",
        takes=("seconds",),
    ),
    KindOfFault(
        kind=FaultKind.GONE,
        sentence="410 Gone, for at most 70 s (the default unless `count` or `for` is given);"
        " the request is not carried out.",
        status=HTTPStatus.GONE,
    ),
    KindOfFault(
        kind=FaultKind.THROTTLED,
        sentence="429 Too Many Requests, with Retry-After if `retry_after` is given; the request"
        " is not carried out.",
        takes=("retry_after",),
        status=HTTPStatus.TOO_MANY_REQUESTS,
    ),
    KindOfFault(
        kind=FaultKind.ERROR,
        sentence="500 Internal Server Error; the request is not carried out.",
        status=HTTPStatus.INTERNAL_SERVER_ERROR,
    ),
    KindOfFault(
        kind=FaultKind.UNAVAILABLE,
        sentence="503 Service Unavailable, with Retry-After if `retry_after` is given; the request"
        " is not carried out.",
        takes=("retry_after",),
        status=HTTPStatus.SERVICE_UNAVAILABLE,
    ),
    KindOfFault(
        kind=FaultKind.EMPTY,
        sentence="200 with an empty body and no ETag, at once; the GET is not carried out"
        " (the 200 of an approval has an empty body anyway).",
        methods=(Method.GET,),
    ),
    KindOfFault(
        kind=FaultKind.CUT,
        sentence="The request is carried out, an approval too; its answer breaks off in the middle"
        " of the body (of the head if it has no body) and the connection closes.",
    ),
    KindOfFault(
        kind=FaultKind.RESET,
        sentence="The request is carried out, an approval too; instead of an answer the connection"
        " is reset.",
    ),
    KindOfFault(
        kind=FaultKind.STALL,
        sentence="The request is carried out, an approval too; its answer stops in the middle for"
        " `seconds` (30 s, at most 600 s), then goes on.",
        takes=("seconds",),
    ),
    KindOfFault(
        kind=FaultKind.SKIP,
        sentence="Each further change of the document moves the incarnation by `by` (1) more than"
        " usual, for the whole scope; `count` and `share` are of changes, not requests.",
        takes=("by",),
        methods=(),
    ),
    KindOfFault(
        kind=FaultKind.SHUFFLE,
        sentence="The events of the document are in an order that is drawn anew for each GET, under"
        " the same incarnation and ETag.",
        methods=(Method.GET,),
    ),
    KindOfFault(
        kind=FaultKind.UNQUOTED_ETAG,
        sentence="The ETag of a 200 or 304 has no quotes, as on the real service.",
        methods=(Method.GET,),
    ),
    KindOfFault(
        kind=FaultKind.RATE_LIMIT,
        sentence="More than `per_second` (5) requests of a VM in a second are answered 429, as"
        " `serve` does; the emulator has no rate limit otherwise.",
        takes=("per_second",),
        methods=(),
        can_share=False,
    ),
)

KINDS: dict[FaultKind, KindOfFault] = {row.kind: row for row in _ROWS}

# How people may also write a kind: by its status.
BY_STATUS: dict[str, FaultKind] = {
    str(row.status.value): row.kind for row in _ROWS if row.status is not None
}
