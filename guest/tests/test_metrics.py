"""The textfile: every line is one that Prometheus reads, and says what was counted."""

from __future__ import annotations

import re

from forewarn_guest.metrics import AgentNumbers, text_of

# The text format of Prometheus, version 0.0.4.
HELP = re.compile(r"# HELP ([a-z_]+) .+")
TYPE = re.compile(r"# TYPE ([a-z_]+) (counter|gauge)")
SAMPLE = re.compile(r'([a-z_]+)(\{[a-z_]+="(?:[^"\\\n]|\\["\\n])*"\})? (-?[0-9]+(?:\.[0-9]+)?)')

MEASURED = AgentNumbers(
    version="1.2.3",
    began_s=1000.0,
    written_s=1010.5,
    answered_s=1008.0,
    counts={"steps_done": 3, "steps_timed_out": 1, "facts_approved": 2, "came_back": 1},
    errors={"unreachable": 4, "bad-answer": 1},
    pauses={"gap": 1, "jump": 1},
    pause_seconds={"gap": 4.25, "jump": 7.0},
    last_pause_s=7.0,
    events={"Reboot": 1},
    withheld=1,
    running=1,
    facts_not_kept=2,
)


def test_every_line_is_one_of_the_format_and_every_metric_has_its_help_and_type() -> None:
    described: set[str] = set()
    typed: dict[str, str] = {}
    text = text_of(MEASURED)
    assert text.endswith("\n")
    for line in text.splitlines():
        help_line, type_line = HELP.fullmatch(line), TYPE.fullmatch(line)
        if help_line:
            described.add(help_line[1])
        elif type_line:
            typed[type_line[1]] = type_line[2]
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            assert sample[1] in described
            assert (typed[sample[1]] == "counter") == sample[1].endswith("_total")
    assert described == set(typed)


def test_what_was_counted_is_there_by_name() -> None:
    lines = text_of(MEASURED).splitlines()
    for line in (
        'forewarn_guest_steps_total{outcome="done"} 3',
        'forewarn_guest_steps_total{outcome="timed-out"} 1',
        'forewarn_guest_steps_total{outcome="failed"} 0',
        'forewarn_guest_approvals_total{answer="taken"} 2',
        'forewarn_guest_errors_total{kind="unreachable"} 4',
        "forewarn_guest_last_answer_age_seconds 2.500000",
        'forewarn_guest_pauses_total{how="jump"} 1',
        'forewarn_guest_pause_seconds_total{how="gap"} 4.250000',
        "forewarn_guest_last_pause_seconds 7",
        "forewarn_guest_ids_came_back_total 1",
        "forewarn_guest_journal_failures_total 0",
        "forewarn_guest_facts_not_kept 2",
        'forewarn_guest_events_open{event_type="Reboot"} 1',
        "forewarn_guest_approvals_withheld 1",
    ):
        assert line in lines


def test_without_an_answer_there_is_no_age_of_one() -> None:
    assert "last_answer" not in text_of(
        AgentNumbers("0", began_s=1.0, written_s=2.0, answered_s=None)
    )


def test_a_type_that_somebody_made_up_cannot_add_lines_of_its_own() -> None:
    evil = 'x"} 1\nforewarn_guest_errors_total{kind="y'
    text = text_of(
        AgentNumbers("0", began_s=1.0, written_s=2.0, answered_s=None, events={evil: 1, "a\\": 1})
    )
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in samples)
    assert not any(line.startswith("forewarn_guest_errors_total") for line in samples)
