"""One VM that means harm: `python -m bench.attacker KIND PORT SOURCE SECONDS`.

Runs for so many seconds and prints one line of JSON with what it did and what it was answered. It
keeps as many sockets as it says and nothing else; it ends with its parent's patience at the latest.
"""

from __future__ import annotations

import errno
import json
import re
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

from bench.guests import TARGET, poll_request

BATCH = 2_500  # requests in one go
CONNECTIONS = 128
SEND_BYTES = 64 * 1_024
RECEIVE_BYTES = 256 * 1_024
DRIP_EVERY_S = 0.05
_STATUS = re.compile(rb"HTTP/1\.1 (\d\d\d) ")
_LONGEST_STATUS_BYTES = 13
_AWAY = (errno.EADDRNOTAVAIL, errno.ECONNREFUSED, errno.EAGAIN, errno.EMFILE)


def polls() -> Iterator[bytes]:
    """Rows of pipelined polls, half of them with a head that nobody has seen before."""
    number = 0
    while True:
        requests = []
        for _ in range(BATCH // 2):
            number += 1
            requests += [poll_request(), poll_request(f"X-Number: {number}")]
        yield b"".join(requests)


def _forever(piece: bytes) -> Callable[[], Iterator[bytes]]:
    """The same bytes again and again."""

    def pieces() -> Iterator[bytes]:
        while True:
            yield piece

    return pieces


def _after(head: bytes, piece: bytes) -> Callable[[], Iterator[bytes]]:
    """One head, and then the same bytes without end."""

    def pieces() -> Iterator[bytes]:
        yield head
        while True:
            yield piece

    return pieces


_POST = f"POST {TARGET} HTTP/1.1\r\nHost: 127.0.0.1\r\nMetadata: true\r\n".encode()

# What each kind sends on a connection, on how many, and whether it waits between the pieces.
KINDS: dict[str, tuple[Callable[[], Iterator[bytes]], int, bool]] = {
    "flood-1": (polls, 1, False),
    "flood-128": (polls, CONNECTIONS, False),
    "slow-heads": (_after(b"GET / HTTP/1.1\r\nX: ", b"x"), CONNECTIONS, True),
    "half-bodies": (_after(_POST + b"Content-Length: 60000\r\n\r\n", b" "), CONNECTIONS, True),
    # Each chunk is its own call of the parser, and half of them look like the end of a message.
    "chunks": (
        _after(
            _POST + b"Transfer-Encoding: chunked\r\n\r\n",
            b"2\r\n\r\n\r\n1\r\nx\r\n" * (SEND_BYTES // 13),
        ),
        CONNECTIONS,
        False,
    ),
    "blank-lines": (_forever(b"\r\n" * (SEND_BYTES // 2)), CONNECTIONS, False),
    "connects": (_forever(b""), 0, False),
}


class Attack:
    """Many connections of one source, each with something to send."""

    def __init__(self, kind: str, port: int, source: str) -> None:
        self._pieces, self._most, self._slow = KINDS[kind]
        self._where = ("127.0.0.1", port)
        self._source = source
        self._epoll = select.epoll()
        self._open: dict[int, Sender] = {}
        self.statuses: Counter[str] = Counter()
        self.connects = 0
        self.closed = 0
        self.sent_bytes = 0

    def run(self, seconds: float) -> None:
        until_s = time.perf_counter() + seconds
        try:
            if not self._most:
                self._storm(until_s)
            while time.perf_counter() < until_s:
                self._fill()
                self._round(until_s)
        finally:
            for sender in self._open.values():
                sender.sock.close()
            self._epoll.close()

    def _storm(self, until_s: float) -> None:
        """Connect and leave, as fast as it goes."""
        while time.perf_counter() < until_s:
            sock = self._connected()
            if sock is not None:
                sock.close()

    def _connected(self) -> socket.socket | None:
        sock = socket.socket()
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            sock.bind((self._source, 0))
            sock.settimeout(1.0)
            sock.connect(self._where)
        except TimeoutError:
            sock.close()
            return None
        except OSError as error:
            sock.close()
            if error.errno not in (*_AWAY, errno.ECONNRESET):
                raise
            time.sleep(0.01)
            return None
        self.connects += 1
        return sock

    def _fill(self) -> None:
        """Have as many connections as wanted; a few at a time, so that the others go on."""
        for _ in range(min(8, self._most - len(self._open))):
            sock = self._connected()
            if sock is None:
                return
            sock.settimeout(0)
            sender = Sender(sock, self._pieces())
            self._open[sock.fileno()] = sender
            wanted = select.EPOLLIN if self._slow else select.EPOLLIN | select.EPOLLOUT
            self._epoll.register(sock.fileno(), wanted)

    def _round(self, until_s: float) -> None:
        for number, events in self._epoll.poll(DRIP_EVERY_S if self._slow else 0.01):
            sender = self._open[number]
            alive = True
            if events & ~select.EPOLLOUT:
                alive = sender.receive(self.statuses)
            if alive and events & select.EPOLLOUT:
                alive = self._send(sender)
            if not alive:
                self._drop(number)
            if time.perf_counter() > until_s:
                return
        if self._slow:
            for number, sender in list(self._open.items()):
                if not self._send(sender):
                    self._drop(number)

    def _send(self, sender: Sender) -> bool:
        sent = sender.send()
        self.sent_bytes += max(0, sent)
        return sent >= 0

    def _drop(self, number: int) -> None:
        self.closed += 1
        self._epoll.unregister(number)
        self._open.pop(number).sock.close()


class Sender:
    """One connection and what is still to be sent on it."""

    def __init__(self, sock: socket.socket, pieces: Iterator[bytes]) -> None:
        self.sock = sock
        self._pieces = pieces
        self._left = memoryview(b"")
        self._tail = b""

    def send(self) -> int:
        """Send some; how many bytes, -1 if the connection is gone."""
        if not self._left:
            self._left = memoryview(next(self._pieces))
        try:
            sent = self.sock.send(self._left[:SEND_BYTES])
        except BlockingIOError:
            return 0
        except OSError:
            return -1
        self._left = self._left[sent:]
        return sent

    def receive(self, statuses: Counter[str]) -> bool:
        """Count the answers that are here; False once the connection is gone."""
        data = b""
        with suppress(OSError):
            data = self.sock.recv(RECEIVE_BYTES)
        if not data:
            return False
        text = self._tail + data
        last = 0
        for found in _STATUS.finditer(text):
            statuses[found.group(1).decode()] += 1
            last = found.end()
        self._tail = text[max(last, len(text) - _LONGEST_STATUS_BYTES + 1) :]
        return True


def main(kind: str, port: str, source: str, seconds: str) -> None:
    """Attack and tell."""
    attack = Attack(kind, int(port), source)
    attack.run(float(seconds))
    told = {
        "statuses": dict(attack.statuses),
        "connects": attack.connects,
        "closed": attack.closed,
        "sent_mib": attack.sent_bytes / 1_048_576,
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
