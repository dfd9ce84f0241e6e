"""A proxy in front of a database that cuts the line where a test says. No test lives here."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from enum import StrEnum
from types import TracebackType

BYTES_MAX = 1 << 16
HANGS_S = 60  # only ends a hang


class Cut(StrEnum):
    """Where the line is cut."""

    BEFORE_IT_IS_SENT = "before it is sent"
    AFTER_IT_WAS_DONE = "after it was done, before the answer"


class CuttingProxy:
    """Passes on what a client and a server say. Armed, it cuts at the next message with `word`."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._cut: tuple[Cut, bytes] | None = None
        self._lines: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self.met = threading.Event()

    def arm(self, cut: Cut, word: bytes) -> None:
        self._cut = (cut, word)

    def __enter__(self) -> CuttingProxy:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut_all()
        for thread in self._threads:
            thread.join(HANGS_S)

    def cut_all(self) -> None:
        """Cut every line there is."""
        for line in self._lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                self._lines += [client, server]
                for way in (self._say, self._answer):
                    thread = threading.Thread(target=way, args=(client, server))
                    self._threads.append(thread)
                    thread.start()

    def _cuts(self, cut: Cut, said: bytes) -> bool:
        """Whether the line is cut here. It is cut once."""
        if self._cut is None or self._cut[0] is not cut or self._cut[1] not in said:
            return False
        self._cut = None
        self.met.set()
        return True

    def _say(self, client: socket.socket, server: socket.socket) -> None:
        """What the client says, until the line is cut."""
        with client, suppress(OSError):
            while said := client.recv(BYTES_MAX):
                if self._cuts(Cut.BEFORE_IT_IS_SENT, said):
                    break
                server.sendall(said)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        """What the server answers, until the line is cut."""
        with server, suppress(OSError):
            while said := server.recv(BYTES_MAX):
                if self._cuts(Cut.AFTER_IT_WAS_DONE, said):
                    break
                client.sendall(said)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
