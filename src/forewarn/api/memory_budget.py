"""How many bytes of questions and answers are in memory at once, in all and of one caller.

Every limit here stands in the sum above MemoryMax= of the units (`packaging/systemd`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forewarn.core.errors import Unavailable

PIECE_BYTES = 64 * 1_024  # of an answer: the next one leaves when this one was taken

MIB = 1_024 * 1_024


class MemoryBudget:
    """Bytes that callers share. Belongs to the event loop."""

    def __init__(self, bytes_max: int, of_one_max: int) -> None:
        self.bytes_max = bytes_max
        self.of_one_max = of_one_max
        self._taken = 0
        self._by_caller: Counter[str] = Counter()

    @contextmanager
    def taking(self, caller: str, size: int) -> Iterator[None]:
        """Have room for so many bytes for the length of the block. Raises Unavailable.

        What is larger than all of a caller's share is let in if it is alone: it has a limit too.
        """
        own = self._by_caller[caller]
        if own and own + size > self.of_one_max:
            raise Unavailable(f"What {caller} sends or is sent takes {own} bytes already.")
        if self._taken and self._taken + size > self.bytes_max:
            raise Unavailable("Too much is being sent and answered at once.")
        self._taken += size
        self._by_caller[caller] += size
        try:
            yield
        finally:
            self._taken -= size
            self._by_caller[caller] -= size
            if not self._by_caller[caller]:
                del self._by_caller[caller]


def declared_bytes(request: Request, *, bytes_max: int) -> int:
    """How long the body of a request can become: as it says, else as long as it may be."""
    said = request.headers.get("content-length", "")
    return min(int(said), bytes_max) if said.isdecimal() and len(said) < 20 else bytes_max


class PacedResponse(Response):
    """A long answer that leaves piece by piece, as the caller takes it, and has room until then."""

    def __init__(self, content: bytes, *, room: MemoryBudget, caller: str, media_type: str) -> None:
        super().__init__(content, media_type=media_type)
        self._room = room
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        body = bytes(self.body)
        with self._room.taking(self._caller, len(body)):
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            for at in range(0, len(body), PIECE_BYTES):
                piece = body[at : at + PIECE_BYTES]
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
