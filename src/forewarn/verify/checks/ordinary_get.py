"""Checks of the answer to an ordinary GET, and of the requests that must get one."""

from __future__ import annotations

from itertools import pairwise

from forewarn.verify.check import Failed, Topic, expect
from forewarn.verify.documents import NEWEST, read
from forewarn.verify.probe import PATH, Probe, path_of
from forewarn.verify.timestamps import read_rfc_1123

TOPIC = Topic("answer", "The answer to a GET", needs=("get-200",))
ROOT = Topic("answer", TOPIC.title)

# Client time-outs in the wild start here (contract 10).
FAST_S = 2.0
LOOKS = 5


@ROOT.check(
    "get-200",
    "A GET of the document is answered 200 with a document.",
    "G1",
    not_checked="One GET; an endpoint that fails now and then, or answers 429 first, is not "
    "found out.",
)
def get_200(probe: Probe) -> None:
    probe.document()


@TOPIC.check(
    "get-fast",
    "A GET is answered within two seconds.",
    "contract 10",
    not_checked="One GET, connecting not counted; a slow answer under load or to a long document "
    "is not seen.",
)
def get_fast(probe: Probe) -> None:
    answer = probe.poll()
    expect(answer.took_s <= FAST_S, f"{answer.took_s:.1f} s", f"at most {FAST_S:g} s")


@TOPIC.check(
    "get-http11",
    "The status line says HTTP/1.1.",
    "RFC 9112, 2.3",
    not_checked="One answer to a GET; the status lines of refusals and of POSTs are not looked at.",
)
def get_http11(probe: Probe) -> None:
    answer = probe.poll()
    expect(answer.protocol == "HTTP/1.1", answer.protocol, "HTTP/1.1")


@TOPIC.check(
    "get-content-type",
    "The document is application/json, with charset utf-8 or without one.",
    "G2",
    not_checked="One document at the newest api-version; the others are for document-type.",
)
def get_content_type(probe: Probe) -> None:
    value = probe.poll().header("Content-Type") or ""
    expect(is_json(value), f"Content-Type: {value}", "application/json; charset=utf-8")


def is_json(content_type: str) -> bool:
    """The value of a Content-Type header names JSON, as clients take it."""
    kind, _, charset = content_type.lower().partition(";")
    accepted = ("", "charset=utf-8", 'charset="utf-8"')  # RFC 9110, 8.3.2: the same in quotes
    return kind.strip() == "application/json" and charset.strip() in accepted


@TOPIC.check(
    "get-content-length",
    "The answer says how long its body is.",
    "G3",
    not_checked="Surplus bytes that come later than 20 ms after the body are not seen.",
)
def get_content_length(probe: Probe) -> None:
    probe.turn()
    with probe.connection() as connection:
        connection.send(probe.request("GET", path_of(NEWEST)))
        answer = connection.answer()
        expect(answer.by_length, answer.headers, "a Content-Length header")
        expect(connection.quiet_for(0.02), "more bytes after the body", "none")


@TOPIC.check(
    "get-date",
    "The answer has a Date, the time of the endpoint, in RFC 1123 form.",
    "G3",
    not_checked="The form alone; a clock that is wrong or stands still passes.",
)
def get_date(probe: Probe) -> None:
    value = probe.poll().header("Date")
    expect(
        read_rfc_1123(value or "") is not None,
        f"Date: {value}",
        "a date like Mon, 19 Sep 2016 18:29:47 GMT",
    )


@TOPIC.check(
    "get-http10",
    "A GET of HTTP/1.0 is answered, and the connection ends.",
    "contract 10",
    not_checked="It sends a Host header; HTTP/1.0 without one, or with keep-alive, is not tried.",
)
def get_http10(probe: Probe) -> None:
    probe.turn()
    with probe.connection() as connection:
        connection.send(probe.request("GET", path_of(NEWEST), protocol="HTTP/1.0"))
        read(connection.answer(), NEWEST)
        ended = connection.ends(probe.options.timeout_s)
        expect(ended, "the connection stays open", "its end: HTTP/1.0 did not ask to keep it")


