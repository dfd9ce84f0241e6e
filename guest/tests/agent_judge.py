"""Judges what an agent did, by the story of the world and the journal as it was kept.

It reads facts by itself, one by one, and neither folds nor decides: a mistake there must not be
able to excuse itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agent_world import Execution, Happening, World
from forewarn_guest.configuration import Approve, OnUnknown, Part, Rule, Step
from forewarn_guest.facts import Fact, FactKind, Outcome

BACK = (Part.RECOVER, Part.CANCELED)


class Broken(AssertionError):  # noqa: N818 - says what is the case
    """A promise about steps is not kept in this world."""


@dataclass
class Record:
    """What the journal says of one sighting, as far as it has been read."""

    tracked: str
    rule: Rule | None
    rule_name: str
    key: str
    not_before: str | None
    started: bool
    first_seen_started: bool
    since_s: float
    gone: str = ""
    closed: bool = False
    handed_to: str = ""
    handed_by: list[str] = field(default_factory=list)
    inherits_ended: bool = False
    prepared_elsewhere: bool = False
    booted: bool = False  # since what is prepared for it was
    changed: bool = False
    intended: dict[tuple[Part, str], int] = field(default_factory=dict)
    ends: dict[tuple[Part, str, int], str] = field(default_factory=dict)
    counts: dict[tuple[Part, str], str] = field(default_factory=dict)
    left_out: dict[tuple[Part, str], str] = field(default_factory=dict)

    @property
    def unfinished(self) -> bool:
        return not self.closed and not self.handed_to

    def prepared(self) -> bool:
        assert self.rule is not None
        return self.prepared_elsewhere or all(map(self._settled, self.rule.prepare))

    def _settled(self, step: Step) -> bool:
        place = (Part.PREPARE, step.name)
        if step.optional:
            return place in self.counts or place in self.left_out
        return self.counts.get(place) == "done"


class Judge:
    """Goes through a story once; `Broken` says which promise was broken, and where."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rules = {rule.name: rule for rule in world.rules}
        self._records: dict[str, Record] = {}
        self._now_s = 0.0
        self._ran: set[tuple[str, Part, str, int]] = set()

    def judge(self) -> None:
        for happening in self._world.story:
            if happening.what == "kept" and happening.fact is not None:
                self._now_s = happening.at_s
                self._fact(happening.fact)
            elif happening.what == "run" and happening.execution is not None:
                self._execution(happening.execution)
            elif happening.what == "approved":
                self._approval(happening.key)
            elif happening.what == "looked":
                self._looked(happening)
        self._overlaps()
        for record in self._records.values():
            _complete(record)

    # The journal, fact by fact.

    def _fact(self, fact: Fact) -> None:
        if fact.kind is FactKind.APPEARED:
            self._appeared(fact)
            return
        record = self._records.get(fact.tracked)
        if record is None:
            return
        _hold(not record.closed, record, f"{fact.kind.value} after it was closed")
        if fact.kind is FactKind.NOT_BEGUN:
            self._not_begun(record, fact)
        elif fact.kind in (FactKind.INTENDED, FactKind.ENDED, FactKind.RULED, FactKind.LEFT_OUT):
            self._step(record, fact)
        elif fact.kind is FactKind.GONE:
            record.gone = fact.detail["how"]
            self._really(record)
        elif fact.kind is FactKind.SHARED:
            self._shared(record, fact)
        elif fact.kind is FactKind.HANDED_OVER:
            self._handed_over(record, fact)
        else:
            _note(record, fact)

    def _appeared(self, fact: Fact) -> None:
        _hold(fact.tracked not in self._records, None, f"{fact.tracked} appeared twice")
        event: dict[str, Any] = fact.detail["event"]
        started = event["event_status"] == "Started"
        self._records[fact.tracked] = Record(
            tracked=fact.tracked,
            rule=self._rules.get(fact.detail["rule"]),
            rule_name=fact.detail["rule"],
            key=event["event_id"].upper(),
            not_before=event["not_before"],
            started=started,
            first_seen_started=started,
            since_s=self._now_s,
        )

    def _shared(self, record: Record, fact: Fact) -> None:
        by = self._records[fact.detail["by"]]
        _hold(by.rule is record.rule and by.prepared(), record, "shares what is not prepared")
        _hold(by.unfinished and not by.gone, record, "shares with one that does not stand")
        _hold(not by.booted, record, "shares what was prepared before a boot")
        record.prepared_elsewhere, record.booted = True, False

    def _handed_over(self, record: Record, fact: Fact) -> None:
        heir = self._records[fact.detail["to"]]
        _hold(bool(record.gone), record, "handed over while it stands")
        _hold(heir.rule is record.rule and heir.unfinished, record, "handed over to nobody")
        record.handed_to = heir.tracked
        heir.handed_by.append(record.tracked)
        heir.inherits_ended |= record.gone == "ended" or record.inherits_ended
        if fact.detail["prepared"]:
            _hold(record.prepared(), record, "handed over as prepared, which it is not")
            brought_back = any(part in BACK for part, _ in record.intended)
            _hold(not brought_back, record, "handed over as prepared after bringing back")
            _hold(not record.booted, record, "handed over as prepared after a boot")
            heir.prepared_elsewhere, heir.booted = True, False

    def _step(self, record: Record, fact: Fact) -> None:
        part, name = Part(fact.detail["part"]), fact.detail["step"]
        if fact.kind is FactKind.LEFT_OUT:
            _hold((part, name) not in record.intended, record, f"{name} left out after it was run")
            _hold((part, name) not in record.left_out, record, f"{name} left out twice")
            record.left_out[part, name] = fact.detail["why"]
            return
        attempt = fact.detail["attempt"]
        if fact.kind is FactKind.INTENDED:
            self._intended(record, part, name, attempt)
        elif fact.kind is FactKind.ENDED:
            _hold((part, name, attempt) not in record.ends, record, f"{name} ended twice")
            record.ends[part, name, attempt] = fact.detail["outcome"]
            if fact.detail["outcome"] != "unknown":
                record.counts[part, name] = fact.detail["outcome"]
                self._as_it_was(record, part, name, attempt)
        else:
            _hold(record.ends.get((part, name, attempt)) == "unknown", record, "ruled, but known")
            wanted = _find(record, part, name).on_unknown is OnUnknown.TREAT_AS_DONE
            counts_as = fact.detail["counts_as"]
            _hold((counts_as == "done") == wanted, record, f"{name} is unknown, not {counts_as}")
            record.counts[part, name] = counts_as

    def _not_begun(self, record: Record, fact: Fact) -> None:
        part, name, attempt = Part(fact.detail["part"]), fact.detail["step"], fact.detail["attempt"]
        ran = (record.tracked, part, name, attempt) in self._ran
        _hold(not ran, record, f"{name} was run, and is said not to have been")
        _hold(record.intended.get((part, name)) == attempt, record, f"{name} was not intended")
        if attempt == 1:
            del record.intended[part, name]
        else:
            record.intended[part, name] = attempt - 1

    def _as_it_was(self, record: Record, part: Part, name: str, attempt: int) -> None:
        outcome = record.counts[part, name]
        run = self._world.find(record.tracked, part, name, attempt)
        same = outcome == Outcome.FAILED.value if run is None else outcome == run.outcome.value
        _hold(same, record, f"{name} did not end as {outcome}")

    def _intended(self, record: Record, part: Part, name: str, attempt: int) -> None:
        rule = record.rule
        assert rule is not None
        _hold((part, name) not in record.left_out, record, f"{name} run after it was left out")
        before = record.intended.get((part, name), 0)
        _hold(attempt == before + 1, record, f"{name}: attempt {attempt} after {before}")
        if attempt > 1:
            unknown = record.ends.get((part, name, before)) == "unknown"
            repeat = _find(record, part, name).on_unknown is OnUnknown.REPEAT
            _hold(unknown and repeat, record, f"{name} silently run again")
        record.intended[part, name] = attempt
        started, gone = record.started, bool(record.gone)
        may = {
            Part.PREPARE: not started and not gone,
            Part.STARTED: started and not gone,
            Part.RECOVER: gone and (record.gone == "ended" or record.inherits_ended),
            Part.CANCELED: gone and record.gone == "canceled" and not record.inherits_ended,
        }
        _hold(may[part], record, f"{name} of {part.value} is not for now")
        if part in BACK:
            others = [r for r in self._same_rule(record) if r.unfinished]
            _hold(not others, record, f"{name} brings back under {[r.tracked for r in others]}")
        if part is Part.PREPARE:
            _hold(not record.prepared_elsewhere, record, f"{name} although prepared already")
        self._in_order(record, part, name)

    def _same_rule(self, record: Record) -> list[Record]:
        same = (r for r in self._records.values() if r.rule_name == record.rule_name)
        return [other for other in same if other is not record]

    def _in_order(self, record: Record, part: Part, name: str) -> None:
        assert record.rule is not None
        for step in record.rule.steps(part):
            if step.name == name:
                return
            counts_as = record.counts.get((part, step.name))
            dealt = counts_as is not None or (part, step.name) in record.left_out
            _hold(dealt, record, f"{name} before {step.name}")
            stops = part is Part.PREPARE and not step.optional and counts_as != "done"
            _hold(not stops, record, f"{name} although {step.name} was not done")

    def _really(self, record: Record) -> None:
        """What has surely happened must not be taken for canceled."""
        meant = [
            sighting
            for sighting in self._world.sightings
            if sighting.key == record.key
            and sighting.since_s <= self._now_s
            and (sighting.gone_s is None or sighting.gone_s > record.since_s)
        ]
        if record.gone == "canceled" and len(meant) == 1:  # else nobody could tell them apart
            wrong = meant[0].really_started and not meant[0].approved_by_others
            _hold(not wrong, record, "taken for canceled, but it has happened")

    # What was really done.

    def _execution(self, run: Execution) -> None:
        place = (run.tracked, run.part, run.step, run.attempt)
        record = self._records[run.tracked]
        _hold(place not in self._ran, record, f"{run.step} was run twice")
        self._ran.add(place)
        intended = record.intended.get((run.part, run.step))
        _hold(intended == run.attempt, record, f"{run.step} run, and the journal does not say so")
        known = run.part is Part.PREPARE and not record.changed and record.not_before is not None
        if known and record.rule is not None and record.not_before is not None:
            began = self._world.date().fromisoformat(record.not_before) - self._world.date()
            left_s = began.total_seconds() + self._world.now_s - run.began_s
            over_s = run.limit_s + record.rule.margin_s - left_s
            _hold(over_s <= 0.001, record, f"{run.step} may run {over_s} s too long")

    def _approval(self, key: str) -> None:
        open_ones = [r for r in self._records.values() if r.key == key and not r.gone]
        _hold(len(open_ones) == 1, None, f"{key} approved, which is in nobody's tracked event")
        record = open_ones[0]
        rule = record.rule
        _hold(rule is not None and not rule.ignore, record, "approved without a rule")
        assert rule is not None
        _hold(rule.approve is not Approve.NEVER, record, "approved, never to be")
        _hold(not record.gone and not record.started, record, "approved too late")
        ready = rule.approve is Approve.AT_ONCE or record.prepared()
        _hold(ready, record, "approved before it was prepared")

    def _looked(self, happening: Happening) -> None:
        standing = {r.key: r for r in self._records.values() if not r.gone}
        shown = happening.shown
        if set(standing) != set(shown):  # long words, and there is a look at every turn
            raise Broken(f"{sorted(shown)} shown, tracked events: {standing}")
        for key, status in shown.items():
            started = standing[key].started
            _hold(started or status == "Scheduled", standing[key], "Started was not noticed")

    def _overlaps(self) -> None:
        runs = self._world.executions
        for number, one in enumerate(runs):
            for other in runs[number + 1 :]:
                if one.ended_s is not None and other.began_s >= one.ended_s:
                    continue
                record, beside = self._records[one.tracked], self._records[other.tracked]
                both = f"{one.step} of {one.tracked} beside {other.step} of {other.tracked}"
                _hold(one.tracked != other.tracked, record, both)
                exclusive = Part.STARTED not in (one.part, other.part)
                same = exclusive and record.rule_name == beside.rule_name
                _hold(not same, record, both)


