"""Lives of events while the endpoint misbehaves, at every stage, in every way the emulator has.

Each fault has a VM of its own, and all of them live through the same day side by side.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from forewarn.testing import Cloud, Event, FaultName
from support.guest_agent_world import WHOLE_LIFE, Guest, approved, finish, guest_of, judge

Faults = dict[FaultName, dict[str, Any]]  # by their kinds, each with its words

REFUSING: Faults = {
    "gone": {},
    "throttled": {"retry_after": 1},
    "error": {},
    "unavailable": {},
    "cut": {},
    "reset": {},
    "stall": {"seconds": 1},
}
READING: Faults = {**REFUSING, "empty": {}, "slow-first": {"seconds": 1}}
LASTING: Faults = {"unquoted-etag": {}, "skip": {"by": 3}, "rate-limit": {}}


class Day:
    """VMs that are called after what befalls them, each with its agent and its event."""

    def __init__(self, cloud: Cloud, guests: dict[str, Guest]) -> None:
        self.cloud = cloud
        self.guests = guests
        self.events: dict[str, Event] = {}

    def befall(self, faults: Faults, **more: Any) -> None:
        for kind, words in faults.items():
            self.cloud.faults.add(kind, vm=kind, **words, **more)

    def wait_met(self) -> None:
        """Until every fault that is over after some hits is over."""
        for guest in self.guests.values():
            guest.wait_for(lambda: not self.cloud.faults.list(), "all faults have hit")

    def order(self) -> None:
        self.events = {vm: self.cloud.restart(vm) for vm in self.guests}

    def wait_approved(self) -> None:
        for vm, guest in self.guests.items():
            guest.wait_for(partial(approved, self.cloud, self.events[vm]), f"{vm} approves")

    def wait_started(self) -> None:
        for guest in self.guests.values():
            guest.wait_ended("started", "note")

    def end(self) -> None:
        """Everything has come to its end for everybody, once."""
        for event in self.events.values():
            finish(self.cloud, event)
        for vm, guest in self.guests.items():
            guest.wait_closed()
            guest.stop()
            judge(guest)
            assert guest.order("ended") == WHOLE_LIFE
            assert [one.by for one in self.cloud.approvals(self.events[vm])] == [vm]


def day(stack: ExitStack, folder: Path, faults: Faults) -> Day:
    cloud = stack.enter_context(Cloud(vms=list(faults)))
    return Day(cloud, {vm: stack.enter_context(guest_of(cloud, folder, vm)) for vm in faults})


def start(today: Day) -> None:
    for guest in today.guests.values():
        guest.live()


def test_reading_the_document_fails_at_every_stage_and_every_life_is_whole(tmp_path: Path) -> None:
    with ExitStack() as stack:
        today = day(stack, tmp_path, READING)
        today.befall(READING, method="GET", count=1)  # the first sight
        today.order()
        start(today)
        today.wait_approved()
        today.wait_met()
        today.befall(REFUSING, method="GET", count=1)  # while it starts
        today.wait_started()
        today.befall(REFUSING, method="GET", count=1)  # while it goes
        today.end()


def test_approving_fails_and_every_event_is_approved_once(tmp_path: Path) -> None:
    with ExitStack() as stack:
        today = day(stack, tmp_path, REFUSING)
        today.befall(REFUSING, method="POST", count=1)
        today.order()
        start(today)
        today.wait_approved()
        today.wait_met()
        today.wait_started()
        today.end()


def test_oddities_that_last_disturb_nobody(tmp_path: Path) -> None:
    with ExitStack() as stack:
        today = day(stack, tmp_path, LASTING)
        today.befall(LASTING)
        today.order()
        start(today)
        today.wait_approved()
        today.wait_started()
        today.end()
