"""The file of members: what was kept is there after a kill, and damage is said, not forgotten."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from forewarn.adapters.members_file import MEMBERS_FILE, MembersFile
from forewarn.adapters.sqlite.data_folder import DatabaseRefused
from forewarn.core import membership
from forewarn.core.membership import Members
from forewarn.ports import StoreFailed

NOW = 1_800_000_000_000


def some() -> Members:
    known = membership.invite(Members(), digest="d1", name="h1", valid_ms=60_000, now_ms=NOW)
    return membership.join(known, name="h1", key="k1", digest="d1", now_ms=NOW)


def test_what_was_kept_is_loaded(tmp_path: Path) -> None:
    file = MembersFile(tmp_path / "link")
    assert file.load() == Members()
    file.keep(some())
    assert MembersFile(tmp_path / "link").load() == some()
    assert stat.S_IMODE((tmp_path / "link" / MEMBERS_FILE).stat().st_mode) == 0o600


def test_what_a_kill_leaves_half_written_is_not_looked_at(tmp_path: Path) -> None:
    file = MembersFile(tmp_path)
    file.load()
    file.keep(some())
    (tmp_path / f".{MEMBERS_FILE}.{os.getpid()}").write_text("half a")
    assert MembersFile(tmp_path).load() == some()
    file.keep(Members())
    assert MembersFile(tmp_path).load() == Members()


@pytest.mark.parametrize(
    "content", ["", "null", "[]", "{}", '{"form": 1}', '{"form": 1, "members": {"members": 3}}']
)
def test_a_damaged_file_is_never_taken_for_an_empty_one(tmp_path: Path, content: str) -> None:
    (tmp_path / MEMBERS_FILE).write_text(content)
    with pytest.raises(DatabaseRefused, match=r"members.json is damaged.*Put it back from a copy"):
        MembersFile(tmp_path).load()


def test_a_file_of_a_newer_program_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / MEMBERS_FILE).write_text(
        '{"form": 3, "members": {"members": {}, "invitations": []}}'
    )
    with pytest.raises(DatabaseRefused, match="newer program"):
        MembersFile(tmp_path).load()


def test_what_cannot_be_written_is_not_promised(tmp_path: Path) -> None:
    file = MembersFile(tmp_path / "link")
    file.load()
    file.keep(some())
    (tmp_path / "link").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreFailed, match=r"members.json cannot be written"):
        file.keep(Members())
    assert MembersFile(tmp_path / "elsewhere").load() == some()
