"""`/v1/webhooks`: where lines of the feed are sent. An admin's alone.

A secret is made here and shown in the answer to the order that made it; the answer that is
remembered under an idempotency key has no secret.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from forewarn.api.operator_routes import CarryOut, Keyed, OperatorRoutes
from forewarn.api.order_bodies import BODY_BYTES_MAX, EmptyRequest, words
from forewarn.api.requests import NAME_CHARS_MAX, NoQuery, read_body, read_query
from forewarn.api.route_table import RouteSpec
from forewarn.control import commands
from forewarn.control.commands import Answer
from forewarn.control.control import Control
from forewarn.control.feed import Feed
from forewarn.core import webhooks
from forewarn.core.access import Right
from forewarn.core.errors import Conflict
from forewarn.core.model import (
    SECOND_MS,
    AnyWebhookOrder,
    FactKind,
    NewSecret,
    NewTerms,
    NewWebhook,
    Removal,
    Replay,
    SwitchOff,
    SwitchOn,
    Webhook,
    WebhookFormat,
    WebhookTerms,
)
from forewarn.core.webhook_targets import URL_CHARS_MAX, read_url, refuse_place, targets_of
from forewarn.core.webhooks import BATCH_MAX, OVERLAP_MS_DEFAULT, OVERLAP_MS_MAX, SCOPES_MAX
from forewarn.wire.cloud_events import read_position
from forewarn.wire.instants import needed_time_text, time_text
from forewarn.wire.operator_answers import (
    AnswerBody,
    WebhookAnswerJson,
    WebhookJson,
    WebhookPage,
    WebhookShown,
)
from forewarn.wire.operator_json import webhook_json
from forewarn.wire.standard_webhooks import SECRET_BYTES, secret_text

if TYPE_CHECKING:
    from forewarn.control.webhook_sender import LastTry, WebhookSender

NEWEST, OLDEST = "end", "oldest"  # as a place: what comes from now on, and all that is there
SHOWN_BEFORE = (
    "This order was carried out before, and the secret was shown then."
    " `forewarn webhook rotate {}` makes another one."
)
_ID_BYTES = 8

Name = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
Url = Annotated[str, Meta(max_length=URL_CHARS_MAX)]
Names = Annotated[list[Name], Meta(max_length=SCOPES_MAX)]
Kinds = Annotated[list[FactKind], Meta(max_length=len(FactKind))]
Batch = Annotated[int, Meta(ge=1, le=BATCH_MAX)]
Overlap = Annotated[int, Meta(ge=0, le=OVERLAP_MS_MAX // SECOND_MS)]


class AddWebhookRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Where lines are sent, and which. Empty `scopes` and `kinds` let every line through.

    `after` is a place in the feed: the id or number of a line, `oldest` or `end`. With `later`
    scopes need not be there yet.
    """

    name: Name
    url: Url
    format: WebhookFormat = WebhookFormat.CLOUDEVENTS
    scopes: Names = []
    kinds: Kinds = []
    batch: Batch = 1
    after: Name = NEWEST
    later: bool = False


class ChangeWebhookRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be otherwise. What is left out stays. `turn` is that of the webhook as you saw it.

    Without one nothing is asked of what others have changed since.
    """

    name: Name | UnsetType = UNSET
    url: Url | UnsetType = UNSET
    format: WebhookFormat | UnsetType = UNSET
    scopes: Names | UnsetType = UNSET
    kinds: Kinds | UnsetType = UNSET
    batch: Batch | UnsetType = UNSET
    later: bool = False
    turn: int | None = None


class RotateWebhookRequest(msgspec.Struct, forbid_unknown_fields=True):
    """For how long the old secret signs beside the new one."""

    overlap_seconds: Overlap = OVERLAP_MS_DEFAULT // SECOND_MS


class ReplayWebhookRequest(msgspec.Struct, forbid_unknown_fields=True):
    """After which line it goes on: its id or number, `oldest` or `end`."""

    after: Name


class WebhookSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What is `listed` as a place to send to, and who sends, if this service does."""

    listed: tuple[str, ...] = ()
    sender: Callable[[], WebhookSender] | None = None


