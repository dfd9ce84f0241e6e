"""`forewarn vm`, `forewarn host` and `forewarn scope`: what there is, and orders for it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from forewarn.cli import details, lists, tables
from forewarn.cli.client import Client, Reply
from forewarn.cli.session import AsJson, flag, session_of

vm = typer.Typer(no_args_is_help=True, help="Look at VMs, and order what their owners want.")
host = typer.Typer()  # its help is that of the daemon which it is without a command: `cli.host`
scope = typer.Typer(no_args_is_help=True, help="Look at scopes, the groups that share a document.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]
When = Annotated[
    str | None,
    typer.Option(
        "--not-before",
        metavar="T",
        help="The earliest start without approval: a time with its zone (2026-03-03T10:15:00Z), or"
        " from now (+2h). The minimum notice can make it later, an approval sooner.",
    ),
]
InWindow = Annotated[
    str | None,
    typer.Option(
        "--window",
        metavar="START/END",
        help="Outside of it nothing starts, approved or not: two times as for --not-before.",
    ),
]
LoseDisk = Annotated[
    bool,
    flag(
        "--lose-disk",
        help="Redeploy only: what is moved starts with empty local disks. Emulated hosts only.",
    ),
]


Reason = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", help="Why a promise is overridden, for the journal."),
]


def window_body(said: str | None) -> dict[str, str] | None:
    """The window of an order, as the API takes it."""
    if said is None:
        return None
    start, slash, end = said.partition("/")
    if not start or not slash or not end or "/" in end:
        raise typer.BadParameter(
            f"{said!r} is not START/END, like 2026-03-03T22:00:00Z/2026-03-04T04:00:00Z or"
            " +1h/+5h, both from now.",
            param_hint="--window",
        )
    return {"start": start, "end": end}


class HostWork(StrEnum):
    """What can be done to a host."""

    FREEZE = "Freeze"
    REBOOT = "Reboot"
    REDEPLOY = "Redeploy"


def everything(client: Client, *path: str, query: Mapping[str, str] | None = None) -> Reply:
    """All pages of a list that is ordered by name, as one answer."""
    asked: dict[str, str | int] = {**(query or {}), "limit": lists.PAGE_ITEMS}
    reply = client.get(*path, query=asked)
    items: list[dict[str, Any]] = reply.content["items"]
    while reply.content["more"]:
        reply = client.get(*path, query={**asked, "after": items[-1]["name"]})
        items.extend(reply.content["items"])
    filtered = bool(reply.content.get("filtered"))
    return Reply({"items": items, "more": False, "filtered": filtered}, reply.now)


# VMs.


@vm.command("list")
def list_vms(
    context: typer.Context,
    *,
    scope: Annotated[str, typer.Option(help="Only VMs of this scope.")] = "",
    host: Annotated[str, typer.Option(help="Only VMs on this host.")] = "",
    as_json: AsJson = False,
) -> None:
    """List VMs."""
    session = session_of(context)
    reply = everything(session.client(), "vms", query={"scope": scope, "host": host})
    session.show(reply, lambda page, now: tables.vms(page["items"], now), as_json=as_json)


@vm.command("show")
def show_vm(context: typer.Context, *, name: Name, as_json: AsJson = False) -> None:
    """Show a VM and its open events."""
    session = session_of(context)
    session.show(session.client().get("vms", name), details.vm, as_json=as_json)


def _order_vm(
    context: typer.Context,
    name: str,
    verb: str,
    *,
    window: str | None,
    as_json: bool,
    **more: object,
) -> None:
    session = session_of(context)
    body = {"window": window_body(window), **more}
    reply = session.client().order("vms", name, verb, body=body)
    session.show(reply, details.ordered_event, as_json=as_json)


@vm.command("restart")
def restart_vm(
    context: typer.Context, *, name: Name, window: InWindow = None, as_json: AsJson = False
) -> None:
    """Restart a VM, as its owner: a Reboot event."""
    _order_vm(context, name, "restart", window=window, as_json=as_json)


@vm.command("redeploy")
def redeploy_vm(
    context: typer.Context,
    *,
    name: Name,
    window: InWindow = None,
    lose_disk: LoseDisk = False,
    as_json: AsJson = False,
) -> None:
    """Move a VM to another host, as its owner: a Redeploy event."""
    _order_vm(context, name, "redeploy", window=window, as_json=as_json, lose_disk=lose_disk)


@vm.command("delete")
def delete_vm(
    context: typer.Context, *, name: Name, window: InWindow = None, as_json: AsJson = False
) -> None:
    """Delete a VM, as its owner: a Terminate event."""
    _order_vm(context, name, "delete", window=window, as_json=as_json)


@vm.command("evict")
def evict_vm(
    context: typer.Context, *, name: Name, window: InWindow = None, as_json: AsJson = False
) -> None:
    """Evict a spot VM, as the platform: a Preempt event."""
    _order_vm(context, name, "evict", window=window, as_json=as_json)


@vm.command("start")
def start_vm(
    context: typer.Context,
    *,
    name: Name,
    on: Annotated[str, typer.Option("--on", metavar="HOST", help="Where it starts.")],
    break_domains: Annotated[
        bool,
        flag("--break-domains", help="Accept another update domain of its scope on that host."),
    ] = False,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Start a VM of a failed host, which has nowhere to start, on a host that you name."""
    session = session_of(context)
    body = {"on": on, "break_domains": break_domains, "reason": reason}
    reply = session.client().order("vms", name, "start", body=body)
    session.show(reply, details.ordered_event, as_json=as_json)
    if not as_json:
        session.console.print(f"{name} starts on {on}.")


