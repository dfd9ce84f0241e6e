"""Checks of what is refused, and of how a refusal looks."""

from __future__ import annotations

from typing import Any

from forewarn.verify.checks import Topic, expect
from forewarn.verify.connection import Answer
from forewarn.verify.documents import NEWEST
from forewarn.verify.probe import PATH, Probe, path_of

TOPIC = Topic("refusal", "What is refused", needs=("get-200",))

QUICK_S = 2.0
FOREIGN_NAME = "rebinding.example"


def expect_status(answer: Answer, *accepted: int) -> None:
    """Fail unless the answer has one of these statuses."""
    words = " or ".join(map(str, accepted))
    expect(answer.status in accepted, answer, words)


def expect_refused(answer: Answer) -> None:
    """Fail unless the answer is a refusal of the request, whichever."""
    expect(400 <= answer.status < 500 and answer.status != 429, answer, "a status 4xx")


def expect_newest(answer: Answer) -> None:
    """Fail unless the body names api-versions that would be accepted."""
    content: Any = answer.json
    newest = content.get("newest-versions") if isinstance(content, dict) else None
    good = (
        isinstance(newest, list)
        and len(newest) == 3
        and all(isinstance(version, str) for version in newest)
        and newest == sorted(newest, reverse=True)
    )
    expect(good, answer, '"newest-versions" with the three newest, newest first')


def expect_error_object(answer: Answer) -> None:
    """Fail unless the body is the error object of the service."""
    content: Any = answer.json
    good = isinstance(content, dict) and isinstance(content.get("error"), str)
    expect(good and content["error"], answer, 'a JSON object with "error", a text')


@TOPIC.check(
    "header-required",
    "A GET without `Metadata: true` is refused with 400.",
    "H1",
    blind="The usual path alone; another spelling of it that goes around the rule is not tried.",
)
def header_required(probe: Probe) -> None:
    expect_status(probe.poll(metadata=False), 400)


@TOPIC.check(
    "header-required-since",
    "Every api-version from 2017-08-01 on asks for the Metadata header.",
    "H1",
    blind="One GET without the header for each; wrong values are tried at the newest only.",
)
def header_required_since(probe: Probe) -> None:
    for version in ("2017-08-01", "2017-11-01", "2019-01-01", "2019-04-01", "2019-08-01"):
        expect_status(probe.poll(version=version, metadata=False), 400)


@TOPIC.check(
    "header-not-required-before",
    "2017-03-01 does not ask for the Metadata header.",
    "H2, design 5",
    blind="The status alone; whether that answer holds a good document is not read.",
)
def header_not_required_before(probe: Probe) -> None:
    expect_status(probe.poll(version="2017-03-01", metadata=False), 200)


@TOPIC.check(
    "header-other-value",
    "`Metadata: false` is refused with 400.",
    "H1",
    blind="One wrong value; a blank one, or the header given twice, is not tried.",
)
def header_other_value(probe: Probe) -> None:
    expect_status(probe.poll("Metadata: false", metadata=False), 400)


@TOPIC.check(
    "header-required-words",
    "The refusal says: Required metadata header not specified.",
    "E1",
    blind="The words may stand in a longer text; refusals of POSTs are not read.",
    needs=("header-required",),
)
def header_required_words(probe: Probe) -> None:
    answer = probe.poll(metadata=False)
    expect_error_object(answer)
    words = "Required metadata header not specified"
    expect(words in answer.json["error"], answer, f"the words: {words}")


@TOPIC.check(
    "forwarded",
    "A request with X-Forwarded-For is refused.",
    "H4, E8 (the status is presumed)",
    blind="Any status 4xx to one GET passes; POSTs and /metadata/instance are not tried.",
)
def forwarded(probe: Probe) -> None:
    expect_refused(probe.poll("X-Forwarded-For: 10.0.0.1"))


@TOPIC.check(
    "forwarded-otherwise",
    "A request with Forwarded, X-Real-IP or Via is refused.",
    "design 5 (known of X-Forwarded-For only, H4)",
    blind="One GET for each; headers that proxies seldom add are not tried.",
    choice=True,
)
def forwarded_otherwise(probe: Probe) -> None:
    for header in ("Forwarded: for=10.0.0.1", "X-Real-IP: 10.0.0.1", "Via: 1.1 proxy"):
        expect_refused(probe.poll(header))


