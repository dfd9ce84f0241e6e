"""What to do next, from what is known. Pure: tracked events, rules and the time in, deeds out.

The agent does the deeds in order, keeps a fact for each, and asks again; when nothing is to be
done it is told when to ask next at the latest. One rule is one way of being prepared: several
events under the same rule share it. The first has the VM prepared, the last has it recovered, and
preparing never runs beside bringing back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Union

from forewarn_guest.configuration import Approve, Configuration, OnUnknown, Part, Rule, Step
from forewarn_guest.facts import Gone, Outcome
from forewarn_guest.tracked_event import TrackedEvent

APPROVE_AGAIN_S = (5.0, 10.0, 30.0, 60.0)  # after each try; the last for all further ones
ATTEMPTS_AT_MOST = 10  # a step that ends its own agent must not be repeated for ever

NO_TIME = "no time was left before the event may start"
EARLIER_FAILED = "an earlier step had failed"
HAS_STARTED = "the event had started"
IS_GONE = "the event was gone"
NOTHING_TO_UNDO = "nothing had been prepared"
WITHOUT_RULE = "the configuration no longer has its rule"


@dataclass(frozen=True)
class RunStep:
    """Begin a step; stop it when its time is over."""

    tracked: str
    part: Part
    step: Step
    attempt: int
    limit_s: float


@dataclass(frozen=True)
class CountAs:
    """Say what a step whose end is not recorded counts as."""

    tracked: str
    part: Part
    step: str
    attempt: int
    outcome: Outcome


@dataclass(frozen=True)
class LeaveOut:
    """Say that a step is not run, and why."""

    tracked: str
    part: Part
    step: str
    why: str


@dataclass(frozen=True)
class Share:
    """Say that this VM is prepared already, for another tracked event of the same rule."""

    tracked: str
    by: str


@dataclass(frozen=True)
class HandOver:
    """Leave the recovery to another tracked event of the same rule, which still stands."""

    tracked: str
    to: str
    prepared: bool


@dataclass(frozen=True)
class SayGoAhead:
    """Approve the event."""

    tracked: str


@dataclass(frozen=True)
class Withhold:
    """Say why the event is not approved."""

    tracked: str
    why: str


@dataclass(frozen=True)
class Close:
    """Nothing is left to be done about this sighting."""

    tracked: str


Deed = Union[RunStep, CountAs, LeaveOut, Share, HandOver, SayGoAhead, Withhold, Close]


@dataclass(frozen=True)
class Timing:
    """What only the running agent knows of a tracked event, on its monotonic clock.

    `not_before_s` is when the event may start, None if not known. `prepared_s` is when the
    agent first found the VM prepared, `approvals` how often it has said go ahead, and `approved_s`
    when last.
    """

    not_before_s: float | None = None
    prepared_s: float | None = None
    approvals: int = 0
    approved_s: float | None = None


@dataclass
class Decision:
    """What to do now, and when to look again if nothing else happens until then."""

    deeds: list[Deed] = field(default_factory=list)
    look_again_s: float | None = None

    def look_at(self, at_s: float) -> None:
        """Look again then, or earlier."""
        if self.look_again_s is None or at_s < self.look_again_s:
            self.look_again_s = at_s


def decide(
    tracked_events: Mapping[str, TrackedEvent],
    configuration: Configuration,
    timings: Mapping[str, Timing],
    *,
    vm: str,
    now_s: float,
) -> Decision:
    """What to do now about every open tracked event. A deed is decided again until it is done."""
    decision = Decision()
    for tracked in tracked_events.values():
        if not tracked.closed:
            timing = timings.get(tracked.tracked_id, Timing())
            rule = configuration.rule(tracked.rule)
            deciding = _Deciding(
                tracked,
                rule,
                decision,
                tracked_events=tracked_events,
                timing=timing,
                vm=vm,
                now_s=now_s,
            )
            deciding.decide()
    return decision


def prepared(tracked: TrackedEvent, rule: Rule) -> bool:
    """True if the VM is ready for this event: each step done, or optional, or shared."""
    if tracked.ready_with_others:
        return True
    return all(_settled(tracked, step) for step in rule.prepare)


def _settled(tracked: TrackedEvent, step: Step) -> bool:
    counts_as = tracked.counts_as(Part.PREPARE, step.name)
    if step.optional:
        return counts_as is not None or (Part.PREPARE, step.name) in tracked.left_out
    return counts_as is Outcome.DONE


class _Deciding:
    """One tracked event, at one instant."""

    def __init__(
        self,
        tracked: TrackedEvent,
        rule: Rule | None,
        decision: Decision,
        *,
        tracked_events: Mapping[str, TrackedEvent],
        timing: Timing,
        vm: str,
        now_s: float,
    ) -> None:
        self._tracked = tracked
        self._tracked_events = tracked_events
        self._timing = timing
        self._vm = vm
        self._now_s = now_s
        self._decision = decision
        self._rule = rule

    def _do(self, deed: Deed) -> None:
        self._decision.deeds.append(deed)

    def decide(self) -> None:
        tracked, rule = self._tracked, self._rule
        if any(run.open for run in tracked.runs.values()):
            self._approve_meanwhile()
            return  # one step of an event at a time; its end is news
        if tracked.rule and (rule is None or (rule.ignore and tracked.runs)):
            self._withhold(WITHOUT_RULE)
            self._close_if_gone()
        elif rule is None or rule.ignore:
            self._close_if_gone()
        elif self._count_unknown(rule):
            return
        elif tracked.gone is not None:
            self._gone(rule, tracked.gone)
        elif tracked.started:
            self._leave_out(rule, Part.PREPARE, HAS_STARTED)
            self._part(rule, Part.STARTED)
        else:
            self._scheduled(rule)

    def _approve_meanwhile(self) -> None:
        tracked, rule = self._tracked, self._rule
        scheduled = not tracked.started and tracked.gone is None
        if rule is not None and rule.approve is Approve.AT_ONCE and scheduled:
            self._approve()

    def _close_if_gone(self) -> None:
        if self._tracked.gone is not None:
            self._do(Close(self._tracked.tracked_id))

    # Steps whose end is not recorded.

    def _count_unknown(self, rule: Rule) -> bool:
        """Deal with the first step that has ended and counts as nothing yet."""
        for run in self._tracked.runs.values():
            if run.counts_as is not None:
                continue
            step = next((s for s in rule.steps(run.part) if s.name == run.step), None)
            how = OnUnknown.TREAT_AS_FAILED if step is None else step.on_unknown
            again = how is OnUnknown.REPEAT and run.attempt < ATTEMPTS_AT_MOST
            if again and step is not None and self._can_still_run(rule, run.part, step):
                self._run(rule, run.part, step, run.attempt + 1)
            else:
                done = how is OnUnknown.TREAT_AS_DONE
                outcome = Outcome.DONE if done else Outcome.FAILED
                tracked_id = self._tracked.tracked_id
                self._do(CountAs(tracked_id, run.part, run.step, run.attempt, outcome))
            return True
        return False

    def _can_still_run(self, rule: Rule, part: Part, step: Step) -> bool:
        tracked = self._tracked
        if part is Part.PREPARE:
            scheduled = not tracked.started and tracked.gone is None
            return scheduled and self._limit_s(rule, part, step) > 0
        if part is Part.STARTED:
            return tracked.gone is None
        return self._heir(rule) is None  # else the heir brings back, after its own event

    # The life of an event.

    def _scheduled(self, rule: Rule) -> None:
        if rule.approve is Approve.AT_ONCE:
            self._approve()
        if not prepared(self._tracked, rule):
            other = self._preparing_first(rule)
            if other is not None:
                if _for_others(other, rule):
                    self._do(Share(self._tracked.tracked_id, other.tracked_id))
                return  # or wait: the VM is being prepared for another event
            if any(other.gone is not None for other in self._unfinished(rule)):
                return  # the VM is being brought back: that ends, and is handed over, first
            if not self._part(rule, Part.PREPARE):
                return
        if prepared(self._tracked, rule):
            self._say_go_ahead(rule)
        elif rule.approve is not Approve.AT_ONCE:
            self._withhold(self._why_unprepared(rule))

    def _unfinished(self, rule: Rule) -> Iterator[TrackedEvent]:
        """The other events under the same rule that stand, or are gone and not yet seen to."""
        return (other for other in self._under(rule) if other is not self._tracked)

    def _earlier(self, rule: Rule) -> Iterator[TrackedEvent]:
        """Those of `_unfinished` that appeared before this one."""
        return takewhile(lambda other: other is not self._tracked, self._under(rule))

    def _under(self, rule: Rule) -> Iterator[TrackedEvent]:
        for tracked in self._tracked_events.values():  # in the order in which they appeared
            if tracked is self._tracked or (
                tracked.rule == rule.name and not tracked.closed and not tracked.handed_over_to
            ):
                yield tracked

    def _preparing_first(self, rule: Rule) -> TrackedEvent | None:
        """An earlier event under the same rule for which the VM is, or can still be, prepared."""
        for other in self._earlier(rule):
            if other.gone is not None:
                continue
            if _may_have_begun(other):
                return other
            if _for_others(other, rule):
                return other
            if not prepared(other, rule) and not other.started and not _stuck(other, rule):
                return other
        return None

    def _why_unprepared(self, rule: Rule) -> str:
        tracked = self._tracked
        for step in rule.prepare:
            outcome = tracked.counts_as(Part.PREPARE, step.name)
            if outcome is not None and outcome is not Outcome.DONE and not step.optional:
                run = tracked.run(Part.PREPARE, step.name)
                how = outcome if run is None or run.outcome is None else run.outcome
                return f"step {step.name} of prepare: {how.value}"
        for step in rule.prepare:
            why = tracked.left_out.get((Part.PREPARE, step.name))
            if why is not None:
                return f"step {step.name} of prepare was left out: {why}"
        return "not prepared"

    def _gone(self, rule: Rule, gone: Gone) -> None:
        tracked = self._tracked
        self._leave_out(rule, Part.PREPARE, IS_GONE)
        self._leave_out(rule, Part.STARTED, IS_GONE)
        if tracked.handed_over_to:
            self._do(Close(tracked.tracked_id))
            return
        part = Part.RECOVER if Gone.ENDED in (gone, tracked.inherits) else Part.CANCELED
        undo = (
            tracked.touched(Part.PREPARE)
            or bool(tracked.prepared_by)
            or tracked.inherits is not None
        )
        heir = self._heir(rule) if undo or part is Part.RECOVER else None
        if heir is not None:
            still = not tracked.touched(Part.RECOVER) and not tracked.touched(Part.CANCELED)
            self._do(
                HandOver(tracked.tracked_id, heir.tracked_id, still and _for_others(tracked, rule))
            )
            return
        if any(other.gone is not None for other in self._earlier(rule)):
            return  # it is about to hand over to this one
        if part is Part.CANCELED and not undo:
            self._leave_out(rule, part, NOTHING_TO_UNDO)
        elif not self._part(rule, part):
            return
        self._do(Close(tracked.tracked_id))

    def _heir(self, rule: Rule) -> TrackedEvent | None:
        """Who sees to the recovery instead: an event under the same rule that still stands.

        If none stands, the one that appeared last: events that end together are recovered from
        once.
        """
        last = self._tracked
        for other in self._under(rule):
            if other is not self._tracked and other.gone is None:
                return other
            last = other
        return None if last is self._tracked else last

    # Lists of steps.

    def _part(self, rule: Rule, part: Part) -> bool:
        """Go on with a list of steps. True once each was run or left out, for good."""
        tracked, failed = self._tracked, False
        for step in rule.steps(part):
            if (part, step.name) in tracked.left_out:
                continue
            counts_as = tracked.counts_as(part, step.name)
            if counts_as is not None:
                failed = failed or (counts_as is not Outcome.DONE and not step.optional)
            elif failed and part is Part.PREPARE:
                self._do(LeaveOut(tracked.tracked_id, part, step.name, EARLIER_FAILED))
            else:
                self._run(rule, part, step, 1)
                return False
        return not any(_leaves_out(deed, tracked.tracked_id, part) for deed in self._decision.deeds)

    def _run(self, rule: Rule, part: Part, step: Step, attempt: int) -> None:
        """Have the step run. Bringing back goes on after a failure; preparing has only so long."""
        limit_s = self._limit_s(rule, part, step)
        if limit_s <= 0:
            self._do(LeaveOut(self._tracked.tracked_id, part, step.name, NO_TIME))
        else:
            self._do(RunStep(self._tracked.tracked_id, part, step, attempt, limit_s))

    def _limit_s(self, rule: Rule, part: Part, step: Step) -> float:
        at_s = self._timing.not_before_s
        if part is not Part.PREPARE or at_s is None:
            return step.limit_s
        return min(step.limit_s, at_s - rule.margin_s - self._now_s)

    def _leave_out(self, rule: Rule, part: Part, why: str) -> None:
        """Say of every step of the list that was never run that it will not be."""
        tracked = self._tracked
        for step in rule.steps(part):
            place = (part, step.name)
            if place not in tracked.runs and place not in tracked.left_out:
                if part is Part.PREPARE and (
                    tracked.ready_with_others or tracked.first_seen_started
                ):
                    continue  # it was not for this event to run them
                self._do(LeaveOut(tracked.tracked_id, part, step.name, why))

    # Approval.

    def _say_go_ahead(self, rule: Rule) -> None:
        if rule.approve is Approve.AFTER_PREPARE:
            self._approve()
        elif rule.approve is Approve.FIRST_NAMED:
            self._approve_in_turn(rule)

    def _approve_in_turn(self, rule: Rule) -> None:
        """The first name approves; each further one waits one time longer for those before it."""
        names = list(dict.fromkeys(name.casefold() for name in self._tracked.event.resources))
        mine = self._vm.casefold()
        turn = names.index(mine) if mine in names else len(names)
        since_s = self._timing.prepared_s
        from_s = (self._now_s if since_s is None else since_s) + turn * rule.take_over_s
        if self._now_s >= from_s:
            self._approve()
        else:
            self._decision.look_at(from_s)

    def _approve(self) -> None:
        timing = self._timing
        if timing.approved_s is not None:
            tries = min(timing.approvals, len(APPROVE_AGAIN_S)) - 1
            again_s = timing.approved_s + APPROVE_AGAIN_S[max(0, tries)]
            if self._now_s < again_s:
                self._decision.look_at(again_s)
                return
        self._do(SayGoAhead(self._tracked.tracked_id))

    def _withhold(self, why: str) -> None:
        if self._tracked.withheld != why and self._rule_approves():
            self._do(Withhold(self._tracked.tracked_id, why))

    def _rule_approves(self) -> bool:
        return self._rule is None or self._rule.approve is not Approve.NEVER


def _for_others(tracked: TrackedEvent, rule: Rule) -> bool:
    """True if the VM, prepared for this event, is so for other events under the rule too."""
    return prepared(tracked, rule) and not tracked.before_boot


def _stuck(tracked: TrackedEvent, rule: Rule) -> bool:
    """True if the VM will not be prepared for this event any more."""
    for step in rule.prepare:
        if (Part.PREPARE, step.name) in tracked.left_out:
            return True
        counts_as = tracked.counts_as(Part.PREPARE, step.name)
        if counts_as is not None and counts_as is not Outcome.DONE and not step.optional:
            return True
    return False


def _may_have_begun(tracked: TrackedEvent) -> bool:
    """True if a prepare step may be running, or may have run to an end that is not known."""
    runs = (run for (part, _), run in tracked.runs.items() if part is Part.PREPARE)
    return any(run.counts_as is None for run in runs)


def _leaves_out(deed: Deed, tracked_id: str, part: Part) -> bool:
    return isinstance(deed, LeaveOut) and deed.tracked == tracked_id and deed.part is part


def steps_of(rule: Rule) -> Iterator[tuple[Part, Step]]:
    """Every step of a rule, list by list."""
    for part in Part:
        for step in rule.steps(part):
            yield part, step
