"""What a request asks for: refusals first, then the few things there are to ask.

`route` looks at the head alone and is a function of it, so its result may be kept and used again
for equal bytes. Who asks, how often, and whether the document is new is not decided here.
"""

from __future__ import annotations

from enum import Enum, auto
from http import HTTPStatus
from typing import Literal
from urllib.parse import parse_qsl, unquote

from msgspec import Struct, field

from forewarn.core.errors import Refusal
from forewarn.endpoint import answers, browsers_and_proxies
from forewarn.endpoint.http_parser import Head
from forewarn.endpoint.registry import Guest
from forewarn.wire import documents, instance, problems
from forewarn.wire.api_versions import API_VERSIONS, INSTANCE_NEWEST_THREE, INSTANCE_VERSIONS
from forewarn.wire.problems import GuestProblem

MetadataHeader = Literal["as-documented", "always", "lenient"]

REFUSAL_CHARS_MAX = 500
# A longer wait than this is read as this; the endpoint's own limit is below it.
_WAIT_DIGITS_MAX = 6


class Ask(Enum):
    """What a request wants."""

    POLL = auto()
    APPROVE = auto()
    VERSIONS = auto()
    INSTANCE = auto()
    NOTHING = auto()  # it is refused; `problem` says why


class RequestRules(Struct, frozen=True, kw_only=True):
    """What the operator decides about requests. `guest_names` are as in `browsers_and_proxies`."""

    metadata_header: MetadataHeader = "as-documented"
    guest_names: frozenset[str] = field(default_factory=frozenset)


class Request(Struct, frozen=True, kw_only=True):
    """A routed head. `tags` are those of If-None-Match, without quotes; None if it has none."""

    ask: Ask
    close: bool
    version: str = ""
    tags: frozenset[str] | None = None
    any_tag: bool = False
    wait_s: int = 0
    path: tuple[str, ...] = ()
    text: bool = False
    problem: GuestProblem | None = None
    without_body: bool = False


_UNROUTED = {
    (close, without_body): Request(ask=Ask.NOTHING, close=close, without_body=without_body)
    for close in (False, True)
    for without_body in (False, True)
}


def unrouted(head: Head) -> Request:
    """How to answer a head that is refused whatever it asks for."""
    return _UNROUTED[not head.keep_alive, head.method == "HEAD"]


def route(head: Head, rules: RequestRules) -> Request:
    """What this head asks for; never raises."""
    close = not head.keep_alive
    try:
        return _route(head, rules, close=close)
    except GuestProblem as problem:
        return Request(
            ask=Ask.NOTHING, close=close, problem=problem, without_body=head.method == "HEAD"
        )


def _route(head: Head, rules: RequestRules, *, close: bool) -> Request:
    browsers_and_proxies.refuse(head, rules.guest_names)
    path, query = _split(head.target)
    match path:
        case ("metadata", "scheduledevents"):
            _allow(head, "GET", "POST")
            version = _version(query, tuple(API_VERSIONS))
            if _wants_metadata(head.method, version, rules.metadata_header):
                _require_metadata(head)
            if head.method == "POST":
                return Request(ask=Ask.APPROVE, close=close, version=version)
            tags = _tags(head.headers.get("if-none-match"))
            return Request(
                ask=Ask.POLL,
                close=close,
                version=version,
                tags=tags,
                any_tag=tags is not None and "*" in tags,
                wait_s=_wait_s(head.headers.get("prefer", "")),
            )
        case ("metadata", "versions"):
            _allow(head, "GET")
            _query(query)
            _require_metadata(head)
            return Request(ask=Ask.VERSIONS, close=close)
        case ("metadata", "instance", *rest):
            _allow(head, "GET")
            version = _version(query, INSTANCE_VERSIONS, INSTANCE_NEWEST_THREE)
            _require_metadata(head)
            text = _query(query).get("format", "").lower() == "text"
            element = tuple(rest)
            return Request(ask=Ask.INSTANCE, close=close, version=version, path=element, text=text)
    raise problems.unknown_path()


