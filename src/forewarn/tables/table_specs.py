"""Which values the store keeps in which tables, and what must hold when their rows are written.

The columns of a table are the fields of its value (`columns`). Every SELECT is in a file in `sql/`.
Nothing here runs a statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from forewarn.core.facts import detail_from, detail_text
from forewarn.core.incarnation_marks import VmKey
from forewarn.core.model import (
    Action,
    Fact,
    FactKind,
    Host,
    Operation,
    ScheduledEvent,
    Scope,
    ScopeHold,
    Vm,
    Webhook,
    Window,
)
from forewarn.core.tokens import Token
from forewarn.core.vm_profile import VmProfile
from forewarn.ports import (
    DepartedVm,
    FirstRead,
    Generation,
    JournalLine,
    RememberedAnswer,
    VmDefinition,
)
from forewarn.tables.columns import Cells, Column, Row, StoredField, StoreTable, flat, pair

HOSTS = StoreTable("host", Host)
# `shown_commit` is the commit that changes what hosts are shown of it; None if none does.
SCOPES = StoreTable(
    "scope",
    Scope,
    elsewhere=("vms", "events"),
    beside=("shown_commit",),
    parts=(flat("hold", ScopeHold, prefix="hold_", optional=True),),
)
VMS = StoreTable("vm", Vm, beside=("scope", "position"), parts=(flat("profile", VmProfile),))
_WINDOW = flat("window", Window, prefix="window_", optional=True)
EVENTS = StoreTable("scheduled_event", ScheduledEvent, elsewhere=("actions",), parts=(_WINDOW,))
# Its owner is the event or the operation.
ACTIONS = StoreTable("action", Action, beside=("event_id", "operation_id", "position"))
OPERATIONS = StoreTable("operation", Operation, elsewhere=("members", "action"), parts=(_WINDOW,))
FACTS = StoreTable(
    "journal",
    Fact,
    beside=("number",),
    columns={"by": "by_whom"},
    parts=(
        StoredField(
            "detail",
            (Column("detail", "detail", detail_text),),
            made=lambda row: detail_from(FactKind(row["kind"]), row["detail"]),
        ),
    ),
)
GENERATIONS = StoreTable("journal_generation", Generation)
DEPARTED_VMS = StoreTable("departed_vm", DepartedVm, parts=(pair("key", "name", "vm_id"),))
DEFINITIONS = StoreTable("definition", VmDefinition, columns={"text": "definition"})
FIRST_READS = StoreTable("receipt", FirstRead)
TOKENS = StoreTable("token", Token)
WEBHOOKS = StoreTable("webhook", Webhook)
REMEMBERED = StoreTable("remembered", RememberedAnswer, columns={"key": "idempotency_key"})


class TableSpec(Struct, frozen=True, kw_only=True):
    """How the rows of one table are written, on any database.

    `name` is that of the `table`, but for rows that are only deleted, by another key.
    `key` names a row and never changes; `deleted_by` are columns that name what is deleted, if
    others. `keeps` are columns that stay as they were inserted. A row that is there changes only
    while `still` holds, of `old` (it) and `new` (what follows), and `made` are columns that both
    make. An insert of a key that is there leaves the first row; unless `first_stays` it is a sign
    that another program writes.
    """

    name: str
    table: str
    columns: tuple[str, ...]
    integers: frozenset[str]
    key: tuple[str, ...]
    deleted_by: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    still: str = ""
    made: Mapping[str, str] = field(default_factory=dict)
    first_stays: bool = False
    must_be_there: bool = False  # what is deleted

    @property
    def locked(self) -> bool:
        """Whether its rows have a revision: they are inserted or updated, never upserted."""
        return REVISION_BEFORE in self.looked_at()

    def changing(self) -> tuple[str, ...]:
        """The columns that a later write changes."""
        return tuple(c for c in self.columns if c not in self.key and c not in self.keeps)

    def looked_at(self) -> tuple[str, ...]:
        """The columns of `new` that an update needs, whether or not they are columns of the row."""
        said = " ".join((self.still, *self.made.values()))
        own = (*self.key, *self.changing(), *re.findall(r"\bnew\.(\w+)", said))
        return tuple(dict.fromkeys(own))


REVISION_BEFORE = "revision_before"  # beside the columns of a row that has a revision
VMS_OF_SCOPE = "vm_of_scope"  # all VMs of a scope that is removed

# Columns beside a value that are numbers.
_NUMBERS = frozenset({"shown_commit", "position", "sequence", "number", "only_one"})


def spec_of(
    table: StoreTable[Any], key: str, *, beside: Sequence[str] = (), **more: Any
) -> TableSpec:
    """How the rows of a value are written; `key` are the columns of its key, in one text."""
    columns = (*table.columns, *beside)
    numbers = table.integers | _NUMBERS.intersection(columns) | {REVISION_BEFORE}
    names = tuple(key.split())
    return TableSpec(
        name=table.name, table=table.name, columns=columns, integers=numbers, key=names, **more
    )


def _plain(name: str, columns: str, key: str, **more: Any) -> TableSpec:
    """A table that is not one of a value."""
    names = tuple(columns.split())
    numbers = _NUMBERS.intersection(names)
    more = {"table": name, **more}
    return TableSpec(name=name, columns=names, integers=numbers, key=tuple(key.split()), **more)


_UNCHANGED = f"old.revision = new.{REVISION_BEFORE}"

# Every table that batches write, in the order in which rows are added; they are deleted in the
# opposite order. What a database has beside these (its commits, epochs) its adapter writes.
TABLES: Sequence[TableSpec] = (
    spec_of(HOSTS, "name", still=_UNCHANGED, must_be_there=True),
    # Its incarnation never goes back. Without a shown_commit hosts are shown the same.
    spec_of(
        SCOPES,
        "name",
        still=f"{_UNCHANGED} AND old.incarnation <= new.incarnation",
        made={"shown_commit": "COALESCE(new.shown_commit, old.shown_commit)"},
        must_be_there=True,
    ),
    # With its place in its scope, which it leaves by being deleted.
    spec_of(
        VMS, "name", deleted_by=("name", "scope"), keeps=("scope",), still="old.scope = new.scope"
    ),
    _plain(VMS_OF_SCOPE, "scope", "scope", table="vm"),
    # Its phase only moves forward and a shown not_before stays.
    spec_of(
        EVENTS,
        "event_id",
        beside=("sequence",),
        keeps=("scope", "sequence"),
        still="old.scope = new.scope\n"
        "   AND (old.silent = 1 OR old.not_before_ms = new.not_before_ms)\n"
        "   AND (old.phase = new.phase\n"
        "        OR old.phase = 'scheduled' AND new.phase IN ('started', 'canceled')\n"
        "        OR old.phase IN ('scheduled', 'started')"
        " AND new.phase IN ('completed', 'failed'))",
    ),
    # What has ended stays ended.
    spec_of(
        OPERATIONS,
        "operation_id",
        beside=("sequence",),
        keeps=("sequence",),
        still=f"{_UNCHANGED} AND (old.phase <> 'ended' OR new.phase = 'ended')",
    ),
    _plain(
        "operation_member",
        "operation_id position scope event_id",
        "operation_id position",
    ),
    # Its owner stays and its epoch never goes back.
    spec_of(
        ACTIONS,
        "action_id",
        keeps=("event_id", "operation_id"),
        still="old.epoch <= new.epoch\n"
        "   AND COALESCE(old.event_id, '') = COALESCE(new.event_id, '')\n"
        "   AND COALESCE(old.operation_id, '') = COALESCE(new.operation_id, '')",
    ),
    # What an event names, for the lists by it. It stays when the event names it no more.
    _plain("event_mention", "what word sequence", "what word sequence", first_stays=True),
    spec_of(FACTS, "number"),
    spec_of(FIRST_READS, "event_id vm", first_stays=True),
    spec_of(DEFINITIONS, "vm"),
    spec_of(DEPARTED_VMS, "name vm_id"),
    spec_of(TOKENS, "token_id"),
    spec_of(WEBHOOKS, "webhook_id"),
    spec_of(REMEMBERED, "idempotency_key"),
    _plain("meta", "name value", "name"),
    _plain("unfinished_inventory", "only_one about", "only_one"),
)
SPECS: Mapping[str, TableSpec] = {spec.name: spec for spec in TABLES}


def mentions(
    before: ScheduledEvent | None, event: ScheduledEvent, scope: Scope
) -> Iterator[tuple[str, str]]:
    """What an event names that it did not before: VMs, their tags, who ordered and approved it.

    Pairs of the kind of word (vm, tag, by) and the word.
    """
    known = frozenset(() if before is None else before.resources)
    named = [vm for vm in event.resources if vm not in known]
    tags, principals = set[str](), set[str]()
    if named:
        tagged = {vm.name: vm.profile.tags for vm in scope.vms if vm.profile.tags}
        tags = {f"{k}={v}" for vm in named for k, v in tagged.get(vm, ())} if tagged else tags
    if before is None:
        principals.add(event.ordered_by)
    if event.approved_by and (before is None or before.approved_by is None):
        principals.add(event.approved_by)
    for what, words in (("by", principals), ("tag", tags), ("vm", set(named))):
        yield from ((what, word) for word in sorted(words) if word)


def vm_key_cells(key: VmKey) -> Cells:
    name, vm_id = key
    return {"name": name, "vm_id": vm_id}


def line_cells(line: JournalLine) -> Cells:
    return FACTS.cells(line.fact, number=line.number)


def journal_line(row: Row) -> JournalLine:
    return JournalLine(number=row["number"], fact=FACTS.value(row))
