"""`forewarn vm adopt`: say of a VM which scope it is in and how it wants to be treated."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from forewarn.cli import details
from forewarn.cli.client import Client, Reply, Stop
from forewarn.cli.fleet import Name, vm
from forewarn.cli.session import AsJson, session_of

__all__ = ["vm"]

NOTHING = "none"


class GroupKind(StrEnum):
    """The groups that share a document."""

    STANDALONE = "standalone"
    CLOUD_SERVICE = "cloud-service"
    AVAILABILITY_SET = "availability-set"
    PLACEMENT_GROUP = "placement-group"


class PriorityWord(StrEnum):
    REGULAR = "regular"
    SPOT = "spot"


class OsWord(StrEnum):
    LINUX = "Linux"
    WINDOWS = "Windows"


class GoesDown(StrEnum):
    """What becomes of a VM when its host is rebooted."""

    MOVE = "move"
    RESTART = "restart"


OsType = Annotated[
    OsWord | None, typer.Option(metavar="WORD", help="What runs in it: Linux, Windows.")
]
FreezeByMove = Annotated[
    bool | None,
    typer.Option(
        "--freeze-by-move/--freeze-in-place",
        metavar="",
        help="Whether a Freeze of its host moves it away or pauses it.",
    ),
]
WhenHostGoesDown = Annotated[
    GoesDown | None,
    typer.Option(metavar="WORD", help="What a reboot of its host does: move, restart."),
]


@vm.command("adopt")
def adopt_vm(
    context: typer.Context,
    *,
    name: Name,
    scope: Annotated[
        str | None, typer.Option(help='The scope it is in; "" for one of its own.')
    ] = None,
    update_domain: Annotated[
        int | None, typer.Option(metavar="N", help="VMs of one number are impacted together.")
    ] = None,
    scope_kind: Annotated[
        GroupKind | None,
        typer.Option(metavar="KIND", help=f"Of the scope: {', '.join(GroupKind)}."),
    ] = None,
    terminate_notice: Annotated[
        int | None, typer.Option(metavar="MINUTES", help="Of the scope: 5 to 15.")
    ] = None,
    auto_approve: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD", help="Of the scope: reboot, redeploy (each once), or none."),
    ] = None,
    priority: Annotated[PriorityWord | None, typer.Option(help="A spot VM may be evicted.")] = None,
    address: Annotated[
        str | None, typer.Option(metavar="IP", help='The address it has; "" for any.')
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A tag; all of them, or none."),
    ] = None,
    fault_domain: Annotated[int | None, typer.Option(metavar="N")] = None,
    zone: Annotated[str | None, typer.Option(metavar="TEXT")] = None,
    os_type: OsType = None,
    freeze_by_move: FreezeByMove = None,
    when_host_goes_down: WhenHostGoesDown = None,
    as_json: AsJson = False,
) -> None:
    """Write to a VM's domain which scope it is in and how it is treated; the rest stays."""
    said: dict[str, object | None] = {
        "scope": scope,
        "update_domain": update_domain,
        "scope_kind": scope_kind,
        "terminate_notice_minutes": terminate_notice,
        "auto_approve": _words(auto_approve),
        "priority": priority,
        "tags": None if tag is None else _tags(tag),
        "fault_domain": fault_domain,
        "zone": zone,
        "os_type": os_type,
        "freeze_by_move": freeze_by_move,
        "when_host_goes_down": when_host_goes_down,
    }
    session = session_of(context)
    body = _body(said, address)
    session.show(_adopt(session.client(), name, body), _adopted, as_json=as_json)


def _body(said: dict[str, object | None], address: str | None) -> dict[str, object]:
    """What was said, without what was not."""
    body = {key: value for key, value in said.items() if value is not None}
    if address is not None:
        body["address"] = address or None
    if not body:
        raise Stop(
            2, "No attribute was given.", "`forewarn vm adopt --help` lists the options for them."
        )
    return body


def _words(given: list[str] | None) -> list[str] | None:
    return [] if given == [NOTHING] else given


def _tags(given: list[str]) -> dict[str, str]:
    if given == [NOTHING]:
        return {}
    found = dict(one.partition("=")[::2] for one in given)
    wrong = next((one for one in given if "=" not in one), None)
    if wrong is not None:
        raise Stop(2, f"{wrong} is no tag.", f"Write {wrong}=VALUE, or --tag {NOTHING}.")
    return found


def _adopt(client: Client, name: str, body: dict[str, object]) -> Reply:
    try:
        return client.order("vms", name, "adopt", body=body)
    except Stop as stop:
        if not isinstance(stop.problem, dict) or stop.problem.get("code") != "unknown-path":
            raise
        raise Stop(
            1,
            "This service has its VMs from an inventory file; it has no domains to write to.",
            "Change the file and say `forewarn inventory apply FILE`.",
        ) from None


def _adopted(shown: dict[str, Any], now: datetime) -> RenderableType:
    said = [Text(note, style="yellow") for note in shown["notes"]]
    if shown["problem"]:
        said.insert(0, Text("Written. It is not all in effect: see the problem.", style="yellow"))
    return Group(*said, *([Text()] if said else []), details.vm(shown, now))
