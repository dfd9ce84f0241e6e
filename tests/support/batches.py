"""Changes for a store as the writer gives them: folded into one batch. No test lives here."""

from __future__ import annotations

from forewarn.ports import Batch, Change, Store
from forewarn.tables.folding import RowNumbers, fold
from forewarn.tables.steps import Way
from forewarn.tables.table_specs import SPECS


def folded(store: Store, *changes: Change) -> Batch:
    """The batch that these changes are, after all that the store holds."""
    return fold(changes, RowNumbers.after(store.load())).batch()


def keep(store: Store, *changes: Change) -> None:
    """Commit these changes together."""
    store.commit(folded(store, *changes))


class Keeper:
    """Commits changes as a writer does: what it counts is loaded once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counted = RowNumbers.after(store.load())

    def keep(self, *changes: Change) -> None:
        folding = fold(changes, self._counted)
        self._store.commit(folding.batch())
        folding.committed()


def ways_of_tables() -> list[tuple[str, Way]]:
    """Every way in which a table may be written, by its name."""
    return [
        (name, way)
        for name, spec in SPECS.items()
        for way in Way
        if way in (Way.DELETE, Way.INSERT)
        or (spec.changing() and not (spec.locked and way is Way.UPSERT))
    ]
