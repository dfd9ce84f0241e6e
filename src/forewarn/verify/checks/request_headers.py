"""Checks of the headers of a request: which are needed, and which are refused."""

from __future__ import annotations

from forewarn.verify.answers import expect_error_object, expect_refused, expect_status
from forewarn.verify.check import Topic, expect
from forewarn.verify.documents import NEWEST
from forewarn.verify.probe import Probe, path_of

TOPIC = Topic("refusal", "What is refused", needs=("get-200",))

FOREIGN_NAME = "rebinding.example"


@TOPIC.check(
    "header-required",
    "A GET without `Metadata: true` is refused with 400.",
    "H1",
    not_checked="The usual path alone; another spelling of it that goes around the rule is not "
    "tried.",
)
def header_required(probe: Probe) -> None:
    expect_status(probe.poll(metadata=False), 400)


@TOPIC.check(
    "header-required-since",
    "Every api-version from 2017-08-01 on asks for the Metadata header.",
    "H1",
    not_checked="One GET without the header for each; wrong values are tried at the newest only.",
)
def header_required_since(probe: Probe) -> None:
    for version in ("2017-08-01", "2017-11-01", "2019-01-01", "2019-04-01", "2019-08-01"):
        expect_status(probe.poll(version=version, metadata=False), 400)


@TOPIC.check(
    "header-not-required-before",
    "2017-03-01 does not ask for the Metadata header.",
    "H2, Forewarn's choice",
    not_checked="The status alone; whether that answer holds a good document is not read.",
)
def header_not_required_before(probe: Probe) -> None:
    expect_status(probe.poll(version="2017-03-01", metadata=False), 200)


@TOPIC.check(
    "header-other-value",
    "`Metadata: false` is refused with 400.",
    "H1",
    not_checked="One wrong value; a blank one, or the header given twice, is not tried.",
)
def header_other_value(probe: Probe) -> None:
    expect_status(probe.poll("Metadata: false", metadata=False), 400)


@TOPIC.check(
    "header-required-words",
    "The refusal says: Required metadata header not specified.",
    "E1",
    not_checked="The words may stand in a longer text; refusals of POSTs are not read.",
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
    not_checked="Any status 4xx to one GET passes; POSTs and /metadata/instance are not tried.",
)
def forwarded(probe: Probe) -> None:
    expect_refused(probe.poll("X-Forwarded-For: 10.0.0.1"))


@TOPIC.check(
    "forwarded-otherwise",
    "A request with Forwarded, X-Real-IP or Via is refused.",
    "Forewarn's choice (known of X-Forwarded-For only, H4)",
    not_checked="One GET for each; headers that proxies seldom add are not tried.",
    choice=True,
)
def forwarded_otherwise(probe: Probe) -> None:
    for header in ("Forwarded: for=10.0.0.1", "X-Real-IP: 10.0.0.1", "Via: 1.1 proxy"):
        expect_refused(probe.poll(header))


@TOPIC.check(
    "page-origin",
    "A request with Origin, as web pages send it, is refused.",
    "Forewarn's choice",
    not_checked="Two GETs at the newest api-version; POSTs and other paths are not tried.",
    choice=True,
)
def page_origin(probe: Probe) -> None:
    for origin in (f"http://{FOREIGN_NAME}", "null"):
        expect_refused(probe.poll(f"Origin: {origin}"))


@TOPIC.check(
    "page-site",
    "A request with another Sec-Fetch-Site than `none` is refused.",
    "Forewarn's choice",
    not_checked="Two GETs at the oldest api-version; POSTs and other paths are not tried.",
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
    not_checked="One GET with one value; what else such programs send is not tried.",
)
def fetch_mode(probe: Probe) -> None:
    expect_status(probe.poll("Sec-Fetch-Mode: cors", "Accept-Language: *"), 200)


@TOPIC.check(
    "host-foreign",
    "A Host that is a name of the web, as after DNS rebinding, is refused.",
    "Forewarn's choice",
    not_checked="One name on a GET; addresses in odd forms and whole URLs are not tried.",
    choice=True,
)
def host_foreign(probe: Probe) -> None:
    expect_refused(probe.ask(_with_hosts(probe, FOREIGN_NAME)))


@TOPIC.check(
    "host-one",
    "A request of HTTP/1.1 without Host, or with two, is refused with 400.",
    "RFC 9112, 3.2",
    not_checked="The same name twice; two that differ, and HTTP/1.0 with two, are not tried.",
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
