"""`POST /v1/vms/{name}/adopt`: what the owner of a VM says of it, written to its domain.

Only a control has this route: the VMs of a service with hosts in its own process are what its
inventory file says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from forewarn.api.access import access_of
from forewarn.api.order_bodies import BODY_BYTES_MAX, words
from forewarn.api.requests import NAME_CHARS_MAX, NoQuery, read_body, read_query
from forewarn.api.route_table import RouteSpec
from forewarn.control import commands, operator_overview
from forewarn.control.control import Control
from forewarn.control.hosts.report_intake import ReportIntake
from forewarn.control.inventory.file_fields import AUTO_APPROVE, NOTICE_MINUTES
from forewarn.core.access import Right
from forewarn.core.errors import Conflict, NotFound
from forewarn.core.inventory.host_report import Traits, WhenHostGoesDown
from forewarn.core.model import MINUTE_MS, ScopeKind
from forewarn.core.vm_profile import IN_METADATA, Priority, VmProfile
from forewarn.wire.operator_answers import AdoptedVm

Notice = Annotated[int, Meta(ge=NOTICE_MINUTES[0], le=NOTICE_MINUTES[1])]
ShortText = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]

# How a request says an attribute of the profile, by its type there.
_SAID: dict[Any, Any] = {
    str: ShortText,
    str | None: ShortText,
    int: int,
    Priority: Priority,
    tuple[tuple[str, str], ...]: dict[str, str],
}
if TYPE_CHECKING:
    _ProfileWords = msgspec.Struct
else:
    _HINTS = get_type_hints(VmProfile)
    _ProfileWords = msgspec.defstruct(
        "_ProfileWords",
        [(name, _SAID[_HINTS[name]] | UnsetType | None, UNSET) for name in IN_METADATA],
        kw_only=True,
    )


class AdoptRequest(_ProfileWords, forbid_unknown_fields=True, kw_only=True):
    """What is said of a VM. What is left out stays as it is; null clears the value.

    `scope_kind`, `terminate_notice_minutes` and `auto_approve` are of the scope.
    `freeze_by_move`: a Freeze of its host moves it away instead of pausing it.
    `when_host_goes_down`: a reboot of its host moves it away, or restarts it.
    """

    scope: ShortText | UnsetType | None = UNSET
    update_domain: int | UnsetType | None = UNSET
    scope_kind: ScopeKind | UnsetType | None = UNSET
    terminate_notice_minutes: Notice | UnsetType | None = UNSET
    auto_approve: list[Literal["reboot", "redeploy"]] | UnsetType | None = UNSET
    freeze_by_move: bool | UnsetType | None = UNSET
    when_host_goes_down: WhenHostGoesDown | UnsetType | None = UNSET


def with_words(traits: Traits, said: AdoptRequest) -> Traits:
    """The traits with what was said of them in place of what they were."""
    nothing = Traits()
    after: dict[str, Any] = {}
    for key in said.__struct_fields__:
        value = getattr(said, key)
        if value is UNSET:
            continue
        if key == "terminate_notice_minutes":
            after["terminate_notice_ms"] = None if value is None else value * MINUTE_MS
        elif value is None:
            after[key] = getattr(nothing.profile if key in IN_METADATA else nothing, key)
        elif key == "auto_approve":
            after[key] = frozenset(AUTO_APPROVE[word] for word in value)
        elif key == "tags":
            after[key] = tuple(sorted(value.items()))
        else:
            after[key] = value
    profile = {key: after.pop(key) for key in IN_METADATA if key in after}
    return replace(traits, profile=replace(traits.profile, **profile), **after)


class AdoptRoutes:
    """The function behind the route."""

    def __init__(self, control: Control, report_intake: ReportIntake) -> None:
        self._control = control
        self._report_intake = report_intake

    def table(self) -> list[RouteSpec]:
        """The routes, for `create_app(more=...)`."""
        return [
            RouteSpec(
                method="POST",
                path="/v1/vms/{name}/adopt",
                name="vm-adopt",
                summary="Write to a VM's domain what its owner says of it, and wait for its host.",
                handler=self.adopt,
                answer=AdoptedVm,
                right=Right.OPERATE,
                body=AdoptRequest,
                command=commands.NoteAdoption,
                keyed=False,  # saying the same twice is saying it once
            )
        ]

    async def adopt(self, request: Request) -> Response:
        read_query(request, NoQuery)
        said = words(await read_body(request, bytes_max=BODY_BYTES_MAX), AdoptRequest)
        name = str(request.path_params["name"])
        traits = with_words(self._report_intake.traits_of(name), said)
        by = access_of(request).principal
        problem = await self._report_intake.adopt(self._control, name, traits, by=by)
        try:
            shown = operator_overview.show_adopted(self._control.fleet, name)
        except NotFound:
            raise Conflict(
                f"VM {name} was adopted but cannot be used: {problem or 'it has left since.'}"
            ) from None
        return Response(msgspec.json.encode(shown), media_type="application/json")
