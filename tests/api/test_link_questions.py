"""What hosts ask over the link: the life of an event, what none may say, and bad questions."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from forewarn.adapters.system import SystemClock
from forewarn.api.link.routes import EVENT_IDS_MAX
from forewarn.control.hosts.leases import TWO_DAEMONS_MS
from forewarn.core.inventory.host_report import Nic, Power, SeenVm, Traits
from forewarn.core.model import Outcome
from forewarn.wire import link as wire
from forewarn.wiring.operator_server import STOP_GRACE_S
from support import fleets, ordered
from support.clock import ManualClock
from support.link_world import VERSION, ControlWorld, Machine, control_running, run
from support.shown_scopes import sighting
from support.waiting import until

FLEET = (
    fleets.hosts("h1", "h2")
    + fleets.scope("web")
    + fleets.vm("web-0", address="192.0.2.10")
    + fleets.vm("web-1", update_domain=1, host="h2", address="192.0.2.11")
)
XML = "<domain type='qemu'><name>vm-9</name></domain>"


def seen(name: str, *, power: Power = Power.RUNNING, scope: str = "") -> SeenVm:
    return SeenVm(
        name=name,
        vm_id=f"00000000-0000-4000-8000-{abs(hash(name)) % 16**12:012x}",
        power=power,
        traits=Traits(scope=scope),
        nics=(Nic(mac="52:54:00:00:00:01", tap="vnet0", bridge="br0"),),
        definition=XML,
    )


def since(answer: wire.Changes) -> wire.Since:
    return wire.Since(answer.epoch, answer.position)


async def two_hosts(world: ControlWorld) -> tuple[Machine, Machine]:
    hosts = await world.joined("h1"), await world.joined("h2")
    for host in hosts:
        await host.ask("turn", wire.Turn(), wire.TurnTaken)
    return hosts


async def event_of(world: ControlWorld, event_id: str) -> Any:
    return (await world.operator("GET", f"/v1/events/{event_id}")).json()


async def claimed(host: Machine) -> Any:
    """What the host has to do, once there is something."""
    async with asyncio.timeout(60):
        while True:
            known = await host.changes()
            if known.work:
                break
            await host.changes(since(known), wait_s=5)
    (action,) = (await host.ask("claim", wire.Claim("boot-1"), wire.Claimed)).work
    return action


def test_an_event_lives_its_whole_life_over_the_link(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path, fleet=FLEET) as world:
            h1, h2 = await two_hosts(world)
            known = await h1.changes()
            assert (known.names, [vm.name for vm in known.scopes[0].vms]) == (("web",), ["web-0"])
            waiting = asyncio.ensure_future(h1.changes(since(known), wait_s=25))

            order = await world.order("/v1/vms/web-0/restart")
            event_id = order["event_id"]
            told = await waiting
            assert [e.event_id for e in told.scopes[0].events] == [event_id]
            assert told.scopes[0].incarnation > known.scopes[0].incarnation

            shown = wire.Turn(confirms={"web": told.scopes[0].incarnation})
            await h1.ask("turn", shown, wire.TurnTaken)
            assert (await event_of(world, event_id))["shown"] is not None
            read = wire.ReadBefore("web", event_id, "web-0", 40)
            traces = wire.Turn(first_reads=(read,), polls={"web": 40})
            await h1.ask("turn", traces, wire.TurnTaken)
            approval = wire.Approve("web-0", (event_id.lower(),))
            await h1.ask("approve", approval, wire.Done)
            assert (await event_of(world, event_id))["approved_by"] == "web-0"

            action = await claimed(h1)
            assert (action.kind, action.vm) == ("reboot-vm", "web-0")
            held = wire.Holds(action.action_id, action.epoch)
            assert (await h1.ask("holds", held, wire.Held)).holds
            await h1.ask("turn", wire.Turn({action.action_id: action.epoch}), wire.TurnTaken)
            ended = wire.Turn(ended=(wire.Ended(action.action_id, action.epoch, Outcome.DONE),))
            assert await h1.ask("turn", ended, wire.TurnTaken) == wire.TurnTaken(work=False)

            after = await event_of(world, event_id)
            assert after["phase"] == "completed"
            assert after["receipt"]["first_reads"][0]["vm"] == "web-0"
            for host in (h1, h2):
                (scope,) = (await host.changes()).scopes
                assert scope.events == ()

    run(story)


def test_a_host_acts_and_speaks_for_its_own_vms_only(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path, fleet=FLEET) as world:
            h1, h2 = await two_hosts(world)
            event_id = (await world.order("/v1/vms/web-0/restart"))["event_id"]

            approval = wire.Approve("web-0", (event_id,))
            assert await h2.refused("approve", approval) == (403, "not-yours")
            assert await h2.refused("approve", wire.Approve("nobody", (event_id,))) == (
                404,
                "not-found",
            )
            assert await h2.refused("enable", wire.Enable("web", "web-0")) == (403, "not-yours")
            told = (await h2.changes()).scopes[0]
            confirms = wire.Turn(confirms={"web": told.incarnation})
            await h2.ask("turn", confirms, wire.TurnTaken)
            read = wire.ReadBefore("web", event_id, "web-0", 0)
            await h2.ask("turn", wire.Turn(first_reads=(read,)), wire.TurnTaken)
            before = await event_of(world, event_id)
            assert (before["approved"], before["shown"]) == (None, None)
            assert before["receipt"]["first_reads"] == [
                {"vm": "web-0", "read": None, "notice_seconds": None}
            ]

            await h1.ask("approve", approval, wire.Done)
            action = await claimed(h1)
            assert (await h2.ask("claim", wire.Claim("b"), wire.Claimed)).work == ()
            held = wire.Holds(action.action_id, action.epoch)
            assert not (await h2.ask("holds", held, wire.Held)).holds
            ended = wire.Turn(ended=(wire.Ended(action.action_id, action.epoch, Outcome.DONE),))
            refused = (await h2.ask("turn", ended, wire.TurnTaken)).refused_ended
            assert refused[action.action_id].code == "not-found"
            holding = wire.Turn({action.action_id: action.epoch})
            lost = (await h2.ask("turn", holding, wire.TurnTaken)).lost
            assert lost == (action.action_id,)
            assert (await event_of(world, event_id))["phase"] == "started"

            late = wire.Turn(ended=(wire.Ended(action.action_id, action.epoch + 1, Outcome.DONE),))
            refused = (await h1.ask("turn", late, wire.TurnTaken)).refused_ended
            assert refused[action.action_id].code == "stale-report"
            assert await h1.ask("turn", ended, wire.TurnTaken) == wire.TurnTaken(work=False)

    run(story)


def test_what_a_host_shows_becomes_the_inventory_and_is_its_own(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            h1, h2 = await two_hosts(world)
            waiting = asyncio.ensure_future(h1.changes(since(await h1.changes()), wait_s=25))
            shown = sighting((seen("vm-8", scope="db"), seen("vm-9")))
            assert (await h1.ask("sight", shown, wire.Sighted)).problems == {}
            assert (await waiting).names == ("db", "vm-9")
            assert (await h2.changes()).names == ()

            asked = wire.AskTargets(("vm-9", "nobody"))
            targets = await h1.ask("targets", asked, wire.Targets)
            assert targets.targets == {"vm-9": "h2", "nobody": None}
            theirs = await h2.ask("targets", asked, wire.Targets)
            assert theirs.targets == {"vm-9": None, "nobody": None}
            for host in (h1, h2):  # no action brings it anywhere
                answer = await host.ask("definition", wire.AskDefinition("vm-9"), wire.Definition)
                assert answer.definition is None

            event_id = (await world.order("/v1/vms/vm-9/redeploy"))["event_id"]
            await h1.ask("approve", wire.Approve("vm-9", (event_id,)), wire.Done)
            action = await claimed(h1)
            assert (action.kind, action.target_host) == ("move-vm", "h2")
            answer = await h2.ask("definition", wire.AskDefinition("vm-9"), wire.Definition)
            assert answer.definition == XML
            assert (await h2.changes()).names == ("vm-9",)  # it may run there any moment

    run(story)


def test_a_host_that_refuses_control_gets_no_vms_and_the_operator_reads_why(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            h1, h2 = await two_hosts(world)
            await h1.ask("sight", sighting((seen("vm-9"),)), wire.Sighted)
            await h2.ask("sight", sighting(()), wire.Sighted)
            await h2.ask("turn", wire.Turn({}, "It would go back."), wire.TurnTaken)
            asked = wire.AskTargets(("vm-9",))
            assert (await h1.ask("targets", asked, wire.Targets)).targets == {"vm-9": None}
            shown = (await world.operator("GET", "/v1/hosts/h2")).json()
            assert (shown["placement"], shown["refuses"]) == ("refusing", "It would go back.")
            text = (await world.operator("GET", "/metrics")).text
            assert 'forewarn_link_refusing{host="h1"} 0.0' in text
            assert 'forewarn_link_refusing{host="h2"} 1.0' in text

            await h2.ask("turn", wire.Turn(), wire.TurnTaken)
            assert (await h1.ask("targets", asked, wire.Targets)).targets == {"vm-9": "h2"}
            shown = (await world.operator("GET", "/v1/hosts/h2")).json()
            assert (shown["placement"], shown["refuses"]) == ("open", "")

    run(story)


def test_a_host_that_has_not_seen_what_this_control_shows_is_given_nothing_to_do(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            h1, _ = await two_hosts(world)
            await h1.ask("sight", sighting((seen("vm-9"),)), wire.Sighted)
            event_id = (await world.order("/v1/vms/vm-9/restart"))["event_id"]
            await h1.ask("approve", wire.Approve("vm-9", (event_id,)), wire.Done)
            known = await h1.changes()
            while not known.work:
                known = await h1.changes(since(known), wait_s=5)

            before = wire.Claim("boot-1", "d1", "the epoch of another control")
            assert (await h1.ask("claim", before, wire.Claimed)).work == ()
            beat = wire.Turn({}, "", "the epoch of another control")
            await h1.ask("turn", beat, wire.TurnTaken)
            shown = (await world.operator("GET", "/v1/hosts/h1")).json()
            assert (shown["placement"], "has not looked yet" in shown["refuses"]) == (
                "refusing",
                True,
            )
            await h1.ask("turn", wire.Turn({}, "", known.epoch), wire.TurnTaken)
            shown = (await world.operator("GET", "/v1/hosts/h1")).json()
            assert (shown["placement"], shown["refuses"]) == ("open", "")
            now = wire.Claim("boot-1", "d1", known.epoch)
            assert len((await h1.ask("claim", now, wire.Claimed)).work) == 1

    run(story)


def test_the_operator_reads_that_two_daemons_speak_as_one_host_and_what_to_do(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with control_running(tmp_path, fleet=FLEET, lease_clock=clock) as world:
            h1, h2 = await two_hosts(world)

            async def says(daemon: str) -> None:
                clock.pass_ms(1_000)
                for host, name in ((h1, daemon), (h2, "other")):
                    await host.ask("turn", wire.Turn(daemon=name), wire.TurnTaken)

            with capture_logs() as logs:
                for daemon in ("true", "copy", "true", "copy"):
                    await says(daemon)
            told = [one for one in logs if one["event"] == "host_has_two_daemons"]
            assert [(one["host"], "host.pem" in one["remedy"]) for one in told] == [("h1", True)]

            shown = (await world.operator("GET", "/v1/hosts/h1")).json()
            assert shown["placement"] == "two-daemons"
            assert shown["two_daemons"].startswith("Two daemons speak as host h1: neither is given")
            assert "stop its daemon" in shown["two_daemons"]
            listed = (await world.operator("GET", "/v1/hosts")).json()["items"]
            assert [bool(one["two_daemons"]) for one in listed] == [True, False]
            text = (await world.operator("GET", "/metrics")).text
            assert 'forewarn_link_two_daemons{host="h1"} 1.0' in text
            assert 'forewarn_link_two_daemons{host="h2"} 0.0' in text
            event_id = (await world.order("/v1/vms/web-0/restart"))["event_id"]
            await h1.ask("approve", wire.Approve("web-0", (event_id,)), wire.Done)
            held = (await world.operator("GET", f"/v1/events/{event_id}/explain")).json()["holds"]
            assert [one["reason"] for one in held] == ["two-daemons"]

            with capture_logs() as logs:
                for _ in range(TWO_DAEMONS_MS // 1_000):
                    await says("true")
            assert [one["event"] for one in logs if "daemon" in one["event"]] == [
                "host_has_one_daemon"
            ]
            shown = (await world.operator("GET", "/v1/hosts/h1")).json()
            assert (shown["placement"], shown["two_daemons"]) == ("open", "")

    run(story)


@pytest.mark.parametrize("begins", ["anew", "from another control"])
def test_a_host_that_does_not_say_whom_it_follows_obeys_nobody_until_it_has_asked(
    tmp_path: Path, begins: str
) -> None:
    """An older daemon leaves `epoch` out. It may still show what another control said."""

    async def story() -> None:
        async with control_running(tmp_path) as world:
            host = await world.machine("h1").join(await world.token("h1"))
            await host.ask("turn", wire.Turn(), wire.TurnTaken)
            await host.ask("sight", sighting((seen("vm-9"),)), wire.Sighted)
            event_id = (await world.order("/v1/vms/vm-9/restart"))["event_id"]
            await host.ask("approve", wire.Approve("vm-9", (event_id,)), wire.Done)
            if begins == "from another control":
                told = await host.changes(wire.Since("of another control", 7))

            shown = (await world.operator("GET", "/v1/hosts/h1")).json()
            assert (shown["placement"], "has not asked yet" in shown["refuses"]) == (
                "refusing",
                True,
            )
            held = (await world.operator("GET", f"/v1/events/{event_id}/explain")).json()
            assert "host-refuses" in {hold["reason"] for hold in held["holds"]}
            confirms = wire.Turn(confirms={"vm-9": 2})
            taken = await host.ask("turn", confirms, wire.TurnTaken)
            assert taken.refused_confirms["vm-9"].code == "conflict"
            assert (await host.ask("claim", wire.Claim("boot-1"), wire.Claimed)).work == ()

            if begins == "anew":
                await host.changes()
            else:  # what it was told it has taken over by now
                await host.changes(since(told))
            shown = (await world.operator("GET", "/v1/hosts/h1")).json()
            assert (shown["placement"], shown["refuses"]) == ("open", "")
            action = await claimed(host)
            assert (action.kind, action.vm) == ("reboot-vm", "vm-9")

    run(story)


def test_a_host_that_was_shut_out_and_joins_again_has_to_ask_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path, fleet=FLEET) as world:
            host = await world.joined("h1")
            await host.ask("turn", wire.Turn(), wire.TurnTaken)
            assert (await world.operator("GET", "/v1/hosts/h1")).json()["refuses"] == ""
            await world.order("/v1/hosts/h1/revoke")
            another = await world.machine("h1", "another").join(await world.token("h1"))
            await another.ask("turn", wire.Turn(), wire.TurnTaken)
            shown = (await world.operator("GET", "/v1/hosts/h1")).json()
            assert "has not asked yet" in shown["refuses"]

    run(story)


def test_a_host_whose_hypervisor_is_away_gets_no_vms_and_the_operator_reads_why(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            h1, h2 = await two_hosts(world)
            nothing = sighting(())
            await h1.ask("sight", sighting((seen("vm-9"),)), wire.Sighted)
            await h2.ask("sight", nothing, wire.Sighted)
            await h2.ask("blind", wire.Blind("Libvirt cannot be reached."), wire.Done)
            asked = wire.AskTargets(("vm-9",))
            assert (await h1.ask("targets", asked, wire.Targets)).targets == {"vm-9": None}
            shown = (await world.operator("GET", "/v1/hosts/h2")).json()
            assert (shown["placement"], shown["hypervisor_unreachable"]) == (
                "hypervisor-unreachable",
                "Libvirt cannot be reached.",
            )

            await h2.ask("sight", nothing, wire.Sighted)  # the same as before, and no longer blind
            assert (await h1.ask("targets", asked, wire.Targets)).targets == {"vm-9": "h2"}
            shown = (await world.operator("GET", "/v1/hosts/h2")).json()
            assert (shown["placement"], shown["hypervisor_unreachable"]) == ("open", "")

    run(story)


def test_an_adoption_goes_to_the_host_and_its_answer_comes_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            h1, _ = await two_hosts(world)
            await h1.ask("sight", sighting((seen("vm-9"),)), wire.Sighted)
            known = await h1.changes()
            ordered = asyncio.ensure_future(
                world.operator("POST", "/v1/vms/vm-9/adopt", {"scope": "web", "update_domain": 0})
            )
            (wanted,) = (await h1.changes(since(known), wait_s=25)).adoptions
            assert (wanted.vm, wanted.traits.scope) == ("vm-9", "web")
            await h1.ask("adopted", wire.Adopted(wanted.adoption_id, "no such domain"), wire.Done)
            answer = await ordered
            assert answer.status_code == 409
            assert "no such domain" in answer.text
            assert (await h1.changes()).adoptions == ()

    run(story)


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        (None, "Upgrade the host"),
        ("", "Upgrade the host"),
        ("0", "Upgrade the host"),
        ("2", "Upgrade control first"),
        ("1x", "Upgrade the host"),
        ("\u00b2", "Upgrade the host"),
        ("9" * 5_000, "Upgrade the host"),
    ],
)
def test_a_version_of_the_link_that_is_not_ours_says_which_side_to_upgrade(
    tmp_path: Path, version: str | None, remedy: str
) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            host = await world.joined("h1")
            headers = {} if version is None else {wire.VERSION_HEADER: version.encode()}
            sent: Any = headers  # httpx takes bytes, which its types do not say
            for name in ("turn", "join"):
                answer = await host.say(name, wire.Turn(), headers=sent)
                assert answer.status_code == 400
                assert remedy in answer.json()["remedy"]

    run(story)


@pytest.mark.parametrize(
    ("version", "said", "why"),
    [
        ("2.0", b"{}", "The host speaks '2.0' of the link"),
        (wire.LINK_VERSION, b'{"holding": 5}', "The question was not understood"),
    ],
    ids=["another version", "not understood"],
)
def test_a_host_that_is_refused_for_what_it_says_is_heard_and_is_not_fenced(
    tmp_path: Path, version: str, said: bytes, why: str
) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            host = await world.joined("h1")
            answer = await host.say("turn", said, headers={wire.VERSION_HEADER: version})
            assert answer.status_code == 400
            shown = (await world.operator("GET", "/v1/hosts/h1")).json()
            assert shown["placement"] == "refusing"
            assert why in shown["refuses"]
            failed = await world.operator("POST", "/v1/hosts/h1/fail", {"fenced": True})
            assert failed.status_code == 409
            assert "is not off: it was heard" in failed.json()["detail"]
            assert (await host.say("turn", wire.Turn())).status_code == 200
            assert (await world.operator("GET", "/v1/hosts/h1")).json()["refuses"] == ""

    run(story)


def test_every_answer_says_what_time_it_is_at_control(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with control_running(tmp_path, clock=clock) as world:
            host = await world.joined("h1")
            stranger = world.machine("h2")
            await stranger.learn_authority()
            answers = [
                await host.say("turn", wire.Turn()),
                await host.say("turn", b"null"),
                await host.say("nothing", {}),
                await host.say("turn", method="GET"),
                await host.say("authority", method="GET"),
                await host.say("turn", wire.Turn(), headers={}),
                await stranger.say("turn", wire.Turn()),
            ]
            assert [answer.status_code for answer in answers] == [200, 400, 404, 405, 200, 400, 403]
            for answer in answers:
                assert answer.headers.get_list(wire.NOW_HEADER) == [str(clock.now_ms())]

    run(story)


QUESTIONS = (
    *("renew", "changes", "turn", "claim", "holds", "approve"),
    *("enable", "sight", "blind", "adopted", "targets", "definition", "join"),
)
JUNK = (
    b"",
    b"null",
    b"[]",
    b"{}",
    b"{",
    b'"x"',
    b"7",
    b"\xff\xfe",
    b"[" * 60_000,
    b'{"a":' * 10_000,
    b'{"unknown": 1}',
    b'{"vms": null, "vm": null, "epoch": null, "scope": null, "name": null, "holding": null}',
    b'{"vms": [null]}',
    b'{"vms": [{"name": 1}]}',
    b'{"holding": {"a": "b"}}',
    b'{"holding": {"a": 1e400}}',
    b'{"scope": "web", "incarnation": 1e99}',
    b'{"since": 5}',
    b'{"since": null, "wait_s": "long"}',
    b'{"first_reads": {"a": 1}}',
    b'{"name": "h1", "token": "fw1.a.b", "request": null}',
)
# A turn may say nothing at all, and what is not known of it belongs to a later version.
WELL_TURNS = (
    b"{}",
    b'{"unknown": 1}',
    b'{"vms": [null]}',
    b'{"vms": [{"name": 1}]}',
    b'{"scope": "web", "incarnation": 1e99}',
    b'{"since": 5}',
    b'{"since": null, "wait_s": "long"}',
    b'{"name": "h1", "token": "fw1.a.b", "request": null}',
)
WELL = {
    *(("turn", body) for body in WELL_TURNS),
    ("holds", b'{"action_id": "a", "epoch": 1, "outcome": "perhaps"}'),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_junk_is_refused_in_words_and_breaks_nothing(tmp_path: Path, name: str) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            host = await world.joined("h1")
            for body in JUNK:
                answer = await host.say(name, body)
                if (name, body) in WELL:
                    assert answer.status_code == 200
                    continue
                assert answer.status_code == 400, (body[:40], answer.text)
                assert answer.json()["code"] == "invalid"
                assert len(answer.content) < 2_000
            await host.ask("turn", wire.Turn(), wire.TurnTaken)

    run(story)


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("holds", {"action_id": "", "epoch": 0}),
        ("holds", {"action_id": "\u0000", "epoch": -(2**63)}),
        ("turn", {"confirms": {"../../x": 2**63 - 1}}),
        ("turn", {"confirms": {"web": -1}}),
        ("turn", {"confirms": {"web": 2**70}}),
        ("turn", {"ended": [{"action_id": "a", "epoch": 1, "outcome": "perhaps"}]}),
        ("turn", {"ended": [{"action_id": "", "epoch": 2**70, "outcome": "done"}]}),
        ("claim", {"boot_id": ""}),
        ("turn", {"polls": {"web": -(2**62)}, "returned": ["nobody", ""]}),
        ("turn", {"polls": {"web": 2**62}}),
        ("changes", {"since": {"epoch": "", "position": -(2**63)}, "wait_s": -5}),
        ("changes", {"since": {"epoch": "x" * 10_000, "position": 2**63 - 1}, "wait_s": 10**9}),
        ("targets", {"vms": ["nobody"] * 100}),
        ("definition", {"vm": "\ud7ff"}),
        ("adopted", {"adoption_id": "nothing", "problem": "x" * 50_000}),
        ("sight", {"vms": []}),
        ("blind", {"why": ""}),
        ("blind", {"why": "x" * 50_000}),
        ("turn", {"holding": {"": 10**30}}),
    ],
)
def test_odd_but_whole_questions_are_answered(
    tmp_path: Path, name: str, question: dict[str, object]
) -> None:
    async def story() -> None:
        async with control_running(tmp_path, fleet=FLEET) as world:
            host = await world.joined("h1")
            answer = await host.say(name, json.dumps(question).encode())
            assert answer.status_code == 200, answer.text

    run(story)


def _many(number: int) -> dict[str, int]:
    return {f"scope-{n}": 1 for n in range(number)}


def test_too_much_at_once_is_refused_with_the_limit(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            host = await world.joined("h1")
            too_long = await host.say("turn", b" " * (wire.QUESTION_BYTES_MAX + 1))
            assert (too_long.status_code, too_long.json()["code"]) == (413, "body-too-large")
            reads = (wire.ReadBefore("web", "e", "v", 0),) * (wire.FIRST_READS_MAX + 1)
            ended = wire.Ended("a", 1, "done")
            for name, question, limit in (
                ("approve", wire.Approve("v", ("e",) * (EVENT_IDS_MAX + 1)), EVENT_IDS_MAX),
                ("turn", wire.Turn(first_reads=reads), wire.FIRST_READS_MAX),
                ("turn", wire.Turn(confirms=_many(wire.CONFIRMS_MAX + 1)), wire.CONFIRMS_MAX),
                ("turn", wire.Turn(ended=(ended,) * (wire.ENDED_MAX + 1)), wire.ENDED_MAX),
                ("claim", wire.Claim("b" * 1_000), 256),
            ):
                answer = await host.say(name, question)
                assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
                assert f"At most {limit}" in answer.json()["remedy"]

    run(story)


def test_a_host_that_lost_its_place_is_told_so(tmp_path: Path) -> None:
    """A backup from before it joined: its place comes back with the next start of control."""

    async def story() -> None:
        async with control_running(tmp_path) as world:
            host = await world.joined("h1")
            removed = ordered.wanted(lambda tx: tx.remove_host("h1"))
            await world.service.parts.control.submit(removed)
            assert await host.refused("turn", wire.Turn()) == (404, "not-found")
        async with control_running(tmp_path) as world:
            host.url = world.where.hosts_url
            await host.ask("turn", wire.Turn(), wire.TurnTaken)

    run(story)


def test_whoever_waits_is_answered_when_control_stops(tmp_path: Path) -> None:
    """And not cut off, as is done after STOP_GRACE_S with requests that have no answer."""
    assert STOP_GRACE_S < wire.CHANGES_WAIT_S_MAX

    async def story() -> None:
        async with control_running(tmp_path) as world:
            host = await world.joined("h1")
            known = since(await host.changes())
            waits_s = wire.CHANGES_WAIT_S_MAX
            waiting = asyncio.ensure_future(host.changes(known, wait_s=waits_s))
            view = world.service.host_feed._reader("h1")
            await until(lambda: view.waiting, "the host waits")
        assert (await waiting).scopes == ()

    run(story)


def test_nothing_waits_in_the_name_of_a_host_that_has_hung_up(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            host = await world.joined("h1")
            known = since(await host.changes())
            for _ in range(3):
                waiting = asyncio.ensure_future(host.changes(known, wait_s=25))
                await until(world.service.host_feed.waiting, "the host waits")
                waiting.cancel()
                await until(lambda: not world.service.host_feed.waiting(), "nobody waits")
                assert waiting.cancelled()

    run(story)


def test_the_link_is_in_the_metrics(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            host = await world.joined("h1")
            await host.ask("turn", wire.Turn(), wire.TurnTaken)
            await host.say("turn", b"null")
            await host.say("../etc", {})
            text = (await world.operator("GET", "/metrics")).text
            for line in (
                "forewarn_link_members 1.0",
                "forewarn_link_waiting 0.0",
                "forewarn_link_handshakes 0.0",
                'forewarn_link_answers_total{question="turn",status="200"} 1.0',
                'forewarn_link_answers_total{question="turn",status="400"} 1.0',
                'forewarn_link_answers_total{question="other",status="404"} 1.0',
            ):
                assert line in text
            assert re.search(r'^forewarn_link_silent_seconds{host="h1"} \d', text, re.MULTILINE)

    run(story)


def test_a_step_of_controls_wall_clock_takes_no_host_for_silent(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        async with control_running(tmp_path, clock=clock) as world:
            host = await world.joined("h1")
            await host.ask("turn", wire.Turn(), wire.TurnTaken)
            clock.pass_ms(3_600_000)
            hosts = (await world.operator("GET", "/v1/members")).json()["items"]
            assert [one["alive"] for one in hosts] == [True]  # leases follow the machine's clock
            assert hosts[0]["heard_seconds"] < 60

    run(story)


def test_the_operators_routes_of_a_control_are_described(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            paths = (await world.operator("GET", "/v1/openapi.json")).json()["paths"]
            for path in ("/v1/members", "/v1/hosts/{name}/invite", "/v1/hosts/{name}/revoke"):
                assert path in paths
            page = (Path(__file__).parents[2] / "docs" / "operator-api.md").read_text("utf-8")
            assert [path for path in paths if f"`{path}`" not in page] == []
            for wrong in ({"valid_seconds": 1}, {"valid_seconds": 10**9}, {"forever": True}, [1]):
                answer = await world.operator("POST", "/v1/hosts/h1/invite", wrong)
                assert answer.status_code == 400

    run(story)


def test_the_clock_of_certificates_and_tokens_is_the_machines(tmp_path: Path) -> None:
    """A control whose rules live in another time still lets hosts in."""

    async def story() -> None:
        clock = ManualClock()
        clock.wall = SystemClock().now_ms() + 40 * 365 * 86_400_000
        async with control_running(tmp_path, clock=clock) as world:
            host = await world.joined("h1")
            answer = await host.say("turn", wire.Turn(), headers=VERSION)
            assert answer.headers[wire.NOW_HEADER] == str(clock.now_ms())
            assert msgspec.json.decode(answer.content) == {"work": False}

    run(story)
