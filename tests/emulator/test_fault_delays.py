"""Answers that are late, or stop half way: what waits, what does not, and what is left behind."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from emulator.faulty_world import FaultyWorld, faulty
from forewarn.emulator.faults.book import Fault
from forewarn.endpoint.limits import Limits, Timeouts
from forewarn.endpoint.stages import BUSY
from support.endpoint_world import APPROVAL, EVENT_ID, POLL, URL, WEB, Client, a_vm, get, post

META = "Metadata: true"
VERSIONS = get("/metadata/versions", META)
HAVE_IT = get(URL, META, 'If-None-Match: "2"')
APPROVE = post(APPROVAL)
SHORT_S = 0.15
MIDST_S = 1.5  # for tests that look while it lasts
LATE_S = 0.14  # timers of the loop count whole milliseconds of its own time
# Far longer than any of these tests: what is over before was ended by something else.
LONG_S = 100


@pytest.fixture
def world() -> Iterator[FaultyWorld]:
    with faulty() as world:
        yield world


def busy(world: FaultyWorld) -> int:
    return sum(connection._at == BUSY for connection in world.endpoint.connections)


def timed(client: Client, request: bytes) -> float:
    """How long a good answer takes."""
    began_s = time.monotonic()
    assert client.ask(request).status == 200
    return time.monotonic() - began_s


def hits(world: FaultyWorld, fault: Fault) -> int:
    return world.call(world.book.get, fault.fault_id).hits


# Slow first answers.


def test_the_first_answer_of_each_vm_is_slow_and_no_other(world: FaultyWorld) -> None:
    fault = world.fault("slow-first", seconds=SHORT_S)
    for number, source in enumerate(("127.0.0.1", "127.0.0.2", "127.0.0.3"), 1):
        client = world.client(source)
        assert timed(client, POLL) >= LATE_S
        assert world.statuses(3, POLL, source) == [200] * 3
        assert hits(world, fault) == number
    assert not world.call(world.book.get, fault.fault_id).over


def test_a_slow_first_answer_of_one_vm_is_over_with_it(world: FaultyWorld) -> None:
    fault = world.fault("slow-first", vm="web_1", seconds=SHORT_S)
    assert world.statuses(3, POLL) == [200] * 3
    assert hits(world, fault) == 0
    assert timed(world.client("127.0.0.2"), POLL) >= LATE_S
    assert world.call(world.book.get, fault.fault_id).over


def test_a_slow_answer_is_the_document_of_its_end(world: FaultyWorld) -> None:
    world.fault("slow-first", seconds=MIDST_S)
    client = world.client()
    client.send(POLL)
    world.until(lambda: busy(world) == 1)
    assert world.service.read == []
    world.show(replace(WEB, incarnation=3, events=()))
    assert json.loads(client.answer().body) == {"DocumentIncarnation": 3, "Events": []}


def test_other_connections_of_the_vm_are_answered_meanwhile(world: FaultyWorld) -> None:
    world.fault("slow-first", seconds=LONG_S)
    world.client().send(POLL)
    world.until(lambda: busy(world) == 1)
    assert world.get().status == 200


def test_what_is_pipelined_behind_a_slow_answer_waits_for_it(world: FaultyWorld) -> None:
    world.fault("slow-first", seconds=MIDST_S)
    client = world.client()
    client.send(APPROVE + get("/nowhere") + POLL)
    world.until(lambda: busy(world) == 1)
    assert world.service.approved == []
    client.send(VERSIONS)
    assert [client.answer().status for _ in range(4)] == [200, 404, 200, 200]
    assert world.service.approved == [("web_0", (EVENT_ID,))]


# Answers that stall.


@pytest.mark.parametrize("request_bytes", [POLL, HAVE_IT, APPROVE, VERSIONS])
def test_a_stalled_answer_goes_on_and_arrives_whole(
    world: FaultyWorld, request_bytes: bytes
) -> None:
    whole = world.client().ask(request_bytes)
    world.fault("stall", seconds=SHORT_S, count=1)
    client = world.client()
    began_s = time.monotonic()
    client.send(request_bytes + POLL)
    assert client.answer() == whole
    assert time.monotonic() - began_s >= LATE_S
    assert client.answer().status == 200


@pytest.mark.parametrize("request_bytes", [POLL, HAVE_IT, APPROVE])
def test_the_first_half_of_a_stalled_answer_is_there_at_once(
    world: FaultyWorld, request_bytes: bytes
) -> None:
    world.fault("stall", seconds=LONG_S)
    client = world.client()
    client.send(request_bytes)
    begun = client.socket.recv(65_536)
    assert begun.startswith(b"HTTP/1.1 ")
    assert (b"\r\n\r\n" in begun) == (request_bytes is POLL)  # only that has a body
    assert client.is_silent(0.05)


@pytest.mark.parametrize("kind", ["slow-first", "stall"])
def test_no_time_out_of_the_endpoint_ends_a_delay(kind: str) -> None:
    timeouts = Timeouts(sweep_s=0.01, idle_s=0.5, head_s=0.01, body_s=0.01, write_s=0.01)
    with faulty(timeouts=timeouts) as world:
        world.fault(kind, seconds=1.5, count=1)
        assert timed(world.client(), POLL) >= 1.49


def test_an_approval_whose_answer_stalls_was_applied(world: FaultyWorld) -> None:
    world.fault("stall", seconds=LONG_S, count=1)
    world.client().send(APPROVE)
    world.until(lambda: bool(world.service.approved))
    assert world.service.approved == [("web_0", (EVENT_ID,))]
    assert busy(world) == 1  # and the client has not been told yet


def test_a_stalled_answer_that_is_the_last_one_closes_only_when_it_is_whole(
    world: FaultyWorld,
) -> None:
    world.fault("stall", seconds=SHORT_S)
    sent, end = world.everything(get(URL, META, "Connection: close"))
    head, _, body = sent.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert end == "closed"


def test_a_parked_poll_stalls_when_its_answer_comes(world: FaultyWorld) -> None:
    world.fault("stall", seconds=MIDST_S)
    client = world.client()
    client.send(get(URL, META, 'If-None-Match: "2"', "Prefer: wait=60"))
    world.until(lambda: world.endpoint.counters.parked == 1)
    world.show(replace(WEB, incarnation=3))
    world.until(lambda: busy(world) == 1)
    assert client.answer().headers["etag"] == '"3"'


# What is left behind: nothing. The world's own end checks connections and counters.


@pytest.mark.parametrize("kind", ["slow-first", "stall"])
def test_a_client_that_leaves_takes_its_delay_with_it(world: FaultyWorld, kind: str) -> None:
    world.fault(kind, seconds=LONG_S)
    client = world.client()
    client.send(POLL)
    world.until(lambda: busy(world) == 1)
    client.close()
    world.until(lambda: not world.endpoint.connections)
    assert busy(world) == 0


@pytest.mark.parametrize("kind", ["slow-first", "stall"])
def test_a_client_that_resets_takes_its_delay_with_it(world: FaultyWorld, kind: str) -> None:
    world.fault(kind, seconds=LONG_S)
    client = world.client()
    client.send(POLL)
    world.until(lambda: busy(world) == 1)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    world.until(lambda: not world.endpoint.connections)
    assert busy(world) == 0


@pytest.mark.parametrize("kind", ["slow-first", "stall"])
def test_closing_the_endpoint_ends_every_delay_at_once(kind: str) -> None:
    with faulty() as world:
        world.fault(kind, seconds=LONG_S, count=3)
        for source in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
            world.client(source).send(POLL)
        world.until(lambda: busy(world) == 3)
        world.wait_for(world.endpoint.close())
        world.until(lambda: not world.endpoint.connections)  # with less patience than LONG_S
        assert busy(world) == 0


@pytest.mark.parametrize("kind", ["slow-first", "stall"])
def test_a_vm_that_is_gone_is_cut_off_during_a_delay(world: FaultyWorld, kind: str) -> None:
    world.fault(kind, seconds=LONG_S)
    client = world.client("127.0.0.2")
    client.send(POLL)
    world.until(lambda: busy(world) == 1)
    world.show(replace(WEB, vms=(a_vm("web_0", "127.0.0.1"),)))
    world.until(lambda: not world.endpoint.connections)
    assert busy(world) == 0


@pytest.mark.parametrize("kind", ["slow-first", "stall"])
def test_delayed_answers_count_as_connections_of_their_vm(kind: str) -> None:
    with faulty(limits=Limits(connections_per_guest=2)) as world:
        world.fault(kind, seconds=LONG_S, count=2, vm="web_0")
        for _ in range(2):
            world.client().send(POLL)
        world.until(lambda: len(world.endpoint.connections) == 2)
        assert world.client().answer().status == 429
        assert world.get(source="127.0.0.2").status == 200


def test_clearing_a_fault_lets_a_delay_that_runs_run_on(world: FaultyWorld) -> None:
    fault = world.fault("stall", seconds=MIDST_S)
    client = world.client()
    client.send(POLL)
    world.until(lambda: busy(world) == 1)
    world.clear()
    assert client.answer().status == 200
    assert client.ask(POLL).status == 200
    assert hits(world, fault) == 1
