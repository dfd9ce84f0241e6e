"""A VM over its rate: what it is answered and when, and how little it costs the others.

The first ten 429 of a second at once; then each connection waits a second before it is read again.
"""

from __future__ import annotations

from forewarn.endpoint.limits import (
    CONNECTS_PER_S,
    REFUSAL_WAITS_S,
    REFUSALS_AT_ONCE,
    REFUSALS_PER_S,
    Bucket,
    Refusals,
)
from support.endpoint_memory import MemoryWorld, Wire, in_memory
from support.endpoint_world import APPROVAL, POLL, URL, get, post, running

META = "Metadata: true"
VERSIONS = get("/metadata/versions", META)
WITHIN_S = 2.0
OTHER = "127.0.0.3"


def settle(world: MemoryWorld) -> None:
    """Turn until nothing more happens without time."""
    quiet = 0
    while quiet < 3:
        busy = len(world.endpoint.turns)
        world.turn()
        quiet = 0 if busy else quiet + 1


def expect_all_answered(wire: Wire, count: int, since_s: float) -> None:
    """Every request has its 200 or its 429 with Retry-After, in time."""
    assert len(wire.said) == count
    assert set(wire.statuses) <= {200, 429}
    for answer in wire.said:
        assert answer.at_s - since_s <= WITHIN_S
        assert answer.status == 200 or int(answer.header("Retry-After") or 0) >= 1


def test_the_first_ten_refusals_of_a_second_are_written_at_once() -> None:
    refusals = Refusals()
    assert [refusals.may_write(10.0, 10) for _ in range(12)] == [True] * 10 + [False] * 2
    assert not refusals.may_write(10.9, 10)
    assert refusals.may_write(10.9, 11)
    assert [refusals.may_write(11.0, 10) for _ in range(11)] == [True] * 10 + [False]


def test_asking_when_takes_no_token() -> None:
    bucket = Bucket(5)
    assert [bucket.retry_s(1.0) for _ in range(100)] == [0.0] * 100
    for _ in range(5):
        bucket.take(1.0)
    assert bucket.retry_s(1.0) == bucket.take(1.0) > 0


def test_a_row_beyond_the_rate_gets_ten_refusals_at_once_and_the_rest_after_a_second() -> None:
    with in_memory(requests_per_s=5) as world:
        wire = world.connect()
        since_s = world.now_s
        world.send(wire, VERSIONS * 100)
        settle(world)
        assert wire.statuses == [200] * 5 + [429] * REFUSALS_AT_ONCE
        world.pass_s(REFUSAL_WAITS_S * 0.9)
        assert len(wire.said) == 5 + REFUSALS_AT_ONCE
        world.pass_s(REFUSAL_WAITS_S * 0.2)
        settle(world)
        expect_all_answered(wire, 100, since_s)


def test_the_same_with_polls_that_are_known_byte_for_byte() -> None:
    with in_memory(requests_per_s=5) as world:
        wire = world.connect()
        world.send(wire, POLL)
        settle(world)
        for _ in range(30):
            world.send(wire, POLL)
        settle(world)
        assert wire.statuses == [200] * 5 + [429] * REFUSALS_AT_ONCE
        world.pass_s(REFUSAL_WAITS_S + 0.01)
        settle(world)
        assert len(wire.said) > 16


def test_two_thousand_five_hundred_requests_in_one_row_are_all_answered_in_time() -> None:
    row = b"".join(get(URL, META, f"X-Number: {number}") for number in range(1_250)) + POLL * 1_250
    with in_memory(requests_per_s=5) as world:
        wire = world.connect()
        for again in range(1, 4):
            since_s = world.now_s
            before = len(wire.said)
            world.send(wire, row)
            while len(wire.said) < 2_500 * again:
                world.pass_s(0.01)
                assert world.now_s - since_s <= WITHIN_S
            assert set(wire.statuses[before:]) <= {200, 429}


def test_who_asks_again_at_once_is_answered_once_a_second() -> None:
    with in_memory(requests_per_s=0.1) as world:
        wire = world.connect()
        began_s = world.now_s
        while world.now_s - began_s < 10:
            before = len(wire.said)
            since_s = world.now_s
            world.send(wire, VERSIONS)
            while len(wire.said) == before:
                world.pass_s(0.01)
            assert wire.said[-1].at_s - since_s <= WITHIN_S
        # The burst of five, ten at once, then one each second and ten more as each second begins.
        assert len(wire.said) <= 5 + 11 * 10 + 10


def test_the_ten_are_the_vm_s_and_not_each_connection_s() -> None:
    with in_memory(requests_per_s=5) as world:
        wires = [world.connect() for _ in range(40)]
        other = world.connect(OTHER)
        since_s = world.now_s
        for wire in wires:
            world.send(wire, VERSIONS)
        settle(world)
        statuses = [status for wire in wires for status in wire.statuses]
        assert sorted(statuses) == [200] * 5 + [429] * REFUSALS_AT_ONCE
        world.send(other, VERSIONS)
        settle(world)
        assert other.statuses == [200]
        world.pass_s(REFUSAL_WAITS_S + 0.01)
        settle(world)
        for wire in wires:
            expect_all_answered(wire, 1, since_s)


def test_a_connection_that_waits_is_not_read() -> None:
    with in_memory(requests_per_s=5) as world:
        wire = world.connect()
        world.send(wire, VERSIONS * 20)
        settle(world)
        world.send(wire, VERSIONS * 10_000)
        settle(world)
        assert wire.unread > 1


