"""The journal: what must survive the agent's death, on the disk before the agent relies on it.

It keeps plain JSON objects and knows nothing of what they mean. One append is one line, a
checksum in front of its JSON: one fact as an object, several as an array. So after a kill or a
power cut an append is there as a whole or not at all, however many facts it had.

    5a0f33c1 {"fact":"begun","step":"drain"}

A write that did not come to its end leaves a line without its newline, or a last line with a wrong
checksum. No caller was told that this line is kept, so it is cut. A wrong line with others after it
is damage, and is refused.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from forewarn_guest.errors import JournalDamaged, JournalError, JournalFull
from forewarn_guest.shared_folders import others_than_root

Fact = dict[str, Any]

SIZE_MAX_B = 8 * 1024 * 1024
COMPACT_FROM_B = 1024 * 1024  # from here on `large`; a fact has a few hundred bytes
LINE_MAX_B = 1024 * 1024
DEPTH_MAX = 32  # what is nested deeper might be written and then not be readable again
SHOWN_MAX_B = 80  # of what was cut, in the sentence about it

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
WRONG_FOLDER = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT, errno.EEXIST}
)


class Journal:
    """The open journal of the one agent that holds it; of one thread at a time.

    Making one takes the lock and opens the file, or makes it, with its folder. `cut` says, once
    `read` was called, what was cut from the end; it is empty when nothing was. `size_max_b` is
    the size that no append exceeds.
    """

    def __init__(self, path: Path, *, size_max_b: int = SIZE_MAX_B) -> None:
        self.path = path
        self.size_max_b = size_max_b
        self.cut = ""
        self._file = self._lock = -1
        self._size = 0
        self._crc = 0
        self._was_read = False
        self._unsure = False
        try:
            _make_folder(path.parent)
            _refuse_shared(path.parent)
            self._lock = _lock(path)
        except OSError as error:
            raise _not_opened(path, error) from error
        try:
            with contextlib.suppress(FileNotFoundError):
                _beside(path, ".new").unlink()  # of a compaction that did not come to its end
            self._open(os.O_CREAT)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise _not_opened(path, error) from error
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file and of the lock. Nothing is written: what was kept is on the disk."""
        for file in (self._file, self._lock):
            if file >= 0:
                os.close(file)
        self._file = self._lock = -1

    @property
    def size_b(self) -> int:
        """How long the file is, without what an append left that failed."""
        return self._size

    @property
    def large(self) -> bool:
        """True when it is time to `compact`, as soon as nothing is open."""
        return self._size >= min(COMPACT_FROM_B, self.size_max_b // 2)

    def read(self) -> list[Fact]:
        """Every fact that was kept, oldest first; all of it is on the disk when this returns.

        A torn last line is cut, durably, and `cut` says so. A damaged line elsewhere raises
        JournalDamaged and leaves the file as it is.
        """
        try:
            if self._unsure:
                self._put_back()
            data = self._contents()
            facts, whole = parse(data, self.path)
            if whole < len(data):
                os.ftruncate(self._file, whole)
            # The agent before this one may have been killed between its write and its fsync:
            # what is read here is in memory, and has to be on the disk before the agent acts on it.
            os.fsync(self._file)
            _sync_folder(self.path.parent)
        except OSError as error:
            raise JournalError(
                f"The journal {self.path} cannot be read: {error.strerror}.", "Look at the disk."
            ) from error
        if whole < len(data):
            self.cut = _what_was_cut(self.path, data[whole:])
        self._size, self._crc = whole, zlib.crc32(data[:whole])
        self._was_read, self._unsure = True, False
        return facts

    def append(self, facts: Sequence[Fact]) -> None:
        """Keep these facts: they are on the disk when this returns, all of them.

        JournalFull when there is no room for them, JournalError for everything else; then none
        of them is kept and the next append may work again.
        """
        if not facts:
            return
        line = _line(facts)
        self._be_sure()
        if self._size + len(line) > self.size_max_b:
            raise JournalFull(
                f"The journal {self.path} has reached its limit of {self.size_max_b} bytes.",
                "It is made shorter by itself when no event is open.",
            )
        self._unsure = True  # until it is on the disk, whatever interrupts this
        try:
            _write(self._file, line)
            os.fsync(self._file)
        except OSError as error:
            raise self._not_kept(error) from error
        self._size += len(line)
        self._crc = zlib.crc32(line, self._crc)
        self._unsure = False

    def compact(self, facts: Sequence[Fact]) -> None:
        """Put a new file with just these facts in the place of the old one, in one instant.

        The old one stays beside it as `.1`. If this raises, the journal is as it was, or is the
        new one; both hold what was kept, and the next append makes sure which it is.
        """
        self._be_sure()
        data = b"".join(_line([fact]) for fact in facts)
        if len(data) > self.size_max_b:
            raise JournalFull(f"{len(data)} bytes do not fit into the journal {self.path}.")
        new, old = _beside(self.path, ".new"), _beside(self.path, ".1")
        try:
            _write_new(new, data)
            with contextlib.suppress(FileNotFoundError):
                old.unlink()
            os.link(self.path, old)
            new.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink()  # if not now, then when the journal is opened again
            raise _failed(f"The journal {self.path} cannot be made shorter", error) from error
        self._size, self._crc, self._unsure = len(data), zlib.crc32(data), True
        try:
            self._put_back()
        except OSError as error:
            raise _failed(f"The new journal {self.path} is not surely kept", error) from error

    def _open(self, create: int = 0) -> None:
        """Open the file. One that is lost later is never made anew: that would hide the loss."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._file = os.open(self.path, flags | create, 0o600)
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise JournalError(f"{self.path} is not a file.", "Move it away.")
        _sync_folder(self.path.parent)

    def _contents(self) -> bytes:
        """The whole file; one that no agent can have written is refused before it is in memory."""
        size = os.fstat(self._file).st_size
        if size > self.size_max_b + LINE_MAX_B:
            raise JournalError(
                f"The journal {self.path} has {size} bytes, more than the {self.size_max_b} that "
                "an agent writes.",
                _WHAT_TO_DO.format(path=self.path),
            )
        pieces = []
        at = 0
        while at < size:
            piece = os.pread(self._file, size - at, at)
            if not piece:
                break
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)

    def _be_sure(self) -> None:
        """Make sure that the file is what this agent has kept, before more is kept in it."""
        if not self._was_read:
            self.read()
        if self._unsure:
            try:
                self._put_back()
            except OSError as error:
                raise _failed(f"The journal {self.path} cannot be used", error) from error
        try:
            named = self.path.stat()
        except OSError as error:
            raise _failed(f"The journal {self.path} is no longer there", error) from error
        opened = os.fstat(self._file)
        if (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino) or (
            named.st_size != self._size
        ):
            raise JournalError(
                f"The journal {self.path} was changed by another process.",
                "Restart the agent: it reads what is there now.",
            )

    def _not_kept(self, error: OSError) -> JournalError:
        """Take back what a failed append left, and say why it failed."""
        what = f"The journal {self.path} cannot be written"
        try:
            self._put_back()
        except OSError as again:
            what += f" (nor taken back yet: {again.strerror})"
        return _failed(what, error)

    def _put_back(self) -> None:
        """Open the file again and make it on the disk what this agent knows to be kept.

        After a failed fsync the kernel calls the pages clean though they were never written, and
        a second fsync of the same handle says that all is well. So the handle is given up, the
        pages are dropped, and what the disk has is read before anything is claimed.
        """
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._open()
        with contextlib.suppress(OSError):  # a wish; a file system may not know it
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        data = self._contents()
        if len(data) < self._size or zlib.crc32(data[: self._size]) != self._crc:
            raise JournalDamaged(
                f"The journal {self.path} has lost what was kept in it.",
                _WHAT_TO_DO.format(path=self.path),
            )
        os.ftruncate(self._file, self._size)
        os.fsync(self._file)
        _sync_folder(self.path.parent)
        self._unsure = False


def parse(data: bytes, path: Path) -> tuple[list[Fact], int]:
    """The facts in the bytes of a journal, and how many bytes of it are whole lines.

    What follows these bytes is a torn last line. JournalDamaged for a wrong line elsewhere.
    """
    facts: list[Fact] = []
    at = 0
    number = 0
    while at < len(data):
        number += 1
        end = data.find(b"\n", at)
        if end < 0:
            break
        found = _facts_of(data[at:end])
        if found is None and end + 1 == len(data):
            break
        if found is None:
            raise JournalDamaged(
                f"Line {number} of the journal {path} is not what was written.",
                _WHAT_TO_DO.format(path=path),
            )
        facts += found
        at = end + 1
    return facts, at


def facts_in(path: Path) -> list[Fact]:
    """The facts of a journal that an agent may be writing; nothing is locked, cut or made."""
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_MAX_B + LINE_MAX_B + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(
            f"The journal {path} cannot be read: {error.strerror}.",
            "Only root and the user of the agent may read it."
            if error.errno == errno.EACCES
            else "",
        ) from error
    return parse(data, path)[0]


_WHAT_TO_DO = (
    "Look at the disk, then move the file away (mv {path} {path}.damaged) and start again. What "
    "is lost by that: which steps were done. The agent then treats every event that it sees as a "
    "new one, so steps of open events may be run again, and what was prepared for an event that "
    "is gone meanwhile has to be undone by hand."
)


def _facts_of(line: bytes) -> list[Fact] | None:
    """The facts of a line without its newline; None if it is not as it was written."""
    if len(line) < 9 or line[8:9] != b" ":
        return None
    text = line[9:]
    if line[:8] != b"%08x" % zlib.crc32(text):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    facts = value if isinstance(value, list) else [value]
    return facts if all(isinstance(fact, dict) for fact in facts) else None


def _line(facts: Sequence[Fact]) -> bytes:
    """One append as it stands in the file."""
    value: Any = facts[0] if len(facts) == 1 else list(facts)
    if _deeper(value, DEPTH_MAX):
        raise JournalError(f"A fact is nested deeper than {DEPTH_MAX}: it is not kept.")
    text = json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")
    line = b"%08x %s\n" % (zlib.crc32(text), text)
    if len(line) > LINE_MAX_B:
        raise JournalError(f"Facts of {len(line)} bytes are not kept: the limit is {LINE_MAX_B}.")
    return line


def _deeper(value: Any, depth: int) -> bool:
    if not isinstance(value, (dict, list, tuple)):
        return False
    inner: list[Any] = list(value.values()) if isinstance(value, dict) else list(value)
    return depth == 0 or any(_deeper(one, depth - 1) for one in inner)


def _write(file: int, data: bytes) -> None:
    """Write all of it; a disk that is full takes a part first and refuses the rest."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _write_new(path: Path, data: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _write(file, data)
        os.fsync(file)
    finally:
        os.close(file)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(mode=0o700)
        _sync_folder(folder.parent)


def _refuse_shared(folder: Path) -> None:
    """Raise JournalError where an agent that is root would go by what others may write."""
    why = others_than_root(folder)
    if why:
        raise JournalError(
            f"The agent runs as root, and others may change its journal in {folder}: {why}.",
            "Or configure another folder, or run the agent as a user of its own.",
        )


def _sync_folder(folder: Path) -> None:
    """A name in a folder is kept when the folder is: otherwise the file is there and not found."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _lock(path: Path) -> int:
    """Take the lock beside the journal, for as long as the handle is open, or refuse.

    A file of its own: the journal itself is replaced by `compact`. The kernel lets go of the lock
    when the agent dies, so nothing has to be cleared away after a kill.
    """
    lock = os.open(
        _beside(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        pid = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
        os.close(lock)
        raise JournalError(
            f"Another agent ({f'pid {pid}' if pid else 'its pid is not known'}) uses the journal "
            f"{path}.",
            "Stop that one first, or give this one a folder of its own.",
        ) from error
    except BaseException:
        os.close(lock)
        raise
    with contextlib.suppress(OSError):  # on a full disk the lock still holds, without the pid
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    return lock


def _failed(what: str, error: OSError) -> JournalError:
    if error.errno in NO_ROOM:
        return JournalFull(f"{what}: {error.strerror}.", "Make room on the disk.")
    return JournalError(f"{what}: {error.strerror}.", "Look at the disk.")


def _not_opened(path: Path, error: OSError) -> JournalError:
    """Why a journal cannot be opened, with the rights of its folder where those are the cause."""
    failed = _failed(f"The journal {path} cannot be opened", error)
    if error.errno not in WRONG_FOLDER:
        return failed
    try:
        found = path.parent.stat()
    except OSError as missing:
        whose = f"Its folder: {missing.strerror}."
    else:
        rights = stat.filemode(found.st_mode)
        whose = f"Its folder has the rights {rights} and belongs to uid {found.st_uid}."
    return JournalError(
        f"{failed.message} {whose} This agent runs as uid {os.geteuid()}.",
        "Give the folder to the user of the agent, or configure another one.",
    )


def _what_was_cut(path: Path, torn: bytes) -> str:
    shown = torn[:SHOWN_MAX_B].decode("ascii", "backslashreplace")
    return (
        f"The last line of the journal {path} was torn, {len(torn)} bytes, and has been cut: "
        f"{shown!r}. No caller was told that it is kept."
    )
