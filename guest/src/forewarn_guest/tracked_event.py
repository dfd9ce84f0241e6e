"""Facts folded into tracked events: everything the agent knows about one sighting of one event.

A tracked event is made by the fact that its event appeared and ends with the fact that it is
closed. Only `fold` changes one, and only by a fact: so what is known after a crash is what was
known before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from forewarn_guest.configuration import Part
from forewarn_guest.document import Event
from forewarn_guest.facts import Fact, FactKind, Gone, Outcome, event_from_json

Place = tuple[Part, str]  # a list of steps, and the name of one in it


_OF_STEPS = frozenset(
    {
        FactKind.INTENDED,
        FactKind.BEGUN,
        FactKind.NOT_BEGUN,
        FactKind.ENDED,
        FactKind.RULED,
        FactKind.LEFT_OUT,
    }
)


class Stage(Enum):
    """How far one run of a step has come."""

    INTENDED = "intended"
    BEGUN = "begun"
    ENDED = "ended"


@dataclass
class Run:
    """The latest run of a step. `counts_as` is its outcome, or what an unknown end counts as."""

    part: Part
    step: str
    attempt: int
    stage: Stage = Stage.INTENDED
    pid: int = 0
    start_ticks: int = 0
    boot_id: str = ""
    outcome: Outcome | None = None
    counts_as: Outcome | None = None
    detail: str = ""

    @property
    def open(self) -> bool:
        return self.stage is not Stage.ENDED


@dataclass
class TrackedEvent:
    """One sighting of an event that names this VM.

    `rule` is empty if no rule matches. `runs` has the latest run of each step, `left_out` why a
    step was not run. `prepared_by` is the tracked event that had this VM prepared already.
    `inherits` is true if a tracked event that ended handed its recovery over to this one.
    `ready_with_others` is true if one of these two has the VM prepared for this event too; a boot
    ends that, because it may have started again what was stopped. `before_boot` is true if what was
    prepared for this event was prepared before a boot: it counts for this event, and no other
    shares it.
    """

    tracked_id: str
    event: Event
    rule: str
    boot_id: str
    started: bool = False
    first_seen_started: bool = False
    gone: Gone | None = None
    runs: dict[Place, Run] = field(default_factory=dict)
    left_out: dict[Place, str] = field(default_factory=dict)
    prepared_by: str = ""
    inherits: Gone | None = None
    ready_with_others: bool = False
    before_boot: bool = False
    seen_boot_id: str = ""
    handed_over_to: str = ""
    approving: bool = False
    approved: bool = False
    withheld: str = ""
    closed: bool = False

    @property
    def key(self) -> str:
        return self.event.key

    @property
    def sighting(self) -> int:
        """Which sighting of the event this is. The journal may have forgotten those before it."""
        return int(self.tracked_id.rpartition("#")[2])

    def run(self, part: Part, step: str) -> Run | None:
        return self.runs.get((part, step))

    def counts_as(self, part: Part, step: str) -> Outcome | None:
        """What the step counts as; None while that is not decided."""
        run = self.runs.get((part, step))
        return None if run is None or run.open else run.counts_as

    def touched(self, part: Part) -> bool:
        """True if a step of the part was run, or may have been."""
        return any(place[0] is part for place in self.runs)


def fold(tracked_events: dict[str, TrackedEvent], fact: Fact) -> None:
    """Let a fact have happened. Facts about closed or unknown tracked events change nothing."""
    if fact.kind is FactKind.APPEARED:
        tracked_events[fact.tracked] = _appeared(fact)
        return
    tracked = tracked_events.get(fact.tracked)
    if tracked is None or tracked.closed:
        return
    if fact.kind in _OF_STEPS:
        _step(tracked, fact)
    elif fact.kind is FactKind.HANDED_OVER:
        _hand_over(tracked_events, tracked, fact)
    else:
        _event(tracked, fact)


def _event(tracked: TrackedEvent, fact: Fact) -> None:
    if fact.kind is FactKind.STARTED:
        tracked.started = True
        tracked.event = event_from_json(fact.detail["event"])
    elif fact.kind is FactKind.CHANGED:
        tracked.event = event_from_json(fact.detail["event"])
    elif fact.kind is FactKind.GONE:
        tracked.gone = Gone(fact.detail["how"])
    elif fact.kind is FactKind.SHARED:
        tracked.prepared_by = fact.detail["by"]
        tracked.ready_with_others, tracked.before_boot = True, False
    elif fact.kind is FactKind.BOOTED:
        _booted(tracked, fact)
    elif fact.kind is FactKind.APPROVING:
        tracked.approving = True
    elif fact.kind is FactKind.APPROVED:
        tracked.approved, tracked.withheld = True, ""
    elif fact.kind is FactKind.WITHHELD:
        tracked.withheld = fact.detail["why"]
    elif fact.kind is FactKind.CLOSED:
        tracked.closed = True


def fold_all(facts: Iterable[Fact]) -> dict[str, TrackedEvent]:
    """The tracked events that these facts, in this order, make; closed ones included."""
    tracked_events: dict[str, TrackedEvent] = {}
    for fact in facts:
        fold(tracked_events, fact)
    return tracked_events


def unfinished(tracked_events: Mapping[str, TrackedEvent]) -> set[str]:
    """Those that are not closed, and those that have handed something over to one of them."""
    wanted = {tracked_id for tracked_id, tracked in tracked_events.items() if not tracked.closed}
    while True:
        heirs = {i for i, tracked in tracked_events.items() if tracked.handed_over_to in wanted}
        if heirs <= wanted:
            return wanted
        wanted |= heirs


def _appeared(fact: Fact) -> TrackedEvent:
    event = event_from_json(fact.detail["event"])
    return TrackedEvent(
        tracked_id=fact.tracked,
        event=event,
        rule=fact.detail["rule"],
        boot_id=fact.detail["boot_id"],
        seen_boot_id=fact.detail["boot_id"],
        started=event.started,
        first_seen_started=event.started,
    )


def _hand_over(tracked_events: dict[str, TrackedEvent], tracked: TrackedEvent, fact: Fact) -> None:
    tracked.handed_over_to = fact.detail["to"]
    heir = tracked_events.get(tracked.handed_over_to)
    if heir is None:
        return
    # What has happened outweighs what was canceled: there is more to bring back.
    if heir.inherits is not Gone.ENDED:
        heir.inherits = tracked.inherits if tracked.inherits is Gone.ENDED else tracked.gone
    if fact.detail["prepared"]:
        heir.ready_with_others, heir.before_boot = True, False


def _booted(tracked: TrackedEvent, fact: Fact) -> None:
    scheduled = not tracked.started and tracked.gone is None
    tracked.seen_boot_id = fact.detail["boot_id"]
    tracked.before_boot = tracked.touched(Part.PREPARE) or not scheduled
    tracked.ready_with_others = tracked.ready_with_others and not scheduled


def _step(tracked: TrackedEvent, fact: Fact) -> None:
    part, name = Part(fact.detail["part"]), fact.detail["step"]
    if fact.kind is FactKind.LEFT_OUT:
        tracked.left_out[part, name] = fact.detail["why"]
        return
    attempt = fact.detail["attempt"]
    if fact.kind is FactKind.INTENDED:
        tracked.runs[part, name] = Run(part=part, step=name, attempt=attempt)
        return
    run = tracked.runs.get((part, name))
    if run is None or run.attempt != attempt:
        return
    if fact.kind is FactKind.BEGUN:
        run.stage = Stage.BEGUN
        run.pid = fact.detail["pid"]
        run.start_ticks = fact.detail["start_ticks"]
        run.boot_id = fact.detail["boot_id"]
    elif fact.kind is FactKind.ENDED:
        run.stage = Stage.ENDED
        run.outcome = Outcome(fact.detail["outcome"])
        run.counts_as = None if run.outcome is Outcome.UNKNOWN else run.outcome
        run.detail = fact.detail.get("detail", "")
    elif fact.kind is FactKind.RULED:
        run.counts_as = Outcome(fact.detail["counts_as"])
    elif fact.kind is FactKind.NOT_BEGUN:
        _take_back(tracked, run)


def _take_back(tracked: TrackedEvent, run: Run) -> None:
    """Let it be as it was before the run was intended."""
    if run.attempt == 1:
        del tracked.runs[run.part, run.step]
        return
    # Only a run whose end is not recorded is repeated.
    tracked.runs[run.part, run.step] = Run(
        part=run.part,
        step=run.step,
        attempt=run.attempt - 1,
        stage=Stage.ENDED,
        outcome=Outcome.UNKNOWN,
    )
