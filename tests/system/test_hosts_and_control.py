"""Control and host daemons over the real link: events live, links are cut, everybody restarts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from forewarn.core.inventory.host_report import Traits
from forewarn.core.model import HOUR_MS, MINUTE_MS, ActionKind
from loopback_channels import LoopbackChannels
from support.clock import RunningClock
from support.host_world import WEB, Cloud, a_vm, cloud, run, scheduled
from support.ordered import WHY
from support.waiting import until


async def ended(there: Cloud, event_id: str) -> str:
    """How an event ended, once it has."""

    async def look() -> str:
        event = await there.operator("GET", f"events/{event_id}")
        phase = str(event["phase"])
        return phase if phase in ("completed", "failed", "canceled") else ""

    return str(await until(look, f"event {event_id} ends"))


async def journal(there: Cloud, event_id: str) -> list[str]:
    lines = await there.operator("GET", f"journal?limit=1000&event={event_id}")
    return [line["kind"] for line in lines["items"]]


def test_an_event_lives_from_the_order_to_its_end_over_the_link(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            event_id = await scheduled(there, "web_0")
            (other,) = await until(lambda: there.events("web_1"), "the other host shows it too")
            assert other["EventId"] == event_id
            await until(
                lambda: _has(journal(there, event_id), "confirmed"), "the host has confirmed"
            )

            assert (await there.approve("web_0", event_id)).status_code == 200
            assert await ended(there, event_id) == "completed"

            kinds = await journal(there, event_id)
            assert kinds.count("started") == kinds.count("claimed") == kinds.count("reported") == 1
            await until(lambda: _nothing(there, "web_0"), "the event leaves the document")

    run(test())


async def _has(lines: Coroutine[Any, Any, list[str]], kind: str) -> bool:
    return kind in await lines


async def _nothing(there: Cloud, vm: str) -> bool:
    return not await there.events(vm)


def test_a_host_answers_to_the_names_it_was_given_and_refuses_web_pages(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            await until(lambda: _serves(there, "web_0"), "web_0 is served")
            refused = [
                await there.poll("web_0", Host="evil.example"),
                await there.poll("web_0", Origin="http://metadata.example"),
                await there.poll("web_0", Via="1.1 proxy"),
            ]
            assert [answer.status_code for answer in refused] == [400] * 3
            assert (await there.operator("GET", "scopes/web"))["enabled"] is False
            assert (await there.poll("web_0", Host="metadata.example")).status_code == 200

    run(test())


async def _serves(there: Cloud, vm: str) -> bool:
    return there.guest(vm) is not None


def test_first_reads_reach_control_with_the_time_they_happened(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            event_id = await scheduled(there, "web_0")

            async def read() -> Any:
                shown = await there.operator("GET", f"events/{event_id}")
                reads = {r["vm"]: r["read"] for r in shown["receipt"]["first_reads"]}
                return reads["web_0"] and (shown["receipt"]["scheduled"], reads["web_0"])

            scheduled_at, read_at = await until(read, "the first read is kept")
            assert scheduled_at <= read_at

    run(test())


def test_a_redeployed_vm_is_served_by_its_new_host(tmp_path: Path) -> None:
    async def test() -> None:
        both = {"h1": [a_vm("solo")], "h2": [a_vm("other")]}
        async with cloud(tmp_path, both) as there:
            event_id = await scheduled(there, "solo", "redeploy")
            before = (await there.document("solo"))["DocumentIncarnation"]
            assert (await there.approve("solo", event_id)).status_code == 200
            assert await ended(there, event_id) == "completed"

            assert there.world.hypervisor.where("solo") == "h2"
            await until(
                lambda: (
                    there.hosts["h2"].identity.by_name("solo") is not None
                    and there.hosts["h1"].identity.by_name("solo") is None
                ),
                "h2 serves it, h1 no more",
            )
            await until(lambda: there.guest("solo"), "h2 listens for it")
            assert (await there.document("solo"))["DocumentIncarnation"] > before
            assert (await there.vm("solo"))["host"] == "h2"

    run(test())


def test_a_deleted_vm_leaves_the_fleet_and_does_not_come_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, {"h1": [a_vm("solo"), a_vm("other")]}) as there:
            event_id = await scheduled(there, "solo", "delete")
            assert (await there.approve("solo", event_id)).status_code == 200
            assert await ended(there, event_id) == "completed"
            before = there.hosts["h1"].watch.reports_taken
            there.hosts["h1"].watch.tell_again()
            await until(
                lambda: there.hosts["h1"].watch.reports_taken > before,
                "the host tells again",
            )

            assert await there.vm("solo") is None
            await until(
                lambda: there.hosts["h1"].documents.guest("solo") is None, "h1 serves it no more"
            )

    run(test())


def test_while_the_link_is_cut_guests_keep_their_document_and_approvals_wait(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            event_id = await scheduled(there, "web_0")
            before = await there.document("web_0")
            there.proxy.drop()
            await until(lambda: not there.hosts["h1"].feed_reader.up, "h1 notices")

            assert await there.document("web_0") == before
            refused = await there.approve("web_0", event_id)
            assert refused.status_code == 503
            assert int(refused.headers["Retry-After"]) >= 1
            age = there.hosts["h1"].feed_reader.age_s
            assert age is not None
            await until(lambda: (there.hosts["h1"].feed_reader.age_s or 0) > age, "the age grows")

            there.proxy.mend()
            await until(lambda: there.hosts["h1"].feed_reader.up, "the link is back")
            assert (await there.approve("web_0", event_id)).status_code == 200
            assert await ended(there, event_id) == "completed"

    run(test())


def test_what_was_ordered_while_the_link_was_cut_is_shown_when_it_is_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            await there.document("web_0")
            there.proxy.drop()
            await until(lambda: not there.hosts["h1"].feed_reader.up, "h1 notices")
            await there.operator("POST", "vms/web_0/restart", {})
            assert await there.events("web_0") == []

            there.proxy.mend()
            events = await until(lambda: there.events("web_0"), "the event is shown")
            kinds = await journal(there, events[0]["EventId"])
            assert "started" not in kinds

    run(test())


@pytest.mark.parametrize("away_ms", [MINUTE_MS, HOUR_MS])
def test_notice_does_not_run_while_nobody_could_confirm_it(tmp_path: Path, away_ms: int) -> None:
    async def test() -> None:
        clock = RunningClock()
        async with cloud(tmp_path, WEB, clock=clock) as there:
            await there.document("web_0")
            there.proxy.drop()
            await until(lambda: not there.hosts["h1"].feed_reader.up, "h1 notices")
            ordered = await there.operator("POST", "vms/web_0/restart", {})
            event_id = ordered["event_id"]
            clock.pass_ms(away_ms)
            ticks = clock.asked
            await until(lambda: clock.asked > ticks + 4, "control looks at it again")
            assert "started" not in await journal(there, event_id)

            there.proxy.mend()
            await until(lambda: there.events("web_0"), "the event is shown")
            await until(lambda: _has(journal(there, event_id), "confirmed"), "confirmed")
            assert "started" not in await journal(there, event_id)

            assert (await there.approve("web_0", event_id)).status_code == 200
            assert await ended(there, event_id) == "completed"

    run(test())


def test_after_a_restart_of_control_everything_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            event_id = await scheduled(there, "web_0")
            before = (await there.document("web_0"))["DocumentIncarnation"]
            epochs = there.hosts["h1"].feed_reader.epochs
            await there.stop_control()
            await until(lambda: not there.hosts["h1"].feed_reader.up, "h1 notices")
            assert (await there.document("web_0"))["DocumentIncarnation"] == before

            await there.start_control()
            await until(lambda: there.hosts["h1"].feed_reader.epochs > epochs, "a new epoch")
            assert (await there.document("web_0"))["DocumentIncarnation"] == before
            assert (await there.approve("web_0", event_id)).status_code == 200
            assert await ended(there, event_id) == "completed"

    run(test())


def test_an_action_under_way_while_control_is_away_is_reported_when_it_is_back(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            event_id = await scheduled(there, "web_0")
            there.world.hypervisor.slow_next("web_0", extra_s=4)
            assert (await there.approve("web_0", event_id)).status_code == 200
            await until(there.world.hypervisor.under_way, "the reboot is under way")
            await there.stop_control()
            await until(lambda: there.hosts["h1"].hosts.held == 1, "h1 holds the claim")
            await there.start_control()

            assert await ended(there, event_id) == "completed"
            assert (await journal(there, event_id)).count("started") == 1

    run(test())


def test_a_host_that_is_started_again_serves_and_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            event_id = await scheduled(there, "web_0")
            await there.stop_host("h1")
            await there.start_host("h1")
            await until(lambda: there.guest("web_0"), "it is served again")

            assert [e["EventId"] for e in await there.events("web_0")] == [event_id]
            assert (await there.approve("web_0", event_id)).status_code == 200
            assert await ended(there, event_id) == "completed"

    run(test())


def test_a_host_that_is_started_while_control_is_away_shows_what_it_showed_last(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            event_id = await scheduled(there, "web_0")
            before = await there.poll("web_0")
            await there.stop_control()
            await there.stop_host("h1")
            h1 = await there.start_host("h1", clock=RunningClock(step_ms=-365 * 24 * HOUR_MS))
            await until(lambda: there.guest("web_0"), "it is served again")

            after = await there.poll("web_0")
            assert after.json() == before.json()
            assert after.headers["Date"].split()[3] == before.headers["Date"].split()[3]
            assert (await there.approve("web_0", event_id)).status_code == 503
            assert not h1.feed_reader.up
            assert h1.feed_reader.age_s is not None

            await there.start_control()
            await until(lambda: h1.feed_reader.up, "h1 follows control again")
            assert (await there.approve("web_0", event_id)).status_code == 200
            assert await ended(there, event_id) == "completed"

    run(test())


@pytest.mark.parametrize(
    "damage",
    [b"", b"null", b'{"scopes": 1}', b'{"form": 2, "written_by": "forewarn 9.9", "pages": []}'],
)
def test_last_documents_that_cannot_be_used_keep_nobody_from_starting(
    tmp_path: Path, damage: bytes
) -> None:
    """And they are put aside, not removed, once there are others."""

    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            await scheduled(there, "web_0")
            await there.stop_host("h1")
            (tmp_path / "h1" / "documents.json").write_bytes(damage)
            there.proxy.drop()
            starting = asyncio.ensure_future(there.start_host("h1"))
            await until(lambda: "h1" in there.hosts, "h1 tries")
            await until(lambda: there.hosts["h1"].feed_reader.failures > 0, "h1 has asked in vain")
            there.proxy.mend()
            await starting
            await until(lambda: there.guest("web_0"), "it is served again")
            assert await there.events("web_0")
            aside = partial((tmp_path / "h1").glob, "unread-*/documents.json")
            await until(lambda: any(aside()), "what could not be used is put aside")
            assert [path.read_bytes() for path in aside()] == [damage]
            kept = tmp_path / "h1" / "documents.json"
            await until(kept.exists, "what is shown now is kept")
            assert json.loads(kept.read_bytes())["form"] == 1

    run(test())


def test_a_step_of_the_hosts_own_clock_changes_nothing_for_its_guests(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            await there.stop_host("h1")
            clock = RunningClock()
            await there.start_host("h1", clock=clock)
            await until(lambda: there.guest("web_0"), "it is served again")
            before = (await there.poll("web_0")).headers["Date"]
            clock.step_ms = -365 * 24 * HOUR_MS
            after = (await there.poll("web_0")).headers["Date"]

            assert before.split()[3] == after.split()[3]  # the year
            event_id = await scheduled(there, "web_0")
            assert (await there.approve("web_0", event_id)).status_code == 200
            assert await ended(there, event_id) == "completed"

    run(test())


def test_a_vm_with_the_name_of_another_hosts_vm_gets_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            mine = there.hosts["h1"]
            guest = mine.identity.by_name("web_0")
            assert guest is not None
            other = a_vm("web_9")
            mine.identity.witness([replace(other, name="web_0")])

            assert mine.identity.by_name("web_0") is None
            channels = mine.channels
            assert isinstance(channels, LoopbackChannels)
            address = channels.addresses()["web_0"]
            reply = await there.client.get(
                f"http://{address[0]}:{address[1]}/metadata/scheduledevents?api-version=2020-07-01",
                headers={"Metadata": "true"},
            )
            assert reply.status_code == 403

    run(test())


def test_an_adopted_vm_is_in_its_scope(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, {"h1": [a_vm("solo")]}) as there:
            await there.operator("POST", "vms/solo/adopt", {"scope": "web", "update_domain": 3})

            found = await there.vm("solo")
            assert (found["scope"], found["update_domain"]) == ("web", 3)
            seen = there.hosts["h1"].watch.seen
            assert seen is not None
            assert seen[0].traits == Traits(scope="web", update_domain=3)

    run(test())


def test_metrics_and_health_are_served_on_loopback(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            host = there.hosts["h1"]
            await there.document("web_0")
            server = host._metrics._server
            assert server is not None
            address, port = server.sockets[0].getsockname()[:2]
            page = await there.client.get(f"http://{address}:{port}/metrics")
            assert page.status_code == 200
            for name in ("link_up 1.0", "scopes_served 1.0", "vms_on_host 1.0", "heartbeats_total"):
                assert f"forewarn_{name}" in page.text
            assert 'forewarn_guest_polls_total{status="200"}' in page.text
            healthy = await there.client.get(f"http://{address}:{port}/healthz")
            assert healthy.text.startswith("ok: host h1")
            assert (await there.client.get(f"http://{address}:{port}/x")).status_code == 404
            assert (await there.client.post(f"http://{address}:{port}/metrics")).status_code == 405

    run(test())


def test_a_hypervisor_that_is_away_at_the_start_is_found_later(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            machines = there.hosts["h1"].watch._machines
            machines.away = "Libvirt cannot be reached."  # type: ignore[attr-defined]
            await there.hosts["h1"].watch.look()
            assert there.hosts["h1"].watch.seen is None
            assert (await there.poll("web_0")).status_code == 200

            machines.away = ""  # type: ignore[attr-defined]
            there.world.ring()
            await until(lambda: there.hosts["h1"].watch.seen is not None, "it is seen again")

    run(test())


def test_the_action_of_a_failed_host_is_started_elsewhere_after_fencing(tmp_path: Path) -> None:
    async def test() -> None:
        both = {"h1": [a_vm("solo")], "h2": [a_vm("other")]}
        async with cloud(tmp_path, both) as there:
            await there.document("solo")
            await there.stop_host("h1")
            there.world.hypervisor.kill_host("h1")
            await there.operator(
                "POST", "hosts/h1/fail", {"fenced": True, "force": True, "reason": WHY}
            )

            await until(lambda: there.world.hypervisor.where("solo") == "h2", "h2 starts it")
            await until(
                lambda: there.hosts["h2"].identity.by_name("solo") is not None, "h2 serves it"
            )
            kinds = {a.kind for _, a in there.world.hypervisor.under_way()}
            assert ActionKind.MOVE_VM not in kinds

    run(test())
