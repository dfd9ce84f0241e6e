"""Single things, receipts, explanations and the answers to orders, as text and small tables."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from forewarn.cli import tables, times
from forewarn.core.model import SECOND_MS
from forewarn.text.durations import duration_text, span

Json = dict[str, Any]
Rows = Iterable[tuple[str, RenderableType]]

OFF = "off by its owner: it stays off whatever happens to its host, and no event waits for it"
LOST_DISK = "lost: what is moved starts with empty ones"
MOVED = "moves it, if another host can take it"
# Holds of what has started: what comes at their end is not the start but the failure.
_UNTIL_GIVEN_UP = ("no-host", "unclaimed", "running")
_KEPT = {
    "yes": Text("kept", style="bold green"),
    "unread": Text("readable, not read", style="bold yellow"),
    "overridden": Text("overridden", style="bold yellow"),
    "no": Text("NOT KEPT", style="bold red"),
    "not-yet": Text("not yet", style="yellow"),
    "not-applicable": Text("not applicable", style="dim"),
}


def _fields(rows: Rows) -> Table:
    """Names and values in two columns; what has no value is left out."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if not isinstance(value, str) or value:
            table.add_row(name, value)
    return table


def _title(text: str) -> Text:
    return Text(text, style="bold")


def event(shown: Json, now: datetime) -> RenderableType:
    """An event and its receipt."""
    return Group(
        _title(f"Event {shown['event_id']}"), _event_fields(shown, now), *_receipt(shown, now)
    )


def _event_fields(shown: Json, now: datetime) -> Table:
    return _fields(
        [
            ("type", f"{shown['event_type']}, {shown['event_source']}, cause {shown['cause']}"),
            ("phase", tables.phase(shown["phase"])),
            ("outcome", "" if shown["outcome"] == shown["phase"] else shown["outcome"]),
            ("VMs", ", ".join(shown["resources"])),
            ("scope", f"{shown['scope']}, update domain {shown['update_domain']}"),
            ("host", shown["host"]),
            ("not before", times.both(shown["not_before"], now) + _raised([shown], now)),
            ("starts from", times.both(tables.moved_start(shown), now)),
            ("window", _window(shown, now)),
            ("postponed", _postponed(shown)),
            ("in place of", shown["postponed_from"] or ""),
            ("replaced by", shown["postponed_to"] or ""),
            ("local disks", LOST_DISK if shown["lose_disk"] else ""),
            ("ordered by", shown["ordered_by"]),
            ("operation", shown["operation_id"] or ""),
            ("description", shown["description"]),
            (
                "silent",
                "yes: no VM of the scope polls, or the VM is off, so no guest is told"
                if shown["silent"]
                else "",
            ),
            *(("action", _action(action)) for action in shown["actions"]),
        ]
    )


def _postponed(shown: Json) -> str:
    """How often and by how much in all something was postponed; empty if it was not."""
    times_said = shown["postponements"]
    if not times_said:
        return ""
    often = "once" if times_said == 1 else f"{times_said} times"
    return f"{often}, by {span(shown['postponed_seconds'])} in all"


def _action(action: Json) -> str:
    what = action["kind"].replace("-", " ")
    whom = f" {action['vm']}" if action["vm"] else ""
    where = f" by {action['host']}" if action["host"] else " (no host yet)"
    to = f" to {action['target_host']}" if action["target_host"] else ""
    outcome = action["outcome"] or action["phase"]
    detail = f" ({action['detail']})" if action["detail"] else ""
    return f"{what}{whom}{to}{where}: {outcome}{detail}"


