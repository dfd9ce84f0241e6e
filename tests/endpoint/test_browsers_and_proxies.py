"""Web pages and proxies are refused: by the rule alone, and by an endpoint that runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from forewarn.endpoint.browsers_and_proxies import host_accepted, known_names
from forewarn.endpoint.http_parser import Head, MessageReader
from forewarn.endpoint.limits import Limits
from forewarn.endpoint.routes import Ask, RequestRules, route
from forewarn.wire.api_versions import API_VERSIONS
from support.endpoint_world import APPROVAL, DB, URL, WEB, EndpointWorld, get, post, running

META = "Metadata: true"
PATH = "/metadata/scheduledevents"
NAMES = known_names(("Metadata.Example", "host.docker.internal."))
RULES = RequestRules(guest_names=NAMES)
LABEL_63 = "a" * 63

ACCEPTED_HOSTS = (
    "",
    "169.254.169.254",
    "169.254.169.254:80",
    "127.0.0.1:8254",
    "0.0.0.0",
    "127.0.0.1:",
    "[::1]",
    "[::1]:8254",
    "[::ffff:127.0.0.1]",
    "[fe80::a9fe:a9fe%eth0]",
    "[fe80::a9fe:a9fe%25eth0]:80",
    "[FE80::A9FE:A9FE%25br-lan.7]",
    "localhost",
    "localhost:8254",
    "LocalHost",
    "localhost.",
    "localhost.:8254",
    "emulator",
    "emulator:8254",
    "my_app-1",
    "EMULATOR",
    LABEL_63,
    "2852039166",  # an address as one number; browsers write it with dots before they send it
    "metadata.example",
    "metadata.example:8254",
    "METADATA.example",
    "metadata.example.",
    "host.docker.internal",
)
REFUSED_HOSTS = (
    "evil.example",
    "evil.example:80",
    "127.0.0.1.evil.example",
    "169.254.169.254.evil.example",
    "localhost.evil.example",
    "evil.localhost",
    "emulator.",
    "metadata.example..",
    "metadata.example.evil.example",
    "evil.metadata.example",
    "host.containers.internal",
    ".",
    "..",
    ":80",
    "127.1",
    "127.0.0.1.",
    "127.0.0.256",
    "0x7f.0.0.1",
    "127.0.0.01",
    "::1",
    "[::1",
    "[::1]x",
    "[::1]:x",
    "[]",
    "[evil.example]",
    "[fe80::1%]",
    "[fe80::1%25eth 0]",
    "[127.0.0.1]",
    "127.0.0.1:8254:80",
    "127.0.0.1:123456",
    "127.0.0.1:-1",
    "127.0.0.1, evil.example",
    "127.0.0.1 evil.example",
    "user@127.0.0.1",
    "http://127.0.0.1",
    "-emulator",
    "emulator-",
    "a" * 64,
    "%6c%6f",
    "\xe9vil",
    "evil\tname",
)


@pytest.mark.parametrize("host", ACCEPTED_HOSTS)
def test_a_host_that_no_site_of_the_web_can_have_is_accepted(host: str) -> None:
    assert host_accepted(host, NAMES)


@pytest.mark.parametrize("host", REFUSED_HOSTS)
def test_a_host_that_somebody_else_may_own_is_refused(host: str) -> None:
    assert not host_accepted(host, NAMES)


def a_head(*headers: str, target: str = URL, method: str = "GET", version: str = "1.1") -> Head:
    """The head as the endpoint's own reader reads it."""
    reader = MessageReader(Limits())
    lines = (f"{method} {target} HTTP/{version}", *headers, "", "")
    reader.feed("\r\n".join(lines).encode("latin-1"))
    message = reader.next_message()
    assert message is not None
    return message.head


def reason(*headers: str, target: str = URL, method: str = "GET", version: str = "1.1") -> str:
    """Why such a request is refused, "" if it is not."""
    head = a_head(*headers, target=target, method=method, version=version)
    problem = route(head, RULES).problem
    if problem is not None:
        assert problem.status == 400
    return "" if problem is None else problem.reason


HOST = "Host: 169.254.169.254"
FOREIGN = "Host: evil.example"


@pytest.mark.parametrize(
    ("version", "hosts", "refused"),
    [
        ("1.1", (HOST,), ""),
        ("1.1", ("HOST:   127.0.0.1\t",), ""),
        ("1.1", ("Host:",), ""),
        ("1.1", (), "not-one-host"),
        ("1.1", (HOST, HOST), "not-one-host"),
        ("1.1", (HOST, FOREIGN), "not-one-host"),
        ("1.1", (FOREIGN, HOST), "not-one-host"),
        ("1.1", ("Host:", HOST), "not-one-host"),
        ("1.1", ("Host:", "Host:"), "not-one-host"),
        ("1.1", (FOREIGN,), "unknown-host"),
        ("1.0", (), ""),
        ("1.0", (HOST,), ""),
        ("1.0", ("Host:",), ""),
        ("1.0", (HOST, HOST), "not-one-host"),
        ("1.0", (FOREIGN,), "unknown-host"),
    ],
)
def test_there_is_one_host_and_in_http_1_0_perhaps_none(
    version: str, hosts: tuple[str, ...], refused: str
) -> None:
    assert reason(META, *hosts, version=version) == refused


