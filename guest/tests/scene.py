"""One agent without crashes or processes, for tests that tell a story line by line.

`show` is a document, `end` the end of a step. Everything that follows at once has happened when
they return; `lines` says what, a line for each fact, and `approved` who was let go.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from forewarn_guest.configuration import Configuration, Part, Rule, Step
from forewarn_guest.deciding import (
    Close,
    CountAs,
    Deed,
    HandOver,
    LeaveOut,
    RunStep,
    SayGoAhead,
    Share,
    Timing,
    Withhold,
    decide,
    prepared,
)
from forewarn_guest.document import STARTED, Document, Event
from forewarn_guest.facts import Fact, FactKind, Outcome, from_json
from forewarn_guest.observing import booted, observe
from forewarn_guest.tracked_event import TrackedEvent, fold, fold_all

EPOCH = datetime(2026, 1, 1, tzinfo=timezone.utc)
VM = "web_0"
ROUNDS_AT_MOST = 50


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def event(name: str = "E1", *, not_before_s: float | None = 900.0, **more: Any) -> Event:
    """A Reboot of this VM, scheduled, unless said otherwise."""
    given = {"event_type": "Reboot", "status": "Scheduled", "resources": (VM,), **more}
    when = None if not_before_s is None else at(not_before_s)
    return Event(event_id=name, not_before=when, **given)


def started(given: Event) -> Event:
    """The same event once it has started: without a NotBefore, as the wire has it."""
    return replace(given, status=STARTED, not_before=None)


def step(name: str, **more: Any) -> Step:
    given = {"kind": "command", "argv": ("/bin/true",), "limit_s": 60.0, **more}
    return Step(name=name, **given)


def rule(name: str = "all", *, prepare: Any = ("drain",), **more: Any) -> Rule:
    """A rule that drains and comes back, unless said otherwise. Steps may be names."""
    lists: dict[str, Any] = {"prepare": prepare, "recover": ("return",)}
    lists.update(more)
    for part in Part:
        if lists.get(part.value) is not None:
            steps = (step(s) if isinstance(s, str) else s for s in lists[part.value])
            lists[part.value] = tuple(steps)
    return Rule(name=name, **lists)


class Scene:
    """An agent and what it has done so far."""

    def __init__(self, *rules: Rule, vm: str = VM) -> None:
        self.configuration = Configuration(rules=rules)
        self.vm = vm
        self.now_s = 0.0
        self.boot_id = "boot-1"
        self.tracked_events: dict[str, TrackedEvent] = {}
        self.facts: list[Fact] = []
        self.running: dict[str, RunStep] = {}
        self.limits: dict[str, float] = {}
        self.approved: list[str] = []
        self.lines: list[str] = []
        self.look_again_s: float | None = None
        self._timings: dict[str, Timing] = {}

    def show(self, *events: Event, at_s: float | None = None, dated: bool = True) -> Scene:
        """A document comes, with these events and nothing else."""
        self.now_s = self.now_s if at_s is None else at_s
        document = Document(
            "1", events, date=at(self.now_s) if dated else None, received_s=self.now_s
        )
        seen = observe(
            document,
            self.tracked_events,
            vm=self.vm,
            rules=self.configuration.rules,
            boot_id=self.boot_id,
            at=at(self.now_s),
        )
        for fact in seen:
            self.keep(fact)
        for tracked in self.tracked_events.values():
            shown = document.event(tracked.key)
            left_s = None if shown is None else document.seconds_left(shown)
            if tracked.gone is None and left_s is not None:
                self._time(tracked.tracked_id, not_before_s=self.now_s + left_s)
        return self.settle()

    def end(self, name: str, outcome: Outcome = Outcome.DONE, at_s: float | None = None) -> Scene:
        """A step that runs comes to its end. `name` is the step, or `tracked event step`."""
        self.now_s = self.now_s if at_s is None else at_s
        run = next(key for key in self.running if key == name or key.endswith(f" {name}"))
        deed = self.running.pop(run)
        self._fact(FactKind.ENDED, deed.tracked, **_place(deed), outcome=outcome.value)
        return self.settle()

    def restart(self, *rules: Rule, reboots: bool = False) -> Scene:
        """The agent dies, and what ran is over by the time it comes back: nobody knows how."""
        self.configuration = Configuration(rules=rules or self.configuration.rules)
        self.boot_id = "boot-2" if reboots else self.boot_id
        self._timings.clear()
        kept = [from_json(json.loads(json.dumps(fact.to_json()))) for fact in self.facts]
        self.tracked_events = fold_all(kept)
        for deed in self.running.values():
            self._fact(FactKind.ENDED, deed.tracked, **_place(deed), outcome="unknown")
        self.running.clear()
        for fact in booted(self.tracked_events.values(), boot_id=self.boot_id, at=at(self.now_s)):
            self.keep(fact)
        return self

    def wait(self, until_s: float) -> Scene:
        self.now_s = until_s
        return self.settle()

    def keep(self, fact: Fact) -> None:
        self.facts.append(fact)
        fold(self.tracked_events, fact)
        told = [str(fact.detail[key]) for key in _TOLD if key in fact.detail]
        self.lines.append(" ".join((fact.tracked, fact.kind.value, *told)))

    def settle(self) -> Scene:
        """Decide and do until nothing is left."""
        for _ in range(ROUNDS_AT_MOST):
            deeds = self._decide()
            if not deeds:
                return self
            for deed in deeds:
                self._do(deed)
        raise AssertionError(f"never settles: {deeds}")

    def _decide(self) -> list[Deed]:
        for tracked in self.tracked_events.values():
            meant = self.configuration.rule(tracked.rule)
            known = self._timings.get(tracked.tracked_id, Timing()).prepared_s is not None
            if not known and meant is not None and prepared(tracked, meant):
                self._time(tracked.tracked_id, prepared_s=self.now_s)
        decision = decide(
            self.tracked_events, self.configuration, self._timings, vm=self.vm, now_s=self.now_s
        )
        self.look_again_s = decision.look_again_s
        return decision.deeds

    def _time(self, tracked: str, **changes: Any) -> None:
        self._timings[tracked] = replace(self._timings.get(tracked, Timing()), **changes)

    def _fact(self, kind: FactKind, tracked: str, **detail: Any) -> None:
        self.keep(Fact(kind, at(self.now_s), tracked, detail))

    def _do(self, deed: Deed) -> None:
        if isinstance(deed, RunStep):
            self._fact(FactKind.INTENDED, deed.tracked, **_place(deed))
            assert deed.tracked not in {run.tracked for run in self.running.values()}, (
                "two at a time"
            )
            self.running[f"{deed.tracked} {deed.step.name}"] = deed
            self.limits[deed.step.name] = deed.limit_s
        elif isinstance(deed, SayGoAhead):
            before = self._timings.get(deed.tracked, Timing()).approvals
            self._time(deed.tracked, approvals=before + 1, approved_s=self.now_s)
            self.approved.append(deed.tracked)
            self._fact(FactKind.APPROVED, deed.tracked)
        elif isinstance(deed, CountAs):
            place = {"part": deed.part.value, "step": deed.step, "attempt": deed.attempt}
            self._fact(FactKind.RULED, deed.tracked, **place, counts_as=deed.outcome.value)
        elif isinstance(deed, LeaveOut):
            place = {"part": deed.part.value, "step": deed.step}
            self._fact(FactKind.LEFT_OUT, deed.tracked, **place, why=deed.why)
        elif isinstance(deed, Share):
            self._fact(FactKind.SHARED, deed.tracked, by=deed.by)
        elif isinstance(deed, HandOver):
            self._fact(FactKind.HANDED_OVER, deed.tracked, to=deed.to, prepared=deed.prepared)
        elif isinstance(deed, Withhold):
            self._fact(FactKind.WITHHELD, deed.tracked, why=deed.why)
        else:
            assert isinstance(deed, Close)
            self._fact(FactKind.CLOSED, deed.tracked)


_TOLD = ("how", "part", "step", "outcome", "counts_as", "why", "by", "to")


def _place(deed: RunStep) -> dict[str, Any]:
    return {"part": deed.part.value, "step": deed.step.name, "attempt": deed.attempt}
