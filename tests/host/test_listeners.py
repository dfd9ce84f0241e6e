"""Sockets: one for all, one per VM, opened and closed while others are in use."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from forewarn.endpoint.limits import RECEIVE_BUFFER_BYTES
from forewarn.endpoint.registry import Guest
from forewarn.host.identity import Identity
from forewarn.host.listeners import Listeners, ListenFailed, cannot_listen
from support.endpoint_world import DB, POLL, Client, EndpointWorld, a_vm, running


def name_at(world: EndpointWorld, address: tuple[str, int]) -> str:
    """Which VM the listener at this address takes us for."""
    client = Client(address, "127.0.0.77")
    try:
        answer = client.ask(
            b"GET /metadata/instance/compute/name?api-version=2021-02-01&format=text HTTP/1.1\r\n"
            b"Host: x\r\nMetadata: true\r\n\r\n"
        )
        return answer.body.decode() if answer.status == 200 else str(answer.status)
    finally:
        client.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """What is open stays open; nothing more can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_port_zero_takes_a_free_port_and_says_which() -> None:
    with running() as world:
        assert world.address[1] > 0
        assert world.listeners.shared_address() == world.address


def test_a_vms_own_listener_answers_for_that_vm_whatever_the_source() -> None:
    with running() as world:
        wanted = {"web_0": "127.0.0.1:0", "web_1": "127.0.0.1:0", "db_0": "127.0.0.1:0"}
        world.wait_for(world.listeners.apply(wanted))
        addresses = world.call(world.listeners.addresses)
        assert {vm: name_at(world, address) for vm, address in addresses.items()} == {
            "web_0": "web_0",
            "web_1": "web_1",
            "db_0": "db_0",
        }


def test_what_a_guest_sends_and_is_not_read_takes_little_of_the_kernel() -> None:
    class Watching(Identity):
        kept_bytes = 0

        def by_peer(self, transport: asyncio.BaseTransport) -> Guest | None:
            pipe = transport.get_extra_info("socket")
            self.kept_bytes = pipe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            return super().by_peer(transport)

    with running() as world:
        watching = Watching()
        listeners = Listeners(world.endpoint, watching)
        address = world.wait_for(listeners.open_shared("127.0.0.1:0"))
        client = Client(address, "127.0.0.1")
        assert client.ask(POLL).status == 403
        client.close()
        world.wait_for(listeners.close())
    # The kernel doubles what it is told, for its own needs.
    assert 0 < watching.kept_bytes <= 2 * RECEIVE_BUFFER_BYTES


def test_a_listener_of_a_vm_we_do_not_know_answers_nobody() -> None:
    with running() as world:
        world.wait_for(world.listeners.apply({"ghost": "127.0.0.1:0"}))
        assert name_at(world, world.call(world.listeners.addresses)["ghost"]) == "403"


def test_listeners_come_and_go_while_others_stay_in_use() -> None:
    with running() as world:
        world.wait_for(world.listeners.apply({"web_0": "127.0.0.1:0", "web_1": "127.0.0.1:0"}))
        before = world.call(world.listeners.addresses)
        staying = Client(before["web_0"], "127.0.0.1")
        leaving = Client(before["web_1"], "127.0.0.1")
        assert staying.ask(POLL).status == leaving.ask(POLL).status == 200
        world.wait_for(world.listeners.apply({"web_0": "127.0.0.1:0", "db_0": "127.0.0.1:0"}))
        after = world.call(world.listeners.addresses)
        assert set(after) == {"web_0", "db_0"}
        assert after["web_0"] == before["web_0"]
        assert staying.ask(POLL).status == 200
        assert leaving.is_closed()
        with pytest.raises(ConnectionRefusedError):
            Client(before["web_1"], "127.0.0.1")
        staying.close()
        leaving.close()


def test_an_address_can_be_given_to_another_vm() -> None:
    first, second = free_port(), free_port()
    with running() as world:
        before = {"web_0": f"127.0.0.1:{first}", "db_0": f"127.0.0.1:{second}"}
        world.wait_for(world.listeners.apply(before))
        old = Client(("127.0.0.1", first), "127.0.0.1")
        assert json.loads(old.ask(POLL).body)["DocumentIncarnation"] == 2
        after = {"web_0": f"127.0.0.1:{second}", "db_0": f"127.0.0.1:{first}"}
        world.wait_for(world.listeners.apply(after))
        assert old.is_closed()
        assert name_at(world, ("127.0.0.1", first)) == "db_0"
        assert name_at(world, ("127.0.0.1", second)) == "web_0"
        old.close()


def test_a_port_in_use_is_an_error_that_names_the_vm_and_changes_nothing() -> None:
    with socket.socket() as taken, running() as world:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        world.wait_for(world.listeners.apply({"db_0": "127.0.0.1:0"}))
        before = world.call(world.listeners.addresses)
        with pytest.raises(ListenFailed, match=rf"VM web_1 on {listen}.*in use"):
            world.wait_for(world.listeners.apply({"web_0": "127.0.0.1:0", "web_1": listen}))
        assert world.call(world.listeners.addresses) == before
        assert name_at(world, before["db_0"]) == "db_0"


def test_two_vms_that_want_one_address_are_both_named() -> None:
    listen = f"127.0.0.1:{free_port()}"
    with running() as world, pytest.raises(ListenFailed, match="web_0 and web_1"):
        world.wait_for(world.listeners.apply({"web_0": listen, "web_1": listen}))


def test_the_shared_listener_says_why_it_cannot_be_opened() -> None:
    with socket.socket() as taken, running() as world:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ListenFailed, match="is open already"):
            world.wait_for(world.listeners.open_shared(listen))
        world.wait_for(world.listeners.close())
        with pytest.raises(ListenFailed, match=rf"shared guest listener on {listen}.*in use"):
            world.wait_for(world.listeners.open_shared(listen))


def test_a_guest_with_an_ipv6_address_is_known_however_it_is_written() -> None:
    six = replace(DB, vms=(a_vm("db_0", "0:0:0:0:0:0:0:1"),))
    with running(six) as world:
        world.wait_for(world.listeners.close())
        try:
            address = world.wait_for(world.listeners.open_shared("[::1]:0"))
        except ListenFailed:
            pytest.skip("this machine has no IPv6")
        client = Client(address, "::1")
        assert client.ask(POLL).status == 200
        client.close()


def test_closing_leaves_no_socket_behind() -> None:
    with running() as world:
        world.wait_for(world.listeners.apply({"web_0": "127.0.0.1:0"}))
        own = world.call(world.listeners.addresses)["web_0"]
        world.wait_for(world.listeners.close())
        for address in (world.address, own):
            with pytest.raises(ConnectionRefusedError):
                Client(address, "127.0.0.1")


def test_a_listener_without_descriptors_fails_changes_nothing_and_opens_later() -> None:
    with running() as world:
        world.wait_for(world.listeners.apply({"db_0": "127.0.0.1:0"}))
        before = world.call(world.listeners.addresses)
        wanted = {"db_0": "127.0.0.1:0", "web_0": "127.0.0.1:0"}
        with no_more_descriptors(), pytest.raises(ListenFailed, match="VM web_0"):
            world.wait_for(world.listeners.apply(wanted))
        assert world.call(world.listeners.addresses) == before
        world.wait_for(world.listeners.apply(wanted))
        assert name_at(world, world.call(world.listeners.addresses)["web_0"]) == "web_0"


def test_a_probe_without_descriptors_says_why_nothing_can_listen() -> None:
    with no_more_descriptors():
        why = cannot_listen("127.0.0.1:0")
    assert why == "Too many open files"
