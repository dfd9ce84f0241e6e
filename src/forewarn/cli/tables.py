"""Lists as tables. JSON of the API in, something Rich can print out.

Everything fits 80 columns: what does not fit in its column goes on below, nothing is cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from forewarn.cli import times
from forewarn.core.model import SECOND_MS
from forewarn.text.durations import duration_text, span

MOVED_FROM = timedelta(seconds=2)  # a host needs a moment to show an event; that is no move
ID_CHARS_SHOWN = 8  # enough to name an event, and accepted wherever an id is

_PHASE_STYLE = {
    "scheduled": "yellow",
    "waiting": "yellow",
    "started": "bold magenta",
    "completed": "green",
    "ended": "green",
    "failed": "bold red",
    "canceled": "dim",
    "withdrawn": "yellow",
}

_FOR_MACHINES = frozenset({"action_id", "epoch", "event_source", "actions"})
_FIRST_INSTANT_MS = 1_000_000_000_000  # in 2001; what is less is a length of time

Items = Sequence[dict[str, Any]]


def new_table(*columns: str, numbers: Sequence[str] = (), whole: Sequence[str] = ()) -> Table:
    """A table without lines. Columns in `whole` never wrap; those in `numbers` are to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        right = column in numbers
        table.add_column(
            column,
            justify="right" if right else "left",
            no_wrap=right or column in whole,
            overflow="fold",
        )
    return table


def phase(value: str) -> Text:
    """A phase in its color."""
    return Text(value, style=_PHASE_STYLE.get(value, ""))


def short(identity: str | None) -> str:
    """The beginning of an id, which is enough to name it."""
    return (identity or "")[:ID_CHARS_SHOWN]


def count(number: int, noun: str) -> str:
    """`1 VM`, `2 VMs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def vms(items: Items, now: datetime) -> RenderableType:
    if not items:
        return "There are no VMs. `forewarn inventory apply FILE` adds some."
    known = powered(items)
    mixed = any(vm["priority"] != "regular" for vm in items)
    columns = ("VM", "SCOPE", "DOMAIN", "HOST", *(["PRIORITY"] if mixed else []), "ENABLED")
    columns = (*columns, "LAST POLL", "EVENTS", *(["POWER"] if known else []))
    table = new_table(*columns, numbers=("DOMAIN", "EVENTS"))
    for vm in items:
        table.add_row(
            vm["name"],
            vm["scope"],
            str(vm["update_domain"]),
            vm["host"],
            *([vm["priority"]] if mixed else []),
            "yes" if vm["enabled"] else Text("silent", style="dim"),
            last_poll(vm, now),
            str(vm["open_events"]),
            *([power(vm)] if known else []),
        )
    return table


def last_poll(vm: dict[str, Any], now: datetime) -> Text:
    """When a VM last polled, and whether its agent has stopped; what is not known is not said."""
    said = str(vm.get("reading", "unknown"))  # a service before this one does not say it
    away = times.away(vm["polled"], now) if said != "unknown" else ""
    words = away if said == "reading" else said
    if said == "stopped" and away:
        words = f"stopped, {away}"
    return Text(words, style={"stopped": "bold red", "reading": ""}.get(said, "dim"))


def powered(items: Items) -> bool:
    """Whether it is known of any of these VMs if they run; else it is never known."""
    return any(vm["power"] or vm.get("off") or _was_reported(vm) for vm in items)


def _was_reported(vm: dict[str, Any]) -> bool:
    """Whether a host that is not heard any more has shown the VM."""
    return not vm.get("host_alive", True) and vm.get("when_host_goes_down") is not None


def power(vm: dict[str, Any]) -> Text:
    """Whether a VM runs, and whether there is a problem with it that `vm show` tells."""
    known = "off, stays off" if vm.get("off") else vm["power"] or "unknown"
    if known == "unknown" and not vm.get("host_alive", True):
        known = "host silent"
    found = Text(known, style="" if vm["power"] == "running" else "yellow")
    return found.append(", problem", style="red") if vm["problem"] else found


def hosts(items: Items, now: datetime) -> RenderableType:
    del now
    if not items:
        return (
            "There are no hosts. `forewarn inventory apply FILE` adds some; a `forewarn control`"
            " has those that join: `forewarn host invite NAME`."
        )
    if "capacity" not in items[0]:
        return _brief(items)
    # Only a control has hosts that join; elsewhere there is nothing to tell apart.
    joins = any(host["joined"] for host in items)
    columns = ("HOST", *(("JOINED",) if joins else ()), "HEALTH", "HEARTBEAT", "PLACEMENT")
    table = new_table(*columns, "VMS", "OPERATIONS")
    for host in items:
        places = "" if host["capacity"] is None else f" of {host['capacity']}"
        table.add_row(
            host["name"],
            *([joined(host)] if joins else []),
            health(host),
            heartbeat(host),
            placement(host),
            f"{host['vm_count']}{places}",
            str(host["open_operations"]),
        )
    return table


def _brief(items: Items) -> RenderableType:
    """Hosts as an owner sees them."""
    table = new_table("HOST", "HEALTH", "HEARTBEAT")
    for host in items:
        table.add_row(host["name"], health({"fenced": False, **host}), heard(host))
    return table


def heard(host: dict[str, Any]) -> Text | str:
    """Whether the host has a heartbeat."""
    return "yes" if host["alive"] else Text("silent", style="bold red")


def joined(host: dict[str, Any]) -> Text:
    """Whether a host has a daemon of its own with a certificate."""
    return Text("yes") if host["joined"] else Text("no", style="yellow")


def heartbeat(host: dict[str, Any]) -> Text:
    """Whether a host is heard, and obeys; if not, for how long it was not, since our start."""
    if host["alive"] and host["two_daemons"]:
        return Text("yes, two daemons", style="bold red")
    if host["alive"]:
        return Text("yes, refuses", style="bold red") if host["refuses"] else Text("yes")
    return Text(f"none for {duration_text(host['silent_seconds'] * SECOND_MS)}", style="bold red")


def health(host: dict[str, Any]) -> Text:
    """What the operator has said of a host's hardware."""
    style = {"ok": "green", "degraded": "yellow", "failed": "bold red"}[host["health"]]
    fenced = ", fenced" if host["fenced"] else ""
    return Text(f"{host['health']}{fenced}", style=style)


