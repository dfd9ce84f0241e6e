"""A VM that comes to a host reads nothing older there than where it comes from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from forewarn.core.errors import Unavailable
from forewarn.core.model import HOUR_MS
from forewarn.wire.link import Changes, Since, Turn, TurnTaken
from forewarn.wiring.host import HostService
from forewarn.wiring.host_metrics import host_metrics
from loopback_channels import LoopbackChannels
from support.clock import ManualClock
from support.host_world import DOCUMENT, Cloud, a_vm, cloud, run, scheduled
from support.waiting import until

HOSTS = {
    "h1": [a_vm("web_0", scope="web", update_domain=0)],
    "h2": [a_vm("web_1", scope="web", update_domain=1)],
    "h3": [a_vm("other")],
}
HOUR_S = HOUR_MS // 1_000


async def _on_its_way(there: Cloud) -> tuple[str, ManualClock]:
    """Begin to move web_0; where to, and the clock by which it arrives in an hour."""
    clock = ManualClock()
    there.world.hypervisor._clock = clock
    there.world.hypervisor.slow_next("web_0", extra_s=HOUR_S)
    event_id = await scheduled(there, "web_0", "redeploy")
    assert (await there.approve("web_0", event_id)).status_code == 200
    await until(there.world.hypervisor.under_way, "it is on its way")

    def expecting() -> str | None:
        shown = (h for h in ("h2", "h3") if there.hosts[h].documents.guest("web_0") is not None)
        return next(shown, None)

    return str(await until(expecting, "its next host knows its document")), clock


async def _away(*_: object) -> Any:
    """What a link that is cut says to any question."""
    raise Unavailable("away")


def _noting_waits(monkeypatch: pytest.MonkeyPatch, host: HostService) -> list[tuple[int, int]]:
    """What the host asks from now on: how many VMs wait by then, and how long control may wait."""
    asked: list[tuple[int, int]] = []
    changes = host.link.changes

    async def noted(since: Since | None, wait_s: int) -> Changes:
        asked.append((host.identity.waiting, wait_s))
        return await changes(since, wait_s)

    monkeypatch.setattr(host.link, "changes", noted)
    return asked


async def _ask(there: Cloud, host: str) -> httpx.Response:
    """What web_0 is answered on that host."""
    channels = there.hosts[host].channels
    assert isinstance(channels, LoopbackChannels)
    address = await until(lambda: channels.addresses().get("web_0"), f"{host} has a way for it")
    url = f"http://{address[0]}:{address[1]}{DOCUMENT}"
    return await there.client.get(url, headers={"Metadata": "true"})


def test_a_vm_reads_nothing_older_on_a_host_that_lost_control_before_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with cloud(tmp_path, HOSTS) as there:
            target, clock = await _on_its_way(there)
            host = there.hosts[target]

            monkeypatch.setattr(host.link, "changes", _away)
            host.feed_reader.ask_now()
            await until(lambda: not host.feed_reader.up, "the target hears control no more")
            before = (await there.document("web_0"))["DocumentIncarnation"]
            await there.operator("POST", "vms/web_1/restart", {})

            async def newer() -> Any:
                return (await there.document("web_0"))["DocumentIncarnation"] > before

            await until(newer, "it reads a newer document where it is")
            read = (await there.document("web_0"))["DocumentIncarnation"]

            clock.pass_ms(HOUR_MS)
            await until(lambda: there.world.hypervisor.where("web_0") == target, "it has come")
            reply = await _ask(there, target)
            assert (reply.status_code, int(reply.headers["Retry-After"]) > 0) == (503, True)
            assert "\nforewarn_vms_waiting_for_control 1" in host_metrics(host).text().decode()

            monkeypatch.undo()
            await until(lambda: host.identity.by_name("web_0"), "control has said what it reads")
            reply = await _ask(there, target)
            assert reply.status_code == 200
            assert reply.json()["DocumentIncarnation"] >= read

    run(test())


def test_a_vm_is_answered_where_it_comes_before_its_move_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with cloud(tmp_path, HOSTS) as there:
            target, clock = await _on_its_way(there)

            for host in there.hosts.values():
                say = host.link.turn

                async def unless_it_ends(
                    said: Turn, say: Callable[[Turn], Awaitable[TurnTaken]] = say
                ) -> TurnTaken:
                    return await (_away() if said.ended else say(said))

                monkeypatch.setattr(host.link, "turn", unless_it_ends)
            asked = _noting_waits(monkeypatch, there.hosts[target])
            clock.pass_ms(HOUR_MS)
            await until(lambda: there.world.hypervisor.where("web_0") == target, "it has come")
            await until(lambda: there.hosts[target].identity.by_name("web_0"), "it is answered")
            assert (await _ask(there, target)).status_code == 200
            assert (await there.vm("web_0"))["host"] == "h1", "control does not know of it yet"
            hurried = [wait_s for waiting, wait_s in asked if waiting]
            assert set(hurried) == {0}, "what a VM waits for is not asked for with patience"

    run(test())
