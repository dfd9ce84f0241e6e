"""Orders as people give them: what each form asks, and what a filled one says to the operator API.

Only words are here; what an order does is asked of `previews`, and the API carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from forewarn.api.console.view_models.values import Kind
from forewarn.core.errors import Invalid

Fields = Mapping[str, str]


class FormField(Struct, frozen=True, kw_only=True):
    """One thing that a form asks. `late`: asked when the order is confirmed, not before."""

    name: str
    label: str
    kind: Literal["text", "choice", "switch"] = "text"
    options: tuple[str, ...] = ()
    hint: str = ""
    example: str = ""
    late: bool = False
    rare: bool = False  # most orders leave it as it is
    required: bool = False
    chars_max: int = 200


class OrderForm(Struct, frozen=True, kw_only=True):
    """An order of the route table: its words on the page, its fields, what it is given to."""

    order: str  # as in the route table
    kind: Kind
    title: str  # with {target}
    button: str
    done: str  # with {target}: what is said when it was given
    says: str = ""  # what it means, where no preview says it
    fields: tuple[FormField, ...] = ()
    grave: bool = False
    body: Callable[[Fields], dict[str, Any]] = lambda _: {}

    def named(self, target: str) -> str:
        return self.title.format(target=target)


_WINDOW = (
    FormField(
        name="window_start",
        label="Window opens",
        hint="Outside of a window nothing starts, approved or not.",
        example="+2h or 2026-03-03T22:00:00+01:00",
        rare=True,
    ),
    FormField(name="window_end", label="Window closes", example="+6h", rare=True),
)
_REASON = FormField(
    name="reason",
    label="Why, in one sentence",
    hint="The receipt and the journal keep it.",
    late=True,
    required=True,
)


def _window(fields: Fields) -> dict[str, Any]:
    start, end = fields.get("window_start", ""), fields.get("window_end", "")
    if not start and not end:
        return {}
    if not start or not end:
        raise Invalid("A window opens and closes.", "Fill in both times, or neither.")
    return {"window": {"start": start, "end": end}}


def _maintain(fields: Fields) -> dict[str, Any]:
    said: dict[str, Any] = {"event_type": fields.get("event_type", ""), **_window(fields)}
    if fields.get("not_before"):
        said["not_before"] = fields["not_before"]
    if fields.get("description"):
        said["description"] = fields["description"]
    if fields.get("duration_seconds"):
        said["duration_seconds"] = _number(fields["duration_seconds"])
    if fields.get("break_domains"):
        said["break_domains"] = True
    return said


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 6:
        raise Invalid(f"{text[:20]!r} is no number of seconds.", "A whole number is accepted.")
    return int(text)


def _degrade(fields: Fields) -> dict[str, Any]:
    said = _window(fields)
    return {**said, "not_before": fields["not_before"]} if fields.get("not_before") else said


def _fail(fields: Fields) -> dict[str, Any]:
    switches = {name: True for name in ("fenced", "force") if fields.get(name)}
    return dict(switches)


def _repair(fields: Fields) -> dict[str, Any]:
    return {"force": True} if fields.get("force") else {}


_NOT_BEFORE = FormField(
    name="not_before",
    label="Not before",
    hint="Empty: as soon as the promised notice allows. Without an approval nothing starts sooner.",
    example="+2h or 2026-03-03T22:00:00+01:00",
)

FORMS: Mapping[str, OrderForm] = {
    form.order: form
    for form in (
        OrderForm(
            order="host-maintain",
            kind="host",
            title="Maintenance of host {target}",
            button="Order it",
            done="Maintenance of host {target} is ordered.",
            fields=(
                FormField(
                    name="event_type",
                    label="What is done",
                    kind="choice",
                    options=("Reboot", "Freeze", "Redeploy"),
                    hint="Redeploy moves every VM away; Freeze pauses them for seconds.",
                    required=True,
                ),
                _NOT_BEFORE,
                *_WINDOW,
                FormField(
                    name="duration_seconds",
                    label="Seconds of a Freeze",
                    example="5",
                    rare=True,
                    chars_max=6,
                ),
                FormField(
                    name="description",
                    label="What guests read",
                    hint="Empty: the usual words.",
                    example="Host server is undergoing maintenance.",
                    rare=True,
                ),
                FormField(
                    name="break_domains",
                    label="Accept that two update domains of one scope are hit at once",
                    kind="switch",
                    rare=True,
                ),
            ),
            body=_maintain,
        ),
        OrderForm(
            order="host-degrade",
            kind="host",
            title="Host {target} is expected to fail",
            button="Have its VMs moved",
            done="Host {target} is degraded; its VMs will be moved.",
            fields=(_NOT_BEFORE, *_WINDOW),
            body=_degrade,
        ),
        OrderForm(
            order="host-fail",
            kind="host",
            title="Host {target} has failed",
            button="Say that it has failed",
            done="Host {target} is declared failed.",
            says="Its VMs are told that they have failed, and what ran there has ended badly. They"
            " start elsewhere only once it is said that the machine is surely off.",
            fields=(
                FormField(
                    name="fenced",
                    label="It is surely off: its VMs may start elsewhere",
                    kind="switch",
                    hint="A VM that still runs there would run twice.",
                ),
                FormField(
                    name="force",
                    label="Say so although it is heard",
                    kind="switch",
                ),
            ),
            grave=True,
            body=_fail,
        ),
        OrderForm(
            order="host-repair",
            kind="host",
            title="Host {target} is well again",
            button="Say that it is well",
            done="Host {target} is well again.",
            says="VMs that waited for it start there, and VMs may be placed on it again.",
            fields=(
                FormField(name="force", label="Say so although it is not heard", kind="switch"),
            ),
            body=_repair,
        ),
        OrderForm(
            order="host-close",
            kind="host",
            title="Close host {target}",
            button="Close it",
            done="Host {target} is closed to new VMs.",
            says="No VM is placed there from now on. Those that are there stay.",
        ),
        OrderForm(
            order="host-open",
            kind="host",
            title="Open host {target}",
            button="Open it",
            done="Host {target} is open again.",
            says="VMs may be placed there again.",
        ),
        OrderForm(
            order="vm-restart",
            kind="vm",
            title="Restart VM {target}",
            button="Restart it",
            done="The restart of {target} is ordered.",
            fields=_WINDOW,
            body=_window,
        ),
        OrderForm(
            order="vm-redeploy",
            kind="vm",
            title="Move VM {target} to another host",
            button="Redeploy it",
            done="The redeployment of {target} is ordered.",
            fields=_WINDOW,
            body=_window,
        ),
        OrderForm(
            order="event-approve",
            kind="event",
            title="Approve event {target}",
            button="Approve it",
            done="The event is approved.",
            says="It starts as soon as nothing else holds it, without the rest of its notice.",
            fields=(_REASON,),
            grave=True,
            body=lambda fields: {"reason": fields["reason"]} if fields.get("reason") else {},
        ),
        OrderForm(
            order="event-cancel",
            kind="event",
            title="Cancel event {target}",
            button="Cancel it",
            done="The event is canceled.",
            says="It leaves the document of its VMs, with its whole operation if it has one.",
        ),
        OrderForm(
            order="operation-cancel",
            kind="operation",
            title="Cancel operation {target}",
            button="Cancel it",
            done="The operation is canceled.",
            says="What has started goes on to its end; the rest leaves the documents of its VMs.",
        ),
        OrderForm(
            order="scope-release",
            kind="scope",
            title="Release scope {target}",
            button="Release it",
            done="Scope {target} is released.",
            says="Platform events of the scope go on. Look at what failed before.",
        ),
    )
}
