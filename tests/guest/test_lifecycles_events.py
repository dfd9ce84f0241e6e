"""What the agent does about each type of event, from its first sight to its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn.testing import Cloud, Event
from forewarn_guest.facts import FactKind
from support.guest_agent_world import LIFE, WHOLE_LIFE, approved, finish, guest_of, judge, play

Order = Callable[[Cloud], Event]


@pytest.mark.parametrize(
    ("event_type", "source", "order"),
    [
        pytest.param("Reboot", "User", lambda c: c.restart("vm0"), id="restart"),
        pytest.param("Redeploy", "User", lambda c: c.redeploy("vm0"), id="redeploy"),
        pytest.param(
            "Freeze", "Platform", lambda c: c.maintain("vm0", "Freeze").event, id="freeze"
        ),
        pytest.param(
            "Reboot", "Platform", lambda c: c.maintain("vm0", "Reboot").event, id="reboot"
        ),
        pytest.param("Redeploy", "Platform", lambda c: c.degrade("vm0").event, id="degraded"),
    ],
)
@pytest.mark.cloud(vms=["vm0", "vm1"])
def test_the_vm_is_prepared_the_event_approved_and_the_workload_brought_back(
    cloud: Cloud, tmp_path: Path, event_type: str, source: str, order: Order
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        guest.live()
        event = order(cloud)
        play(cloud, guest, event)
        guest.stop()
        judge(guest)
        assert (event.event_type, event.event_source) == (event_type, source)
        assert guest.order("ended") == WHOLE_LIFE
        assert [approval.by for approval in cloud.approvals(event)] == ["vm0"]


@pytest.mark.cloud(spot=True)
@pytest.mark.parametrize(
    ("order", "types"),
    [
        pytest.param(lambda c: c.delete("vm0"), '"Terminate"', id="delete"),
        pytest.param(lambda c: c.evict("vm0"), '"Preempt"', id="evict"),
    ],
)
def test_a_vm_that_is_about_to_go_for_good_is_prepared_and_approves(
    cloud: Cloud, tmp_path: Path, order: Order, types: str
) -> None:
    """What comes after that nobody sees: the VM is no more."""
    with guest_of(cloud, tmp_path) as guest:
        guest.configure(guest.rule(head=f"types = [{types}]", each='limit = "5s"'))
        guest.start()
        event = order(cloud)
        cloud.expect_approved(event, by="vm0", within=60)
        guest.wait_ended("started", "note")
        guest.kill()
        assert guest.order("ended") == ["prepare-drain", "prepare-stop", "started-note"]


@pytest.mark.cloud(spot=True)
def test_a_preempt_is_nobodys_business_without_a_rule_for_it(cloud: Cloud, tmp_path: Path) -> None:
    with guest_of(cloud, tmp_path) as guest:
        guest.configure(guest.rule(head='name = "all"'))
        guest.start()
        event = cloud.evict("vm0")
        guest.wait_for(lambda: guest.facts(FactKind.APPEARED, rule=""), "it is noted")
        guest.wait_for(lambda: "no rule matches" in guest.said(), "it is said")
        guest.stop()
        assert guest.order() == []
        cloud.expect_not_approved(event)


@pytest.mark.parametrize("own", [True, False], ids=["canceled steps", "recover steps"])
def test_an_event_withdrawn_during_prepare_is_undone(
    cloud: Cloud, tmp_path: Path, *, own: bool
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        parts = {**LIFE, "canceled": ("undo",)} if own else LIFE
        guest.configure(guest.rule(**parts))
        held = guest.hold("prepare", "drain")
        guest.start()
        event = cloud.restart("vm0")
        guest.wait_ran("prepare", "drain")
        cloud.cancel(event)
        guest.wait_for(lambda: guest.facts(FactKind.GONE, how="canceled"), "it is gone")
        assert guest.order() == ["prepare-drain"]  # nothing is undone while it still runs
        held.unlink()
        guest.wait_closed()
        guest.stop()
        undone = ("undo",) if own else LIFE["recover"]
        judge(guest, {"prepare": LIFE["prepare"], "started": ("note",), "canceled": undone})
        assert guest.order("ended") == ["prepare-drain", *(f"canceled-{step}" for step in undone)]
        assert not approved(cloud, event)
        assert not guest.facts(FactKind.APPROVING)


def test_an_event_first_seen_as_started_is_not_prepared_for_and_is_recovered_from(
    cloud: Cloud, tmp_path: Path
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        guest.live()
        cloud.expect_polled("vm0", within=60)
        (event,) = cloud.fail("vm0")
        guest.wait_ended("started", "note")
        cloud.repair("vm0")
        finish(cloud, event)
        guest.wait_closed()
        guest.stop()
        assert guest.order("ended") == ["started-note", "recover-start", "recover-fill"]
        assert not guest.facts(FactKind.APPROVING)


def test_an_event_that_names_another_vm_is_left_alone(tmp_path: Path) -> None:
    with Cloud(scopes=["web:2"]) as cloud, guest_of(cloud, tmp_path, "web_0") as guest:
        guest.live()
        other = cloud.restart("web_1")
        cloud.expect_read("web_0", other, within=60)
        mine = cloud.restart("web_0")
        cloud.expect_approved(mine, by="web_0", within=60)
        guest.stop()
        assert {one.event_id for one in guest.ran()} == {mine.event_id}
        cloud.expect_not_approved(other)


@pytest.mark.parametrize(("duration", "taken"), [(9, False), (10, True)])
def test_a_freeze_shorter_than_the_rule_wants_is_noted_and_left_alone(
    cloud: Cloud, tmp_path: Path, duration: int, *, taken: bool
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        guest.configure(guest.rule(head='types = ["Freeze"]\nmin_duration = "10s"'))
        guest.start()
        event = cloud.maintain("vm0", "Freeze", duration=duration).event
        guest.wait_for(lambda: guest.facts(FactKind.APPEARED), "it is noted")
        if taken:
            cloud.expect_approved(event, within=60)
        finish(cloud, event)
        guest.wait_closed()
        guest.stop()
        assert bool(guest.ran("prepare")) is taken
        assert bool(guest.ran("recover")) is taken
        assert approved(cloud, event) is taken


# Time.


def test_a_prepare_step_that_hangs_is_ended_the_margin_before_the_event_may_start(
    cloud: Cloud, tmp_path: Path
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        margin = 'types = ["Reboot"]\nmargin = "14m58s"'  # of fifteen minutes: two seconds
        guest.configure(guest.rule(head=margin, each='limit = "15m"'))
        guest.hold("prepare", "drain")
        event = cloud.restart("vm0")
        guest.start()
        guest.wait_ran("prepare", "drain")
        guest.wait_for(lambda: guest.facts(FactKind.WITHHELD), "it is withheld")
        (begun,) = guest.facts(FactKind.BEGUN, step="drain")
        (end,) = guest.facts(FactKind.ENDED, step="drain")
        assert end.detail["outcome"] == "timed-out"
        assert 1.0 < (end.at - begun.at).total_seconds() < 4.0
        assert guest.facts(FactKind.LEFT_OUT, part="prepare", step="stop")
        cloud.expect_not_approved(event)
        play(cloud, guest, event)
        guest.stop()
        assert guest.order("ended") == ["started-note", "recover-start", "recover-fill"]


def test_what_brings_back_goes_on_after_a_step_that_took_too_long(
    cloud: Cloud, tmp_path: Path
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        guest.configure(guest.rule(special={"recover-start": 'limit = "1s"'}))
        guest.hold("recover", "start")
        event = cloud.restart("vm0")
        guest.start()
        play(cloud, guest, event)
        guest.stop()
        (end,) = guest.facts(FactKind.ENDED, part="recover", step="start")
        assert end.detail["outcome"] == "timed-out"
        assert len(guest.ran("recover", "fill", what="ended")) == 1


# What steps are told.


def test_a_step_is_told_the_event_as_it_stands_in_the_document(tmp_path: Path) -> None:
    with Cloud(scopes=["web:2"]) as cloud, guest_of(cloud, tmp_path, "web_1") as guest:
        guest.program.write_text(
            '#!/bin/sh\ncat >"${0%/*}/given-$FOREWARN_PART"\n'
            'env >"${0%/*}/environment-$FOREWARN_PART"\n',
            encoding="ascii",
        )
        guest.configure(guest.rule(prepare=("drain",)))
        event = cloud.restart("web_1")
        shown = cloud.document("web_1")["Events"]
        guest.start()
        cloud.expect_approved(event, within=60)
        guest.stop()
        given = json.loads((guest.folder / "given-prepare").read_text(encoding="utf-8"))
        assert [given["event"]] == shown
        assert (given["vm"], given["part"], given["first_named"]) == ("web_1", "prepare", True)
        assert 880 < given["seconds_left"] <= 900
        environment = (guest.folder / "environment-prepare").read_text(encoding="utf-8")
        for expected in (
            "FOREWARN_EVENT_TYPE=Reboot",
            f"FOREWARN_EVENT_ID={event.event_id}",
            "FOREWARN_EVENT_STATUS=Scheduled",
            "FOREWARN_EVENT_RESOURCES=web_1",
            "FOREWARN_EVENT_SOURCE=User",
            "FOREWARN_EVENT_DURATION=-1",
            "FOREWARN_EVENT_FIRST_NAMED=yes",
            "FOREWARN_VM=web_1",
            "FOREWARN_STEP=drain",
        ):
            assert expected in environment.splitlines()
