"""Checks of POSTs that start nothing: malformed ones, and unknown ids."""

from __future__ import annotations

from forewarn.verify.answers import expect_refused, expect_status
from forewarn.verify.check import Level, Topic, expect
from forewarn.verify.documents import NEWEST
from forewarn.verify.event_following import approval
from forewarn.verify.probe import Probe, path_of

TOPIC = Topic("posts", "POSTs that start nothing", level=Level.APPROVE, needs=("get-200",))

UNKNOWN_ID = "00000000-0000-4000-8000-00000BADC0DE"
# JSON that approves nothing.
WRONG_SHAPES = (
    b"{}",
    b"[]",
    b'{"StartRequests":"all"}',
    b'{"StartRequests":[{}]}',
    b'{"StartRequests":[{"EventId":5}]}',
)


@TOPIC.check(
    "post-no-body",
    "A POST without a body is refused with 400.",
    "A5",
    not_checked="A Content-Length of 0; a POST that gives no length at all is not tried.",
)
def post_no_body(probe: Probe) -> None:
    expect_status(probe.post(b""), 400)


@TOPIC.check(
    "post-not-json",
    "A POST that is not JSON is refused with 400.",
    "A5, E16",
    not_checked="JSON that is cut off; odd bytes, other encodings and huge bodies are not tried.",
)
def post_not_json(probe: Probe) -> None:
    expect_status(probe.post(b'{"StartRequests":[{"EventId":'), 400)


@TOPIC.check(
    "post-wrong-shape",
    "A POST of another shape is refused with 400.",
    "A5, E16",
    not_checked="Five shapes; a good approval inside a body that is wrong elsewhere is not tried.",
)
def post_wrong_shape(probe: Probe) -> None:
    for body in WRONG_SHAPES:
        answer = probe.post(body)
        expect(answer.status == 400, f"{body.decode()} is answered {answer}", "400")


@TOPIC.check(
    "post-unknown-id",
    "A POST with an EventId that this VM never had is refused with 400.",
    "Forewarn's choice (not known of the real service, A6)",
    not_checked="One id that never was; the id of an event of another scope is not tried.",
    choice=True,
)
def post_unknown_id(probe: Probe) -> None:
    expect_status(probe.post(approval(UNKNOWN_ID)), 400)


@TOPIC.check(
    "post-expect",
    "A POST that expects 100-continue is told to go on, or is refused, before it sends its body.",
    "contract 10, RFC 9110, 10.1.1",
    not_checked="A client that then sends no body, or sends it without waiting, is not tried.",
)
def post_expect(probe: Probe) -> None:
    body = approval(UNKNOWN_ID)
    request = probe.request("POST", path_of(NEWEST), "Expect: 100-continue", body=body)
    probe.turn()
    with probe.connection() as connection:
        connection.send(request.removesuffix(body))
        answer = connection.next_answer()
        if answer.status != 100:
            expect_refused(answer)
            return
        connection.send(body)
        final = connection.answer()
    expect(final.status in (200, 400), final, "200 or 400")
