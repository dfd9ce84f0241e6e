"""Checks of other paths, and of other methods than GET and POST."""

from __future__ import annotations

from forewarn.verify.answers import expect_refused, expect_status
from forewarn.verify.check import Topic, expect
from forewarn.verify.documents import NEWEST
from forewarn.verify.probe import Probe, path_of

TOPIC = Topic("refusal", "What is refused", needs=("get-200",))

QUICK_S = 2.0


@TOPIC.check(
    "path-unknown",
    "An unknown path is refused with 404.",
    "E12",
    not_checked="One path below /metadata; what else is served elsewhere is not looked for.",
)
def path_unknown(probe: Probe) -> None:
    expect_status(probe.get(f"/metadata/nothing?api-version={NEWEST}"), 404)


@TOPIC.check(
    "path-of-others",
    "Paths of other clouds, and /scheduledevents alone, get a quick status 4xx.",
    "contract 10",
    not_checked="Three paths; the many others that software of other clouds asks for are not "
    "tried.",
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
    not_checked="PUT alone; DELETE, PATCH, OPTIONS and unknown verbs are not tried.",
)
def verb_405(probe: Probe) -> None:
    # The only request of a run that reads which is no GET or HEAD; it has no body and no meaning.
    expect_status(probe.ask(probe.request("PUT", path_of(NEWEST), body=b"")), 405)


@TOPIC.check(
    "verb-allow",
    "The 405 says in Allow that GET and POST are accepted.",
    "RFC 9110, 15.5.6",
    not_checked="More verbs may be named beside the two; whether those work is not tried.",
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
    not_checked="Its headers are not compared with those of a GET; a body after 20 ms is not seen.",
)
def verb_head(probe: Probe) -> None:
    probe.turn()
    with probe.connection() as connection:
        connection.send(probe.request("HEAD", path_of(NEWEST)))
        answer = connection.answer(to_head=True)
        expect_status(answer, 200, 400, 405)
        expect(connection.quiet_for(0.02), "bytes after the head", "no body")