def test_one_vm_is_written_no_more_than_its_refusals_of_a_second() -> None:
    with in_memory(requests_per_s=5) as world:
        wires = [world.connect() for _ in range(100)]
        for wire in wires:
            world.send(wire, VERSIONS * 400)
        world.pass_s(0.5)
        began = sum(len(wire.said) for wire in wires)
        world.pass_s(5.0)
        written = sum(len(wire.said) for wire in wires) - began
        allowed_in_a_second = REFUSALS_PER_S + 5 + len(wires)
        assert REFUSALS_PER_S * 4 <= written <= allowed_in_a_second * 6


def test_a_vm_over_its_rate_cannot_push_the_others_heads_out() -> None:
    with in_memory(requests_per_s=5) as world:
        polite = world.connect(OTHER)
        world.send(polite, POLL)
        settle(world)
        wire = world.connect()
        row = b"".join(get(URL, META, f"X-Number: {number}") for number in range(2_000))
        world.send(wire, row)
        world.pass_s(3.0)
        settle(world)
        assert len(wire.said) == 2_000
        assert POLL in world.endpoint.heads
        assert len(world.endpoint.heads) <= 1 + wire.statuses.count(200)


def test_a_poll_that_waits_is_refused_in_its_place_and_no_poll() -> None:
    with in_memory(requests_per_s=0.1) as world:
        wire = world.connect()
        world.send(wire, get("/nowhere") * 5 + VERSIONS * 10 + POLL + post(APPROVAL))
        settle(world)
        assert wire.statuses == [404] * 5 + [429] * 10
        world.pass_s(REFUSAL_WAITS_S + 0.01)
        settle(world)
        assert wire.statuses == [404] * 5 + [429] * 12
        assert world.documents.polled() == {}
        assert world.service.approved == []


def test_a_refusal_that_waits_says_how_long_it_still_is() -> None:
    with in_memory(requests_per_s=0.1) as world:
        wire = world.connect()
        world.send(wire, VERSIONS * 16)
        world.pass_s(REFUSAL_WAITS_S + 0.01)
        settle(world)
        assert [answer.header("Retry-After") for answer in wire.said[-2:]] == ["10", "9"]


def test_a_refusal_that_waits_still_closes_and_leaves_out_a_body_where_asked() -> None:
    with in_memory(requests_per_s=0.1) as world:
        wire = world.connect()
        head = get(URL, META, "Connection: close", method="HEAD")
        world.send(wire, VERSIONS * 15 + head)
        world.pass_s(REFUSAL_WAITS_S + 0.01)
        settle(world)
        last = wire.said[-1]
        assert (last.status, last.header("Connection")) == (429, "close")
        assert last.raw.endswith(b"\r\n\r\n")
        assert wire.closed


def test_over_its_rate_a_vm_s_body_without_length_is_not_read_to_its_end() -> None:
    with in_memory(requests_per_s=0.1) as world:
        first = world.connect()
        world.send(first, VERSIONS * 5)
        settle(world)
        wire = world.connect()
        head = get(URL, META, "Transfer-Encoding: chunked", method="POST")
        world.send(wire, head + b"1\r\n \r\n")
        settle(world)
        assert wire.statuses == [429]
        assert wire.said[0].header("Connection") == "close"
        assert wire.said[0].header("Retry-After") is not None


def test_what_is_no_request_counts_as_one() -> None:
    with in_memory(requests_per_s=0.1) as world:
        for _ in range(5):
            wire = world.connect()
            world.send(wire, b"no request at all\r\n\r\n")
            settle(world)
            assert wire.statuses == [400]
        wire = world.connect()
        world.send(wire, VERSIONS)
        settle(world)
        assert wire.statuses == [429]


def test_a_storm_of_connects_is_cut_off_and_another_vm_does_not_feel_it() -> None:
    with in_memory(requests_per_s=5) as world:
        for _ in range(int(CONNECTS_PER_S)):
            wire = world.connect()
            assert not wire.closed
            world.turn(wire.vanish)
        storm = [world.connect() for _ in range(50)]
        settle(world)
        assert all(wire.closed and not wire.said for wire in storm)
        assert world.endpoint.counters.refusals["connects"] == 50
        other = world.connect(OTHER)
        world.send(other, POLL)
        settle(world)
        assert other.statuses == [200]
        world.pass_s(1.0)
        again = world.connect()
        world.send(again, POLL)
        settle(world)
        assert again.statuses == [200]


def test_strangers_share_one_limit_on_connects_and_no_vm_feels_it() -> None:
    with in_memory(requests_per_s=5) as world:
        for number in range(int(CONNECTS_PER_S)):
            wire = world.connect(f"127.9.9.{number % 200 + 1}")
            world.turn(wire.vanish)
        stranger = world.connect("127.9.8.1")
        settle(world)
        assert stranger.closed
        assert not stranger.said
        known = world.connect()
        world.send(known, POLL)
        settle(world)
        assert known.statuses == [200]


def test_who_may_ask_more_often_may_connect_more_often() -> None:
    with in_memory(requests_per_s=CONNECTS_PER_S * 2) as world:
        for _ in range(int(CONNECTS_PER_S) + 50):
            wire = world.connect()
            assert not wire.closed
            world.turn(wire.vanish)


def test_over_sockets_a_flood_on_one_connection_leaves_another_vm_its_answers() -> None:
    with running(requests_per_s=5) as world:
        greedy, other = world.client(), world.client(OTHER)
        greedy.flood(VERSIONS * 100)
        for _ in range(5):
            assert other.ask(POLL).status == 200
        answers = [greedy.answer() for _ in range(500)]
        assert {answer.status for answer in answers} == {200, 429}
        assert all(a.status == 200 or int(a.headers["retry-after"]) >= 1 for a in answers)
