"""The agent is killed at every append to its journal, and nothing is silently lost or repeated.

One life of an event, played for each append and each way of dying there: before it, in the middle
of it, and when it is on the disk; then the agent is started again. APPENDS is how many there are,
which a test of its own makes sure of. What is judged is what the steps themselves have kept, and
the journal.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from forewarn.testing import Cloud, Event
from forewarn_guest.facts import FactKind
from support.guest_agent_world import LIFE, WHOLE_LIFE, Guest, finish, guest_of, judge, play

# begin, appeared, approving, approved, started, gone, closed; and each step three times: intended,
# begun, ended.
APPENDS = 7 + 3 * sum(map(len, LIFE.values()))
EVERY = range(1, APPENDS + 1)


def configure(guest: Guest, on_unknown: str) -> None:
    guest.configure(guest.rule(each=f'limit = "120s"\non_unknown = "{on_unknown}"'))


def go_on_to_the_end(guest: Guest, deaths: int = 1) -> None:
    """An agent that died at its last append is started once more: there is nothing left to do."""
    guest.wait_for(lambda: guest.deaths == deaths, "it has died")
    guest.wait_begun()
    guest.stop()
    assert guest.deaths == deaths


def test_a_life_has_as_many_appends_as_are_died_at(cloud: Cloud, tmp_path: Path) -> None:
    with guest_of(cloud, tmp_path) as guest:
        event = cloud.restart("vm0")
        guest.live()
        play(cloud, guest, event)
        guest.stop()
        judge(guest)
        lines = (guest.data / "journal").read_bytes().splitlines()
        assert sum(b'"fact":"pause"' not in line for line in lines) == APPENDS
        assert guest.order("ended") == WHOLE_LIFE
        assert [approval.by for approval in cloud.approvals(event)] == ["vm0"]


@pytest.mark.parametrize(
    ("when", "number"),
    [
        *(("before", number) for number in EVERY),
        *(("torn", number) for number in EVERY[::4]),
        *(("after", number) for number in EVERY),
    ],
)
def test_a_kill_loses_and_repeats_nothing_silently(
    cloud: Cloud, tmp_path: Path, when: str, number: int
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        event = cloud.restart("vm0")
        configure(guest, "repeat" if number % 2 else "treat-as-done")
        guest.start(dies=f"{when}:{number}")
        play(cloud, guest, event)
        go_on_to_the_end(guest)
        judge(guest)
        assert [approval.by for approval in cloud.approvals(event)] == ["vm0"]


@pytest.mark.parametrize("number", EVERY)
def test_an_event_that_comes_to_its_end_while_the_agent_is_dead_is_recovered_from(
    cloud: Cloud, tmp_path: Path, number: int
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        event = cloud.restart("vm0")
        configure(guest, "treat-as-failed")
        guest.while_dead = lambda: finish(cloud, event)
        guest.start(dies=f"before:{number}")
        if number > 2:
            play(cloud, guest, event)
        go_on_to_the_end(guest)
        if number > 2:
            judge(guest)
            assert guest.facts(FactKind.GONE)[0].detail["how"] == "ended"
        else:
            assert guest.order() == []  # it was not known yet that there is such an event


@pytest.mark.parametrize("first", ["after:3", "before:4", "after:9", "after:10", "before:16"])
@pytest.mark.parametrize("second", ["before:2", "after:3"])
def test_a_second_kill_right_after_the_first_changes_nothing_of_that(
    cloud: Cloud, tmp_path: Path, first: str, second: str
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        event = cloud.restart("vm0")
        configure(guest, "repeat")
        guest.further_deaths = [second]
        guest.start(dies=first)
        play(cloud, guest, event)
        go_on_to_the_end(guest, deaths=2)
        judge(guest)
        assert [approval.by for approval in cloud.approvals(event)] == ["vm0"]


# begin, appeared, gone, closed; drain three times, stop and note left out, the undoing six times.
CANCELED_APPENDS = 4 + 3 + 2 + 3 * len(LIFE["recover"])


@pytest.mark.parametrize("number", range(1, CANCELED_APPENDS + 1))
def test_a_kill_while_a_withdrawn_event_is_undone_loses_and_repeats_nothing_silently(
    cloud: Cloud, tmp_path: Path, number: int
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        held = guest.hold("prepare", "drain")
        event = cloud.restart("vm0")
        configure(guest, "repeat")
        guest.start(dies=f"after:{number}")
        guest.wait_ran("prepare", "drain")
        cloud.cancel(event)
        guest.wait_for(lambda: guest.facts(FactKind.GONE), "it is gone")
        held.unlink()
        guest.wait_closed()
        go_on_to_the_end(guest)
        judge(guest, {**LIFE, "recover": (), "canceled": LIFE["recover"]})
        undone = [f"canceled-{step}" for step in LIFE["recover"]]
        assert guest.order("ended") == ["prepare-drain", *undone]
        assert not cloud.approvals(event)


def finish_the_one_that_started(cloud: Cloud, guest: Guest, events: list[Event]) -> None:
    """Whichever was approved first starts first, and the others wait until it has ended."""

    def started() -> list[Event]:
        now = [cloud.event(event) for event in events]
        return [one for one in now if one.started is not None and not one.gone]

    guest.wait_for(started, "one of them has started")
    finish(cloud, started()[0])


@pytest.mark.parametrize("number", range(3, 30, 4))
def test_a_kill_while_two_events_share_a_preparation_runs_nothing_for_each_of_them(
    cloud: Cloud, tmp_path: Path, number: int
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        events = [cloud.maintain("vm0", "Freeze").event, cloud.restart("vm0")]
        configure(guest, "repeat")
        guest.start(dies=f"after:{number}")
        guest.wait_for(lambda: len(cloud.approvals()) == 2, "both are approved")
        finish_the_one_that_started(cloud, guest, events)
        finish_the_one_that_started(cloud, guest, events)
        guest.wait_closed(2)
        ran = [one for one in guest.order("ended") if not one.startswith("started")]
        assert ran == [one for one in WHOLE_LIFE if not one.startswith("started")]