def _receipt(shown: Json, now: datetime) -> list[RenderableType]:
    receipt = shown["receipt"]
    by = f" by {receipt['approved_by']}" if receipt["approved_by"] else ""
    by += ", an owner of the scope" if receipt["approved_by_kind"] == "owner" else ""
    what = "overridden" if receipt["overridden_by"] else "approved"
    by += f": {receipt['override_reason']}" if receipt["overridden_by"] else ""
    joined = " " if receipt["kept"] == "overridden" else ": "
    why = f"{joined}{receipt['why']}"
    verdict = _KEPT[receipt["kept"]].copy().append(why, style="not bold default")
    missing = "no" if receipt["ended"] else "not yet"  # what has ended comes to nothing more
    return [
        Text(),
        _title("Receipt"),
        _fields(
            [
                ("scheduled", times.both(receipt["scheduled"], now)),
                ("appeared", times.both(receipt["appeared"], now) or "never, it is silent"),
                ("shown", times.both(receipt["shown"], now) or missing),
                *(("read by", _first_read(read, now, missing)) for read in receipt["first_reads"]),
                (what, times.both(receipt["approved"], now) + by or "no"),
                ("started", times.both(receipt["started"], now) or missing),
                ("ended", times.both(receipt["ended"], now) or "not yet"),
                ("promised", f"{span(receipt['notice_promised_seconds'])} of notice"),
                ("readable", f"for {span(receipt['notice_readable_seconds'])}"),
                ("read", _read(shown, receipt)),
                ("promise", verdict),
                *(("chain", _chained(one, shown, now)) for one in receipt["chain"]),
            ]
        ),
    ]


def _chained(one: Json, shown: Json, now: datetime) -> str:
    """One of the events that postponing has made of it."""
    what = "this event" if one["event_id"] == shown["event_id"] else one["event_id"]
    outcome = f": {one['outcome']}" if one["outcome"] else ""
    return f"{what}, for {times.clock(one['not_before'], now)}{outcome}"


def _read(shown: Json, receipt: Json) -> str:
    """How many of its VMs read the event in time, and how long before the start the last did."""
    impacted, unread = len(shown["resources"]), len(receipt["unread_by"])
    before = ""
    if receipt["notice_read_seconds"] is not None:
        before = f", the last one {span(receipt['notice_read_seconds'])} before the start"
    return f"by {impacted - unread} of {tables.count(impacted, 'VM')}{before}"


def _first_read(read: Json, now: datetime, missing: str) -> str:
    if read["read"] is None:
        return f"{read['vm']}: {missing}"
    before = ""
    if read["notice_seconds"] is not None:
        before = f", {span(read['notice_seconds'])} before the start"
    return f"{read['vm']}: {times.clock(read['read'], now)}{before}"


def explanation(explained: Json, now: datetime) -> RenderableType:
    """What holds it, since when, until when, and what would free it."""
    what = "Event" if "event_id" in explained else "Operation"
    identity = explained.get("event_id") or explained.get("operation_id")
    head = _title(f"{what} {identity} is ").append_text(tables.phase(explained["phase"]))
    if not explained["holds"]:
        outcome = f" ({explained['outcome']})" if explained["outcome"] else ""
        return Group(head, f"Nothing holds it{outcome}.", *_postponing(explained, now))
    parts: list[RenderableType] = [head]
    for hold in explained["holds"]:
        until = times.both(hold["until"], now) or "not known"
        given_up = hold["reason"] in _UNTIL_GIVEN_UP
        fields: list[tuple[str, RenderableType]] = [
            ("held by", Text(f"{hold['what']}", style="yellow")),
            ("since", times.both(hold["since"], now)),
            ("given up" if given_up else "until", until),
            ("freed by", Text(hold["remedy"])),
        ]
        parts.extend([Text(), _fields(fields)])
    if explained["until"]:
        parts.extend([Text(), _latest(explained, times.both(explained["until"], now))])
    return Group(*parts, *_postponing(explained, now))


def _postponing(explained: Json, now: datetime) -> list[RenderableType]:
    """Whether it was postponed, and whether its owner may postpone it (again)."""
    if explained.get("postponed_to"):
        return [Text(f"Event {explained['postponed_to']} was announced in its place.")]
    may = explained.get("postponing")
    if may is None:
        return []
    was = _postponed(may)
    said = f"It was postponed {was}. " if was else ""
    if may["why_not"]:
        return [Text(), Text(f"{said}{may['why_not']}", style="dim")]
    more = " more" if was else ""
    left = f"once{more}" if may["times_left"] == 1 else f"{may['times_left']}{more} times"
    until = f", until {times.both(may['latest'], now)} at the latest" if may["latest"] else ""
    how = f"`forewarn event postpone {explained['event_id']} --until TIME`"
    words = f"{said}Its owner may postpone it {left}{until}: {how}."
    return [Text(), Text(words, style="dim")]


