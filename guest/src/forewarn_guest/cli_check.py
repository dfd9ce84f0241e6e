"""`check`: a dry run. What the agent would do about a document, without doing any of it."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forewarn_guest import config_file, deciding, facts, observing
from forewarn_guest.cli_events import client_of, own_name
from forewarn_guest.cli_run import another_name
from forewarn_guest.configuration import Approve, Configuration, Part, Rule, Step
from forewarn_guest.deciding import Deed, Timing
from forewarn_guest.document import Document, Event
from forewarn_guest.document_reader import read_document
from forewarn_guest.durations import duration
from forewarn_guest.errors import BadAnswer, GuestError
from forewarn_guest.step_input import StepInput
from forewarn_guest.terminal import counted, names, plain, say, say_json
from forewarn_guest.tracked_event import fold_all

DOCUMENT_BYTES_MAX = 1024 * 1024
WHEN = {
    Part.PREPARE: "prepare, while it is scheduled",
    Part.STARTED: "started, when it has started",
    Part.RECOVER: "recover, when it is gone",
    Part.CANCELED: "canceled, if it is gone without having started",
}


def check(options: argparse.Namespace) -> int:
    """Check the configuration, then say of every event what would be done."""
    path: Path = options.config or options.usual_config
    configuration = config_file.read(path)
    warnings = list(configuration.warnings)
    if not options.json:
        rules = counted(len(configuration.rules), "rule")
        say(f"{path} has {rules}, and no mistake.")
        say(*(f"warning: {warning}" for warning in warnings))
    if options.document is not None:
        document, vm = _from_file(options.document, configuration), configuration.vm
    else:
        with client_of(options, configuration) as client:
            document = client.document()
            vm = configuration.vm or own_name(client, configuration)
            doubt = another_name(client, vm) if configuration.vm and not options.vm else ""
        if doubt:
            warnings.append(doubt)
        if doubt and not options.json:
            say(f"warning: {doubt}")
    vm = options.vm or vm
    if not vm:
        raise GuestError(
            "What this VM is called is not known, so no event can be said to name it.",
            'Give --vm NAME, or write vm = "NAME" under [agent].',
        )
    found = [outlook(event, document, configuration, vm) for event in document.events]
    if options.json:
        say_json({"configuration": str(path), "vm": vm, "warnings": warnings, "events": found})
        return 0
    say(f"This VM is {plain(vm)}; the document has {counted(len(found), 'event')}.")
    for event, expected in zip(document.events, found):
        say("", *_lines(event, expected))
    if any(expected.get("now") for expected in found):
        say(
            "",
            "This is for an event that is new to the agent; `forewarn-guest status` says what was"
            " done.",
        )
    return 0


def _from_file(path: Path, configuration: Configuration) -> Document:
    """A document that was saved. It has no Date, so it does not say how much time is left."""
    try:
        with path.open("rb") as file:
            data = file.read(DOCUMENT_BYTES_MAX)
    except OSError as error:
        raise GuestError(f"{path} cannot be read: {error.strerror}.") from None
    document = read_document(
        data, api_version=configuration.api_version, received_s=time.monotonic(), headers={}
    )
    if document is None:
        raise BadAnswer(f"{path} is empty, which is no document.")
    return document


def outlook(
    event: Event, document: Document, configuration: Configuration, vm: str
) -> dict[str, Any]:
    """What would become of an event that is seen for the first time in this document."""
    rule = observing.rule_for(event, configuration.rules)
    shown: dict[str, Any] = {
        "event_id": event.event_id,
        "event_type": event.event_type,
        "event_status": event.status,
        "names_this_vm": event.names(vm),
        "seconds_left": document.seconds_left(event),
        "rule": None if rule is None else rule.name,
        "rule_line": None if rule is None else rule.line,
    }
    if not event.names(vm):
        return {**shown, "rule": None, "rule_line": None, "approval": "it does not name this VM"}
    if rule is None:
        return {**shown, "approval": "never: no rule matches"}
    if rule.ignore:
        return {**shown, "approval": f"never: rule {rule.name} leaves it alone"}
    left_s = document.seconds_left(event)
    shown["now"] = _now(event, document, configuration, vm)
    shown["parts"] = {
        part.value: [
            _step(event, rule, part, step, vm=vm, left_s=left_s) for step in rule.steps(part)
        ]
        for part in Part
        if not (part is Part.PREPARE and event.started)
    }
    shown["approval"] = approval(event, rule, vm)
    return shown


def _now(event: Event, document: Document, configuration: Configuration, vm: str) -> list[str]:
    """The first thing that the agent would do, from what decides in the agent itself."""
    at = facts.now()
    rules = configuration.rules
    seen = observing.observe(document, {}, vm=vm, rules=rules, boot_id="", at=at)
    tracked_events = fold_all(seen)
    now_s = document.received_s
    left = {
        tracked.tracked_id: document.seconds_left(tracked.event)
        for tracked in tracked_events.values()
    }
    timings = {
        tracked_id: Timing(not_before_s=None if left_s is None else now_s + left_s)
        for tracked_id, left_s in left.items()
    }
    decision = deciding.decide(tracked_events, configuration, timings, vm=vm, now_s=now_s)
    mine = [tracked.tracked_id for tracked in tracked_events.values() if tracked.key == event.key]
    return [_deed(deed) for deed in decision.deeds if deed.tracked in mine]


def _deed(deed: Deed) -> str:
    if isinstance(deed, deciding.RunStep):
        return f"run step {deed.step.name} of {deed.part.value}, for {deed.limit_s:g} s at most"
    if isinstance(deed, deciding.LeaveOut):
        return f"leave out step {deed.step} of {deed.part.value}: {deed.why}"
    if isinstance(deed, deciding.SayGoAhead):
        return "approve it"
    if isinstance(deed, deciding.Withhold):
        return f"withhold approval: {deed.why}"
    return "nothing"


def _step(
    event: Event, rule: Rule, part: Part, step: Step, *, vm: str, left_s: float | None
) -> dict[str, Any]:
    limit_s = step.limit_s
    if part is Part.PREPARE and left_s is not None:
        limit_s = min(limit_s, left_s - rule.margin_s)
    if part is not Part.PREPARE:
        left_s = None  # it has come, or it never will
    first_named = bool(event.resources) and event.resources[0].casefold() == vm.casefold()
    occasion = StepInput(event, vm, part, step, first_named=first_named, left_s=left_s)
    return {
        "step": step.name,
        "kind": step.kind,
        "run": list(step.argv),
        "options": dict(step.options),
        "limit_seconds": max(0.0, limit_s),
        "optional": step.optional,
        "on_unknown": step.on_unknown.value,
        "line": step.line,
        "environment": _of_the_event(occasion.environment()),
    }


def _of_the_event(environment: Mapping[str, str]) -> dict[str, str]:
    """What the agent adds to its own environment."""
    added = ("FOREWARN_VM", "FOREWARN_PART", "FOREWARN_STEP")
    return {
        name: value
        for name, value in environment.items()
        if name.startswith("FOREWARN_EVENT_") or name in added
    }


def approval(event: Event, rule: Rule, vm: str) -> str:
    """When the event would be approved, and by whom, in words."""
    if event.started:
        return "never: it has started"
    if rule.approve is Approve.NEVER:
        return f"never: rule {rule.name} says so"
    if rule.approve is Approve.AT_ONCE:
        return "at once, before anything is prepared"
    after = "when every prepare step is done" if rule.prepare else "at once: nothing is prepared"
    if rule.approve is Approve.AFTER_PREPARE:
        return after
    order = [name.casefold() for name in event.resources]
    turn = order.index(vm.casefold())
    if turn == 0:
        return f"{after}, because this VM is named first"
    waits = duration(turn * rule.take_over_s)
    return f"only if none of the {turn} VMs named before it has approved {waits} after that"


def _lines(event: Event, expected: Mapping[str, Any]) -> list[str]:
    left = duration(expected["seconds_left"])
    head = f"{plain(event.event_type)} {plain(event.status)} {plain(event.event_id)}"
    lines = [f"{head}: {names(event)}" + (f", {left} left" if left != "-" else "")]
    if expected["rule"]:
        lines.append(f"  rule {expected['rule']} (line {expected['rule_line']})")
    lines += [f"  now: {deed}" for deed in expected.get("now", ())]
    for part, steps in expected.get("parts", {}).items():
        if steps:
            lines.append(f"  {WHEN[Part(part)]}:")
        lines += [_step_line(step) for step in steps]
    lines.append(f"  approval: {expected['approval']}")
    first = next((step for steps in expected.get("parts", {}).values() for step in steps), None)
    if first is not None:
        lines.append(f"  what {first['step']} is told, and likewise the others:")
        told = first["environment"].items()
        lines += [f"    {name}={plain(value)}" for name, value in told]
    return lines


def _step_line(step: Mapping[str, Any]) -> str:
    limit = f"{step['limit_seconds']:g} s at most" if step["limit_seconds"] else "no time left"
    optional = ", optional" if step["optional"] else ""
    command = plain(shlex.join(step["run"]), 300)
    return f"    {step['step']} (line {step['line']}, {limit}{optional}): {command}"
