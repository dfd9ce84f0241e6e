"""The functions that answer the operator API. Which route leads where is `route_table`."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from forewarn.api import order_bodies
from forewarn.api.access import access_of, need_still
from forewarn.api.doorbell import Doorbell
from forewarn.api.memory_budget import MIB, MemoryBudget, declared_bytes
from forewarn.api.peer_credentials import PEER_KEY
from forewarn.api.requests import (
    BODY_TIMEOUT_S,
    EventsQuery,
    JournalQuery,
    NamesQuery,
    NoQuery,
    OperationsQuery,
    VmsQuery,
    list_filter,
    read_body,
    read_query,
)
from forewarn.control import commands, idempotency, operator_overview, owner_overview
from forewarn.control.commands import Answer
from forewarn.control.control import Control
from forewarn.control.inventory.apply_runner import Inventories
from forewarn.control.inventory.file_reader import INVENTORY_BYTES_MAX
from forewarn.control.metrics import ControlMetrics
from forewarn.core.access import Access
from forewarn.core.errors import Conflict, Refusal, SocketOnly, Unavailable
from forewarn.core.principal import Principal
from forewarn.doorbell import rung
from forewarn.logs import Log
from forewarn.metrics import CONTENT_TYPE
from forewarn.ports import BACKUP_SCRATCH_PREFIX, ListFilter, Store
from forewarn.wire.instants import needed_time_text
from forewarn.wire.operator_answers import AnswerBody, HealthJson, JournalPage

# Of all that is being carried out at once: one inventory of any size, and others beside it.
ORDERS_BYTES_MAX = INVENTORY_BYTES_MAX + 32 * MIB
INVENTORY_TIMEOUT_S = 120.0  # until it has arrived
FOLLOWERS_MAX = 64  # more of them are answered at once, without waiting
LOOK_EVERY_S = 1.0  # a follower that missed a ring looks again by itself
BACKUP_CHUNK_BYTES = 1_024 * 1_024

# In the scope of a request whose sender has seen what it will do: the mark of that
# (`order_previews`).
EFFECT_KEY = "forewarn.effect"

log = Log(__name__)

Handler = Callable[[Request], Awaitable[Response]]
# What a request means: the order that its principal gives by it.
MakeOrder = Callable[[Principal, Request, bytes], commands.Order]


class Keyed(Struct, frozen=True):
    """What tells a request from others: its idempotency key, what it says, and who asks."""

    key: str | None
    fingerprint: str
    access: Access
    effect: str = ""  # what its author was shown, if anything was (`order_previews`)

    def once(self, order: commands.Order | commands.InventoryOrder) -> commands.Once:
        """The order, carried out at most once."""
        return commands.Once(
            by=order.by,
            order=order,
            access=self.access,
            key=self.key,
            fingerprint=self.fingerprint,
            effect=self.effect,
        )


CarryOut = Callable[[Request, bytes, Keyed], Awaitable[Answer]]


class OperatorRoutes:
    """The functions behind the routes, and what they share."""

    def __init__(
        self,
        control: Control,
        *,
        measures: ControlMetrics,
        doorbell: Doorbell,
        scratch: Path | None,
        version: str,
        inventories: Inventories | None = None,
        kept_files: Callable[[], Mapping[str, bytes]] | None = None,
    ) -> None:
        """`kept_files` are secrets that a backup holds too."""
        self._kept_files = kept_files
        self._inventories = inventories or Inventories(control)
        self._control = control
        self._measures = measures
        self._doorbell = doorbell
        self._scratch = scratch
        self._version = version
        self._followers = 0
        self._room = MemoryBudget(ORDERS_BYTES_MAX, ORDERS_BYTES_MAX)
        self._copying = False  # one at a time: each takes the size of the database
        self._document = b""

    def describe(self, document: bytes) -> None:
        """What /v1/openapi.json answers; made from the table, so it comes after it."""
        self._document = document

    def carrying_out(self, name: str, make: MakeOrder) -> Handler:
        """The function behind a route that takes an order. `name` is what it is counted under."""

        async def carry_out(request: Request, body: bytes, keyed: Keyed) -> Answer:
            by = keyed.access.principal
            order = await asyncio.to_thread(make, by, request, body)
            return await self._control.submit(keyed.once(order))

        return self.taking(name, carry_out)

    def applying_inventories(self, name: str) -> Handler:
        """The function behind the route that takes an inventory."""

        async def carry_out(_: Request, body: bytes, keyed: Keyed) -> Answer:
            by = keyed.access.principal
            text = await asyncio.to_thread(order_bodies.inventory_text, body)
            answer, waiting = await self._inventories.apply(
                text,
                by=by,
                guard=keyed.once,
                before=commands.FindAnswer(by=by, key=keyed.key, fingerprint=keyed.fingerprint),
            )
            if answer.repeated and await self._inventories.was_replaced(text):
                return order_bodies.with_replaced(answer)
            return order_bodies.with_waiting(answer, waiting) if waiting else answer

        return self.taking(name, carry_out, bytes_max=INVENTORY_BYTES_MAX)

    def taking(
        self, name: str, carry_out: CarryOut, *, bytes_max: int = order_bodies.BODY_BYTES_MAX
    ) -> Handler:
        """The function behind a route that `carry_out` carries out, with a key or without."""
        self._measures.expect_order(name)

        async def handler(request: Request) -> Response:
            try:
                answer = await self._carry_out(request, carry_out, bytes_max=bytes_max)
            except (Refusal, HTTPException):
                self._measures.order(name, "refused")
                raise
            except Exception:
                self._measures.order(name, "failed")
                raise
            self._measures.order(name, "repeated" if answer.repeated else "accepted")
            headers = {"Idempotency-Replayed": "true"} if answer.repeated else {}
            return Response(answer.text, media_type="application/json", headers=headers)

        return handler

    async def _carry_out(self, request: Request, carry_out: CarryOut, *, bytes_max: int) -> Answer:
        read_query(request, NoQuery)
        key = idempotency.key_of(request.headers.getlist("idempotency-key"))
        size = declared_bytes(request, bytes_max=bytes_max)
        with self._room.taking("the operator", size):
            long = bytes_max > order_bodies.BODY_BYTES_MAX
            timeout_s = INVENTORY_TIMEOUT_S if long else BODY_TIMEOUT_S
            body = await read_body(request, bytes_max=bytes_max, timeout_s=timeout_s)
            access = access_of(request)
            asked = (request.method, request.url.path, body)
            by = access.principal.id
            if long:
                mark = await asyncio.to_thread(idempotency.fingerprint, *asked, by=by)
            else:
                mark = idempotency.fingerprint(*asked, by=by)
            effect = str(request.scope.get(EFFECT_KEY, ""))
            return await carry_out(request, body, Keyed(key, mark, access, effect))

    # The functions.

    async def list_vms(self, request: Request) -> Response:
        asked = read_query(request, VmsQuery)
        access, fleet = access_of(request), self._control.fleet
        after, limit, scope, host = asked.after, asked.limit, asked.scope, asked.host
        if access.all_scopes:
            found = operator_overview.list_vms(
                fleet, after=after, limit=limit, scope=scope, host=host
            )
        else:
            found = owner_overview.list_vms(
                fleet, access, after=after, limit=limit, scope=scope, host=host
            )
        return _json(found)

    async def show_vm(self, request: Request) -> Response:
        read_query(request, NoQuery)
        access, fleet, name = access_of(request), self._control.fleet, _name(request)
        if access.all_scopes:
            return _json(operator_overview.show_vm(fleet, name))
        return _json(owner_overview.show_vm(fleet, access, name))

    async def list_hosts(self, request: Request) -> Response:
        asked = read_query(request, NamesQuery)
        access, fleet = access_of(request), self._control.fleet
        if access.all_scopes:
            return _json(operator_overview.list_hosts(fleet, after=asked.after, limit=asked.limit))
        return _json(owner_overview.list_hosts(fleet, access, after=asked.after, limit=asked.limit))

    async def show_host(self, request: Request) -> Response:
        read_query(request, NoQuery)
        access, fleet, name = access_of(request), self._control.fleet, _name(request)
        if access.all_scopes:
            return _json(operator_overview.show_host(fleet.look(), name))
        return _json(owner_overview.show_host(fleet, access, name))

    async def list_scopes(self, request: Request) -> Response:
        asked = read_query(request, NamesQuery)
        access, fleet = access_of(request), self._control.fleet
        if access.all_scopes:
            return _json(operator_overview.list_scopes(fleet, after=asked.after, limit=asked.limit))
        return _json(
            owner_overview.list_scopes(fleet, access, after=asked.after, limit=asked.limit)
        )

    async def show_scope(self, request: Request) -> Response:
        read_query(request, NoQuery)
        access, fleet, name = access_of(request), self._control.fleet, _name(request)
        if access.all_scopes:
            return _json(operator_overview.show_scope(fleet, name))
        return _json(owner_overview.show_scope(fleet, access, name))

    async def list_events(self, request: Request) -> Response:
        asked, access = read_query(request, EventsQuery), access_of(request)
        where = list_filter(asked, self._control.clock.now_ms())
        if not access.all_scopes:
            where = owner_overview.narrowed(access, where)
        return await self._read(
            lambda store: replace(
                operator_overview.list_events(
                    store, where, ended=asked.all, after=asked.after, limit=asked.limit
                ),
                filtered=not access.all_scopes,
            )
        )

    async def show_event(self, request: Request) -> Response:
        read_query(request, NoQuery)
        access, given = access_of(request), _id(request)
        now_ms = self._control.clock.now_ms()
        if access.all_scopes:
            return await self._read(
                lambda store: operator_overview.show_event(store, given, now_ms)
            )
        return await self._read(
            lambda store: owner_overview.show_event(store, access, given, now_ms)
        )

    async def explain_event(self, request: Request) -> Response:
        read_query(request, NoQuery)
        access, given, control = access_of(request), _id(request), self._control
        if access.all_scopes:
            event = await control.read(lambda store: operator_overview.find_event(store, given))
            return _json(operator_overview.explain_event(control.fleet.look(), event))
        event = await control.read(lambda store: owner_overview.find_event(store, access, given))
        return _json(owner_overview.explain_event(control.fleet.look(), access, event))

    async def list_operations(self, request: Request) -> Response:
        asked, access = read_query(request, OperationsQuery), access_of(request)
        where = list_filter(asked, self._control.clock.now_ms())
        ended, after, limit = asked.all, asked.after, asked.limit
        if access.all_scopes:
            return await self._read(
                lambda store: operator_overview.list_operations(
                    store, where, ended=ended, after=after, limit=limit
                )
            )
        return await self._read(
            lambda store: owner_overview.list_operations(
                store, access, where, ended=ended, after=after, limit=limit
            )
        )

    async def show_operation(self, request: Request) -> Response:
        read_query(request, NoQuery)
        access, given = access_of(request), _id(request)
        if access.all_scopes:
            return await self._read(lambda store: operator_overview.show_operation(store, given))
        return await self._read(lambda store: owner_overview.show_operation(store, access, given))

    async def explain_operation(self, request: Request) -> Response:
        read_query(request, NoQuery)
        access, given, control = access_of(request), _id(request), self._control
        if access.all_scopes:
            found = await control.read(lambda store: operator_overview.find_operation(store, given))
            return _json(operator_overview.explain_operation(control.fleet.look(), found))
        found = await control.read(
            lambda store: owner_overview.find_operation(store, access, given)
        )
        return _json(owner_overview.explain_operation(control.fleet.look(), access, found))

    async def journal(self, request: Request) -> Response:
        """Lines now, or with `wait` as soon as there is one."""
        asked, access = read_query(request, JournalQuery), access_of(request)
        where = list_filter(asked, self._control.clock.now_ms())
        patient = asked.wait > 0 and self._followers < FOLLOWERS_MAX
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + (asked.wait if patient else 0)
        self._followers += 1
        try:
            while True:
                need_still(request)
                ring = self._doorbell.next_ring()
                found = await self._control.read(lambda store: _lines(store, access, where, asked))
                left_s = give_up_s - loop.time()
                if found.items or left_s <= 0 or self._doorbell.closed:
                    return _json(found)
                await rung(ring, min(left_s, LOOK_EVERY_S))
        finally:
            self._followers -= 1

    async def backup(self, request: Request) -> Response:
        """Copy everything to a file of our own, forget its name, and send it.

        The operator never names a file on this machine: there is none to overwrite. What holds
        the keys of the service is given by its socket only.
        """
        read_query(request, NoQuery)
        if self._kept_files is not None and PEER_KEY not in request.scope:
            raise SocketOnly(
                "A backup holds the keys of this service, and is not given over TCP.",
                "Say `forewarn backup FILE` on the machine of the service, without FOREWARN_URL.",
            )
        if self._copying:
            raise Conflict("A backup is being made already.", "Ask again when it is done.")
        self._copying = True
        try:
            copy = await self._control.read(self._copy)
        finally:
            self._copying = False
        size = copy.seek(0, 2)
        copy.seek(0)
        return _FileResponse(
            copy,
            media_type="application/vnd.sqlite3",
            headers={"Content-Length": str(size)},
            sent=lambda: self._note_backup(size, access_of(request).principal),
        )

    async def _note_backup(self, size: int, by: Principal) -> None:
        try:
            await self._control.submit(commands.NoteBackup(by=by, size=size))
        except Unavailable as why:
            log.warning("backup_not_noted", why=str(why))

    def _copy(self, store: Store) -> BinaryIO:
        with tempfile.TemporaryDirectory(prefix=BACKUP_SCRATCH_PREFIX, dir=self._scratch) as folder:
            target = Path(folder) / "backup.db"
            store.backup(target, files=self._kept_files or dict)
            return target.open("rb")  # outlives its name: nothing is left behind

    async def health(self, request: Request) -> Response:
        """Answered through the writer: it says ok only if an order would get through."""
        read_query(request, NoQuery)
        access = access_of(request)
        now_ms = await self._control.submit(commands.TellTime(by=access.principal))
        fleet = self._control.fleet
        hosts = list(fleet.hosts())
        shown = HealthJson(
            status="ok",
            version=self._version,
            now=needed_time_text(now_ms),
            vms=len(fleet.scope_of_vm),
            hosts=len(hosts),
            hosts_silent=tuple(sorted(h.name for h in hosts if not fleet.alive(h.name))),
            open_events=len(fleet.open_event_ids()),
            open_operations=len(fleet.operations),
            inventory_waits=self._inventories.waits(),
        )
        return _json(shown if access.all_scopes else owner_overview.health(fleet, access, shown))

    async def openapi(self, request: Request) -> Response:
        read_query(request, NoQuery)
        return Response(self._document, media_type="application/json")

    async def metrics(self, _: Request) -> Response:
        return Response(self._measures.exposition(), headers={"Content-Type": CONTENT_TYPE})

    async def _read(self, query: Callable[[Store], AnswerBody]) -> Response:
        return _json(await self._control.read(query))


class _FileResponse(StreamingResponse):
    """Sends an open file and closes it, also when the caller goes away half way.

    `sent` is awaited before the last of it is sent: who has the file can read of it at once.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        media_type: str,
        headers: Mapping[str, str],
        sent: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(_chunks(file, sent), media_type=media_type, headers=headers)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()


def _json(content: AnswerBody) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")


def _lines(store: Store, access: Access, where: ListFilter, asked: JournalQuery) -> JournalPage:
    after, limit, event = asked.after, asked.limit, asked.event
    if access.all_scopes:
        return operator_overview.list_journal(store, where, after=after, limit=limit, event=event)
    return owner_overview.list_journal(store, access, where, after=after, limit=limit, event=event)


def _name(request: Request) -> str:
    return str(request.path_params["name"])


def _id(request: Request) -> str:
    return str(request.path_params["id"])


async def _chunks(file: BinaryIO, sent: Callable[[], Awaitable[None]]) -> AsyncIterator[bytes]:
    chunk = await asyncio.to_thread(file.read, BACKUP_CHUNK_BYTES)
    while chunk:
        following = await asyncio.to_thread(file.read, BACKUP_CHUNK_BYTES)
        if not following:
            await sent()
        yield chunk
        chunk = following
