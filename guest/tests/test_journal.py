"""What the journal promises on good days, about torn and damaged files, and about its limits."""

from __future__ import annotations

import errno
import json
import os
import random
import stat
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from forewarn_guest.errors import GuestError, JournalDamaged, JournalError, JournalFull
from forewarn_guest.journal import DEPTH_MAX, LINE_MAX_B, Journal, facts_in

SOURCES = Path(__file__).parent.parent / "src"


def kept(path: Path) -> list[dict[str, Any]]:
    with Journal(path) as journal:
        return journal.read()


def filled(path: Path, count: int) -> list[dict[str, Any]]:
    """A closed journal with that many appends of one fact."""
    facts = [{"n": number, "text": f"fact {number}"} for number in range(count)]
    with Journal(path) as journal:
        for fact in facts:
            journal.append([fact])
    return facts


def test_what_was_appended_is_read_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = {"fact": "seen", "raw": {"a": [1, 2.5, None, True], "b": "é\n\u2028\ud800"}}
    with Journal(path) as journal:
        assert journal.read() == []
        journal.append([first])
        journal.append([{"n": 1}, {"n": 2}])
        journal.append([])
    assert kept(path) == [first, {"n": 1}, {"n": 2}]
    assert facts_in(path) == [first, {"n": 1}, {"n": 2}]


def test_a_line_is_a_checksum_and_json_that_any_program_can_read(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path) as journal:
        journal.append([{"n": 1}])
        journal.append([{"n": 2}, {"n": 3}])
    lines = path.read_bytes().splitlines()
    assert [json.loads(line[9:]) for line in lines] == [{"n": 1}, [{"n": 2}, {"n": 3}]]
    assert [int(line[:8], 16) for line in lines] == [zlib.crc32(line[9:]) for line in lines]


def test_appending_without_reading_first_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    facts = filled(path, 2)
    with path.open("ab") as file:
        file.write(b"torn")
    with Journal(path) as journal:
        journal.append([{"n": 2}])
    assert kept(path) == [*facts, {"n": 2}]


def test_ten_thousand_appends_are_all_there() -> None:
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a busy disk needs half a minute
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        path = Path(folder) / "journal"
        with Journal(path) as journal:
            for number in range(10_000):
                journal.append([{"n": number}])
            assert journal.size_b == path.stat().st_size
        assert [fact["n"] for fact in kept(path)] == list(range(10_000))


