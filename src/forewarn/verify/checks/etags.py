"""Checks of ETag and If-None-Match, and of waiting for a change with `Prefer: wait`."""

from __future__ import annotations

from collections.abc import Callable

from forewarn.verify import documents
from forewarn.verify.check import Failed, Skipped, Topic, expect
from forewarn.verify.connection import Answer
from forewarn.verify.documents import NEWEST, VERSIONS, DocumentRead
from forewarn.verify.probe import Probe, path_of

TOPIC = Topic("tags", "ETag and If-None-Match", needs=("get-200",))
WAITING = Topic("waiting", "Waiting for a change", needs=("get-200", "tag-quoted"))

# Far below the three seconds that were asked for, and far above a busy machine's delays.
AT_ONCE_S = 1.5
WAIT_S = 1
# How much of a wait may be missing, and how late its end may come.
EARLY_S = 0.2
LATE_S = 2.0
# A document may change between two requests; a check then looks again.
TRIES = 3

Form = Callable[[DocumentRead], str]


def unchanged(
    probe: Probe, form: Form, *, version: str = NEWEST, headers: tuple[str, ...] = ()
) -> Answer:
    """The answer to a GET whose If-None-Match is `form` of the current document.

    Raises Failed unless it is 304; a document that changes in between is read again.
    """
    return _unchanged_since(probe, form, version, headers)[1]


def _unchanged_since(
    probe: Probe, form: Form, version: str = NEWEST, headers: tuple[str, ...] = ()
) -> tuple[DocumentRead, Answer]:
    for _ in range(TRIES):
        before = probe.document(version)
        answer = probe.poll(f"If-None-Match: {form(before)}", *headers, version=version)
        if answer.status == 304:
            return before, answer
        expect(answer.status == 200, answer, "304")
        if documents.read(answer, version).incarnation == before.incarnation:
            raise Failed(answer, f"304, because If-None-Match: {form(before)} names it")
    raise Skipped("the document changes with every request")


def echoed(document: DocumentRead) -> str:
    """The tag exactly as it came."""
    return document.tag


def quoted(document: DocumentRead) -> str:
    """The incarnation in quotes."""
    return f'"{document.incarnation}"'


@TOPIC.check(
    "etag-present",
    "A document has an ETag.",
    "G4",
    not_checked="One answer 200 at the newest api-version; the other documents are for "
    "document-etag.",
)
def etag_present(probe: Probe) -> None:
    answer = probe.poll()
    expect(answer.header("ETag"), answer.headers, "an ETag header")


@TOPIC.check(
    "etag-value",
    "The ETag is the incarnation, quotes aside.",
    "G5 (inferred)",
    not_checked="One document that stands still; a tag that lags behind a change is not seen.",
    needs=("etag-present",),
    choice=True,
)
def etag_value(probe: Probe) -> None:
    answer = probe.poll()
    incarnation = probe.note(answer).incarnation
    value = (answer.header("ETag") or "").removeprefix("W/").strip('"')
    expect(value == str(incarnation), f"ETag: {answer.header('ETag')}", f'"{incarnation}"')


@TOPIC.check(
    "etag-quoted",
    "The ETag is a quoted string.",
    "Forewarn's choice, RFC 9110, 8.8.3 (the real service sends it bare, G4)",
    not_checked="The two ends alone; characters between them that no tag may hold pass.",
    needs=("etag-present",),
    choice=True,
)
def etag_quoted(probe: Probe) -> None:
    value = (probe.poll().header("ETag") or "").removeprefix("W/")
    good = len(value) > 2 and value.startswith('"') and value.endswith('"')
    expect(good, f"ETag: {value}", "a value in quotes")


@TOPIC.check(
    "tag-echoed",
    "If-None-Match with the ETag exactly as it was sent is answered 304.",
    "H7",
    not_checked="The document stands still; a 304 for one that has changed is for life-old-tag "
    "to find.",
    needs=("etag-present",),
)
def tag_echoed(probe: Probe) -> None:
    unchanged(probe, echoed)


@TOPIC.check(
    "tag-quoted",
    "If-None-Match takes the incarnation in quotes.",
    "Forewarn's choice, G5 (not known of the real service)",
    not_checked="The current number alone; an endpoint that finds it inside a longer tag passes.",
    choice=True,
)
def tag_quoted(probe: Probe) -> None:
    unchanged(probe, quoted)


@TOPIC.check(
    "tag-bare",
    "If-None-Match takes the incarnation without quotes.",
    "Forewarn's choice, G5 (inferred)",
    not_checked="Plain digits; leading zeros, a sign and blanks around them are not tried.",
    choice=True,
)
def tag_bare(probe: Probe) -> None:
    unchanged(probe, lambda document: str(document.incarnation))


@TOPIC.check(
    "tag-weak",
    "If-None-Match takes a weak tag.",
    "Forewarn's choice, RFC 9110, 13.1.2",
    not_checked="W/ with quotes; w/ in lower case, and W/ without quotes, are not tried.",
    choice=True,
)
def tag_weak(probe: Probe) -> None:
    unchanged(probe, lambda document: f"W/{quoted(document)}")


@TOPIC.check(
    "tag-list",
    "If-None-Match takes a list of tags.",
    "RFC 9110, 13.1.2",
    not_checked="Two tags, the current one last; the other order and several headers are not "
    "tried.",
    choice=True,
)
def tag_list(probe: Probe) -> None:
    unchanged(probe, lambda document: f'"something else", {quoted(document)}')


