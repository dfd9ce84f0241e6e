"""The agent is killed while a step runs, alone, or with the step, or with the whole VM."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from forewarn.testing import Cloud, Event
from forewarn_guest.facts import FactKind
from forewarn_guest.run_files import start_ticks
from programs import program
from support.guest_agent_world import (
    LIFE,
    WHOLE_LIFE,
    Guest,
    approved,
    finish,
    guest_of,
    judge,
    play,
)

ON_UNKNOWN = ("repeat", "treat-as-done", "treat-as-failed")


def configure(guest: Guest, on_unknown: str = "treat-as-failed") -> None:
    guest.configure(guest.rule(each=f'limit = "120s"\non_unknown = "{on_unknown}"'))


def until(cloud: Cloud, guest: Guest, event: Event, part: str, step: str) -> None:
    """Have the agent come to a step that is held, whatever part it is of."""
    if part != "prepare":
        guest.wait_for(lambda: approved(cloud, event), "it is approved")
    if part == "recover":
        guest.wait_ended("started", "note")
        finish(cloud, event)
    guest.wait_ran(part, step)
    guest.wait_for(lambda: guest.facts(FactKind.BEGUN, part=part, step=step), "it is kept")


@pytest.mark.parametrize(("part", "step"), [(p, step) for p in LIFE for step in LIFE[p][:1]])
def test_a_step_that_still_runs_is_waited_for(
    cloud: Cloud, tmp_path: Path, part: str, step: str
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        held = guest.hold(part, step)
        event = cloud.restart("vm0")
        guest.live()
        until(cloud, guest, event, part, step)
        guest.kill()
        guest.start()
        guest.wait_for(lambda: "a step still runs" in guest.said(), "it is found")
        guest.kill()  # and once more, while it waits for it
        guest.start()
        cloud.expect_polled("vm0", more_than=cloud.polls("vm0"), within=60)
        assert len(guest.ran(part, step)) == 1
        if part == "prepare":
            cloud.expect_not_approved(event)
        held.unlink()
        play(cloud, guest, event)
        guest.stop()
        judge(guest)
        (end,) = guest.facts(FactKind.ENDED, part=part, step=step)
        assert (end.detail["outcome"], end.detail["detail"]) == ("done", "exit status 0")
        assert len(guest.ran()) == sum(map(len, LIFE.values()))


@pytest.mark.parametrize("fails", [False, True])
def test_how_a_step_ended_while_no_agent_ran_is_known(
    cloud: Cloud, tmp_path: Path, *, fails: bool
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        held = guest.hold("prepare", "drain")
        if fails:
            guest.fail("prepare", "drain")
        event = cloud.restart("vm0")
        guest.live()
        until(cloud, guest, event, "prepare", "drain")
        guest.kill()
        held.unlink()
        guest.wait_for(
            lambda: b"ended" in b"".join(p.read_bytes() for p in guest.data.glob("steps/*.run")),
            "it has ended",
        )
        guest.start()
        play(cloud, guest, event)
        guest.stop()
        judge(guest)
        (end,) = guest.facts(FactKind.ENDED, part="prepare", step="drain")
        assert end.detail["outcome"] == ("failed" if fails else "done")
        assert approved(cloud, event) is not fails


def test_an_agent_that_is_told_to_end_leaves_its_step_to_the_next(
    cloud: Cloud, tmp_path: Path
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        held = guest.hold("prepare", "stop")
        event = cloud.restart("vm0")
        guest.live()
        until(cloud, guest, event, "prepare", "stop")
        guest.stop()
        guest.start()
        guest.wait_begun()
        held.unlink()
        play(cloud, guest, event)
        guest.stop()
        judge(guest)
        assert len(guest.ran("prepare", "stop")) == 1


@pytest.mark.parametrize("late", [False, True], ids=["before the next", "after the next"])
def test_a_process_that_was_too_slow_to_begin_before_the_kill_does_not_run_beside_the_next(
    cloud: Cloud, tmp_path: Path, *, late: bool
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        gate = guest.folder / "gate"
        guest.environment["GATE"] = str(gate)
        held = guest.hold("prepare", "drain")
        event = cloud.restart("vm0")
        configure(guest)
        guest.start(dies="early:1")
        guest.wait_for(lambda: guest.deaths == 1, "it has died")
        guest.wait_ran("prepare", "drain")  # it was never begun, and so it is run now
        if late:
            held.unlink()
            guest.wait_ended("prepare", "drain")
        gate.touch()
        pid = int((guest.folder / "gate.pid").read_text(encoding="ascii"))
        guest.wait_for(lambda: start_ticks(pid) is None, "the slow one has ended")
        held.unlink(missing_ok=True)
        play(cloud, guest, event)
        guest.stop()
        judge(guest)
        assert guest.order("ended") == WHOLE_LIFE


# The step dies too.


def another_boot(guest: Guest) -> None:
    """The agent runs from now on in a VM that has been booted once more."""
    boot_id = guest.folder / "boot_id"
    boot_id.write_text("00000000-0000-4000-8000-000000000001\n", encoding="ascii")
    where = "/proc/sys/kernel/random/boot_id"
    program("unshare")  # gives the agent another boot id
    under = ["unshare", "--map-root-user", "--mount", "sh", "-e", "-c"]
    under += [f'mount --bind "{boot_id}" {where}; exec "$@"', "sh"]
    tried = subprocess.run([*under, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no mount namespace may be made here: {tried.stderr.strip()}")
    guest.under = under


def judge_unknown(cloud: Cloud, guest: Guest, event: Event, on_unknown: str) -> None:
    """What has become of the step drain, whose first run nobody saw the end of."""
    judge(guest)
    ends = [f.detail["outcome"] for f in guest.facts(FactKind.ENDED, part="prepare", step="drain")]
    ruled = [f.detail["counts_as"] for f in guest.facts(FactKind.RULED)]
    expected = {
        "repeat": (["unknown", "done"], [], 2, True),
        "treat-as-done": (["unknown"], ["done"], 1, True),
        "treat-as-failed": (["unknown"], ["failed"], 1, False),
    }
    runs = len(guest.ran("prepare", "drain"))
    assert (ends, ruled, runs, approved(cloud, event)) == expected[on_unknown]
    if on_unknown == "treat-as-failed":
        (left_out,) = guest.facts(FactKind.LEFT_OUT, part="prepare", step="stop")
        assert left_out.detail["why"] == "an earlier step had failed"
        (withheld,) = guest.facts(FactKind.WITHHELD)
        assert withheld.detail["why"] == "step drain of prepare: unknown"
    assert len(guest.ran("recover")) == 2


@pytest.mark.parametrize("on_unknown", ON_UNKNOWN)
def test_a_step_that_died_with_the_agent_follows_its_rule(
    cloud: Cloud, tmp_path: Path, on_unknown: str
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        held = guest.hold("prepare", "drain")
        event = cloud.restart("vm0")
        configure(guest, on_unknown)
        guest.start()
        until(cloud, guest, event, "prepare", "drain")
        guest.kill()
        guest.kill_steps()
        held.unlink()
        guest.start()
        play(cloud, guest, event)
        guest.stop()
        judge_unknown(cloud, guest, event, on_unknown)


@pytest.mark.parametrize("on_unknown", ON_UNKNOWN)
def test_a_step_that_ran_when_the_vm_was_booted_follows_its_rule(
    cloud: Cloud, tmp_path: Path, on_unknown: str
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        held = guest.hold("prepare", "drain")
        event = cloud.restart("vm0")
        configure(guest, on_unknown)
        guest.start()
        until(cloud, guest, event, "prepare", "drain")
        guest.kill()
        guest.kill_steps()
        another_boot(guest)
        held.unlink()
        guest.start()
        play(cloud, guest, event)
        guest.stop()
        judge_unknown(cloud, guest, event, on_unknown)
        boots = [fact.detail["boot_id"] for fact in guest.facts(FactKind.BEGIN)]
        assert len(set(boots)) == 2


def test_what_was_prepared_is_recovered_after_the_reboot_that_it_was_prepared_for(
    cloud: Cloud, tmp_path: Path
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        event = cloud.restart("vm0")
        guest.live()
        guest.wait_for(lambda: approved(cloud, event), "it is approved")
        guest.wait_ended("started", "note")
        guest.kill()
        another_boot(guest)
        finish(cloud, event)
        guest.start()
        guest.wait_closed()
        guest.stop()
        judge(guest)
        assert guest.order("ended") == WHOLE_LIFE


def test_an_event_of_a_vm_that_was_booted_without_a_word_is_not_taken_for_canceled(
    cloud: Cloud, tmp_path: Path
) -> None:
    """The VM went down while it was being prepared, and the event is gone when it is back."""
    with guest_of(cloud, tmp_path) as guest:
        guest.hold("prepare", "stop")
        event = cloud.restart("vm0")
        guest.live()
        until(cloud, guest, event, "prepare", "stop")
        guest.kill()
        guest.kill_steps()
        another_boot(guest)
        cloud.cancel(event)
        guest.start()
        guest.wait_closed()
        guest.stop()
        judge(guest)
        assert guest.facts(FactKind.GONE)[0].detail["how"] == "ended"
        assert [one.step for one in guest.ran("recover", what="ended")] == list(LIFE["recover"])
