"""What libvirt is not told to do: nothing that was not announced, and to nobody else."""

from __future__ import annotations

from forewarn.ports import SightKind
from libvirt_world import (
    REBOOT,
    REBOOT_HOST,
    SHUTDOWN_S,
    World,
    acts,
    domain_xml,
    refusal,
)

MOVES = '<forewarn:vm xmlns:forewarn="urn:forewarn:vm:1" when-host-goes-down="move"/>'
PRESSED = "press the power button of vm"


# A plug is not pulled before its owner was asked.


def test_vms_are_asked_to_shut_down_however_long_others_took_to_move_away(world: World) -> None:
    world.define("h1", domain_xml("mover", metadata=MOVES), start=True)
    world.define("h1", domain_xml("vm"), start=True)
    world.elsewhere.targets_of["mover"] = "h2"
    world.libvirts["h1"].refuse["press"] = refusal("the guest does not care")
    world.hold()
    world.begin(REBOOT_HOST)
    world.wait_for(lambda: "move mover to h2" in acts(world), "it is being moved")
    world.clock.pass_ms(2 * SHUTDOWN_S * 1_000)
    world.release()
    world.wait_for(lambda: PRESSED in acts(world), "the other one is asked")
    world.clock.pass_ms(SHUTDOWN_S * 500)
    world.wait_for(lambda: acts(world).count(PRESSED) == 2, "it is asked again")
    assert "destroy vm" not in acts(world)
    world.clock.pass_ms(SHUTDOWN_S * 500)
    world.wait_for(lambda: "destroy vm" in acts(world), "its time is over")


def test_a_daemon_that_comes_late_asks_before_it_pulls_the_plug(world: World) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.libvirts["h1"].refuse["press"] = refusal("the guest does not care")
    world.libvirts["h1"].stop_at = PRESSED
    world.begin(REBOOT)
    world.wait_for(lambda: PRESSED in acts(world), "it is about to be asked")
    world.kill_daemon("h1")
    world.libvirts["h1"].stop_at = ""
    world.libvirts["h1"].asked.clear()
    world.clock.pass_ms(2 * SHUTDOWN_S * 1_000)
    assert world.look(REBOOT).kind is SightKind.UNDER_WAY
    world.wait_for(lambda: acts(world).count(PRESSED) == 2, "the next one asks")
    assert "destroy vm" not in acts(world)
    world.clock.pass_ms(SHUTDOWN_S * 500)
    assert world.end_of(REBOOT).kind is SightKind.DONE
    assert acts(world)[-2:] == ["destroy vm", "start vm"]
