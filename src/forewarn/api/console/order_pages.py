"""Giving orders on pages: a form, what the order would do, a confirmation that says it again.

Only a POST gives an order. It carries the secret of the session's forms, a key under which it is
carried out once, and the mark of the effect that was shown: if the order would do something else
by then, it is refused, and the page shows what it would do now.
"""

from __future__ import annotations

import hmac
import re
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from forewarn.api.access import access_of
from forewarn.api.console import orders_through_api
from forewarn.api.console.browser_security import session_of
from forewarn.api.console.forms import FORMS, FormField, OrderForm
from forewarn.api.console.page_context import Desk, scope_of_vm
from forewarn.api.console.page_routes import PageRoute
from forewarn.api.console.rendering import url_of
from forewarn.api.console.sessions import ConsoleSession
from forewarn.api.console.view_models.values import HoldRow, Ref, hold_row
from forewarn.api.requests import NAME_CHARS_MAX, read_body
from forewarn.api.route_table import RouteSpec
from forewarn.control import order_previews
from forewarn.control.order_previews import Preview
from forewarn.core import owner_explain
from forewarn.core.access import Access, not_yours
from forewarn.core.errors import EffectMoved, Forbidden, Invalid, NotFound, Refusal
from forewarn.wire.problems import status_of

FORM_BYTES_MAX = 16 * 1_024
FIELDS_MAX = 40
# Hidden in each form that gives an order.
SECRET, KEY, SEEN = "form_secret", "key", "seen"
LOOKED = "look"  # the form was sent: show what the order would do
_KEY = re.compile(r"[0-9a-f-]{36}")


class FormRefused(Forbidden):
    """A form without the secret that each form of this session has."""


class Ordering:
    """The functions behind forms and confirmations."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> list[PageRoute]:
        path = "/console/orders/{order}/{target}"
        return [
            PageRoute(path, self.look, by_scope=True),
            PageRoute(path, self.give, by_scope=True, methods=["POST"]),
        ]

    async def look(self, request: Request) -> Response:
        """The form, and once it is filled in, what the order would do."""
        form, spec, target = self._meant(request)
        fields = _known(form, dict(request.query_params.multi_items()))
        asks = any(not field.late for field in form.fields)
        if asks and LOOKED not in request.query_params:
            return await self._shown(request, form, target, fields, preview=None)
        return await self._previewed(request, form, spec, target, fields)

    async def _previewed(
        self,
        request: Request,
        form: OrderForm,
        spec: RouteSpec,
        target: str,
        fields: Mapping[str, str],
        *,
        refusal: Refusal | None = None,
    ) -> Response:
        """What the order would do now; `refusal` is why the last attempt was refused."""
        preview = None
        try:
            access = access_of(request)
            order = orders_through_api.order_of(spec, target, form.body(fields), access)
            preview = order_previews.preview(
                self._desk.control.fleet.look(),
                order,
                own=None if access.all_scopes else access.scopes,
            )
        except Refusal as why:
            refusal = refusal or why
        return await self._shown(request, form, target, fields, preview=preview, refusal=refusal)

    async def _shown(
        self,
        request: Request,
        form: OrderForm,
        target: str,
        fields: Mapping[str, str],
        *,
        preview: Preview | None,
        refusal: Refusal | None = None,
    ) -> Response:
        return await self._desk.page(
            request,
            "order.html",
            tab="",
            title=form.named(_shown_target(form, target)),
            status=200 if refusal is None else status_of(refusal),
            form=form,
            target=target,
            back=Ref(form.kind, target),
            asked=[field for field in form.fields if not field.late],
            late=[field for field in form.fields if field.late],
            fields=fields,
            preview=preview,
            holds=self._holds(preview, access_of(request)),
            told=_told(preview),
            refusal=refusal,
            moved=isinstance(refusal, EffectMoved),
            key=str(uuid.uuid4()),
        )

    def _holds(self, preview: Preview | None, access: Access) -> list[HoldRow]:
        """What would keep the order from starting, as this person is told it."""
        if preview is None:
            return []
        if access.all_scopes:
            return [hold_row(hold) for hold in preview.holds]
        alone = len(preview.events) == 1 and not self._has_operation(preview)
        return [hold_row(owner_explain.hold(one, own=alone)) for one in preview.holds]

    def _has_operation(self, preview: Preview) -> bool:
        found = self._desk.control.fleet.open_event(preview.events[0].event_id)
        return found is not None and found[1].operation_id is not None

    async def give(self, request: Request) -> Response:
        """Give the order, once."""
        form, spec, target = self._meant(request)
        session = session_of(request)
        said = await read_form(request, session)
        fields = _known(form, said)
        key = said.get(KEY, "")
        if _KEY.fullmatch(key) is None or not said.get(SEEN):
            raise Invalid("The form is incomplete.", "Load the page again, and send it from there.")
        try:
            missing = [
                field.label
                for field in form.fields
                if field.needed_by(access_of(request)) and not fields.get(field.name)
            ]
            if missing:
                raise Invalid(f"Something is missing: {missing[0]}.", "Fill it in.")
            answer = await orders_through_api.give(
                spec, target, form.body(fields), access_of(request), key=key, effect=said[SEEN]
            )
        except Refusal as refusal:
            return await self._previewed(request, form, spec, target, fields, refusal=refusal)
        if form.shows_secret:
            return await self._secret(request, form, answer)
        session.note(form.said(target))
        return RedirectResponse(_where(form, target, answer), 303)

    async def _secret(
        self, request: Request, form: OrderForm, answer: Mapping[str, Any]
    ) -> Response:
        """What is shown this once and kept nowhere: no redirect, so that no page has it twice."""
        return await self._desk.page(
            request,
            "secret.html",
            tab="access",
            title=form.said(str(answer.get("name", ""))),
            made=answer,
        )

    def _meant(self, request: Request) -> tuple[OrderForm, RouteSpec, str]:
        """The order that a path names, if this person may give it. Raises NotFound, Forbidden."""
        name, target = str(request.path_params["order"]), str(request.path_params["target"])
        form, spec = FORMS.get(name), self._desk.specs.get(name)
        if form is None or spec is None:
            raise NotFound(f"There is no order {name[:64]}.", "The pages offer every order.")
        self._need(access_of(request), form, spec, target)
        return form, spec, target

    def _need(self, access: Access, form: OrderForm, spec: RouteSpec, target: str) -> None:
        """Raises Forbidden, and NotFound for what is not there, to those who may know."""
        what = f"to order {spec.name} of {target[:NAME_CHARS_MAX]}"
        access.need(spec.right, what=what)
        if not spec.by_scope:
            access.need_everywhere(spec.right, what=what)
        fleet = self._desk.control.fleet
        match form.kind:
            case "vm":
                scope_of_vm(self._desk, access, target)
            case "scope":
                if not access.sees(target):
                    raise not_yours(access, f"scope {target[:NAME_CHARS_MAX]}")
                fleet.need_scope(target)
            case "event":
                found = fleet.open_event(target.upper())
                if not access.all_scopes and (found is None or not access.sees(found[0].name)):
                    raise not_yours(access, f"open event {target[:NAME_CHARS_MAX]}")
            case "host":
                fleet.need_host(target)


async def read_form(request: Request, session: ConsoleSession) -> dict[str, str]:
    """The fields of a form of this session. Raises FormRefused or Invalid."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Invalid("This is not a form.", "Send the form of a page of the console.")
    body = await read_body(request, bytes_max=FORM_BYTES_MAX)
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            max_num_fields=FIELDS_MAX,
            errors="strict",
        )
    except ValueError:
        raise Invalid("The form was not understood.", "Load the page again.") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise Invalid("The form has a field twice.", "Load the page again.")
    if not same_text(fields.get(SECRET, ""), session.form_secret):
        raise FormRefused(
            "This form does not belong to your session.",
            "Load the page again, and send it from there. Nothing was done.",
        )
    return fields


