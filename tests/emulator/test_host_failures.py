"""Hosts of the emulator that fail: their power is cut first, and they come back with a repair."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from emulator.scenario_stage import Stage, stage
from forewarn.control import operator_overview
from forewarn.control.inventory import apply_at_once
from forewarn.core.model import EventType
from forewarn.emulator.fleet import inventory_text
from forewarn.testing import Cloud
from forewarn.wiring.simulate import Emulator
from support import ordered
from support.emulator_world import Emulated, emulated

KEY = {"Idempotency_Key": "once"}


@pytest.fixture
def world() -> Iterator[Emulated]:
    with emulated() as world:
        yield world


@pytest.fixture
def one() -> Iterator[Stage]:
    with stage() as world:
        yield world


def host(world: Emulated, name: str = "host0") -> Any:
    async def look(emulator: Emulator) -> object:
        return msgspec.to_builtins(operator_overview.show_host(emulator.control.fleet.look(), name))

    return world.background.call(look)


def test_a_host_of_the_emulator_is_fenced_without_force_and_is_not_heard_at_once(
    world: Emulated,
) -> None:
    assert host(world)["alive"] is True
    failed = world.order(ordered.fail_host("host0", by="operator", fenced=True))
    assert (failed["health"], failed["fenced"], failed["alive"]) == ("failed", True, False)
    assert host(world)["alive"] is False
    facts = [line for line in world.journal() if line["kind"] == "host-failed"]
    assert facts[0]["detail"] == {"fenced": True}
    while world.next():
        pass
    assert world.event(failed["events"][0]["event_id"])["phase"] == "completed"


def test_a_host_that_is_off_says_nothing_and_one_that_is_repaired_is_heard(
    world: Emulated,
) -> None:
    world.order(ordered.fail_host("host0", by="operator", fenced=False))

    async def beat(emulator: Emulator) -> None:
        await emulator._parts.hosts.heartbeat()

    world.background.call(beat)
    assert host(world)["alive"] is False
    assert world.order(ordered.repair_host("host0", by="operator"))["alive"] is False  # it boots
    assert host(world)["alive"] is True


def test_the_address_of_a_vm_answers_while_its_host_is_off(world: Emulated) -> None:
    """Who plays the guest does not die with it, and reads what has happened (L30)."""
    world.order(ordered.fail_host("host0", by="operator", fenced=True))
    (event,) = world.guest().document()["Events"]
    assert (event["EventType"], event["EventStatus"]) == ("Reboot", "Started")


def test_what_a_host_was_doing_when_its_power_was_cut_has_not_happened() -> None:
    with emulated(reboot_seconds=60) as world:
        event_id = world.restart()
        world.guest().approve(event_id)
        assert world.event(event_id)["phase"] == "started"
        world.order(ordered.fail_host("host0", by="operator", fenced=False))
        assert world.event(event_id)["phase"] == "failed"
        world.order(ordered.repair_host("host0", by="operator"))
        while world.next():
            pass
        assert world.guest().document()["Events"] == []
        assert world.background.call(_errors) == ()


async def _errors(emulator: Emulator) -> tuple[BaseException, ...]:
    return emulator.errors()


def test_a_failure_that_is_sent_again_under_its_key_cuts_no_power(one: Stage) -> None:
    path, body = "/v1/hosts/host0/fail", {"fenced": True}
    first = one.ask("POST", path, body, **KEY)
    one.order("/v1/hosts/host0/repair")
    again = one.ask("POST", path, body, **KEY)
    assert (again.status, again.json()) == (200, first.json())
    shown = one.get("/v1/hosts/host0")
    assert (shown["health"], shown["alive"]) == ("ok", True)
    assert one.order("/v1/vms/vm0/restart")["phase"] == "scheduled"


def test_a_failure_of_a_host_that_is_not_there_cuts_no_power(one: Stage) -> None:
    assert one.ask("POST", "/v1/hosts/host1/fail", {"fenced": True}).status == 404
    assert {item["alive"] for item in one.get("/v1/hosts")["items"]} == {True}


def test_a_cloud_fences_without_force_and_a_repair_brings_the_host_back() -> None:
    with Cloud() as cloud:
        (event,) = cloud.fail("host0", fenced=True)
        assert event.phase == "started"
        cloud.repair("host0")
        cloud.fail("host0", fenced=True)
        cloud.repair("host0")
        operation = cloud.maintain("host0", "Freeze")
        assert [event.phase for event in operation.events] in ([], ["scheduled"])


def test_a_failure_and_its_repair_in_a_scenario_need_no_new_words(one: Stage) -> None:
    run = one.script(
        'at = "0s"\ndo = "fail"\nas = "failure"\nfenced = true\nstarted_for = "5m"',
        'at = "1h"\ndo = "repair"\nof = "failure"',
        to_end=True,
    )
    assert [step["phase"] for step in run["steps"]] == ["done", "done"]
    assert run["over"]
    assert one.get("/v1/hosts/host0")["alive"] is True


def test_a_host_that_comes_with_a_new_inventory_is_heard(world: Emulated) -> None:
    text = inventory_text(vms=["vm0"], scopes=[]) + '[[host]]\nname = "late"\n'
    world.apply(apply_at_once.apply(text, by=ordered.operator("operator")))
    assert host(world, "late")["alive"] is True


def test_a_restart_of_a_vm_on_a_host_that_is_off_waits_for_its_repair(world: Emulated) -> None:
    world.order(ordered.fail_host("host0", by="operator", fenced=False))
    event_id = world.order(ordered.order_vm("vm0", EventType.REBOOT, by="operator"))["event_id"]
    world.guest().approve(event_id)
    assert world.event(event_id)["phase"] == "scheduled"
    world.order(ordered.repair_host("host0", by="operator"))
    while world.next():
        pass
    assert world.event(event_id)["phase"] == "completed"