def _latest(explained: Json, at: str) -> str:
    """What is so at the latest: nothing holds it, or, of what has started, it has failed."""
    given_up = {hold["reason"] in _UNTIL_GIVEN_UP for hold in explained["holds"]}
    if given_up == {True}:
        return f"It is given up at {at}."
    words = f"None of these holds it after {at}"
    return f"{words}; what has started by then is given up." if True in given_up else f"{words}."


def vm(shown: Json, now: datetime) -> RenderableType:
    tags = ", ".join(f"{key}={value}" for key, value in shown["tags"].items())
    fields = _fields(
        [
            ("scope", f"{shown['scope']}, update domain {shown['update_domain']}"),
            ("host", _where(shown)),
            ("priority", shown["priority"]),
            ("os", shown.get("os_type") or ""),
            ("address", shown["address"] or ""),
            ("listen", shown["listen"] or ""),
            ("tags", tags),
            ("vm id", shown["vm_id"]),
            ("power", OFF if shown.get("off") else _power(shown)),
            ("host down", "" if shown.get("off") else _host_down(shown)),
            ("problem", Text(shown["problem"], style="red") if shown["problem"] else ""),
            ("told", "yes" if shown["enabled"] else "no, no VM of the scope polls"),
            ("last poll", _last_poll(shown, now)),
        ]
    )
    return Group(_title(f"VM {shown['name']}"), fields, *_events(shown["events"], now))


def _last_poll(shown: Json, now: datetime) -> Text | str:
    """When its agent last read, and whether it has stopped."""
    polled = times.both(shown["polled"], now)
    match shown.get("reading"):
        case "never":
            return "never"
        case "reading":
            return polled
        case "off":
            return f"{polled or 'none since control started'}: it is switched off"
        case "stopped":
            since = polled or "none since control started"
            return Text(f"{since}: its agent has stopped reading", style="bold red")
        case _:
            return f"not known{f', the last that was heard {polled}' if polled else ''}"


def _power(shown: Json) -> str:
    if shown["power"] is None and not shown.get("host_alive", True):
        return "not known: its host is not heard"
    return str(shown["power"] or "")


def _where(shown: Json) -> Text:
    """Its host, and the other one that may run it while it is not known how its move ended."""
    where = Text(shown["host"])
    other = shown.get("may_run_on")  # a service before this one does not say it
    return where.append(f", or {other}: its move was not reported", style="red") if other else where


def _host_down(shown: Json) -> str:
    """What a Freeze and a reboot of its host do to it; nothing where no host has shown it."""
    if shown["when_host_goes_down"] is None:
        return ""
    frozen = MOVED if shown["freeze_by_move"] else "pauses it"
    rebooted = MOVED if shown["when_host_goes_down"] == "move" else "shuts it down and starts it"
    return f"a Freeze of its host {frozen}; a reboot {rebooted}"


def _told(shown: Json, now: datetime) -> str:
    polled = times.both(shown["polled"], now)
    if shown["enabled"]:
        return f"yes, last poll {polled}" if polled else "yes"
    return "no, no VM of the scope polls" + (f" since {polled}" if polled else "")


def _events(items: list[Json], now: datetime) -> list[RenderableType]:
    return [Text(), tables.events(items, now)] if items else [Text(), "No open events."]


def host(shown: Json, now: datetime) -> RenderableType:
    brief = "capacity" not in shown  # as an owner sees it
    fields = _fields([("heartbeat", tables.heard(shown))]) if brief else _host_fields(shown)
    parts: list[RenderableType] = [_title(f"Host {shown['name']}"), fields]
    if shown["vms"]:
        powered = tables.powered(shown["vms"])
        table = tables.new_table("VM", "SCOPE", "DOMAIN", "PRIORITY", "POWER", numbers=("DOMAIN",))
        for one in shown["vms"]:
            domain, power = str(one["update_domain"]), tables.power(one) if powered else ""
            table.add_row(one["name"], one["scope"], domain, one["priority"], power)
        parts.extend([Text(), table])
    if brief:
        return Group(*parts)
    if shown["problems"]:
        parts.extend([Text(), _problems(shown["problems"])])
    if shown["operations"]:
        parts.extend([Text(), tables.operations(shown["operations"], now)])
    return Group(*parts)


