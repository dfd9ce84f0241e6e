"""What else an operator does to real VMs: host reboots, evictions, adopting, other hands."""

from __future__ import annotations

import pytest
from rig.domains import Guest
from rig.lifecycles import Lifecycles
from rig.service import Service
from rig.waiting import wait_for

NOTICED_LIMIT_S = 60.0
OFF_LIMIT_S = 180.0  # a minute, and what control and the host need to see it


@pytest.mark.long
def test_a_host_is_rebooted_and_its_vms_run_again_with_it(lifecycles: Lifecycles) -> None:
    lifecycles.define(Guest(name="reboot-0", number=50), "h1")
    done = lifecycles.reboot_host("h1")
    assert [one.complaints for one in done] == [()]


def test_a_spot_vm_is_evicted_after_half_a_minute_of_notice(lifecycles: Lifecycles) -> None:
    lifecycles.define(Guest(name="spot-0", number=51, traits={"priority": "spot"}), "h1")
    done = lifecycles.order("Preempt", ["spot-0"])
    assert [one.complaints for one in done] == [()]


def test_a_vm_is_adopted_into_a_scope_and_takes_that_along_when_it_moves(
    service: Service, lifecycles: Lifecycles
) -> None:
    lifecycles.define(Guest(name="adopt-0", number=52, approves=True), "h1")
    service.forewarn("vm", "adopt", "adopt-0", "--scope", "web", "--update-domain", "3")
    shown = service.operator.get("/v1/vms/adopt-0")
    assert (shown["scope"], shown["update_domain"]) == ("web", 3)
    assert 'scope="web"' in service.rig.hypervisors["h1"].virsh("dumpxml", "adopt-0").replace(
        "'", '"'
    )
    wait_for(
        "it has asked as a VM of its new scope, and is told from now on",
        lambda: service.operator.get("/v1/scopes/web")["enabled"],
        within_s=NOTICED_LIMIT_S,
    )
    done = lifecycles.order("Redeploy", ["adopt-0"])
    assert [one.complaints for one in done] == [()]
    assert service.operator.get("/v1/vms/adopt-0")["scope"] == "web"
    assert service.operator.get("/v1/vms/adopt-0")["host"] == "h2"


def test_a_vm_that_other_hands_move_switch_off_and_start_is_journalled_and_stays_served(
    service: Service, lifecycles: Lifecycles
) -> None:
    rig = service.rig
    lifecycles.define(Guest(name="hands-0", number=53), "h1")
    words = ("--live", "--p2p", "--persistent", "--undefinesource")
    rig.hypervisors["h1"].virsh("migrate", *words, "hands-0", "qemu+tcp://h2/system", limit_s=60)
    wait_for(
        "control knows where it is",
        lambda: service.operator.get("/v1/vms/hands-0")["host"] == "h2",
        within_s=NOTICED_LIMIT_S,
    )
    moved_s = rig.consoles.lines("hands-0")[-1].at_s
    wait_for(
        "it is answered there",
        lambda: rig.consoles.last_poll("hands-0", since_s=moved_s),
        within_s=NOTICED_LIMIT_S,
    )
    rig.hypervisors["h2"].virsh("destroy", "hands-0")
    wait_for("it is seen to be off", lambda: _powers(service, "off"), within_s=NOTICED_LIMIT_S)
    rig.hypervisors["h2"].virsh("start", "hands-0")
    wait_for("it runs again", lambda: _powers(service, "running"), within_s=NOTICED_LIMIT_S)


def _powers(service: Service, after: str) -> bool:
    facts = [
        fact
        for fact in service.operator.journal()
        if fact["vm"] == "hands-0" and fact["kind"] == "vm-power" and fact["host"] == "h2"
    ]
    return any(fact["detail"].get("after") == after for fact in facts)


@pytest.mark.timeout(400)
def test_a_vm_that_its_owner_switched_off_is_defined_elsewhere_and_left_off(
    service: Service, lifecycles: Lifecycles
) -> None:
    rig = service.rig
    lifecycles.define(Guest(name="off-0", number=54), "h1")
    lifecycles.define(Guest(name="on-0", number=55), "h1")
    rig.hypervisors["h1"].virsh("destroy", "off-0")
    wait_for(
        "it counts as off",
        lambda: service.operator.get("/v1/vms/off-0")["off"],
        within_s=OFF_LIMIT_S,
    )
    lifecycles.fail("h1")
    wait_for(
        "it is on the other host",
        lambda: service.operator.get("/v1/vms/off-0")["host"] == "h2",
        within_s=NOTICED_LIMIT_S,
    )
    assert rig.where("off-0") == {"h2": "shut off"}
    assert rig.where("on-0") == {"h2": "running"}
    assert lifecycles.complaints() == []