def same_text(one: str, other: str) -> bool:
    """Compared in a time that tells nothing."""
    return hmac.compare_digest(one.encode(), other.encode())


def _known(form: OrderForm, said: Mapping[str, str]) -> dict[str, str]:
    """The fields of this form, each within its limit. Raises Invalid."""
    found = {}
    for field in form.fields:
        text = said.get(field.name, "").strip()
        _refuse(field, text)
        if text:
            found[field.name] = text
    return found


def _refuse(field: FormField, text: str) -> None:
    if len(text) > field.chars_max or not text.isprintable():
        raise Invalid(
            f"{field.label}: too long, or with characters that cannot be shown.",
            f"Up to {field.chars_max} printable characters are accepted.",
        )
    if text and field.kind == "choice" and text not in field.options:
        raise Invalid(f"{field.label}: {text[:40]!r} is not offered.", ", ".join(field.options))


def _shown_target(form: OrderForm, target: str) -> str:
    """What the order is given to, as people read it: ids are long."""
    return Ref(form.kind, target).label


def _where(form: OrderForm, target: str, answer: Mapping[str, Any]) -> str:
    """The page of what the order has led to."""
    if answer.get("operation_id") and form.kind == "host":
        return url_of(Ref("operation", str(answer["operation_id"])))
    if answer.get("event_id") and (form.kind == "vm" or form.order == "event-postpone"):
        return url_of(Ref("event", str(answer["event_id"])))
    return url_of(Ref(form.kind, target))


def _told(preview: Preview | None) -> dict[str, Any]:
    """How many are told, in numbers."""
    if preview is None:
        return {}
    told = [event for event in preview.events if event.told]
    silent = [event for event in preview.events if not event.told]
    return {
        "vms": sum(len(event.vms) for event in told),
        "scopes": len({event.scope for event in told}),
        "silent_vms": sum(len(event.vms) for event in silent),
        "silent_scopes": sorted({event.scope for event in silent}),
        "first_ms": max((event.not_before_ms for event in preview.events), default=0),
        "at_once": all(event.approved for event in preview.events) and not preview.holds,
        "scope_named": sorted({event.scope for event in told})[:3],
    }


def order_url(order: str, target: str) -> str:
    """Where an order is given."""
    return f"/console/orders/{order}/{quote(target, safe='')}"