def _problems(items: list[Json]) -> Table:
    table = tables.new_table("VM", "PROBLEM")
    for one in items:
        table.add_row(one["vm"], Text(one["problem"], style="red"))
    return table


def _alarm(words: str) -> Text | str:
    """What is wrong with a host, to be seen at once; empty if nothing is."""
    return Text(words, style="bold red") if words else ""


def _host_fields(shown: Json) -> Table:
    places = "" if shown["capacity"] is None else f" of {shown['capacity']}"
    return _fields(
        [
            ("health", tables.health(shown)),
            ("heartbeat", tables.heartbeat(shown)),
            *([("joined", tables.joined(shown))] if shown["joined"] else []),
            ("placement", tables.placement(shown)),
            ("daemons", _alarm(shown["two_daemons"])),
            ("refuses", _alarm(shown["refuses"])),
            ("hypervisor", _alarm(shown["hypervisor_unreachable"])),
            ("VMs", f"{shown['vm_count']}{places}"),
        ]
    )


def scope(shown: Json, now: datetime) -> RenderableType:
    hold = shown["hold"]
    fields = _fields(
        [
            ("kind", shown["kind"]),
            ("told", _told(shown, now)),
            ("incarnation", str(shown["incarnation"])),
            ("VMs", ", ".join(vm["name"] for vm in shown["vms"])),
            ("auto approve", ", ".join(shown["auto_approve"])),
            ("terminate", f"{span(shown['terminate_notice_seconds'])} of notice"),
            ("deleted", ", ".join(shown["deleted"])),
            *(
                (
                    "recovering",
                    (
                        f"update domain {recovery['update_domain']} until"
                        f" {times.both(recovery['until'], now)}, or until"
                        f" {', '.join(recovery['waiting_for'])} has polled"
                    ),
                )
                for recovery in shown["recoveries"]
            ),
            (
                "held",
                Text(
                    f"since {times.both(hold['since'], now)}: event"
                    f" {tables.short(hold['event_id'])} failed, {hold['reason']}."
                    f" `forewarn scope release {shown['name']}` lets it go on.",
                    style="red",
                )
                if hold
                else "",
            ),
        ]
    )
    return Group(_title(f"Scope {shown['name']}"), fields, *_events(shown["events"], now))


def operation(shown: Json, now: datetime) -> RenderableType:
    fields = _fields(
        [
            ("type", f"{shown['event_type']} of host {shown['host']}, cause {shown['cause']}"),
            ("phase", tables.phase(shown["ended_as"] or shown["phase"])),
            ("outcome", "" if shown["outcome"] == shown["ended_as"] else shown["outcome"]),
            ("ordered", f"{times.both(shown['ordered'], now)} by {shown['ordered_by']}"),
            ("not before", _operation_not_before(shown, now)),
            ("window", _window(shown, now)),
            ("local disks", LOST_DISK if shown["lose_disk"] else ""),
            (
                "domains",
                f"broken by {shown['broke_domains_by']}" if shown["broke_domains_by"] else "",
            ),
            ("action", _action(shown["action"]) if shown["action"] else ""),
            ("started", times.both(shown["started"], now)),
            ("ended", times.both(shown["ended"], now)),
        ]
    )
    parts: list[RenderableType] = [_title(f"Operation {shown['operation_id']}"), fields]
    events = [Text(), tables.events(shown["events"], now)] if shown["events"] else []
    return Group(*parts, *events, *silence(shown))


def _window(shown: Json, now: datetime) -> str:
    window = shown["window"]
    return times.window(window["start"], window["end"], now) if window else ""


def _operation_not_before(shown: Json, now: datetime) -> str:
    """The time that holds, first: that of its events where what was ordered was raised."""
    raised = _raised(shown["events"], now)
    last = max((str(event["not_before"]) for event in shown["events"]), default=None)
    return times.both(last if raised else shown["ordered_not_before"], now) + raised


