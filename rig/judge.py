"""Did it happen as it was announced? Judged from what guests said and what the journal says.

Pure: evidence in, complaints out. The judge trusts guests' consoles and libvirt for what happened,
control for what was promised, and compares the two on this machine's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from rig.consoles import Line

# A guest speaks once a second, later on a busy machine; so much more than a second may pass.
SILENCE_S = 4.0
# A console line is read a moment after it was written, and clocks are compared in milliseconds.
READING_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything about one event and one VM. Times in `*_s` are monotonic of this machine."""

    kind: str  # an event type, or Failure
    consent: str  # who approved: guest, operator, or nobody
    vm: str
    event: Mapping[str, Any]  # as the operator API shows it at the end
    facts: Sequence[Mapping[str, Any]]  # lines of the journal about the event or its operation
    lines: Sequence[Line]  # of the guest, from a little before the order on
    ordered_s: float
    ended_s: float
    before: Mapping[str, str]  # power by hypervisor
    after: Mapping[str, str]
    when_s: Callable[[int], float]  # control's clock to this machine's

    def at_s(self, name: str) -> float | None:
        """When something is said to have happened to the event, if it has."""
        text = self.event[name]
        return None if text is None else self.when_s(milliseconds(text))


def milliseconds(text: str) -> int:
    """A time of the operator API."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def judge(evidence: Evidence) -> list[str]:
    """What is wrong, in sentences; nothing if all is well."""
    rules = (_ended, _once, _in_time, _seen, _impact, _afterwards)
    return [
        f"{evidence.kind} of {evidence.vm}: {text}" for rule in rules for text in rule(evidence)
    ]


def _ended(evidence: Evidence) -> Iterator[str]:
    if evidence.event["phase"] != "completed":
        yield f"it is {evidence.event['phase']} ({evidence.event['outcome']})"
    for action in evidence.event["actions"]:
        if action["outcome"] != "done":
            yield f"{action['kind']} has ended as {action['outcome']}: {action['detail']}"


def _once(evidence: Evidence) -> Iterator[str]:
    mine = [fact for fact in evidence.facts if fact["event_id"] == evidence.event["event_id"]]
    starts = sum(fact["kind"] == "started" for fact in mine)
    if starts != 1:
        yield f"the journal says {starts} times that it started"
    reports = [fact for fact in evidence.facts if fact["kind"] == "reported"]
    actions = {str(fact["detail"].get("action_id")) for fact in reports}
    if len(reports) != len(actions) or not reports:
        yield f"the journal has {len(reports)} reports of {len(actions)} actions"


def _in_time(evidence: Evidence) -> Iterator[str]:
    event = evidence.event
    started_s, approved_s = evidence.at_s("started"), evidence.at_s("approved")
    if started_s is None:
        yield "it never started"
        return
    if evidence.kind == "Failure":
        return
    if evidence.consent:
        if approved_s is None or event["approved_by"] is None:
            yield "nobody approved"
        elif started_s < approved_s:
            yield "it started before it was approved"
        return
    if approved_s is not None:
        yield f"it was approved by {event['approved_by']}, who was told not to"
    if milliseconds(event["started"]) < milliseconds(event["not_before"]):
        yield f"it started at {event['started']}, before its NotBefore {event['not_before']}"
    if event["shown"] is None:
        yield "nobody was shown it"
        return
    shown_ms = milliseconds(event["started"]) - milliseconds(event["shown"])
    unreadable_ms = max(0, int(event["unreadable_seconds"] * 1000))
    if shown_ms - unreadable_ms < event["minimum_notice_seconds"] * 1000:
        yield f"it was readable for {(shown_ms - unreadable_ms) / 1000} s only"


def _seen(evidence: Evidence) -> Iterator[str]:
    if evidence.kind == "Failure":
        return
    event_id = evidence.event["event_id"]
    started_s = evidence.at_s("started") or evidence.ended_s
    shown = [
        line
        for line in evidence.lines
        if line.events().get(event_id, ("", ""))[1] == "Scheduled"
        and line.at_s <= started_s + SILENCE_S
    ]
    if not shown:
        yield "the guest never saw it Scheduled"
    mine = [line for line in evidence.lines if line.words.get("event") == event_id]
    consents = [line for line in mine if line.kind == "consent"]
    taken = [line for line in mine if line.kind == "approve" and line.answered]
    if evidence.consent == "guest":
        if not consents or evidence.event["approved_by"] != evidence.vm:
            yield f"it was approved by {evidence.event['approved_by']} and not by its guest"
        if len(taken) > 1:
            yield f"the guest approved {len(taken)} times"
    elif consents:
        yield "the guest approved, and was told not to"


def _impact(evidence: Evidence) -> Iterator[str]:
    started_s = evidence.at_s("started")
    if started_s is None:
        return
    lines = [line for line in evidence.lines if line.at_s >= evidence.ordered_s - SILENCE_S]
    if not lines:
        yield "the guest said nothing"
        return
    rule = {
        "Reboot": _restarted,
        "Failure": _restarted_elsewhere,
        "Freeze": _stood_still,
        "Redeploy": _moved,
        "Terminate": _gone,
        "Preempt": _gone,
    }[evidence.kind]
    yield from rule(evidence, lines, started_s)


def boots(lines: Sequence[Line]) -> list[str]:
    """The boots of a guest, each once, in order."""
    return list(dict.fromkeys(line.boot for line in lines))


def _restarted(evidence: Evidence, lines: Sequence[Line], started_s: float) -> Iterator[str]:
    seen = boots(lines)
    if len(seen) != 2:
        yield f"the guest booted {len(seen) - 1} times, not once"
        return
    old = [line for line in lines if line.boot == seen[0]]
    new = [line for line in lines if line.boot == seen[1]]
    booted_s = new[0].at_s - new[0].uptime_s
    if evidence.kind == "Reboot" and booted_s < started_s - READING_S:
        yield f"it booted {started_s - booted_s:.2f} s before the event started"
    yield from _not_before(old, started_s, evidence)
    if evidence.kind == "Reboot" and evidence.after != evidence.before:
        yield f"it was at {dict(evidence.before)} and is at {dict(evidence.after)}"


def _restarted_elsewhere(
    evidence: Evidence, lines: Sequence[Line], started_s: float
) -> Iterator[str]:
    yield from _restarted(evidence, lines, started_s)
    yield from _elsewhere(evidence)


def _not_before(old: Sequence[Line], started_s: float, evidence: Evidence) -> Iterator[str]:
    """The last word of a guest, and its power button, come after the start."""
    if evidence.kind == "Failure":
        return  # that is what the event is about
    if old[-1].at_s < started_s - SILENCE_S:
        yield f"the guest was silent {started_s - old[-1].at_s:.2f} s before the event started"
    for line in old:
        if line.kind == "button" and line.at_s < started_s - READING_S:
            yield f"its button was pressed {started_s - line.at_s:.2f} s before the event started"


def _stood_still(evidence: Evidence, lines: Sequence[Line], started_s: float) -> Iterator[str]:
    if len(boots(lines)) != 1:
        yield "the guest booted"
    promised_s = float(evidence.event["duration_seconds"])
    pairs = pairwise(lines)
    gaps = [(one, other.at_s - one.at_s) for one, other in pairs if evidence.ended_s > one.at_s]
    long = [(one, gap_s) for one, gap_s in gaps if gap_s >= promised_s * 0.9]
    if len(long) != 1:
        found = ", ".join(f"{gap_s:.1f}" for _, gap_s in long)
        yield f"the guest stood still {len(long)} times ({found} s) and not once"
        return
    last, gap_s = long[0]
    if gap_s > promised_s + SILENCE_S:
        yield f"the guest stood still for {gap_s:.1f} s, announced were {promised_s:g} s"
    if last.at_s < started_s - SILENCE_S:
        yield "the guest stood still before the event started"


def _moved(evidence: Evidence, lines: Sequence[Line], _started_s: float) -> Iterator[str]:
    if len(boots(lines)) != 1:
        yield "the guest booted and was not moved live"
    for one, other in pairwise(lines):
        if other.uptime_s < one.uptime_s:
            yield f"its uptime went back from {one.uptime_s} to {other.uptime_s}"
    yield from _elsewhere(evidence)
    answered = [line for line in lines if line.at_s > evidence.ended_s and line.answered]
    if not answered:
        yield "no poll was answered at the new host"


def _elsewhere(evidence: Evidence) -> Iterator[str]:
    running = [host for host, power in evidence.after.items() if power == "running"]
    if len(running) != 1 or running[0] in evidence.before:
        yield f"it was at {dict(evidence.before)} and is at {dict(evidence.after)}"


def _gone(evidence: Evidence, lines: Sequence[Line], started_s: float) -> Iterator[str]:
    if evidence.after:
        yield f"it is still at {dict(evidence.after)}"
    yield from _not_before(lines, started_s, evidence)
    if len(boots(lines)) != 1:
        yield "the guest booted again"


def _afterwards(evidence: Evidence) -> Iterator[str]:
    if evidence.kind in ("Terminate", "Preempt"):
        return
    polls = [
        line
        for line in evidence.lines
        if line.at_s > evidence.ended_s and line.kind == "poll" and line.answered
    ]
    if not polls:
        yield "no poll was answered afterwards"
    elif evidence.event["event_id"] in polls[-1].events():
        yield "the guest still sees it"
