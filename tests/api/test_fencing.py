"""A host that speaks is not off, whoever says so."""

from __future__ import annotations

from pathlib import Path

from forewarn.core.inventory.host_report import Power, SeenVm
from forewarn.wire import link as wire
from support.link_world import control_running, run
from support.ordered import WHY
from support.shown_scopes import sighting

VM_ID = "6695eb01-f6a4-8304-79aa-97f2502e193f"


def test_vms_of_a_host_that_is_heard_are_not_started_elsewhere_unless_it_is_forced(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            h1, h2 = await world.joined("h1"), await world.joined("h2")
            there = sighting((SeenVm(name="vm0", vm_id=VM_ID, power=Power.RUNNING),))
            await h1.ask("sight", there, wire.Sighted)
            for host in (h1, h2):
                await host.ask("turn", wire.Turn(), wire.TurnTaken)

            refused = await world.operator("POST", "/v1/hosts/h1/fail", {"fenced": True})
            assert (refused.status_code, refused.json()["code"]) == (409, "host-heard")
            assert "Host h1 is not off" in refused.json()["detail"]
            assert "--force" in refused.json()["remedy"]
            shown = (await world.operator("GET", "/v1/hosts/h1")).json()
            assert (shown["health"], shown["fenced"]) == ("ok", False)

            # That it has failed may be said of any host: nothing starts twice by that.
            assert (await world.order("/v1/hosts/h1/fail", {"force": True, "reason": WHY}))[
                "health"
            ] == "failed"
            forced = await world.order(
                "/v1/hosts/h1/fail", {"fenced": True, "force": True, "reason": WHY}
            )
            assert forced["fenced"] is True

    run(story)
