"""A process that uses a store and says on standard output what was promised. Run, not imported.

    store_child.py count FOLDER ROUNDS   commit a heartbeat per round, print "committed N" after it
    store_child.py fill FOLDER           commit until the disk is full, free some, commit again

After a StoreFailed it prints "failed fatal" or "failed mild"; `count` then goes on.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.ports import Change, StoreFailed
from support.batches import keep
from support.journal import lines_of, worded

FILL_ROUNDS_MAX = 2_000
FILL_FACT_CHARACTERS = 4_000


def say(words: str) -> None:
    os.write(1, f"{words}\n".encode())  # one write call, at once: strace sees it in its place


def attempt(store: SqliteStore, number: int, words: str = "") -> StoreFailed | None:
    """Commit one change; say whether it holds."""
    fact = worded(number, words)
    try:
        lines = lines_of([fact], after=store.journal_end())
        keep(store, Change(heartbeat_ms=number, lines=lines))
    except StoreFailed as failed:
        say("failed fatal" if failed.fatal else "failed mild")
        return failed
    say(f"committed {number}")
    return None


def count(folder: Path, rounds: int) -> None:
    store = SqliteStore.in_folder(folder)
    store.begin_epoch("child")
    say("opened")
    for number in range(1, rounds + 1):
        attempt(store, number)
    say("closing")
    store.close()


def fill(folder: Path) -> None:
    ballast = folder.parent / "ballast"
    ballast.write_bytes(bytes(1 << 18))
    store = SqliteStore.in_folder(folder)
    words = "x" * FILL_FACT_CHARACTERS
    number = 1
    while number < FILL_ROUNDS_MAX and attempt(store, number, words) is None:
        number += 1
    ballast.unlink()
    attempt(store, number + 1)
    say(f"heartbeat {store.load().heartbeat_ms}, journal {store.journal_end()}")
    store.close()


def main() -> None:
    mode, folder = sys.argv[1], Path(sys.argv[2])
    if mode == "count":
        count(folder, int(sys.argv[3]))
    else:
        fill(folder)


if __name__ == "__main__":
    main()
