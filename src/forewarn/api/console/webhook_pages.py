"""Webhooks on the pages of the console: a list, a form, and a confirmation for each order.

An order goes the way of the operator API (`orders_through_api`): here are only words. What is
confirmed is refused if the webhook has changed since it was looked at.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from forewarn.api.access import access_of
from forewarn.api.console import orders_through_api
from forewarn.api.console.browser_security import session_of
from forewarn.api.console.order_pages import KEY, SEEN, read_form
from forewarn.api.console.page_context import Desk
from forewarn.api.console.page_routes import PageRoute
from forewarn.control import commands, order_previews
from forewarn.core import webhooks
from forewarn.core.access import Right
from forewarn.core.errors import EffectMoved, Invalid, NotFound, Refusal
from forewarn.core.model import FactKind, SwitchOn, WebhookFormat
from forewarn.wire.problems import status_of

PATH = "/console/webhooks"
_KEY = re.compile(r"[0-9a-f-]{36}")
_ADDED = ("name", "url", "format", "scopes", "kinds", "batch")
FIELD_CHARS_MAX = 2_000


class WebhookVerb(Struct, frozen=True):
    """An order for a webhook, and what it would do in words with {name}, {url} and {after}."""

    order: str  # as in the route table
    button: str
    effect: str
    done: str
    grave: bool = False


VERBS: Mapping[str, WebhookVerb] = {
    "enable": WebhookVerb(
        "webhook-enable",
        "Have it send",
        "{url} is sent every line that follows {after} and is for it, from now on.",
        "Webhook {name} sends.",
    ),
    "disable": WebhookVerb(
        "webhook-disable",
        "Have it send nothing",
        "{url} is sent nothing more until an admin enables the webhook. It has come to {after}.",
        "Webhook {name} sends nothing.",
    ),
    "rotate": WebhookVerb(
        "webhook-rotate",
        "Make another secret",
        "Requests to {url} are signed with a new secret, and for a day with the old one too.",
        "Webhook {name} has another secret.",
    ),
    "replay": WebhookVerb(
        "webhook-replay",
        "Send again",
        "{url} is sent every line again that follows the one below and is for it.",
        "Webhook {name} goes on after another line.",
    ),
    "remove": WebhookVerb(
        "webhook-remove",
        "Remove it",
        "{url} is sent nothing more, and how far it has come ({after}) is forgotten.",
        "Webhook {name} is removed.",
        grave=True,
    ),
}


class WebhookPages:
    """The functions behind the pages. An admin's alone."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> list[PageRoute]:
        one = f"{PATH}/{{name}}/{{verb}}"
        admins = partial(PageRoute, right=Right.ADMINISTER, by_scope=False)
        return [
            admins(PATH, self.list),
            admins(f"{PATH}/add", self.look_at_new),
            admins(f"{PATH}/add", self.add, methods=["POST"]),
            admins(one, self.confirm),
            admins(one, self.order, methods=["POST"]),
        ]

    async def list(self, request: Request) -> Response:
        return await self._listed(request)

    async def _listed(
        self,
        request: Request,
        *,
        fields: Mapping[str, str] | None = None,
        refusal: Refusal | None = None,
    ) -> Response:
        access = access_of(request)
        found = await orders_through_api.give(
            self._desk.specs["list-webhooks"], "", {}, access, key="", effect=""
        )
        return await self._desk.page(
            request,
            "webhooks.html",
            tab="access",
            title="Webhooks",
            status=200 if refusal is None else status_of(refusal),
            webhooks=found["items"],
            formats=[one.value for one in WebhookFormat],
            kinds=[one.value for one in FactKind],
            fields=dict.fromkeys(_ADDED, "") | dict(fields or {}),
            refusal=refusal,
            key=str(uuid.uuid4()),
        )

    # One more.

    async def look_at_new(self, request: Request) -> Response:
        """What the filled form would make, to be confirmed."""
        fields = _fields(dict(request.query_params))
        try:
            body = _body(fields)
        except Refusal as why:
            return await self._listed(request, fields=fields, refusal=why)
        return await self._asked(
            request,
            f"{PATH}/add",
            WebhookVerb("webhook-add", "Make it", _of_new(body), ""),
            title=f"New webhook {body['name']}",
            fields=fields,
            seen="new",
        )

    async def add(self, request: Request) -> Response:
        said = await read_form(request, session_of(request))
        fields = _fields(said)
        try:
            answer = await self._give(request, "webhook-add", "", _body(fields), said, effect="")
        except Refusal as why:
            return await self._listed(request, fields=fields, refusal=why)
        return await self._secret(request, answer)

    # Those that are there.

    async def confirm(self, request: Request) -> Response:
        """What an order would do to a webhook as it is now."""
        return await self._confirmation(request)

    async def _confirmation(self, request: Request, refusal: Refusal | None = None) -> Response:
        name, verb, word = self._meant(request)
        fleet = self._desk.control.fleet
        webhook = webhooks.find(fleet.webhooks, name)
        after = f"{webhook.generation}-{webhook.number}"
        effect = verb.effect.format(name=webhook.name, url=webhook.url, after=after)
        return await self._asked(
            request,
            f"{PATH}/{name}/{word}",
            replace(verb, effect=effect),
            title=f"{verb.button}: webhook {webhook.name}",
            fields={"after": after} if word == "replay" else {},
            seen=self._mark(request, name),
            refusal=refusal,
        )

    async def _asked(
        self,
        request: Request,
        path: str,
        verb: WebhookVerb,
        *,
        title: str,
        fields: Mapping[str, str],
        seen: str,
        refusal: Refusal | None = None,
    ) -> Response:
        return await self._desk.page(
            request,
            "webhook.html",
            tab="access",
            title=title,
            status=200 if refusal is None else status_of(refusal),
            path=path,
            verb=verb,
            fields=fields,
            seen=seen,
            refusal=refusal,
            moved=isinstance(refusal, EffectMoved),
            key=str(uuid.uuid4()),
        )

    async def order(self, request: Request) -> Response:
        """Give the order, once; a test is sent without a confirmation, as it changes nothing."""
        session = session_of(request)
        said = await read_form(request, session)
        if request.path_params["verb"] == "test":
            return await self._test(request)
        name, verb, word = self._meant(request)
        body = {"after": said.get("after", "").strip()} if word == "replay" else {}
        try:
            effect = said.get(SEEN, "")
            if not effect:
                raise Invalid("The form is not whole.", "Load the page again, and send it then.")
            answer = await self._give(request, verb.order, name, body, said, effect=effect)
        except NotFound:
            raise
        except Refusal as why:
            return await self._confirmation(request, why)
        if word == "rotate":
            return await self._secret(request, answer)
        session.note(verb.done.format(name=answer["name"]))
        return RedirectResponse(PATH, 303)

    async def _test(self, request: Request) -> Response:
        name = str(request.path_params["name"])
        spec = self._desk.specs["webhook-test"]
        said = await orders_through_api.give(spec, name, {}, access_of(request), key="", effect="")
        came = f"answered {said['status']}" if said["status"] else said["problem"]
        words = "has taken the test" if said["taken"] else "has not taken the test"
        begins = f": {said['said'][:200]}" if said["said"] else ""
        session_of(request).note(
            f"The receiver of {name} {words} ({came}, {said['took_ms']} ms){begins}"
        )
        return RedirectResponse(PATH, 303)

    async def _secret(self, request: Request, answer: Mapping[str, Any]) -> Response:
        """The secret that was just made: shown once, also if the page is loaded again."""
        page = await self._desk.page(
            request,
            "webhook_secret.html",
            tab="access",
            title=f"The secret of webhook {answer['name']}",
            it=answer,
        )
        page.headers["Cache-Control"] = "no-store"
        return page

    async def _give(
        self,
        request: Request,
        order: str,
        name: str,
        body: Mapping[str, Any],
        said: Mapping[str, str],
        *,
        effect: str,
    ) -> Mapping[str, Any]:
        key = said.get(KEY, "")
        if _KEY.fullmatch(key) is None:
            raise Invalid("The form is not whole.", "Load the page again, and send it from there.")
        spec = self._desk.specs[order]
        return await orders_through_api.give(
            spec, name, body, access_of(request), key=key, effect=effect
        )

    def _meant(self, request: Request) -> tuple[str, WebhookVerb, str]:
        name, word = str(request.path_params["name"]), str(request.path_params["verb"])
        verb = VERBS.get(word)
        if verb is None:
            raise NotFound(f"There is no order {word[:64]}.", "The pages offer those there are.")
        return name, verb, word

    def _mark(self, request: Request, name: str) -> str:
        """The name of the effect, as the transaction will see it."""
        by = access_of(request).principal
        order = commands.OrderWebhook(by=by, webhook_id=name, do=SwitchOn())
        return order_previews.preview(self._desk.control.fleet.look(), order).mark