@pytest.mark.parametrize(
    ("target", "host", "refused"),
    [
        (f"http://169.254.169.254{URL}", HOST, ""),
        (f"http://localhost:8254{URL}", HOST, ""),
        (f"HTTP://metadata.example{URL}", HOST, ""),
        (f"http://evil.example{URL}", HOST, "unknown-host"),
        (f"http://169.254.169.254{URL}", FOREIGN, "unknown-host"),
        (f"http://evil@127.0.0.1{URL}", HOST, "unknown-host"),
        (f"http://evil.example:80{URL}", HOST, "unknown-host"),
        ("http://evil.example", HOST, "unknown-host"),
        ("http://evil.example?/metadata/", HOST, "unknown-host"),
    ],
)
def test_of_an_absolute_target_and_a_host_both_must_be_good(
    target: str, host: str, refused: str
) -> None:
    assert reason(META, host, target=target) == refused


def test_only_a_target_that_begins_with_a_scheme_is_absolute() -> None:
    request = route(a_head(META, HOST, target=f"/x://y{URL}"), RULES)
    assert request.problem is not None
    assert request.problem.reason == "unknown-path"


@pytest.mark.parametrize(
    ("header", "refused"),
    [
        ("Origin: http://evil.example", "web-page"),
        ("Origin: http://169.254.169.254", "web-page"),
        ("Origin: null", "web-page"),
        ("Origin:", "web-page"),
        ("origin: x", "web-page"),
        ("Sec-Fetch-Site: cross-site", "web-page"),
        ("Sec-Fetch-Site: same-site", "web-page"),
        ("Sec-Fetch-Site: same-origin", "web-page"),
        ("Sec-Fetch-Site:", "web-page"),
        ("Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site", "web-page"),
        ("Sec-Fetch-Site: none", ""),
        ("Sec-Fetch-Mode: cors", ""),  # the fetch of Node.js
        ("Sec-Fetch-Mode: no-cors", ""),
        ("Sec-Fetch-Dest: image", ""),
        ("Referer: http://evil.example/", ""),
        ("X-Forwarded-For: 10.0.0.1", "forwarded"),
        ("X-Forwarded-For:", "forwarded"),
        ("Forwarded: for=10.0.0.1", "forwarded"),
        ("X-Real-IP: 10.0.0.1", "forwarded"),
        ("x-real-ip: 10.0.0.1", "forwarded"),
        ("Via: 1.1 squid", "forwarded"),
        ("X-Forwarded-Host: alpha", ""),
        ("X-Client-IP: 10.0.0.1", ""),
    ],
)
def test_what_pages_and_proxies_send_is_refused_and_nothing_else(header: str, refused: str) -> None:
    assert reason(HOST, META, header) == refused


PLACES = (
    *(f"{PATH}?api-version={version}" for version in API_VERSIONS),
    PATH,
    "/metadata/versions",
    "/metadata/instance?api-version=2021-02-01",
    "/metadata/instance/compute/name?api-version=2021-02-01&format=text",
    "/",
    "*",
)


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS", "PUT"])
@pytest.mark.parametrize("target", PLACES)
def test_they_are_refused_at_every_version_path_and_verb(target: str, method: str) -> None:
    for header in ("Origin: null", "Sec-Fetch-Site: same-origin"):
        assert reason(HOST, META, header, target=target, method=method) == "web-page"
    assert reason(HOST, META, "Via: 1.1 x", target=target, method=method) == "forwarded"
    assert reason(FOREIGN, META, target=target, method=method) == "unknown-host"


# The setting `metadata_header`.


