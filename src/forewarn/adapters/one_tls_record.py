"""Connections over which a question goes out whole, in one TLS record.

The HTTP library writes the head of a request and its body apart. Control would be woken twice for
every heartbeat of every host, the first time for half of it.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import httpcore

GATHERED_BYTES_MAX = 16_384  # what one TLS record holds; longer bodies go out as they come


class WholeQuestions(httpcore.AsyncNetworkBackend):
    """Opens such connections, over TCP with TLS."""

    def __init__(self) -> None:
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as the library calls it
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return Gathering(
            await self._network.connect_tcp(host, port, timeout, local_address, socket_options)
        )

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)


class Gathering(httpcore.AsyncNetworkStream):
    """One connection. What is written goes out before the next read, or when it is too much."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._gathered = b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        if len(self._gathered) + len(buffer) <= GATHERED_BYTES_MAX:
            self._gathered += buffer
            return
        await self._send(timeout)
        await self._stream.write(buffer, timeout)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        # Who does not take a question may have said why: the library reads on after that, too.
        with suppress(httpcore.WriteError):
            await self._send(timeout)
        return await self._stream.read(max_bytes, timeout)

    async def _send(self, timeout: float | None) -> None:  # noqa: ASYNC109
        if self._gathered:
            whole, self._gathered = self._gathered, b""
            await self._stream.write(whole, timeout)

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as the library calls it
    ) -> httpcore.AsyncNetworkStream:
        """A handshake that is given up in the middle closes its socket.

        The library forgets it when the caller stops waiting, and a control that hangs would cost
        a descriptor each time.
        """
        try:
            return Gathering(await self._stream.start_tls(ssl_context, server_hostname, timeout))
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