def placement(host: dict[str, Any]) -> Text:
    """Whether VMs may be placed on a host, or why not."""
    word = str(host["placement"])
    return Text(word if word in ("open", "closed") else f"no: {word}")


def events(items: Items, now: datetime) -> RenderableType:
    """Events with a countdown to the earliest start."""
    if not items:
        return "There are no open events. `forewarn event list --all` shows the ended ones."
    table = new_table(
        "EVENT", "TYPE", "PHASE", "NOT BEFORE", "SCOPE", "HOST", "VMS", whole=("EVENT", "TYPE")
    )
    for event in items:
        scope = f"{event['scope']}/{event['update_domain']}"
        table.add_row(
            short(event["event_id"]),
            Text.assemble(event["event_type"], "\n", (event["event_source"], "dim")),
            _event_phase(event),
            _when(event, now),
            Text(scope),
            event["host"],
            ", ".join(event["resources"]),
        )
    return table


def _event_phase(event: dict[str, Any]) -> Text:
    shown = phase(event["phase"])
    if event["phase"] == "scheduled" and event["approved"]:
        said = "overridden" if event.get("overridden_by") else "approved"
        shown.append(f"\n{said}", style="green")
    if event["silent"]:
        shown.append("\nsilent", style="dim")
    return shown


def _when(event: dict[str, Any], now: datetime) -> Text:
    """The earliest start of what has not started, else since when it is as it is."""
    for what in ("ended", "started"):
        if event[what]:
            when = f"{what} {times.clock(event[what], now)}\n{times.away(event[what], now)}"
            return Text(when, style="dim" if what == "ended" else "")
    later = moved_start(event)
    start = later or event["not_before"]
    shown = Text(times.clock(event["not_before"], now))
    if later:
        shown.append(f"\nmoved to\n{times.clock(later, now)}", style="yellow")
    return shown.append(f"\n{times.away(start, now)}")