@pytest.mark.parametrize("version", API_VERSIONS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_who_needs_the_metadata_header_is_as_the_setting_says(version: str, method: str) -> None:
    head = a_head(HOST, target=f"{PATH}?api-version={version}", method=method)
    said = replace(head, headers={**head.headers, "metadata": "True"})
    later = version != "2017-03-01"
    needed = {
        "as-documented": later,
        "always": True,
        "lenient": later and method == "GET",
    }
    asks = Ask.POLL if method == "GET" else Ask.APPROVE
    for setting, needs in needed.items():
        rules = RequestRules(metadata_header=setting)  # type: ignore[arg-type]
        assert route(head, rules).ask is (Ask.NOTHING if needs else asks), setting
        assert route(said, rules).ask is asks, setting


def test_other_paths_need_the_metadata_header_whatever_the_setting_says() -> None:
    rules = RequestRules(metadata_header="lenient")
    for target in ("/metadata/versions", "/metadata/instance?api-version=2021-02-01"):
        problem = route(a_head(HOST, target=target), rules).problem
        assert problem is not None
        assert problem.reason == "no-metadata-header"


def test_lenient_approves_without_the_header_and_no_page_does() -> None:
    with running(rules=RequestRules(metadata_header="lenient")) as world:
        length = f"Content-Length: {len(APPROVAL)}"
        client = world.client()
        plain = get(URL, length, method="POST") + APPROVAL
        page = get(URL, length, "Origin: null", method="POST") + APPROVAL
        assert client.ask(page).status == 400
        assert world.service.approved == []
        assert client.ask(plain).status == 200
        assert [vm for vm, _ in world.service.approved] == ["web_0"]
        assert client.ask(get(URL)).status == 400


# A real endpoint.


@pytest.fixture
def silent() -> Iterator[EndpointWorld]:
    """A world in which nobody has polled yet."""
    with running(replace(WEB, enabled=False), DB) as world:
        yield world


PAGES = (
    "Origin: http://evil.example",
    "Sec-Fetch-Site: cross-site",
    "Via: 1.1 squid",
    "Forwarded: for=10.0.0.1",
    "X-Real-IP: 10.0.0.1",
    "X-Forwarded-For: 10.0.0.1",
    "Host: evil.example",
)


@pytest.mark.parametrize("header", PAGES)
@pytest.mark.parametrize("version", ["2017-03-01", "2020-07-01"])
def test_a_refused_poll_enables_nothing_and_a_refused_approval_approves_nothing(
    silent: EndpointWorld, header: str, version: str
) -> None:
    url = f"{PATH}?api-version={version}"
    client = silent.client()
    for request in (get(url, META), post(APPROVAL, url), get(url, method="OPTIONS")):
        if header.startswith("Host"):
            refused = request.replace(b"Host: 169.254.169.254", header.encode())
        else:
            refused = request.replace(b"\r\n", b"\r\n%b\r\n" % header.encode(), 1)
        for _ in range(2):  # also from whatever was kept of the first
            answer = client.ask(refused)
            assert answer.status == 400
            assert "access-control-allow-origin" not in answer.headers
    assert silent.service.enabled == []
    assert silent.service.approved == []
    assert silent.service.read == []
    assert client.ask(get(url, META)).status == 200
    assert silent.service.enabled == [("web", "web_0")]


def test_a_refusal_says_what_was_refused_and_what_would_be_accepted(silent: EndpointWorld) -> None:
    client = silent.client()
    foreign = get(URL, META).replace(b"169.254.169.254", b"evil.example:80")
    answer = client.ask(foreign)
    for word in (b"'evil.example:80'", b"IP address", b"localhost", b"dot", b"guest_names"):
        assert word in answer.body
    assert b"Via" in client.ask(get(URL, META, "Via: 1.1 squid")).body
    assert b"Origin" in client.ask(get(URL, META, "Origin: null")).body
    assert b"no Host header" in client.ask(b"GET / HTTP/1.1\r\n\r\n").body
    assert b"2 Host headers" in client.ask(get(URL, HOST)).body


def test_a_name_of_the_setting_is_answered() -> None:
    with running(rules=RequestRules(guest_names=known_names(["Metadata.Example"]))) as world:
        for name in (b"metadata.example", b"METADATA.EXAMPLE.:8254"):
            request = get(URL, META).replace(b"169.254.169.254", name)
            assert world.client().ask(request).status == 200


def test_http_1_0_needs_no_host(silent: EndpointWorld) -> None:
    request = f"GET {URL} HTTP/1.0\r\nMetadata: true\r\n\r\n".encode()
    assert silent.client().ask(request).status == 200


@pytest.mark.parametrize(
    "head",
    [
        b"GET %b HTTP/1.1\r\nHost : evil.example\r\nHost: 127.0.0.1\r\nMetadata: true\r\n\r\n",
        b"GET %b HTTP/1.1\r\nHost: 127.0.0.1\r\n evil.example\r\nMetadata: true\r\n\r\n",
        b"GET %b HTTP/1.1\r\nHost: 127.0.0.1\rHost: evil.example\r\nMetadata: true\r\n\r\n",
    ],
)
def test_a_second_host_cannot_hide_behind_broken_lines(silent: EndpointWorld, head: bytes) -> None:
    assert silent.client().ask(head % URL.encode()).status == 400
    assert silent.service.enabled == []


def test_what_a_trailer_says_is_not_the_host_of_the_request(silent: EndpointWorld) -> None:
    chunked = get(URL, META, "Transfer-Encoding: chunked", method="POST")
    body = b"%x\r\n%b\r\n0\r\nHost: evil.example\r\nOrigin: null\r\n\r\n"
    assert silent.client().ask(chunked + body % (len(APPROVAL), APPROVAL)).status == 200
