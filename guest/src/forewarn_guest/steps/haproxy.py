"""The step `haproxy`: drains servers or makes them ready, through the runtime socket.

haproxy answers a command that it obeyed with an empty line and every other one with words, so
whatever it says to `set server` is a failure; and what it was told is looked up afterwards.
"""

from __future__ import annotations

import csv
import io
import socket
import time
from collections.abc import Iterator

from forewarn_guest.errors import StepError
from forewarn_guest.steps.options import SocketAddress
from forewarn_guest.steps.step_context import Deadline, StepContext, one_line

ANSWER_MAX = 8 * 1024 * 1024  # bytes; `show stat` of some thousand servers
CONNECT_S = 5.0
LOOK_AGAIN_S = 0.25
SAID_MAX = 300  # characters of haproxy's answer that are repeated
SERVERS_ONLY = 4  # the bit of `show stat` for servers
# Bits of srv_admin_state in `show servers state`: told to be in maintenance, told to drain.
_MAINT, _DRAIN = 0x01, 0x08
_TOLD = {"drain": _DRAIN, "maint": _MAINT, "ready": 0}


def run(occasion: StepContext) -> str:
    """Do it on every socket. Returns what was done; raises StepError with what was not."""
    action, servers = occasion.options["action"], occasion.options["servers"]
    sockets = occasion.options["sockets"]
    for address in sockets:
        for server in servers:
            _set(address, server, action, occasion.deadline)
        _look(address, servers, action, occasion.deadline)
    said = f"{' '.join(servers)} set to {action}"
    if not occasion.options["wait"]:
        return f"{said}."
    for address in sockets:
        _wait(address, servers, occasion.deadline)
    return f"{said}, with no sessions left."


def _set(address: SocketAddress, server: str, action: str, deadline: Deadline) -> None:
    deadline.doing = f"haproxy at {address} had not set {server} to {action}"
    answer = _ask(address, f"set server {server} state {action}", deadline).strip()
    if not answer:
        return
    remedy = "Name servers as `show servers state` does."
    if "permission" in answer.lower():
        remedy = "Give this socket `level admin` in haproxy.cfg."
    said = one_line(answer, SAID_MAX).rstrip(". ")
    raise StepError(f"haproxy at {address} refused to set {server} to {action}: {said}.", remedy)


def _look(
    address: SocketAddress, servers: tuple[str, ...], action: str, deadline: Deadline
) -> None:
    """That each server is what it was told to be."""
    told = dict(_admin_bits(_ask(address, "show servers state", deadline)))
    for server in servers:
        if server not in told:
            raise StepError(f"haproxy at {address} does not list {server}.")
        if told[server] & (_MAINT | _DRAIN) != _TOLD[action]:
            raise StepError(
                f"haproxy at {address} lists {server} with the bits {told[server]:#x}, "
                f"which is not {action}.",
                "Does something else set this server too?",
            )


def _admin_bits(answer: str) -> Iterator[tuple[str, int]]:
    """`backend/server` and its srv_admin_state. The second line names the columns."""
    lines = answer.splitlines()
    header = next((line for line in lines if line.startswith("# ")), "")
    names = header[2:].split()
    try:
        columns = [names.index(name) for name in ("be_name", "srv_name", "srv_admin_state")]
    except ValueError:
        raise StepError(
            f"haproxy did not list its servers but said: {one_line(answer, SAID_MAX)}."
        ) from None
    for line in lines:
        fields = line.split()
        if len(fields) > max(columns) and not line.startswith("#"):
            backend, server, bits = (fields[column] for column in columns)
            if bits.isdigit():
                yield f"{backend}/{server}", int(bits)


def _wait(address: SocketAddress, servers: tuple[str, ...], deadline: Deadline) -> None:
    """Until no server has a session, those in its queue included."""
    while True:
        sessions = _sessions(_ask(address, f"show stat -1 {SERVERS_ONLY} -1", deadline))
        left = {server: sessions[server] for server in servers if sessions.get(server)}
        if not left:
            return
        said = ", ".join(f"{server} had {count}" for server, count in left.items())
        deadline.doing = f"Sessions were left at {address} ({said})"
        time.sleep(deadline.left(LOOK_AGAIN_S))


def _sessions(answer: str) -> dict[str, int]:
    """How many sessions each `backend/server` has, from the CSV of `show stat`."""
    if not answer.startswith("# "):
        said = one_line(answer, SAID_MAX)
        raise StepError(f"haproxy did not list sessions but said: {said}.")
    found: dict[str, int] = {}
    for row in csv.DictReader(io.StringIO(answer[2:])):
        counts = (row.get("scur") or "0", row.get("qcur") or "0")
        if all(count.isdigit() for count in counts):
            found[f"{row.get('pxname')}/{row.get('svname')}"] = sum(map(int, counts))
    return found


def _ask(address: SocketAddress, command: str, deadline: Deadline) -> str:
    """The whole answer to one command. haproxy closes the connection behind it."""
    try:
        with _connected(address, deadline) as channel:
            channel.sendall(f"{command}\n".encode("ascii"))
            return _read(channel, deadline)
    except OSError as error:  # a time-out too
        deadline.left()  # if it was the deadline, that is what to say
        raise StepError(
            f"haproxy cannot be asked at {address} ({error.strerror or error}).",
            "Is haproxy running, and may this user use its stats socket?",
        ) from error


def _connected(address: SocketAddress, deadline: Deadline) -> socket.socket:
    seconds = deadline.left(CONNECT_S)
    if not address.path:
        return socket.create_connection((address.host, address.port), seconds)
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        channel.settimeout(seconds)
        channel.connect(address.path)
    except OSError:
        channel.close()
        raise
    return channel


def _read(channel: socket.socket, deadline: Deadline) -> str:
    chunks: list[bytes] = []
    size = 0
    while True:
        channel.settimeout(deadline.left())
        chunk = channel.recv(65536)
        if not chunk:
            return b"".join(chunks).decode("utf-8", "replace")
        size += len(chunk)
        if size > ANSWER_MAX:
            raise StepError(f"haproxy answered more than {ANSWER_MAX} bytes.")
        chunks.append(chunk)
