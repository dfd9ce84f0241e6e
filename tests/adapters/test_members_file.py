"""The file of members: what was kept is there after a kill, and damage is said, not forgotten."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from forewarn.adapters.members_file import MembersFile
from forewarn.adapters.secret_files import MEMBERS_FILE
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
        '{"form": 4, "members": {"members": {}, "invitations": []}}'
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


# As it was written before revocations were kept.
FORM_2 = """{"form": 2, "members": {"members": {"h1": {"name": "h1", "key": "k1",
"since_ms": 1800000000000}}, "invitations": [{"digest": "d1", "name": "h1",
"expires_ms": 1800000060000, "replaces": false, "used_by": "h1", "used_key": "k1"}]},
"check": 1966741241}
"""


def test_a_file_from_before_revocations_were_kept_is_read_and_its_check_counts(
    tmp_path: Path,
) -> None:
    (tmp_path / MEMBERS_FILE).write_text(FORM_2)
    assert MembersFile(tmp_path).load() == some()
    (tmp_path / MEMBERS_FILE).write_text(FORM_2.replace('"k1"', '"k2"', 1))
    with pytest.raises(DatabaseRefused, match="not what was written"):
        MembersFile(tmp_path).load()


def test_what_was_revoked_is_kept(tmp_path: Path) -> None:
    file = MembersFile(tmp_path)
    file.load()
    after = membership.revoke(some(), "h1", now_ms=NOW + 1)
    file.keep(after)
    assert [one.key for one in file.load().revoked] == ["k1"]