def _note(record: Record, fact: Fact) -> None:
    if fact.kind is FactKind.STARTED:
        record.started = True
    elif fact.kind is FactKind.CHANGED:
        record.changed = True
    elif fact.kind is FactKind.BOOTED:
        scheduled = not record.started and not record.gone
        own = any(part is Part.PREPARE for part, _ in record.intended)
        record.booted = own or not scheduled
        record.prepared_elsewhere &= not scheduled
    elif fact.kind is FactKind.CLOSED:
        record.closed = True


def _find(record: Record, part: Part, name: str) -> Step:
    assert record.rule is not None
    return next(step for step in record.rule.steps(part) if step.name == name)


def _hold(true: object, record: Record | None, what: str) -> None:
    if not true:
        raise Broken(what if record is None else f"{record.tracked}: {what} ({record})")


def _complete(record: Record) -> None:
    """At the end, each sighting is closed, and each step was run, or the journal says why not."""
    _hold(record.closed, record, "not closed in the end")
    rule = record.rule
    if rule is None or rule.ignore:
        _hold(not record.intended, record, "has run steps that no rule has")
        return
    ended = record.gone == "ended" or record.inherits_ended
    back, other = (Part.RECOVER, Part.CANCELED) if ended else (Part.CANCELED, Part.RECOVER)
    for part in (Part.PREPARE, Part.STARTED, back):
        for step in rule.steps(part):
            place = (part, step.name)
            said = place in record.counts or place in record.left_out
            if part is Part.PREPARE:
                said = said or record.prepared_elsewhere or record.first_seen_started
            elif part is back:
                said = said or bool(record.handed_to)
            _hold(said, record, f"{step.name} of {part.value} was silently skipped")
    _hold(all(part is not other for part, _ in record.intended), record, "brought back wrongly")
    _nothing_left_prepared(record, rule, back)


def _nothing_left_prepared(record: Record, rule: Rule, back: Part) -> None:
    """What was prepared is brought back by steps that ran, or is handed over."""
    touched = any(part is Part.PREPARE for part, _ in record.intended)
    if record.handed_to or not (touched or record.prepared_elsewhere or record.handed_by):
        return
    for step in rule.steps(back):
        _hold(
            (back, step.name) in record.intended, record, f"{step.name} left out of bringing back"
        )
