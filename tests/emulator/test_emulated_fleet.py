"""What is emulated: fleets from a few words or a file, each VM its own, each run repeatable."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from forewarn.control.inventory import file_reader
from forewarn.core.errors import BadInventory, Invalid
from forewarn.core.model import HOUR_MS, EventType
from forewarn.core.vm_profile import Priority
from forewarn.emulator.faults.book import Fault
from forewarn.emulator.faults.orders import read_order
from forewarn.emulator.fleet import inventory_text
from forewarn.wiring.simulate import Emulator
from support import ordered
from support.emulator_world import NOTICE_MS, Emulated, emulated

RUN_LIMIT_S = 120  # only ends a hang

OWN_FLEET = """
[[host]]
name = "h1"

[[vm]]
name = "alone"
host = "h1"
address = "192.0.2.7"
"""


def test_without_a_word_there_is_one_standalone_vm() -> None:
    with emulated() as world:
        assert set(_urls(world)) == {"vm0"}
        instance = world.guest().get("/metadata/instance?api-version=2021-05-01").json()
        assert instance["compute"]["name"] == "vm0"


def test_a_scope_of_three_is_three_vms_in_three_update_domains_on_three_hosts() -> None:
    with emulated(scopes=["web:3"]) as world:
        for number in range(3):
            compute = world.guest(f"web_{number}").get(
                "/metadata/instance/compute?api-version=2021-05-01"
            )
            assert compute.json()["platformUpdateDomain"] == str(number)
        for number in range(3):  # refused if two domains of a scope shared a host
            world.order(ordered.maintain_host(f"host{number}", EventType.REBOOT, by="operator"))
        assert len(world.guest("web_0").document()["Events"]) == 3


def test_scopes_and_standalone_vms_can_be_mixed_and_do_not_see_each_other() -> None:
    with emulated(vms=["db"], scopes=["web:2", "api:1"]) as world:
        assert set(_urls(world)) == {"db", "web_0", "web_1", "api_0"}
        world.restart("web_0")
        assert len(world.guest("web_1").document()["Events"]) == 1
        assert world.guest("db").document()["Events"] == []
        assert world.guest("api_0").document()["Events"] == []


@pytest.mark.parametrize(
    "event_type",
    [EventType.REBOOT, EventType.REDEPLOY, EventType.PREEMPT, EventType.TERMINATE],
)
def test_every_order_works_on_a_spot_vm(event_type: EventType) -> None:
    with emulated(spot=True) as world:
        event_id = world.order(ordered.order_vm("vm0", event_type, by="operator"))["event_id"]
        assert world.guest().document()["Events"][0]["EventType"] == event_type.value
        while world.next():
            pass
        assert world.event(event_id)["phase"] == "completed"


@pytest.mark.parametrize("given", ["web", "web:", "web:0", "web:x", ":3", "web:100000", "w b:2"])
def test_a_scope_that_is_no_name_and_size_is_refused_with_an_example(given: str) -> None:
    with pytest.raises(Invalid, match="like web:3"):
        inventory_text(scopes=[given])


@pytest.mark.parametrize(
    ("vms", "scopes", "words"),
    [
        (["a", "b", "a"], [], "Two VMs are called a."),
        (["web_1"], ["web:2"], "Two VMs are called web_1."),
        ([], ["web:2", "db:1", "web:3"], "Two VMs are called web_0."),
        (["web"], ["web:2"], "Two scopes are called web."),
    ],
)
def test_a_name_that_is_given_twice_is_refused_in_the_words_that_were_given(
    vms: list[str], scopes: list[str], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        inventory_text(vms=vms, scopes=scopes)


def test_too_many_vms_are_refused() -> None:
    with pytest.raises(Invalid, match="at most 10000"):
        inventory_text(scopes=["a:9999", "b:9999"])


def test_a_name_that_no_vm_may_have_is_refused_and_nothing_is_left_open() -> None:
    with pytest.raises(BadInventory, match="refused"), emulated(vms=['quo"te']):
        pass


def test_a_vm_of_a_file_gets_a_listener_of_its_own_although_the_file_names_none() -> None:
    with emulated(inventory=OWN_FLEET) as world:
        assert world.guest("alone").document()["Events"] == []


def test_a_thousand_vms_fit_into_one_emulator() -> None:
    with emulated(scopes=["web:1000"]) as world:
        assert len(_urls(world)) == 1_000
        world.restart("web_999")
        for number in (0, 500, 999):
            events = world.guest(f"web_{number}").document()["Events"]
            assert [event["Resources"] for event in events] == [["web_999"]]
        world.advance(NOTICE_MS)
        assert world.guest("web_1").document()["Events"][0]["EventStatus"] == "Started"


def test_a_deleted_vm_is_gone_with_its_listener_and_the_others_stay() -> None:
    with emulated(vms=["a", "b"]) as world:
        gone = world.guest("a")
        world.order(ordered.order_vm("a", EventType.TERMINATE, by="operator"))
        while world.next():
            pass
        assert set(_urls(world)) == {"b"}
        with pytest.raises(ConnectionError):
            gone.get()
        assert world.guest("b").document()["Events"] == []


def test_the_same_seed_and_the_same_commands_give_the_same_run_byte_for_byte() -> None:
    first, second = _play(seed=7), _play(seed=7)
    assert first == second
    assert b"EventId" in b"".join(first)


def test_the_same_seed_gives_the_same_run_in_processes_that_hash_differently() -> None:
    """The order of a set must not show."""
    first, second = (_played_elsewhere(hash_seed) for hash_seed in ("1", "2"))
    assert first == second
    assert first == hashlib.sha256(b"\n".join(_play(seed=7))).hexdigest()


def _played_elsewhere(hash_seed: str) -> str:
    """The digest of a run in a process of its own."""
    ran = subprocess.run(
        [sys.executable, __file__],
        capture_output=True,
        text=True,
        check=True,
        timeout=RUN_LIMIT_S,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return ran.stdout


def test_another_seed_gives_other_event_ids() -> None:
    assert _play(seed=7) != _play(seed=8)


def test_without_a_seed_the_clock_starts_with_the_current_second() -> None:
    with emulated(seed=None) as world, emulated(seed=7, start_ms=1_000) as other:
        assert world.now_ms() % 1_000 == 0
        assert world.now_ms() > 1_790_000_000_000  # the autumn of 2026
        assert other.now_ms() == 1_000


def _play(seed: int) -> list[bytes]:
    """A run with orders, approvals, faults by share, moves of the clock; all that came back."""
    seen: list[bytes] = []

    def look(world: Emulated) -> None:
        for vm in ("web_0", "web_1"):
            answer = world.guest(vm).get()
            seen.append(b"%d %r %b" % (answer.status, sorted(answer.headers.items()), answer.body))

    async def failing(emulator: Emulator) -> Fault:
        return emulator.faults.add(read_order({"kind": "error", "share": 0.5}))

    with emulated(scopes=["web:2"], seed=seed) as world:
        world.order(ordered.maintain_host("host1", EventType.FREEZE, by="operator"))
        event_id = world.restart("web_0")
        look(world)
        world.guest("web_1").approve(event_id)
        look(world)
        world.background.call(failing)
        for _ in range(10):
            look(world)
        while world.next():
            look(world)
        seen.append(json.dumps(world.journal()).encode())
    return seen


def _urls(world: Emulated) -> dict[str, Any]:
    async def urls(emulator: Emulator) -> dict[str, str]:
        return emulator.urls()

    return dict(world.background.call(urls))


def test_the_vms_of_a_failed_host_are_down_until_it_is_repaired_and_they_have_started() -> None:
    with emulated() as world:
        failed = world.order(ordered.fail_host("host0", by="operator", fenced=False))
        (event_id,) = [event["event_id"] for event in failed["events"]]
        assert world.guest().document()["Events"][0]["EventStatus"] == "Started"
        world.advance(HOUR_MS)
        assert world.event(event_id)["phase"] == "started"
        world.order(ordered.repair_host("host0", by="operator"))
        assert world.event(event_id)["phase"] == "started"  # it takes its time to start
        assert [instant.what for instant in world.next()] == ["start-vm of vm0 ends"]
        assert world.event(event_id)["phase"] == "completed"
        assert world.guest().document()["Events"] == []


@pytest.mark.parametrize("seconds", [0, 5])
@pytest.mark.parametrize("event_type", [EventType.PREEMPT, EventType.TERMINATE])
def test_a_vm_that_approves_its_own_end_is_answered_before_it_is_gone(
    event_type: EventType, seconds: int
) -> None:
    with emulated(spot=True, delete_seconds=seconds) as world:
        guest = world.guest()
        event_id = world.order(ordered.order_vm("vm0", event_type, by="operator"))["event_id"]
        assert guest.approve(event_id).status == 200
        assert ("vm0" in _urls(world)) == (seconds > 0)
        while world.next():
            pass
        assert world.event(event_id)["phase"] == "completed"
        assert _urls(world) == {}


def test_two_runs_without_a_seed_share_no_event_id_and_one_can_be_played_again() -> None:
    with emulated(seed=None) as one, emulated(seed=None) as other:
        first, second = one.restart(), other.restart()
        assert first != second
        emulator = one.background.emulator
        with emulated(seed=emulator.seed, start_ms=one.now_ms()) as again:
            assert again.restart() == first
            assert again.guest().get().body == one.guest().get().body


def test_vms_are_regular_unless_they_are_said_to_be_spot() -> None:
    fleet = file_reader.parse(inventory_text(vms=["a", "b"], scopes=["web:2"], spot=["b", "web"]))
    spot = {vm.name for vm in fleet.vms if vm.profile.priority is Priority.SPOT}
    assert spot == {"b", "web_0", "web_1"}
    (alone,) = file_reader.parse(inventory_text()).vms
    assert alone.profile.priority is Priority.REGULAR
    with pytest.raises(Invalid, match=r"no VM or scope .wep. to be Spot.*web"):
        inventory_text(scopes=["web:2"], spot=["wep"])


if __name__ == "__main__":
    sys.stdout.write(hashlib.sha256(b"\n".join(_play(seed=7))).hexdigest())