class WebhookRoutes:
    """The functions behind the routes."""

    def __init__(
        self, control: Control, routes: OperatorRoutes, feed: Feed, setup: WebhookSetup
    ) -> None:
        self._control = control
        self._routes = routes
        self._feed = feed
        self._targets = targets_of(setup.listed)
        self._sender = setup.sender

    def table(self) -> list[RouteSpec]:
        """The routes, in the order of the documentation."""
        at, one = "/v1/webhooks", "/v1/webhooks/{name}"
        return [
            _get(at, "list-webhooks", "Webhooks by name.", self.list, WebhookPage),
            self._order(
                at,
                "webhook-add",
                "Send lines of the feed to a place, and show the secret this once.",
                self._add,
                answer=WebhookShown,
                body=AddWebhookRequest,
            ),
            _get(one, "show-webhook", "A webhook, by its name or id.", self.show, WebhookJson),
            self._order(
                f"{one}/change",
                "webhook-change",
                "Have a webhook send elsewhere, or other lines.",
                self._change,
                body=ChangeWebhookRequest,
            ),
            self._order(
                f"{one}/rotate",
                "webhook-rotate",
                "Give a webhook another secret, and show that this once.",
                self._rotate,
                answer=WebhookShown,
                body=RotateWebhookRequest,
            ),
            self._order(
                f"{one}/replay",
                "webhook-replay",
                "Have a webhook go on after another line.",
                self._replay,
                body=ReplayWebhookRequest,
            ),
            *self._plain(f"{one}/enable", "webhook-enable", "Have it send again.", SwitchOn()),
            *self._plain(f"{one}/disable", "webhook-disable", "Have it send nothing.", SwitchOff()),
            *self._plain(f"{one}/remove", "webhook-remove", "Forget a webhook.", Removal()),
            RouteSpec(
                method="POST",
                path=f"{one}/test",
                name="webhook-test",
                summary="Send a marked line at once, and show what comes back.",
                handler=self.test,
                answer=WebhookAnswerJson,
                body=EmptyRequest,
                keyed=False,
                right=Right.ADMINISTER,
            ),
        ]

    def _order(
        self,
        path: str,
        name: str,
        summary: str,
        carry_out: CarryOut,
        *,
        body: type[msgspec.Struct],
        answer: type[msgspec.Struct] = WebhookJson,
    ) -> RouteSpec:
        return RouteSpec(
            method="POST",
            path=path,
            name=name,
            summary=summary,
            handler=self._routes.taking(name, carry_out),
            answer=answer,
            body=body,
            command=commands.OrderWebhook,
            right=Right.ADMINISTER,
        )

    def _plain(
        self, path: str, name: str, summary: str, do: AnyWebhookOrder
    ) -> tuple[RouteSpec, ...]:
        """The route of an order that says nothing beyond its path."""

        async def carry_out(request: Request, body: bytes, keyed: Keyed) -> Answer:
            await asyncio.to_thread(words, body, EmptyRequest)
            return await self._give(_name(request), do, keyed)

        return (self._order(path, name, summary, carry_out, body=EmptyRequest),)

    # Looking.

    async def list(self, request: Request) -> Response:
        read_query(request, NoQuery)
        found = webhooks.in_order(self._control.fleet.webhooks.values())
        return _json(WebhookPage(items=tuple(map(self._shown, found)), more=False))

    async def show(self, request: Request) -> Response:
        read_query(request, NoQuery)
        return _json(self._shown(self._find(request)))

    async def test(self, request: Request) -> Response:
        """Send at once, whatever the webhook waits for, and whether it is enabled or not."""
        read_query(request, NoQuery)
        await asyncio.to_thread(
            words, await read_body(request, bytes_max=BODY_BYTES_MAX), EmptyRequest
        )
        webhook = self._find(request)
        if self._sender is None:
            raise Conflict("This service sends nothing to webhooks.", "A running service does.")
        return _json(_answer_json(await self._sender().test(webhook)))

    def _find(self, request: Request) -> Webhook:
        return webhooks.find(self._control.fleet.webhooks, _name(request))

    def _shown(self, webhook: Webhook) -> WebhookJson:
        now_ms = self._control.clock.now_ms()
        end = self._control.fleet.journal.end
        shown = webhook_json(webhook, end, now_ms)
        if self._sender is None:
            return shown
        standing = self._sender().standing(webhook.webhook_id)
        wait_ms = standing.again_in_ms
        return replace(
            shown,
            next_try=None
            if wait_ms is None
            else time_text(self._sender().clock.now_ms() + wait_ms),
            last=None if standing.last is None else _answer_json(standing.last),
        )

    # Ordering.

    async def _add(self, _: Request, body: bytes, keyed: Keyed) -> Answer:
        said = await asyncio.to_thread(words, body, AddWebhookRequest)
        terms = WebhookTerms(
            name=said.name,
            url=said.url,
            format=said.format,
            scopes=tuple(said.scopes),
            kinds=tuple(said.kinds),
            batch=said.batch,
        )
        refuse_place(read_url(terms.url), self._targets)
        number = None if said.after == NEWEST else self._line(said.after)
        secret = new_secret()
        do = NewWebhook(terms=terms, secret=secret, number=number, later=said.later)
        return _with_secret(await self._give(new_id(), do, keyed), secret)

    async def _change(self, request: Request, body: bytes, keyed: Keyed) -> Answer:
        said = await asyncio.to_thread(words, body, ChangeWebhookRequest)
        webhook = self._find(request)
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name in WebhookTerms.__struct_fields__
            if (value := getattr(said, name)) is not UNSET
        }
        kept = {name: getattr(webhook, name) for name in WebhookTerms.__struct_fields__}
        terms = WebhookTerms(**{**kept, **given})
        refuse_place(read_url(terms.url), self._targets)
        turn = webhook.turn if said.turn is None else said.turn
        do = NewTerms(terms=terms, turn=turn, later=said.later)
        return await self._give(webhook.webhook_id, do, keyed)

    async def _rotate(self, request: Request, body: bytes, keyed: Keyed) -> Answer:
        said = await asyncio.to_thread(words, body, RotateWebhookRequest)
        secret = new_secret()
        do = NewSecret(secret=secret, overlap_ms=said.overlap_seconds * SECOND_MS)
        return _with_secret(await self._give(_name(request), do, keyed), secret)

    async def _replay(self, request: Request, body: bytes, keyed: Keyed) -> Answer:
        said = await asyncio.to_thread(words, body, ReplayWebhookRequest)
        number = self._control.fleet.journal.end
        if said.after != NEWEST:
            number = self._line(said.after)
        return await self._give(_name(request), Replay(number=number), keyed)

    def _line(self, after: str) -> int:
        """The line that a place names. Raises Invalid, or what the feed says of a lost place."""
        return self._feed.begin(None if after == OLDEST else read_position(after))

    async def _give(self, which: str, do: AnyWebhookOrder, keyed: Keyed) -> Answer:
        """Order it of the webhook of that id or name, which is looked for when it is decided."""
        order = commands.OrderWebhook(by=keyed.access.principal, webhook_id=which, do=do)
        return await self._control.submit(keyed.once(order))


