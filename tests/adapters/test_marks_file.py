"""The marks of a host on the disk: whole or not at all, damage is noticed, and the way out."""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path

import pytest

from forewarn.adapters import marks_file
from forewarn.adapters.sqlite.data_folder import DatabaseRefused
from forewarn.core.incarnation_marks import Marks

MARKS = Marks(
    of_vm={("web_0", "id-0"): 1_000_009, ("a b\n\u00fc", "id-1"): 2, ("web_2", "id-2"): 57}
)


def test_what_is_kept_is_loaded_in_the_same_order(tmp_path: Path) -> None:
    assert marks_file.load(tmp_path) is None
    for marks in (Marks(), MARKS, Marks(of_vm={("x", "y"): 3}, lost="once damaged")):
        marks_file.keep(tmp_path, marks)
        loaded = marks_file.load(tmp_path)
        assert loaded == marks
        assert loaded is not None
        assert list(loaded.of_vm) == list(marks.of_vm)
    assert (tmp_path / marks_file.MARKS_FILE).stat().st_mode & 0o777 == 0o600


def test_no_flipped_bit_changes_a_mark_and_each_is_noticed(tmp_path: Path) -> None:
    marks_file.keep(tmp_path, MARKS)
    path = tmp_path / marks_file.MARKS_FILE
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            path.write_bytes(
                whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :]
            )
            loaded = marks_file.load(tmp_path)
            assert loaded is not None
            assert loaded.of_vm.items() <= MARKS.of_vm.items(), (place, bit)
            assert loaded.lost, (place, bit)


def test_a_truncated_file_is_noticed_and_what_is_left_counts(tmp_path: Path) -> None:
    marks_file.keep(tmp_path, MARKS)
    path = tmp_path / marks_file.MARKS_FILE
    whole = path.read_bytes()
    # Without the last line feed nothing is missing.
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        loaded = marks_file.load(tmp_path)
        assert loaded is not None
        assert loaded.of_vm.items() <= MARKS.of_vm.items()
        assert "damaged" in loaded.lost, length


def test_damage_stays_said_after_the_marks_are_kept_again(tmp_path: Path) -> None:
    marks_file.keep(tmp_path, MARKS)
    path = tmp_path / marks_file.MARKS_FILE
    path.write_bytes(path.read_bytes()[:-10])
    damaged = marks_file.load(tmp_path)
    assert damaged is not None
    marks_file.keep(tmp_path, damaged)

    again = marks_file.load(tmp_path)
    assert again == damaged
    assert again is not None
    assert "2 of 3 marks could be read" in again.lost


def test_a_newer_programs_marks_and_an_unreadable_file_stop_the_start_in_words(
    tmp_path: Path,
) -> None:
    path = tmp_path / marks_file.MARKS_FILE
    newer = b'{"form":2,"count":0}'
    path.write_bytes(b"%08x %b\n" % (zlib.crc32(newer), newer))
    with pytest.raises(DatabaseRefused) as refused:
        marks_file.load(tmp_path)
    assert "written in form 2" in str(refused.value)

    path.unlink()
    path.mkdir()
    with pytest.raises(DatabaseRefused):
        marks_file.load(tmp_path)


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_what_cannot_be_written_leaves_the_marks_of_before(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Marks(of_vm={("web_0", "id-0"): 5})
    marks_file.keep(tmp_path, before)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        if call == "replace":
            patch.setattr(Path, "replace", full)
        elif call == "fsync":
            patch.setattr(os, "fsync", full)
        else:
            patch.setattr("forewarn.adapters.private_files.os.fdopen", full)
        with pytest.raises(OSError, match="No space left"):
            marks_file.keep(tmp_path, MARKS)

    assert marks_file.load(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == [marks_file.MARKS_FILE]


def test_the_operators_word_stands_until_it_is_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks_file.keep(tmp_path, MARKS)
    assert not marks_file.accepting(tmp_path)
    marks_file.ask_to_accept(tmp_path)
    marks_file.ask_to_accept(tmp_path)  # twice is once
    assert marks_file.accepting(tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            marks_file.forget(tmp_path)
    assert marks_file.accepting(tmp_path)
    assert marks_file.load(tmp_path) == MARKS

    marks_file.forget(tmp_path)
    assert not marks_file.accepting(tmp_path)
    assert marks_file.load(tmp_path) == Marks()
