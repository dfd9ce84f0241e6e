"""What the status file says of events, and what it is when it cannot be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forewarn_guest.agent import View
from forewarn_guest.configuration import Approve, Configuration, Part, Rule, Step
from forewarn_guest.document import Document, Event
from forewarn_guest.errors import GuestError
from forewarn_guest.facts import Gone, Outcome
from forewarn_guest.status import approval, of_view, read_status, status_path
from forewarn_guest.tracked_event import Run, Stage, TrackedEvent

DRAIN = Step(name="drain", kind="run", argv=("/bin/true",), limit_s=10.0)
RULE = Rule(name="all", prepare=(DRAIN,))
CONFIGURATION = Configuration(rules=(RULE,))
EVENT = Event("A1", "Reboot", "Scheduled", ("web_0", "web_1"))
TRACKED = TrackedEvent("A1#1", EVENT, "all", "boot")
VIEW = View("web_0", (TRACKED,), running=(), document=None, counts={}, unkept=0)


def with_rule(**changes: object) -> Configuration:
    return Configuration(rules=(replace(RULE, **changes),))  # type: ignore[arg-type]


def test_an_approved_event_says_so() -> None:
    assert approval(replace(TRACKED, approved=True), VIEW, CONFIGURATION) == "approved"


def test_a_running_prepare_step_is_what_approval_waits_for() -> None:
    view = replace(VIEW, running=(("A1#1", "prepare", "drain"),))
    assert approval(TRACKED, view, CONFIGURATION) == "waits for step drain of prepare"


def test_a_withheld_approval_says_why() -> None:
    tracked = replace(TRACKED, withheld="step drain of prepare: failed")
    assert approval(tracked, VIEW, CONFIGURATION) == "withheld: step drain of prepare: failed"


def test_an_approval_that_was_sent_and_not_answered_says_so() -> None:
    assert approval(replace(TRACKED, approving=True), VIEW, CONFIGURATION).startswith("was sent")


def test_a_journal_that_cannot_be_written_is_said_to_hold_approval_back() -> None:
    assert "journal" in approval(TRACKED, replace(VIEW, unkept=2), CONFIGURATION)


def test_an_event_without_a_rule_is_said_to_be_never_approved() -> None:
    assert "no rule matches" in approval(replace(TRACKED, rule=""), VIEW, CONFIGURATION)


def test_rules_that_never_approve_are_named() -> None:
    assert approval(TRACKED, VIEW, with_rule(approve=Approve.NEVER)) == "rule all never approves"
    assert approval(TRACKED, VIEW, with_rule(ignore=True)) == "rule all leaves it alone"


def test_who_is_not_the_first_named_vm_says_whom_approval_is_left_to() -> None:
    configuration = with_rule(approve=Approve.FIRST_NAMED)
    other = replace(VIEW, vm="WEB_1")
    assert approval(TRACKED, other, configuration) == "left to web_0, which is named first"
    assert approval(TRACKED, VIEW, configuration) == "about to be approved"


@pytest.mark.parametrize(
    ("tracked", "says"),
    [
        (replace(TRACKED, started=True), "the event has started"),
        (replace(TRACKED, gone=Gone.CANCELED), "the event is gone"),
    ],
)
def test_what_is_past_approving_says_so(tracked: TrackedEvent, says: str) -> None:
    assert approval(tracked, VIEW, CONFIGURATION) == says


def test_an_event_shows_its_steps_and_those_left_out() -> None:
    run = Run(Part.PREPARE, "drain", 2, Stage.ENDED, outcome=Outcome.FAILED, detail="exit status 3")
    tracked = replace(
        TRACKED,
        runs={(Part.PREPARE, "drain"): run},
        left_out={(Part.PREPARE, "stop"): "an earlier step had failed"},
    )
    document = Document("7", (EVENT, Event("B2", "Freeze", "Started", ("web_2",))))
    shown = of_view(replace(VIEW, tracked_events=(tracked,), document=document), CONFIGURATION)
    assert shown["incarnation"] == "7"
    assert shown["events_of_others"] == 1
    (event,) = shown["events"]
    assert event["steps"] == [
        {
            "part": "prepare",
            "step": "drain",
            "attempt": 2,
            "outcome": "failed",
            "detail": "exit status 3",
        }
    ]
    assert event["left_out"][0]["why"] == "an earlier step had failed"


def test_without_a_path_of_its_own_the_status_is_beside_the_journal() -> None:
    assert status_path(CONFIGURATION) == Path("/var/lib/forewarn-guest/status.json")
    elsewhere = replace(CONFIGURATION, status_file=Path("/run/x.json"))
    assert status_path(elsewhere) == Path("/run/x.json")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff\xfe"])
def test_what_is_no_status_file_is_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "status.json"
    path.write_bytes(content)
    with pytest.raises(GuestError, match="no status file"):
        read_status(path)


def test_a_missing_status_file_says_what_would_make_one(tmp_path: Path) -> None:
    with pytest.raises(GuestError, match="forewarn-guest run"):
        read_status(tmp_path / "status.json")
