"""The fleet is what hosts show, over the real link: VMs are made, moved and described by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from support.host_world import Cloud, a_vm, cloud
from support.waiting import until

FLEET = {"h1": [a_vm("web_0", scope="web", update_domain=0)], "h2": [a_vm("other")]}


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run one test to its end, in a loop of its own."""
    asyncio.run(asyncio.wait_for(test, 200))


async def kinds(there: Cloud) -> list[str]:
    lines = await there.operator("GET", "journal?limit=1000")
    return [line["kind"] for line in lines["items"]]


def test_a_vm_that_is_made_by_hand_reads_its_document_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, FLEET) as there:
            there.world.put("h2", [a_vm("new"), a_vm("web_1", scope="web", update_domain=1)])
            await there.vms_known("new", "web_1")
            assert (await there.document("new"))["Events"] == []
            assert (await there.vm("new"))["scope"] == "new"
            assert (await there.vm("web_1"))["scope"] == "web"

    run(test())


def test_a_vm_that_is_moved_by_hand_is_served_by_its_new_host(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, FLEET) as there:
            before = (await there.document("web_0"))["DocumentIncarnation"]
            there.world.hypervisor.carry("web_0", "h2")
            there.world.ring()

            async def moved() -> bool:
                return bool((await there.vm("web_0"))["host"] == "h2")

            await until(moved, "control follows the VM")
            await until(lambda: there.hosts["h2"].identity.by_name("web_0"), "h2 serves it")
            await until(lambda: not there.hosts["h1"].identity.by_name("web_0"), "h1 does not")
            assert (await there.document("web_0"))["DocumentIncarnation"] >= before
            assert "moved" in await kinds(there)

    run(test())


def test_problems_reach_the_operator_with_their_remedy(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, FLEET) as there:
            bad = replace(a_vm("lame"), problem="it has no network interface: add one.")
            there.world.put("h2", [bad, a_vm("web")])

            async def shown() -> Any:
                host = await there.operator("GET", "hosts/h2")
                problems = {one["vm"]: one["problem"] for one in host["problems"]}
                return problems if len(problems) == 2 else None

            problems = await until(shown, "h2 has two problems")
            assert problems["lame"] == "it has no network interface: add one."
            assert "forewarn vm adopt web --scope web" in problems["web"]
            watch = there.hosts["h2"].watch  # it hears control's answer after the operator can
            await until(lambda: set(watch.problems) == {"lame", "web"}, "h2 knows them too")

            await there.operator("POST", "vms/web/adopt", {"scope": "web", "update_domain": 9})
            assert (await there.vm("web"))["scope"] == "web"

    run(test())


def test_after_a_restart_of_control_nothing_is_seen_anew(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, FLEET) as there:
            before = await kinds(there)
            await there.stop_control()
            await there.start_control()

            async def heard() -> bool:
                return bool((await there.vm("web_0"))["power"] == "running")

            await until(heard, "h1 shows its VMs to the new control")
            seen = [kind for kind in await kinds(there) if kind.startswith("vm-")]
            assert seen == [kind for kind in before if kind.startswith("vm-")]

    run(test())
