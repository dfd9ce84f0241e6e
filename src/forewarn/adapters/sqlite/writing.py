"""The statements that write a batch to SQLite, made from `tables.table_specs`."""

from __future__ import annotations

import re
from functools import cache

from msgspec import Struct

from forewarn.tables.table_specs import SPECS, TableSpec


class WriteStatements(Struct, frozen=True):
    """What writes one table, a row at a time."""

    delete: str
    insert: str
    update: str
    upsert: str


@cache
def statements(name: str) -> WriteStatements:
    """Those of a table of the store."""
    return statements_of(SPECS[name])


def statements_of(spec: TableSpec) -> WriteStatements:
    """`old` is the row that is there, what follows it are parameters."""
    names = ", ".join(spec.columns)
    values = ", ".join(f":{column}" for column in spec.columns)
    insert = f"INSERT INTO {spec.table} AS old ({names})\nVALUES ({values})"
    changing = spec.changing()
    deleted = " AND ".join(f"{key} = :{key}" for key in spec.deleted_by or spec.key)
    found = [f"old.{key} = :{key}" for key in spec.key]
    if spec.still:
        found.append(f"({_parameters(spec.still)})")
    sets = ", ".join(f"{c} = {_parameters(spec.made.get(c, f'new.{c}'))}" for c in changing)
    upserted = "\n   SET " + ", ".join(f"{c} = excluded.{c}" for c in changing)
    if spec.still:
        upserted += "\n WHERE " + spec.still.replace("new.", "excluded.")
    return WriteStatements(
        delete=f"DELETE FROM {spec.table} WHERE {deleted}",  # noqa: S608 - ours, as below
        insert=f"{insert}\nON CONFLICT DO NOTHING",
        update=f"UPDATE {spec.table} AS old\n   SET {sets}\n WHERE {' AND '.join(found)}",  # noqa: S608
        upsert=f"{insert}\nON CONFLICT ({', '.join(spec.key)}) DO UPDATE{upserted}",
    )


def _parameters(said: str) -> str:
    return re.sub(r"\bnew\.(\w+)", r":\1", said)