# Hosts.


@host.command("list")
def list_hosts(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List hosts."""
    session = session_of(context)
    reply = everything(session.client(), "hosts")
    session.show(reply, lambda page, now: tables.hosts(page["items"], now), as_json=as_json)


@host.command("show")
def show_host(context: typer.Context, *, name: Name, as_json: AsJson = False) -> None:
    """Show a host, its VMs and its open operations."""
    session = session_of(context)
    session.show(session.client().get("hosts", name), details.host, as_json=as_json)


def _order_host(
    context: typer.Context,
    name: str,
    verb: str,
    *,
    as_json: bool,
    body: Mapping[str, object] | None = None,
) -> None:
    session = session_of(context)
    reply = session.client().order("hosts", name, verb, body=body)
    render = details.operation if "operation_id" in reply.content else details.ordered_host
    session.show(reply, render, as_json=as_json)


@host.command("close")
def close_host(context: typer.Context, *, name: Name, as_json: AsJson = False) -> None:
    """Place no VM on the host any more. Those that are there stay."""
    _order_host(context, name, "close", as_json=as_json)


@host.command("open")
def open_host(context: typer.Context, *, name: Name, as_json: AsJson = False) -> None:
    """Place VMs on the host again."""
    _order_host(context, name, "open", as_json=as_json)


@host.command("degrade")
def degrade_host(
    context: typer.Context,
    *,
    name: Name,
    not_before: When = None,
    window: InWindow = None,
    as_json: AsJson = False,
) -> None:
    """Say that the host is expected to fail: its VMs move, a week ahead by default."""
    body = {"not_before": not_before, "window": window_body(window)}
    _order_host(context, name, "degrade", body=body, as_json=as_json)


@host.command("fail")
def fail_host(
    context: typer.Context,
    *,
    name: Name,
    fenced: Annotated[
        bool, flag("--fenced", help="It is surely off: its VMs may start elsewhere.")
    ] = False,
    force: Annotated[
        bool, flag("--force", help="Also if it was heard seconds ago, for a --reason.")
    ] = False,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Say that the host has failed: its VMs are down."""
    body = {"fenced": fenced, "force": force, "reason": reason}
    _order_host(context, name, "fail", body=body, as_json=as_json)


@host.command("repair")
def repair_host(
    context: typer.Context,
    *,
    name: Name,
    force: Annotated[
        bool, flag("--force", help="Also if it is not heard, for a --reason.")
    ] = False,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Say that a degraded or failed host is well again."""
    body = {"force": force, "reason": reason}
    _order_host(context, name, "repair", body=body, as_json=as_json)


@host.command("maintain")
def maintain_host(
    context: typer.Context,
    *,
    name: Name,
    work: Annotated[HostWork, typer.Option("--type", help="What is done to the host.")],
    not_before: When = None,
    window: InWindow = None,
    duration: Annotated[
        int | None,
        typer.Option(metavar="SECONDS", help="How long a Freeze lasts; Freeze only."),
    ] = None,
    description: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the guests read about it.")
    ] = None,
    break_domains: Annotated[
        bool,
        flag(
            "--break-domains",
            help="Accept that two update domains of one scope are hit at once, for a --reason.",
        ),
    ] = False,
    lose_disk: LoseDisk = False,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Freeze or reboot a host, or move its VMs away, with notice to every VM on it."""
    body: dict[str, object] = {
        "event_type": work.value,
        "not_before": not_before,
        "window": window_body(window),
        "duration_seconds": duration,
        "description": description,
        "break_domains": break_domains,
        "lose_disk": lose_disk,
        "reason": reason,
    }
    _order_host(context, name, "maintain", body=body, as_json=as_json)


# Scopes.


@scope.command("list")
def list_scopes(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List scopes."""
    session = session_of(context)
    reply = everything(session.client(), "scopes")
    session.show(reply, lambda page, now: tables.scopes(page["items"], now), as_json=as_json)


@scope.command("show")
def show_scope(context: typer.Context, *, name: Name, as_json: AsJson = False) -> None:
    """Show a scope, its VMs and its open events."""
    session = session_of(context)
    session.show(session.client().get("scopes", name), details.scope, as_json=as_json)


@scope.command("release")
def release_scope(context: typer.Context, *, name: Name, as_json: AsJson = False) -> None:
    """Let platform events of the scope go on after one of its events has failed."""
    session = session_of(context)
    session.show(session.client().order("scopes", name, "release"), details.scope, as_json=as_json)
