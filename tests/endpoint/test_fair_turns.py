"""Requests wait for their turn: what one connection, and one VM, may do before others go on."""

from __future__ import annotations

import asyncio
import gc

import pytest
from msgspec.structs import replace

from forewarn.control.hosts.own_vms import vm_as_shown
from forewarn.endpoint.fair_turns import FairTurns
from forewarn.endpoint.limits import (
    REQUESTS_PER_TURN,
    REQUESTS_PER_TURN_OF_CONNECTION,
    Bucket,
    Limits,
    Timeouts,
)
from forewarn.endpoint.protocol import Connection
from forewarn.endpoint.registry import Guest, Page
from support.endpoint_memory import MemoryWorld, Wire, in_memory
from support.endpoint_world import APPROVAL, POLL, URL, WEB, FakeService, a_vm, get, post
from support.shown_scopes import as_shown

META = "Metadata: true"
VERSIONS = get("/metadata/versions", META)
NOWHERE = get("/nowhere")
OTHER = "127.0.0.3"


def most_in_a_turn(world: MemoryWorld, *wires: Wire) -> int:
    """Turn until nobody waits; the most answers that one turn has given."""
    most = 0
    while len(world.endpoint.turns) or any(wire.unread for wire in wires):
        before = sum(len(wire.said) for wire in wires)
        world.turn()
        most = max(most, sum(len(wire.said) for wire in wires) - before)
    return most


def test_a_turn_handles_a_bounded_number_of_one_connection_s_requests() -> None:
    with in_memory() as world:
        wire = world.connect()
        world.send(wire, VERSIONS * 1_000)
        assert most_in_a_turn(world, wire) <= REQUESTS_PER_TURN
        assert wire.statuses == [200] * 1_000


def test_another_vm_is_answered_between_two_turns_of_one_that_sends_without_end() -> None:
    with in_memory() as world:
        greedy, other = world.connect(), world.connect(OTHER)
        world.send(greedy, VERSIONS * 10_000)
        world.turn()
        for request in (VERSIONS, get(URL, META), POLL):
            before = len(other.said)
            world.send(other, request)
            world.turn()
            world.turn()
            assert len(other.said) == before + 1
        assert len(greedy.said) < 10_000


def test_many_connections_of_one_vm_have_no_more_turns_than_one() -> None:
    with in_memory() as world:
        greedy = [world.connect() for _ in range(100)]
        other = world.connect(OTHER)
        for wire in greedy:
            world.send(wire, NOWHERE * 100)
        world.send(other, NOWHERE)
        assert world.turns_until(lambda: bool(other.said)) <= 2
        assert most_in_a_turn(world, *greedy) <= REQUESTS_PER_TURN
        assert all(wire.statuses == [404] * 100 for wire in greedy)


def test_connections_of_one_vm_take_turns_with_each_other() -> None:
    with in_memory() as world:
        first, second = world.connect(), world.connect()
        world.send(first, NOWHERE * 1_000)
        world.send(second, NOWHERE)
        assert world.turns_until(lambda: bool(second.said)) <= 2
        assert len(first.said) < 1_000


def test_answers_keep_their_order_over_many_turns() -> None:
    with in_memory() as world:
        wire = world.connect()
        row = POLL + VERSIONS + NOWHERE + post(APPROVAL) + POLL + get(URL)
        world.send(wire, row * 50)
        world.turns_until(lambda: len(wire.said) == 300)
        assert wire.statuses == [200, 200, 404, 200, 200, 400] * 50


def test_a_repeated_poll_does_not_overtake_what_waits_for_its_turn() -> None:
    with in_memory() as world:
        wire = world.connect()
        world.send(wire, POLL)
        world.turns_until(lambda: len(wire.said) == 1)
        world.send(wire, NOWHERE * 100)
        world.send(wire, POLL)
        world.turns_until(lambda: len(wire.said) == 102)
        assert wire.statuses == [200] + [404] * 100 + [200]


def test_a_repeated_poll_waits_for_no_turn() -> None:
    with in_memory() as world:
        wire = world.connect()
        world.send(wire, POLL)
        world.turns_until(lambda: len(wire.said) == 1)
        assert wire._connection is not None
        world.turn(wire._connection.data_received, POLL)
        assert wire.statuses == [200, 200]
        assert len(world.endpoint.turns) == 0


def test_what_was_sent_before_the_client_closed_its_side_is_all_answered() -> None:
    with in_memory() as world:
        wire = world.connect()
        world.send(wire, VERSIONS * 500, end=True)
        world.turns_until(lambda: wire.closed)
        assert wire.statuses == [200] * 500


