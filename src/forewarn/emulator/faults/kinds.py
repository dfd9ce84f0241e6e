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
LATENCY_MS_DEFAULT = 1 * SECOND_MS
# G10: a document appeared about a minute after what it tells.
LATE_DOCUMENT_MS_DEFAULT = 60 * SECOND_MS
LATE_DOCUMENT_MS_MAX = 3_600 * SECOND_MS
SLOW_ACTION_MS_DEFAULT = 60 * SECOND_MS
SLOW_ACTION_MS_MAX = 86_400 * SECOND_MS
DOCUMENT_CHARS_MAX = 256 * 1024
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
    LATENCY = "latency"
    LATE = "late"
    ERROR_AFTER = "error-after"
    HTML = "html"
    MALFORMED = "malformed"
    REPLAY = "replay"
    NEVER_STARTED = "never-started"
    START_OVER = "start-over"
    LATE_DOCUMENT = "late-document"
    NO_LISTENER = "no-listener"
    ACTION_FAILS = "action-fails"
    ACTION_HANGS = "action-hangs"
    ACTION_SLOW = "action-slow"


class Method(StrEnum):
    """Which requests a fault can be kept to."""

    GET = "GET"
    POST = "POST"


BOTH = (Method.GET, Method.POST)


class KindOfFault(Struct, frozen=True, kw_only=True):
    """One row of the table.

    `takes` are the words of its own, beyond the selectors that every kind has; `methods` those it
    can be kept to (none: it does not look at requests). `can_share`: it can hit a share of what it
    looks at, `can_count` that it is over after some hits. `status`: it answers with this and the
    request is not carried out. `delay_ms` is what `seconds` is unless it is said, and at most.
    """

    kind: FaultKind
    sentence: str
    takes: tuple[str, ...] = ()
    methods: tuple[Method, ...] = BOTH
    can_share: bool = True
    can_count: bool = True
    delay_ms: tuple[int, int] | None = None
    needs: tuple[str, ...] = ()
    status: HTTPStatus | None = None


_ROWS = (
    KindOfFault(
        kind=FaultKind.SLOW_FIRST,
        sentence="The first request of each VM is carried out and answered after `seconds`"
        " (60 s, at most 120 s).",
        takes=("seconds",),
        delay_ms=(SLOW_FIRST_MS_DEFAULT, SLOW_FIRST_MS_MAX),
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
        delay_ms=(STALL_MS_DEFAULT, STALL_MS_MAX),
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
    KindOfFault(
        kind=FaultKind.LATENCY,
        sentence="Every request is taken up after `seconds` (1 s, at most 600 s), then carried out"
        " and answered.",
        takes=("seconds",),
        delay_ms=(LATENCY_MS_DEFAULT, STALL_MS_MAX),
    ),
    KindOfFault(
        kind=FaultKind.LATE,
        sentence="The request is carried out at once, an approval too; its whole answer comes after"
        " `seconds` (30 s, at most 600 s).",
        takes=("seconds",),
        delay_ms=(STALL_MS_DEFAULT, STALL_MS_MAX),
    ),
    KindOfFault(
        kind=FaultKind.ERROR_AFTER,
        sentence="The request is carried out, an approval too; then the answer is 500 Internal"
        " Server Error.",
    ),
    KindOfFault(
        kind=FaultKind.HTML,
        sentence="200 with a page of HTML, as a proxy gives it; the GET is not carried out.",
        methods=(Method.GET,),
    ),
    KindOfFault(
        kind=FaultKind.MALFORMED,
        sentence="200 with whole HTTP around JSON that ends in the middle; the GET is not carried"
        " out.",
        methods=(Method.GET,),
    ),
    KindOfFault(
        kind=FaultKind.REPLAY,
        sentence="Polls are answered with `document`, a document that was captured elsewhere; they"
        " are not carried out.",
        takes=("document",),
        needs=("document",),
        methods=(Method.GET,),
    ),
    KindOfFault(
        kind=FaultKind.NEVER_STARTED,
        sentence="An event that starts leaves the document of its whole scope at once: no guest"
        " reads it Started; `count` is of events.",
        methods=(),
        can_share=False,
    ),
    KindOfFault(
        kind=FaultKind.START_OVER,
        sentence="The next change of the document has the incarnation 1, for the whole scope, as"
        " after the service was off (L6); `count` and `share` are of changes.",
        methods=(),
    ),
    KindOfFault(
        kind=FaultKind.LATE_DOCUMENT,
        sentence="A change of the document is shown to its whole scope `seconds` (60 s, at most"
        " 1 h) late on the emulator's clock (G10); what the change tells happens in time.",
        takes=("seconds",),
        methods=(),
        can_share=False,
        can_count=False,
        delay_ms=(LATE_DOCUMENT_MS_DEFAULT, LATE_DOCUMENT_MS_MAX),
    ),
    KindOfFault(
        kind=FaultKind.NO_LISTENER,
        sentence="There is no listener: connections of the VM are closed, and new ones refused.",
        methods=(),
        can_share=False,
        can_count=False,
    ),
    KindOfFault(
        kind=FaultKind.ACTION_FAILS,
        sentence="What a host does to the VM fails when its time is over, and so does the event;"
        " `count` and `share` are of actions.",
        methods=(),
    ),
    KindOfFault(
        kind=FaultKind.ACTION_HANGS,
        sentence="What a host does to the VM never ends: the event stays Started until it is given"
        " up; `count` and `share` are of actions.",
        methods=(),
    ),
    KindOfFault(
        kind=FaultKind.ACTION_SLOW,
        sentence="What a host does to the VM takes `seconds` (60 s, at most 1 day) longer on the"
        " emulator's clock; `count` and `share` are of actions.",
        takes=("seconds",),
        methods=(),
        delay_ms=(SLOW_ACTION_MS_DEFAULT, SLOW_ACTION_MS_MAX),
    ),
)

KINDS: dict[FaultKind, KindOfFault] = {row.kind: row for row in _ROWS}

# How people may also write a kind: by its status.
BY_STATUS: dict[str, FaultKind] = {
    str(row.status.value): row.kind for row in _ROWS if row.status is not None
}
