"""The pages that show something. Nothing here changes anything."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse

from forewarn.api.access import access_of
from forewarn.api.console import blocks
from forewarn.api.console.blocks import View
from forewarn.api.console.browser_security import session_of
from forewarn.api.console.journal_reading import JournalAsked, read_asked, told
from forewarn.api.console.live_updates import Hub
from forewarn.api.console.page_context import Desk
from forewarn.api.console.page_routes import PageRoute
from forewarn.api.console.view_models import event as event_view
from forewarn.api.console.view_models import host_vm_scope_operation
from forewarn.api.console.view_models.fleet import LISTENING, host_list, scope_list
from forewarn.api.console.view_models.timeline import RANGES
from forewarn.api.console.view_models.values import ID_CHARS_SHOWN
from forewarn.api.requests import NAME_CHARS_MAX
from forewarn.control.fleet_summary import HostCondition
from forewarn.core.access import RIGHTS, Right, Role
from forewarn.core.errors import Invalid
from forewarn.core.model import DAY_MS, Cause, EventType, FactKind
from forewarn.core.tokens import in_order
from forewarn.ports import JournalLine
from forewarn.wire.operator_json import fact_json

EXPORT_LINES_MAX = 100_000
EXPORT_PAGE = 500
EXPORTS = {"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
CSV_COLUMNS = ("number", "at", "kind", "scope", "event_id", "operation_id", "host", "vm", "by")
# What a table program would take for a formula.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


class Looking:
    """The functions behind the pages."""

    def __init__(self, desk: Desk, hub: Hub) -> None:
        self._desk = desk
        self._hub = hub

    def routes(self) -> list[PageRoute]:
        return [
            PageRoute("/console", self.front, by_scope=True),
            PageRoute("/console/", self.now, by_scope=True),
            PageRoute("/console/fleet", self.fleet, by_scope=True),
            PageRoute("/console/fleet/names", self.names, by_scope=False),
            PageRoute("/console/hosts", self.hosts, by_scope=False),
            PageRoute("/console/hosts/{name}", self.host, by_scope=False),
            PageRoute("/console/scopes", self.scopes, by_scope=True),
            PageRoute("/console/scopes/{name}", self.scope, by_scope=True),
            PageRoute("/console/vms/{name}", self.vm, by_scope=True),
            PageRoute("/console/timeline", self.timeline, by_scope=True),
            PageRoute("/console/events/{id}", self.event, by_scope=True),
            PageRoute("/console/events/{id}/receipt", self.receipt, by_scope=True),
            PageRoute("/console/operations/{id}", self.operation, by_scope=True),
            PageRoute("/console/inbox", self.inbox, by_scope=True),
            PageRoute("/console/journal", self.journal, by_scope=True),
            PageRoute("/console/journal/export", self.export, by_scope=True),
            PageRoute("/console/journal/{number:int}", self.line, by_scope=True),
            PageRoute("/console/access", self.access, by_scope=True),
        ]

    async def _live(
        self, request: Request, view: View, template: str, *, tab: str, title: str, **values: Any
    ) -> Response:
        """A page that follows what it shows."""
        feed = await self._hub.show(view, access_of(request))
        texts, after = self._hub.texts(feed), str(self._hub.position)
        return await self._desk.page(
            request,
            template,
            tab=tab,
            title=title,
            stream=view.key,
            after=after,
            drawn=texts,
            values={name: one.value for name, one in feed.drawn.items()},
            **values,
        )

    async def front(self, request: Request) -> Response:
        return RedirectResponse(f"{request.scope.get('root_path', '')}/console/", 308)

    async def now(self, request: Request) -> Response:
        _asked(request)
        view = blocks.now_view(self._desk, access_of(request))
        return await self._live(request, view, "now.html", tab="now", title="Now")

    async def fleet(self, request: Request) -> Response:
        asked = _asked(request, "show", "find", "after")
        access = access_of(request)
        show = asked.get("show", "all")
        if show not in LISTENING:
            raise Invalid(f"There is no list {show}.", f"Accepted: {', '.join(LISTENING)}.")
        listed = scope_list(
            self._desk.control.fleet,
            self._desk.summary,
            self._desk.offers(access),
            which=show,
            after=asked.get("after", ""),
            find=asked.get("find", ""),
        )
        view = blocks.fleet_of(self._desk, access)
        return await self._live(
            request,
            view,
            "fleet.html",
            tab="fleet",
            title="Fleet",
            listed=listed,
            show=show,
            find=asked.get("find", ""),
        )

    async def names(self, _: Request) -> Response:
        """The names of all hosts in the places of their cells, for the script."""
        return JSONResponse({"names": self._desk.summary.host_names})

    async def hosts(self, request: Request) -> Response:
        asked = _asked(request, "is", "find", "after")
        word = asked.get("is", "")
        conditions = [one.value for one in HostCondition]
        if word and word not in conditions:
            raise Invalid(f"No host is {word}.", f"Accepted: {', '.join(conditions)}.")
        found = host_list(
            self._desk.control.fleet.look(),
            self._desk.summary,
            condition=HostCondition(word) if word else None,
            after=asked.get("after", ""),
            find=asked.get("find", ""),
        )
        return await self._desk.page(
            request,
            "hosts.html",
            tab="fleet",
            title="Hosts",
            found=found,
            word=word,
            conditions=conditions,
            find=asked.get("find", ""),
        )

    async def scopes(self, _: Request) -> Response:
        return RedirectResponse("/console/fleet#listening", 303)

    async def _single(self, request: Request, view: View, tab: str, title: str) -> Response:
        return await self._live(request, view, "thing.html", tab=tab, title=title)

    async def host(self, request: Request) -> Response:
        name = _name(request)
        view = blocks.host_of(self._desk, access_of(request), name)
        return await self._single(request, view, "fleet", f"Host {name}")

    async def scope(self, request: Request) -> Response:
        name = _name(request)
        view = blocks.scope_of(self._desk, access_of(request), name)
        return await self._single(request, view, "fleet", f"Scope {name}")

    async def vm(self, request: Request) -> Response:
        name = _name(request)
        view = blocks.vm_of(self._desk, access_of(request), name)
        return await self._single(request, view, "fleet", f"VM {name}")

    async def event(self, request: Request) -> Response:
        access, given = access_of(request), _id(request)
        # By its whole id from here on: what begins alike may become two.
        read = await self._desk.control.read(
            lambda store: blocks.find_seen(store, access, event_view.read_event, given)
        )
        view = blocks.event_of(self._desk, access, read.event.event_id)
        title = f"Event {read.event.event_id[:ID_CHARS_SHOWN]}"
        return await self._single(request, view, "now", title)

    async def receipt(self, request: Request) -> Response:
        """The receipt alone, for a customer: nothing of other scopes or of the console is on it."""
        access, given = access_of(request), _id(request)
        read = await self._desk.control.read(
            lambda store: blocks.find_seen(store, access, event_view.read_event, given)
        )
        look = self._desk.control.fleet.look()
        page = event_view.event_page(look, read, self._desk.offers(access))
        return await self._desk.page(
            request, "receipt.html", tab="now", title=f"Receipt {page.ref.label}", it=page
        )

    async def operation(self, request: Request) -> Response:
        access, given = access_of(request), _id(request)
        read = await self._desk.control.read(
            lambda store: blocks.find_seen(
                store, access, host_vm_scope_operation.read_operation, given
            )
        )
        view = blocks.operation_of(self._desk, access, read.operation.operation_id)
        title = f"Operation {read.operation.operation_id[:ID_CHARS_SHOWN]}"
        return await self._single(request, view, "now", title)

    async def inbox(self, request: Request) -> Response:
        view = blocks.inbox_of(self._desk, access_of(request))
        return await self._live(request, view, "inbox.html", tab="inbox", title="Inbox")

    async def timeline(self, request: Request) -> Response:
        asked = _asked(request, "range", "scope", "host")
        range_ = asked.get("range", "6h")
        scope, host = asked.get("scope", ""), asked.get("host", "")
        view = blocks.timeline_of(self._desk, access_of(request), range_, scope, host)
        return await self._live(
            request,
            view,
            "timeline.html",
            tab="timeline",
            title="Timeline",
            range=range_,
            ranges=tuple(RANGES),
            scope=scope,
            host=host,
        )

    # The journal.

    async def journal(self, request: Request) -> Response:
        return await self._journal(request, read_asked(_asked(request, *ASKED)))

    async def line(self, request: Request) -> Response:
        """A line by its number, with those around it."""
        number = int(request.path_params["number"])
        around = JournalAsked().count // 2
        asked = read_asked({"below": str(number + around), "line": str(number)})
        return await self._journal(request, asked)

    async def _journal(self, request: Request, asked: JournalAsked) -> Response:
        view = blocks.journal_of(self._desk, access_of(request), asked)
        feed = await self._hub.show(view, access_of(request))
        follows = asked.below is None and not asked.until
        return await self._desk.page(
            request,
            "journal.html",
            tab="journal",
            title="Journal" if asked.line is None else f"Journal, line {asked.line}",
            stream=view.key if follows else "",
            after=str(self._hub.position),
            drawn=self._hub.texts(feed),
            asked=asked,
            follows=follows,
            kinds=[kind.value for kind in FactKind],
            types=[kind.value for kind in EventType],
            causes=[cause.value for cause in Cause],
            exports=tuple(EXPORTS),
        )

    async def export(self, request: Request) -> Response:
        """Lines as a file, oldest first; the filter is that of the page."""
        given = _asked(request, *ASKED, "format")
        form = given.pop("format", "ndjson")
        if form not in EXPORTS:
            raise Invalid(f"There is no form {form}.", f"Accepted: {', '.join(EXPORTS)}.")
        asked = read_asked(given)
        access = access_of(request)
        headers = {"Content-Disposition": f'attachment; filename="journal.{form}"'}
        lines = self._lines(asked, None if access.all_scopes else access.scopes)
        text = _csv(lines) if form == "csv" else _ndjson(lines)
        return StreamingResponse(text, media_type=EXPORTS[form], headers=headers)

    async def _lines(
        self, asked: JournalAsked, scopes: Sequence[str] | None
    ) -> AsyncIterator[Sequence[JournalLine]]:
        where, after, left = asked.where(self._desk.now_ms()), 0, EXPORT_LINES_MAX
        while left > 0:
            from_line = after
            page = await self._desk.control.read(
                lambda store: store.journal(where, after=from_line, limit=EXPORT_PAGE)  # noqa: B023
            )
            if not page:
                return
            after, left = page[-1].number, left - len(page)
            if scopes is None:
                yield page
            else:
                yield [told(one, scopes) for one in page if one.fact.scope in scopes]

    # Who is here.

    def _tokens(self) -> list[dict[str, object]]:
        """Every token, without its secret: nothing here has it."""
        now_ms = self._desk.now_ms()
        return [
            {
                **{name: said for name, said in asdict(one).items() if name != "secret_hash"},
                "valid": one.ended_ms(now_ms) is None,
                "soon": one.expires_ms - now_ms < SOON_MS,
            }
            for one in in_order(self._desk.control.fleet.tokens.values())
        ]

    async def access(self, request: Request) -> Response:
        access, own = access_of(request), session_of(request)
        administers = access.role is Role.ADMIN
        sessions = [
            one
            for one in self._desk.setup.sessions.all()
            if administers or one.access.principal.id == access.principal.id
        ]
        return await self._desk.page(
            request,
            "access.html",
            tab="access",
            title="Access",
            administers=administers,
            rights=[right.value for right in Right if right in RIGHTS[access.role]],
            tokens=self._tokens() if administers else [],
            sessions=[
                {
                    "number": one.number,
                    "who": one.access,
                    "way": one.way,
                    "idle_ms": round(self._desk.setup.sessions.idle_s(one) * 1_000),
                    "age_ms": round(self._desk.setup.sessions.age_s(one) * 1_000),
                    "own": one is own,
                }
                for one in sessions
            ],
        )


SOON_MS = 14 * DAY_MS  # a token that ends so soon is to be rotated

ASKED = tuple(JournalAsked.__struct_fields__)


def _asked(request: Request, *names: str) -> dict[str, str]:
    """The query: each of these at most once, and no other. Raises Invalid."""
    pairs = request.query_params.multi_items()
    given = dict(pairs)
    if len(given) != len(pairs) or any(name not in names for name in given):
        raise Invalid(
            "The address of this page has parts that are not understood.",
            f"Accepted: {', '.join(names)}, each once." if names else "There are none here.",
        )
    if any(len(value) > NAME_CHARS_MAX for value in given.values()):
        raise Invalid("The address of this page is too long.", f"{NAME_CHARS_MAX} characters each.")
    return {name: value.strip() for name, value in given.items() if value.strip()}


def _name(request: Request) -> str:
    return str(request.path_params["name"])


def _id(request: Request) -> str:
    return str(request.path_params["id"])


async def _ndjson(pages: AsyncIterator[Sequence[JournalLine]]) -> AsyncIterator[bytes]:
    async for page in pages:
        facts = (msgspec.json.encode(fact_json(one.fact, one.number)) for one in page)
        yield b"".join(fact + b"\n" for fact in facts)


async def _csv(pages: AsyncIterator[Sequence[JournalLine]]) -> AsyncIterator[bytes]:
    yield (",".join((*CSV_COLUMNS, "detail")) + "\r\n").encode()
    async for page in pages:
        text = io.StringIO()
        writer = csv.writer(text)
        for one in page:
            fact = fact_json(one.fact, one.number)
            cells = [getattr(fact, name) for name in CSV_COLUMNS]
            writer.writerow([*map(_cell, cells), _cell(msgspec.json.encode(fact.detail).decode())])
        yield text.getvalue().encode()


def _cell(value: object) -> str:
    """A cell that no table program takes for a formula."""
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULAS) else text
