"""DHCP packets byte by byte (D3, D5), and what can be asked from."""

from __future__ import annotations

import pytest

from forewarn_guest.dhcp import Interface, ask, discover_packet, endpoint_in, interfaces
from forewarn_guest.http1 import bell_of

XID = b"\x01\x02\x03\x04"
MAC = b"\x00\x0d\x3a\x12\x34\x56"
HOST = "168.63.129.16"


def offer(*options: bytes, op: int = 2, xid: bytes = XID, mac: bytes = MAC) -> bytes:
    """An answer of a server with such options, at least as long as one is."""
    head = bytes([op, 1, 6, 0]) + xid + bytes(8) + bytes([10, 0, 0, 4]) + bytes(8)
    return head + mac.ljust(208, b"\0") + b"\x63\x82\x53\x63" + b"".join(options)


MESSAGE = b"\x35\x01\x02"
GATEWAY = b"\x03\x04\x0a\x00\x00\x01"
ENDPOINT = b"\xf5\x04\xa8\x3f\x81\x10"
ROUTES = b"\xf9\x05\x00\x0a\x00\x00\x01"
END = b"\xff"


def test_a_discover_has_the_244_bytes_of_the_sample() -> None:
    packet = discover_packet(XID, MAC)
    expected = bytearray(244)
    expected[0:3] = b"\x01\x01\x06"
    expected[4:8] = XID
    expected[0x1C:0x22] = MAC
    expected[0xEC:0xF0] = b"\x63\x82\x53\x63"
    expected[0xF0:0xF4] = b"\x35\x01\x01\xff"
    assert packet == bytes(expected)


def test_a_discover_that_asks_for_a_broadcast_differs_in_one_bit() -> None:
    plain, broadcast = discover_packet(XID, MAC), discover_packet(XID, MAC, broadcast=True)
    assert broadcast[10] == 0x80
    assert plain == broadcast[:10] + b"\0" + broadcast[11:]


@pytest.mark.parametrize(
    "options",
    [
        (MESSAGE, ENDPOINT, END),
        (MESSAGE, GATEWAY, ROUTES, ENDPOINT, END),
        (b"\0\0\0", MESSAGE, b"\0", ENDPOINT, END, bytes(60)),
        (ENDPOINT, MESSAGE),  # without an end
    ],
)
def test_option_245_is_found_among_the_others(options: tuple[bytes, ...]) -> None:
    assert endpoint_in(offer(*options), XID, MAC) == HOST


@pytest.mark.parametrize(
    "options",
    [
        (MESSAGE, GATEWAY, END),
        (MESSAGE, GATEWAY, END, ENDPOINT),  # after the end
        (MESSAGE, b"\x0c\x06" + ENDPOINT, END),  # within another option
        (MESSAGE, GATEWAY, b"\xf5\x03\xa8\x3f\x81", END),  # three bytes
        (MESSAGE, GATEWAY, b"\xf5\x04\x00\x00\x00\x00", END),
        (MESSAGE, GATEWAY, b"\xf5\x04\xa8"),  # cut off
        (MESSAGE, GATEWAY, b"\xf5"),
    ],
)
def test_an_answer_without_a_usable_option_has_no_address(options: tuple[bytes, ...]) -> None:
    assert endpoint_in(offer(*options), XID, MAC) == ""


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        bytes(300),
        offer(MESSAGE, ENDPOINT, END)[:0xF5],
        offer(MESSAGE, ENDPOINT, END, op=1),
        offer(MESSAGE, ENDPOINT, END, xid=b"\x04\x03\x02\x01"),
        offer(MESSAGE, ENDPOINT, END, mac=b"\x02" * 6),
        offer(MESSAGE, ENDPOINT, END).replace(b"\x63\x82\x53\x63", b"\x63\x82\x53\x64"),
    ],
)
def test_an_answer_to_somebody_else_is_none(packet: bytes) -> None:
    assert endpoint_in(packet, XID, MAC) is None


def test_interfaces_have_six_bytes_and_are_never_the_loopback() -> None:
    for interface in interfaces():
        assert interface.name != "lo"
        assert len(interface.mac) == 6


def test_asking_from_what_is_not_there_says_so_and_waits_for_nothing() -> None:
    with bell_of() as bell:
        (heard,) = ask([Interface("nowhere0", MAC)], XID, bell, seconds=60.0)
    assert (heard.interface, heard.address) == ("nowhere0", "")
    assert heard.why.startswith(("cannot be asked from", "asking a DHCP server is not permitted"))


def test_asking_from_nowhere_hears_nothing() -> None:
    with bell_of() as bell:
        assert ask([], XID, bell, seconds=60.0) == []
