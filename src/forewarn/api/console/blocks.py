"""What pages are made of that can change while they are open: blocks, each with its own value.

A page is drawn from its blocks, and its stream sends those whose value has changed. A view says
which blocks a page has, and which commits may change them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar
from urllib.parse import parse_qsl

from msgspec import Struct, field
from msgspec.structs import replace

from forewarn.api.console.journal_reading import (
    JournalAsked,
    newest_of_scopes,
    read_asked,
)
from forewarn.api.console.page_context import TAIL_LINES, Desk, scope_of_vm
from forewarn.api.console.view_models import event as event_view
from forewarn.api.console.view_models import host_vm_scope_operation, inbox, now
from forewarn.api.console.view_models import open_orders as work
from forewarn.api.console.view_models.fleet import fleet_page
from forewarn.api.console.view_models.grid import grid, legend
from forewarn.api.console.view_models.lines import Line, line
from forewarn.api.console.view_models.open_orders import OpenOrders, WorkRow, ended_rows
from forewarn.api.console.view_models.timeline import RANGES, read_ended, timeline
from forewarn.api.requests import NAME_CHARS_MAX
from forewarn.control.slices import in_slices
from forewarn.core.access import Access, Right, not_yours
from forewarn.core.errors import Invalid, NotFound
from forewarn.ports import Change, ListFilter, Store

ENDED_SHOWN_MAX = 4
THING_LINES = 25


class ChangedNames(Struct):
    """What a commit has touched: names and ids."""

    scopes: set[str] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    facts: bool = False

    def add(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self.facts = self.facts or bool(change.lines)
            self.scopes.update(scope.name for _, scope in change.scopes)
            self.scopes.update(change.removed_scopes)
            self.hosts.update(host.name for _, host in change.hosts)
            self.hosts.update(change.removed_hosts)
            for _, operation in change.operations:
                self.ids.add(operation.operation_id)
                self.hosts.add(operation.host)
            for fact in (one.fact for one in change.lines):
                self.ids.update(one for one in (fact.event_id, fact.operation_id) if one)
                self.hosts.update(one for one in (fact.host,) if one)
                self.scopes.update(one for one in (fact.scope,) if one)

    def __bool__(self) -> bool:
        return bool(self.scopes or self.hosts or self.ids or self.facts)


Make = Callable[[], Awaitable[object]]


class Block(Struct, frozen=True, kw_only=True):
    """One block: the template that draws it, and what makes its value.

    It is made anew with each commit that touches its view, but not more often than `every_s`, and
    without one after `at_rest_s`: what depends on the time or on what is heard changes by itself.
    `tells_time`: its text says how long it is until something, or since then.
    """

    template: str
    make: Make
    every_s: float = 0.0
    at_rest_s: float = 2.0
    tells_time: bool = True


class View(Struct, frozen=True, kw_only=True):
    """What one page shows. `key` names it; `touched` says whether commits may have changed it."""

    key: str
    blocks: Mapping[str, Block]
    touched: Callable[[ChangedNames], bool] = bool


# Now.


class WorkBlock(Struct, frozen=True, kw_only=True):
    work: OpenOrders
    ended: tuple[WorkRow, ...]


class Tail(Struct, frozen=True, kw_only=True):
    lines: tuple[Line, ...]


def now_view(desk: Desk, access: Access) -> View:
    offers = desk.offers(access)

    def of_look(function: Callable[..., object]) -> Make:
        async def make() -> object:
            return function(desk.look(), desk.summary, offers)

        return make

    async def next_up() -> object:
        return await in_slices(now.coming_walk(desk.look, desk.summary, offers))

    blocks = {
        "broken": Block(template="now/broken.html", make=of_look(now.broken)),
        "work": Block(template="now/work.html", make=partial(_work, desk, access), every_s=0.2),
        "coming": Block(template="now/coming.html", make=next_up, every_s=0.2),
        "consent": Block(template="now/consent.html", make=of_look(now.consent), every_s=0.2),
        "deaf": Block(
            template="now/deaf.html", make=of_look(now.deaf), every_s=2.0, at_rest_s=10.0
        ),
        "notice": Block(
            template="now/notice.html", make=partial(_notice, desk), every_s=2.0, at_rest_s=60.0
        ),
        "tail": Block(template="now/tail.html", make=partial(_tail, desk, access), at_rest_s=60.0),
        "about": Block(
            template="now/about.html", make=partial(_about, desk), every_s=10.0, at_rest_s=30.0
        ),
    }
    if access.all_scopes:
        blocks |= {
            **_cells(desk),
            "capacity": Block(
                template="now/capacity.html",
                make=partial(_capacity, desk),
                every_s=10.0,
                at_rest_s=30.0,
                tells_time=False,
            ),
        }
        return View(key="now", blocks=blocks)
    del blocks["notice"], blocks["about"]
    own = frozenset(access.scopes)
    return View(key="now", blocks=blocks, touched=lambda seen: not own.isdisjoint(seen.scopes))


def _cells(desk: Desk) -> dict[str, Block]:
    """The fleet as a grid, and the words that go with it."""
    return {
        "legend": Block(template="now/legend.html", make=partial(_legend, desk), tells_time=False),
        "grid": Block(template="now/grid.html", make=partial(_grid, desk), tells_time=False),
    }


async def _work(desk: Desk, access: Access) -> WorkBlock:
    ended = await desk.ended.newest()
    seen = [event for event in ended.events if access.sees(event.scope)]
    operations = ended.operations if access.all_scopes else ()
    walk = work.work_walk(desk.look, desk.summary, desk.offers(access))
    return WorkBlock(
        work=await in_slices(walk),
        ended=ended_rows(operations, seen, whole=access.all_scopes)[:ENDED_SHOWN_MAX],
    )


async def _notice(desk: Desk) -> object:
    desk.count_notice()
    return desk.ledger.week(desk.now_ms())


async def _tail(desk: Desk, access: Access) -> Tail:
    if access.all_scopes:
        lines = await desk.newest.newest()
    else:
        lines = await desk.control.read(
            lambda store: newest_of_scopes(store, access.scopes, ListFilter(), TAIL_LINES)
        )
    return Tail(lines=tuple(line(one) for one in reversed(lines)))


async def _grid(desk: Desk) -> object:
    return grid(desk.summary)


async def _legend(desk: Desk) -> object:
    return legend(desk.summary)


async def _capacity(desk: Desk) -> object:
    return await in_slices(now.capacity_walk(desk.look))


async def _about(desk: Desk) -> object:
    setup = desk.setup
    return now.about(
        desk.now_ms(),
        version=desk.version,
        expiries_ms=setup.expiries_ms(),
        backup_ms=desk.measures.backup_ms,
        database_bytes=setup.database_bytes(),
        kept=setup.kept,
    )


# Single things.


F = TypeVar("F", event_view.EventRead, host_vm_scope_operation.OperationRead)


def find_seen(store: Store, access: Access, read: Callable[[Store, str], F], given: str) -> F:
    """What an id, or the beginning of one, means. An owner is not told what is not his."""
    try:
        found = read(store, given)
    except (NotFound, Invalid):
        if access.all_scopes:
            raise
        found = None
    if found is None or not (access.all_scopes or any(map(access.sees, found.scopes))):
        raise not_yours(access, f"event or operation {given[:NAME_CHARS_MAX]}")
    return found


def event_of(desk: Desk, access: Access, event_id: str) -> View:
    offers = desk.offers(access)

    async def make() -> object:
        read = await desk.control.read(
            lambda store: find_seen(store, access, event_view.read_event, event_id)
        )
        return event_view.event_page(desk.look(), read, offers)

    return _single(f"event:{event_id}", "event.html", make, lambda seen: event_id in seen.ids)


def operation_of(desk: Desk, access: Access, operation_id: str) -> View:
    offers = desk.offers(access)

    async def make() -> object:
        read = await desk.control.read(
            lambda store: find_seen(
                store, access, host_vm_scope_operation.read_operation, operation_id
            )
        )
        return host_vm_scope_operation.operation_page(desk.look(), read, offers)

    key = f"operation:{operation_id}"
    return _single(key, "operation.html", make, lambda seen: operation_id in seen.ids)


def _thing(
    desk: Desk, access: Access, name: str, where: ListFilter, page: Callable[..., object]
) -> Make:
    async def make() -> object:
        own = None if access.all_scopes else access.scopes
        lines = await desk.control.read(
            lambda store: newest_of_scopes(store, own, where, THING_LINES)
        )
        offers = desk.offers(access)
        return page(desk.look(), name, tuple(reversed(lines)), offers)

    return make


def host_of(desk: Desk, access: Access, name: str) -> View:
    access.need_everywhere(Right.VIEW, what="to see a host")
    desk.control.fleet.need_host(name)
    make = _thing(desk, access, name, ListFilter(host=name), host_vm_scope_operation.host_page)
    return _single(f"host:{name}", "host.html", make, lambda seen: name in seen.hosts)


def vm_of(desk: Desk, access: Access, name: str) -> View:
    scope = scope_of_vm(desk, access, name)
    make = _thing(desk, access, name, ListFilter(vm=name), host_vm_scope_operation.vm_page)
    return _single(f"vm:{name}", "vm.html", make, lambda seen: scope in seen.scopes)


def scope_of(desk: Desk, access: Access, name: str) -> View:
    if not access.sees(name):
        raise not_yours(access, f"scope {name}")
    desk.control.fleet.need_scope(name)
    make = _thing(desk, access, name, ListFilter(scope=name), host_vm_scope_operation.scope_page)
    return _single(f"scope:{name}", "scope.html", make, lambda seen: name in seen.scopes)


def _single(key: str, template: str, make: Make, touched: Callable[[ChangedNames], bool]) -> View:
    block = Block(template=f"thing/{template}", make=make, at_rest_s=5.0)
    return View(key=key, blocks={"thing": block}, touched=touched)


# The others.


def fleet_of(desk: Desk, access: Access) -> View:
    async def make() -> object:
        return fleet_page(desk.look(), desk.summary, desk.offers(access))

    blocks = _cells(desk) if access.all_scopes else {}
    blocks["listening"] = Block(
        template="fleet/listening.html", make=make, every_s=2.0, at_rest_s=10.0
    )
    return View(key="fleet", blocks=blocks)


def inbox_of(desk: Desk, access: Access) -> View:
    async def make() -> object:
        return inbox.inbox(desk.look(), desk.summary, desk.offers(access))

    return View(
        key="inbox",
        blocks={"inbox": Block(template="inbox/items.html", make=make, every_s=0.5)},
    )


def timeline_of(desk: Desk, access: Access, range_: str, scope: str, host: str) -> View:
    if range_ not in RANGES:
        raise Invalid(f"The timeline has no range {range_[:9]}.", f"Accepted: {', '.join(RANGES)}.")

    async def make() -> object:
        where = ListFilter(
            since_ms=desk.now_ms() - 2 * RANGES[range_][0],
            scope=scope or None,
            host=host or None,
        )
        ended = await desk.control.read(lambda store: read_ended(store, where))
        look = desk.look()
        offers = desk.offers(access)
        return timeline(look, desk.summary, ended, offers, range_=range_, scope=scope, host=host)

    return View(
        key=f"timeline:{range_}:{scope}:{host}",
        blocks={
            "spans": Block(template="timeline/spans.html", make=make, every_s=1.0, at_rest_s=15.0)
        },
    )


class JournalBlock(Struct, frozen=True, kw_only=True):
    lines: tuple[Line, ...]
    older: int | None  # below which number there may be more
    query: str  # the filter
    marked: int | None


def journal_of(desk: Desk, access: Access, asked: JournalAsked) -> View:
    async def make() -> object:
        where = asked.where(desk.now_ms())
        lines = await desk.control.read(
            lambda store: newest_of_scopes(
                store,
                None if access.all_scopes else access.scopes,
                where,
                asked.count + 1,
                below=asked.below,
            )
        )
        shown = tuple(line(one) for one in reversed(lines[-asked.count :]))
        older = shown[-1].number if len(lines) > asked.count else None
        query = replace(asked, below=None, line=None).query
        return JournalBlock(lines=shown, older=older, query=query, marked=asked.line)

    return View(
        key=f"journal:{asked.query}",
        blocks={"lines": Block(template="journal/lines.html", make=make, at_rest_s=60.0)},
        touched=lambda seen: seen.facts,
    )


def view_named(desk: Desk, access: Access, key: str) -> View:
    """The view that a page follows, by its key. Raises NotFound, or Forbidden if it is not shown.

    It is the same function that the page itself was made by, so that a stream shows no more.
    """
    kind, _, rest = key.partition(":")
    if kind in _PLAIN:
        return _PLAIN[kind](desk, access)
    if kind in _NAMED and rest:
        return _NAMED[kind](desk, access, rest)
    if kind == "timeline" and rest.count(":") == 2:
        range_, scope, host = rest.split(":")
        return timeline_of(desk, access, range_, scope, host)
    if kind == "journal":
        return journal_of(desk, access, read_asked(dict(parse_qsl(rest))))
    raise NotFound(f"There is no view {key[:NAME_CHARS_MAX]}.", "Load the page again.")


_PLAIN: Mapping[str, Callable[[Desk, Access], View]] = {
    "now": now_view,
    "fleet": fleet_of,
    "inbox": inbox_of,
}
_NAMED: Mapping[str, Callable[[Desk, Access, str], View]] = {
    "event": event_of,
    "operation": operation_of,
    "host": host_of,
    "vm": vm_of,
    "scope": scope_of,
}
