"""A batch as statements of PostgreSQL: one for each step, all rows of it in arrays (`unnest`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from forewarn.adapters.postgres.session import Statement, named_in_own_words
from forewarn.ports import Batch, Cells, Fence
from forewarn.tables.steps import Way, WriteStep, last_queries
from forewarn.tables.table_specs import SPECS, TableSpec

EPOCHS_MAX = 1_000  # lives of controls that a database knows; hosts of older ones hear everything
FENCE = "fence"  # the step of a leader that leads no longer
RING = "forewarn"  # what followers listen to

_FENCE = (
    "WITH written AS (UPDATE leadership SET batch = batch + 1,"
    " renewed_ms = (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint"
    " WHERE id = 1 AND epoch = %s AND batch = %s RETURNING 1)"
    " SELECT forewarn_expect(count(*), 1, %s) FROM written"
)


def statements(
    batch: Batch, steps: Sequence[WriteStep], fence: Fence, epoch_id: str | None
) -> Iterator[Statement]:
    """Everything of a batch but BEGIN and COMMIT; the fence is the first."""
    yield Statement(_FENCE, (fence.epoch, batch.commit - 1, FENCE))
    for number, step in enumerate(steps):
        text = text_of(step.spec.name, step.way)
        arrays = [[row.get(column) for row in step.rows] for column in _columns(step)]
        if step.whole:
            yield Statement(_expecting(text), (*arrays, len(step.rows), str(number)))
        else:
            yield Statement(text, arrays)
    for name, parameters in last_queries(batch):
        yield Statement(named_in_own_words(name), parameters)
    if epoch_id is not None:
        named: Cells = {"epoch_id": epoch_id, "first_commit": batch.commit}
        yield Statement(named_in_own_words("insert_epoch"), named)
        yield Statement(named_in_own_words("delete_old_epochs"), {"kept": EPOCHS_MAX})
    yield Statement("SELECT pg_notify(%s, %s)", (RING, str(batch.commit)))


@cache
def text_of(name: str, way: Way) -> str:
    """The statement of a table; its parameters are one array for each column."""
    spec = SPECS[name]
    given = _arrays(spec, _columns_of(spec, way))
    match way:
        case Way.DELETE:
            found = " AND ".join(f"old.{c} = new.{c}" for c in spec.deleted_by or spec.key)
            return f"DELETE FROM {spec.table} AS old USING {given} WHERE {found}"  # noqa: S608 - ours
        case Way.UPDATE:
            sets = ", ".join(f"{c} = {spec.made.get(c, f'new.{c}')}" for c in spec.changing())
            found = " AND ".join(f"old.{c} = new.{c}" for c in spec.key)
            still = f" AND ({spec.still})" if spec.still else ""
            return f"UPDATE {spec.table} AS old SET {sets} FROM {given} WHERE {found}{still}"  # noqa: S608
    names = ", ".join(spec.columns)
    adding = f"INSERT INTO {spec.table} AS old ({names}) SELECT {names} FROM {given}"  # noqa: S608
    if way is Way.INSERT:
        return f"{adding} ON CONFLICT DO NOTHING"
    sets = ", ".join(f"{c} = excluded.{c}" for c in spec.changing())
    still = f" WHERE {spec.still.replace('new.', 'excluded.')}" if spec.still else ""
    return f"{adding} ON CONFLICT ({', '.join(spec.key)}) DO UPDATE SET {sets}{still}"


def _columns(step: WriteStep) -> Sequence[str]:
    return _columns_of(step.spec, step.way)


def _columns_of(spec: TableSpec, way: Way) -> Sequence[str]:
    if way is Way.DELETE:
        return spec.deleted_by or spec.key
    return spec.looked_at() if way is Way.UPDATE else spec.columns


def _arrays(spec: TableSpec, columns: Sequence[str]) -> str:
    kinds = ("bigint" if column in spec.integers else "text" for column in columns)
    arrays = ", ".join(f"%s::{kind}[]" for kind in kinds)
    return f"unnest({arrays}) AS new ({', '.join(columns)})"


@cache
def _expecting(text: str) -> str:
    """The same, ending the transaction unless it writes so many rows."""
    counted = "SELECT forewarn_expect(count(*), %s, %s) FROM written"
    return f"WITH written AS ({text} RETURNING 1) {counted}"


def revisions(step: WriteStep) -> Statement:
    """Asks for the revisions of the rows of a step, by their keys."""
    keys = ", ".join(step.spec.key)
    given = _arrays(step.spec, step.spec.key)
    return Statement(
        f"SELECT {keys}, revision FROM {step.spec.table}"  # noqa: S608 - ours
        f" WHERE ({keys}) IN (SELECT {keys} FROM {given})",
        [[row[column] for row in step.rows] for column in step.spec.key],
    )
