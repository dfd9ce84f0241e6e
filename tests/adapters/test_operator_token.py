"""The operator's token is believed only if it is its owner's alone and nobody can guess it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forewarn.adapters.operator_token import given_token, is_token, operator_token
from forewarn.adapters.sqlite.data_folder import FolderUnusable
from forewarn.core.errors import Invalid

GOOD = "twenty-characters-ok"
NOBODY = 65_534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    return folder / "operator.token"


def put(file: Path, text: str, mode: int = 0o600) -> None:
    file.write_text(text)
    file.chmod(mode)


def test_a_token_is_made_once_and_kept(file: Path) -> None:
    token = operator_token(file)
    assert is_token(token)
    assert operator_token(file) == token
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_token_of_the_owners_own_choice_is_taken(file: Path) -> None:
    put(file, f"{GOOD}\n", 0o400)
    assert operator_token(file) == GOOD


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o666, 0o601])
def test_a_token_that_others_may_read_or_write_is_refused(file: Path, mode: int) -> None:
    put(file, GOOD, mode)
    with pytest.raises(FolderUnusable, match=r"Other users may read or write .*Remove it") as why:
        operator_token(file)
    assert f"chmod 600 {file}" in str(why.value)


@pytest.mark.parametrize(
    "text",
    ["x", GOOD[:-1], "two words and more than that", "t\u00f6ken" * 5, "a" * 1_025, "a\0" * 20],
)
def test_a_token_that_could_be_guessed_or_not_be_sent_is_refused(file: Path, text: str) -> None:
    put(file, f"{text}\n")
    with pytest.raises(FolderUnusable, match=r"holds no token\. A token has 20 to 1024 characters"):
        operator_token(file)
    with pytest.raises(Invalid, match="20 to 1024 characters"):
        given_token(file, text)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777, 0o720])
def test_a_folder_that_others_may_write_is_refused_with_the_remedy(file: Path, mode: int) -> None:
    put(file, GOOD)
    file.parent.chmod(mode)
    for look in (operator_token, lambda path: given_token(path, GOOD)):
        with pytest.raises(FolderUnusable, match=f"chmod go-w {file.parent}"):
            look(file)


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755])
def test_a_folder_that_others_may_only_enter_is_fine(file: Path, mode: int) -> None:
    file.parent.chmod(mode)
    assert is_token(operator_token(file))


@needs_root
def test_a_token_or_folder_of_another_user_is_refused(file: Path) -> None:
    put(file, GOOD)
    os.chown(file, NOBODY, NOBODY)
    with pytest.raises(FolderUnusable, match=rf"belongs to another user \(uid {NOBODY}\)"):
        operator_token(file)
    os.chown(file, 0, 0)
    os.chown(file.parent, NOBODY, NOBODY)
    with pytest.raises(FolderUnusable, match=rf"data belongs to another user \(uid {NOBODY}\)"):
        operator_token(file)


def test_a_pipe_in_its_place_does_not_hold_up_the_start(file: Path) -> None:
    os.mkfifo(file, 0o600)
    with pytest.raises(FolderUnusable, match="is no file"):
        operator_token(file)


def test_an_empty_file_is_no_token_and_a_new_one_is_made(file: Path) -> None:
    put(file, "\n")
    assert is_token(operator_token(file))