@TOPIC.check(
    "tag-star",
    "If-None-Match: * names any document.",
    "RFC 9110, 13.1.2",
    not_checked="`*` by itself, while there is a document; among other tags it is not tried.",
    choice=True,
)
def tag_star(probe: Probe) -> None:
    unchanged(probe, lambda _: "*")


@TOPIC.check(
    "tag-other",
    "If-None-Match with 0, null or another tag is answered with the document.",
    "H7, contract 10",
    not_checked="Three tags; a number that is older, or near the current one, is not tried here.",
)
def tag_other(probe: Probe) -> None:
    for tag in ("0", "null", '"something else"'):
        documents.read(probe.poll(f"If-None-Match: {tag}"), NEWEST)


@TOPIC.check(
    "tag-every-version",
    "Every api-version answers 304.",
    "G6 (not known for every version)",
    not_checked="The quoted number alone; bare, weak and listed tags are tried at the newest only.",
    choice=True,
    needs=("version-same-incarnation",),
)
def tag_every_version(probe: Probe) -> None:
    for version in VERSIONS[:-1]:
        unchanged(probe, quoted, version=version)


@TOPIC.check(
    "unchanged-no-body",
    "A 304 has no body, and the connection goes on after it.",
    "G6",
    not_checked="Bytes that come later than 20 ms show only if they disturb the next answer.",
    needs=("tag-echoed", "get-content-length"),
)
def unchanged_no_body(probe: Probe) -> None:
    tag = probe.document().tag
    with probe.connection() as connection:
        probe.turn()
        connection.send(probe.request("GET", path_of(NEWEST), f"If-None-Match: {tag}"))
        answer = connection.answer()
        if answer.status != 304:
            raise Skipped("the document changed in between")
        expect(connection.quiet_for(0.02), "bytes after the head", "nothing after the head")
        if answer.closes:
            return
        probe.turn()
        connection.send(probe.request("GET", path_of(NEWEST)))
        documents.read(connection.answer(), NEWEST)


@TOPIC.check(
    "unchanged-etag",
    "A 304 carries the ETag of the document, as the 200 before it did.",
    "RFC 9110, 15.4.5",
    not_checked="The tag exactly as it came, at the newest api-version; other forms are not tried.",
    needs=("tag-echoed",),
)
def unchanged_etag(probe: Probe) -> None:
    before, answer = _unchanged_since(probe, echoed)
    expect(answer.header("ETag") == before.tag, answer.headers, f"ETag: {before.tag}")


def held(probe: Probe, seconds: int) -> Answer:
    """The answer to a GET that waits so long for a change that does not come."""
    for _ in range(TRIES):
        incarnation = probe.document().incarnation
        request = probe.request(
            "GET", path_of(NEWEST), f'If-None-Match: "{incarnation}"', f"Prefer: wait={seconds}"
        )
        answer = probe.ask(request, within_s=probe.options.timeout_s + seconds)
        if answer.status != 200 or documents.read(answer, NEWEST).incarnation == incarnation:
            return answer
    raise Skipped("the document changes too often to wait for it")


@WAITING.check(
    "wait-held",
    "A GET with the current tag and `Prefer: wait=1` is held for a second, then answered 304.",
    "Forewarn's choice, RFC 7240",
    not_checked="One wait of a second; long waits, their limit, and many at once are not tried.",
    choice=True,
)
def wait_held(probe: Probe) -> None:
    answer = held(probe, WAIT_S)
    expect(answer.status == 304, answer, "304 at the end of the wait")
    good = WAIT_S - EARLY_S <= answer.took_s <= WAIT_S + LATE_S
    expect(good, f"an answer after {answer.took_s:.2f} s", f"one after {WAIT_S} s")


@WAITING.check(
    "wait-not-asked",
    "A GET that does not ask to wait is answered 304 at once.",
    "Forewarn's choice (the real service may hold it, G10)",
    not_checked="A hold of less than 1.5 s passes as none.",
    choice=True,
)
def wait_not_asked(probe: Probe) -> None:
    answer = unchanged(probe, quoted)
    expect(answer.took_s <= AT_ONCE_S, f"an answer after {answer.took_s:.2f} s", "one at once")


@WAITING.check(
    "wait-other-tag",
    "A GET with the tag of another document than the current one does not wait.",
    "Forewarn's choice",
    not_checked="The tag 0 alone; a wait with the tag of an incarnation before is not tried.",
    choice=True,
)
def wait_other_tag(probe: Probe) -> None:
    _answered_at_once(probe, 'If-None-Match: "0"', "Prefer: wait=3")


@WAITING.check(
    "wait-without-tag",
    "A GET without a tag does not wait.",
    "Forewarn's choice",
    not_checked="One GET with wait=3; longer waits, and a hold of less than 1.5 s, are not found "
    "out.",
    choice=True,
)
def wait_without_tag(probe: Probe) -> None:
    _answered_at_once(probe, "Prefer: wait=3")


@WAITING.check(
    "wait-other-preference",
    "Unknown preferences are ignored.",
    "RFC 7240, 2",
    not_checked="Two preferences in one header; negative, huge and repeated waits are not tried.",
    choice=True,
)
def wait_other_preference(probe: Probe) -> None:
    answer = unchanged(probe, quoted, headers=("Prefer: respond-async, wait=soon",))
    expect(answer.took_s <= AT_ONCE_S, f"an answer after {answer.took_s:.2f} s", "one at once")


def _answered_at_once(probe: Probe, *headers: str) -> None:
    answer = probe.poll(*headers)
    documents.read(answer, NEWEST)
    expect(answer.took_s <= AT_ONCE_S, f"an answer after {answer.took_s:.2f} s", "one at once")
