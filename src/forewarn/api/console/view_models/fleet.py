"""The Fleet page: hosts as a grid or a list, scopes and whether they listen."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec import Struct

from forewarn.api.console.view_models.grid import CODES, Grid, grid
from forewarn.api.console.view_models.values import Offers
from forewarn.control.fleet_metrics import AGENTS_SILENT_AFTER_MS
from forewarn.control.fleet_reader import FleetLook
from forewarn.control.fleet_summary import FleetSummary, HostCondition, natural, why_troubled
from forewarn.control.published_fleet import PublishedFleet
from forewarn.core import placement, scheduling
from forewarn.core.model import Scope, ScopeKind

PAGE_ROWS = 100

LISTENING = ("all", "silent", "stopped", "held")


class HostRow(Struct, frozen=True, kw_only=True):
    """A host in a list."""

    name: str
    code: str
    word: str
    placement: str
    vm_count: int
    capacity: int | None
    why: str


class HostList(Struct, frozen=True, kw_only=True):
    rows: tuple[HostRow, ...]
    after: str | None  # where it goes on


class ScopeRow(Struct, frozen=True, kw_only=True):
    """A scope in a list. `listens`: some VM polls; `polled_ms` is the last poll that was saved."""

    name: str
    kind: ScopeKind
    vm_count: int
    listens: bool
    stopped: bool
    polled_ms: int | None
    open_events: int
    held: bool


class ScopeList(Struct, frozen=True, kw_only=True):
    rows: tuple[ScopeRow, ...]
    total: int
    after: str | None


class FleetPage(Struct, frozen=True, kw_only=True):
    grid: Grid
    scopes: int
    vms: int
    silent: int
    stopped: int
    held: int


def fleet_page(look: FleetLook, summary: FleetSummary, offers: Offers) -> FleetPage:
    sees = offers.access.sees
    stopped = _stopped(look, summary)
    everything = offers.access.all_scopes
    return FleetPage(
        grid=grid(summary),
        scopes=len(look.scopes) if everything else len(offers.access.scopes),
        vms=len(look.scope_of_vm),
        silent=sum(map(sees, summary.deaf)),
        stopped=sum(map(sees, stopped)),
        held=sum(map(sees, summary.held)),
    )


def _stopped(look: FleetLook, summary: FleetSummary) -> set[str]:
    since_ms = look.now_ms - AGENTS_SILENT_AFTER_MS
    return {name for _, name in summary.unheard_since(since_ms)}


def host_list(
    look: FleetLook,
    summary: FleetSummary,
    *,
    condition: HostCondition | None,
    after: str = "",
    find: str = "",
    rows_max: int = PAGE_ROWS,
) -> HostList:
    """Hosts in their order, those that are so, after a name; `find` is a part of the name."""
    begin = natural(after) if after else ()
    wanted = (
        (name, one)
        for name, one in zip(summary.host_names, summary.conditions, strict=True)
        if (condition is None or one is condition)
        and find.casefold() in name.casefold()
        and (not after or natural(name) > begin)
    )
    rows = [_host_row(look, *found) for found in islice(wanted, rows_max + 1)]
    more = len(rows) > rows_max
    return HostList(rows=tuple(rows[:rows_max]), after=rows[rows_max - 1].name if more else None)


def _host_row(look: FleetLook, name: str, condition: HostCondition) -> HostRow:
    host = look.need_host(name)
    why = why_troubled(look, name) if condition is HostCondition.TROUBLED else ""
    return HostRow(
        name=name,
        code=CODES[condition],
        word=condition.value,
        placement=placement.placement(host, look),
        vm_count=look.vm_count(name),
        capacity=host.capacity,
        why=why,
    )


def scope_list(
    fleet: PublishedFleet,
    summary: FleetSummary,
    offers: Offers,
    *,
    which: str = "all",
    after: str = "",
    find: str = "",
) -> ScopeList:
    """Scopes by name, after a name: all, those that are silent, have stopped polling, or are held.

    A look at all of them costs the same in a fleet of any size, unless a part of a name is found.
    """
    look = fleet.look()
    access = offers.access
    stopped = _stopped(look, summary)
    chosen: Iterable[str]
    if which != "all":
        chosen = {"silent": summary.deaf, "stopped": stopped, "held": summary.held}[which]
    elif not access.all_scopes:
        chosen = access.scopes
    else:
        chosen = _all(fleet, after, find)
    seen = [name for name in chosen if access.sees(name) and find.casefold() in name.casefold()]
    names = heapq.nsmallest(PAGE_ROWS + 1, (name for name in seen if name > after))
    found = (scope for name in names[:PAGE_ROWS] if (scope := look.scope(name)) is not None)
    total = len(look.scopes) if which == "all" and access.all_scopes and not find else len(seen)
    return ScopeList(
        rows=tuple(_scope_row(look, scope, stopped) for scope in found),
        total=total,
        after=names[PAGE_ROWS - 1] if len(names) > PAGE_ROWS else None,
    )


def _all(fleet: PublishedFleet, after: str, find: str) -> Iterator[str]:
    limit = len(fleet.scopes) if find else PAGE_ROWS + 1
    return (scope.name for scope in fleet.scopes_after(after, limit))


def _scope_row(look: FleetLook, scope: Scope, stopped: set[str]) -> ScopeRow:
    return ScopeRow(
        name=scope.name,
        kind=scope.kind,
        vm_count=len(scope.vms),
        listens=scheduling.is_enabled(scope, look.policy),
        stopped=scope.name in stopped,
        polled_ms=scope.polled_ms,
        open_events=len(scope.events),
        held=scope.hold is not None,
    )
