"""Who says go ahead, and when; and several events, or several VMs, at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from forewarn.testing import Cloud, Event
from forewarn_guest.facts import FactKind
from support.guest_agent_world import WHOLE_LIFE, Guest, approved, finish, guest_of, judge, play

FLEET = '[[host]]\nname = "h0"\n[[scope]]\nname = "web"\nkind = "availability-set"\n' + "".join(
    f'[[vm]]\nname = "web_{number}"\nscope = "web"\nupdate_domain = 0\nhost = "h0"\n'
    'listen = "127.0.0.1:0"\n'
    for number in range(3)
)


def test_nothing_is_approved_while_a_prepare_step_runs(cloud: Cloud, tmp_path: Path) -> None:
    with guest_of(cloud, tmp_path) as guest:
        held = guest.hold("prepare", "stop")
        event = cloud.restart("vm0")
        guest.live()
        guest.wait_ran("prepare", "stop")
        cloud.expect_not_approved(event, within=0.3)
        held.unlink()
        cloud.expect_approved(event, by="vm0", within=60)
        assert len(guest.ran("prepare", "stop", what="ended")) == 1


def test_at_once_approves_before_anything_is_prepared(cloud: Cloud, tmp_path: Path) -> None:
    with guest_of(cloud, tmp_path) as guest:
        head = 'types = ["Reboot"]\nsource = "User"\napprove = "at-once"'
        guest.configure(guest.rule(head=head))
        held = guest.hold("prepare", "drain")
        event = cloud.restart("vm0")
        guest.start()
        cloud.expect_approved(event, by="vm0", within=60)
        assert guest.order("ended") == []
        guest.wait_for(lambda: guest.facts(FactKind.STARTED), "it has started")
        held.unlink()
        finish(cloud, event)
        guest.wait_closed()
        guest.stop()
        assert guest.facts(FactKind.LEFT_OUT, part="prepare", step="stop")
        assert guest.order("ended")[-2:] == ["recover-start", "recover-fill"]


def test_never_prepares_and_lets_the_event_start_at_its_time(cloud: Cloud, tmp_path: Path) -> None:
    with guest_of(cloud, tmp_path) as guest:
        guest.configure(guest.rule(head='types = ["Reboot"]\napprove = "never"'))
        event = cloud.restart("vm0")
        guest.start()
        guest.wait_ended("prepare", "stop")
        cloud.expect_not_approved(event, within=0.3)
        cloud.clock.advance(minutes=15)
        guest.wait_ended("started", "note")
        finish(cloud, event)
        guest.wait_closed()
        guest.stop()
        judge(guest)
        assert not approved(cloud, event)
        assert not guest.facts(FactKind.APPROVING, FactKind.WITHHELD)


def test_a_failed_prepare_step_blocks_approval_and_everything_says_so(
    cloud: Cloud, tmp_path: Path
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        guest.fail("prepare", "drain")
        event = cloud.restart("vm0")
        guest.live()
        guest.wait_for(lambda: guest.facts(FactKind.WITHHELD), "it is withheld")
        why = "step drain of prepare: failed"
        assert guest.facts(FactKind.WITHHELD)[0].detail["why"] == why
        shown = guest.wait_for(
            lambda: [one for one in guest.status()["events"] if one["approval"].startswith("with")],
            "the status file says so",
        )
        assert shown[0]["approval"] == f"withheld: {why}"
        assert any("approval-withheld" in line and why in line for line in lines(guest, "error"))
        assert "prepare-drain cannot" in guest.said()  # what the step itself said
        cloud.expect_not_approved(event, within=0.3)
        play(cloud, guest, event)
        guest.stop()
        judge(guest)
        assert guest.order("ended") == ["started-note", "recover-start", "recover-fill"]


def test_a_failed_optional_step_blocks_nothing(cloud: Cloud, tmp_path: Path) -> None:
    with guest_of(cloud, tmp_path) as guest:
        guest.fail("prepare", "drain")
        guest.configure(guest.rule(special={"prepare-drain": "optional = true"}))
        event = cloud.restart("vm0")
        guest.start()
        cloud.expect_approved(event, by="vm0", within=60)
        assert len(guest.ran("prepare", "stop", what="ended")) == 1


def as_started(cloud: Cloud, guest: Guest, *events: Event) -> list[Event]:
    """The events, the started one in front: whichever approval came first started its event."""
    guest.wait_for(
        lambda: any(cloud.event(event).started is not None for event in events), "one has started"
    )
    return sorted(events, key=lambda event: cloud.event(event).started is None)


def lines(guest: Guest, level: str) -> list[str]:
    return [line for line in guest.said().splitlines() if f" {level} " in line]


# Two events.


def test_two_events_under_one_rule_share_one_preparation_and_one_recovery(
    cloud: Cloud, tmp_path: Path
) -> None:
    with guest_of(cloud, tmp_path) as guest:
        freeze = cloud.maintain("vm0", "Freeze").event
        reboot = cloud.restart("vm0")
        guest.live()
        guest.wait_for(lambda: len(cloud.approvals()) == 2, "both are approved")
        for event in as_started(cloud, guest, freeze, reboot):
            finish(cloud, event)
        guest.wait_closed(2)
        guest.stop()
        assert [one for one in guest.order("ended") if not one.startswith("started")] == [
            "prepare-drain",
            "prepare-stop",
            "recover-start",
            "recover-fill",
        ]
        assert len(guest.facts(FactKind.SHARED)) == 1


def test_two_events_under_two_rules_are_handled_side_by_side(cloud: Cloud, tmp_path: Path) -> None:
    with guest_of(cloud, tmp_path) as guest:
        guest.configure(
            guest.rule(head='types = ["Freeze"]', prepare=("warm",), recover=("cool",)),
            guest.rule(head='types = ["Reboot"]', prepare=("drain",), recover=("start",)),
        )
        held = guest.hold("prepare", "warm")
        freeze = cloud.maintain("vm0", "Freeze").event
        reboot = cloud.restart("vm0")
        guest.start()
        cloud.expect_approved(reboot, by="vm0", within=60)  # while the other is still prepared for
        cloud.expect_not_approved(freeze)
        finish(cloud, reboot)
        guest.wait_ended("recover", "start")
        held.unlink()
        cloud.expect_approved(freeze, by="vm0", within=60)
        finish(cloud, freeze)
        guest.wait_closed(2)
        guest.stop()
        assert sorted(guest.order("ended")) == [
            "prepare-drain",
            "prepare-warm",
            "recover-cool",
            "recover-start",
        ]


# Three VMs that one event names.


@pytest.fixture
def three(tmp_path: Path) -> Iterator[tuple[Cloud, list[Guest]]]:
    with Cloud(inventory=FLEET) as cloud, ExitStack() as stack:
        guests = [stack.enter_context(guest_of(cloud, tmp_path, vm.name)) for vm in cloud.vms]
        yield cloud, guests


def lead(guests: list[Guest], take_over_s: int) -> None:
    """Have them approve in turns."""
    head = f'types = ["Freeze"]\napprove = "first-named"\ntake_over = "{take_over_s}s"'
    for guest in guests:
        guest.configure(guest.rule(head=head))


@pytest.mark.parametrize(("dead", "take_over_s"), [(0, 60), (1, 6), (2, 1)])
def test_the_first_vm_that_has_an_agent_approves_in_its_turn(
    three: tuple[Cloud, list[Guest]], dead: int, take_over_s: int
) -> None:
    cloud, guests = three
    lead(guests, take_over_s)
    event = cloud.maintain("h0", "Freeze").event
    assert event.resources == ("web_0", "web_1", "web_2")
    others = guests[dead + 1 :]
    for guest in others:
        guest.start()
    if dead == 0:  # it approves at once, and the event starts: the others are prepared before
        for guest in others:
            guest.wait_ended("prepare", "stop")
    guests[dead].start()
    for guest in guests[dead:]:
        guest.wait_ended("prepare", "stop")
    cloud.expect_approved(event, by=f"web_{dead}", within=60)
    guests[dead].wait_for(lambda: guests[dead].facts(FactKind.APPROVED), "it is kept")
    prepared = guests[dead].facts(FactKind.ENDED, part="prepare", step="stop")[0]
    said = guests[dead].facts(FactKind.APPROVING)[0]
    assert (said.at - prepared.at).total_seconds() >= 0.9 * dead * take_over_s
    for guest in guests[dead:]:
        guest.wait_ended("started", "note")
    finish(cloud, event)
    for guest in guests[dead:]:
        guest.wait_closed()
        guest.stop()
        assert guest.order("ended") == WHOLE_LIFE
        assert bool(guest.facts(FactKind.APPROVING)) is (guest is guests[dead])


def test_a_first_named_vm_whose_own_preparation_failed_leaves_it_to_the_next(
    three: tuple[Cloud, list[Guest]],
) -> None:
    cloud, guests = three
    lead(guests, 6)
    guests[0].fail("prepare", "drain")
    event = cloud.maintain("h0", "Freeze").event
    for guest in guests:
        guest.start()
    cloud.expect_approved(event, by="web_1", within=60)
    guests[0].wait_for(lambda: guests[0].facts(FactKind.WITHHELD), "it says why")
