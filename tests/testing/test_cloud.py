"""What a test can order, turn and look at."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import threading
import unittest
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from forewarn.settings import setting_names
from forewarn.testing import (
    AlreadyStarted,
    BadInventory,
    Cloud,
    CloudVm,
    Conflict,
    EmulatorBroke,
    Invalid,
    NotFound,
    NotPostponable,
    NotSpot,
    Phase,
)
from forewarn.testing.arguments import SettingArguments
from forewarn.wiring.simulate import Emulator
from support.cloud_guest import PATH, PATIENCE_S, approve, ask, read


def test_a_bare_cloud_has_one_vm(cloud: Cloud) -> None:
    vm = cloud.vm("vm0")
    assert cloud.vms == (vm,)
    assert (vm.name, vm.scope, vm.host, vm.update_domain) == ("vm0", "vm0", "host0", 0)
    assert vm.url.startswith("http://127.0.0.1:")
    assert vm.document_url == f"{vm.url}/metadata/scheduledevents?api-version=2020-07-01"
    assert cloud.hosts == ("host0", "spare")


def test_a_restart_is_read_approved_started_and_gone(cloud: Cloud) -> None:
    vm = cloud.vm("vm0")
    event = cloud.restart("vm0")
    assert event.phase is Phase.SCHEDULED
    assert event.not_before == cloud.clock.now + timedelta(minutes=15)
    assert [e["EventId"] for e in read(vm)["Events"]] == [event.event_id]
    approve(vm, event.event_id)
    cloud.expect_approved(event, by=vm, within=0)
    cloud.expect_started(event, within=0)
    assert cloud.document(vm)["Events"][0]["EventStatus"] == "Started"
    assert [due.what for due in cloud.clock.next()] == ["reboot-vm of vm0 ends"]
    cloud.expect_gone(event, within=0)
    assert cloud.event(event).phase is Phase.COMPLETED
    assert cloud.event(event).gone
    assert read(vm)["Events"] == []


@pytest.mark.cloud(scopes=["web:2"], spot=True)
def test_every_order_makes_its_event(cloud: Cloud) -> None:
    made = {
        "redeploy": cloud.redeploy("web_0"),
        "evict": cloud.evict(cloud.vm("web_0")),
        "delete": cloud.delete("web_1"),
        "freeze": cloud.maintain("web_0", "Freeze", duration=9, description="Nine seconds.").event,
        "reboot": cloud.maintain("host1", "Reboot", not_before="+2h").event,
        "degrade": cloud.degrade("web_0", not_before=timedelta(days=1)).event,
    }
    kinds = {name: (event.event_type, event.resources) for name, event in made.items()}
    assert kinds == {
        "redeploy": ("Redeploy", ("web_0",)),
        "evict": ("Preempt", ("web_0",)),
        "delete": ("Terminate", ("web_1",)),
        "freeze": ("Freeze", ("web_0",)),
        "reboot": ("Reboot", ("web_1",)),
        "degrade": ("Redeploy", ("web_0",)),
    }
    assert (made["freeze"].duration_seconds, made["freeze"].description) == (9, "Nine seconds.")
    assert made["reboot"].not_before == cloud.clock.now + timedelta(hours=2)
    assert made["degrade"].not_before == cloud.clock.now + timedelta(days=1)
    assert {event.event_id for event in cloud.events()} == {e.event_id for e in made.values()}
    assert str(made["freeze"]) == f"Freeze {made['freeze'].event_id[:8]} of web_0"


@pytest.mark.cloud(scopes=["web:2", "db:1"])
def test_an_event_that_is_postponed_has_another_id_and_no_approval(cloud: Cloud) -> None:
    vm = cloud.vm("web_0")
    first = cloud.maintain(vm, "Reboot", window=("+30m", "+9h")).event
    approve(vm, first.event_id)
    event = cloud.postpone(first, "+2h", reason="a sale")
    assert (event.postponed_from, event.approved) == (first.event_id, None)
    assert event.not_before == cloud.clock.now + timedelta(hours=2)
    assert [told["EventId"] for told in read(vm)["Events"]] == [event.event_id]
    gone = cloud.event(first)
    assert (gone.phase, gone.postponed_to) == (Phase.CANCELED, event.event_id)
    assert gone.outcome == "postponed by operator: a sale"
    again = cloud.postpone(event.event_id, timedelta(hours=3))
    cloud.clock.advance_to(again)
    cloud.expect_started(again, within=0)
    with pytest.raises(AlreadyStarted):
        cloud.postpone(again, "+9h")
    with pytest.raises(NotPostponable, match="Cancel it"):
        cloud.postpone(cloud.restart("web_1"), "+9h")


def test_a_window_binds_an_approved_event_and_the_clock_stops_where_it_opens(cloud: Cloud) -> None:
    window = (timedelta(hours=2), "+3h")
    event = cloud.restart("vm0", window=window)
    opens = cloud.clock.now + timedelta(hours=2)
    cloud.approve(event)
    assert cloud.event(event).phase is Phase.SCHEDULED
    assert cloud.clock.upcoming()[0].at == opens
    cloud.clock.advance(hours=2)
    assert cloud.event(event).started == opens


def test_a_failed_host_is_an_event_that_has_started_and_a_repaired_one_ends_it(
    cloud: Cloud,
) -> None:
    (event,) = cloud.fail("host0")
    assert event.phase is Phase.STARTED
    cloud.repair("host0")
    cloud.clock.advance(minutes=1)
    cloud.expect_gone(event, within=0)


def test_what_is_canceled_is_gone_and_what_has_started_stays(cloud: Cloud) -> None:
    operation = cloud.maintain("vm0", "Reboot")
    cloud.cancel(operation)
    assert cloud.event(operation.event).phase is Phase.CANCELED
    event = cloud.restart("vm0")
    cloud.approve(event)
    assert cloud.event(event).approved_by == "operator"
    with pytest.raises(AlreadyStarted):
        cloud.cancel(event)


def test_turning_the_clock_says_what_was_due(cloud: Cloud) -> None:
    before = cloud.clock.now
    event = cloud.restart("vm0")
    assert cloud.clock.upcoming()[0].at == event.not_before
    passed = cloud.clock.advance(minutes=15)
    assert [due.what for due in passed] == ["Reboot of vm0 may start"]
    assert cloud.clock.now == before + timedelta(minutes=15)
    assert cloud.event(event).started == event.not_before
    cloud.clock.advance("1m30s")
    cloud.clock.advance(timedelta(seconds=30), hours=1)
    assert cloud.clock.now == before + timedelta(hours=1, minutes=17)
    assert cloud.event(event).gone


def test_a_clock_with_nowhere_to_go_says_so(cloud: Cloud) -> None:
    with pytest.raises(Conflict, match="Nothing is due"):
        cloud.clock.next()
    with pytest.raises(Invalid):
        cloud.clock.advance(seconds=-1)


def test_a_peek_at_the_document_is_no_read(cloud: Cloud) -> None:
    event = cloud.restart("vm0")
    assert cloud.document("vm0", api_version="2017-03-01")["Events"][0]["Resources"] == ["_vm0"]
    assert cloud.document("vm0")["Events"][0]["EventId"] == event.event_id
    assert cloud.reads(event) == ()
    assert cloud.polls("vm0") == 0
    with pytest.raises(NotFound, match="There is no VM"):
        cloud.polls("vm1")
    read(cloud.vm("vm0"))
    assert [(one.vm, one.at) for one in cloud.reads(event)] == [("vm0", cloud.clock.now)]
    assert cloud.polls("vm0") == 1
    with pytest.raises(NotFound, match="2020-07-01"):
        cloud.document("vm0", api_version="2020-07-02")  # type: ignore[arg-type] # the mistake


def test_the_journal_and_the_approvals_say_what_happened(cloud: Cloud) -> None:
    event = cloud.restart("vm0")
    assert cloud.approvals() == ()
    approve(cloud.vm("vm0"), event.event_id)
    kinds = [fact.kind for fact in cloud.journal(event)]
    assert kinds[:2] == ["scheduled", "confirmed"]
    assert {"approved", "started", "claimed"} <= set(kinds)
    (approval,) = cloud.approvals(event)
    assert (approval.event_id, approval.by) == (event.event_id, "vm0")
    assert approval.at == cloud.clock.now
    assert len(cloud.journal()) > len(cloud.journal(event))


def test_faults_are_met_counted_and_cleared(cloud: Cloud) -> None:
    vm = cloud.vm("vm0")
    fault = cloud.faults.add("gone", vm=vm, count=2)
    assert [ask(vm)[0], ask(vm)[0], ask(vm)[0]] == [410, 410, 200]
    cloud.expect_met(fault, within=0)
    assert cloud.faults.get(fault).over
    assert cloud.faults.list() == ()
    assert [one.hits for one in cloud.faults.list(over=True)] == [2]
    lasting = cloud.faults.add(429, for_s="5m", retry_after=3)
    assert ask(vm)[0] == 429
    cloud.clock.advance(minutes=5)
    assert ask(vm)[0] == 200
    cloud.faults.add("error")
    cloud.faults.clear()
    assert ask(vm)[0] == 200
    assert cloud.faults.get(lasting.fault_id).hits == 1


@pytest.mark.cloud(scopes=["web:3"])
def test_a_scenario_runs_on_the_vm_it_is_told(cloud: Cloud, tmp_path: Path) -> None:
    run = cloud.scenario("user-reboot", on="web_1")
    assert (run.name, run.vm, run.over) == ("user-reboot", "web_1", False)
    run.to_end()
    assert run.over
    assert run.refused == ()
    assert [event.resources for event in run.events] == [("web_1",)]
    script = 'title = "One restart."\n[[step]]\nat = "1m"\ndo = "restart"\non = "vm"\n'
    (tmp_path / "mine.toml").write_text(script)
    assert cloud.scenario(tmp_path / "mine.toml").name == "mine"
    stopped = cloud.scenario(script)
    stopped.stop()
    cloud.clock.advance(minutes=2)
    assert stopped.events == ()
    with pytest.raises(Invalid, match="cannot be read"):
        cloud.scenario("nowhere.toml")


def test_two_clouds_know_nothing_of_each_other(make_cloud: Any) -> None:
    one, other = make_cloud(), make_cloud(vms=["db"])
    one.restart("vm0")
    assert other.events() == ()
    assert other.vm("db").url != one.vm("vm0").url
    with pytest.raises(NotFound, match="There is no VM"):
        other.vm("vm0")


def test_the_same_seed_gives_the_same_run() -> None:
    def run() -> list[object]:
        with Cloud(seed=7, scopes=["web:2"]) as cloud:
            event = cloud.restart("web_1")
            cloud.clock.advance(minutes=20)
            return [event, cloud.clock.now, *map(str, cloud.journal()), cloud.document("web_0")]

    assert run() == run()


def test_two_clouds_without_a_seed_share_no_event_id() -> None:
    with Cloud() as one, Cloud() as other:
        assert one.restart("vm0").event_id != other.restart("vm0").event_id
        with Cloud(seed=one.seed, start=one.clock.now) as again:
            assert again.restart("vm0") == one.events()[0]


def test_a_number_of_vms_is_as_many_vms() -> None:
    with Cloud(vms=3) as cloud:
        assert [vm.name for vm in cloud.vms] == ["vm0", "vm1", "vm2"]


def test_vms_are_regular_unless_they_are_said_to_be_spot() -> None:
    with Cloud(vms=2, spot=["vm1"]) as cloud:
        assert cloud.evict("vm1").event_type == "Preempt"
        with pytest.raises(NotSpot, match=r"vm0 is not a spot VM.*spot=True"):
            cloud.evict("vm0")


def test_a_clock_starts_where_it_is_told_and_can_run_by_itself() -> None:
    start = datetime(2026, 3, 3, 10, 15, tzinfo=UTC)
    with Cloud(start=start) as cloud:
        assert cloud.clock.now == start
    with Cloud(start="2026-03-03T10:15:00Z", clock="x3600") as cloud:
        event = cloud.restart("vm0")
        cloud.expect_gone(event, within=60)
        ended = cloud.event(event).ended
        assert ended is not None
        assert ended >= event.not_before


def test_an_inventory_is_a_file_or_its_text(tmp_path: Path) -> None:
    text = '[[host]]\nname = "h"\n[[vm]]\nname = "db"\nhost = "h"\naddress = "192.0.2.7"\n'
    file = tmp_path / "fleet.toml"
    file.write_text(text)
    for inventory in (text, file, str(file)):
        with Cloud(inventory=inventory) as cloud:
            assert [vm.name for vm in cloud.vms] == ["db"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"scope": ["web:3"]}, "A cloud has no scope. Did you mean scopes?"),
        ({"scopes": "web:3"}, 'scopes is "web:3". Give a list of texts'),
        ({"vms": 0}, "There cannot be 0 VMs. One emulator takes from 1 to 10000"),
        ({"vms": 2.5}, "vms is 2.5. Give a number of VMs, or a list of names"),
        ({"vms": [1]}, "vms is [1]. Give a number of VMs, or a list of names"),
        ({"spot": "vm0"}, 'spot is "vm0". Give True for all VMs, or a list of names'),
        ({"spot": ["vm1"]}, 'There is no VM or scope "vm1" to be Spot. Did you mean vm0?'),
        (
            {"spot": True, "inventory": "[[vm]]"},
            "Leave out vms, scopes, spot and computer_names, or it",
        ),
        ({"scopes": ["web"]}, "Write a name and how many VMs it has, like web:3"),
        ({"clock": "x0"}, 'There is no clock "x0"'),
        ({"seed": "7"}, '"7" is no seed'),
        ({"start": "+1h"}, "not a time that a clock can start with"),
        ({"start": datetime(2026, 3, 3)}, "not a time that a clock can start with"),  # noqa: DTZ001 - the mistake
        ({"enablement": "never"}, 'enablement = "never" is refused. Accepted: "first-poll"'),
        ({"reboot_seconds": -1}, 'reboot_seconds = "-1" is refused'),
        ({"vms": ["a"], "inventory": "[[vm]]"}, "An inventory says the whole fleet"),
        ({"vms": ["a", "a"]}, "a"),
    ],
)
def test_words_that_make_no_sense_are_refused_with_a_sentence(
    words: dict[str, Any], sentence: str
) -> None:
    before = threading.active_count()
    with pytest.raises((Invalid, BadInventory)) as refusal:
        Cloud(**words)
    assert sentence in str(refusal.value)
    assert threading.active_count() == before


def test_every_setting_of_the_service_that_a_cloud_can_have_is_a_word() -> None:
    of_files_and_ports = {"data", "inventory", "guest", "operator", "hosts", "hosts_url"}
    of_files_and_ports |= {"behind_proxy", "console_names", "socket", "webhook_targets"}
    of_access = {"oidc", "operator_certificate", "operator_key", "operator_tls", "operator_url"}
    of_access |= {"socket_groups"}
    of_long_runs = {"retention_days", "log_journal"}
    not_of_a_cloud = of_files_and_ports | of_access | of_long_runs
    assert set(SettingArguments.__annotations__) == set(setting_names()) - not_of_a_cloud


def test_a_closed_cloud_says_that_it_is_closed() -> None:
    cloud = Cloud()
    url = cloud.vm("vm0").url
    cloud.close()
    cloud.close()
    uses: list[Callable[[], object]] = [
        lambda: cloud.restart("vm0"),
        lambda: cloud.clock.now,
        lambda: cloud.operator_url,
    ]
    for use in uses:
        with pytest.raises(Conflict, match="The cloud is closed"):
            use()
    assert url


def test_nothing_is_left_of_a_cloud(tmp_path: Path) -> None:
    threads, descriptors = set(threading.enumerate()), _open_sockets()
    with Cloud(scopes=["web:3"]) as cloud:
        assert cloud.operator_url
        assert len(_open_sockets() - descriptors) >= 4
        read(cloud.vm("web_0"))
    assert set(threading.enumerate()) == threads
    assert _open_sockets() - descriptors == set()


def test_a_cloud_that_ends_while_its_fleet_changes_leaves_no_port() -> None:
    before = _open_sockets()
    for _ in range(20):
        with (
            Cloud(scopes=["web:2"], spot=True, delete_seconds=0) as cloud,
            socket.socket() as guest,
        ):
            event = cloud.evict("web_0")
            body = f'{{"StartRequests":[{{"EventId":"{event.event_id}"}}]}}'
            guest.connect(("127.0.0.1", int(cloud.vm("web_0").url.rpartition(":")[2])))
            guest.sendall(
                f"POST {PATH} HTTP/1.1\r\nHost: x\r\nMetadata: true\r\n"
                f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
            )
    assert _open_sockets() == before


def test_a_cloud_that_is_forgotten_ends() -> None:
    before = set(threading.enumerate())
    cloud = Cloud()
    ours = set(threading.enumerate()) - before
    forgotten = weakref.ref(cloud)
    del cloud
    gc.collect()
    assert forgotten() is None
    for thread in ours:
        thread.join(PATIENCE_S)
    assert set(threading.enumerate()) == before


def test_a_process_that_forgets_its_cloud_ends() -> None:
    code = "from forewarn.testing import Cloud; cloud = Cloud(); print(cloud.vm('vm0').name)"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "vm0\n"


def test_the_command_line_drives_a_cloud(cloud: Cloud) -> None:
    program = Path(sys.executable).with_name("forewarn")
    subprocess.run(
        [program, "vm", "restart", "vm0"],
        env=cloud.environment,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert [event.event_type for event in cloud.events()] == ["Reboot"]
    assert cloud.environment["FOREWARN_TOKEN"] == cloud.operator_token


def test_an_error_inside_the_emulator_fails_the_call_that_caused_it() -> None:
    with Cloud() as cloud:
        with pytest.raises(EmulatorBroke, match="planted") as broke:
            cloud._background.call(_break_its_loop)
        assert isinstance(broke.value.__cause__, ValueError)


def test_an_error_that_a_guest_caused_is_raised_at_the_latest_at_the_end() -> None:
    cloud = Cloud()
    event = cloud.restart("vm0")
    vm = cloud.vm("vm0")
    cloud._background.call(_break_its_next_turn)
    status, _ = ask(vm, "POST", f'{{"StartRequests":[{{"EventId":"{event.event_id}"}}]}}')
    assert status == 503
    with pytest.raises(EmulatorBroke, match="planted"):
        cloud.close()


def test_a_cloud_of_a_thousand_vms_answers_each() -> None:
    with Cloud(scopes=["web:500"], vms=[f"db{n}" for n in range(500)]) as cloud:
        vms = cloud.vms
        assert len({vm.url for vm in vms}) == 1_000
        event = cloud.restart("web_499")
        assert read(vms[-1])["Events"] == [] or vms[-1].scope == "web"
        assert read(cloud.vm("web_0"))["Events"][0]["EventId"] == event.event_id
        assert read(cloud.vm("db499"))["Events"] == []


class OnUnittest(unittest.TestCase):
    """The cloud in a framework without fixtures."""

    def setUp(self) -> None:
        self.cloud = self.enterContext(Cloud())

    def test_a_cloud_works_without_pytest(self) -> None:
        assert self.cloud.restart("vm0").event_type == "Reboot"


async def _break_its_loop(_: Emulator) -> None:
    def planted() -> None:
        raise ValueError("planted")

    asyncio.get_running_loop().call_soon(planted)
    await asyncio.sleep(0)


async def _break_its_next_turn(emulator: Emulator) -> None:
    async def planted() -> None:
        raise ValueError("planted")

    emulator.pacer.at(emulator.clock.now_ms(), "something breaks", planted)


def _open_sockets() -> set[str]:
    """The open sockets of this process."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


