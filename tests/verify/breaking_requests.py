"""One breakage for each check of requests, refusals, versions, tags, connections and neighbours.

Each factory makes a fresh Tampering, because some of them count what passes through the front.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from verify.front import DOCUMENT_PATH, Asked, Given, Tampering, refusal

NEWEST = "2020-07-01"
UNKNOWN_ID = "00000000-0000-4000-8000-00000BADC0DE"

When = Callable[[Asked], bool]
Breakages = dict[str, Callable[[], Tampering]]


def answering(when: When, given: Given) -> Callable[[], Tampering]:
    """Answer some requests at once, without asking the endpoint."""
    return lambda: Tampering(ask=lambda asked: given if when(asked) else asked)


def asking(when: When, change: Callable[[Asked], Asked]) -> Callable[[], Tampering]:
    """Send some requests on as others."""
    return lambda: Tampering(ask=lambda asked: change(asked) if when(asked) else asked)


def giving(when: When, change: Callable[[Given], Given]) -> Callable[[], Tampering]:
    """Change the answer to some requests."""
    return lambda: Tampering(give=lambda asked, given: change(given) if when(asked) else given)


def nth(number: int, when: When) -> When:
    """Only the request with that number of those that are meant."""
    seen = 0

    def meant(asked: Asked) -> bool:
        nonlocal seen
        seen += when(asked)
        return when(asked) and seen == number

    return meant


def on_nth(
    number: int, when: When, make: Callable[[When], Callable[[], Tampering]]
) -> Callable[[], Tampering]:
    """A breakage of one request of many, counted anew each time."""

    def make_anew() -> Tampering:
        return make(nth(number, when))()

    return make_anew


def good(change: Callable[[Given], Given]) -> Callable[[Given], Given]:
    """Change answers of status 200 only."""
    return lambda given: change(given) if given.status == 200 else given


def document(version: str | None = NEWEST) -> When:
    return lambda asked: asked.is_document(version)


def has(name: str, value: str = "") -> When:
    return lambda asked: value in (asked.header(name) or "") if asked.header(name) else False


def lacks(name: str) -> When:
    return lambda asked: asked.header(name) is None


def path(text: str) -> When:
    return lambda asked: asked.path == text


def both(*conditions: When) -> When:
    return lambda asked: all(condition(asked) for condition in conditions)


def as_newest(asked: Asked) -> Asked:
    return replace(asked, target=f"{DOCUMENT_PATH}?api-version={NEWEST}")


def with_metadata(asked: Asked) -> Asked:
    return asked.having("Metadata", "true")


def without_tag(asked: Asked) -> Asked:
    return asked.without("If-None-Match")


def in_json(change: Callable[[Any], Any]) -> Callable[[Given], Given]:
    """Change the JSON of an answer, if it is one of status 200."""
    return good(lambda given: given.with_json(change(given.json)))


def without_newest(given: Given) -> Given:
    return given.with_json({"error": given.json["error"]})


def unversioned(asked: Asked) -> bool:
    return asked.method == "GET" and asked.target == DOCUMENT_PATH


def tag(pattern: str) -> When:
    return lambda asked: re.fullmatch(pattern, asked.header("If-None-Match") or "") is not None


OK = Given(200).saying(b"")
ERROR = refusal(500)
METADATA = has("Metadata")
NO_METADATA = lacks("Metadata")
CURRENT = both(document(), tag(r'"[1-9]\d*"'), lacks("Prefer"))


def delayed(given: Given) -> Given:
    return replace(given, delay_s=1.6)


ANSWERS: Breakages = {
    "get-200": answering(both(document(), METADATA), ERROR),
    "get-fast": on_nth(3, document(), lambda when: giving(when, lambda g: replace(g, delay_s=2.1))),
    "get-http11": giving(document(), lambda g: replace(g, protocol="HTTP/1.0")),
    "get-content-type": giving(document(), good(lambda g: g.having("Content-Type", "text/html"))),
    "get-content-length": giving(
        document(), good(lambda g: replace(g.without("Content-Length"), then_close=True))
    ),
    "get-date": giving(document(), lambda g: g.having("Date", "2026-01-01T00:00:00Z")),
    "get-http10": answering(lambda asked: asked.protocol == "HTTP/1.0", refusal(505)),
    "get-odd-headers": answering(has("x-unknown"), refusal(400)),
    "get-with-json-type": answering(both(document(), has("Content-Type")), refusal(415)),
    "header-name-case": answering(
        lambda asked: ("metadata", "true") in asked.headers, refusal(400)
    ),
    "header-value-case": answering(has("Metadata", "True"), refusal(400)),
    "query-extra": answering(lambda asked: asked.target.endswith("format=json"), refusal(400)),
    "path-case": answering(path("/metadata/scheduledEvents"), refusal(404)),
    "path-slash": answering(path(f"{DOCUMENT_PATH}/"), refusal(404)),
    "get-no-extension": giving(document(), in_json(lambda content: {**content, "Extra": 1})),
}

REFUSALS: Breakages = {
    "header-required": asking(both(document(), NO_METADATA), with_metadata),
    "header-required-since": asking(both(document("2019-01-01"), NO_METADATA), with_metadata),
    "header-not-required-before": answering(
        both(document("2017-03-01"), NO_METADATA), refusal(400)
    ),
    "header-other-value": asking(has("Metadata", "false"), with_metadata),
    "header-required-words": answering(both(document(), NO_METADATA), refusal(400)),
    "forwarded": asking(has("X-Forwarded-For"), lambda asked: asked.without("X-Forwarded-For")),
    "forwarded-otherwise": asking(has("Via"), lambda asked: asked.without("Via")),
    "page-origin": asking(has("Origin", "null"), lambda asked: asked.without("Origin")),
    "page-site": asking(
        has("Sec-Fetch-Site", "same-origin"), lambda asked: asked.without("Sec-Fetch-Site")
    ),
    "fetch-mode": answering(has("Sec-Fetch-Mode"), refusal(403)),
    "host-foreign": asking(
        has("Host", "rebinding.example"), lambda asked: asked.having("Host", "127.0.0.1")
    ),
    "host-one": asking(lacks("Host"), lambda asked: asked.having("Host", "127.0.0.1")),
    "version-missing": asking(unversioned, as_newest),
    "version-empty": asking(lambda asked: asked.target.endswith("api-version="), as_newest),
    "version-missing-newest": giving(unversioned, without_newest),
    "version-unknown": answering(document("1999-12-31"), refusal(400)),
    "version-unknown-newest": giving(document("1999-12-31"), without_newest),
    "version-latest": asking(document("latest"), as_newest),
    "version-probe": answering(document("2024-07-09"), refusal(400)),
    "query-repeated": asking(lambda asked: asked.target.count("api-version") > 1, as_newest),
    "path-unknown": answering(path("/metadata/nothing"), ERROR),
    "path-of-others": answering(path("/v1.json"), OK),
    "verb-405": answering(lambda asked: asked.method == "PUT", refusal(400)),
    "verb-allow": giving(lambda asked: asked.method == "PUT", lambda g: g.without("Allow")),
    "verb-head": giving(lambda asked: asked.method == "HEAD", lambda g: replace(g, tail=b"{}")),
    "error-object": giving(lambda asked: asked.method == "PUT", lambda g: g.saying(b"no")),
    "error-content-type": giving(
        path("/metadata/nothing"), lambda g: g.having("Content-Type", "text/plain")
    ),
}

VERSIONS: Breakages = {
    **{
        f"version-{version}": answering(both(document(version), METADATA), refusal(404))
        for version in ("2017-03-01", "2017-08-01", "2017-11-01")
    },
    **{
        f"version-{version}": answering(both(document(version), METADATA), refusal(404))
        for version in ("2019-01-01", "2019-04-01", "2019-08-01")
    },
    "version-same-incarnation": giving(
        document("2019-01-01"),
        in_json(lambda c: {**c, "DocumentIncarnation": c["DocumentIncarnation"] + 100}),
    ),
}


def odd_tags() -> Tampering:
    """An ETag that is no incarnation, and that is understood when it comes back."""

    def ask(asked: Asked) -> Asked:
        value = asked.header("If-None-Match")
        return asked if value is None else asked.having("If-None-Match", value.replace("x", ""))

    def give(asked: Asked, given: Given) -> Given:
        value = given.header("ETag")
        return given if value is None else given.having("ETag", value.replace('"', '"x', 1))

    return Tampering(ask, give)


def bare_etag(given: Given) -> Given:
    return given.having("ETag", (given.header("ETag") or "").strip('"'))


def only_304(change: Callable[[Given], Given]) -> Callable[[], Tampering]:
    return giving(document(), lambda given: change(given) if given.status == 304 else given)


UNCHANGED = Given(304)

TAGS: Breakages = {
    "etag-present": giving(document(), lambda g: g.without("ETag")),
    "etag-value": odd_tags,
    "etag-quoted": giving(document(), bare_etag),
    "tag-echoed": on_nth(1, CURRENT, lambda when: asking(when, without_tag)),
    "tag-quoted": on_nth(2, CURRENT, lambda when: asking(when, without_tag)),
    "tag-bare": asking(tag(r"[1-9]\d*"), without_tag),
    "tag-weak": asking(tag(r'W/"\d+"'), without_tag),
    "tag-list": asking(has("If-None-Match", ","), without_tag),
    "tag-star": asking(tag(r"\*"), without_tag),
    "tag-other": answering(tag("null"), UNCHANGED),
    "tag-every-version": asking(document("2019-01-01"), without_tag),
    "unchanged-no-body": only_304(lambda given: replace(given, tail=b"{}")),
    "unchanged-etag": only_304(lambda given: given.having("ETag", '"0"')),
}

WAITS: Breakages = {
    "wait-held": asking(has("Prefer"), lambda asked: asked.without("Prefer")),
    "wait-not-asked": on_nth(5, CURRENT, lambda when: giving(when, delayed)),
    "wait-other-tag": giving(both(tag('"0"'), has("Prefer")), delayed),
    "wait-without-tag": giving(both(lacks("If-None-Match"), has("Prefer")), delayed),
    "wait-other-preference": answering(has("Prefer", "respond-async"), refusal(400)),
    "wait-woken": answering(has("Prefer", "wait=60"), UNCHANGED),
}


def closing(when: When) -> Callable[[], Tampering]:
    return giving(when, lambda given: replace(given, then_close=True))


def flagged(flag: str) -> Callable[[], Tampering]:
    def make() -> Tampering:
        tampering = Tampering()
        setattr(tampering, flag, True)
        return tampering

    return make


CONNECTIONS: Breakages = {
    "keep-alive": giving(document(), good(lambda g: replace(g, then_close=True))),
    "close-said": closing(unversioned),
    "close-asked": giving(has("Connection", "close"), lambda g: g.without("Connection")),
    "pipelined": flagged("swaps_pipelined"),
    "in-pieces": flagged("halves_refused"),
    "absolute-form": answering(lambda a: a.target.startswith("http://"), refusal(404)),
    "others-go-on": flagged("halves_block"),
    "not-http": answering(lambda asked: asked.method == "", OK),
}

INSTANCE = "/metadata/instance"


def compute(asked: Asked) -> bool:
    return asked.path in (INSTANCE, f"{INSTANCE}/compute")


def in_compute(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[], Tampering]:
    """Change the compute part wherever it is shown."""

    def changed(content: Any) -> Any:
        if "compute" in content:
            return {**content, "compute": change(content["compute"])}
        return change(content)

    return giving(compute, in_json(changed))


def with_colons(content: Any) -> Any:
    content["network"]["interface"][0]["macAddress"] = "00:0D:3A:00:00:00"
    return content


NEIGHBOURS: Breakages = {
    "versions-listed": giving(
        path("/metadata/versions"), in_json(lambda c: {"apiVersions": c["apiVersions"][::-1]})
    ),
    "versions-header": asking(path("/metadata/versions"), with_metadata),
    "instance-200": giving(path(INSTANCE), in_json(lambda c: {"compute": c["compute"]})),
    "instance-name": in_compute(lambda c: {**c, "name": ""}),
    "instance-vm-id": in_compute(lambda c: {**c, "vmId": ""}),
    "instance-strings": in_compute(lambda c: {**c, "platformFaultDomain": 0}),
    "instance-network": giving(path(INSTANCE), in_json(with_colons)),
    "instance-part": giving(path(f"{INSTANCE}/compute"), in_json(lambda _: {})),
    "instance-text": giving(
        lambda asked: "format=text" in asked.target, lambda g: g.saying(g.body + b"\n")
    ),
    "instance-leaf": answering(
        lambda a: a.target.startswith(f"{INSTANCE}/compute/name?") and "format" not in a.target, OK
    ),
    "instance-unknown": answering(path(f"{INSTANCE}/compute/nothing"), refusal(400)),
    "instance-header": asking(both(path(INSTANCE), NO_METADATA), with_metadata),
    "instance-version": giving(lambda asked: asked.target == INSTANCE, without_newest),
}


def posting(body: bytes) -> When:
    return lambda asked: asked.is_post() and asked.body == body


def only_unknown(asked: Asked) -> bool:
    return asked.is_post() and asked.event_ids == [UNKNOWN_ID]


POSTS: Breakages = {
    "post-no-body": answering(both(posting(b""), lacks("Expect")), OK),
    "post-not-json": answering(posting(b'{"StartRequests":[{"EventId":'), OK),
    "post-wrong-shape": answering(posting(b'{"StartRequests":[{}]}'), OK),
    "post-no-header": asking(both(NO_METADATA, lambda asked: asked.is_post(NEWEST)), with_metadata),
    "post-no-version": asking(lambda asked: asked.is_post() and asked.version is None, as_newest),
    "post-unknown-id": answering(only_unknown, OK),
    "post-expect": answering(has("Expect"), ERROR),
}

BREAKAGES: Breakages = {
    **ANSWERS,
    **REFUSALS,
    **VERSIONS,
    **TAGS,
    **WAITS,
    **CONNECTIONS,
    **NEIGHBOURS,
    **POSTS,
}
