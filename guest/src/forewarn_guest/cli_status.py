"""The commands that only read files: status and journal. They work when the agent is down."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from forewarn_guest import config_file
from forewarn_guest.atomic_files import surely_missing
from forewarn_guest.cli_run import journal_path
from forewarn_guest.configuration import Configuration
from forewarn_guest.durations import duration
from forewarn_guest.errors import GuestError
from forewarn_guest.facts import TRACKED_EVENT, TRACKED_EVENT_BEFORE, tracked_in
from forewarn_guest.journal import facts_in
from forewarn_guest.run_files import boot_id, identity_of
from forewarn_guest.status import read_status, status_path
from forewarn_guest.terminal import counted, plain, say, say_json

OLD_S = 30.0  # the agent writes its status file every ten seconds


def show_status(options: argparse.Namespace) -> int:
    """`status`: what the agent does, or that it does not run. 0 if it runs, 1 if not."""
    path = options.file or status_path(_configuration(options))
    content = read_status(path)
    now = datetime.now(timezone.utc)
    try:
        life, runs = _life(content["agent"], now)
        lines = _lines(content, now)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise GuestError(f"{path} is no status file of this version: {error!r}.") from None
    if options.json:
        say_json({**content, "running_now": runs, "says": life})
    else:
        say(life, *lines)
    return 0 if runs else 1


def _life(agent: Mapping[str, Any], now: datetime) -> tuple[str, bool]:
    """Whether the agent that wrote this lives, in words."""
    age_s = (now - datetime.fromisoformat(agent["written"])).total_seconds()
    ago = f"{duration(max(0.0, age_s))} ago"
    if agent["ended"]:
        return f"The agent does not run: it was told to end, {ago}.", False
    alive = agent["boot_id"] == boot_id() and (
        identity_of(agent["pid"]).start_ticks == agent["start_ticks"]
    )
    if not alive:
        says = f"The agent does not run: process {agent['pid']} is gone, last heard of {ago}."
        return f"{says} The next agent goes on from what is in the journal.", False
    if age_s > OLD_S:
        says = f"The agent runs (process {agent['pid']}), but last wrote this file {ago}"
        return f"{says}: what follows is how it was then. Is the disk full, or does it hang?", True
    return f"The agent runs (process {agent['pid']}, since {agent['began']}).", True


def _lines(content: Mapping[str, Any], now: datetime) -> list[str]:
    agent = content["agent"]
    answer = "no answer yet"
    if agent["last_answer"]:
        age_s = (now - datetime.fromisoformat(agent["last_answer"])).total_seconds()
        answer = f"last good answer {duration(max(0.0, age_s))} ago"
    vm = plain(content.get("vm") or "not known yet")
    lines = [f"This VM is {vm}. Endpoint {plain(agent['endpoint']) or 'not found yet'}, {answer}."]
    if not content.get("events"):
        others = content.get("events_of_others") or 0
        beside = f"; the document has {others} for other VMs" if others else ""
        lines.append(f"No event is open{beside}.")
    for event in content.get("events", []):
        lines += _event_lines(event)
    not_back = content.get("counts", {}).get("not_brought_back")
    if not_back:
        lines.append(
            f"After {counted(not_back, 'event')} not everything was brought back: `forewarn-guest"
            " journal` and the log say which step has failed."
        )
    if content.get("facts_not_kept"):
        waiting = content["facts_not_kept"]
        lines.append(f"The journal cannot be written: {waiting} facts wait, and so does approval.")
    pauses = content.get("pauses", {})
    if pauses.get("times"):
        last = pauses["last"]
        lines.append(
            f"The VM stood still {pauses['times']} times, {pauses['seconds']} s in all; last"
            f" {last['seconds']} s ({last['how']}) at {last['at']}."
        )
    lines += [
        f"Trouble at {error['at']}: {plain(error['kind'])}: {plain(error['why'], 300)}"
        for error in content.get("errors", [])
    ]
    return lines


def _event_lines(event: Mapping[str, Any]) -> list[str]:
    rule = f"rule {plain(event['rule'])}" if event["rule"] else "no rule"
    when = event["not_before"] or "-"
    gone = f", {plain(event['gone'])}" if event["gone"] else ""
    what = f"{plain(event['event_type'])} {plain(event['event_status'])}{gone}"
    lines = [f"{what}, {plain(event['event_id'])}, not before {when}, {rule}"]
    lines += [
        f"  {step['part']} {plain(step['step'])}: {step['outcome']}"
        + (f" ({plain(step['detail'])})" if step["detail"] else "")
        for step in event["steps"]
    ]
    lines += [
        f"  {left['part']} {plain(left['step'])}: left out, {plain(left['why'])}"
        for left in event["left_out"]
    ]
    return [*lines, f"  approval: {plain(event['approval'], 300)}"]


def show_journal(options: argparse.Namespace) -> int:
    """`journal`: every fact, oldest first."""
    path: Path = options.file or journal_path(_configuration(options))
    if surely_missing(path):
        raise GuestError(f"There is no journal at {path}.", "Has an agent run here?")
    for fact in facts_in(path):
        say(json.dumps(fact) if options.json else _fact_line(fact))
    return 0


def _fact_line(fact: Mapping[str, Any]) -> str:
    shown = {
        name: value
        for name, value in fact.items()
        if name not in ("fact", "at", TRACKED_EVENT, TRACKED_EVENT_BEFORE)
    }
    event = shown.pop("event", None)
    if isinstance(event, dict):
        shown = {"event_type": event.get("event_type"), **shown}
    detail = "".join(
        f" {name}={plain(value if isinstance(value, str) else json.dumps(value))}"
        for name, value in shown.items()
        if value not in ("", None)
    )
    tracked = plain(tracked_in(fact) or "-")
    return f"{plain(str(fact.get('at')))} {tracked} {plain(str(fact.get('fact')))}{detail}"


def _configuration(options: argparse.Namespace) -> Configuration:
    path: Path | None = options.config
    if path is None and not surely_missing(options.usual_config):
        path = options.usual_config
    return Configuration(rules=()) if path is None else config_file.read(path)
