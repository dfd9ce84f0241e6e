"""Questions that come late, twice, in words nobody knows, or whose asker has left: no harm."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn.wire import link as wire
from support import fleets
from support.link_world import ControlWorld, Machine, control_running, run
from support.waiting import until

FLEET = fleets.hosts("h1") + fleets.scope("web") + fleets.vm("web-0", address="192.0.2.10")
# So many turns of the event loop after it has asked, a host hangs up: before its question is read,
# while it is answered, or after that.
HANGS_UP_AFTER = range(0, 300, 12)


@pytest.mark.parametrize("name", ["forecast", "heartbeat", "Turn", "x" * 3_000, "caf\u00e9"])
def test_a_question_that_nobody_knows_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            host = await world.joined("h1")
            answer = await host.say(name, {})
            said = answer.json()
            assert (answer.status_code, said["code"]) == (404, "unknown-question")
            assert f"does not know the question {name[:64]!r}" in said["detail"]
            assert "It knows adopted, approve," in said["remedy"]
            assert "turn. Upgrade control first" in said["remedy"]
            assert len(answer.content) < 2_000
            await host.ask("turn", wire.Turn(), wire.TurnTaken)

    run(story)


@pytest.mark.parametrize(
    ("name", "body", "field", "fields"),
    [
        ("claim", {}, "`boot_id`", "boot_id; optional: daemon, epoch"),
        ("holds", {"action_id": "a"}, "`epoch`", "action_id, epoch ("),
        ("changes", {"wait_s": 0}, "`since`", "since"),
        ("approve", {"vm": "web-0"}, "`event_ids`", "vm, event_ids ("),
        ("sight", {"vms": [{"name": "a"}]}, "`vm_id` - at `$.vms[0]`", "vms"),
        (
            "turn",
            {"ended": [{"action_id": "a", "epoch": 1}]},
            "`outcome` - at `$.ended[0]`",
            "optional: holding, ",
        ),
    ],
)
def test_a_field_that_is_missing_is_named(
    tmp_path: Path, name: str, body: dict[str, object], field: str, fields: str
) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            host = await world.joined("h1")
            answer = await host.say(name, body)
            said = answer.json()
            assert (answer.status_code, said["code"]) == (400, "invalid")
            assert f"missing required field {field}" in said["detail"]
            assert said["remedy"].startswith(f"Accepted: a JSON object with {fields}")

    run(story)


async def claimed(host: Machine, event_id: str) -> wire.Work:
    """What the host has to do once its guest has approved the event."""
    await host.ask("approve", wire.Approve("web-0", (event_id,)), wire.Done)

    async def work() -> Any:
        return (await host.ask("claim", wire.Claim("boot-1"), wire.Claimed)).work

    (one,) = await until(work, "there is work")
    found: wire.Work = one
    return found


async def ordered(world: ControlWorld, host: Machine) -> str:
    await host.ask("turn", wire.Turn(), wire.TurnTaken)
    return str((await world.order("/v1/vms/web-0/restart"))["event_id"])


async def kinds(world: ControlWorld, event_id: str) -> list[str]:
    answer = await world.operator("GET", f"/v1/journal?limit=1000&event={event_id}")
    return [line["kind"] for line in answer.json()["items"]]


def test_a_turn_from_before_a_restart_of_control_is_taken_and_does_no_harm(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path, fleet=FLEET) as world:
            host = await world.joined("h1")
            event_id = await ordered(world, host)
            work = await claimed(host, event_id)
            known = await host.changes()
        late = wire.Turn(
            holding={work.action_id: work.epoch, "of another life": 3},
            epoch=known.epoch,
            confirms={"web": known.scopes[0].incarnation},
            first_reads=(wire.ReadBefore("web", event_id, "web-0", 40),),
            polls={"web": 40},
            returned=("web-0",),
            ended=(wire.Ended(work.action_id, work.epoch, "done", "it is up"),),
        )
        async with control_running(tmp_path, fleet=FLEET) as world:
            host.url = world.where.hosts_url
            taken = await host.ask("turn", late, wire.TurnTaken)
            assert (taken.lost, taken.refused_ended) == (("of another life",), {})
            # What it shows was said by another life of control: it looks first, then confirms.
            assert taken.refused_confirms["web"].code == "conflict"
            event = (await world.operator("GET", f"/v1/events/{event_id}")).json()
            assert event["phase"] == "completed"
            assert event["receipt"]["first_reads"][0]["read"] is not None
            # It has not looked at what this control shows, so nothing new is begun on it.
            shown = (await world.operator("GET", "/v1/hosts/h1")).json()
            assert "has not looked yet" in shown["refuses"]

            before = await kinds(world, event_id)
            await host.ask("turn", late, wire.TurnTaken)
            assert await kinds(world, event_id) == before

    run(story)


async def says_and_leaves(host: Machine, name: str, said: msgspec.Struct, turns: int) -> None:
    """Ask, and hang up after so many turns of the event loop."""
    body = msgspec.json.encode(said)
    address, _, port = host.url.removeprefix("https://").rpartition(":")
    _, writer = await asyncio.open_connection(address, int(port), ssl=host.trusting(shown=True))
    head = f"POST /link/{name} HTTP/1.1\r\nHost: control\r\nContent-Length: {len(body)}\r\n"
    version = f"{wire.VERSION_HEADER}: {wire.LINK_VERSION}\r\n\r\n"
    writer.write((head + version).encode() + body)
    for _ in range(turns):
        await asyncio.sleep(0)
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


def test_a_host_that_leaves_before_its_answer_has_said_it_once_when_it_says_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story() -> None:
        async with control_running(tmp_path, fleet=FLEET) as world:
            host = await world.joined("h1")
            event_id = await ordered(world, host)
            approval = wire.Approve("web-0", (event_id,))
            for turns in HANGS_UP_AFTER:
                await says_and_leaves(host, "approve", approval, turns)
            work = await claimed(host, event_id)
            done = wire.Turn(ended=(wire.Ended(work.action_id, work.epoch, "done"),))
            for turns in HANGS_UP_AFTER:
                await says_and_leaves(host, "turn", done, turns)
            assert await host.ask("turn", done, wire.TurnTaken) == wire.TurnTaken(work=False)
            told = await kinds(world, event_id)
            for kind in ("approved", "started", "claimed", "reported", "completed"):
                assert told.count(kind) == 1, told
            assert not world.service.host_feed.waiting()

    run(story)
    said = capsys.readouterr()
    assert "link_request_failed" not in said.out + said.err


def test_a_turn_that_comes_many_times_at_once_is_taken_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path, fleet=FLEET) as world:
            host = await world.joined("h1")
            event_id = await ordered(world, host)
            work = await claimed(host, event_id)
            done = wire.Turn(
                holding={work.action_id: work.epoch},
                first_reads=(wire.ReadBefore("web", event_id, "web-0", 40),),
                ended=(wire.Ended(work.action_id, work.epoch, "done"),),
            )
            asked = [host.ask("turn", done, wire.TurnTaken) for _ in range(8)]
            answers = await asyncio.gather(*asked)
            assert [taken.refused_ended for taken in answers] == [{}] * 8
            # Who comes second is told that the claim is over, and never that it is refused.
            assert sorted(taken.lost for taken in answers) == [(), *[(work.action_id,)] * 7]
            told = await kinds(world, event_id)
            assert (told.count("reported"), told.count("completed")) == (1, 1)

    run(story)


def test_an_operator_who_leaves_before_the_answer_has_ordered_once(tmp_path: Path) -> None:
    """The order is carried out or it is not; who sends it again under its key gets its answer."""

    async def story() -> None:
        async with control_running(tmp_path, fleet=FLEET) as world:
            await ordered(world, await world.joined("h1"))
            token = (world.where.data / "operator.token").read_text().strip()
            address, _, port = world.where.operator_url.removeprefix("http://").rpartition(":")
            head = (
                f"POST /v1/vms/web-0/redeploy HTTP/1.1\r\nHost: control\r\nContent-Length: 0\r\n"
                f"Authorization: Bearer {token}\r\nIdempotency-Key: once\r\n"
            )
            for turns in HANGS_UP_AFTER:
                _, writer = await asyncio.open_connection(address, int(port))
                writer.write(f"{head}\r\n".encode())
                for _ in range(turns):
                    await asyncio.sleep(0)
                writer.transport.abort()
            reader, writer = await asyncio.open_connection(address, int(port))
            writer.write(f"{head}Connection: close\r\n\r\n".encode())
            answer = (await reader.read()).decode()
            writer.close()
            assert answer.startswith("HTTP/1.1 200"), answer
            event_id = msgspec.json.decode(answer.partition("\r\n\r\n")[2])["event_id"]
            assert (await kinds(world, event_id)).count("scheduled") == 1
            events = (await world.operator("GET", "/v1/events")).json()["items"]
            assert [one["event_type"] for one in events].count("Redeploy") == 1

    run(story)
