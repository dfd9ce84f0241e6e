"""Each shipped scenario as a guest sees it: what its document says, at the instants of the script.

Between two instants of a story the document must not change: it is read one millisecond before
each of them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from emulator.scenario_stage import Stage, stage
from forewarn.core.model import SECOND_MS
from forewarn.emulator.scenarios import library
from forewarn.text.durations import parse_duration_ms

MAINTENANCE = "Host server is undergoing maintenance."
MIGRATION = (
    "Virtual machine is being paused because of a memory-preserving Live Migration operation."
)
RESTART = "Virtual machine is going to be restarted as requested by authorized user."
REDEPLOY = "Virtual machine is going to be redeployed as requested by authorized user."
REPAIR = "Host server is undergoing an emergency repair."
FAILURE = "Virtual machine has encountered a failure."


@dataclass(frozen=True)
class Told:
    """An event of a document; `not_before` counts from the start of the run, None once Started."""

    event_type: str
    source: str
    not_before: str | None
    duration_s: int
    description: str
    resources: tuple[str, ...] = ("vm0",)

    @property
    def started(self) -> Told:
        return Told(
            self.event_type, self.source, None, self.duration_s, self.description, self.resources
        )


# (when, the incarnation, what the document says then)
Story = Sequence[tuple[str, int, Sequence[Told]]]


def plain(event: Told, starts: str, ends: str) -> Story:
    """Announced at once, started without approval, gone."""
    return [("0s", 2, [event]), (starts, 3, [event.started]), (ends, 4, [])]


def rolling() -> Story:
    first, second, third = (
        Told("Reboot", "Platform", at, -1, MAINTENANCE, (vm,))
        for vm, at in (("web_0", "15m"), ("web_1", "40m"), ("web_2", "65m"))
    )
    return [
        ("0s", 2, [first]),
        ("15m", 3, [first.started]),
        ("25m", 5, [second]),  # the first is gone, and at the same instant the next is announced
        ("40m", 6, [second.started]),
        ("50m", 8, [third]),
        ("65m", 9, [third.started]),
        ("75m", 10, []),
    ]


LONG = Told("Freeze", "Platform", "15m", 30, MAINTENANCE)
SHORT = Told("Freeze", "Platform", "41m", 5, MIGRATION)
FREEZE = Told("Freeze", "Platform", "15m", 9, MAINTENANCE)
POSTPONED = Told("Freeze", "Platform", "68m", 9, MAINTENANCE)
LATE = Told("Reboot", "User", "17m", -1, RESTART)
DELETED = [Told("Terminate", "User", "5m", -1, "", (vm,)) for vm in ("web_1", "web_2")]
EVICTION = Told("Preempt", "Platform", "30s", -1, "")
DELETION = Told("Terminate", "User", "5m", -1, "")

STORIES: dict[str, Story] = {
    "live-migration": plain(Told("Freeze", "Platform", "15m", 5, MIGRATION), "15m", "20m"),
    "host-maintenance": plain(FREEZE, "15m", "25m"),
    "user-reboot": plain(Told("Reboot", "User", "15m", -1, RESTART), "15m", "25m"),
    "user-redeploy": plain(Told("Redeploy", "User", "10m", -1, REDEPLOY), "10m", "20m"),
    "platform-redeploy": plain(Told("Redeploy", "Platform", "10m", -1, FAILURE), "10m", "20m"),
    "degraded-hardware": plain(Told("Redeploy", "Platform", "7d", -1, REPAIR), "7d", "7d10m"),
    "canceled-maintenance": [("0s", 2, [FREEZE]), ("8m", 3, [])],
    "postponed-maintenance": [
        ("0s", 2, [FREEZE]),
        ("8m", 3, [POSTPONED]),
        ("68m", 4, [POSTPONED.started]),
        ("78m", 5, []),
    ],
    "preempt": [("0s", 2, [EVICTION]), ("30s", 3, [EVICTION.started])],
    "preempt-withdrawn": [("0s", 2, [EVICTION]), ("20s", 3, [])],
    "terminate": [("0s", 2, [DELETION]), ("5m", 3, [DELETION.started])],
    "terminate-scale-in": [
        ("0s", 3, DELETED),
        ("5m", 5, [told.started for told in DELETED]),
        ("5m30s", 7, []),
    ],
    "host-failure": [
        ("0s", 2, [Told("Reboot", "Platform", None, -1, FAILURE)]),
        ("10m", 3, []),
    ],
    "rolling-update": rolling(),
    "two-at-once": [
        ("0s", 2, [FREEZE]),
        ("2m", 3, [FREEZE, LATE]),
        ("15m", 4, [FREEZE.started, LATE]),
        ("27m", 6, [LATE.started]),  # ten minutes after its NotBefore: one started event per VM
        ("37m", 7, []),
    ],
    "freeze-then-shorter-freeze": [
        ("0s", 2, [LONG]),
        ("15m", 3, [LONG.started]),
        ("25m", 4, []),
        ("26m", 5, [SHORT]),
        ("41m", 6, [SHORT.started]),
        ("46m", 7, []),
    ],
}
# What is gone when the story is over: its guest cannot read any more.
ENDS_OF_VMS = {"preempt": "1m", "terminate": "5m30s"}
OF_A_SCOPE = ("terminate-scale-in", "rolling-update")


def date(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / SECOND_MS, tz=UTC)
    return at.strftime("%a, %d %b %Y %H:%M:%S GMT")


def expected(told: Told, began_ms: int) -> dict[str, Any]:
    started = told.not_before is None
    return {
        "EventStatus": "Started" if started else "Scheduled",
        "EventType": told.event_type,
        "ResourceType": "VirtualMachine",
        "Resources": list(told.resources),
        "NotBefore": ""
        if told.not_before is None
        else date(began_ms + parse_duration_ms(told.not_before)),
        "Description": told.description,
        "EventSource": told.source,
        "DurationInSeconds": told.duration_s,
    }


class Watcher:
    """Reads a guest's document and remembers the ids it has seen."""

    def __init__(self, world: Stage, vm: str, began_ms: int) -> None:
        self._world = world
        self._guest = world.guest(vm)
        self._began_ms = began_ms
        self.ids: list[str] = []

    def reach(self, at: str, *, less_ms: int = 0) -> None:
        ahead_ms = self._began_ms + parse_duration_ms(at) - less_ms - self._world.now_ms()
        self._world.advance(ahead_ms)

    def sees(self, incarnation: int, told: Sequence[Told]) -> None:
        document = self._guest.document()
        seen = [{k: v for k, v in e.items() if k != "EventId"} for e in document["Events"]]
        assert seen == [expected(one, self._began_ms) for one in told]
        assert document["DocumentIncarnation"] == incarnation
        self.ids += [e["EventId"] for e in document["Events"] if e["EventId"] not in self.ids]