def test_what_waits_behind_an_approval_is_answered_although_the_client_closed_its_side() -> None:
    with in_memory() as world:
        wire = world.connect()
        world.service.held = asyncio.Event()
        world.send(wire, post(APPROVAL) + VERSIONS * 100, end=True)
        world.turns_until(lambda: wire.unread == 0)
        assert wire.statuses == []
        held = world.service.held
        world.turn(held.set)
        world.turns_until(lambda: wire.closed)
        assert wire.statuses == [200] * 101
        assert [answer.header("Connection") for answer in wire.said] == [None] * 100 + ["close"]


def test_a_client_that_stops_taking_answers_stops_the_turns_and_later_gets_the_rest() -> None:
    with in_memory() as world:
        wire = world.connect()
        wire.clogged_after = 20
        world.send(wire, VERSIONS * 100)
        world.turns_until(lambda: len(wire.said) == 20)
        for _ in range(10):
            world.turn()
        assert len(wire.said) == 20
        assert len(world.endpoint.turns) == 0
        world.turn(wire.take_again)
        world.turns_until(lambda: len(wire.said) == 100)


def test_it_gets_the_rest_also_after_it_has_closed_its_side() -> None:
    with in_memory() as world:
        wire = world.connect()
        wire.clogged_after = 1
        world.service.held = asyncio.Event()
        world.send(wire, post(APPROVAL) + VERSIONS * 30, end=True)
        world.turns_until(lambda: wire.unread == 0)
        held = world.service.held
        world.turn(held.set)
        world.turns_until(lambda: len(wire.said) == 1)
        world.turn(wire.take_again)
        world.turns_until(lambda: wire.closed)
        assert wire.statuses == [200] * 31


def test_pausing_and_resuming_while_it_waits_asks_for_no_second_turn() -> None:
    with in_memory() as world:
        wire = world.connect()
        connection = wire._connection
        assert connection is not None

        def restless() -> None:
            wire.send(VERSIONS * 40)
            connection.data_received(VERSIONS)
            for _ in range(3):
                connection.pause_writing()
                connection.resume_writing()
            assert len(world.endpoint.turns) == 1

        world.turn(restless)
        world.turns_until(lambda: len(wire.said) == 41)
        assert len(world.endpoint.turns) == 0


def test_polls_that_wait_in_the_middle_of_a_row_are_woken_and_the_row_goes_on() -> None:
    with in_memory() as world:
        wire = world.connect()
        waiting = get(URL, META, 'If-None-Match: "2"', "Prefer: wait=60")
        world.send(wire, VERSIONS * 20 + waiting + NOWHERE * 20)
        world.turns_until(lambda: world.endpoint.counters.parked == 1)
        assert wire.statuses == [200] * 20
        world.turn(world.documents.show, as_shown(replace(WEB, incarnation=3)))
        world.turns_until(lambda: len(wire.said) == 41)
        assert wire.statuses == [200] * 21 + [404] * 20


@pytest.mark.parametrize("how", ["vanish", "cut", "close-header", "endpoint"])
@pytest.mark.parametrize("rate", [0, 5])
def test_nothing_is_left_of_a_connection_that_ends_while_it_waits(how: str, rate: float) -> None:
    with in_memory(requests_per_s=rate) as world:
        wire = world.connect()
        ending = get("/nowhere", "Connection: close") if how == "close-header" else NOWHERE
        world.send(wire, NOWHERE * 3 + ending + NOWHERE * 500)
        world.turns_until(lambda: len(wire.said) > 3)
        connection = wire._connection
        if how == "vanish":
            world.turn(wire.vanish)
        elif how == "cut" and connection is not None:
            world.turn(connection.cut)
        elif how == "endpoint":
            world.loop.run_until_complete(world.endpoint.close())
        assert len(world.endpoint.turns) == 0
        del connection
        world.turns_until(lambda: not world.endpoint.connections)
        gc.collect()
        kept = [it for it in gc.get_objects() if isinstance(it, Connection)]
        assert not any(it._endpoint is world.endpoint for it in kept), "something still holds it"


def test_a_turn_that_breaks_ends_its_connection_and_no_other() -> None:
    class Broken(FakeService):
        def first_read(self, vm: str, scope: str, event_ids: frozenset[str]) -> None:
            raise RuntimeError(vm, scope, event_ids)

    with in_memory(service=Broken()) as world:
        world.failures_expected = 1
        broken, other = world.connect(), world.connect(OTHER)
        world.send(broken, POLL + VERSIONS)
        world.send(other, VERSIONS * 3)
        world.turns_until(lambda: broken.closed and len(other.said) == 3)
        assert broken.statuses == []


def test_requests_leave_no_garbage_that_has_to_be_collected() -> None:
    """A collection stops the loop, for longer the more the process holds."""
    with in_memory() as world:
        wire, broken = world.connect(), world.connect(OTHER)
        chunked = get(URL, META, "Transfer-Encoding: chunked", method="POST")
        upgrade = get(URL, META, "Connection: Upgrade", "Upgrade: h2c")
        gc.collect()
        gc.disable()
        try:
            world.send(wire, (VERSIONS + upgrade + post(APPROVAL) + NOWHERE) * 50)
            world.send(broken, chunked + b"no length\r\n")
            world.turns_until(lambda: len(wire.said) == 200 and len(broken.said) == 1)
            kept = [it for it in gc.get_objects() if type(it).__name__ == "_Parse"]
            assert kept == []
        finally:
            gc.enable()