def moved_start(event: dict[str, Any]) -> str | None:
    """The earliest start of an event, if it is later than guests were told; else None.

    It could not be read for its minimum notice by then, or its window opens later.
    """
    earliest, told = event["earliest_start"], event["not_before"]
    if earliest is None or event["silent"] or event["phase"] != "scheduled":
        return None
    return earliest if times.parse(earliest) - times.parse(told) >= MOVED_FROM else None


def operations(items: Items, now: datetime) -> RenderableType:
    if not items:
        return "There are no open operations. `forewarn operation list --all` shows the ended ones."
    table = new_table(
        "OPERATION", "TYPE", "HOST", "PHASE", "CAUSE", "ORDERED", "EVENTS", whole=("OPERATION",)
    )
    for operation in items:
        table.add_row(
            short(operation["operation_id"]),
            operation["event_type"],
            operation["host"],
            phase(operation["ended_as"] or operation["phase"]),
            operation["cause"],
            f"{times.clock(operation['ordered'], now)}\n{times.away(operation['ordered'], now)}",
            str(len(operation["members"])),
        )
    return table


def scopes(items: Items, now: datetime) -> RenderableType:
    if not items:
        return "There are no scopes. `forewarn inventory apply FILE` adds some."
    table = new_table("SCOPE", "KIND", "ENABLED", "LAST POLL", "VMS", "EVENTS", "HELD")
    for scope in items:
        table.add_row(
            scope["name"],
            scope["kind"],
            "yes" if scope["enabled"] else Text("silent", style="dim"),
            times.away(scope["polled"], now) or "never",
            str(scope["vm_count"]),
            str(scope["open_events"]),
            Text("held", style="bold red") if scope["hold"] else "",
        )
    return table


def fact_line(fact: dict[str, Any], now: datetime) -> Text:
    """One line of the journal: number, time, what, about what, by whom, and the rest.

    Ids come first: names may be long, and what is after them off the terminal or on another line.
    """
    line = Text(f"{fact['number']:>5}  {times.clock(fact['at'], now)}  ")
    line.append(f"{fact['kind']:<10}", style="bold")
    if fact["event_id"]:
        line.append(f"  event {short(fact['event_id'])}", style="cyan")
    if fact["operation_id"]:
        line.append(f"  operation {short(fact['operation_id'])}", style="cyan")
    for key, word in (("scope", ""), ("vm", "vm "), ("host", "host ")):
        if fact[key]:
            line.append(f"  {word}{fact[key]}")
    if fact["by"]:
        line.append(f"  by {fact['by']}{_which(fact)}")
    details = (_detail(key, value, now) for key, value in fact["detail"].items())
    shown = ", ".join(detail for detail in details if detail)
    if shown:
        line.append(f"  {shown}", style="dim")
    return line


def _which(fact: dict[str, Any]) -> str:
    """Who did what a line of the journal says, where the name alone does not tell."""
    if fact.get("by_id") in (None, fact["by"], "operator"):
        return ""
    owner = "owner, " if fact["by_kind"] == "owner" else ""
    return f" ({owner}{fact['by_id']})"


def _detail(key: str, value: object, now: datetime) -> str:
    """A detail of a fact in words; what only machines need is left out."""
    if key in _FOR_MACHINES or value in ("", None, []):
        return ""
    words = key.removesuffix("_ms").replace("_", " ")
    if key.endswith("_ms") and isinstance(value, int):
        if value >= _FIRST_INSTANT_MS:
            return f"{words} {times.clock(times.from_ms(value), now)}"
        return f"{words} {span(abs(value) / 1_000)}"
    return f"{words} {_plain(value)}"


def _plain(value: object) -> str:
    if isinstance(value, list):
        return "+".join(_plain(one) for one in value)
    if isinstance(value, dict):
        return " ".join(_plain(one) for one in value.values() if one)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
