"""The step `log`: writes the event to journald with its fields, or to syslog."""

from __future__ import annotations

import os
import socket
import struct
import time
from datetime import datetime, timezone

from forewarn_guest.errors import StepError
from forewarn_guest.steps.kinds import FACILITIES, PRIORITIES
from forewarn_guest.steps.options import SocketAddress
from forewarn_guest.steps.retries import Again, until_done
from forewarn_guest.steps.step_context import Deadline, StepContext, one_line
from forewarn_guest.steps.wording import facts, sentence

JOURNALD_SOCKET = "/run/systemd/journal/socket"
SYSLOG_SOCKET = "/dev/log"
SEND_S = 5.0
# A syslogd that is restarted is back by then; a machine without one must not lose the notice of an
# eviction to a line in a log.
TRY_S = 5.0
# RFC 3164 promises 1024 bytes and RFC 5424 asks for 2048; every syslogd of today reads 8192, and
# one datagram of that size passes any local network.
DATAGRAM_MAX = 8000  # bytes
# One id for all lines of this kind: `journalctl MESSAGE_ID=...` finds those of every writer.
MESSAGE_ID = "3f6c1d2e8a9b4c5d9e0f7a1b2c3d4e5f"


def run(occasion: StepContext) -> str:
    """Write it. A socket that is not there (yet) is tried again, for TRY_S at most."""
    target = occasion.options["to"]
    occasion.deadline.doing = "The log had not taken the line"
    deadline = Deadline(occasion.deadline.left(TRY_S))
    if isinstance(target, SocketAddress):
        return until_done(lambda: _over_udp(target, rfc5424(occasion), deadline), deadline)
    usual = JOURNALD_SOCKET if target == "journald" else SYSLOG_SOCKET
    path = occasion.options["socket"] or usual
    line = journald_fields(occasion) if target == "journald" else rfc3164(occasion)
    return until_done(lambda: _to_socket(path, line, deadline), deadline)


def message(occasion: StepContext) -> str:
    """The event in one line, with what it is found by."""
    return f"{sentence(occasion)} event_id={occasion.field('EventId')} part={occasion.part}"


def journald_fields(occasion: StepContext) -> bytes:
    """The datagram of journald's native protocol: a field per line, binary where it has lines."""
    options = occasion.options
    fields = {
        "MESSAGE": message(occasion),
        "MESSAGE_ID": MESSAGE_ID,
        "PRIORITY": str(PRIORITIES.index(options["priority"])),
        "SYSLOG_FACILITY": str(FACILITIES.index(options["facility"])),
        "SYSLOG_IDENTIFIER": options["identifier"],
        "SYSLOG_PID": str(os.getpid()),
    }
    fields.update({name: value for _label, name, value in facts(occasion)})
    return b"".join(_field(name, value) for name, value in fields.items())


def _field(name: str, value: str) -> bytes:
    data = value.encode("utf-8", "replace")
    if b"\n" not in data:
        return name.encode("ascii") + b"=" + data + b"\n"
    return name.encode("ascii") + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"


def rfc3164(occasion: StepContext) -> bytes:
    """The line for /dev/log, as syslog(3) writes it: local time and no host name."""
    stamp = time.strftime("%b %e %H:%M:%S")
    who = f"{occasion.options['identifier']}[{os.getpid()}]"
    return _bounded(f"<{_pri(occasion)}>{stamp} {who}: {message(occasion)}")


def rfc5424(occasion: StepContext) -> bytes:
    """The line for another machine, with a time and a host name that mean something there."""
    stamp = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    host = "".join(char for char in socket.gethostname() if "!" <= char <= "~")[:255] or "-"
    who = f"{occasion.options['identifier']} {os.getpid()} {occasion.part or '-'}"
    return _bounded(f"<{_pri(occasion)}>1 {stamp} {host} {who} - {message(occasion)}")


def _pri(occasion: StepContext) -> int:
    options = occasion.options
    return FACILITIES.index(options["facility"]) * 8 + PRIORITIES.index(options["priority"])


def _bounded(line: str) -> bytes:
    data = one_line(line, DATAGRAM_MAX).encode("utf-8", "replace")
    return data[:DATAGRAM_MAX].decode("utf-8", "ignore").encode()


def _to_socket(path: str, line: bytes, deadline: Deadline) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.settimeout(deadline.left(SEND_S))
        try:
            channel.connect(path)
            channel.send(line)
        except PermissionError as error:
            raise StepError(f"{path} may not be written to ({error.strerror}).") from error
        except OSError as error:
            raise Again(f"Nothing takes a line at {path} ({error.strerror or error})") from error
    return f"written to {path}."


def _over_udp(target: SocketAddress, line: bytes, deadline: Deadline) -> str:
    """UDP says nothing back: that it was sent is all that is known."""
    try:
        places = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _name, place = places[0]
        with socket.socket(family, kind, protocol) as channel:
            channel.settimeout(deadline.left(SEND_S))
            channel.sendto(line, place)
    except OSError as error:
        raise Again(f"{target} could not be sent to ({error.strerror or error})") from error
    return f"sent to {target}."