def fleet_of(name: str) -> dict[str, Any]:
    return {"scopes": ["web:3"]} if name in OF_A_SCOPE else {}


@pytest.mark.parametrize("name", STORIES)
def test_a_scenario_is_seen_by_its_guest_as_its_script_says(name: str) -> None:
    with stage(**fleet_of(name)) as world:
        began_ms = world.now_ms()
        taken = world.run(name)
        watcher = Watcher(world, taken["on"], began_ms)
        before: tuple[int, Sequence[Told]] | None = None
        for at, incarnation, told in STORIES[name]:
            if before is not None:
                watcher.reach(at, less_ms=1)
                watcher.sees(*before)
            watcher.reach(at)
            watcher.sees(incarnation, told)
            before = (incarnation, told)
        events = {one for _, _, told in STORIES[name] for one in told if one.not_before}
        assert len(watcher.ids) == max(1, len(events))  # each keeps its EventId to its end


@pytest.mark.parametrize(("name", "at"), ENDS_OF_VMS.items())
def test_a_vm_that_is_evicted_or_deleted_is_gone_with_its_listener(name: str, at: str) -> None:
    with stage() as world:
        began_ms = world.now_ms()
        world.run(name)
        watcher = Watcher(world, "vm0", began_ms)
        watcher.reach(at, less_ms=1)
        watcher.sees(*STORIES[name][-1][1:])
        watcher.reach(at)
        with pytest.raises(ConnectionRefusedError):
            watcher.sees(0, [])


@pytest.mark.parametrize("name", STORIES)
def test_every_step_of_a_scenario_is_taken_and_everything_it_made_comes_to_its_end(
    name: str,
) -> None:
    with stage(**fleet_of(name)) as world:
        taken = world.run(name, to_end=True)
        assert {(step["phase"], step["said"]) for step in taken["steps"]} == {("done", "")}
        assert taken["over"]
        ended = {
            "canceled-maintenance": {"canceled"},
            "preempt-withdrawn": {"canceled"},
            "postponed-maintenance": {"canceled", "completed"},
        }
        found = {event["phase"] for event in taken["events"]}
        assert found == ended.get(name, {"completed"})


@pytest.mark.parametrize("name", sorted(set(STORIES) - set(ENDS_OF_VMS) - {"terminate-scale-in"}))
def test_a_scenario_that_deletes_nothing_can_be_run_again(name: str) -> None:
    with stage(**fleet_of(name)) as world:
        for _ in range(2):
            taken = world.run(name, to_end=True)
            assert {(step["phase"], step["said"]) for step in taken["steps"]} == {("done", "")}


def test_every_shipped_scenario_has_a_story_and_says_what_it_teaches() -> None:
    assert sorted(STORIES) == list(library.names())
    for name in library.names():
        scenario = library.load(name)
        assert scenario.title
        assert len(scenario.about) > 100
        assert max(map(len, scenario.text.splitlines())) <= 105  # read in a terminal
