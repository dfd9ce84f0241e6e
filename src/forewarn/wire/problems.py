"""Every refusal as it looks on the wire: status, body, headers. The one place for status codes.

The guest side has the error object of the real service (contract 2.1). The operator side has
RFC 9457 `application/problem+json`. Nothing here decides that something is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from forewarn.core import errors
from forewarn.wire.api_versions import NEWEST_THREE

# What a refusal quotes of a request is cut to these, so that a refusal is always small.
QUOTED_CHARS_MAX = 64

UNKNOWN_CALLER = "unknown-caller"  # no VM is known at its address
RATE_LIMIT = "rate-limit"  # the reason that is given most often
# Every reason for which a request of a guest is refused, for metrics. Beside those of this module,
# the endpoint cuts connections, and cannot enable a scope.
REFUSAL_REASONS = (
    "blank-lines",
    "body-too-large",
    "broken-http",
    "connects",
    "enable-unavailable",
    "forwarded",
    "head-too-large",
    "leaf-without-text",
    "malformed-body",
    "no-api-version",
    "no-metadata-header",
    "not-one-host",
    RATE_LIMIT,
    "repeated-parameter",
    "request-timeout",
    "too-many-chunks",
    "too-many-start-requests",
    "tree-as-text",
    "unavailable",
    "unknown-api-version",
    UNKNOWN_CALLER,
    "unknown-element",
    "unknown-host",
    "unknown-path",
    "unsupported-expectation",
    "web-page",
    "wrong-verb",
)

PROBLEM_CONTENT_TYPE = "application/problem+json"

_ACCEPTED_BODY = 'a body like {"StartRequests":[{"EventId":"<id from the document>"}]}'


class GuestProblem(Exception):  # noqa: N818 - an answer, not an error
    """A request of a guest was refused and nothing was changed.

    `reason` is a short, stable label for metrics. `body` is the JSON error object. `headers` are
    those this refusal needs beyond the usual ones.
    """

    def __init__(
        self,
        status: HTTPStatus,
        reason: str,
        error: str,
        *,
        newest_versions: Sequence[str] = (),
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(f"{status.value} {reason}: {error}")
        self.status = status.value
        self.reason = reason
        self.headers = headers
        content: dict[str, object] = {"error": error}
        if newest_versions:
            content["newest-versions"] = list(newest_versions)
        self.body: bytes = msgspec.json.encode(content)


def missing_api_version(newest: Sequence[str] = NEWEST_THREE) -> GuestProblem:
    return GuestProblem(
        HTTPStatus.BAD_REQUEST,
        "no-api-version",
        # The documented words (E2).
        "Bad request. api-version is invalid or was not specified in the request."
        " For more information refer to aka.ms/azureimds",
        newest_versions=newest,
    )


def unknown_api_version(newest: Sequence[str] = NEWEST_THREE) -> GuestProblem:
    return GuestProblem(
        HTTPStatus.NOT_FOUND,  # clients probe a version and fall back on 404 (E3)
        "unknown-api-version",
        "Not found. Invalid version requested",  # E4
        newest_versions=newest,
    )


def repeated_parameter(name: str) -> GuestProblem:
    return GuestProblem(
        HTTPStatus.BAD_REQUEST,  # E9
        "repeated-parameter",
        f"Bad request. The query parameter {_quoted(name)} is given more than once;"
        " each may be given once",
    )


def missing_metadata_header() -> GuestProblem:
    return GuestProblem(
        HTTPStatus.BAD_REQUEST,
        "no-metadata-header",
        # The words as observed since 2022, odd colon included (E1).
        "Bad request: . Required metadata header not specified",
    )


def forwarded(header: str) -> GuestProblem:
    """`header` is one that proxies add."""
    return GuestProblem(
        HTTPStatus.BAD_REQUEST,  # E8, H4
        "forwarded",
        f"Bad request. The header {header} is refused; ask directly, without a proxy",
    )


def web_page(header: str) -> GuestProblem:
    """`header` is one that a browser adds for a page."""
    return GuestProblem(
        HTTPStatus.BAD_REQUEST,
        "web-page",
        f"Bad request. The header {header} says that a web page asks, and web pages are refused;"
        " ask with a program that does not send it",
    )


def not_one_host(count: int) -> GuestProblem:
    return GuestProblem(
        HTTPStatus.BAD_REQUEST,  # RFC 9112, 3.2
        "not-one-host",
        f"Bad request. The request has {count or 'no'} Host header{'s' if count else ''};"
        " exactly one is accepted",
    )


def unknown_host(host: str) -> GuestProblem:
    """The name may be that of a web site which leads here for a while (DNS rebinding)."""
    return GuestProblem(
        HTTPStatus.BAD_REQUEST,
        "unknown-host",
        f"Bad request. The Host {_quoted(host)} is refused. An IP address, localhost, a name"
        " without a dot, and the names in the setting guest_names are accepted",
    )


def unknown_path() -> GuestProblem:
    return GuestProblem(
        HTTPStatus.NOT_FOUND,  # E12
        "unknown-path",
        "Not found. There are /metadata/scheduledevents, /metadata/instance and /metadata/versions",
    )


def wrong_verb(allow: str) -> GuestProblem:
    """`allow` is the value of the Allow header, for instance "GET, POST"."""
    return GuestProblem(
        HTTPStatus.METHOD_NOT_ALLOWED,  # E11
        "wrong-verb",
        f"Method not allowed. Allowed here: {allow}",
        headers=(("Allow", allow),),
    )


def malformed_body(what: str) -> GuestProblem:
    return GuestProblem(
        HTTPStatus.BAD_REQUEST,  # A5, E16
        "malformed-body",
        f"Bad request. The body was not understood: {_cut(what, 200)}."
        f" What would be accepted: {_ACCEPTED_BODY}",
    )


def too_many_start_requests(count: int, limit: int) -> GuestProblem:
    return GuestProblem(
        HTTPStatus.BAD_REQUEST,
        "too-many-start-requests",
        f"Bad request. {count} StartRequests in one body; at most {limit} are accepted",
    )


def blank_lines(limit_bytes: int) -> GuestProblem:
    return GuestProblem(
        HTTPStatus.BAD_REQUEST,
        "blank-lines",
        f"Bad request. At most {limit_bytes} bytes of empty lines are accepted before a request",
    )


def body_too_large(limit_bytes: int) -> GuestProblem:
    return GuestProblem(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "body-too-large",
        f"Payload too large. A body of at most {limit_bytes} bytes is accepted",
    )


def too_many_chunks(limit: int) -> GuestProblem:
    return GuestProblem(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "too-many-chunks",
        f"Payload too large. A body in at most {limit} chunks is accepted",
    )


def head_too_large(limit_bytes: int) -> GuestProblem:
    """The request line and headers together are beyond the limit."""
    return GuestProblem(
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        "head-too-large",
        f"Request header fields too large. At most {limit_bytes} bytes of request line and"
        " headers are accepted",
    )


def broken_http() -> GuestProblem:
    return GuestProblem(
        HTTPStatus.BAD_REQUEST,
        "broken-http",
        "Bad request. This is not HTTP/1.1; a plain GET or POST would be accepted",
    )


def unsupported_expectation() -> GuestProblem:
    return GuestProblem(
        HTTPStatus.EXPECTATION_FAILED,
        "unsupported-expectation",
        "Expectation failed. Only Expect: 100-continue is accepted",
    )


def unknown_caller() -> GuestProblem:
    """The caller is no VM of ours. It learns nothing, not even what would be accepted."""
    return GuestProblem(HTTPStatus.FORBIDDEN, UNKNOWN_CALLER, "Forbidden")


def too_many_requests(retry_after_s: int) -> GuestProblem:
    return GuestProblem(
        HTTPStatus.TOO_MANY_REQUESTS,  # E10
        RATE_LIMIT,
        f"Too many requests. Ask again in {retry_after_s} s; once per second is enough",
        headers=(("Retry-After", str(retry_after_s)),),
    )


def unavailable(retry_after_s: int) -> GuestProblem:
    """Nothing is wrong with the request, but it could not be served or made durable now."""
    return GuestProblem(
        HTTPStatus.SERVICE_UNAVAILABLE,  # E15
        "unavailable",
        f"Service unavailable. Nothing was changed; ask again in {retry_after_s} s",
        headers=(("Retry-After", str(retry_after_s)),),
    )


def request_timeout() -> GuestProblem:
    return GuestProblem(
        HTTPStatus.REQUEST_TIMEOUT,
        "request-timeout",
        "Request timeout. The request did not arrive whole in time; nothing was changed",
    )


def leaf_without_text() -> GuestProblem:
    return GuestProblem(
        HTTPStatus.BAD_REQUEST,
        "leaf-without-text",
        # The real service says only "Bad request" (E6), and its users ask why (contract 8, row 15).
        "Bad request. This element is a single value: add format=text to the query",
    )


def tree_as_text() -> GuestProblem:
    return GuestProblem(
        HTTPStatus.BAD_REQUEST,
        "tree-as-text",
        "Bad request. This element is not a single value: format=text is accepted for single"
        " values only; leave it out, or use format=json",
    )


def unknown_element(name: str) -> GuestProblem:
    return GuestProblem(
        HTTPStatus.NOT_FOUND,  # E12
        "unknown-element",
        f"Not found. There is no element {_quoted(name)} here at this api-version",
    )


# The most specific class decides; a class that is absent has the status of its parent.
_STATUS_OF_REFUSAL: dict[type[Exception], HTTPStatus] = {
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.Invalid: HTTPStatus.BAD_REQUEST,
    errors.Conflict: HTTPStatus.CONFLICT,
    # What the Idempotency-Key draft of the IETF asks for when a key comes back with other words.
    errors.IdempotencyMismatch: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.Forbidden: HTTPStatus.FORBIDDEN,
    errors.BadToken: HTTPStatus.UNAUTHORIZED,
    errors.FeedGone: HTTPStatus.GONE,
    errors.TokenEnded: HTTPStatus.UNAUTHORIZED,
    errors.Refusal: HTTPStatus.BAD_REQUEST,
    errors.Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}


def status_of(refusal: errors.Refusal | errors.Unavailable) -> int:
    """The status code the operator API answers a refusal with."""
    return next(
        _STATUS_OF_REFUSAL[kind] for kind in type(refusal).__mro__ if kind in _STATUS_OF_REFUSAL
    ).value


def problem_json(refusal: errors.Refusal | errors.Unavailable, status: int) -> dict[str, object]:
    """The members of an RFC 9457 problem: what was refused (detail), what would help (remedy)."""
    if isinstance(refusal, errors.Unavailable):
        return problem("unavailable", status, str(refusal), "Try again later.")
    found = problem(refusal.code, status, refusal.refused, refusal.accepted)
    if isinstance(refusal, errors.FeedGone):
        found |= {"begin": refusal.begin, "oldest": refusal.oldest}
    return found


def problem(code: str, status: int, detail: str, remedy: str = "") -> dict[str, object]:
    """A problem that is no refusal of a rule, such as a missing token or an unknown path."""
    return {
        "type": f"urn:forewarn:problem:{code}",
        "title": code.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail,
        "code": code,
        "remedy": remedy,
    }


def asked_in_plain_http() -> dict[str, object]:
    """A caller speaks HTTP to a port of the operator API where TLS is spoken."""
    return problem(
        "plain-http",
        HTTPStatus.BAD_REQUEST.value,
        "This port speaks HTTPS, and was asked in plain HTTP.",
        "Begin the URL with https://. A token that was sent has crossed the network in the clear:"
        " make a new one if others could read it.",
    )


def _cut(text: str, limit_chars: int) -> str:
    return text if len(text) <= limit_chars else text[: limit_chars - 3] + "..."


def _quoted(text: str) -> str:
    # What cannot be written in ASCII is escaped: a request may hold text that has no UTF-8 form.
    ascii_text = text.encode("ascii", "backslashreplace").decode("ascii")
    return f"'{_cut(ascii_text, QUOTED_CHARS_MAX)}'"
