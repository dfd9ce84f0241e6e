"""Orders as people give them: what each form asks, and what a filled one says to the operator API.

Only words are here; what an order does is asked of `order_previews`, and the API carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from forewarn.api.console.view_models.values import Kind
from forewarn.core.access import Access, Role
from forewarn.core.errors import Invalid
from forewarn.core.model import DAY_MS, SECOND_MS

Fields = Mapping[str, str]
DAY_S = DAY_MS // SECOND_MS


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
    of_overrides: bool = False  # required of those who override a promise; an owner consents
    chars_max: int = 200

    def needed_by(self, access: Access) -> bool:
        return self.required or (self.of_overrides and access.all_scopes)


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
    shows_secret: bool = False  # the answer holds what is shown once
    body: Callable[[Fields], dict[str, Any]] = lambda _: {}

    def named(self, target: str) -> str:
        return self.title.format(target=target)

    def said(self, target: str) -> str:
        """What is said once it was given."""
        return self.done.format(target=target)


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
    of_overrides=True,
)
_WHY_FORCED = FormField(
    name="reason",
    label="Why, if you force it",
    hint="What overrides a promise needs a reason; the journal keeps it.",
)
_LOSE_DISK = FormField(
    name="lose_disk",
    label="The move loses the local disks",
    kind="switch",
    hint="As where a failed machine takes its disks with it. Without it they are kept.",
    rare=True,
)
_VALID = FormField(
    name="valid_days",
    label="Valid for how many days",
    hint="Empty: 90. At most 366.",
    example="90",
    chars_max=3,
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
    return {**said, **_switches(fields, "break_domains", "lose_disk"), **_reason(fields)}


def _switches(fields: Fields, *names: str) -> dict[str, Any]:
    return {name: True for name in names if fields.get(name)}


def _reason(fields: Fields) -> dict[str, Any]:
    return {"reason": fields["reason"]} if fields.get("reason") else {}


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 6:
        raise Invalid(f"{text[:20]!r} is no whole number.", "A number like 30 is accepted.")
    return int(text)


def _degrade(fields: Fields) -> dict[str, Any]:
    said = _window(fields)
    return {**said, "not_before": fields["not_before"]} if fields.get("not_before") else said


def _fail(fields: Fields) -> dict[str, Any]:
    return {**_switches(fields, "fenced", "force"), **_reason(fields)}


def _repair(fields: Fields) -> dict[str, Any]:
    return {**_switches(fields, "force"), **_reason(fields)}


def _redeploy(fields: Fields) -> dict[str, Any]:
    return {**_window(fields), **_switches(fields, "lose_disk")}


def _postpone(fields: Fields) -> dict[str, Any]:
    return {"until": fields.get("until", ""), **_reason(fields)}


def _token(fields: Fields) -> dict[str, Any]:
    scopes = [one for one in fields.get("scopes", "").replace(",", " ").split() if one]
    return {
        "name": fields.get("name", ""),
        "role": fields.get("role", ""),
        **({"scopes": scopes} if scopes else {}),
        **_valid(fields),
    }


def _valid(fields: Fields) -> dict[str, Any]:
    if not fields.get("valid_days"):
        return {}
    return {"valid_seconds": _number(fields["valid_days"]) * DAY_S}


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
            button="Order the maintenance",
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
                replace(_WHY_FORCED, rare=True),
                _LOSE_DISK,
            ),
            body=_maintain,
        ),
        OrderForm(
            order="host-degrade",
            kind="host",
            title="Declare that host {target} is expected to fail",
            button="Have its VMs moved",
            done="Host {target} is degraded; its VMs will be moved.",
            fields=(_NOT_BEFORE, *_WINDOW),
            body=_degrade,
        ),
        OrderForm(
            order="host-fail",
            kind="host",
            title="Declare that host {target} has failed",
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
                _WHY_FORCED,
            ),
            grave=True,
            body=_fail,
        ),
        OrderForm(
            order="host-repair",
            kind="host",
            title="Say that host {target} is well again",
            button="Say that it is well",
            done="Host {target} is well again.",
            says="VMs that waited for it start there, and VMs may be placed on it again.",
            fields=(
                FormField(name="force", label="Say so although it is not heard", kind="switch"),
                _WHY_FORCED,
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
            fields=(*_WINDOW, _LOSE_DISK),
            body=_redeploy,
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
            body=_reason,
        ),
        OrderForm(
            order="event-postpone",
            kind="event",
            title="Postpone event {target}",
            button="Postpone it",
            done="The event is postponed. This is the one that was announced in its place.",
            says="It is withdrawn and announced anew under a new EventId; its notice begins again,"
            " and no VM has approved the new one. A Freeze or Reboot of a host moves as a whole.",
            fields=(
                FormField(
                    name="until",
                    label="Until when",
                    hint="The earliest start without an approval.",
                    example="+2h or 2026-03-03T22:00:00+01:00",
                    required=True,
                ),
                FormField(name="reason", label="Why, in one sentence", hint="It may be empty."),
            ),
            body=_postpone,
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
        OrderForm(
            order="token-make",
            kind="token",
            title="Make a token",
            button="Make it",
            done="Token {target} is made",
            says="Its secret is shown once, on the next page, and is kept nowhere.",
            fields=(
                FormField(name="name", label="Whom or what it is for", required=True),
                FormField(
                    name="role",
                    label="Role",
                    kind="choice",
                    options=tuple(role.value for role in Role),
                    hint="A viewer looks. An owner approves, restarts and postpones in named"
                    " scopes. An operator orders. An admin also makes tokens.",
                    required=True,
                ),
                FormField(
                    name="scopes",
                    label="Scopes of an owner",
                    hint="By name, with spaces between them. Empty for any other role.",
                ),
                _VALID,
            ),
            shows_secret=True,
            body=_token,
        ),
        OrderForm(
            order="token-rotate",
            kind="token",
            title="Give token {target} another secret",
            button="Rotate it",
            done="Token {target} has another secret",
            says="The old secret opens nothing from now on. The new one is shown once,"
            " on the next page.",
            fields=(_VALID,),
            grave=True,
            shows_secret=True,
            body=_valid,
        ),
        OrderForm(
            order="token-revoke",
            kind="token",
            title="Revoke token {target}",
            button="Revoke it",
            done="Token {target} is revoked.",
            says="It opens nothing from now on, and the sessions that were opened with it end.",
            grave=True,
        ),
    )
}
