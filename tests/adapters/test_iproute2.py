"""iproute2 and nft, called with a time limit: what they say, and what is said when they fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from forewarn.adapters import iproute2
from forewarn.adapters.iproute2 import LinkAddresses, run_command
from forewarn.ports import NetworkFailed
from support.channels_world import Namespace, needs_namespaces


def refusal_of(*words: str) -> NetworkFailed:
    with pytest.raises(NetworkFailed) as caught:
        asyncio.run(run_command(*words))
    return caught.value


def test_a_program_that_is_missing_is_named_with_the_package() -> None:
    failed = refusal_of("forewarn-no-such-program")
    assert "There is no program 'forewarn-no-such-program'" in failed.message
    assert "iproute2 and nftables" in failed.remedy


def test_words_of_the_program_are_passed_on_with_what_would_help() -> None:
    plain = refusal_of("sh", "-c", "echo 'Cannot find device' >&2; exit 1")
    assert "Cannot find device" in plain.message
    denied = refusal_of("sh", "-c", "echo 'Error: Operation not permitted' >&2; exit 1")
    assert "CAP_NET_ADMIN" in denied.remedy
    lacking = refusal_of("sh", "-c", "echo 'Error: Operation not supported' >&2; exit 1")
    assert "nft_socket" in lacking.remedy
    assert "no reason was given" in refusal_of("false").message


def test_a_command_that_is_given_up_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    script = f"echo $$ > {pid}; head -c 1000000 /dev/zero; exec sleep 1000"

    async def given_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await run_command("sh", "-c", script)

    asyncio.run(given_up())
    assert not Path(f"/proc/{pid.read_text('ascii').strip()}").exists()


def test_every_command_has_a_time_limit() -> None:
    assert 0 < iproute2.COMMAND_S_MAX <= 10


@needs_namespaces
def test_interfaces_and_addresses_are_those_of_the_namespace() -> None:
    ns = Namespace()
    try:
        ns.ip("link add br0 type bridge")
        ns.ip("link add tap1 type veth peer name other")
        ns.ip("link set tap1 master br0 up")
        links = LinkAddresses()

        async def add() -> None:
            for address in ("169.254.169.254/32", "fe80::a9fe:a9fe/64"):
                for _ in range(2):  # the second time without effect
                    await links.add_address("br0", address)

        async def remove() -> None:
            for _ in range(2):
                await links.remove_address("br0", "169.254.169.254/32")
            await links.remove_address("gone", "169.254.169.254/32")

        ns.within(lambda: asyncio.run(add()))
        found = {one.name: one for one in ns.within(lambda: asyncio.run(links.interfaces()))}
        assert found["br0"].kind == "bridge"
        assert not found["br0"].up
        assert found["br0"].addresses == ("169.254.169.254/32", "fe80::a9fe:a9fe/64")
        assert (found["tap1"].kind, found["tap1"].master) == ("veth", "br0")
        assert found["tap1"].ifindex == ns.interface("tap1")["ifindex"]
        ns.within(lambda: asyncio.run(remove()))
        found = {one.name: one for one in ns.within(lambda: asyncio.run(links.interfaces()))}
        assert found["br0"].addresses == ("fe80::a9fe:a9fe/64",)
    finally:
        ns.close()
