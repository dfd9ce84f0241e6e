"""The domains of a hypervisor as the fleet sees them, on libvirt's test driver."""

from __future__ import annotations

import asyncio
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from forewarn.adapters.libvirt.blocking_calls import LibvirtSession
from forewarn.adapters.libvirt.connection import LibvirtLost, LibvirtMissing, open_libvirt
from forewarn.adapters.libvirt.domain_xml import DomainMark
from forewarn.adapters.libvirt.domains_as_vms import LibvirtMachines
from forewarn.core.inventory.host_report import Nic, Power, SeenVm, Traits
from forewarn.core.model import ActionKind
from forewarn.ports import HypervisorFailed
from support.libvirt_world import UUIDS, LibvirtWorld, domain_xml, libvirt_is_there

VM = '<forewarn:vm xmlns:forewarn="urn:forewarn:vm:1" {}/>'


def seen(world: LibvirtWorld) -> dict[str, SeenVm]:
    machines = LibvirtMachines(world.libvirts["h1"])
    return {vm.name: vm for vm in world.run(machines.seen())}


def test_every_domain_is_seen_with_its_power_traits_and_interfaces(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm", metadata=VM.format('scope="web"')), start=True)
    world.define("h1", domain_xml("off"), start=False)
    world.define("h1", domain_xml("paused"), start=True)
    world.on("h1", lambda s: s.suspend("paused"))
    vms = seen(world)
    assert {name: vm.power for name, vm in vms.items()} == {
        "off": Power.OFF,
        "paused": Power.PAUSED,
        "vm": Power.RUNNING,
    }
    assert vms["vm"].vm_id == UUIDS["vm"]
    assert vms["vm"].traits == Traits(scope="web")
    assert vms["vm"].nics == (Nic(mac="52:54:00:00:00:07", tap="tap7", bridge="br0"),)
    assert not any(vm.problem for vm in vms.values())


def test_a_domain_that_is_off_has_no_tap(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=False)
    assert seen(world)["vm"].nics == (Nic(mac="52:54:00:00:00:07", bridge="br0"),)


def test_an_interface_on_a_network_is_on_the_bridge_of_that_network(world: LibvirtWorld) -> None:
    devices = (
        "<interface type='network'><mac address='52:54:00:00:00:08'/>"
        "<source network='default'/></interface>"
    )
    world.define("h1", domain_xml("vm", devices=devices), start=False)
    assert seen(world)["vm"].nics == (Nic(mac="52:54:00:00:00:08", bridge="virbr0"),)


def test_the_definition_is_what_another_host_can_start_and_holds_no_mark(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    mark = DomainMark(action_id="E1/vm", kind=ActionKind.REBOOT_VM)
    world.on("h1", lambda s: s.set_mark("vm", mark, live=True, config=True))
    definition = seen(world)["vm"].definition
    assert "urn:forewarn:action:1" not in definition
    world.define("h2", definition, start=True)
    assert world.seen("h2").uuid == UUIDS["vm"]


@pytest.mark.parametrize(
    ("xml", "words"),
    [
        (domain_xml("vm", devices=""), "it has no network interface"),
        (domain_xml("vm", metadata=VM.format('scop="web"')), "Did you mean scope?"),
        (domain_xml("my vm"), "virsh domrename"),
        (domain_xml("x" * 65), "1 to 64 letters"),
    ],
    ids=["no-nic", "metadata", "space", "long"],
)
def test_a_domain_that_cannot_be_used_says_why_and_what_helps(
    world: LibvirtWorld, xml: str, words: str
) -> None:
    world.define("h1", xml, start=True)
    world.define("h1", domain_xml("good"), start=True)
    vms = seen(world)
    (bad,) = (vm for vm in vms.values() if vm.name != "good")
    assert words in bad.problem
    assert vms["good"].problem == ""


def test_adopted_traits_are_there_at_once_and_after_the_next_start(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    machines = LibvirtMachines(world.libvirts["h1"])
    traits = Traits(scope="web", update_domain=1)
    world.run(machines.adopt("vm", traits))
    assert seen(world)["vm"].traits == traits
    world.on("h1", lambda s: s.destroy("vm"))
    assert seen(world)["vm"].traits == traits


def test_a_domain_that_exists_only_while_it_runs_can_be_adopted(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.on("h1", lambda s: s.undefine("vm"))
    world.run(LibvirtMachines(world.libvirts["h1"]).adopt("vm", Traits(scope="web")))
    assert seen(world)["vm"].traits == Traits(scope="web")


def test_adopting_a_domain_that_is_not_there_is_refused(world: LibvirtWorld) -> None:
    with pytest.raises(HypervisorFailed, match="There is no domain vm here"):
        world.run(LibvirtMachines(world.libvirts["h1"]).adopt("vm", Traits()))


def test_what_other_hands_do_rings(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=False)
    rung = threading.Event()
    LibvirtMachines(world.libvirts["h1"]).on_change(rung.set)
    for act in ("create", "suspend", "resume", "destroy", "undefine"):
        rung.clear()
        world.on("h1", lambda s, act=act: getattr(s, act)("vm"))  # type: ignore[misc]
        assert rung.wait(60), act


def test_a_reset_by_other_hands_is_told_with_the_name_of_the_domain(
    world: LibvirtWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test driver does not tell of resets: what libvirt would call is called here."""
    libvirt = pytest.importorskip("libvirt")
    asked: dict[int, Any] = {}
    register = libvirt.virConnect.domainEventRegisterAny

    def note(connect: Any, domain: Any, event_id: int, told: Any, more: Any) -> Any:
        asked[event_id] = told
        return register(connect, domain, event_id, told, more)

    monkeypatch.setattr(libvirt.virConnect, "domainEventRegisterAny", note)
    connection = open_libvirt(world.libvirts["h1"].uri)
    rebooted: list[str] = []
    connection.on_reboot(rebooted.append)

    async def reset() -> None:
        await connection.call(lambda s: s.domains(), what="look")
        domain = SimpleNamespace(name=lambda: "vm")
        await asyncio.to_thread(asked[libvirt.VIR_DOMAIN_EVENT_ID_REBOOT], None, domain, None)
        await asyncio.sleep(0)

    asyncio.run(reset())
    connection.close()
    assert rebooted == ["vm"]


class _GoesOff:
    """A domain that goes off between two questions: the second answer is its configuration."""

    def __init__(self, lv: Any, config: str) -> None:
        self._lv = lv
        self._config = config
        self.asked = 0

    def state(self) -> list[int]:
        self.asked += 1
        runs = self.asked == 1
        return [self._lv.VIR_DOMAIN_RUNNING if runs else self._lv.VIR_DOMAIN_SHUTOFF, 0]

    def XMLDesc(self, _flags: int) -> str:  # noqa: N802 - libvirt's
        return self._config

    def isPersistent(self) -> int:  # noqa: N802 - libvirt's
        return 1

    def name(self) -> str:
        return "vm"

    def UUIDString(self) -> str:  # noqa: N802 - libvirt's
        return UUIDS["vm"]


def test_a_domain_that_goes_off_while_it_is_looked_at_does_not_seem_to_run(
    world: LibvirtWorld,
) -> None:
    """It would seem to run with the mark of its configuration, as if it had been restarted."""
    lv = pytest.importorskip("libvirt")  # the world has skipped with words where it is missing
    world.define("h1", domain_xml("vm"), start=True)
    view = world.seen("h1")
    domain = _GoesOff(lv, view.config_xml)
    seen_now = LibvirtSession(lv, None)._view(domain)
    assert (seen_now.power, seen_now.active, seen_now.live_xml) == (Power.OFF, False, "")
    assert domain.asked == 2


# No libvirt.


def test_a_libvirt_that_is_not_there_is_named_with_what_helps() -> None:
    libvirt_is_there()
    connection = open_libvirt("qemu+unix:///system?socket=/nonexistent/libvirt-sock")
    with pytest.raises(LibvirtLost, match=r"nonexistent.*systemctl start libvirtd"):
        asyncio.run(LibvirtMachines(connection).seen())
    connection.close()


def test_a_missing_binding_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libvirt", None)
    with pytest.raises(LibvirtMissing, match=r"pip install 'forewarn\[libvirt\]'"):
        open_libvirt("qemu:///system")


def test_a_connection_that_was_closed_is_not_opened_again(world: LibvirtWorld) -> None:
    world.libvirts["h1"].close()
    with pytest.raises(LibvirtLost, match="was closed"):
        world.run(LibvirtMachines(world.libvirts["h1"]).seen())
