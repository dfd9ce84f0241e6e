"""When each VM last polled, and whether its agent still reads, as operators are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from forewarn.core.agent_polling import STOPPED_AFTER_MS
from forewarn.wire import link as wire
from support import fleets
from support.clock import RunningClock
from support.link_world import ControlWorld, Machine, control_running, run

FLEET = (
    fleets.hosts("h1", "h2")
    + fleets.scope("web")
    + fleets.vm("web-0", address="192.0.2.10")
    + fleets.vm("web-1", address="192.0.2.12")
    + fleets.vm("web-2", update_domain=1, host="h2", address="192.0.2.11")
)


async def says(host: Machine, **ages_ms: int) -> None:
    polls = {vm.replace("_", "-"): age_ms for vm, age_ms in ages_ms.items()}
    await host.ask("turn", wire.Turn(vm_polls=polls), wire.TurnTaken)


async def shown(world: ControlWorld, vm: str) -> Any:
    return (await world.operator("GET", f"/v1/vms/{vm}")).json()


async def commits(world: ControlWorld) -> int:
    return world.service.parts.store.position()


def test_the_last_poll_of_a_vm_is_shown_and_one_that_never_polled_says_never(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with control_running(tmp_path, fleet=FLEET) as world:
            h1, h2 = await world.joined("h1"), await world.joined("h2")
            await h1.changes()
            await h2.changes()
            await says(h2)
            await says(h1, web_0=2_000, web_2=0)  # one of them is not on h1

            listed = (await world.operator("GET", "/v1/vms?scope=web")).json()["items"]

            assert [vm["reading"] for vm in listed] == ["reading", "never", "never"]
            assert listed[0]["polled"] is not None
            assert [vm["polled"] for vm in listed[1:]] == [None, None]
            before = await commits(world)
            await says(h1, web_0=0)
            await says(h1, web_0=0)
            assert await commits(world) == before  # remembered, and not written down
        async with control_running(tmp_path, fleet=FLEET) as world:
            again = await shown(world, "web-0")
            assert (again["reading"], again["polled"]) == ("unknown", None)
            assert (await shown(world, "web-1"))["reading"] == "never"

    run(story)


def test_an_agent_that_has_stopped_reading_is_seen_while_its_neighbour_reads(
    tmp_path: Path,
) -> None:
    clock = RunningClock()

    async def story() -> None:
        async with control_running(tmp_path, fleet=FLEET, clock=clock, lease_clock=clock) as world:
            h1 = await world.joined("h1")
            await h1.changes()
            await says(h1, web_0=0, web_1=0)
            clock.pass_ms(STOPPED_AFTER_MS)
            await says(h1, web_1=0)

            found = {vm: (await shown(world, vm))["reading"] for vm in ("web-0", "web-1")}

            assert found == {"web-0": "stopped", "web-1": "reading"}

    run(story)


def test_of_vms_on_a_host_that_speaks_version_1_0_it_is_not_known_whether_they_read(
    tmp_path: Path,
) -> None:
    """Such a host does not tell their polls: that is no sign of an agent that never read."""

    async def story() -> None:
        async with control_running(tmp_path, fleet=FLEET) as world:
            h1 = await world.joined("h1")
            for name, body in (("changes", wire.AskChanges(None, 0)), ("turn", wire.Turn())):
                said = await h1.say(name, body, headers={wire.VERSION_HEADER: "1.0"})
                assert said.status_code == 200
            assert (await shown(world, "web-0"))["reading"] == "unknown"
            await h1.changes()  # its daemon was upgraded
            assert (await shown(world, "web-0"))["reading"] == "never"

    run(story)
