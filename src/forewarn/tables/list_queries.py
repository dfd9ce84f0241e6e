"""The statements that list events, operations and lines of the journal by a filter.

Each is led by one index, which has the order of the list, so that a page costs what is on it and
not what has ever ended. The other conditions have a unary plus, which keeps SQLite from another
choice. Nothing here runs a statement; every value is a parameter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from forewarn.ports import Cell, ListFilter


class ListQuery(Struct, frozen=True):
    """A statement with its parameters."""

    statement: str
    parameters: Mapping[str, Cell]


_OPEN_EVENTS = "phase IN ('scheduled', 'started')"
_OPEN_OPERATIONS = "phase IN ('waiting', 'started')"
_OPEN = ("scheduled", "waiting", "started")
_RARE = ("failed", "canceled")  # ended phases that have an index of their own

# The filters that are columns, those first whose index leads best: few rows have one value.
_EVENT_COLUMNS = (
    ("scope", "scope"),
    ("host", "host"),
    ("cause", "cause"),
    ("event_type", "event_type"),
)
_OPERATION_COLUMNS = (
    ("host", "host"),
    ("by", "ordered_by"),
    ("cause", "cause"),
    ("event_type", "event_type"),
)
_JOURNAL_COLUMNS = (
    ("event_id", "event_id"),
    ("scope", "scope"),
    ("host", "host"),
    ("by", "by_whom"),
    ("kind", "kind"),
)
_MENTIONS = ("vm", "tag", "by")

_MENTIONING = "SELECT 1 FROM event_mention WHERE what = '{what}' AND word = :{what}"
_EVENTS_MENTIONING = (
    "FROM event_mention CROSS JOIN scheduled_event"
    " ON scheduled_event.sequence = event_mention.sequence"
    " WHERE event_mention.what = '{what}' AND event_mention.word = :{what}"
)
# Lines of a VM: those about it, and those about events that named it. A tag: the same of VMs that
# have it, and of events whose VMs had it.
_LINES_OF_EVENTS = (
    "SELECT journal.number FROM event_mention"
    " CROSS JOIN scheduled_event ON scheduled_event.sequence = event_mention.sequence"
    " CROSS JOIN journal ON journal.event_id = scheduled_event.event_id"
    " WHERE event_mention.what = '{what}' AND event_mention.word = :{what}"
    " AND journal.number > :after"
)
_LINES_OF_VM = "SELECT number FROM journal WHERE vm = :vm AND number > :after"
LINES_OF_TAG = (
    "SELECT journal.number FROM vm CROSS JOIN json_each(vm.tags) AS tag"
    " CROSS JOIN journal ON journal.vm = vm.name"
    " WHERE vm.tags <> '[]'"
    " AND json_extract(tag.value, '$[0]') || '=' || json_extract(tag.value, '$[1]') = :tag"
    " AND journal.number > :after"
)
_ABOUT = (
    "(EXISTS (SELECT 1 FROM scheduled_event AS e WHERE e.event_id = journal.event_id"
    " AND e.{column} = :{name})"
    " OR journal.event_id IS NULL"
    " AND EXISTS (SELECT 1 FROM operation AS o WHERE o.operation_id = journal.operation_id"
    " AND o.{column} = :{name}))"
)


def events(where: ListFilter, *, open_only: bool, below: int | None, limit: int) -> ListQuery:
    """Events, newest first. Open ones are few and led by themselves, others by what is asked."""
    given = _given(where)
    mentioned = [what for what in _MENTIONS if what in given]
    leads = "scheduled_event"
    conditions = _phases(where, _OPEN_EVENTS, _RARE, table="scheduled_event", open_only=open_only)
    led = bool(conditions) and not conditions[0].startswith("+")
    if mentioned and not led:
        leads = "event_mention"
        conditions.append(f"event_mention.what = '{mentioned[0]}'")
        conditions.append(f"event_mention.word = :{mentioned.pop(0)}")
        led = True
    conditions += _columns(given, _EVENT_COLUMNS, table="scheduled_event", led=led)
    conditions += [
        f"EXISTS ({_MENTIONING.format(what=what)} AND sequence = scheduled_event.sequence)"
        for what in mentioned
    ]
    conditions += _times(given, "scheduled_event", "scheduled_ms", "sequence")
    if below is not None:
        conditions.append(f"{leads}.sequence < :below")
    joined = "scheduled_event"
    if leads == "event_mention":
        joined = (
            "event_mention CROSS JOIN scheduled_event"
            " ON scheduled_event.sequence = event_mention.sequence"
        )
    return ListQuery(
        f"SELECT scheduled_event.* FROM {joined}{_where(conditions)}"  # noqa: S608 - ours
        f" ORDER BY {leads}.sequence DESC LIMIT :limit",
        {**given, "below": below, "limit": max(0, limit)},
    )


def operations(where: ListFilter, *, open_only: bool, below: int | None, limit: int) -> ListQuery:
    """Operations, newest first. A scope, VM or tag is that of an event of the operation."""
    given = _given(where)
    conditions = _phases(where, _OPEN_OPERATIONS, (), table="operation", open_only=open_only)
    led = bool(conditions) and not conditions[0].startswith("+")
    conditions += _columns(given, _OPERATION_COLUMNS, table="operation", led=led)
    if "scope" in given:
        found = "SELECT operation_id FROM scheduled_event WHERE scope = :scope"
        conditions.append(f"+operation.operation_id IN ({found})")
    for what in ("vm", "tag"):
        if what in given:
            found = f"SELECT scheduled_event.operation_id {_EVENTS_MENTIONING.format(what=what)}"
            conditions.append(f"+operation.operation_id IN ({found})")
    conditions += _times(given, "operation", "ordered_ms", "sequence")
    if below is not None:
        conditions.append("operation.sequence < :below")
    return ListQuery(
        f"SELECT * FROM operation{_where(conditions)}"  # noqa: S608 - ours
        " ORDER BY operation.sequence DESC LIMIT :limit",
        {**given, "below": below, "limit": max(0, limit)},
    )


def journal(where: ListFilter, *, after: int, limit: int) -> ListQuery:
    """Lines, oldest first. Those of a VM or a tag are found first, and are few."""
    given = _given(where)
    conditions = []
    for what, lines in (("vm", _LINES_OF_VM), ("tag", LINES_OF_TAG)):
        if what in given:
            found = f"{lines} UNION {_LINES_OF_EVENTS.format(what=what)}"
            conditions.append(f"journal.number IN ({found})")
    conditions += _columns(given, _JOURNAL_COLUMNS, table="journal", led=bool(conditions))
    conditions += [
        _ABOUT.format(name=name, column=name)
        for name in ("event_type", "phase", "cause")
        if name in given
    ]
    conditions += _times(given, "journal", "at_ms", "number")
    conditions.append("journal.number > :after")
    return ListQuery(
        f"SELECT * FROM journal{_where(conditions)}"  # noqa: S608 - ours
        " ORDER BY journal.number LIMIT :limit",
        {**given, "after": after, "limit": max(0, limit)},
    )


def each_scope(where: ListFilter) -> Sequence[ListFilter]:
    """The filter, or one for each of its scopes: every one of those is led by an index."""
    if where.scopes is None:
        return (where,)
    named = where.scopes if where.scope is None else (where.scope,)
    return [replace(where, scope=name, scopes=None) for name in named if name in where.scopes]


def _given(where: ListFilter) -> dict[str, Cell]:
    """The filters that were given, as parameters."""
    found = ((n, getattr(where, n)) for n in ListFilter.__struct_fields__ if n != "scopes")
    return {
        name: value if isinstance(value, int) else str(value)
        for name, value in found
        if value is not None
    }


def _phases(
    where: ListFilter, are_open: str, rare: Sequence[str], *, table: str, open_only: bool
) -> list[str]:
    """The condition on the phase. It leads where few rows are: of open ones, and of rare ends."""
    if where.phase is None:
        return [are_open] if open_only else []
    word = where.phase.value
    if open_only or word in _OPEN:
        return [are_open, f"+{table}.phase = :phase"]
    return [f"{table}.phase = '{word}'" if word in rare else f"+{table}.phase = :phase"]


def _columns(
    given: Mapping[str, Cell],
    columns: Sequence[tuple[str, str]],
    *,
    table: str,
    led: bool,
) -> list[str]:
    """The conditions on columns. The first one leads, unless something else does (`led`)."""
    found = []
    for name, column in columns:
        if name in given:
            found.append(f"{'+' if led else ''}{table}.{column} = :{name}")
            led = True
    return found


def _times(given: Mapping[str, Cell], table: str, column: str, order: str) -> list[str]:
    """Those of a time. Clocks step, so the order bounds the search and the time itself decides."""
    found = []
    for name, sign, end in (("since_ms", ">=", "MIN"), ("until_ms", "<=", "MAX")):
        if name in given:
            bound = f"SELECT {end}({order}) FROM {table} WHERE {column} {sign} :{name}"  # noqa: S608
            found.append(f"{table}.{order} {sign} ({bound})")
            found.append(f"+{table}.{column} {sign} :{name}")
    return found


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""