def test_the_ring_goes_from_guest_to_guest() -> None:
    async def go() -> list[str]:
        order: list[str] = []

        class Taker:
            def __init__(self, name: str, rounds: int) -> None:
                self.name, self.rounds = name, rounds

            def turn(self, most: int) -> int:
                order.append(self.name)
                self.rounds -= 1
                if self.rounds:
                    turns.ask(self, guests[self.name[0]])
                return most

        turns = FairTurns(lambda _: None)
        guests = {
            name: Guest(vm_as_shown(a_vm(name, None)), Page(as_shown(WEB)), Bucket(0))
            for name in "ab"
        }
        for name, rounds in (("a1", 2), ("a2", 2), ("a3", 1), ("b1", 3)):
            turns.ask(Taker(name, rounds), guests[name[0]])
        while len(turns):  # noqa: ASYNC110 - one turn of the loop after the other
            await asyncio.sleep(0)
        return order

    assert asyncio.run(go()) == ["a1", "b1", "a2", "b1", "a3", "b1", "a1", "a2"]


def test_a_body_in_pieces_takes_turns_and_one_in_too_many_is_refused() -> None:
    with in_memory(limits=Limits(chunks=2_000)) as world:
        wire = world.connect()
        head = get(URL, META, "Transfer-Encoding: chunked", method="POST")
        spaces = b"2\r\n \n\r\n" * 1_500
        body = spaces + b"%x\r\n%b\r\n0\r\n\r\n" % (len(APPROVAL), APPROVAL)
        world.send(wire, head + body + VERSIONS)
        taken = world.turns_until(lambda: len(wire.said) == 2)
        assert taken >= len(body) / 1_024 / REQUESTS_PER_TURN_OF_CONNECTION
        assert wire.statuses == [200, 200]
        world.send(wire, head + spaces * 2)
        world.turns_until(lambda: len(wire.said) == 3)
        assert (wire.statuses[2], wire.said[2].header("Connection")) == (413, "close")
        assert world.endpoint.counters.refusals["too-many-chunks"] == 1


@pytest.mark.parametrize("piece", [b"1\r\nx\r\n", b"2\r\n\r\n\r\n", b"4\r\n\r\n\r\n\r\n"])
@pytest.mark.parametrize("lead", range(8))
def test_a_body_is_found_to_its_end_wherever_its_pieces_fall(piece: bytes, lead: int) -> None:
    """Pieces are cut every 1,024 bytes; the end of a message may lie across a cut."""
    with in_memory(limits=Limits(body_bytes=10_000)) as world:
        wire = world.connect()
        head = get(URL, META, "Transfer-Encoding: chunked", method="POST")
        first = b"%x\r\n%b\r\n" % (lead + 1, b"y" * (lead + 1))
        for count in range(140, 180, 3):
            world.send(wire, head + first + piece * count + b"0\r\n\r\n" + NOWHERE)
        world.turns_until(lambda: len(wire.said) == 28)
        assert wire.statuses == [400, 404] * 14


def test_empty_lines_have_a_limit_in_one_piece() -> None:
    with in_memory() as world:
        wire = world.connect()
        world.send(wire, b"\r\n" * 1_000_000)
        world.turns_until(lambda: bool(wire.said))
        assert wire.statuses == [400]
        assert wire.said[0].header("Connection") == "close"
        assert b"empty lines" in wire.said[0].raw
        world.turns_until(lambda: wire.closed)


def test_empty_lines_have_a_limit_line_by_line_and_a_request_begins_the_count_anew() -> None:
    with in_memory(limits=Limits(blank_bytes=10)) as world:
        wire = world.connect()
        for _ in range(3):
            for _ in range(5):
                world.send(wire, b"\r\n")
                world.turns_until(lambda: not len(world.endpoint.turns) and not wire.unread)
            world.pass_s(0.001)
            world.send(wire, VERSIONS)
            world.turns_until(lambda: not len(world.endpoint.turns) and not wire.unread)
        assert wire.statuses == [200] * 3
        for _ in range(6):
            world.send(wire, b"\r\n")
            world.turns_until(lambda: not len(world.endpoint.turns) and not wire.unread)
        assert wire.statuses == [200] * 3 + [400]


def test_who_sends_only_empty_lines_is_idle_and_is_closed_like_it() -> None:
    with in_memory(timeouts=Timeouts(idle_s=5)) as world:
        wire = world.connect()
        for _ in range(5):
            world.send(wire, b"\r\n")
            world.pass_s(1.1)
        assert wire.closed
        assert wire.statuses == []
