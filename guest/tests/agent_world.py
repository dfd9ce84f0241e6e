"""A small world for a model of the agent: events that come and go, processes, crashes, a clock.

Everything is drawn from one seed. The world knows what really happened; it never looks at what
the agent believes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from forewarn_guest.configuration import Approve, OnUnknown, Part, Rule, Step
from forewarn_guest.document import SCHEDULED, STARTED, Document, Event
from forewarn_guest.facts import Fact, Outcome

VM = "web_0"
EPOCH = datetime(2026, 1, 1, tzinfo=timezone.utc)
BUSY_S = 300.0  # for so long there is news
END_S = 1500.0  # by then everything must have come to its end

TYPES = ("Freeze", "Reboot", "Redeploy", "Terminate")


class Crash(Exception):  # noqa: N818 - says what is the case
    """The agent is dead from here on; what is kept is kept."""


@dataclass(eq=False)
class Execution:
    """One process that really was started."""

    tracked: str
    part: Part
    step: str
    attempt: int
    began_s: float
    limit_s: float
    ends_s: float
    outcome: Outcome
    ended_s: float | None = None
    recorded: bool = False  # it left behind how it ended


@dataclass(frozen=True)
class Happening:
    """One line of the story: what was kept, what was run, what was said, what was looked at."""

    what: str
    at_s: float
    fact: Fact | None = None
    execution: Execution | None = None
    key: str = ""
    shown: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Sighting:
    """What really became of an event while it was in the document."""

    key: str
    since_s: float
    really_started: bool = False
    approved_by_others: bool = False
    gone_s: float | None = None


@dataclass(eq=False)
class Told:
    """One event as the world has it. `fate` is drawn when it appears."""

    event_id: str
    event_type: str
    source: str
    resources: tuple[str, ...]
    appears_s: float
    not_before_s: float
    fate: dict[str, Any]
    status: str = ""  # empty: not in the document
    due_s: float | None = None
    started_s: float = 0.0
    gone_s: float | None = None
    sighting: Sighting | None = None


class World:
    """Time, events, processes. `story` is everything that happened, in order."""

    def __init__(
        self, seed: int, *, crashes: float | None = None, crash_at: frozenset[int] = frozenset()
    ) -> None:
        self._draw = random.Random(seed)
        self._crash_draw = random.Random(seed + 1_000_003)
        self._crash_rate = (
            self._draw.choice((0.0, 0.01, 0.05, 0.15)) if crashes is None else crashes
        )
        self._crash_at = crash_at
        self.points = 0
        self.now_s = 0.0
        self.boots = 1
        self.story: list[Happening] = []
        self.kept: list[Fact] = []
        self.executions: list[Execution] = []
        self.sightings: list[Sighting] = []
        self.agent_lives = False
        self.rules = _rules(self._draw)
        self.events = [_told(self._draw, number) for number in range(self._draw.randint(1, 4))]

    @property
    def boot_id(self) -> str:
        return f"boot-{self.boots}"

    @property
    def calm(self) -> bool:
        return self.now_s > BUSY_S and all(
            told.status == "" and told.gone_s is not None for told in self.events
        )

    def chance(self, share: float) -> bool:
        return self._draw.random() < share

    def crash_point(self) -> None:
        """Here the agent may die."""
        self.points += 1
        rate = 0.0 if self.now_s > BUSY_S else self._crash_rate
        if self.points in self._crash_at or self._crash_draw.random() < rate:
            raise Crash

    def happen(self, what: str, **more: Any) -> None:
        self.story.append(Happening(what, self.now_s, **more))

    # What the agent can do here.

    def keep(self, fact: Fact) -> None:
        """Make a fact durable."""
        self.crash_point()
        self.kept.append(fact)
        self.happen("kept", fact=fact)
        self.crash_point()

    def begin(self, tracked: str, part: Part, step: str, attempt: int, limit_s: float) -> Execution:
        takes_s = self._draw.choice((0.0, 1.0, 5.0, 20.0, 60.0))
        outcome = Outcome.FAILED if self.chance(0.15) else Outcome.DONE
        ends_s = self.now_s + takes_s
        run = Execution(tracked, part, step, attempt, self.now_s, limit_s, ends_s, outcome)
        self.executions.append(run)
        self.happen("run", execution=run)
        return run

    def stop(self, run: Execution) -> None:
        run.ended_s, run.outcome, run.recorded = self.now_s, Outcome.TIMED_OUT, True

    def find(self, tracked: str, part: Part, step: str, attempt: int) -> Execution | None:
        wanted = (tracked, part, step, attempt)
        for run in self.executions:
            if (run.tracked, run.part, run.step, run.attempt) == wanted:
                return run
        return None

    def approve(self, key: str) -> None:
        self.happen("approved", key=key)
        for told in self.events:
            if told.event_id.upper() == key and told.status == SCHEDULED and told.due_s is None:
                told.due_s = self.now_s + told.fate["late_s"]

    def document(self) -> Document:
        events = tuple(_event(told) for told in self.events if told.status)
        return Document(
            incarnation="1", events=events, date=self.date(), received_s=self.now_s, etag="1"
        )

    def date(self) -> datetime:
        return EPOCH + timedelta(seconds=self.now_s)

    # What happens by itself.

    def turn(self, seconds: float | None = None) -> None:
        """Let some time pass."""
        self.now_s += self._draw.choice((1.0, 2.0, 5.0)) if seconds is None else seconds
        for run in self.executions:
            if run.ended_s is None and run.ends_s <= self.now_s:
                run.ended_s = run.ends_s
                run.recorded = self.agent_lives or self.chance(0.6)
        for told in self.events:
            if not told.status:
                self._appear(told)
            elif told.status == SCHEDULED:
                self._due(told)
            elif self.now_s >= told.started_s + told.fate["lasts_s"]:
                self._vanish(told)

    def reboot(self) -> None:
        """Everything that runs is dead, and nobody recorded how it ended."""
        self.boots += 1
        for run in self.executions:
            if run.ended_s is None:
                run.ended_s = self.now_s

    def _appear(self, told: Told) -> None:
        first = told.gone_s is None and self.now_s >= told.appears_s
        back = told.gone_s is not None and told.fate.get("back_s") is not None
        if not first and not (back and self.now_s >= told.gone_s + told.fate["back_s"]):
            return
        if not first:
            told.fate = {**told.fate, "back_s": None}
        told.sighting = Sighting(told.event_id.upper(), self.now_s)
        self.sightings.append(told.sighting)
        told.status, told.due_s = SCHEDULED, None
        told.not_before_s = self.now_s + told.fate["notice_s"]
        if told.fate["at_once"]:
            self._start(told)

    def _due(self, told: Told) -> None:
        fate = told.fate
        since_s = told.not_before_s - fate["notice_s"]
        if fate["moves_s"] and self.now_s >= since_s + 10:
            told.not_before_s += fate["moves_s"]
            told.fate = {**fate, "moves_s": 0.0}
        if fate["others_s"] is not None and self.now_s >= since_s + fate["others_s"]:
            assert told.sighting is not None
            told.sighting.approved_by_others = True
            told.due_s = self.now_s if told.due_s is None else told.due_s
        late = told.not_before_s + fate["late_s"]
        if self.now_s >= (late if told.due_s is None else min(late, told.due_s)):
            self._start(told)
        elif (
            fate["cancel_s"] is not None
            and told.due_s is None
            and self.now_s >= since_s + fate["cancel_s"]
        ):
            self._vanish(told)

    def _start(self, told: Told) -> None:
        assert told.sighting is not None
        told.status, told.started_s = STARTED, self.now_s
        told.sighting.really_started = True

    def _vanish(self, told: Told) -> None:
        assert told.sighting is not None
        told.status, told.gone_s = "", self.now_s
        told.sighting.gone_s = self.now_s


def _event(told: Told) -> Event:
    scheduled = told.status == SCHEDULED
    return Event(
        event_id=told.event_id,
        event_type=told.event_type,
        status=told.status,
        resources=told.resources,
        not_before=EPOCH + timedelta(seconds=told.not_before_s) if scheduled else None,
        source=told.source,
    )


def _told(draw: random.Random, number: int) -> Told:
    names = draw.choice(((VM,), ("web_1", VM), (VM, "web_1"), ("web_1",)))
    return Told(
        event_id=f"e{number}",
        event_type=draw.choice(TYPES),
        source=draw.choice(("Platform", "User")),
        resources=names,
        appears_s=draw.choice((0.0, 0.0, 30.0, 60.0, draw.uniform(0, 200))),
        not_before_s=0.0,
        fate={
            "notice_s": draw.choice((15.0, 30.0, 100.0, 200.0)),
            "cancel_s": draw.choice((None, None, 2.0, 20.0, 60.0)),
            "others_s": draw.choice((None, None, None, 40.0)),
            "late_s": draw.choice((0.0, 0.0, 1.0, 20.0)),
            "lasts_s": draw.choice((0.0, 1.0, 10.0, 50.0)),
            "back_s": draw.choice((None, None, 0.0, 3.0, 40.0)),
            "moves_s": draw.choice((0.0, 0.0, 0.0, 30.0)),
            "at_once": draw.random() < 0.15,
        },
    )


def _steps(draw: random.Random, part: str, most: int) -> tuple[Step, ...]:
    return tuple(
        Step(
            name=f"{part}-{number}",
            kind="command",
            argv=("/bin/true",),
            limit_s=draw.choice((10.0, 30.0, 90.0)),
            on_unknown=draw.choice(tuple(OnUnknown)),
            optional=draw.random() < 0.2,
        )
        for number in range(draw.randint(0, most))
    )


def _rules(draw: random.Random) -> tuple[Rule, ...]:
    found = [
        Rule(
            name=f"rule-{number}",
            event_types=types,
            ignore=draw.random() < 0.05,
            approve=draw.choice((Approve.AFTER_PREPARE, Approve.AFTER_PREPARE, *Approve)),
            take_over_s=20.0,
            margin_s=draw.choice((0.0, 5.0)),
            prepare=_steps(draw, "prepare", 3),
            started=_steps(draw, "started", 2),
            recover=_steps(draw, "recover", 3),
            canceled=draw.choice((None, _steps(draw, "undo", 2))),
        )
        for number, types in enumerate(draw.choice((((),), (("Freeze", "Reboot"), ()))))
    ]
    return tuple(found)
