"""Who keeps whom from being heard over the link: nobody, however much they ask."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from uuid import UUID

import httpx
import msgspec
import pytest

from forewarn.api.link.app import (
    DECODED_AT_ONCE_BYTES_MAX,
    LONG_QUESTIONS_BYTES_MAX,
    SHORT_OF_HOST_BYTES_MAX,
)
from forewarn.api.link.protocol import PEER_CONNECTIONS_MAX, STRANGERS_MAX, LinkProtocol
from forewarn.control.hosts.report_slices import SLICE_VMS_MAX
from forewarn.core.inventory.host_report import Power, SeenVm
from forewarn.wire import link as wire
from support.link_world import LIMIT_S, ControlWorld, Machine, control_running, run
from support.shown_scopes import sighting


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is cut for its silence, so who is cut was too many."""
    monkeypatch.setattr(LinkProtocol, "head_timeout_s", 10 * LIMIT_S)


async def ended(reader: asyncio.StreamReader) -> bool:
    """True once the other side has ended the connection, with or without a goodbye."""
    try:
        async with asyncio.timeout(LIMIT_S):
            return await reader.read() == b""
    except TimeoutError:  # an OSError too
        return False
    except OSError:
        return True


@pytest.mark.usefixtures("patient")
def test_however_many_strangers_come_hosts_are_heard(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world, AsyncExitStack() as stack:
            machine = await world.joined("h1")
            address, _, port = world.where.hosts_listen.rpartition(":")
            crowd = []
            for _ in range(STRANGERS_MAX + 5):
                reader, writer = await asyncio.open_connection(
                    address, int(port), ssl=machine.trusting()
                )
                stack.push_async_callback(hang_up, writer)
                crowd.append(reader)
            assert await machine.ask("turn", wire.Turn(), wire.TurnTaken) == wire.TurnTaken(
                work=False
            )
            for oldest in crowd[:5]:
                assert await ended(oldest)
            assert not crowd[-1].at_eof()

    run(story)


@pytest.mark.usefixtures("patient")
def test_a_machine_joins_while_strangers_crowd_the_port(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world, AsyncExitStack() as stack:
            first = await world.joined("h1")
            address, _, port = world.where.hosts_listen.rpartition(":")
            crowd = []
            for _ in range(STRANGERS_MAX):
                reader, writer = await asyncio.open_connection(
                    address, int(port), ssl=first.trusting()
                )
                stack.push_async_callback(hang_up, writer)
                crowd.append(reader)
            await world.joined("h2")
            assert await ended(crowd[0])

    run(story)


def test_one_host_cannot_keep_the_others_out(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world, AsyncExitStack() as stack:
            greedy, other = await world.joined("h1"), await world.joined("h2")
            address, _, port = world.where.hosts_listen.rpartition(":")
            for _ in range(PEER_CONNECTIONS_MAX + 5):
                reader, writer = await asyncio.open_connection(
                    address, int(port), ssl=greedy.trusting(shown=True)
                )
                stack.push_async_callback(hang_up, writer)
                with suppress(OSError, asyncio.IncompleteReadError):  # one too many
                    await ask_once(reader, writer)
            await other.ask("turn", wire.Turn(), wire.TurnTaken)
            with pytest.raises(httpx.HTTPError):
                await greedy.say("turn", wire.Turn())

    run(story)


def test_a_host_asks_one_long_question_at_a_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world, AsyncExitStack() as stack:
            machine, other = await world.joined("h1"), await world.joined("h2")
            address, _, port = world.where.hosts_listen.rpartition(":")
            _, writer = await asyncio.open_connection(
                address, int(port), ssl=machine.trusting(shown=True)
            )
            stack.push_async_callback(hang_up, writer)
            head = "POST /link/sight HTTP/1.1\r\nHost: c\r\nforewarn-link: 1\r\n"
            writer.write(f"{head}Content-Length: 20000000\r\n\r\n[".encode())
            await writer.drain()
            async with asyncio.timeout(LIMIT_S):
                while (await machine.say("sight", sighting(()))).status_code != 503:
                    continue  # the first one has not been begun yet
            assert await other.ask("sight", sighting(()), wire.Sighted) == wire.Sighted({})

    run(story)


async def ask_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ask, and read the answer's head: who has asked may then be silent for a minute."""
    body = msgspec.json.encode(wire.Turn())
    head = "POST /link/turn HTTP/1.1\r\nHost: c\r\nforewarn-link: 1\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


def test_a_long_report_is_taken_and_told_while_another_host_beats(tmp_path: Path) -> None:
    vms = tuple(
        SeenVm(
            name=f"vm-{number:03d}",
            vm_id=str(UUID(int=number + 1)),
            power=Power.RUNNING,
            definition="<domain>" + "x" * 1_024 + "</domain>",
        )
        for number in range(5 * SLICE_VMS_MAX)
    )
    assert len(msgspec.json.encode(sighting(vms))) > DECODED_AT_ONCE_BYTES_MAX

    async def story() -> None:
        async with control_running(tmp_path) as world:
            machine, other = await world.joined("h1"), await world.joined("h2")
            taking = asyncio.ensure_future(machine.ask("sight", sighting(vms), wire.Sighted))
            while not taking.done():
                await other.ask("turn", wire.Turn(), wire.TurnTaken)
            assert taking.result() == wire.Sighted({})
            told = await machine.changes()
            assert {one.name for one in told.scopes} == {one.name for one in vms}
            wrong = msgspec.json.encode({"vms": [*msgspec.to_builtins(vms), {"name": 1}]})
            assert await machine.refused("sight", wrong) == (400, "invalid")

    run(story)


LONG = 60_000_000  # three fit into the room of long questions


async def half_a_question(
    world: ControlWorld, machine: Machine, name: str, size: int, stack: AsyncExitStack
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A question that says how long it is, and begins."""
    address, _, port = world.where.hosts_listen.rpartition(":")
    reader, writer = await asyncio.open_connection(
        address, int(port), ssl=machine.trusting(shown=True)
    )
    stack.push_async_callback(hang_up, writer)
    head = f"POST /link/{name} HTTP/1.1\r\nHost: c\r\nforewarn-link: 1\r\n"
    writer.write(f"{head}Content-Length: {size}\r\nExpect: 100-continue\r\n\r\n".encode())
    await writer.drain()
    return reader, writer


async def first_line(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(LIMIT_S):
        return await reader.readline()


def test_long_questions_of_many_hosts_have_a_limit_and_leave_room_for_heartbeats(
    tmp_path: Path,
) -> None:
    fit = LONG_QUESTIONS_BYTES_MAX // LONG

    async def story() -> None:
        async with control_running(tmp_path) as world, AsyncExitStack() as stack:
            hosts = [await world.joined(f"h{number}") for number in range(fit + 1)]
            for host in hosts[:fit]:
                reader, _ = await half_a_question(world, host, "sight", LONG, stack)
                assert b" 100 " in await first_line(reader)
            reader, _ = await half_a_question(world, hosts[fit], "sight", LONG, stack)
            assert b" 503 " in await first_line(reader)
            for host in hosts:
                await host.ask("turn", wire.Turn(), wire.TurnTaken)
            told = await hosts[fit].ask("sight", sighting(()), wire.Sighted)
            assert told == wire.Sighted({})

    run(story)


def test_many_questions_of_one_host_have_a_limit_and_leave_room_for_another(
    tmp_path: Path,
) -> None:
    fit = SHORT_OF_HOST_BYTES_MAX // wire.QUESTION_BYTES_MAX

    async def story() -> None:
        async with control_running(tmp_path) as world, AsyncExitStack() as stack:
            greedy, other = await world.joined("h1"), await world.joined("h2")
            for _ in range(fit):
                reader, _ = await half_a_question(
                    world, greedy, "turn", wire.QUESTION_BYTES_MAX, stack
                )
                assert b" 100 " in await first_line(reader)
            assert await greedy.refused("holds", wire.Holds("E1/web", 1)) == (503, "unavailable")
            # That a host is there is heard all the same: it takes no room, for it is never kept.
            for host in (greedy, other):
                await host.ask("turn", wire.Turn(), wire.TurnTaken)

    run(story)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):  # control may have been quicker
        await writer.wait_closed()
