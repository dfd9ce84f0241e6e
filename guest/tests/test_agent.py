"""The loop of the agent, turn by turn; endpoint, journal and processes do as they are told."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Callable

import pytest

from forewarn_guest.agent import APPROVALS_AT_ONCE_MAX, Agent
from forewarn_guest.configuration import Configuration, Rule
from forewarn_guest.document import Document, Event
from forewarn_guest.errors import JournalFull, Unreachable
from forewarn_guest.facts import Fact, from_json
from forewarn_guest.http1 import Stop
from forewarn_guest.logs import Log
from forewarn_guest.run_files import NotBegun
from forewarn_guest.tracked_event import Run
from scene import VM, at, event, rule, started

LIMIT_S = 10.0


class Kept:
    """A journal in memory, which can be full."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.full = self.large = False
        self.refuses = ""
        self.compacted = 0

    def append(self, lines: list[dict[str, Any]]) -> None:
        if self.full or self.refuses in [line["fact"] for line in lines]:
            raise JournalFull("There is no room.")
        self.lines += lines

    def compact(self, lines: list[dict[str, Any]]) -> None:
        self.lines = list(lines)
        self.compacted += 1

    def facts(self) -> list[Fact]:
        return [from_json(line) for line in self.lines]

    def kinds(self) -> list[str]:
        return [line["fact"] for line in self.lines]


class Process:
    """A step that ends when it is told to."""

    pid, start_ticks, boot_id, age_s = 7, 8, "boot-1", 4.0

    def __init__(self) -> None:
        self.code: int | None = None
        self.stopped = False

    def poll(self) -> int | None:
        return self.code

    def stop(self, grace_s: float) -> None:
        assert grace_s > 0
        self.stopped = True

    def said(self) -> str:
        return ""


class Processes:
    boot_id = "boot-1"

    def __init__(self) -> None:
        self.begun: dict[str, Process] = {}
        self.left: Any = None  # what `find` finds
        self.given: list[bytes] = []
        self.on_reserve: Callable[[], object] = lambda: None

    def reserve(self, name: str) -> None:
        assert name
        self.on_reserve()

    def begin(
        self, name: str, argv: tuple[str, ...], *, environment: Mapping[str, str], given: bytes
    ) -> Process:
        if argv[0] == "/nowhere":
            raise FileNotFoundError(argv[0])
        assert environment["FOREWARN_VM"] == VM
        self.given.append(given)
        self.begun[name] = Process()
        return self.begun[name]

    def find(self, name: str, run: Run) -> Any:
        assert run.step in name
        return self.left


class Asked:
    """An endpoint that notes approvals, and refuses them while it is away."""

    def __init__(self) -> None:
        self.approved: list[str] = []
        self.away = self.breaks = False

    def documents(self, stop: Stop) -> Iterator[Document]:
        raise AssertionError(f"these tests hand documents in themselves, {stop}")

    def approve(self, *event_ids: str) -> None:
        if self.breaks:
            raise ZeroDivisionError
        if self.away:
            raise Unreachable("Nothing answers.")
        self.approved += event_ids


class World:
    """One agent and everything around it."""

    def __init__(self, *rules: Rule, kept: Kept | None = None, compact_from: int = 2_000) -> None:
        self.journal = kept or Kept()
        self.endpoint, self.steps = Asked(), Processes()
        self.log = io.StringIO()
        self.now_s = 0.0
        self.agent = Agent(
            Configuration(rules=rules or (rule(),)),
            endpoint=self.endpoint,
            journal=self.journal,
            kept=self.journal.facts(),
            steps=self.steps,
            vm=VM,
            log=Log(stream=self.log),
            now_s=lambda: self.now_s,
            compact_from=compact_from,
        )

    def show(self, *events: Event) -> None:
        self.agent.turn(Document("1", events, date=at(self.now_s), received_s=self.now_s))

    def end(self, code: int = 0) -> None:
        """Let the step that runs end, and the agent notice."""
        (running,) = [step for step in self.steps.begun.values() if step.code is None]
        running.code = code
        self.agent.turn(None)

    def answer(self) -> None:
        """Wait until the endpoint has answered an approval, and let the agent hear it."""
        self.agent.turn(self.agent._news.get(timeout=LIMIT_S))


