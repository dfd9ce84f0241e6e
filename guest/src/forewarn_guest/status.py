"""What the agent shows of itself, as JSON: made from a View, and read back from its file. Pure,
but for the reading.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forewarn_guest.agent import View
from forewarn_guest.configuration import Approve, Configuration, Part, Rule
from forewarn_guest.errors import GuestError
from forewarn_guest.tracked_event import TrackedEvent

STATUS_BYTES_MAX = 16 * 1024 * 1024  # a document has one at most; JSON can make six of it
RESOURCES_SHOWN_MAX = 100


def status_path(configuration: Configuration) -> Path:
    """Where the status file is: as configured, else beside the journal."""
    return configuration.status_file or configuration.folder / "status.json"


def of_view(view: View, configuration: Configuration) -> dict[str, Any]:
    """What a view says. Nothing in it changes by the mere passing of time."""
    document = view.document
    running = [
        {"tracked_event": tracked, "part": part, "step": step}
        for tracked, part, step in view.running
    ]
    return {
        "vm": view.vm,
        "incarnation": None if document is None else document.incarnation,
        "events": [_event(tracked, view, configuration) for tracked in view.tracked_events],
        "events_of_others": 0
        if document is None
        else sum(1 for event in document.events if not event.names(view.vm)),
        "running": running,
        "facts_not_kept": view.unkept,
        "counts": dict(view.counts),
    }


def _event(tracked: TrackedEvent, view: View, configuration: Configuration) -> dict[str, Any]:
    event = tracked.event
    steps = [
        {
            "part": run.part.value,
            "step": run.step,
            "attempt": run.attempt,
            "outcome": "running" if run.outcome is None else run.outcome.value,
            "detail": run.detail,
        }
        for run in tracked.runs.values()
    ]
    left_out = [
        {"part": part.value, "step": step, "why": why}
        for (part, step), why in tracked.left_out.items()
    ]
    return {
        "tracked_event": tracked.tracked_id,
        "event_id": event.event_id,
        "event_type": event.event_type,
        "event_status": event.status,
        "not_before": None if event.not_before is None else event.not_before.isoformat(),
        "source": event.source,
        "resources": list(event.resources[:RESOURCES_SHOWN_MAX]),
        "rule": tracked.rule,
        "gone": None if tracked.gone is None else tracked.gone.value,
        "steps": steps,
        "left_out": left_out,
        "approved": tracked.approved,
        "approval": approval(tracked, view, configuration),
    }


def approval(tracked: TrackedEvent, view: View, configuration: Configuration) -> str:
    """How it stands with approval: that it was given, or what it waits for, in words."""
    if tracked.approved:
        return "approved"
    if tracked.gone is not None:
        return "the event is gone"
    if tracked.started:
        return "the event has started"
    rule = configuration.rule(tracked.rule)
    if rule is None:
        return tracked.withheld or "no rule matches, so it is never approved"
    return _never(rule) or _waits(tracked, rule, view)


def _never(rule: Rule) -> str:
    if rule.ignore:
        return f"rule {rule.name} leaves it alone"
    return f"rule {rule.name} never approves" if rule.approve is Approve.NEVER else ""


def _waits(tracked: TrackedEvent, rule: Rule, view: View) -> str:
    if tracked.withheld:
        return f"withheld: {tracked.withheld}"
    if tracked.approving:
        return "was sent, and is sent again until the endpoint has taken it"
    if view.unkept:
        return "waits until the journal can be written"
    for tracked_id, part, step in view.running:
        if tracked_id == tracked.tracked_id and part == Part.PREPARE.value:
            return f"waits for step {step} of prepare"
    first = first_resource(tracked)
    if rule.approve is Approve.FIRST_NAMED and first.casefold() != view.vm.casefold():
        return f"left to {first}, which is named first"
    return "about to be approved"


def first_resource(tracked: TrackedEvent) -> str:
    """The name that the event names first, or empty."""
    return tracked.event.resources[0] if tracked.event.resources else ""


def read_status(path: Path) -> Mapping[str, Any]:
    """What a status file says. Raises GuestError if the file is missing or is something else."""
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(STATUS_BYTES_MAX))
    except FileNotFoundError:
        raise GuestError(
            f"There is no status file at {path}.",
            "Is the agent running? It is started by `forewarn-guest run --config FILE`.",
        ) from None
    except OSError as error:
        raise GuestError(
            f"{path} cannot be read: {error.strerror}.",
            "Ask as root, or write status_file under [agent]: a place that others may enter."
            if error.errno == errno.EACCES
            else "",
        ) from None
    except ValueError:
        raise GuestError(f"{path} is no status file: it holds no JSON.") from None
    if not isinstance(content, dict) or "agent" not in content:
        raise GuestError(f"{path} is no status file of the agent.")
    return content
