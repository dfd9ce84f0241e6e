"""The journal and an agent that is killed: at random instants, and at every call that matters."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn_guest.journal import Journal
from programs import needs, program

ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parent.parent / "src"), "PATH": os.defpath}
PYTHON = [sys.executable, "-S", "-B"]

# Appends by itself, several facts each third time, and says the number of each that was answered.
ENDLESS = """
import os, sys
from pathlib import Path
from forewarn_guest.journal import Journal
journal = Journal(Path(sys.argv[1]))
number = len(journal.read())
while True:
    count = 3 if number % 2 else 1
    journal.append([{"n": number + more} for more in range(count)])
    number += count
    os.write(1, b"%d\\n" % number)
"""

# A short life with everything in it: a torn line, appends, a compaction, appends after it.
# Each line that it says is what the journal must hold from then on.
LIFE = """
import json, os, sys
from pathlib import Path
from forewarn_guest.journal import Journal
journal = Journal(Path(sys.argv[1]))
facts = journal.read()
def say(): os.write(1, json.dumps(facts).encode() + b"\\n")
say()
for new in ([{"n": 1}], [{"n": 2}, {"n": 3}]):
    journal.append(new); facts += new; say()
facts = facts[-2:]
os.write(1, b"compacting\\n")
journal.compact(facts); say()
journal.append([{"n": 4}]); facts += [{"n": 4}]; say()
journal.close()
"""
CALLS = ("write", "fsync", "ftruncate", "link", "rename", "unlink", "flock", "pwrite64")


def kept(path: Path) -> list[dict[str, Any]]:
    with Journal(path) as journal:
        return journal.read()


@pytest.mark.parametrize("seed", range(8))
def test_an_agent_killed_at_any_instant_loses_nothing_and_invents_nothing(
    tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "journal"
    chosen = random.Random(seed)
    answered = 0
    for _ in range(4):
        with subprocess.Popen(
            [*PYTHON, "-c", ENDLESS, str(path)], env=ENVIRONMENT, stdout=subprocess.PIPE
        ) as agent:
            assert agent.stdout is not None
            for _ in range(chosen.randint(1, 120)):
                assert agent.stdout.readline()
            for _ in range(chosen.randint(0, 20_000)):
                pass  # another instant within the append
            agent.kill()
            said = agent.stdout.read().splitlines()
        answered = int(said[-1]) if said else answered
        numbers = [fact["n"] for fact in kept(path)]
        assert numbers == list(range(len(numbers)))
        assert answered <= len(numbers)
        answered = len(numbers)


def traced_life(path: Path, inject: str, *more: str) -> subprocess.CompletedProcess[bytes]:
    """The life, with something done to one of its calls."""
    agent = [*PYTHON, "-c", LIFE, str(path)]
    return subprocess.run(
        ["strace", "-qqq", "-o", os.devnull, *more, "-e", f"inject={inject}", *agent],
        env=ENVIRONMENT,
        capture_output=True,
        check=False,
        timeout=60,
    )


def killed_lives(path: Path, call: str) -> Iterator[tuple[int, list[bytes]]]:
    """The life, killed at the first such call, at the second, ... until it was not killed."""
    for when in range(1, 60):
        for entry in path.parent.iterdir():
            entry.unlink()
        with Journal(path) as journal:
            journal.append([{"n": 0}])
        with path.open("ab") as file:
            file.write(b"torn")
        life = traced_life(path, f"{call}:signal=KILL:when={when}")
        yield life.returncode, life.stdout.splitlines()
        if life.returncode == 0:
            return


@needs("strace")
@pytest.mark.parametrize("call", CALLS)
def test_an_agent_killed_at_any_call_finds_what_it_was_told_is_kept(
    tmp_path: Path, call: str
) -> None:
    path = tmp_path / "journal"
    order = [
        [{"n": 0}],
        [{"n": 0}, {"n": 1}],
        [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}],
        [{"n": 2}, {"n": 3}],
        [{"n": 2}, {"n": 3}, {"n": 4}],
    ]
    kills = 0
    for code, said in killed_lives(path, call):
        known = [json.loads(line) for line in said if line != b"compacting"]
        assert known == order[: len(known)]
        found = kept(path)
        # What was said last, or what was being done when it was killed.
        possible = order[max(len(known) - 1, 0) : len(known) + 1]
        assert found in possible
        assert not (tmp_path / "journal.new").exists()
        kills += code == -signal.SIGKILL
        if code == 0:
            assert found == order[-1]
            break
    else:
        pytest.fail("the life never came to its end")
    assert kills >= 1


@needs("strace")
@pytest.mark.parametrize("call", ["write", "fsync", "ftruncate"])
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_an_agent_whose_disk_fails_never_claims_more_than_is_kept(
    tmp_path: Path, call: str, error: str
) -> None:
    path = tmp_path / "journal"
    for when in range(1, 12):
        for entry in tmp_path.iterdir():
            entry.unlink()
        life = traced_life(path, f"{call}:error={error}:when={when}", "-P", str(path))
        said = [b"[]", *life.stdout.splitlines()]
        # A compaction that failed may have come as far as the new file, which holds as much.
        known = said[-1:] if said[-1] != b"compacting" else [said[-2], b'[{"n": 2}, {"n": 3}]']
        assert kept(path) in [json.loads(line) for line in known]
        if life.returncode == 0:
            return
        assert b"JournalError" in life.stderr or b"JournalFull" in life.stderr
    pytest.fail("the life never came to its end")


# Fills the disk, says what is kept when the journal is refused, makes room, and goes on.
FULL = """
import json, os, resource, sys
from pathlib import Path
from forewarn_guest.errors import JournalFull
from forewarn_guest.journal import Journal
path = Path(sys.argv[1])
if len(sys.argv) > 2:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
journal = Journal(path)
answered = refused = 0
while refused < 3:
    try:
        journal.append([{"n": answered, "text": "x" * 100}])
        answered += 1
    except JournalFull:
        refused += 1
        before = path.read_bytes()
        assert before.count(b"\\n") == answered, "a refused append was left"
if len(sys.argv) > 2:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
else:
    (path.parent / "ballast").unlink()
journal.append([{"n": answered}])
assert [fact["n"] for fact in journal.read()] == list(range(answered + 1))
print(answered)
"""


def test_a_file_that_may_not_grow_refuses_and_goes_on_when_it_may(tmp_path: Path) -> None:
    said = subprocess.run(
        [*PYTHON, "-c", FULL, str(tmp_path / "journal"), "10000"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert said.stderr == ""
    assert int(said.stdout) > 50


def test_a_full_disk_refuses_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    mount = (
        'mount -t tmpfs -o mode=0700,size=64k forewarn-test "$1" && '
        'head -c 20000 /dev/zero >"$1/ballast" && shift && exec "$@"'
    )
    own = [program("unshare"), "--mount", "--map-root-user", "sh", "-c"]
    tried = subprocess.run(
        [*own, mount, "sh", str(tmp_path), "true"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if tried.returncode:
        pytest.skip(f"needs a small disk of its own: {tried.stderr.strip()}")
    said = subprocess.run(
        [*own, mount, "sh", str(tmp_path), *PYTHON, "-c", FULL, str(tmp_path / "journal")],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert said.stderr == ""
    assert int(said.stdout) > 50