def test_nothing_is_begun_before_the_first_document() -> None:
    kept = Kept()
    first = World(kept=kept)
    first.show(event())
    again = World(kept=kept)
    again.steps.left = NotBegun()
    again.agent._find_steps()
    again.agent.turn(None)
    assert again.steps.begun == {}
    again.show(event())
    assert len(again.steps.begun) == 1


def test_a_step_that_was_surely_not_begun_is_begun_by_the_next_agent() -> None:
    kept = Kept()
    World(kept=kept).show(event())
    again = World(kept=kept)
    again.steps.left = NotBegun()
    again.agent._find_steps()
    again.show(event())
    again.end()
    again.answer()
    assert again.endpoint.approved == ["E1"]
    assert kept.kinds().count("step-not-begun") == 1


@pytest.mark.parametrize(("found", "outcome"), [(0, "done"), (3, "failed"), (None, "unknown")])
def test_what_has_become_of_a_step_is_kept_as_it_was_found(found: Any, outcome: str) -> None:
    kept = Kept()
    World(kept=kept).show(event())
    again = World(kept=kept)
    again.steps.left = found
    again.agent._find_steps()
    assert [line["outcome"] for line in kept.lines if line["fact"] == "step-ended"] == [outcome]


def test_a_step_that_still_runs_keeps_what_is_left_of_its_time() -> None:
    kept = Kept()
    World(kept=kept).show(event())
    again = World(kept=kept)
    left = again.steps.left = Process()
    again.agent._find_steps()
    again.now_s = 55.0  # of its sixty seconds, four had passed
    again.agent.turn(None)
    assert not left.stopped
    again.now_s = 57.0
    again.agent.turn(None)
    assert left.stopped
    left.code = 143
    again.agent.turn(None)
    assert kept.lines[-1]["outcome"] == "timed-out"


class Silent(Asked):
    def documents(self, stop: Stop) -> Iterator[Document]:
        assert stop.is_set()
        return iter(())


def test_an_agent_that_starts_after_a_boot_keeps_that_before_it_does_anything() -> None:
    kept = Kept()
    first = World(kept=kept)
    first.show(event("A"), event("B"))
    first.end()
    assert "already-prepared" in kept.kinds()
    again = World(kept=kept)
    again.agent._endpoint = Silent()
    again.agent._boot_id = "boot-2"
    over = Stop()
    over.set()
    again.agent.run(over)
    again.agent.run(over)
    assert kept.kinds()[-4:] == ["begin", "vm-booted", "vm-booted", "begin"]
    again.show(started(event("A")), event("B"))
    assert len(again.steps.begun) == 1  # a boot may have started again what was stopped


def test_a_full_disk_stops_no_preparation_and_holds_approval_back() -> None:
    world = World()
    world.journal.full = True
    world.show(event())
    world.end()
    assert world.endpoint.approved == []
    assert world.log.getvalue().count("approval waits") == 1
    world.journal.full = False
    world.agent.turn(None)
    world.answer()
    assert world.endpoint.approved == ["E1"]
    assert world.journal.kinds()[:3] == ["appeared", "step-intended", "step-begun"]


def test_nothing_is_approved_before_it_is_kept_that_it_may_have_been() -> None:
    world = World()
    world.show(event())
    world.journal.refuses = "approving"
    world.end()
    assert world.agent._asked == 0
    world.journal.refuses = ""
    world.agent.turn(None)
    world.answer()
    assert world.endpoint.approved == ["E1"]


def test_the_file_of_a_run_is_there_before_the_journal_says_that_it_is_intended() -> None:
    world = World()
    kept_at: list[list[str]] = []
    world.steps.on_reserve = lambda: kept_at.append(world.journal.kinds())
    world.show(event())
    assert kept_at == [["appeared"]]