@TOPIC.check(
    "page-origin",
    "A request with Origin, as web pages send it, is refused.",
    "design 5",
    blind="Two GETs at the newest api-version; POSTs and other paths are not tried.",
    choice=True,
)
def page_origin(probe: Probe) -> None:
    for origin in (f"http://{FOREIGN_NAME}", "null"):
        expect_refused(probe.poll(f"Origin: {origin}"))


@TOPIC.check(
    "page-site",
    "A request with another Sec-Fetch-Site than `none` is refused.",
    "design 5",
    blind="Two GETs at the oldest api-version; POSTs and other paths are not tried.",
    needs=("header-not-required-before",),
    choice=True,
)
def page_site(probe: Probe) -> None:
    for site in ("cross-site", "same-origin"):
        header = f"Sec-Fetch-Site: {site}"
        expect_refused(probe.poll(header, version="2017-03-01", metadata=False))


@TOPIC.check(
    "fetch-mode",
    "A program that sends Sec-Fetch-Mode, as the fetch of Node.js does, is answered.",
    "H8",
    blind="One GET with one value; what else such programs send is not tried.",
)
def fetch_mode(probe: Probe) -> None:
    expect_status(probe.poll("Sec-Fetch-Mode: cors", "Accept-Language: *"), 200)


@TOPIC.check(
    "host-foreign",
    "A Host that is a name of the web, as after DNS rebinding, is refused.",
    "design 5",
    blind="One name on a GET; addresses in odd forms and whole URLs are not tried.",
    choice=True,
)
def host_foreign(probe: Probe) -> None:
    expect_refused(probe.ask(_with_hosts(probe, FOREIGN_NAME)))


@TOPIC.check(
    "host-one",
    "A request of HTTP/1.1 without Host, or with two, is refused with 400.",
    "RFC 9112, 3.2",
    blind="The same name twice; two that differ, and HTTP/1.0 with two, are not tried.",
    choice=True,
)
def host_one(probe: Probe) -> None:
    authority = probe.target.authority
    expect_status(probe.ask(_with_hosts(probe)), 400)
    expect_status(probe.ask(_with_hosts(probe, authority, authority)), 400)


def _with_hosts(probe: Probe, *hosts: str) -> bytes:
    """A GET with these Host headers instead of the right one."""
    line, _, rest = probe.request("GET", path_of(NEWEST)).split(b"\r\n", 2)
    return b"\r\n".join([line, *(f"Host: {host}".encode() for host in hosts), rest])


@TOPIC.check(
    "version-missing",
    "A GET without api-version is refused with 400.",
    "Q1, E2",
    blind="No query at all; a query of other parameters alone is not tried.",
)
def version_missing(probe: Probe) -> None:
    expect_status(probe.get(PATH), 400)


@TOPIC.check(
    "version-empty",
    "An empty api-version is refused with 400.",
    "Q1, E2",
    blind="`api-version=` alone; the bare name, without an equals sign, is not tried.",
)
def version_empty(probe: Probe) -> None:
    expect_status(probe.get(f"{PATH}?api-version="), 400)


@TOPIC.check(
    "version-missing-newest",
    "The refusal of a missing api-version names the three newest.",
    "E2",
    blind="Three texts in falling order pass; whether they are api-versions that work is "
    "not tried.",
    needs=("version-missing",),
)
def version_missing_newest(probe: Probe) -> None:
    expect_newest(probe.get(PATH))


@TOPIC.check(
    "version-unknown",
    "An api-version that nobody knows is refused with 404.",
    "design 5, E3 (one host answered 400, E5)",
    blind="One date long past; other dates, odd texts and long ones may be answered otherwise.",
    choice=True,
)
def version_unknown(probe: Probe) -> None:
    expect_status(probe.get(path_of("1999-12-31")), 404)


@TOPIC.check(
    "version-unknown-newest",
    "The refusal of an unknown api-version names the three newest.",
    "design 5 (the real body is not known, E3)",
    blind="The three are not compared with those that the refusal of a missing one names.",
    needs=("version-unknown",),
    choice=True,
)
def version_unknown_newest(probe: Probe) -> None:
    expect_newest(probe.get(path_of("1999-12-31")))


@TOPIC.check(
    "version-latest",
    "`latest` is no api-version.",
    "P5, design 5",
    blind="One spelling on the document's path; others, and /metadata/instance, are not tried.",
)
def version_latest(probe: Probe) -> None:
    expect_status(probe.get(path_of("latest")), 400, 404)


