"""The marks of a host (`core.incarnation_marks`) in its data folder, and forgetting them.

marks            a line that says how many follow, then one line for each VM. Every line
                 begins with its checksum. Replaced whole, and durable when written
accept-control   there while the operator wants the marks forgotten; the daemon that carries
                 it out removes it. Only whether it is there counts
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from forewarn.adapters.file_format_versions import Form, this_program
from forewarn.adapters.private_files import leave_to_owner, sync_folder, write_private
from forewarn.adapters.sqlite.data_folder import (
    make_private,
    unusable,
)
from forewarn.core.incarnation_marks import Marks, VmKey

MARKS_FILE = "marks"
ACCEPT_FILE = "accept-control"
FORM = 1  # of the file
LOST_CHARS_MAX = 300
_CHECKSUM_CHARS = 8

T = TypeVar("T", bound=msgspec.Struct)


class _Head(msgspec.Struct, frozen=True):
    """The first line: the form of the file, how many lines follow, `Marks.lost`, who wrote it."""

    form: int
    count: int
    lost: str = ""
    written_by: str = ""


class _Line(msgspec.Struct, frozen=True, array_like=True):
    """One VM."""

    vm: str
    vm_id: str
    incarnation: int


def keep(folder: Path, marks: Marks) -> None:
    """Replace what was kept. Durable when it returns. Raises OSError."""
    head = _Head(FORM, len(marks.of_vm), marks.lost[:LOST_CHARS_MAX], this_program())
    lines = (_Line(vm, vm_id, marked) for (vm, vm_id), marked in marks.of_vm.items())
    write_private(folder / MARKS_FILE, b"".join(map(_text, (head, *lines))))


def load(folder: Path) -> Marks | None:
    """What was kept, as far as it can be read; None if nothing ever was.

    What cannot be read is said in `lost`, and stays said when the marks are kept again. Raises
    DatabaseRefused if the file has another form or cannot be read at all.
    """
    path = folder / MARKS_FILE
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(folder, error) from error
    head = _read(lines[0], _Head)
    if head is not None:
        Form(head.form, head.written_by).refuse(
            path,
            newest=FORM,
            price="have the marks forgotten, at the price that guests may read a lower incarnation:"
            " stop the daemon and remove the file.",
        )
    found = dict(_marks(lines[1:]))
    lost = head.lost if head is not None else ""
    if head is None or len(found) != head.count:
        wanted = "an unknown number" if head is None else str(head.count)
        lost = f"{path} is damaged: {len(found)} of {wanted} marks could be read"
    return Marks(of_vm=found, lost=lost)


def _marks(lines: list[bytes]) -> Iterator[tuple[VmKey, int]]:
    for text in lines:
        line = _read(text, _Line)
        if line is not None:
            yield (line.vm, line.vm_id), line.incarnation


def _text(line: msgspec.Struct) -> bytes:
    content = msgspec.json.encode(line)
    return b"%08x %b\n" % (zlib.crc32(content), content)


def _read(text: bytes, kind: type[T]) -> T | None:
    """A line, if it is as it was written."""
    content = text[_CHECKSUM_CHARS + 1 :]
    if text[: _CHECKSUM_CHARS + 1] != b"%08x " % zlib.crc32(content):
        return None
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(content, type=kind)
    return None


# The operator's word.


def ask_to_accept(folder: Path) -> None:
    """Have the daemon that runs on this folder now or next forget the marks. Raises OSError."""
    path = folder / ACCEPT_FILE
    with suppress(FileExistsError):
        make_private(path)
        leave_to_owner(path)
    sync_folder(folder)


def accepting(folder: Path) -> bool:
    """Whether the operator wants the marks forgotten."""
    return (folder / ACCEPT_FILE).exists()


def forget(folder: Path) -> None:
    """Forget all marks, as the operator wants it. Raises OSError; then the word still stands."""
    keep(folder, Marks())
    (folder / ACCEPT_FILE).unlink(missing_ok=True)
    sync_folder(folder)
