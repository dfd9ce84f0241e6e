"""Data folders that an earlier version has written start under this one, and everything goes on.

The folders are in tests/fixtures/data_folders, with how they were made.
"""

from __future__ import annotations

import json
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forewarn.adapters import host_credentials, marks_file
from support.host_world import Cloud, a_vm, run
from support.system_world import service_in
from support.waiting import until, wait_until

FOLDERS = Path(__file__).parent.parent / "fixtures" / "data_folders"
PHASES = ("scheduled", "started", "completed")

VMS = {
    "h1": [a_vm("web_0", scope="web", update_domain=0), a_vm("solo")],
    "h2": [a_vm("web_1", scope="web", update_domain=1)],
}


def unpacked(name: str, folder: Path) -> Any:
    """A copy of what the earlier version left; what was there then."""
    with tarfile.open(FOLDERS / f"{name}.tar.gz") as packed:
        packed.extractall(folder, filter="tar")
    return json.loads((folder / "expected.json").read_text(encoding="utf-8"))


def event_of(expected: Any, vm: str, event_type: str, **more: object) -> Any:
    """The event that the earlier version had for the VM."""
    [found] = [
        event
        for event in expected["events"].values()
        if event["resources"] == [vm]
        and event["event_type"] == event_type
        and all(event[key] == value for key, value in more.items())
    ]
    return found


def reads(event: Any) -> dict[str, str]:
    """Which VMs have read the event, and when first."""
    found = event["receipt"]["first_reads"]
    return {one["vm"]: one["read"] for one in found if one["read"] is not None}


def test_everything_that_a_service_had_is_there_and_no_number_goes_back(tmp_path: Path) -> None:
    expected = unpacked("serve", tmp_path)
    fleet = (tmp_path / "inventory.toml").read_text(encoding="utf-8")
    with service_in(tmp_path, fleet=fleet) as service:
        service.start()
        for vm, document in expected["documents"].items():
            assert service.guest(vm).incarnation() >= document["DocumentIncarnation"]
        for event_id, before in expected["events"].items():
            now = service.look(f"events/{event_id}")
            assert PHASES.index(now["phase"]) >= PHASES.index(before["phase"])
            same = ("event_type", "resources", "scope", "not_before", "approved", "approved_by")
            assert {key: now[key] for key in same} == {key: before[key] for key in same}
            assert reads(now).items() >= reads(before).items()
        waiting = {one["operation_id"]: one["host"] for one in expected["operations"]}
        operations = service.look("operations?limit=100")["items"]
        assert {one["operation_id"]: one["host"] for one in operations} == waiting
        assert len(service.journal()) > expected["journal"]
        refused = [line for line in service.err().splitlines() if "level=error" in line]
        assert refused == []
        assert service.stop() == 0
        service.start()  # and what this version has written, it reads


def test_what_a_service_had_begun_goes_on_to_its_end(tmp_path: Path) -> None:
    expected = unpacked("serve", tmp_path)
    fleet = (tmp_path / "inventory.toml").read_text(encoding="utf-8")
    started = event_of(expected, "web_0", "Reboot")
    approved = event_of(expected, "web_1", "Reboot")
    assert (started["phase"], started["actions"][0]["phase"]) == ("started", "claimed")
    assert (approved["phase"], approved["approved_by"]) == ("scheduled", "web_0")
    with service_in(tmp_path, fleet=fleet) as service:
        service.start()
        service.wait_for_phase(started["event_id"], "completed")
        service.wait_for_phase(approved["event_id"], "completed")

        # An operation that waited starts once each of its scopes has said go ahead.
        mine = event_of(expected, "mail_0", "Reboot")
        theirs = event_of(expected, "shop_1", "Reboot", event_source="Platform")
        assert mine["operation_id"] == theirs["operation_id"]
        assert service.guest("mail_0").approve(mine["event_id"]).status == 200
        assert service.guest("shop_0").approve(theirs["event_id"]).status == 200
        for event in (mine, theirs):
            service.wait_for_phase(event["event_id"], "completed")

        # A silent event appears when its scope is polled for the first time.
        silent = event_of(expected, "quiet", "Freeze")
        assert silent["silent"]
        service.guest("quiet").document()
        appeared = wait_until(lambda: service.guest("quiet").events(), "the event appears")
        assert list(appeared) == [silent["event_id"]]

        # An order is repeated, not carried out twice.
        again = service.ask("POST", "vms/solo/redeploy", key="an-order-with-a-key")
        assert again.json()["event_id"] == event_of(expected, "solo", "Redeploy")["event_id"]


def test_a_control_and_its_hosts_go_on_where_the_earlier_version_stopped(tmp_path: Path) -> None:
    expected = unpacked("control", tmp_path)

    async def test() -> None:
        there = Cloud(tmp_path, None)
        try:
            await there.open()
            hosts = (await there.operator("GET", "hosts"))["items"]
            assert [(host["name"], host["joined"]) for host in hosts] == [
                ("h1", True),
                ("h2", True),
            ]
            for host, vms in VMS.items():
                there.world.put(host, vms)
                # With a certificate of today: that of the folder ends after a year.
                await there.start_host(host, token=await there.token(host))
            await there.vms_known("web_0", "web_1", "solo")
            for vm, before in expected["documents"].items():
                now = await there.document(vm)
                assert now["DocumentIncarnation"] >= before["DocumentIncarnation"]
                assert now["Events"] == before["Events"]
            for vm, event_type in (("web_0", "Reboot"), ("web_1", "Reboot")):
                event = event_of(expected, vm, event_type)
                assert (await there.approve(vm, event["event_id"])).status_code == 200
                await until(partial(_ended, there, event), f"the event of {vm} ends")
            assert [host.feed_reader.refuses for host in there.hosts.values()] == ["", ""]
            assert await there.vm("leaves") is None
        finally:
            await there.close()

    run(test())


async def _ended(there: Cloud, event: Any) -> bool:
    now = await there.operator("GET", f"events/{event['event_id']}")
    return bool(now["phase"] == "completed")


@pytest.mark.parametrize("host", ["h1", "h2"])
def test_a_host_shows_what_the_earlier_version_showed_while_control_is_away(
    tmp_path: Path, host: str
) -> None:
    expected = unpacked("control", tmp_path)

    async def test() -> None:
        there = Cloud(tmp_path, None)
        try:
            await there.open()
            await there.stop_control()
            there.world.put(host, VMS[host])
            service = await there.start_host(host)
            for vm in VMS[host]:
                await until(partial(there.guest, vm.name), f"{vm.name} is served")
                assert await there.document(vm.name) == expected["documents"][vm.name]
            assert not service.feed_reader.up
        finally:
            await there.close()

    run(test())


@pytest.mark.parametrize("host", ["h1", "h2"])
def test_a_host_knows_its_name_and_how_far_its_guests_have_come(tmp_path: Path, host: str) -> None:
    expected = unpacked("control", tmp_path)
    credentials = host_credentials.load(tmp_path / host)
    marks = marks_file.load(tmp_path / host)
    assert credentials is not None
    assert credentials.name == host
    assert marks is not None
    for vm in VMS[host]:
        incarnation = expected["documents"][vm.name]["DocumentIncarnation"]
        assert marks.of_vm[vm.name, vm.vm_id] == incarnation