def _name(request: Request) -> str:
    return str(request.path_params["name"])


def new_id() -> str:
    """The id of a new webhook."""
    return f"wh-{secrets.token_hex(_ID_BYTES)}"


def new_secret() -> str:
    """A secret that signs: 256 random bits."""
    return secret_text(secrets.token_bytes(SECRET_BYTES))


def _with_secret(answer: Answer, secret: str) -> Answer:
    """The answer with the secret that was just made; without one if it was made before."""
    made = msgspec.json.decode(answer.text, type=WebhookJson)
    shown = WebhookShown(
        **{name: getattr(made, name) for name in made.__struct_fields__},
        secret=None if answer.repeated else secret,
        note=SHOWN_BEFORE.format(made.name) if answer.repeated else "",
    )
    return Answer(text=msgspec.json.encode(shown).decode(), repeated=answer.repeated)


def _answer_json(last: LastTry) -> WebhookAnswerJson:
    answer = last.answer
    return WebhookAnswerJson(
        at=needed_time_text(last.at_ms),
        taken=answer.taken,
        status=answer.status,
        problem=answer.problem,
        took_ms=answer.took_ms,
        address=answer.address,
        said=answer.body.decode("utf-8", "replace"),
    )


def _get(
    path: str, name: str, summary: str, handler: Any, answer: type[msgspec.Struct]
) -> RouteSpec:
    return RouteSpec(
        method="GET",
        path=path,
        name=name,
        summary=summary,
        handler=handler,
        answer=answer,
        right=Right.ADMINISTER,
    )


def _json(content: AnswerBody) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")
