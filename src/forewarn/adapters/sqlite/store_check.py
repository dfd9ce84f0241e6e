"""Whether a data folder, or a backup, is whole: every page, every row, every file beside it.

A start looks for a few seconds; this looks at everything, and changes nothing. It may be asked of a
folder that a service uses.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import Struct

from forewarn.adapters.members_file import read_members
from forewarn.adapters.restored_members import KEPT_NAMES
from forewarn.adapters.secret_files import (
    CERTIFICATE_FILE,
    KEY_FILE,
    LINK_FOLDER,
    MEMBERS_FILE,
)
from forewarn.adapters.sqlite.backup_file import read_files, sealed
from forewarn.adapters.sqlite.data_folder import (
    APPLICATION_ID,
    DATABASE_NAME,
    SCHEMA_VERSION,
    SHM_NAME,
    WAL_NAME,
    DatabaseRefused,
    kept_from_starting,
    migrate,
    odd_cell,
    refuse_file,
)
from forewarn.adapters.sqlite.database import connect
from forewarn.adapters.sqlite.opening import refuse_unfit
from forewarn.ports import StoreFailed
from forewarn.tables import table_specs

SAID_MAX = 20  # of what is wrong with pages and references
_LINK_FILES = (CERTIFICATE_FILE, KEY_FILE, MEMBERS_FILE)

# Each table, and what its rows are read with. Parts that other tables hold are left out.
_VALUES: dict[str, Callable[[sqlite3.Row], object]] = {
    "host": table_specs.HOSTS.value,
    "scope": lambda row: table_specs.SCOPES.value(row, vms=(), events=()),
    "vm": table_specs.VMS.value,
    "scheduled_event": lambda row: table_specs.EVENTS.value(row, actions=()),
    "action": table_specs.ACTIONS.value,
    "operation": lambda row: table_specs.OPERATIONS.value(row, members=(), action=None),
    "journal": table_specs.journal_line,
    "receipt": table_specs.FIRST_READS.value,
    "definition": table_specs.DEFINITIONS.value,
    "departed_vm": table_specs.DEPARTED_VMS.value,
    "remembered": table_specs.REMEMBERED.value,
    "token": table_specs.TOKENS.value,
    "webhook": table_specs.WEBHOOKS.value,
}


class Finding(Struct, frozen=True):
    """What was looked at, and what is wrong with it; nothing if `wrong` is empty."""

    what: str
    said: str
    wrong: str = ""


def check_folder(data_dir: Path) -> tuple[Finding, ...]:
    """Look at a data folder, whether a service uses it or not. Raises OSError."""
    with kept_from_starting(data_dir) as unused:
        found = list(_unused(data_dir)) if unused else list(_database(data_dir / DATABASE_NAME))
    if (data_dir / LINK_FOLDER).exists():
        found += _link(data_dir / LINK_FOLDER)
    return tuple(found)


def _unused(data_dir: Path) -> Iterator[Finding]:
    """What a start would say, and the database, of a folder that no service uses."""
    # SQLite makes them to read a database that was in WAL mode; they hold nothing then.
    made = [path for path in (data_dir / WAL_NAME, data_dir / SHM_NAME) if not path.exists()]
    try:
        start = _start(data_dir)
        yield start
        if (data_dir / DATABASE_NAME).exists():
            yield from _database(data_dir / DATABASE_NAME)
        elif not start.wrong:
            yield Finding("the database", "", f"{data_dir / DATABASE_NAME} is not there")
    finally:
        for path in made:
            path.unlink(missing_ok=True)


def check_backup(file: Path) -> tuple[Finding, ...]:
    """Look at a backup. Raises OSError."""
    seal = sealed(file)
    if seal is None:
        digest = Finding("the digest", "an early version wrote this file, without one")
    elif seal.holds(file):
        digest = Finding("the digest", f"it is {seal.kept}, as when it was written")
    else:
        digest = Finding("the digest", "", "the file is not what was written, or was cut off")
    return (digest, *_database(file, with_wal=False))


def _start(data_dir: Path) -> Finding:
    try:
        refuse_unfit(data_dir)
    except (DatabaseRefused, StoreFailed) as why:
        return Finding("a start", "", str(why))
    return Finding("a start", "nothing keeps one from this folder")


def _database(path: Path, *, with_wal: bool = True) -> Iterator[Finding]:
    """Pages, then references and rows, as far as the pages can be read."""
    address = f"{path.absolute().as_uri()}?mode=ro{'' if with_wal else '&immutable=1'}"
    try:
        refuse_file(path)
        with closing(connect(address)) as connection:
            yield _whose(connection)
            pages = _pages(connection)
            yield pages
            if not pages.wrong:
                yield from _content(connection, path)
    except DatabaseRefused as why:
        yield Finding("the database", "", why.refused)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        yield Finding("the database", "", f"{path} cannot be read: {error}")


def _whose(connection: sqlite3.Connection) -> Finding:
    version = _number(connection, "PRAGMA user_version")
    if _number(connection, "PRAGMA application_id") != APPLICATION_ID:
        return Finding("the database", "", "it is not one of Forewarn")
    if version > SCHEMA_VERSION:
        said = f"its schema is {version}; this program knows up to {SCHEMA_VERSION}"
        return Finding("the database", "", said)
    return Finding("the database", f"it is one of Forewarn, with schema {version}")


def _pages(connection: sqlite3.Connection) -> Finding:
    said = [row[0] for row in connection.execute(f"PRAGMA integrity_check({SAID_MAX})")]
    if said != ["ok"]:
        return Finding("its pages", "", "; ".join(said))
    return Finding("its pages", f"all {_number(connection, 'PRAGMA page_count'):,} are whole")


def _content(connection: sqlite3.Connection, path: Path) -> Iterator[Finding]:
    """What the tables hold, in the form of this program."""
    kept = read_files(connection, path)
    if _number(connection, "PRAGMA user_version") < SCHEMA_VERSION:
        with closing(connect(":memory:")) as copy:
            connection.backup(copy)
            migrate(copy)
            yield from _rows(copy)
    else:
        yield from _rows(connection)
    if kept.note is not None:
        unknown = set(kept.files) - set(KEPT_NAMES)
        wrong = f"it holds {', '.join(sorted(unknown))}" if unknown else ""
        yield Finding("its files", ", ".join(kept.files) or "none", wrong)
    content = kept.files.get(f"{LINK_FOLDER}/{MEMBERS_FILE}")
    if content is not None:
        yield _members(content)


def _rows(connection: sqlite3.Connection) -> Iterator[Finding]:
    broken = connection.execute("PRAGMA foreign_key_check").fetchmany(SAID_MAX)
    if broken:
        said = "; ".join(f"a row of {row[0]} belongs to no row of {row[2]}" for row in broken)
        yield Finding("its references", "", said)
    odd = odd_cell(connection, _VALUES)
    if odd != "ok":
        yield Finding("its rows", "", odd)
        return
    counts = {}
    for table, value in _VALUES.items():
        counts[table] = 0
        for row in connection.execute(f"SELECT * FROM {table}"):  # noqa: S608 - names of ours
            try:
                value(row)
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                yield Finding("its rows", "", f"a row of {table} makes no sense: {error}")
                return
            counts[table] += 1
    shown = ", ".join(f"{count:,} {table}" for table, count in counts.items() if count)
    yield Finding("its rows", f"all can be read: {shown or 'none'}")


def _link(folder: Path) -> Iterator[Finding]:
    there = [name for name in _LINK_FILES if (folder / name).is_file()]
    if CERTIFICATE_FILE not in there and MEMBERS_FILE in there:
        yield Finding("the authority", "", f"{folder / CERTIFICATE_FILE} is not there")
    if CERTIFICATE_FILE in there and KEY_FILE not in there:
        yield Finding("the authority", "", f"{folder / KEY_FILE} is not there")
    if MEMBERS_FILE in there:
        yield _members((folder / MEMBERS_FILE).read_bytes())


def _members(content: bytes) -> Finding:
    try:
        members = read_members(content)
    except ValueError as error:
        return Finding("its members", "", f"{MEMBERS_FILE} {error}")
    return Finding("its members", ", ".join(members.members) or "none")


def _number(connection: sqlite3.Connection, question: str) -> Any:
    return connection.execute(question).fetchone()[0]