def _fields(said: Mapping[str, str]) -> dict[str, str]:
    """What the form of a new webhook says. Raises Invalid."""
    found = {name: said.get(name, "").strip() for name in _ADDED}
    for text in found.values():
        if len(text) > FIELD_CHARS_MAX or not text.isprintable():
            raise Invalid(
                "A field is too long, or has characters that cannot be shown.",
                f"Up to {FIELD_CHARS_MAX} printable characters are accepted.",
            )
    return {name: text for name, text in found.items() if text}


def _body(fields: Mapping[str, str]) -> dict[str, Any]:
    """The same as the operator API takes it. Raises Invalid."""
    if not fields.get("name") or not fields.get("url"):
        raise Invalid("A name or the URL is missing.", "Fill in both.")
    batch = fields.get("batch", "1")
    if not (batch.isascii() and batch.isdecimal() and 1 <= len(batch) <= 3):
        raise Invalid(f"{batch[:20]!r} is no number of lines.", "1 to 100 is accepted.")
    return {
        "name": fields["name"],
        "url": fields["url"],
        "format": fields.get("format", WebhookFormat.CLOUDEVENTS.value),
        "scopes": _names(fields.get("scopes", "")),
        "kinds": _names(fields.get("kinds", "")),
        "batch": int(batch),
    }


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _of_new(body: Mapping[str, Any]) -> str:
    """What a new webhook would do, in words."""
    of = f" of {', '.join(body['scopes'])}" if body["scopes"] else ""
    kinds = f" of the kinds {', '.join(body['kinds'])}" if body["kinds"] else ""
    which = f"lines{of}{kinds}" if of or kinds else "every line of the journal"
    return f"{body['url']} is sent {which} as {body['format']}, from now on."