def route_path(head: Head) -> tuple[str, ...]:
    """The elements of the path that a head asks for; none if it cannot be read."""
    try:
        return tuple(element.lower() for element in _split(head.target)[0])
    except GuestProblem:
        return ()


def metadata_query(head: Head, rules: RequestRules, versions: tuple[str, ...]) -> dict[str, str]:
    """The query of a GET that must have the header and one of these api-versions.

    Raises GuestProblem, also for what a web page may have sent.
    """
    browsers_and_proxies.refuse(head, rules.guest_names)
    _allow(head, "GET")
    _, query = _split(head.target)
    _version(query, versions)
    _require_metadata(head)
    return _query(query)


def respond(
    request: Request, guest: Guest, place: instance.ResourceLocation
) -> tuple[bytes, bytes]:
    """Content-Type and body for VERSIONS and INSTANCE. GuestProblem for an unknown element."""
    if request.ask is Ask.VERSIONS:
        return answers.JSON, documents.VERSIONS_BODY
    tree = instance.instance_tree(guest.vm, guest.page.scope, place, request.version)
    body = instance.select(tree, request.path, text=request.text)
    return answers.TEXT if request.text else answers.JSON, body


def refused(refusal: Refusal) -> GuestProblem:
    """A refusal by the rules, for a guest; cut, because it may quote what the guest sent."""
    status = HTTPStatus(problems.status_of(refusal))
    return GuestProblem(status, refusal.code, f"Bad request. {refusal}"[:REFUSAL_CHARS_MAX])


def _split(target: str) -> tuple[tuple[str, ...], str]:
    """Path elements and query. The path of fixed names is compared without case (P3)."""
    # The absolute form is one that a server has to accept (RFC 9112, 3.2.2).
    _, target = browsers_and_proxies.split_target(target)
    path, _, query = target.partition("#")[0].partition("?")
    if not path.startswith("/"):
        raise problems.unknown_path()
    elements = [unquote(element) for element in path[1:].split("/")]
    if elements and not elements[-1]:
        elements.pop()  # a trailing slash is accepted (P4)
    fixed = (element.lower() for element in elements[:2])
    return (*fixed, *elements[2:]), query


def _allow(head: Head, *methods: str) -> None:
    if head.method not in methods:
        raise problems.wrong_verb(", ".join(methods))


def _query(query: str) -> dict[str, str]:
    """The parameters by lower-case name; a repeated one is refused (Q5)."""
    parameters: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name.lower() in parameters:
            raise problems.repeated_parameter(name)
        parameters[name.lower()] = value
    return parameters


def _version(query: str, known: tuple[str, ...], newest: tuple[str, ...] | None = None) -> str:
    version = _query(query).get("api-version", "").strip()
    if not version:
        raise problems.missing_api_version(*(() if newest is None else (newest,)))
    if version not in known:
        raise problems.unknown_api_version(*(() if newest is None else (newest,)))
    return version


def _wants_metadata(method: str, version: str, setting: MetadataHeader) -> bool:
    """Lenient: published samples approve without the header at versions that ask for it (H1)."""
    if setting == "lenient" and method == "POST":
        return False
    return setting == "always" or API_VERSIONS[version].header_required


def _require_metadata(head: Head) -> None:
    """`true` in any case (H3); a proxy or a library that says it twice is fine."""
    values = head.headers.get("metadata", "").split(",")
    if any(value.strip().lower() != "true" for value in values):
        raise problems.missing_metadata_header()


def _tags(header: str | None) -> frozenset[str] | None:
    """If-None-Match quoted, bare or weak, one or several: clients send all of these (H7)."""
    if header is None:
        return None
    return frozenset(
        tag.strip().removeprefix("W/").strip('"') for tag in header.split(",") if tag.strip()
    )


def _wait_s(header: str) -> int:
    """Seconds of `Prefer: wait=N` (RFC 7240), 0 if there is none that makes sense."""
    for preference in header.split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() != "wait":
            continue
        digits = value.strip().strip('"')
        if digits.isascii() and digits.isdigit():
            return int(digits[:_WAIT_DIGITS_MAX])
    return 0
