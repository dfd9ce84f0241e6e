"""What a backup file is: a database, the files that were beside it, and a digest at its end.

The files are in a table of their own, which a restore takes out again. The digest stands behind the
last page, where SQLite does not look; pages have none. Backups of earlier versions have no files, a
shorter sum instead of the digest, or neither, and are read too.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct, field

from forewarn.adapters.sqlite.data_folder import damaged
from forewarn.adapters.sqlite.database_mark import file_sum

SEAL = b"forewarn-backup-sha256:%s\n"  # the last bytes of a backup, with the digest in hex
SEAL_BYTES = len(SEAL % bytes(64))
SEAL_OF_BEFORE = b"forewarn-backup-sum:%08x\n"  # of earlier versions: a CRC-32
_SEAL = re.compile(rb"forewarn-backup-sha256:([0-9a-f]{64})\n")
_SEAL_OF_BEFORE = re.compile(rb"forewarn-backup-sum:([0-9a-f]{8})\n")
_CHUNK_BYTES = 1 << 20
_NOTE = "backup.json"
_COLUMNS = "name TEXT NOT NULL PRIMARY KEY, content BLOB NOT NULL"


class BackupNote(Struct, frozen=True, kw_only=True):
    """What a backup says of itself. `moved`: it is the last one of a control that moves."""

    made_ms: int
    written_by: str = ""
    moved: bool = False


class KeptFiles(Struct, frozen=True, kw_only=True):
    """The files of a backup beside the database, by their path in the data folder.

    `note` is None in a backup of an earlier version, which has no files either.
    """

    note: BackupNote | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


def put_files(copy: sqlite3.Connection, files: Mapping[str, bytes], note: BackupNote) -> None:
    """Have a copy of a database hold these files too."""
    copy.execute("BEGIN IMMEDIATE")
    copy.execute(f"CREATE TABLE IF NOT EXISTS kept_file ({_COLUMNS})")
    copy.execute("DELETE FROM kept_file")
    rows = {**files, _NOTE: msgspec.json.encode(note)}
    copy.executemany("INSERT INTO kept_file (name, content) VALUES (?, ?)", sorted(rows.items()))
    copy.execute("COMMIT")


def read_files(source: sqlite3.Connection, path: Path) -> KeptFiles:
    """The files that a backup holds. Raises DamagedDatabase, or what SQLite raises."""
    if not _has_files(source):
        return KeptFiles()
    rows = dict(map(tuple, source.execute("SELECT name, content FROM kept_file").fetchall()))
    try:
        note = msgspec.json.decode(rows.pop(_NOTE), type=BackupNote)
        files = {str(name): bytes(content) for name, content in rows.items()}
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        raise damaged(path, f"the files in it make no sense: {error}") from error
    return KeptFiles(note=note, files=files)


def take_out_files(copy: sqlite3.Connection) -> None:
    """Remove the files from a copy that becomes a database; no page of it keeps a key."""
    copy.execute("PRAGMA secure_delete = ON")
    copy.execute("DROP TABLE IF EXISTS kept_file")


def _has_files(source: sqlite3.Connection) -> bool:
    known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'kept_file'"
    return source.execute(known).fetchone() is not None


def seal(file: Path) -> None:
    """Put the digest behind the last page. Raises OSError."""
    found = _digest(file, file.stat().st_size)
    with file.open("ab") as opened:
        opened.write(SEAL % found.encode())


class BackupDigest(Struct, frozen=True):
    """So many bytes of a backup are pages, and `kept` is their digest, or their sum in `before`."""

    page_bytes: int
    kept: str
    before: bool = False

    def holds(self, file: Path) -> bool:
        """True if the pages are what was sealed. Reads all of them. Raises OSError."""
        if self.before:
            return int(self.kept, 16) == file_sum(file, bytes_max=self.page_bytes)
        return self.kept == _digest(file, self.page_bytes)


def sealed(file: Path) -> BackupDigest | None:
    """The seal of a backup. One of an early version has none; nor has one that was cut off."""
    size = file.stat().st_size
    for pattern, seal_bytes in ((_SEAL, SEAL_BYTES), (_SEAL_OF_BEFORE, len(SEAL_OF_BEFORE % 0))):
        page_bytes = max(0, size - seal_bytes)
        with file.open("rb") as opened:
            opened.seek(page_bytes)
            found = pattern.fullmatch(opened.read(seal_bytes))
        if found is not None:
            return BackupDigest(page_bytes, found[1].decode(), before=pattern is _SEAL_OF_BEFORE)
    return None


def _digest(file: Path, bytes_max: int) -> str:
    found, left = hashlib.sha256(), bytes_max
    with file.open("rb") as opened:
        while chunk := opened.read(min(left, _CHUNK_BYTES)):
            found.update(chunk)
            left -= len(chunk)
    return found.hexdigest()