@TOPIC.check(
    "version-probe",
    "2024-07-09, which clients probe for, is answered 200 or 404 and nothing else.",
    "Q3, contract 10",
    blind="The status alone; where it is 200, the document is not read.",
)
def version_probe(probe: Probe) -> None:
    expect_status(probe.get(path_of("2024-07-09")), 200, 404)


@TOPIC.check(
    "query-repeated",
    "A query parameter that is given twice is refused.",
    "Q5, E9",
    blind="api-version twice with one value; two values, and other parameters, are not tried.",
)
def query_repeated(probe: Probe) -> None:
    expect_refused(probe.get(f"{path_of(NEWEST)}&api-version={NEWEST}"))


@TOPIC.check(
    "path-unknown",
    "A path that nobody knows is refused with 404.",
    "E12",
    blind="One path below /metadata; what else is served elsewhere is not looked for.",
)
def path_unknown(probe: Probe) -> None:
    expect_status(probe.get(f"/metadata/nothing?api-version={NEWEST}"), 404)


@TOPIC.check(
    "path-of-others",
    "Paths of other clouds, and /scheduledevents alone, get a quick status 4xx.",
    "contract 10",
    blind="Three paths; the many others that software of other clouds asks for are not tried.",
)
def path_of_others(probe: Probe) -> None:
    for path in ("/scheduledevents", "/latest/dynamic/instance-identity/document", "/v1.json"):
        answer = probe.get(path)
        expect_refused(answer)
        expect(answer.took_s <= QUICK_S, f"{answer.took_s:.1f} s", f"at most {QUICK_S:g} s")


@TOPIC.check(
    "verb-405",
    "A verb that is not for this path is refused with 405.",
    "E11",
    blind="PUT alone; DELETE, PATCH, OPTIONS and verbs that nobody knows are not tried.",
)
def verb_405(probe: Probe) -> None:
    # The only request of a run that reads which is no GET or HEAD; it has no body and no meaning.
    expect_status(probe.ask(probe.request("PUT", path_of(NEWEST), body=b"")), 405)


@TOPIC.check(
    "verb-allow",
    "The 405 says in Allow that GET and POST are accepted.",
    "RFC 9110, 15.5.6",
    blind="More verbs may be named beside the two; whether those work is not tried.",
    needs=("verb-405",),
)
def verb_allow(probe: Probe) -> None:
    answer = probe.ask(probe.request("PUT", path_of(NEWEST), body=b""))
    allow = answer.header("Allow") or ""
    verbs = {verb.strip().upper() for verb in allow.split(",")}
    expect(verbs >= {"GET", "POST"}, f"Allow: {allow}", "GET, POST")


@TOPIC.check(
    "verb-head",
    "HEAD is answered 200, 400 or 405, and without a body.",
    "E7, RFC 9110, 9.3.2",
    blind="Its headers are not compared with those of a GET; a body after 20 ms is not seen.",
)
def verb_head(probe: Probe) -> None:
    probe.turn()
    with probe.connection() as connection:
        connection.send(probe.request("HEAD", path_of(NEWEST)))
        answer = connection.answer(to_head=True)
        expect_status(answer, 200, 400, 405)
        expect(connection.quiet_for(0.02), "bytes after the head", "no body")


@TOPIC.check(
    "error-object",
    'Refusals carry a JSON object with "error", a text.',
    "contract 2.1 (not known for each of these, E8 to E12)",
    blind="Four refusals, and only that the text is not empty; others may look otherwise.",
    needs=("forwarded", "query-repeated", "path-unknown", "verb-405"),
    choice=True,
)
def error_object(probe: Probe) -> None:
    for answer in _refusals(probe):
        expect_error_object(answer)


@TOPIC.check(
    "error-content-type",
    "Refusals are application/json.",
    "contract 2.1 (not known for each of these, E8 to E12)",
    blind="The same four refusals; neither the charset nor the type of other refusals is read.",
    needs=("error-object",),
    choice=True,
)
def error_content_type(probe: Probe) -> None:
    for answer in _refusals(probe):
        kind = answer.header("Content-Type") or ""
        good = kind.partition(";")[0].strip().lower() == "application/json"
        expect(good, f"Content-Type: {kind}", "application/json; charset=utf-8")


def _refusals(probe: Probe) -> list[Answer]:
    return [
        probe.poll("X-Forwarded-For: 10.0.0.1"),
        probe.get(f"{path_of(NEWEST)}&api-version={NEWEST}"),
        probe.get(f"/metadata/nothing?api-version={NEWEST}"),
        probe.ask(probe.request("PUT", path_of(NEWEST), body=b"")),
    ]
