"""Telling systemd how the agent is (sd_notify), over the datagram socket that it names.

Nothing said here can hold up or end the agent: what cannot be sent is lost.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

SOCKET = "NOTIFY_SOCKET"
WATCHDOG = "WATCHDOG_USEC"
WATCHDOG_PID = "WATCHDOG_PID"
SAID_CHARS_MAX = 200
# systemd ends a service that was silent for the whole interval; it is told well before that.
BEATS_IN_AN_INTERVAL = 3


class Notifier:
    """Says READY, STATUS, WATCHDOG and STOPPING. Without a socket it says nothing.

    `beat_every_s` is how often `beat` must be called at least, or None if systemd does not watch.
    """

    def __init__(self, address: str = "", watchdog_s: float | None = None) -> None:
        self.beat_every_s = None if watchdog_s is None else watchdog_s / BEATS_IN_AN_INTERVAL
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        self._beaten_s: float | None = None
        self._said = ""
        if address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.settimeout(0)

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Notifier:
        """What the environment asks for. It is taken out: steps are not the agent."""
        address = environment.pop(SOCKET, "")
        usec = environment.pop(WATCHDOG, "")
        pid = environment.pop(WATCHDOG_PID, "")
        mine = pid in ("", str(os.getpid()))
        watched = bool(address) and mine and usec.isascii() and usec.isdigit() and int(usec) > 0
        if not address.startswith(("/", "@")):
            address = ""
        return cls(address, int(usec) / 1_000_000 if watched else None)

    def ready(self) -> None:
        """The agent has read its configuration and its journal and looks after the VM."""
        self._send("READY=1")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def say(self, text: str) -> None:
        """What `systemctl status` shows; sent when it is another than before."""
        said = " ".join(text.split())[:SAID_CHARS_MAX]
        if said != self._said and self._send(f"STATUS={said}"):
            self._said = said

    def beat(self, now_s: float) -> None:
        """The main loop has come round. Only the main loop may say so."""
        if self.beat_every_s is None:
            return
        if self._beaten_s is None or now_s - self._beaten_s >= self.beat_every_s / 2:
            self._send("WATCHDOG=1")
            self._beaten_s = now_s

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, text: str) -> bool:
        if self._socket is None:
            return False
        try:
            self._socket.sendto(text.encode("utf-8", "replace"), self._address)
        except OSError:
            return False  # systemd is busy or gone; the next beat may reach it
        return True
