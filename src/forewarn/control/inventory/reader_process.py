"""Reading large inventory files in a process of its own: what it is asked and what it answers.

To read 200,000 VMs takes half a minute of a core, and a gigabyte that is needed for that time only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from forewarn.control.inventory.apply_runner import ReadsOnThread
from forewarn.control.inventory.file_reader import Mistake, in_words, parse
from forewarn.core.errors import BadInventory
from forewarn.core.inventory.entries import HostEntry, Inventory, ScopeEntry, VmEntry

APART_CHARS_MIN = 256 * 1_024  # less is read on a thread, in some tenths of a second
ENTRIES_PER_FRAME = 500
WHAT = "reads the inventory"


class Asks(Protocol):
    """Has a module answer in a process of its own: `adapters.child_processes.ask`."""

    def __call__(
        self, module: str, question: bytes, text: str, take: Any, *, what: str
    ) -> Awaitable[Any]: ...


class _ReadRequest(msgspec.Struct):
    """What to do with the file that follows: read it, or find the lines of these mistakes."""

    needs_channels: bool = True
    found: tuple[Mistake, ...] | None = None


class _Part(msgspec.Struct):
    """A part of the answer: of what the file says, or the words of a refusal."""

    hosts: tuple[HostEntry, ...] = ()
    scopes: tuple[ScopeEntry, ...] = ()
    vms: tuple[VmEntry, ...] = ()
    words: tuple[str, str] | None = None


class ReadsApart:
    """`inventories.Reads` in a process of its own; on a thread what is not large."""

    def __init__(self, ask: Asks, *, module: str, apart_chars: int = APART_CHARS_MIN) -> None:
        self._ask = ask
        self._module = module
        self._apart_chars = apart_chars
        self._here = ReadsOnThread()

    async def read(self, text: str, *, needs_channels: bool) -> Inventory:
        """The content of a file. Raises BadInventory, or Unavailable if the child died."""
        if len(text) < self._apart_chars:
            return await self._here.read(text, needs_channels=needs_channels)
        asked = _ReadRequest(needs_channels=needs_channels)
        found: Inventory | tuple[str, str] = await self._ask(
            self._module, msgspec.msgpack.encode(asked), text, _together, what=WHAT
        )
        if not isinstance(found, Inventory):
            raise BadInventory(*found)
        return found

    async def words(self, text: str, found: Sequence[Mistake]) -> tuple[str, str]:
        """The words of a refusal, with the lines of the file."""
        if len(text) < self._apart_chars:
            return await self._here.words(text, found)
        asked = msgspec.msgpack.encode(_ReadRequest(found=tuple(found)))
        words: tuple[str, str] = await self._ask(self._module, asked, text, _together, what=WHAT)
        return words


def _together(frames: Iterable[bytes]) -> Inventory | tuple[str, str]:
    hosts: list[HostEntry] = []
    scopes: list[ScopeEntry] = []
    vms: list[VmEntry] = []
    decoder = msgspec.msgpack.Decoder(_Part)
    for frame in frames:
        part = decoder.decode(frame)
        if part.words is not None:
            return part.words
        hosts.extend(part.hosts)
        scopes.extend(part.scopes)
        vms.extend(part.vms)
    return Inventory(hosts=tuple(hosts), scopes=tuple(scopes), vms=tuple(vms))


def reply(question: bytes, text: str) -> Iterator[bytes]:
    """In the child: the frames of the answer."""
    yield from map(msgspec.msgpack.encode, _parts(question, text))


def _parts(question: bytes, text: str) -> Iterator[_Part]:
    asked = msgspec.msgpack.decode(question, type=_ReadRequest)
    if asked.found is not None:
        yield _Part(words=in_words(text, asked.found))
        return
    try:
        wanted = parse(text, needs_channels=asked.needs_channels)
    except BadInventory as refused:
        yield _Part(words=(refused.refused, refused.accepted))
        return
    for at in range(0, len(wanted.hosts), ENTRIES_PER_FRAME):
        yield _Part(hosts=wanted.hosts[at : at + ENTRIES_PER_FRAME])
    for at in range(0, len(wanted.scopes), ENTRIES_PER_FRAME):
        yield _Part(scopes=wanted.scopes[at : at + ENTRIES_PER_FRAME])
    for at in range(0, len(wanted.vms), ENTRIES_PER_FRAME):
        yield _Part(vms=wanted.vms[at : at + ENTRIES_PER_FRAME])
