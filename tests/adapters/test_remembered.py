"""For how long answers to orders are kept in the store."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.ports import Change, Questions, RememberedAnswer
from forewarn.tables.steps import REMEMBERED_DELETED_MAX, REMEMBERED_MS
from support.batches import keep


def test_an_answer_is_kept_for_its_time_and_cleared_away_by_later_ones(tmp_path: Path) -> None:
    """Some at a time, so that no order waits for a long clearing."""
    store = SqliteStore.in_folder(tmp_path)
    old = [
        RememberedAnswer(key=f"old-{n}", fingerprint="f", answer="{}", at_ms=n)
        for n in range(2 * REMEMBERED_DELETED_MAX)
    ]
    for one in old:
        keep(store, Change(remembered=one))
    last_ms = REMEMBERED_MS + old[-1].at_ms

    def recalled(*keys: str) -> set[str]:
        return set(store.recall(Questions(keys=frozenset(keys))).remembered)

    def kept() -> list[str]:
        found = recalled(*(one.key for one in old))
        return [one.key for one in old if one.key in found]

    keep(store, Change(remembered=replace(old[0], key="in time", at_ms=REMEMBERED_MS)))
    assert kept() == [one.key for one in old]
    keep(store, Change(remembered=replace(old[0], key="later", at_ms=last_ms)))
    assert kept() == [one.key for one in old[REMEMBERED_DELETED_MAX:]]
    keep(store, Change(remembered=replace(old[0], key="latest", at_ms=last_ms)))
    assert kept() == [old[-1].key]
    assert recalled("in time", "later", "latest") == {"in time", "later", "latest"}
    keep(store, Change(remembered=replace(old[0], at_ms=last_ms)))  # its key is free again
    store.close()