def test_an_approval_that_is_not_answered_is_given_again() -> None:
    world = World()
    world.endpoint.away = True
    world.show(event())
    world.end()
    world.answer()
    assert "approved" not in world.journal.kinds()
    world.endpoint.away = False
    world.agent.turn(None)
    assert world.endpoint.approved == []  # not so soon
    world.now_s = 6.0
    world.agent.turn(None)
    world.answer()
    assert world.endpoint.approved == ["E1"]
    assert world.journal.kinds().count("approved") == 1


def test_many_events_at_once_are_approved_a_few_at_a_time() -> None:
    world = World()
    many = [event(f"E{number}") for number in range(100)]
    began_s = time.process_time()
    world.show(*many)
    world.end()
    assert time.process_time() - began_s < LIMIT_S
    answers = 0
    while "E99" not in world.endpoint.approved:
        assert world.agent._asked <= APPROVALS_AT_ONCE_MAX
        world.answer()
        answers += 1
    while world.agent._asked:
        world.answer()
        answers += 1
    assert sorted(world.endpoint.approved) == sorted(one.event_id for one in many)
    assert answers == 100


def test_an_approval_that_breaks_in_a_way_that_nobody_foresaw_is_given_again() -> None:
    world = World()
    world.endpoint.breaks = True
    world.show(event())
    world.end()
    world.answer()
    world.endpoint.breaks = False
    world.now_s = 6.0
    world.agent.turn(None)
    world.answer()
    assert world.endpoint.approved == ["E1"]
    assert "ZeroDivisionError" in world.log.getvalue()


def test_an_id_that_comes_back_without_end_is_left_alone_and_that_is_said_once() -> None:
    world = World(rule(prepare=(), recover=()))
    for _ in range(30):
        world.show(started(event()))
        world.show()
    assert world.agent.counts["came_back"] == 29
    assert world.log.getvalue().count("comes back again and again") == 1


def test_an_approval_for_which_there_is_no_thread_is_given_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_to_be_had(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    world = World()
    world.show(event())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_to_be_had)
        world.end()
    world.answer()
    assert world.endpoint.approved == []
    world.now_s = 6.0
    world.agent.turn(None)
    world.answer()
    assert world.endpoint.approved == ["E1"]


def test_a_program_that_is_not_there_is_a_failed_step_and_blocks_approval() -> None:
    missing = rule(prepare=())
    step = rule().prepare[0]
    broken = type(step)(name="drain", kind="command", argv=("/nowhere",), limit_s=5.0)
    world = World(type(missing)(name="all", prepare=(broken,), recover=rule().recover))
    world.show(event())
    assert world.endpoint.approved == []
    assert world.journal.kinds()[-1] == "approval-withheld"
    assert "warning step-ended" in world.log.getvalue()
    assert "error approval-withheld" in world.log.getvalue()


def test_what_was_not_brought_back_is_said_when_its_event_is_over() -> None:
    world = World()
    world.show(event())
    world.end()
    world.answer()
    world.show(started(event()))
    world.show()
    world.end(code=1)
    assert world.journal.kinds()[-1] == "closed"
    assert "error the event is over, and not everything was brought back" in world.log.getvalue()
    assert world.agent.counts["not_brought_back"] == 1


def test_a_long_journal_begins_anew_with_what_is_not_over() -> None:
    rules = (rule("slow", event_types=("Freeze",)), rule())
    world = World(*rules, compact_from=40)
    lasting = event("LASTING", event_type="Freeze", not_before_s=100_000.0)
    world.show(lasting)
    world.end()
    world.answer()
    for number in range(20):
        name = f"E{number}"
        world.show(lasting, started(event(name)))
        world.show(lasting)
        world.end()
    assert world.journal.compacted >= 1
    assert len(world.journal.lines) < 80
    again = World(*rules, kept=world.journal)
    again.show(lasting)
    assert again.steps.begun == {}  # it is prepared, and the new journal knows it
    again.show()
    assert len(again.steps.begun) == 1  # it is brought back
