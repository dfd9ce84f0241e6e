"""A conversation of hosts with control, recorded as it goes over the wire, for all later versions.

`python -m link_recording` in tests/ records what this version says into fixtures/link/VERSION. Who
speaks is the product on both sides, over HTTPS; time stands still. What differs from one run to
the next (certificates, tokens, ids, epochs, positions) is replaced, so that recording twice gives
the same files. No test lives here.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
from msgspec.structs import replace

from forewarn.adapters.control_link import Answer, ControlLink, Lane
from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.inventory.host_report import Nic, Power, SeenVm, WhenHostGoesDown
from forewarn.core.model import EventType, ScopeKind
from forewarn.core.vm_power import OFF_AFTER_MS
from forewarn.core.vm_profile import Priority
from forewarn.wire import link as wire
from support import profiles
from support.clock import ManualClock
from support.link_world import ControlWorld, Machine, control_running
from support.waiting import until

FOLDERS = Path(__file__).parent / "fixtures" / "link"
NEVER = 1_000_000
LATER_MAJOR = "2.0"
BEAT_MS = 12_000
NO_QUESTION = "forecast"
ADOPT = {"scope": "shop", "update_domain": 1}

FLEET = """
[[host]]
name = "h1"
[[host]]
name = "h2"

[[scope]]
name = "web"
kind = "availability-set"
[[vm]]
name = "web-0"
scope = "web"
update_domain = 0
fault_domain = 1
host = "h1"
address = "192.0.2.10"
zone = "2"
os_type = "Windows"
computer_name = "WEB0"
tags = { owner = "shop" }
[[vm]]
name = "web-1"
scope = "web"
update_domain = 1
host = "h2"
priority = "spot"
"""
DB = SeenVm(
    name="db-0",
    vm_id="00000000-0000-4000-8000-00000000000a",
    power=Power.PAUSED,
    traits=profiles.traits(
        scope="db",
        update_domain=3,
        scope_kind=ScopeKind.PLACEMENT_GROUP,
        terminate_notice_ms=600_000,
        auto_approve=frozenset({EventType.REBOOT}),
        priority=Priority.SPOT,
        address="192.0.2.20",
        tags=(("owner", "shop"),),
        fault_domain=1,
        zone="3",
        os_type="Windows",
        freeze_by_move=True,
        when_host_goes_down=WhenHostGoesDown.MOVE,
    ),
    nics=(Nic(mac="52:54:00:00:00:01", tap="vnet0", bridge="br0"),),
    definition="<domain><name>db-0</name></domain>",
)
BROKEN = SeenVm(
    name="old-0",
    vm_id="00000000-0000-4000-8000-00000000000b",
    power=Power.OFF,
    problem="Its metadata cannot be read.",
)


def seen(name: str, number: int) -> SeenVm:
    """A VM that the inventory file has."""
    return SeenVm(
        name=name,
        vm_id=f"00000000-0000-4000-8000-{number:012x}",
        power=Power.RUNNING,
        definition=f"<domain><name>{name}</name></domain>",
    )


WEB_0, WEB_1, LONE = seen("web-0", 1), seen("web-1", 2), seen("lone-0", 3)
OFF = replace(seen("off-0", 4), power=Power.OFF)


# The tape.


@dataclass
class Tape:
    """What was said so far, by chapter."""

    chapters: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def begin(self, chapter: str) -> None:
        self.chapters[f"{len(self.chapters) + 1}-{chapter}"] = []

    def add(
        self, host: str, question: str, content: bytes, answer: Answer, *, version: str
    ) -> None:
        """One question, said in this version of the link, and its answer."""
        (*_, exchanges) = self.chapters.values()
        exchanges.append(
            {
                "host": host,
                "question": question,
                wire.VERSION_HEADER: version,
                "request": json.loads(content),
                "status": answer.status,
                "answer": json.loads(answer.body),
            }
        )

    def add_machine(self, host: str, question: str, said: httpx.Response) -> None:
        """A question of a machine that is no host of ours, and its answer."""
        self.add(
            host,
            question,
            said.request.content,
            Answer(said.status_code, said.content),
            version=said.request.headers[wire.VERSION_HEADER],
        )

    def files(self) -> dict[str, str]:
        """The files of the recording, by name."""
        steady = Steady(self.chapters)
        return {
            f"{chapter}.json": json.dumps(steady.of(said), indent=1, ensure_ascii=False) + "\n"
            for chapter, said in self.chapters.items()
        }


_PEM = re.compile(r"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----\n?", re.DOTALL)
_TOKEN = re.compile(r"\bfw1\.[\w-]+\.[\w-]+")
_ID = re.compile(
    r"\b[0-9A-F]{8}-[0-9A-F]{4}-4[0-9A-F]{3}-[0-9A-F]{4}-[0-9A-F]{12}\b", re.IGNORECASE
)
_OURS = re.compile(r"00000000-0000-4000-8000-\w{12}")
# Names that each run makes anew, and numbers of which only the order counts, by the field.
_NAMED = ("epoch", "daemon", "adoption_id", "store")
_IN_ORDER = ("revision", "commit", "position")


class Steady:
    """What was said, with everything replaced that another run would say otherwise."""

    def __init__(self, all_of_it: object) -> None:
        self._names: dict[str, dict[str, str]] = {}
        numbers: dict[str, set[int]] = {}
        for key, value in _fields(all_of_it):
            if key in _IN_ORDER and isinstance(value, int):
                numbers.setdefault(key, set()).add(value)
        self._ranks = {
            (key, number): rank
            for key, found in numbers.items()
            for rank, number in enumerate(sorted(found), 1)
        }

    def of(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {self._text(name): self.of(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [self.of(one) for one in value]
        if isinstance(value, str):
            named = key in _NAMED and value not in ("", "nothing")
            return self._name(key, value) if named else self._text(value)
        return self._ranks.get((key, value), value) if isinstance(value, int) else value

    def _name(self, kind: str, value: str) -> str:
        known = self._names.setdefault(kind, {})
        return known.setdefault(value, f"{kind}-{len(known) + 1}")

    def _text(self, value: str) -> str:
        value = _PEM.sub(lambda found: f"<{found[1]}>", value)
        return _ID.sub(self._id, _TOKEN.sub("fw1.<SECRET>.<FINGERPRINT>", value))

    def _id(self, found: re.Match[str]) -> str:
        if _OURS.fullmatch(found[0]):
            return found[0]
        known = self._names.setdefault("id", {})
        number = f"{len(known) + 1:012X}"
        name = known.setdefault(found[0].upper(), f"AAAAAAAA-AAAA-4AAA-8AAA-{number}")
        return name if found[0].isupper() else name.lower()


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield key, one
            yield from _fields(one)
    elif isinstance(value, list):
        for one in value:
            yield from _fields(one)


# Who speaks.


class RecordingLane(Lane):
    """Connections to control; what goes over them is on the tape."""

    def __init__(self, tape: Tape, host: str, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._tape = tape
        self._host = host

    async def send(self, method: str, path: str, content: bytes = b"", *, limit_s: float) -> Answer:
        answer = await super().send(method, path, content, limit_s=limit_s)
        question = path.removeprefix("/link/")
        self._tape.add(self._host, question, content, answer, version=wire.LINK_VERSION)
        return answer


class RecordingLink(ControlLink):
    """The link of one host, on the tape."""

    def __init__(self, tape: Tape, machine: Machine, clock: ManualClock) -> None:
        def lane() -> Lane:
            clocked = {"monotonic_ms": clock.monotonic_ms, "heard": lambda *_: None}
            return RecordingLane(tape, machine.name, machine.url, context, **clocked)

        context = machine.trusting(shown=True)
        self._made = (lane(), lane(), lane())
        super().__init__(machine.url, context, monotonic_ms=clock.monotonic_ms)
        self.daemon = f"daemon of {machine.name}"
        self.machine = machine

    def _new_lanes(self, _: object) -> tuple[Lane, Lane, Lane]:
        return self._made

    async def ask(self, name: str, question: msgspec.Struct) -> None:
        """A question as it is, whatever the answer."""
        content = msgspec.json.encode(question)
        await self._made[0].send("POST", f"/link/{name}", content, limit_s=60.0)


async def refused(asking: Awaitable[object]) -> None:
    """A question that control refuses."""
    try:
        answer = await asking
    except (Refusal, Unavailable):
        return
    raise AssertionError(f"it was answered: {answer}")


@dataclass
class Stage:
    """Control, two hosts, and the tape."""

    world: ControlWorld
    clock: ManualClock
    tape: Tape
    h1: RecordingLink
    h2: RecordingLink

    async def order(self, path: str, **words: object) -> str:
        answer = await self.world.order(path, words or None)
        return str(answer.get("event_id") or answer["events"][0]["event_id"])

    async def shown(self, event_id: str, phase: str | None) -> None:
        """Wait until hosts are shown the event in that phase; None once it has ended."""

        async def look() -> bool:
            told = [
                await self.world.service.host_feed.changes(host, None, 0) for host in ("h1", "h2")
            ]
            events = [event for one in told for scope in one.scopes for event in scope.events]
            found = {event.phase for event in events if event.event_id == event_id}
            return found == (set() if phase is None else {phase})

        await until(look, f"event {event_id} is {phase}")

    async def has_work(self, host: str) -> None:
        """Wait until there is something for the host to claim."""

        async def look() -> bool:
            return (await self.world.service.host_feed.changes(host, None, 0)).work

        await until(look, f"{host} has work")


async def joins(tape: Tape, world: ControlWorld, name: str, token: str) -> Machine:
    """A machine that asks to join; what it says is on the tape."""
    machine = world.machine(name)
    response = await machine.ask_to_join(token)
    tape.add_machine(name, "join", response)
    if response.status_code == httpx.codes.OK:
        machine.keep(response.json()["certificate"])
    return machine


@asynccontextmanager
async def a_stage(folder: Path, tape: Tape) -> AsyncIterator[Stage]:
    """Control with two hosts that have joined."""
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        running = control_running(
            folder, fleet=FLEET, clock=clock, lease_clock=clock, domain_recovery_seconds="600"
        )
        world = await stack.enter_async_context(running)
        tape.begin("joining")
        links: list[RecordingLink] = []
        for name in ("h1", "h2"):
            token = await world.token(name)
            machine = await joins(tape, world, name, token)
            link = RecordingLink(tape, machine, clock)
            await stack.enter_async_context(link)
            links.append(link)
        await joins(tape, world, "h2", token)  # with a token that was used
        await links[0].renew(links[0].machine.request())
        yield Stage(world, clock, tape, links[0], links[1])


# The story.


def since(told: wire.Changes) -> wire.Since:
    """How far a host is that was told that."""
    return wire.Since(*(getattr(told, name) for name in wire.Since.__struct_fields__))


async def shows(stage: Stage) -> None:
    """Hosts say what they have, and ask what they show."""
    h1, h2 = stage.h1, stage.h2
    await h1.turn(wire.Turn())
    await h2.turn(wire.Turn())
    first = await h1.changes(None, 0)
    await h1.sight([WEB_0, LONE, OFF, DB, BROKEN], "boot-1")
    await h2.sight([WEB_1])
    told = await h1.changes(since(first), 0)
    h1.followed = lambda: told.epoch
    await h1.turn(wire.Turn())
    await h1.changes(since(told), 0)  # nothing new
    await h1.changes(msgspec.structs.replace(since(told), epoch="of another control"), 0)
    await h2.turn(wire.Turn(refuses="The scope web would go back."))
    await h2.turn(wire.Turn())


async def restarts(stage: Stage) -> None:
    """An event from its order to its end, and what is refused on the way."""
    h1, h2 = stage.h1, stage.h2
    await h1.enable("web", "web-0")
    event_id = await stage.order("/v1/vms/web-0/restart")
    scope = next(one for one in (await h1.changes(None, 0)).scopes if one.name == "web")
    await h1.turn(wire.Turn(confirms={"web": NEVER}))
    await h1.turn(
        wire.Turn(
            confirms={"web": scope.incarnation},
            first_reads=(wire.ReadBefore("web", event_id, "web-0", 40),),
            polls={"web": 40},
            vm_polls={"web-0": 40},
            rebooted=("web-0",),
        )
    )
    await refused(h2.approve("web-0", (event_id,)))
    await refused(h1.approve("web-0", ("never-was",)))
    await refused(h1.approve("nobody", (event_id,)))
    await refused(h2.enable("web", "web-0"))
    await h1.approve("web-0", (event_id,))
    await stage.shown(event_id, "started")
    await h1.changes(None, 0)
    (work,) = await h1.claim("boot-1")
    await h1.claim("boot-1")  # it has all there is
    await h1.holds(work.action_id, work.epoch)
    await h2.holds(work.action_id, work.epoch)
    await h1.turn(wire.Turn(holding={work.action_id: work.epoch, "nothing": 7}))
    await h1.turn(
        wire.Turn(
            ended=(
                wire.Ended("nothing", 1, "done"),
                wire.Ended(work.action_id, work.epoch + 1, "done"),
            )
        )
    )
    await h1.turn(wire.Turn(ended=(wire.Ended(work.action_id, work.epoch, "perhaps"),)))
    done = wire.Ended(work.action_id, work.epoch, "done", "it is up")
    await h1.turn(wire.Turn(holding={work.action_id: work.epoch}, ended=(done,)))
    await stage.shown(event_id, None)
    await h1.changes(None, 0)
    await h1.turn(wire.Turn(returned=("web-0",)))
    await h1.changes(None, 0)


async def moves(stage: Stage) -> None:
    """A VM goes to another host, a host is frozen; one that is off is restarted unasked."""
    h1, h2 = stage.h1, stage.h2
    await h1.targets(["web-0", "nobody"])
    await h1.targets(["db-0"])
    event_id = await stage.order("/v1/vms/db-0/redeploy")
    await h1.approve("db-0", (event_id,))
    await stage.shown(event_id, "started")
    (work,) = await h1.claim("boot-1")
    await h2.definition("db-0")
    await h2.definition("web-0")
    await h2.changes(None, 0)
    await h1.turn(wire.Turn(ended=(wire.Ended(work.action_id, work.epoch, "failed"),)))
    await stage.shown(event_id, None)
    words = {"event_type": "Freeze", "duration_seconds": 9, "description": "A new disk."}
    event_id = await stage.order("/v1/hosts/h2/maintain", **words)
    await h2.approve("web-1", (event_id,))
    await stage.shown(event_id, "started")
    await h2.changes(None, 0)
    (work,) = await h2.claim("boot-2")
    lost = wire.Ended(work.action_id, work.epoch, "lost", "nobody knows")
    await h2.turn(wire.Turn(ended=(lost,)))
    await stage.shown(event_id, None)
    for _ in range(0, OFF_AFTER_MS, BEAT_MS):
        stage.clock.pass_ms(BEAT_MS)
        for host in (h1, h2):
            await host.turn(wire.Turn())
    await h1.sight([WEB_0, LONE, OFF, DB, BROKEN], "boot-1")
    await stage.order("/v1/vms/off-0/restart")
    await stage.has_work("h1")
    (work,) = await h1.claim("boot-1")
    await h1.turn(wire.Turn(ended=(wire.Ended(work.action_id, work.epoch, "done"),)))


async def looks(stage: Stage) -> None:
    """What hosts say of their hypervisors and VMs."""
    h1, world, waiting = stage.h1, stage.world, stage.world.service.report_intake.adoptions_for
    await h1.blind("Libvirt cannot be reached.")
    await h1.sight([WEB_0, LONE, OFF, DB], "boot-1")
    for problem in ("There is no such domain.", ""):
        adopting = asyncio.ensure_future(world.operator("POST", "/v1/vms/lone-0/adopt", ADOPT))
        await until(lambda: waiting("h1"), "the host is to write it")
        (wanted,) = (await h1.changes(None, 0)).adoptions
        await h1.adopted(wanted.adoption_id, problem)
        if not problem:
            traits = replace(LONE.traits, scope="shop", update_domain=1)
            await h1.sight([WEB_0, replace(LONE, traits=traits), OFF, DB], "boot-1")
        await adopting
    await h1.adopted("nothing", "")


async def is_not_understood(stage: Stage) -> None:
    """What control does not know, or is not told as it has to be."""
    h1, tape = stage.h1, stage.tape
    await h1.ask(NO_QUESTION, wire.Turn())
    for name, body, version in (
        ("turn", {}, LATER_MAJOR),
        ("turn", {}, "0.9"),
        ("holds", {"action_id": "nothing"}, wire.LINK_VERSION),
        ("claim", {}, wire.LINK_VERSION),
        ("turn", {"ended": [{"action_id": "nothing"}]}, wire.LINK_VERSION),
        ("turn", {"holding": None}, wire.LINK_VERSION),
    ):
        headers = {wire.VERSION_HEADER: version}
        response = await h1.machine.say(name, body, headers=headers)
        tape.add_machine("h1", name, response)
    stranger = stage.world.machine("h3")
    await stranger.learn_authority()
    response = await stranger.say("turn", {})
    tape.add_machine("h3", "turn", response)


async def recorded(folder: Path) -> Mapping[str, str]:
    """Play the whole story in `folder`; the files of its recording."""
    tape = Tape()
    async with asyncio.timeout(180), a_stage(folder, tape) as stage:
        for chapter in (shows, restarts, moves, looks, is_not_understood):
            tape.begin(chapter.__name__.replace("_", "-"))
            await chapter(stage)
    return tape.files()


def main() -> None:
    """Record this version."""
    target = FOLDERS / wire.LINK_VERSION
    with tempfile.TemporaryDirectory() as folder:
        files = asyncio.run(recorded(Path(folder)))
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("*.json"):
        old.unlink()
    for name, text in files.items():
        (target / name).write_text(text, encoding="utf-8")
    sys.stdout.write(f"recorded {len(files)} files in {target}\n")


if __name__ == "__main__":
    main()