def named(vm: CloudVm, host: str) -> int:
    """The status of a GET that asks for the VM's endpoint under another name."""
    return ask(vm, Host=host)[0]


def test_a_cloud_answers_to_what_a_container_calls_its_machine(cloud: Cloud) -> None:
    vm = cloud.vm("vm0")
    assert named(vm, "host.docker.internal:8254") == 200
    assert named(vm, "host.containers.internal") == 200
    assert named(vm, "evil.example") == 400


@pytest.mark.cloud(guest_names=["Emulator.Test", "b.test"], metadata_header="lenient")
def test_a_cloud_answers_to_the_names_it_is_given_and_to_no_others(cloud: Cloud) -> None:
    vm = cloud.vm("vm0")
    assert named(vm, "emulator.test") == 200
    assert named(vm, "b.test") == 200
    assert named(vm, "host.docker.internal") == 400
    event = cloud.restart(vm)
    body = f'{{"StartRequests":[{{"EventId":"{event.event_id}"}}]}}'
    assert ask(vm, "POST", body, Metadata="no")[0] == 200
    cloud.expect_approved(event, by=vm, within=0)


def test_names_that_are_no_names_are_refused() -> None:
    with pytest.raises(Invalid, match=r"guest_names = .* is refused"):
        Cloud(guest_names=["*.test"])


