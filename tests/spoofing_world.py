"""A host with alpha, who has a secret, and mallory, who wants it; the rows of the spoof table."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from forewarn.host.channel_plan import Mode
from network_world import (
    ASK_S,
    NAME,
    NOBODY,
    SILENCE,
    GuestNet,
    HostNet,
    Namespace,
    a_host,
    answered,
    approval,
    connected,
    event_of,
    on_the_wire,
    request,
    who,
)

DOCUMENT = "/metadata/scheduledevents?api-version=2020-07-01"
SECRET = event_of("alpha").encode()
FRAMES_MAX = 500


@dataclass
class Field:
    """A host with alpha and mallory, and everything that mallory has got hold of."""

    host: HostNet
    alpha: GuestNet
    mallory: GuestNet
    loot: bytearray = field(default_factory=bytearray)

    @property
    def bridge_mac(self) -> str:
        return str(self.host.ns.interface("br0")["address"])

    def asks(self, ns: Namespace, *headers: str, source: str = "", v6: str = "") -> str:
        """Who asks is taken for, and what an approval of alpha's event from there gets."""
        try:
            with connected(ns, source=source, v6=v6) as made:
                return self.asks_by(made, *headers)
        except OSError:
            return SILENCE

    def asks_by(self, made: socket.socket, *headers: str) -> str:
        status, name = answered(
            made,
            request(NAME, *headers),
        )
        self.loot += name
        if status != 200:
            return NOBODY if status == 403 else f"refused ({status})" if status else SILENCE
        self.loot += answered(made, request(DOCUMENT, *headers))[1]
        refused, _ = answered(made, approval(event_of("alpha"), *headers))
        return f"{name.decode()}'s own document; approval of alpha's event: {refused}"

    @contextmanager
    def listening(self, ns: Namespace) -> Iterator[list[bytes]]:
        """The frames that reach mallory, wherever they were meant for."""
        caught: list[bytes] = []
        with on_the_wire(ns) as raw:
            yield caught
            raw.settimeout(ASK_S / 2)
            try:
                for _ in range(FRAMES_MAX):
                    frame, where = raw.recvfrom(65536)
                    if where[2] != socket.PACKET_OUTGOING:
                        caught.append(frame)
            except TimeoutError:
                pass
        for frame in caught:
            self.loot += frame

    def alpha_is_served(self, *, v6: bool = False) -> None:
        """Alpha reads its document, over a new connection."""
        assert who(self.alpha.ns, v6="eth0" if v6 else "") == "alpha"
        with connected(self.alpha.ns, v6="eth0" if v6 else "", wait_s=5) as made:
            assert SECRET in answered(made, request(DOCUMENT))[1]


OWN = "mallory's own document; approval of alpha's event: 400"
NOTHING = "alpha gets its own answers, mallory nothing"
CLOSED = f"{SILENCE} (the connection is closed)"
TAKEN = "dropped (the same segment from alpha's tap is taken)"
LATER = f"{SILENCE}; once it is known: {OWN}"

Attempt = Callable[[Field], str]
Adding = Callable[[Attempt], Attempt]


@dataclass(frozen=True)
class Row:
    name: str
    attempt: str
    run: Attempt
    mode: Mode
    known: bool
    expected: str


ROWS: list[Row] = []


def tries(
    name: str,
    attempt: str,
    *,
    mode: Mode = Mode.BRIDGE,
    known: bool = False,
    expected: str = SILENCE,
) -> Adding:
    """One row of the table: what is tried, and what must come of it."""

    def add(run: Attempt) -> Attempt:
        ROWS.append(Row(name, attempt, run, mode, known, expected))
        return run

    return add


def address_of(guest: GuestNet) -> str:
    return f"192.0.2.{10 + int(guest.mac[-2:], 16)}"


def field_for(row: Row, host: HostNet) -> Field:
    bridge = "br0" if row.mode is Mode.BRIDGE else None
    alpha = host.guest("alpha", number=1, bridge=bridge, known=row.known)
    mallory = host.guest("mallory", number=2, bridge=bridge, known=row.known)
    assert host.arrange() == ()
    return Field(host, alpha, mallory)


def outcome_of(row: Row) -> str:
    """Runs the attempt; AssertionError if it got hold of anything."""
    with a_host(row.mode) as host:
        at = field_for(row, host)
        outcome = row.run(at)
        assert SECRET not in bytes(at.loot)
        assert b"alpha" not in bytes(at.loot)
        assert host.service.approved == []
        at.alpha_is_served()
    return outcome
