"""What a database does with a batch, step by step, and what it means if a step does not fit.

Pure: an adapter makes statements of the steps, and runs them in this order, in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from forewarn.core.model import DAY_MS
from forewarn.ports import Batch, Cell, Cells, StaleRevision, Unstorable
from forewarn.tables.columns import json_text
from forewarn.tables.table_specs import REVISION_BEFORE, TABLES, TableSpec

REMEMBERED_MS = 7 * DAY_MS  # for how long the answer to an order is kept, at least
# Of older answers, as many go with each new one at most: more than come, so that none pile up.
REMEMBERED_DELETED_MAX = 10


class Way(StrEnum):
    """What a step does with its rows."""

    DELETE = "delete"
    INSERT = "insert"
    UPDATE = "update"
    UPSERT = "upsert"


class WriteStep(Struct, frozen=True):
    """Rows of one table that are written in one way. `whole`: each of them must be."""

    spec: TableSpec
    way: Way
    rows: tuple[Cells, ...]
    whole: bool

    def named(self) -> str:
        """The rows, for an operator who reads that they cannot be written."""
        keys = self.spec.key
        shown = ("/".join(str(one[key]) for key in keys if key in one) for one in self.rows)
        return f"{self.spec.name} {', '.join(shown)}"


def steps(batch: Batch) -> Iterator[WriteStep]:
    """Deletions from the last table to the first, so that nothing is left that names what went;
    then what is added and changed, from the first to the last.
    """
    for spec in reversed(TABLES):
        found = batch.tables.get(spec.name)
        if found is not None and found.deleted:
            yield WriteStep(spec, Way.DELETE, found.deleted, spec.must_be_there)
    for spec in TABLES:
        found = batch.tables.get(spec.name)
        if found is None:
            continue
        if found.inserted:
            yield WriteStep(spec, Way.INSERT, found.inserted, not spec.first_stays)
        if found.updated:
            yield WriteStep(spec, Way.UPDATE, found.updated, whole=True)
        if found.upserted:
            yield WriteStep(spec, Way.UPSERT, found.upserted, whole=True)


def last_queries(batch: Batch) -> Iterator[tuple[str, Cells]]:
    """Named statements with their parameters that run after all steps."""
    answers = batch.tables.get("remembered")
    if answers is not None and answers.inserted:
        newest_ms = max(int(cells["at_ms"] or 0) for cells in answers.inserted)
        limit = REMEMBERED_DELETED_MAX * len(answers.inserted)
        yield "delete_remembered", {"before_ms": newest_ms - REMEMBERED_MS, "limit": limit}
    pruned = batch.pruned
    if pruned is None:
        return
    if pruned.lines:
        # After the lines: the one that says so has the highest number, and no later one its.
        yield "delete_lines", {"numbers": json_text(pruned.lines)}
        yield "prune_through", {"number": max(pruned.lines)}
    events, operations = {"ids": json_text(pruned.events)}, {"ids": json_text(pruned.operations)}
    if pruned.events:
        yield "delete_first_reads", events
        yield "delete_actions_of_events", events
        yield "delete_ended_events", events
    if pruned.operations:
        yield "delete_members_of_operations", operations
        yield "delete_actions_of_operations", operations
        yield "delete_ended_operations", operations


def does_not_fit(
    step: WriteStep, revisions: Mapping[tuple[Cell, ...], int]
) -> StaleRevision | Unstorable:
    """Why not every row of a step was written. `revisions` are those that are there, by key."""
    if step.way in (Way.DELETE, Way.INSERT):
        is_there = "is not there" if step.way is Way.DELETE else "is there already"
        return StaleRevision(f"{step.named()} {is_there}")
    for cells in step.rows:
        before = cells.get(REVISION_BEFORE)
        key = tuple(cells[column] for column in step.spec.key)
        if before is not None and revisions.get(key) != before:
            name = cells[step.spec.key[0]]
            return StaleRevision(f"{step.spec.name} {name} is no longer at revision {before}")
    return Unstorable(f"what is kept of {step.named()} may not become that, or belongs elsewhere")
