"""Keeping facts: in order, whatever their size and number, in a journal that stays short."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn_guest.errors import JournalError, JournalFull
from forewarn_guest.facts import Fact, FactKind, event_json, from_json
from forewarn_guest.journal import LINE_MAX_B, Journal, facts_in
from forewarn_guest.journal_buffer import COMPACT_AGAIN_S, UNKEPT_MAX, JournalBuffer
from forewarn_guest.logs import Log
from forewarn_guest.tracked_event import fold_all
from scene import at, event

LONG = "x" * 50_000


def appeared(name: str, description: str = "") -> Fact:
    seen = event_json(event(name, description=description))
    detail = {"event": seen, "rule": "all", "sighting": 1, "seconds_left": 9.0, "boot_id": "b"}
    return Fact(FactKind.APPEARED, at(0), f"{name}#1", detail)


def changed(name: str, not_before_s: float, description: str = "") -> Fact:
    seen = event_json(event(name, not_before_s=not_before_s, description=description))
    return Fact(FactKind.CHANGED, at(0), f"{name}#1", {"event": seen})


def gone(name: str) -> list[Fact]:
    ended = Fact(FactKind.GONE, at(0), f"{name}#1", {"how": "ended"})
    return [ended, Fact(FactKind.CLOSED, at(0), f"{name}#1")]


class Broken:
    """A journal that does nothing for as long as it is broken."""

    large = False

    def __init__(self) -> None:
        self.why: JournalError | None = JournalFull("There is no room.")
        self.lines: list[dict[str, Any]] = []
        self.tried = 0

    def append(self, lines: list[dict[str, Any]]) -> None:
        if self.why is not None:
            raise self.why
        self.lines += lines

    def compact(self, lines: list[dict[str, Any]]) -> None:
        self.tried += 1
        if self.why is not None:
            raise self.why
        self.lines = lines


Opened = Callable[[int], JournalBuffer]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Keeping with a real journal of at most so many bytes."""
    made: list[Journal] = []

    def make(size_max_b: int) -> JournalBuffer:
        journal = Journal(tmp_path / "journal", size_max_b=size_max_b)
        made.append(journal)
        kept = [from_json(line) for line in journal.read()]
        return JournalBuffer(journal, kept, log=Log(stream=io.StringIO()))

    yield make
    for journal in made:
        journal.close()


def test_more_than_a_line_takes_is_kept_on_several(opened: Opened, tmp_path: Path) -> None:
    keeping = opened(2 * 8 * LINE_MAX_B)
    facts = [appeared(f"E{number}", LONG) for number in range(100)]
    assert keeping.add(facts)
    assert keeping.unkept == []
    read = [from_json(line) for line in facts_in(tmp_path / "journal")]
    assert read == keeping.kept == facts


def test_what_gathered_while_the_disk_was_full_is_kept_however_much_it_is(
    opened: Opened, tmp_path: Path
) -> None:
    keeping = opened(8 * LINE_MAX_B)
    keeping.unkept = [appeared(f"E{number}", LONG) for number in range(30)]
    assert keeping.write()
    assert len(facts_in(tmp_path / "journal")) == 30


def test_a_journal_that_is_full_of_what_is_over_is_made_shorter(opened: Opened) -> None:
    keeping = opened(1_000_000)
    keeping.add([appeared("LASTING")])
    for number in range(100):  # long before there are many facts
        keeping.add([appeared(f"E{number}", LONG), *gone(f"E{number}")])
        keeping.compact()
        assert keeping.write()
    assert not fold_all(keeping.kept)["LASTING#1"].closed


def test_a_journal_that_was_left_full_is_made_shorter_by_the_next_agent(opened: Opened) -> None:
    first = opened(1_000_000)
    number = 0
    while first.add([appeared(f"E{number}", LONG), *gone(f"E{number}")]):
        number += 1
    assert number < 30
    first._journal.close()  # type: ignore[attr-defined]
    second = opened(1_000_000)
    assert second.compact()
    assert second.add([appeared("NEXT", LONG)])


def test_an_event_that_changes_without_end_does_not_fill_the_journal(opened: Opened) -> None:
    keeping = opened(1_000_000)
    keeping.add([appeared("E", LONG)])
    for number in range(100):
        keeping.add([changed("E", 900.0 + number, LONG)])
        keeping.compact()
        assert keeping.write()
    assert fold_all(keeping.kept)["E#1"].event.not_before == at(999.0)


def test_a_failed_attempt_to_make_it_shorter_is_made_again_later() -> None:
    journal, now_s = Broken(), 0.0
    facts = [appeared("E"), *gone("E")]
    log = Log(stream=io.StringIO())
    keeping = JournalBuffer(journal, facts, log=log, now_s=lambda: now_s)
    assert not keeping.add([appeared("F")])
    assert not keeping.compact()
    assert not keeping.compact()
    assert journal.tried == 1
    now_s, journal.why = COMPACT_AGAIN_S, None
    assert keeping.compact()
    assert keeping.write()
    assert [line["tracked_event"] for line in journal.lines] == ["F#1"]


def test_events_that_come_and_go_on_a_full_disk_do_not_fill_the_memory() -> None:
    journal = Broken()
    keeping = JournalBuffer(
        journal, [appeared("KEPT"), appeared("HEIR")], log=Log(stream=io.StringIO())
    )
    keeping.add(gone("KEPT"))
    handed = Fact(FactKind.HANDED_OVER, at(0), "GIVER#1", {"to": "HEIR#1", "prepared": True})
    ended, closed = gone("GIVER")
    keeping.add([appeared("LASTING"), appeared("GIVER"), ended, handed, closed])
    for turn in range(UNKEPT_MAX // 10):
        events = [f"E{turn}-{number}" for number in range(10)]
        keeping.add(fact for event in events for fact in (appeared(event), *gone(event)))
        assert len(keeping.unkept) < UNKEPT_MAX + 3
    journal.why = None
    assert keeping.write()
    tracked_events = fold_all(keeping.kept)
    assert tracked_events["KEPT#1"].closed
    assert tracked_events["HEIR#1"].ready_with_others
    assert not tracked_events["LASTING#1"].closed
