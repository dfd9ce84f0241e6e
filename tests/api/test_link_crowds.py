"""Who keeps whom from being heard over the link: nobody, however much they ask."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import httpx
import pytest

from forewarn.api.link_protocol import PEER_CONNECTIONS_MAX, STRANGERS_MAX
from forewarn.wire import host_json as wire
from link_world import LIMIT_S, control_running, run


def test_however_many_strangers_come_hosts_are_heard(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world, AsyncExitStack() as stack:
            machine = await world.joined("h1")
            address, _, port = world.where.hosts_listen.rpartition(":")
            for _ in range(STRANGERS_MAX + 5):
                _, writer = await asyncio.open_connection(
                    address, int(port), ssl=machine.trusting()
                )
                stack.push_async_callback(hang_up, writer)
            assert await machine.ask("heartbeat", wire.Heartbeat({}), wire.Done) == wire.Done()

    run(story)


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
            with suppress(OSError):  # the oldest went, with or without a goodbye
                async with asyncio.timeout(LIMIT_S):
                    assert await crowd[0].read() == b""

    run(story)


def test_one_host_cannot_keep_the_others_out(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world, AsyncExitStack() as stack:
            greedy, other = await world.joined("h1"), await world.joined("h2")
            address, _, port = world.where.hosts_listen.rpartition(":")
            for _ in range(PEER_CONNECTIONS_MAX + 5):
                _, writer = await asyncio.open_connection(
                    address, int(port), ssl=greedy.trusting(shown=True)
                )
                stack.push_async_callback(hang_up, writer)
            await other.ask("heartbeat", wire.Heartbeat({}), wire.Done)
            with pytest.raises(httpx.HTTPError):
                await greedy.say("heartbeat", wire.Heartbeat({}))

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
                while (await machine.say("sight", wire.Sighting(()))).status_code != 503:
                    continue  # the first one has not been begun yet
            assert await other.ask("sight", wire.Sighting(()), wire.Sighted) == wire.Sighted({})

    run(story)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):  # control may have been quicker
        await writer.wait_closed()
