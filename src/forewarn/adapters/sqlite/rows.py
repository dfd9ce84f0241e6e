"""Which values the store keeps in which tables, and the statements that write their rows.

The columns of a table are the fields of its value (`columns`). The schema and every SELECT
are files in `sql/`. Nothing here runs a statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from sqlite3 import Row

from forewarn.adapters.sqlite.table_columns import (
    Cells,
    Column,
    StoredField,
    StoreTable,
    flat,
    json_text,
    pair,
)
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


def _next(column: str, table: str) -> dict[str, str]:
    """One more than the highest number that is there."""
    return {column: f"(SELECT COALESCE(MAX({column}), 0) + 1 FROM {table})"}  # noqa: S608 - ours


# By name, as `sql/queries.sql` has the others.
WRITES: Mapping[str, str] = {
    "insert_host": HOSTS.insert(conflict="name"),
    # Only if no other write came since it was loaded.
    "update_host": HOSTS.update(
        key=("name",), where="name = :name AND revision = :revision_before", made={}
    ),
    "insert_scope": SCOPES.insert(conflict="name"),
    # The same; its incarnation never goes back. Without a shown_commit hosts are shown the same.
    "update_scope": SCOPES.update(
        key=("name",),
        where="name = :name AND revision = :revision_before AND incarnation <= :incarnation",
        made={"shown_commit": "COALESCE(:shown_commit, shown_commit)"},
    ),
    # With its place in its scope.
    "upsert_vm": VMS.upsert(key=("name",), keeps=("scope",), where="vm.scope = excluded.scope"),
    # After all others.
    "insert_event": EVENTS.insert(made=_next("sequence", "scheduled_event")),
    # Its phase only moves forward and a shown not_before stays.
    "update_event": EVENTS.update(
        key=("event_id", "scope"),
        where="event_id = :event_id AND scope = :scope\n"
        "   AND (silent = 1 OR not_before_ms = :not_before_ms)\n"
        "   AND (phase = :phase\n"
        "        OR phase = 'scheduled' AND :phase IN ('started', 'canceled')\n"
        "        OR phase IN ('scheduled', 'started') AND :phase IN ('completed', 'failed'))",
        made={},
    ),
    "insert_operation": OPERATIONS.insert(
        conflict="operation_id", made=_next("sequence", "operation")
    ),
    # Only if no other write came since it was loaded; what has ended stays ended.
    "update_operation": OPERATIONS.update(
        key=("operation_id",),
        where="operation_id = :operation_id AND revision = :revision_before\n"
        "   AND (phase <> 'ended' OR :phase = 'ended')",
        made={},
    ),
    # Its owner stays and its epoch never goes back.
    "upsert_action": ACTIONS.upsert(
        key=("action_id",),
        keeps=("event_id", "operation_id"),
        where="action.epoch <= excluded.epoch\n"
        "   AND COALESCE(action.event_id, '') = COALESCE(excluded.event_id, '')\n"
        "   AND COALESCE(action.operation_id, '') = COALESCE(excluded.operation_id, '')",
    ),
    "insert_line": FACTS.insert(),
    "insert_generation": GENERATIONS.insert(),
    "upsert_definition": DEFINITIONS.upsert(key=("vm",)),
    "upsert_departed_vm": DEPARTED_VMS.upsert(key=("name", "vm_id")),
    "upsert_token": TOKENS.upsert(key=("token_id",)),
    "upsert_webhook": WEBHOOKS.upsert(key=("webhook_id",)),
    # The first receipt and the first answer stay.
    "insert_first_read": FIRST_READS.insert(conflict="event_id, vm"),
    "insert_remembered": REMEMBERED.insert(conflict="idempotency_key"),
}


def mentions(before: ScheduledEvent | None, event: ScheduledEvent, scope: Scope) -> Iterator[Cells]:
    """What an event names that it did not before: VMs, their tags, who ordered and approved it.

    Cells for each kind of word, with all words of it as JSON.
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
    for what, words in (("by", principals), ("tag", tags), ("vm", named)):
        said = sorted(word for word in words if word)
        if said:
            yield {"what": what, "words": json_text(said), "event_id": event.event_id}


def vm_key_cells(key: VmKey) -> Cells:
    name, vm_id = key
    return {"name": name, "vm_id": vm_id}


def line_cells(line: JournalLine) -> Cells:
    return FACTS.cells(line.fact, number=line.number)


def journal_line(row: Row) -> JournalLine:
    return JournalLine(number=row["number"], fact=FACTS.value(row))