def _raised(events: list[Json], now: datetime) -> str:
    """That the earliest start which an order named was raised, and why; else nothing."""
    last = max(events, key=lambda event: str(event["not_before"]), default=None)
    if last is None or last["ordered_not_before"] is None:
        return ""
    told, named = (times.parse(last[key]) for key in ("not_before", "ordered_not_before"))
    if told - named < timedelta(seconds=1):  # it is a whole second
        return ""
    window = last["window"]
    opens = window is not None and times.parse(window["start"]) > named + timedelta(seconds=1)
    notice = duration_text(round(last["minimum_notice_seconds"] * SECOND_MS))
    why = f"the minimum notice is {notice}"
    if opens and told - times.parse(window["start"]) < timedelta(seconds=1):
        why = "its window opens then"
    raised = f"raised from {times.clock(last['ordered_not_before'], now)}"
    return f" ({raised} to {times.clock(last['not_before'], now)}: {why})"


def silence(answer: Json) -> list[RenderableType]:
    """The scopes whose guests are not told."""
    names = answer["silent_scopes"]
    if not names:
        return []
    are = "scope is" if len(names) == 1 else "scopes are"
    text = (
        f"No guest is told in {', '.join(names)}: the {are} silent (no VM polls), or the VM is off"
        " and stays off."
    )
    return [Text(text, style="yellow")]


def ordered_event(answer: Json, now: datetime) -> RenderableType:
    """The answer to an order for a VM, to an approval, a cancellation, or a postponement."""
    whom = ", ".join(answer["resources"])
    head = Text(f"{answer['event_type']} of {whom} is ").append_text(tables.phase(answer["phase"]))
    head.append(f": event {answer['event_id']}")
    if answer["phase"] == "scheduled":
        head.append(f"\nIt starts {_start(answer, now)}.")
    if answer["phase"] == "scheduled" and answer["event_type"] == "Preempt":
        head.append(f"\nTo withdraw it: `forewarn event cancel {answer['event_id']}`.")
    if "withdrawn" in answer:
        head.append_text(_announced_anew(answer, now))
    others = [event_id for event_id in answer.get("canceled", ()) if event_id != answer["event_id"]]
    if answer["operation_id"] and "canceled" in answer:
        head.append(f"\nIts operation {answer['operation_id']} is canceled whole")
        head.append(f", with event {', '.join(others)}." if others else ".")
    return Group(head, *silence(answer))


def _announced_anew(answer: Json, now: datetime) -> Text:
    """What postponing did beside the event that it was asked for."""
    said = Text(f"\nIt was announced in place of event {answer['withdrawn'][0]}")
    said.append(f", postponed {_postponed(answer)}{_raised([answer], now)}.")
    others = answer["announced"][1:]
    if others:
        said.append(f"\nIts operation is postponed whole, with event {', '.join(others)}.")
    return said


def _start(answer: Json, now: datetime) -> str:
    window = answer["window"]
    soon = "as soon as nothing else holds it"
    if window and now < times.parse(window["start"]):
        soon = f"when its window opens ({_window(answer, now)}) and nothing else holds it"
    if answer["overridden_by"]:
        return f"{soon}: overridden by {answer['overridden_by']}"
    if answer["approved"]:
        return f"{soon}: {answer['approved_by']} approved it"
    if answer["silent"]:
        return soon
    start = tables.moved_start(answer) or answer["not_before"]
    told = f"at {times.both(start, now)}, or once it is approved"
    return f"{told}, but only in its window, {_window(answer, now)}" if window else told


def ordered_host(answer: Json, now: datetime) -> RenderableType:
    """The answer to an order for a host."""
    parts: list[RenderableType] = [_title(f"Host {answer['name']}"), _host_fields(answer)]
    if answer.get("events"):
        parts.extend([Text(), tables.events(answer["events"], now)])
    return Group(*parts, *(silence(answer) if "silent_scopes" in answer else []))


def applied(answer: Json) -> RenderableType:
    """What applying an inventory did."""
    if not answer["differs"] and not answer.get("replaced"):
        return "Nothing changed: this is the inventory that was applied last."
    lines = [f"Replaced: {answer['note']}"] if answer.get("replaced") else []
    for what in ("hosts", "scopes", "vms"):
        for how, names in answer[what].items():
            if names:
                noun = "VMs" if what == "vms" else what
                lines.append(f"{noun} {how}: {', '.join(names)}")
    if answer["still_deleted"]:
        names = ", ".join(answer["still_deleted"])
        lines.append(f"Still deleted by an order, although listed: {names}")
    lines.extend(f"Waits: {words}" for words in answer.get("waiting", ()))
    return Text("\n".join(lines) or "Applied. No host, scope or VM had to change.")