@TOPIC.check(
    "get-odd-headers",
    "Unknown headers, an empty one, and a Content-Length of 0 do not disturb a GET.",
    "H6, H8, contract 10",
    not_checked="Four headers in one request; very many, very long or repeated ones are not tried.",
)
def get_odd_headers(probe: Probe) -> None:
    answer = probe.poll("te:", "x-unknown: 1", "content-length: 0", "Accept: text/html")
    read(answer, NEWEST)


@TOPIC.check(
    "get-with-json-type",
    "A Content-Type on a GET is tolerated.",
    "H6",
    not_checked="One type and no body; other types, and a GET that has a body, are not tried.",
)
def get_with_json_type(probe: Probe) -> None:
    read(probe.poll("Content-Type: application/json"), NEWEST)


@TOPIC.check(
    "header-name-case",
    "The name of the Metadata header has no case.",
    "H3",
    not_checked="One other spelling, all in lower case; METADATA is not tried.",
)
def header_name_case(probe: Probe) -> None:
    read(probe.poll("metadata: true", metadata=False), NEWEST)


@TOPIC.check(
    "header-value-case",
    "`Metadata: True` is as good as `true`.",
    "H3",
    not_checked="One other spelling; TRUE, and blanks around the value, are not tried.",
)
def header_value_case(probe: Probe) -> None:
    read(probe.poll("Metadata: True", metadata=False), NEWEST)


@TOPIC.check(
    "query-extra",
    "Other query parameters are ignored, before and after api-version.",
    "Q6, contract 10",
    not_checked="One harmless parameter; escaped, empty or very many parameters are not tried.",
)
def query_extra(probe: Probe) -> None:
    for query in (f"api-version={NEWEST}&format=json", f"format=json&api-version={NEWEST}"):
        read(probe.get(f"{PATH}?{query}"), NEWEST)


@TOPIC.check(
    "path-case",
    "The path has no case: /metadata/scheduledEvents is the same.",
    "P3 (a sample calls it so; not otherwise known)",
    not_checked="One other spelling on a GET; other spellings, and POSTs to them, are not tried.",
    choice=True,
)
def path_case(probe: Probe) -> None:
    read(probe.get(f"/metadata/scheduledEvents?api-version={NEWEST}"), NEWEST)


@TOPIC.check(
    "path-slash",
    "A slash at the end of the path is accepted.",
    "P4 (unknown there)",
    not_checked="One slash on a GET; several slashes, and a POST to such a path, are not tried.",
    choice=True,
)
def path_slash(probe: Probe) -> None:
    read(probe.get(f"{PATH}/?api-version={NEWEST}"), NEWEST)


@TOPIC.check(
    "get-no-extension",
    "The document has the keys of the contract and no other.",
    "contract 1.5",
    not_checked="The top of one document at the newest api-version; more keys at older ones are "
    "not seen.",
)
def get_no_extension(probe: Probe) -> None:
    keys = list(probe.document().content)
    if sorted(keys) != ["DocumentIncarnation", "Events"]:
        raise Failed(keys, "DocumentIncarnation and Events")


@TOPIC.check(
    "get-incarnation-stands",
    "The incarnation stands still while the events do, however often the document is read.",
    "S3, contract 10",
    not_checked="Five GETs in a row; a number that moves once in a while without a change is not "
    "seen.",
)
def get_incarnation_stands(probe: Probe) -> None:
    looks = [probe.document() for _ in range(LOOKS)]
    pairs = list(pairwise(looks))
    moved = [one.incarnation != other.incarnation for one, other in pairs]
    same = [one.events == other.events for one, other in pairs]
    numbers = ", ".join(str(look.incarnation) for look in looks)
    expect(not (all(moved) and all(same)), f"{numbers} with the same events", "one number")
