"""Every shape of an approval's body: what is understood, and that all else is one kind of no."""

from __future__ import annotations

import json
import random

import pytest

from forewarn.wire.approvals import START_REQUESTS_MAX, parse
from forewarn.wire.problems import GuestProblem

FIRST = "0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0"
SECOND = "11111111-4B5A-6978-8796-A5B4C3D2E1F0"

# A refusal must stay small whatever was sent.
ANSWER_BYTES_MAX = 1_024


def body(*event_ids: object) -> bytes:
    return json.dumps({"StartRequests": [{"EventId": each} for each in event_ids]}).encode()


def test_ids_are_upper_cased_in_the_order_sent_and_each_once() -> None:
    assert parse(body(SECOND.lower(), FIRST, SECOND, FIRST.lower())) == (SECOND, FIRST)


@pytest.mark.parametrize("incarnation", [b"7", b'"7"', b"null", b"[]", b'{"a":[1,{}]}', b"-1.5e9"])
def test_a_document_incarnation_of_any_kind_is_ignored(incarnation: bytes) -> None:
    sent = b'{"DocumentIncarnation":%s,"StartRequests":[{"EventId":"%s"}]}'
    assert parse(sent % (incarnation, FIRST.encode())) == (FIRST,)


def test_unknown_fields_are_ignored_at_both_levels() -> None:
    sent = {"StartRequests": [{"EventId": FIRST, "Why": [1, {"a": None}]}], "Extra": {"b": True}}
    assert parse(json.dumps(sent).encode()) == (FIRST,)


def test_white_space_and_a_byte_order_mark_are_tolerated() -> None:
    pretty = json.dumps({"StartRequests": [{"EventId": FIRST}]}, indent=4).replace("\n", "\r\n")
    assert parse(b"\xef\xbb\xbf \r\n" + pretty.encode() + b"\r\n") == (FIRST,)


def test_as_many_ids_as_the_limit_are_accepted_and_one_more_is_refused() -> None:
    ids = [f"{n:08X}-0000-4000-8000-000000000000" for n in range(START_REQUESTS_MAX + 1)]
    assert START_REQUESTS_MAX >= 1_000
    assert parse(body(*ids[:-1])) == tuple(ids[:-1])
    with pytest.raises(GuestProblem) as caught:
        parse(body(*ids))
    assert caught.value.reason == "too-many-start-requests"
    assert str(START_REQUESTS_MAX).encode() in caught.value.body


NESTED = 100_000

MALFORMED: dict[str, bytes] = {
    "nothing": b"",
    "only a byte order mark": b"\xef\xbb\xbf",
    "only white space": b" \r\n",
    "an array": b"[]",
    "an array of an object": b"[{}]",
    "null": b"null",
    "a string": b'"x"',
    "a number": b"7",
    "an empty object": b"{}",
    "requests in lower case": b'{"startrequests":[{"EventId":"a"}]}',
    "requests a string": b'{"StartRequests":"x"}',
    "requests an object": b'{"StartRequests":{"EventId":"a"}}',
    "requests null": b'{"StartRequests":null}',
    "requests a number": b'{"StartRequests":1}',
    "requests empty": b'{"StartRequests":[]}',
    "a request that is a string": b'{"StartRequests":["a"]}',
    "a request that is null": b'{"StartRequests":[null]}',
    "a request that is an array": b'{"StartRequests":[[]]}',
    "a request without an id": b'{"StartRequests":[{}]}',
    "an id that is a number": body(3),
    "an id that is null": body(None),
    "an id that is true": body(True),  # noqa: FBT003 - the body is the point
    "an id that is an array": body(["a"]),
    "an id that is an object": body({"EventId": "a"}),
    "a good id and a bad one": body(FIRST, 3),
    "cut short": body(FIRST)[:-3],
    "something after the end": body(FIRST) + b"x",
    "two documents": body(FIRST) + body(FIRST),
    "single quotes": b"{'StartRequests':[{'EventId':'a'}]}",
    "a comma too many": b'{"StartRequests":[{"EventId":"a"},]}',
    "form fields": b"StartRequests=a&EventId=b",
    "NaN": b'{"DocumentIncarnation":NaN,"StartRequests":[{"EventId":"a"}]}',
    "a raw control character": b'{"StartRequests":[{"EventId":"a\n"}]}',
    "half a surrogate pair": b'{"StartRequests":[{"EventId":"\\ud800 and more to follow"}]}',
    "the other half": b'{"StartRequests":[{"EventId":"\\udc00 and more to follow"}]}',
    "bad UTF-8 in an id": b'{"StartRequests":[{"EventId":"\xff"}]}',
    "bad UTF-8 in a skipped field": b'{"x":"\xff","StartRequests":[{"EventId":"a"}]}',
    "bad UTF-8 in a name": b'{"\xff":1,"StartRequests":[{"EventId":"a"}]}',
    "a surrogate in UTF-8": b'{"StartRequests":[{"EventId":"\xed\xa0\x80"}]}',
    "UTF-16": body(FIRST).decode().encode("utf-16"),
    "zeros": b"\x00" * 64,
    "arrays without end": b"[" * NESTED,
    "objects without end": b'{"a":' * NESTED,
    "a deep field that is skipped": b'{"x":%s%s,"StartRequests":[{"EventId":"a"}]}'
    % (b"[" * NESTED, b"]" * NESTED),
    "a deep id": b'{"StartRequests":[{"EventId":%s' % (b"[" * NESTED),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_body_is_refused_with_what_would_be_accepted(name: str) -> None:
    with pytest.raises(GuestProblem) as caught:
        parse(MALFORMED[name])
    problem = caught.value
    assert (problem.status, problem.reason) == (400, "malformed-body")
    assert "StartRequests" in json.loads(problem.body)["error"]
    assert len(problem.body) < ANSWER_BYTES_MAX


def mutated(rng: random.Random, seed_body: bytes) -> bytes:
    """A few random edits: bytes changed, cut out, put in or repeated."""
    data = bytearray(seed_body)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0 if at < len(data):
                data[at] = rng.randrange(256)
            case 1:
                del data[at : at + rng.randint(1, 8)]
            case 2:
                data[at:at] = rng.choice((b"{", b"}", b"[", b"]", b'"', b"\\u", b",", b"null"))
            case 3:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            case _:
                data[at:at] = data[at : at + rng.randint(1, 40)]
    return bytes(data)


def outcome(sent: bytes) -> tuple[tuple[str, ...], GuestProblem | None]:
    try:
        return parse(sent), None
    except GuestProblem as problem:
        return (), problem


@pytest.mark.parametrize("seed", range(8))
def test_no_bytes_lead_to_anything_but_ids_or_a_refusal(seed: int) -> None:
    rng = random.Random(seed)
    seeds = (body(FIRST), body(FIRST, SECOND), *MALFORMED.values())
    samples = [each for each in seeds if len(each) < 1_000]
    understood = 0
    for _ in range(3_000):
        ids, problem = outcome(mutated(rng, rng.choice(samples)))
        if problem is not None:
            assert problem.status == 400
            assert len(problem.body) < ANSWER_BYTES_MAX
            json.loads(problem.body)
            continue
        understood += 1
        assert ids
        assert len(set(ids)) == len(ids)
        for each in ids:
            assert each == each.upper()
            each.encode()  # has a UTF-8 form, so a store can keep it
    assert understood, "the generator makes nothing that is understood, so it proves little"
