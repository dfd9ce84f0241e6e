"""`forewarn feed`: lines for people, CloudEvents for programs, and a place that is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.control.commands import Prune
from forewarn.core.model import DAY_MS
from forewarn.core.principal import CLOCK
from support.cli_runner import Ran, ask
from support.operator_world import OperatorWorld, running


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running() as made:
        for _ in range(3):
            made.order("/v1/hosts/h1/close")
            made.order("/v1/hosts/h1/open")
        yield made


def told(ran: Ran) -> list[dict[str, Any]]:
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def numbers(ran: Ran) -> list[int]:
    return [event["data"]["number"] for event in told(ran)]


def end(world: OperatorWorld) -> int:
    return world.control.fleet.journal.end


def test_a_program_is_told_a_cloud_event_on_each_line(world: OperatorWorld) -> None:
    events = told(ask(world, "feed", "--json"))
    assert events == world.get("/v1/feed?limit=1000")["items"]
    assert events[-1]["type"] == "io.forewarn.host.opened.v1"


def test_a_person_reads_the_lines_of_the_journal(world: OperatorWorld) -> None:
    lines = ask(world, "feed", "--kind", "host-closed,host-opened").out.splitlines()
    journal = ask(world, "journal").out.splitlines()
    assert lines == [line for line in journal if "host-closed" in line or "host-opened" in line]
    assert len(lines) == 6


def test_with_text_it_has_the_lines_for_people_in_words(world: OperatorWorld) -> None:
    world.polls("web", "web-0")
    event_id = world.order("/v1/vms/web-0/restart")["event_id"]
    world.order(f"/v1/events/{event_id}/approve", {"reason": "it cannot <wait>"})
    ran = ask(world, "feed", "--text")
    announced, override = ran.out.splitlines()
    assert announced.startswith("Announced: Reboot of web-0 in scope web on host h1, not before ")
    assert "Reason: it cannot <wait>." in override
    assert ask(world, "feed", "--text", "--json").code == 2


def test_it_begins_after_an_id_a_number_a_file_or_the_end(
    world: OperatorWorld, tmp_path: Path
) -> None:
    file = tmp_path / "place"
    file.write_text("1-3\n")
    after_three = list(range(4, end(world) + 1))
    for after in ("3", "1-3", str(file)):
        assert numbers(ask(world, "feed", "--after", after, "--json")) == after_three
    assert told(ask(world, "feed", "--after", "end", "--json")) == []
    assert ask(world, "feed", "--after", "end").out == "The feed has no line like that.\n"


@pytest.mark.parametrize("after", ["three", "1-", "/nowhere/at/all", "-1"])
def test_what_is_no_place_is_refused_with_what_would_be_one(
    world: OperatorWorld, after: str
) -> None:
    ran = ask(world, "feed", f"--after={after}")
    assert ran.code == 2
    assert "1-503" in ran.err


def test_how_far_it_has_come_is_kept_in_a_file_and_it_goes_on_from_there(
    world: OperatorWorld, tmp_path: Path
) -> None:
    file = tmp_path / "place"
    first = numbers(ask(world, "feed", "--cursor", str(file), "--json"))
    assert first == list(range(1, end(world) + 1))
    assert file.read_text() == f"1-{end(world)}\n"
    assert numbers(ask(world, "feed", "--cursor", str(file), "--json")) == []
    world.order("/v1/hosts/h1/close")
    # What the file says counts for more than where a first run would begin.
    again = ask(world, "feed", "--cursor", str(file), "--after", "1", "--json")
    assert numbers(again) == [end(world)]
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def test_what_the_filter_leaves_out_moves_it_on_too(world: OperatorWorld, tmp_path: Path) -> None:
    file = tmp_path / "place"
    assert numbers(ask(world, "feed", "--cursor", str(file), "--scope", "web", "--json")) == []
    assert file.read_text() == f"1-{end(world)}\n"


@pytest.mark.parametrize("content", ["", "x\n", "1-2-3", "\x00" * 99, "9" * 99])
def test_a_file_that_has_no_place_is_named_and_left_as_it_is(
    world: OperatorWorld, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "place"
    file.write_text(content)
    ran = ask(world, "feed", "--cursor", str(file), "--json")
    assert (ran.code, ran.out) == (2, "")
    assert "place" in ran.err
    assert file.read_text() == content


def test_a_file_that_cannot_be_written_is_said_with_what_was_printed_last(
    world: OperatorWorld, tmp_path: Path
) -> None:
    ran = ask(world, "feed", "--cursor", str(tmp_path / "no" / "folder"), "--json")
    assert ran.code == 2
    assert f"1-{end(world)}" in ran.err
    assert len(ran.out.splitlines()) == end(world)


def test_a_place_that_was_pruned_ends_it_and_says_how_to_go_on(tmp_path: Path) -> None:
    file = tmp_path / "place"
    file.write_text("1-1\n")
    with running() as world:
        world.order("/v1/hosts/h1/close")
        world.clock.pass_ms(401 * DAY_MS)
        world.hosts_beat()
        world.submit(Prune(by=CLOCK, retention_days=400))
        kept = world.control.fleet.journal.pruned_through
        ran = ask(world, "feed", "--follow", "--cursor", str(file))
    assert ran.code == 1
    assert "pruned" in ran.err
    assert f"echo 1-{kept} > {file}" in " ".join(ran.err.split())
    assert file.read_text() == "1-1\n"
