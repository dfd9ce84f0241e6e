"""Changes for a store as the writer gives them: folded into one batch. No test lives here."""

from __future__ import annotations

from forewarn.ports import Batch, Change, Store
from forewarn.tables.folding import Counted, fold


def folded(store: Store, *changes: Change) -> Batch:
    """The batch that these changes are, after all that the store holds."""
    return fold(changes, Counted.after(store.load())).batch()


def keep(store: Store, *changes: Change) -> None:
    """Commit these changes together."""
    store.commit(folded(store, *changes))
