"""A restore brings back no token that was revoked or rotated after the backup."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from forewarn.adapters.sqlite.backup import RestoreResult, restore
from support.callers import id_of, token_of
from support.clock import START_MS, ManualClock
from support.operator_world import OperatorWorld, running

# Each restore has its own: what was there before is kept aside under the time.
TIMES = itertools.count(START_MS + 1_000, 1_000)


class Saved:
    """A folder with a backup from before its tokens changed."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder, self.backup = tmp_path / "data", tmp_path / "saved.db"
        with running(self.folder) as world:
            self.kept = token_of(world, "kept", "viewer")
            self.revoked = token_of(world, "revoked", "viewer")
            self.rotated = token_of(world, "rotated", "viewer")
            self.backup.write_bytes(world.call("GET", "/v1/backup").body)
            world.order("/v1/tokens/revoked/revoke")
            self.new_secret = world.order("/v1/tokens/rotated/rotate")["token"]
            self.later = token_of(world, "later", "viewer")

    def restore(self, folder: Path | None = None) -> RestoreResult:
        return restore(
            self.backup, folder or self.folder, force=True, clock=ManualClock(wall=next(TIMES))
        )


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    return Saved(tmp_path)


def lets_in(world: OperatorWorld, token: str) -> bool:
    return world.call("GET", "/v1/vms", token=token).status == 200


def test_a_restore_over_the_database_brings_no_revoked_or_rotated_secret_back(
    saved: Saved,
) -> None:
    done = saved.restore()
    assert (done.tokens.valid, done.tokens.ended) == (("kept", "rotated"), ("revoked",))
    assert done.tokens.known
    with running(saved.folder, fleet="") as world:
        assert lets_in(world, saved.kept)
        assert lets_in(world, saved.new_secret)
        assert not lets_in(world, saved.revoked)
        assert not lets_in(world, saved.rotated)
        assert not lets_in(world, saved.later)  # the backup does not have it


def test_restored_again_and_again_it_stays_so(saved: Saved) -> None:
    for _ in range(3):
        saved.restore()
    with running(saved.folder, fleet="") as world:
        assert lets_in(world, saved.new_secret)
        assert not lets_in(world, saved.revoked)
        assert not lets_in(world, saved.rotated)


def test_a_token_that_the_database_has_no_more_is_revoked_by_the_restore(
    saved: Saved, tmp_path: Path
) -> None:
    newer = tmp_path / "newer.db"
    with running(saved.folder, fleet="") as world:
        newer.write_bytes(world.call("GET", "/v1/backup").body)
    saved.restore()  # of the older one, which does not have `later`
    done = restore(newer, saved.folder, force=True, clock=ManualClock(wall=next(TIMES)))
    assert "later" in done.tokens.ended
    with running(saved.folder, fleet="") as world:
        assert not lets_in(world, saved.later)
        shown = world.get(f"/v1/tokens/{id_of(saved.later)}")
        assert shown["revoked_by"] == "restore"


def test_on_another_machine_the_tokens_are_those_of_the_backup_and_that_is_said(
    saved: Saved, tmp_path: Path
) -> None:
    done = saved.restore(tmp_path / "elsewhere")
    assert done.tokens.valid == ("kept", "revoked", "rotated")
    assert not done.tokens.known


def test_another_installation_that_is_restored_over_says_nothing_of_these_tokens(
    saved: Saved, tmp_path: Path
) -> None:
    with running(tmp_path / "new") as world:
        token_of(world, "other", "admin")
    done = saved.restore(tmp_path / "new")
    assert done.tokens.valid == ("kept", "revoked", "rotated")
    assert not done.tokens.known


def test_the_database_itself_keeps_its_tokens_as_they_are(saved: Saved, tmp_path: Path) -> None:
    shutil.copytree(saved.folder, tmp_path / "copy")
    database = tmp_path / "copy" / "forewarn.db"
    done = restore(database, tmp_path / "copy", force=True, clock=ManualClock(wall=next(TIMES)))
    assert done.tokens.valid == ("kept", "later", "rotated")
    with running(tmp_path / "copy", fleet="") as world:
        assert not lets_in(world, saved.revoked)
        assert lets_in(world, saved.new_secret)
