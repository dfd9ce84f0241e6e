"""What is a pause and what is not, with clocks made up; and a process that really stands still."""

from __future__ import annotations

import re
import signal
import threading
from pathlib import Path

import pytest

from forewarn_guest.http1 import Bell
from forewarn_guest.journal import facts_in
from forewarn_guest.pauses import BEAT_S, Clocks, Pause, detect, judge, read_clocks
from outside_world import AgentProcess, wait_until
from scripted_endpoint import ScriptedEndpoint, document, event

BEFORE = Clocks(monotonic_s=1000.0, wall_s=5000.0, boot_s=2000.0)


def after(ran_s: float, *, wall_s: float = 0.0, boot_s: float = 0.0) -> Clocks:
    """The clocks after so long, the wall clock and the one of the boot moved beyond that."""
    return Clocks(1000.0 + ran_s, 5000.0 + ran_s + wall_s, 2000.0 + ran_s + boot_s)


def test_a_beat_in_time_is_no_pause() -> None:
    assert judge(BEFORE, after(BEAT_S)) is None


@pytest.mark.parametrize("late_s", [0.001, 0.05, 0.2, 0.49])
def test_a_beat_that_is_a_little_late_is_no_pause(late_s: float) -> None:
    assert judge(BEFORE, after(BEAT_S + late_s)) is None


@pytest.mark.parametrize("slewed_s", [-0.025, 0.000125, 0.025, 0.128])
def test_a_clock_that_is_slewed_or_stepped_by_ntp_is_no_pause(slewed_s: float) -> None:
    assert judge(BEFORE, after(BEAT_S, wall_s=slewed_s)) is None


def test_a_process_that_did_not_run_while_the_clocks_went_on_is_a_gap() -> None:
    pause = judge(BEFORE, after(BEAT_S + 4.0))
    assert pause == Pause(gap_s=4.0)
    assert (pause.how, pause.seconds) == ("gap", 4.0)


def test_a_wall_clock_that_was_set_right_after_the_vm_stood_still_is_a_jump() -> None:
    pause = judge(BEFORE, after(BEAT_S, wall_s=7.5))
    assert pause is not None
    assert (pause.how, pause.seconds, pause.gap_s) == ("jump", 7.5, 0.0)


def test_a_suspension_that_the_kernel_knows_of_is_told_from_a_clock_that_was_set() -> None:
    pause = judge(BEFORE, after(BEAT_S, wall_s=30.0, boot_s=30.0))
    assert pause is not None
    assert (pause.how, pause.seconds) == ("suspended", 30.0)


def test_what_the_clocks_ran_through_and_what_they_missed_are_added() -> None:
    pause = judge(BEFORE, after(BEAT_S + 2.0, wall_s=3.0))
    assert pause is not None
    assert pause.seconds == pytest.approx(5.0)


@pytest.mark.parametrize("back_s", [-0.6, -3600.0])
def test_a_wall_clock_that_was_set_back_is_no_pause(back_s: float) -> None:
    assert judge(BEFORE, after(BEAT_S, wall_s=back_s)) is None


def test_without_a_clock_of_the_boot_gaps_and_jumps_are_still_seen() -> None:
    before = Clocks(10.0, 20.0)
    assert judge(before, Clocks(10.0 + BEAT_S + 1.0, 21.0 + BEAT_S)) == Pause(gap_s=1.0)
    assert judge(before, Clocks(10.0 + BEAT_S, 22.0 + BEAT_S)) == Pause(jump_s=2.0)


def test_the_clocks_of_this_machine_can_be_read_and_go_ahead() -> None:
    first, second = read_clocks(), read_clocks()
    assert second.monotonic_s >= first.monotonic_s
    assert judge(first, second) is None


def test_the_beat_ends_as_soon_as_the_bell_is_rung() -> None:
    bell = Bell()
    found: list[Pause] = []
    beating = threading.Thread(target=detect, args=(bell, found.append))
    beating.start()
    bell.ring()
    beating.join(60.0)
    assert not beating.is_alive()
    bell.close()


def test_a_stopped_agent_keeps_in_its_journal_how_long_it_stood_still_and_during_which_event(
    tmp_path: Path,
) -> None:
    shown = document(2, event("F1", EventType="Freeze"))
    with ScriptedEndpoint(shown) as endpoint:
        agent = AgentProcess(tmp_path, endpoint.url)
        with agent.running():
            agent.await_log("appeared")
            agent.signal(signal.SIGSTOP)
            threading.Event().wait(1.5)  # how long it stands still is what is measured
            agent.signal(signal.SIGCONT)

            def kept() -> list[dict[str, object]]:
                return [fact for fact in facts_in(agent.journal) if fact["fact"] == "pause"]

            def measured() -> list[dict[str, object]]:
                # A busy machine may stand still by itself, too. Up to a beat is not seen.
                return [one for one in kept() if float(str(one["seconds"])) >= 1.5 - BEAT_S]

            fact = wait_until(measured, "a fact about the pause")[0]
            assert fact["how"] == "gap"
            assert fact["tracked_events"] == ["F1#1"]
            wait_until(
                lambda: re.search(r'pauses_total{how="gap"} [1-9]', agent.metrics_file.read_text()),
                "the pause in the metrics",
            )
            last = wait_until(lambda: agent.status()["pauses"]["last"], "the pause in the status")
            assert last["seconds"] in [one["seconds"] for one in kept()]
