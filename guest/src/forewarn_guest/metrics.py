"""The agent's metrics in the text format of Prometheus, for a textfile collector. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from forewarn_guest.facts import Outcome

Samples = Iterable[tuple[str, float]]  # the labels as they are written, and the value


@dataclass(frozen=True)
class AgentNumbers:
    """Everything that metrics are made of.

    `counts` are the agent's own, `errors` how often which kind of trouble was met, `pauses` and
    `pause_seconds` how often and for how long the VM stood still, by how it showed.
    """

    version: str
    began_s: float
    written_s: float
    answered_s: float | None
    counts: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    pauses: Mapping[str, int] = field(default_factory=dict)
    pause_seconds: Mapping[str, float] = field(default_factory=dict)
    last_pause_s: float | None = None
    events: Mapping[str, int] = field(default_factory=dict)  # open ones, by event type
    withheld: int = 0
    running: int = 0
    facts_not_kept: int = 0


def text_of(measured: AgentNumbers) -> str:
    """The whole file."""
    lines: list[str] = []
    for name, metric_type, what, samples in _families(measured):
        found = [f"forewarn_guest_{name}{labels} {_number(value)}" for labels, value in samples]
        if found:
            lines.append(f"# HELP forewarn_guest_{name} {what}")
            lines.append(f"# TYPE forewarn_guest_{name} {metric_type}")
            lines += found
    return "\n".join(lines) + "\n"


def _families(measured: AgentNumbers) -> Iterable[tuple[str, str, str, Samples]]:
    yield from _about_the_agent(measured)
    yield from _about_events(measured)
    yield from _about_trouble(measured)


def _about_the_agent(measured: AgentNumbers) -> Iterable[tuple[str, str, str, Samples]]:
    version = [(_label("version", measured.version), 1.0)]
    yield "info", "gauge", "The version of the agent.", version
    began, written = [("", measured.began_s)], [("", measured.written_s)]
    yield "start_time_seconds", "gauge", "When the agent was started, in Unix time.", began
    yield "written_time_seconds", "gauge", "When this file was written, in Unix time.", written
    if measured.answered_s is not None:
        age_s = max(0.0, measured.written_s - measured.answered_s)
        at, age = [("", measured.answered_s)], [("", age_s)]
        yield "last_answer_time_seconds", "gauge", "When the endpoint last gave a good answer.", at
        what = "Seconds from the last good answer of the endpoint to the writing of this file."
        yield "last_answer_age_seconds", "gauge", what, age


def _about_events(measured: AgentNumbers) -> Iterable[tuple[str, str, str, Samples]]:
    counts = measured.counts
    outcomes = [(o.value, counts.get(f"steps_{o.value.replace('-', '_')}", 0)) for o in Outcome]
    steps = [(_label("outcome", name), float(count)) for name, count in outcomes]
    yield "steps_total", "counter", "Steps that have ended, by outcome.", steps
    left_out = [("", float(counts.get("facts_step_left_out", 0)))]
    yield "steps_left_out_total", "counter", "Steps that were not run, with a reason.", left_out
    not_back = [("", float(counts.get("not_brought_back", 0)))]
    says = "Events after which a step of recover or canceled had failed."
    yield "not_brought_back_total", "counter", says, not_back
    yield "steps_running", "gauge", "Steps that run now.", [("", float(measured.running))]
    approvals = [
        (_label("answer", "taken"), float(counts.get("facts_approved", 0))),
        (_label("answer", "failed"), float(counts.get("approvals_failed", 0))),
    ]
    yield "approvals_total", "counter", "Approvals sent, by what came of them.", approvals
    withheld = [("", float(measured.withheld))]
    yield "approvals_withheld", "gauge", "Open events whose approval is withheld.", withheld
    documents = [("", float(counts.get("documents", 0)))]
    yield "documents_total", "counter", "Documents that were new.", documents
    seen = [("", float(counts.get("facts_appeared", 0)))]
    yield "events_total", "counter", "Events that named this VM.", seen
    by_type = sorted(measured.events.items())
    opened = [(_label("event_type", name), float(count)) for name, count in by_type]
    yield "events_open", "gauge", "Events that are not over for this VM.", opened or [("", 0.0)]
    back = [("", float(counts.get("came_back", 0)))]
    yield "ids_came_back_total", "counter", "Events whose id had been gone before.", back


def _about_trouble(measured: AgentNumbers) -> Iterable[tuple[str, str, str, Samples]]:
    errors = [(_label("kind", name), float(n)) for name, n in sorted(measured.errors.items())]
    yield "errors_total", "counter", "Trouble that was met, by kind.", errors
    failures = [("", float(measured.counts.get("journal_failures", 0)))]
    yield "journal_failures_total", "counter", "Times the journal could not be written.", failures
    waiting = [("", float(measured.facts_not_kept))]
    yield "facts_not_kept", "gauge", "Facts that the journal could not be given yet.", waiting
    pauses = [(_label("how", name), float(n)) for name, n in sorted(measured.pauses.items())]
    yield "pauses_total", "counter", "Times that the VM stood still, by how it showed.", pauses
    seconds = [(_label("how", name), s) for name, s in sorted(measured.pause_seconds.items())]
    yield "pause_seconds_total", "counter", "Seconds for which the VM stood still.", seconds
    if measured.last_pause_s is not None:
        last = [("", measured.last_pause_s)]
        yield "last_pause_seconds", "gauge", "How long the VM stood still the last time.", last


def _label(name: str, value: str) -> str:
    """One label. What comes from a document may hold anything; the format quotes three things."""
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{{name}="{quoted}"}}'


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6f}"
