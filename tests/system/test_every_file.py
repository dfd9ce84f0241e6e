"""Every kind of file of a data folder, damaged in every way: all is there, or a start is refused.

Control is started in this process, on a copy of a folder that a clean stop or a kill has left. What
it has acknowledged is compared with what is there afterwards.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from forewarn.adapters import host_credentials, last_documents
from forewarn.adapters.certificate_authority import Authority
from forewarn.adapters.file_format_versions import UnreadForm
from forewarn.adapters.last_documents import LastShown
from forewarn.adapters.sqlite.backup import restore
from forewarn.adapters.sqlite.data_folder import DatabaseRefused
from forewarn.adapters.sqlite.database_mark import read_mark
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.core.errors import Conflict
from forewarn.ports import EVERYTHING, StoreFailed
from forewarn.wiring.process import CannotStart
from support.link_world import ControlWorld, control_running, run
from support.system_world import FLEET, copy_folder
from support.waiting import until

CLOSED = (
    "forewarn.db",
    "forewarn.mark",
    "forewarn.lock",
    "operator.token",
    "link/authority.crt",
    "link/authority.key",
    "link/members.json",
    "link/server.crt",
    "link/server.key",
    "run/.operator.sock.lock",
)
KILLED = (*CLOSED, "forewarn.db-wal", "forewarn.db-shm", "operator.url")
ORDERS = 12
FLIPS = 4

Damage = Callable[[Path, random.Random], None]


@dataclass(frozen=True)
class Known:
    """What was acknowledged."""

    incarnations: dict[str, int]
    hosts: dict[str, bool]
    events: frozenset[str]
    journal_end: int

    def is_all_there(self, now: Known) -> bool:
        """Whether nothing of it is missing or went back."""
        return (
            self.incarnations.keys() == now.incarnations.keys()
            and all(now.incarnations[name] >= one for name, one in self.incarnations.items())
            and self.hosts == now.hosts
            and self.events == now.events
            and self.journal_end <= now.journal_end
        )


def known_by(world: ControlWorld) -> Known:
    parts = world.service.parts
    events = parts.store.events(EVERYTHING, open_only=False, limit=10_000)
    return Known(
        incarnations={name: scope.incarnation for name, scope in parts.fleet.scopes.items()},
        hosts={name: host.joined for name, host in parts.fleet.hosts_by_name.items()},
        events=frozenset(one.event.event_id for one in events),
        journal_end=parts.store.journal_end(),
    )


@dataclass(frozen=True)
class Folders:
    """What a stop and a kill leave, a backup, and what must be there."""

    closed: Path
    killed: Path
    backup: Path
    acknowledged: Known


@pytest.fixture(scope="module")
def folders() -> Iterator[Folders]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        yield run(lambda: _made(folder))


async def _made(folder: Path) -> Folders:
    async with control_running(folder / "one", fleet=FLEET) as world:
        await world.joined("h9")
    # A second life: some of what is acknowledged is in the file, the rest in the WAL.
    async with control_running(folder / "one", fleet=FLEET) as world:
        data = world.where.data
        world.service.parts.store.backup(folder / "backup.db")
        for number in range(ORDERS):
            vm = ("vm0", "web_0", "web_1")[number % 3]
            made = await world.order(f"/v1/vms/{vm}/restart")
            await world.order(f"/v1/events/{made['event_id']}/cancel")
        acknowledged = known_by(world)

        def marked() -> bool:
            mark = read_mark(data)
            with closing(sqlite3.connect(f"file:{data}/forewarn.db?mode=ro", uri=True)) as there:
                commits: int = there.execute("SELECT commits FROM lineage").fetchone()[0]
            return mark is not None and mark.commits >= commits

        await until(marked, "the mark follows")
        copy_folder(folder / "one", folder / "killed")
    return Folders(folder / "one", folder / "killed", folder / "backup.db", acknowledged)


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)


def zero(path: Path, chance: random.Random) -> None:
    """A sector of zeros."""
    content = bytearray(path.read_bytes())
    start = chance.randrange(max(1, len(content))) // 512 * 512
    content[start : start + 512] = bytes(len(content[start : start + 512]))
    path.write_bytes(content)


def cut(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(max(1, len(content)))])


def empty(path: Path, _: random.Random) -> None:
    path.write_bytes(b"")


def remove(path: Path, _: random.Random) -> None:
    path.unlink()


DAMAGES: tuple[Damage, ...] = (*[flip] * FLIPS, zero, cut, empty, remove)


async def _start(folder: Path) -> Known | str:
    """What is there after a start, or the words by which it is refused."""
    try:
        async with control_running(folder, fleet=FLEET) as world:
            return known_by(world)
    except CannotStart as why:
        return str(why)


def judged(outcome: Known | str, acknowledged: Known) -> str:
    if isinstance(outcome, Known):
        assert acknowledged.is_all_there(outcome)
        return "all there"
    assert outcome.endswith("."), outcome
    assert len(outcome.split(". ")) >= 2, f"no way out: {outcome}"
    return outcome


def test_every_kind_of_file_is_damaged_here(folders: Folders) -> None:
    for folder, names in ((folders.closed, CLOSED), (folders.killed, KILLED)):
        data = folder / "control"
        there = {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}
        assert there == set(names)


@pytest.mark.parametrize(
    ("state", "name"),
    [("closed", name) for name in CLOSED] + [("killed", name) for name in KILLED],
)
def test_whatever_happens_to_a_file_all_is_there_or_the_start_is_refused_in_words(
    folders: Folders, tmp_path: Path, state: str, name: str
) -> None:
    chance = random.Random(f"{state} {name}")
    original = folders.closed if state == "closed" else folders.killed
    for number, damage in enumerate(DAMAGES):
        folder = tmp_path / str(number)
        copy_folder(original, folder)
        damage(folder / "control" / name, chance)
        outcome = run(lambda folder=folder: _start(folder))  # type: ignore[misc]
        judged(outcome, folders.acknowledged)
        shutil.rmtree(folder)


@pytest.mark.parametrize("state", ["closed", "killed"])
def test_undamaged_all_is_there(folders: Folders, tmp_path: Path, state: str) -> None:
    copy_folder(folders.closed if state == "closed" else folders.killed, tmp_path / "a")
    outcome = run(lambda: _start(tmp_path / "a"))
    assert judged(outcome, folders.acknowledged) == "all there"


def test_a_damaged_backup_is_restored_whole_or_refused_in_words(
    folders: Folders, tmp_path: Path
) -> None:
    chance = random.Random(7)
    restore(folders.backup, tmp_path / "sound")
    whole = _restored(tmp_path / "sound")
    for number, damage in enumerate(DAMAGES * 4):
        backup, folder = tmp_path / f"{number}.db", tmp_path / str(number)
        shutil.copyfile(folders.backup, backup)
        damage(backup, chance)
        try:
            restore(backup, folder)
            refused = ""
        except (DatabaseRefused, StoreFailed) as why:
            refused = str(why)
        assert backup.name in refused if refused else _restored(folder) == whole


def _restored(folder: Path) -> Any:
    store = SqliteStore.in_folder(folder)
    found = store.load(), store.journal_end()
    store.close()
    return found


@pytest.mark.parametrize("name", [host_credentials.HOST_FILE, host_credentials.JOINING_FILE])
def test_damaged_credentials_of_a_host_are_used_or_refused_in_words(
    tmp_path: Path, name: str
) -> None:
    chance = random.Random(name)
    key = host_credentials.joining_key(tmp_path)
    path = tmp_path / name
    if name == host_credentials.HOST_FILE:
        authority = Authority(tmp_path / "link")
        request = host_credentials.signing_request(key, "h1")
        host_credentials.keep(
            tmp_path,
            key_pem=key,
            certificate_pem=authority.sign(request, name="h1"),
            authority_pem=authority.pem,
            control="https://ctl.example:8256",
            token_digest="0" * 64,
        )
    content = path.read_bytes()
    for damage in DAMAGES * 4:
        path.write_bytes(content)
        damage(path, chance)
        if name == host_credentials.JOINING_FILE:
            assert "PRIVATE KEY" in host_credentials.joining_key(tmp_path)
            continue
        try:
            found = host_credentials.load(tmp_path)
            refused = ""
        except (Conflict, UnreadForm) as why:
            refused = str(why)
        assert str(tmp_path) in refused if refused else found is None or found.context() is not None


def test_damaged_last_documents_of_a_host_are_used_or_left_out(tmp_path: Path) -> None:
    chance = random.Random(9)
    shown = LastShown(scopes=(), now_ms=1, monotonic_ms=2, boot_id="ä" * 90)
    last_documents.keep(tmp_path, shown)
    path = tmp_path / last_documents.FILE
    content = path.read_bytes()
    for damage in DAMAGES * 8:
        path.write_bytes(content)
        damage(path, chance)
        found = last_documents.load(tmp_path)
        assert found is None or isinstance(found, LastShown)