def test_only_its_owner_can_read_it_and_a_missing_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "data" / "journal"
    filled(path, 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


# -- torn and damaged ---------------------------------------------------------------------------


def test_a_last_line_torn_at_any_byte_is_cut_for_good_and_said(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    facts = filled(path, 3)
    data = path.read_bytes()
    before = data.rindex(b"\n", 0, -1) + 1
    for length in range(before + 1, len(data)):
        path.write_bytes(data[:length])
        with Journal(path) as journal:
            assert journal.read() == facts[:2]
            assert f"{length - before} bytes" in journal.cut
        assert path.read_bytes() == data[:before]
    with Journal(path) as journal:
        assert journal.read() == facts[:2]
        assert journal.cut == ""


def test_several_facts_of_one_append_are_cut_together(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path) as journal:
        journal.append([{"n": 0}])
        journal.append([{"n": 1}, {"n": 2}, {"n": 3}])
    data = path.read_bytes()
    for length in range(data.index(b"\n") + 1, len(data)):
        path.write_bytes(data[:length])
        assert kept(path) == [{"n": 0}]


@pytest.mark.parametrize(
    "tail", [b"\0" * 700, b"\0" * 9 + b"}\n", b"\n", b"00000000 {}\n", b"\xff"]
)
def test_what_a_power_cut_leaves_at_the_end_is_cut(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "journal"
    facts = filled(path, 2)
    with path.open("ab") as file:
        file.write(tail)
    with Journal(path) as journal:
        assert journal.read() == facts
        assert journal.cut
        journal.append([{"n": 2}])
    assert kept(path) == [*facts, {"n": 2}]


def test_a_flipped_bit_in_the_middle_is_refused_with_the_line_and_what_to_do(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal"
    filled(path, 4)
    data = path.read_bytes()
    last = data.rindex(b"\n", 0, -1) + 1
    chosen = random.Random(4)
    for _ in range(300):
        at = chosen.randrange(last - 1)
        hurt = bytearray(data)
        hurt[at] ^= 1 << chosen.randrange(8)
        path.write_bytes(bytes(hurt))
        with Journal(path) as journal, pytest.raises(JournalDamaged) as refused:
            journal.read()
        assert str(path) in refused.value.message
        line = data.count(b"\n", 0, at) + 1
        assert f"Line {line} " in refused.value.message
        assert f"mv {path}" in refused.value.remedy
        assert "lost" in refused.value.remedy
        assert path.read_bytes() == bytes(hurt)


def test_a_damaged_journal_takes_no_append(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    filled(path, 3)
    hurt = b"x" + path.read_bytes()[1:]
    path.write_bytes(hurt)
    with Journal(path) as journal, pytest.raises(JournalDamaged):
        journal.append([{"n": 9}])
    assert path.read_bytes() == hurt


# -- limits and refusals ------------------------------------------------------------------------


def append_until_refused(journal: Journal) -> None:
    for number in range(100):
        journal.append([{"n": number}])


def test_a_journal_at_its_limit_refuses_and_takes_facts_again_when_compacted(
    tmp_path: Path,
) -> None:
    with Journal(tmp_path / "journal", size_max_b=400) as journal:
        assert not journal.large
        with pytest.raises(JournalFull, match="400 bytes"):
            append_until_refused(journal)
        assert journal.large
        count = len(journal.read())
        assert journal.size_b <= 400
        journal.compact([{"n": count - 1}])
        journal.append([{"n": count}])
        assert journal.read() == [{"n": count - 1}, {"n": count}]
        with pytest.raises(JournalFull):
            journal.compact([{"text": "x" * 400}])
        assert journal.read() == [{"n": count - 1}, {"n": count}]


@pytest.mark.parametrize(
    "fact", [{"text": "x" * LINE_MAX_B}, json.loads('{"a":' * 500 + "1" + "}" * 500)]
)
def test_a_fact_that_could_not_be_read_again_is_refused(
    tmp_path: Path, fact: dict[str, Any]
) -> None:
    path = tmp_path / "journal"
    with Journal(path) as journal:
        with pytest.raises(JournalError):
            journal.append([fact])
        journal.append([json.loads('{"a":' * DEPTH_MAX + "1" + "}" * DEPTH_MAX)])
    assert len(kept(path)) == 1


def test_a_file_that_no_agent_wrote_is_refused_before_it_is_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with Journal(path) as journal, pytest.raises(JournalError, match="more than"):
        journal.read()


@pytest.mark.parametrize("kind", ["folder", "fifo", "link"])
def test_only_a_file_is_taken_for_a_journal(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "journal"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JournalError, match=str(path)):
        Journal(path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_of_somebody_else_is_a_clear_refusal() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder that belongs to somebody else")
    code = (
        "import os, sys; from pathlib import Path; from forewarn_guest.journal import Journal\n"
        "from forewarn_guest.errors import JournalError\n"
        "os.setuid(65534)\n"
        "try: Journal(Path(sys.argv[1]))\n"
        "except JournalError as error: print(error)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        said = subprocess.run(
            [sys.executable, "-c", code, f"{folder}/journal"],
            env={"PYTHONPATH": str(SOURCES)},
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
        assert list(Path(folder).iterdir()) == []
    assert "Permission denied" in said
    assert "drwxr-xr-x" in said
    assert "uid 0" in said
    assert "uid 65534" in said


def test_a_folder_that_cannot_be_made_is_a_clear_refusal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "journal", tmp_path / "no" / "where" / "journal"):
        with pytest.raises(JournalError, match="cannot be opened"):
            Journal(path)


# -- the lock -----------------------------------------------------------------------------------


def test_a_second_agent_is_refused_by_the_pid_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path) as journal:
        journal.append([{"n": 1}])
        for _ in range(2):
            with pytest.raises(JournalError, match=f"pid {os.getpid()}") as refused:
                Journal(path)
            assert refused.value.remedy
        journal.compact([{"n": 1}])
        with pytest.raises(JournalError, match=f"pid {os.getpid()}"):
            Journal(path)
        journal.append([{"n": 2}])
    assert kept(path) == [{"n": 1}, {"n": 2}]


def test_the_lock_of_a_killed_agent_is_free(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    code = (
        "import os, sys; from pathlib import Path; from forewarn_guest.journal import Journal\n"
        "journal = Journal(Path(sys.argv[1])); journal.append([{'n': 1}]); os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env={"PYTHONPATH": str(SOURCES)},
        check=False,
        timeout=60,
    )
    assert ended.returncode == -9
    assert kept(path) == [{"n": 1}]


def test_nothing_is_left_open(tmp_path: Path) -> None:
    def opened() -> set[str]:
        return set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - just the names

    before = opened()
    path = tmp_path / "journal"
    with Journal(path) as journal:
        journal.append([{"n": 1}])
        journal.compact([{"n": 1}])
        with pytest.raises(JournalError):
            Journal(path)
    with pytest.raises(JournalError):
        Journal(tmp_path)
    assert opened() == before


# -- disks that fail ----------------------------------------------------------------------------


def failing(monkeypatch: pytest.MonkeyPatch, name: str, number: int, *, times: int) -> None:
    """Let the next calls of `os.NAME` fail, that many times, as a disk would."""
    real = getattr(os, name)
    left = [times]

    def call(*arguments: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise OSError(number, os.strerror(number))
        return real(*arguments)

    monkeypatch.setattr(os, name, call)


def refusal_of(journal: Journal, fact: dict[str, Any]) -> JournalError | None:
    try:
        journal.append([fact])
    except JournalError as error:
        return error
    return None


@pytest.mark.parametrize("name", ["write", "fsync"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_an_append_that_failed_is_not_there_and_the_next_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int, times: int
) -> None:
    path = tmp_path / "journal"
    with Journal(path) as journal:
        journal.append([{"n": 1}])
        failing(monkeypatch, name, number, times=times)
        failed = 0
        refusal = refusal_of(journal, {"n": 2, "try": failed})
        while refusal is not None:
            assert isinstance(refusal, JournalFull) == (number == errno.ENOSPC)
            failed += 1
            refusal = refusal_of(journal, {"n": 2, "try": failed})
        assert 1 <= failed <= times
        assert journal.read() == [{"n": 1}, {"n": 2, "try": failed}]
    assert kept(path) == [{"n": 1}, {"n": 2, "try": failed}]


def test_an_append_that_was_refused_is_not_read_while_the_disk_cannot_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(tmp_path / "journal") as journal:
        journal.append([{"n": 1}])
        failing(monkeypatch, "fsync", errno.EIO, times=3)
        with pytest.raises(JournalError, match="nor taken back"):
            journal.append([{"n": 2}])
        with pytest.raises(JournalError):
            journal.read()
        monkeypatch.undo()
        assert journal.read() == [{"n": 1}]


def test_a_disk_that_took_a_part_of_a_line_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    real = os.write
    taken: list[int] = []

    def part(file: int, data: bytes) -> int:
        if taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken.append(real(file, bytes(data)[:5]))
        return taken[0]

    with Journal(path) as journal:
        journal.append([{"n": 1}])
        before = path.read_bytes()
        monkeypatch.setattr(os, "write", part)
        with pytest.raises(JournalFull):
            journal.append([{"n": 2}])
        assert taken == [5]
        assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["write", "fsync", "link"])
def test_a_compaction_that_failed_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / "journal"
    facts = filled(path, 3)
    with Journal(path) as journal:
        assert journal.read() == facts
        failing(monkeypatch, name, errno.ENOSPC, times=1)
        with pytest.raises(JournalFull):
            journal.compact(facts[2:])
        journal.append([{"n": 3}])
    assert kept(path) == [*facts, {"n": 3}]
    assert not (tmp_path / "journal.new").exists()


@pytest.mark.parametrize("how", ["removed", "replaced", "longer", "shorter"])
def test_a_journal_that_somebody_else_changes_takes_no_append(tmp_path: Path, how: str) -> None:
    path = tmp_path / "journal"
    with Journal(path) as journal:
        journal.append([{"n": 1}])
        if how == "removed":
            path.unlink()
        elif how == "replaced":
            (tmp_path / "other").write_bytes(path.read_bytes())
            (tmp_path / "other").replace(path)
        else:
            os.truncate(path, path.stat().st_size + (1 if how == "longer" else -1))
        with pytest.raises(GuestError):
            journal.append([{"n": 2}])


# -- compaction ---------------------------------------------------------------------------------


def test_compacting_keeps_just_these_facts_and_the_old_file_beside(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    facts = filled(path, 5)
    old = path.read_bytes()
    with Journal(path) as journal:
        journal.compact(facts[4:])
        journal.append([{"n": 5}])
        assert (tmp_path / "journal.1").read_bytes() == old
        journal.compact([])
        journal.append([{"n": 6}])
    assert kept(path) == [{"n": 6}]
    assert {entry.name for entry in tmp_path.iterdir()} == {"journal", "journal.1", "journal.lock"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