def test_the_clock_is_turned_until_an_event_starts(cloud: Cloud) -> None:
    event = cloud.restart("vm0")
    passed = cloud.clock.advance_to(event)
    assert [due.what for due in passed] == ["Reboot of vm0 may start"]
    assert cloud.clock.now == event.not_before
    assert cloud.event(event).phase is Phase.STARTED
    assert cloud.clock.advance_to(event) == ()
    cloud.clock.next()
    assert cloud.clock.advance_to(event) == ()  # it has started, and ended since


@pytest.mark.cloud(scopes=["web:2"])
def test_the_clock_is_turned_until_all_events_of_an_operation_start(cloud: Cloud) -> None:
    operation = cloud.maintain("web_0", "Freeze", not_before="+2h")
    cloud.clock.advance_to(operation)
    cloud.expect_started(operation, within=0)
    assert cloud.clock.now == operation.event.not_before


@pytest.mark.cloud(scopes=["web:2"], domain_recovery_seconds=3600)
def test_an_event_that_does_not_start_is_told_with_what_holds_it(cloud: Cloud) -> None:
    second = cloud.maintain("web_1", "Reboot").event
    cloud.approve(cloud.maintain("web_0", "Reboot"))
    held = r"Reboot \w+ of web_1 is scheduled and has not started. It waits: .*domain 0"
    with pytest.raises(Conflict, match=held):
        cloud.clock.advance_to(second)
    assert cloud.clock.now == second.not_before
    cloud.cancel(second)
    with pytest.raises(Conflict, match="is canceled and has not started"):
        cloud.clock.advance_to(second)


def test_the_clock_is_turned_to_a_time(cloud: Cloud) -> None:
    now = cloud.clock.now
    cloud.clock.advance_to(now + timedelta(hours=1))
    assert cloud.clock.now == now + timedelta(hours=1)
    with pytest.raises(Invalid, match="goes ahead only"):
        cloud.clock.advance_to(now)
    with pytest.raises(Invalid, match="names no zone"):
        cloud.clock.advance_to(datetime(2030, 1, 1))  # noqa: DTZ001 - the mistake
