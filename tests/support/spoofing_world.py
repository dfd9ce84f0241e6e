"""A host with alpha, who has a secret, and mallory, who wants it; the rows of the spoof table."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from msgspec.structs import replace

from forewarn.host.channels.plan import Mode
from support import frames
from support.channels_world import (
    ASK_S,
    ENDPOINT,
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
    scope_of,
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
    attempts: int = 1  # how often is asked before silence is silence
    loot: bytearray = field(default_factory=bytearray)

    @property
    def bridge_mac(self) -> str:
        return str(self.host.ns.interface("br0")["address"])

    def asks(self, ns: Namespace, *headers: str, source: str = "", v6: str = "") -> str:
        """Who asks is taken for, and what an approval of alpha's event from there gets."""
        for _ in range(self.attempts):
            with suppress(OSError), connected(ns, source=source, v6=v6) as made:
                answer = self.asks_by(made, *headers)
                if answer != SILENCE:
                    return answer
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


def claims(at: Field, claimed: tuple[str, str], *, to: tuple[str, str]) -> None:
    """Requests and replies, to one and to all, plain and behind one and two priority tags."""
    with on_the_wire(at.mallory.ns) as raw:
        for target in (to[1], frames.BROADCAST):
            for operation in (frames.REPLY, frames.REQUEST):
                for tags in (0, 1, 2):
                    said = frames.arp(operation, claims=claimed, to=to)
                    raw.send(frames.ethernet(at.mallory.mac, target, frames.ARP, said, tags=tags))
                    gratuitous = frames.arp(operation, claims=claimed, to=claimed)
                    raw.send(
                        frames.ethernet(at.mallory.mac, target, frames.ARP, gratuitous, tags=tags)
                    )


def changes_while(at: Field, ns: Namespace, forge: Callable[[socket.socket], None]) -> None:
    """Alpha waits for a change of its document; meanwhile somebody forges; then it changes."""
    scope = scope_of("alpha")
    with connected(at.alpha.ns, wait_s=10) as made, at.listening(ns):
        assert answered(made, request(DOCUMENT, 'If-None-Match: "2"')) == (304, b"")
        made.sendall(request(DOCUMENT, 'If-None-Match: "2"', "Prefer: wait=20"))
        at.host.until(lambda: at.host.endpoint.counters.parked == 1)
        with on_the_wire(ns) as raw:
            forge(raw)
        at.host.show(replace(scope, incarnation=3))
        with suppress(TimeoutError):  # a lost answer is said again once alpha says something
            made.settimeout(ASK_S)
            made.recv(65536)
        at.alpha_is_served()


def next_of_alpha(at: Field, made: socket.socket) -> frames.Segment:
    """The segment that the endpoint expects next on a connection of alpha."""
    with on_the_wire(at.alpha.ns) as raw:
        assert answered(made, request())[1] == b"alpha"
        seen: frames.Heard | None = None
        while seen is None or not seen.data or seen.source[0] != ENDPOINT:
            seen = frames.heard(raw.recv(65536))
    return frames.Segment(
        source=seen.target,
        target=seen.source,
        sequence=seen.acknowledged,
        acknowledged=seen.sequence + len(seen.data),
        flags=frames.ACK | frames.PUSH,
        data=approval(event_of("alpha")),
    )


def raw_opening(at: Field, ns: Namespace, mac: str, target_mac: str, *made: frames.Segment) -> str:
    """Whether the endpoint answers any of these openings."""
    with at.listening(ns) as caught, on_the_wire(ns) as raw:
        for segment in made:
            for tags in (0, 2):
                said = segment.packet()
                raw.send(frames.ethernet(mac, target_mac, frames.IPV4, said, tags=tags))
    came = [frames.heard(frame) for frame in caught]
    if any(one and one.source[0] == ENDPOINT and one.flags & frames.SYN for one in came):
        return "answered"
    return SILENCE


def outside_of(at: Field) -> Namespace:
    """A machine on the outside wire of the host, which routes."""
    outside = at.host.space()
    at.host.plug(outside, "uplink", bridge=None, mac="52:54:00:00:01:01")
    at.host.ns.ip("address add 198.51.100.1/24 dev uplink")
    at.host.ns.run("sysctl", "-w", "net.ipv4.ip_forward=1")
    outside.ip("address add 198.51.100.9/24 dev eth0")
    return outside


def field_for(row: Row, host: HostNet) -> Field:
    bridge = "br0" if row.mode is Mode.BRIDGE else None
    alpha = host.guest("alpha", number=1, bridge=bridge, known=row.known)
    mallory = host.guest("mallory", number=2, bridge=bridge, known=row.known)
    assert host.arrange() == ()
    return Field(host, alpha, mallory, attempts=3 if OWN in row.expected else 1)


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
