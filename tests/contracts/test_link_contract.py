"""What both links promise of a host that repeats itself, is late, or says what cannot be.

Each turn is answered as if it had come once, or refused in words; nothing is lost or done twice.
One suite for the link over HTTPS and the link in process: the same control, the same stories.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from forewarn.adapters.control_link import ControlLink
from forewarn.api.link.in_process import InProcessLink
from forewarn.api.link.routes import LinkRoutes
from forewarn.control.hosts.leases import LEASE_MS
from forewarn.core.errors import Conflict, NotFound, NotYours, StaleReport, Unavailable
from forewarn.core.inventory.host_report import Power, SeenVm, Traits
from forewarn.core.model import Fact, FactKind, Outcome, Phase, ScheduledEvent
from forewarn.ports import EVERYTHING, HostLink
from forewarn.wire import link as wire
from forewarn.wire.link import ReadBefore, Since, Work
from support.clock import ManualClock
from support.journal import said
from support.link_world import ControlWorld, control_running, run
from support.said import Saying
from support.waiting import until

JOURNAL_LINES_MAX = 1_000
NEVER = 1_000_000


def seen(name: str, update_domain: int) -> SeenVm:
    return SeenVm(
        name=name,
        vm_id=f"00000000-0000-4000-8000-{update_domain:012x}",
        power=Power.RUNNING,
        traits=Traits(scope="web", update_domain=update_domain),
        definition=f"<domain><name>{name}</name></domain>",
    )


WEB_0, WEB_1 = seen("web-0", 0), seen("web-1", 1)


@dataclass
class Linked:
    """A control plane with two hosts, each with a link, and a VM of scope web on each."""

    world: ControlWorld
    clock: ManualClock
    h1: Saying
    h2: Saying
    event_id: str = ""
    actions: list[Work] = field(default_factory=list)

    @property
    def fleet(self) -> Any:
        return self.world.service.parts.fleet

    def facts(self) -> list[Fact]:
        store = self.world.service.parts.store
        lines = store.journal(EVERYTHING, after=0, limit=JOURNAL_LINES_MAX)
        return [line.fact for line in lines]

    def everything(self) -> tuple[object, ...]:
        """All that was committed and observed."""
        observed = self.world.service.parts.observed
        return (
            dict(self.fleet.scopes),
            dict(self.fleet.hosts_by_name),
            dict(self.fleet.operations),
            [(observed.hypervisor_unreachable(h), observed.reported(h)) for h in ("h1", "h2")],
            self.world.service.parts.store.first_reads(self.event_id),
            self.facts(),
        )

    def event(self) -> ScheduledEvent:
        found = self.world.service.parts.store.event(self.event_id)
        assert found is not None
        return found

    def started(self) -> bool:
        found = self.fleet.scope("web").event(self.event_id)
        return found is not None and found.phase is Phase.STARTED

    async def order(self) -> None:
        """A restart of web-0, not yet approved."""
        self.event_id = (await self.world.order("/v1/vms/web-0/restart"))["event_id"]

    async def start(self) -> None:
        """The restart is approved and may be claimed."""
        await self.order()
        await self.h1.confirm("web", self.fleet.scope("web").incarnation)
        await self.h1.approve("web-0", (self.event_id,))
        await until(self.started, "the event starts")

    async def claimed(self) -> Work:
        """The restart is claimed by h1."""
        await self.start()
        (action,) = await self.h1.claim("boot-1")
        self.actions = [action]
        return action

    async def lapses(self) -> None:
        """The lease of what was claimed lapses; both hosts are heard."""
        self.clock.pass_ms(LEASE_MS)
        for host in (self.h1, self.h2):
            await host.heartbeat({})


@pytest.fixture(params=["https", "in process"])
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@asynccontextmanager
async def linked(folder: Path, kind: str) -> AsyncIterator[Linked]:
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        running = control_running(folder, clock=clock, lease_clock=clock)
        world = await stack.enter_async_context(running)
        service = world.service
        routes = LinkRoutes(
            service.parts.control, host_feed=service.host_feed, report_intake=service.report_intake
        )
        links: list[Saying] = []
        for name in ("h1", "h2"):
            machine = await world.joined(name)
            if kind == "https":
                context = machine.trusting(shown=True)
                url = world.where.hosts_url
                link = ControlLink(url, context, monotonic_ms=clock.monotonic_ms)
                links.append(Saying(await stack.enter_async_context(link)))
            else:
                links.append(Saying(InProcessLink(routes, name)))
        there = Linked(world, clock, links[0], links[1])
        await there.h1.heartbeat({})
        await there.h2.heartbeat({})
        await there.h1.sight([WEB_0])
        await there.h2.sight([WEB_1])
        yield there


# A host that says one thing twice.


async def ordered(there: Linked) -> None:
    await there.order()


async def claimed(there: Linked) -> None:
    await there.claimed()


async def started(there: Linked) -> None:
    await there.start()


def _incarnation(there: Linked) -> int:
    number: int = there.fleet.scope("web").incarnation
    return number


def _traces(there: Linked) -> wire.Turn:
    read = ReadBefore("web", there.event_id, "web-0", 40)
    return wire.Turn(first_reads=(read,), polls={"web": 40}, returned=("web-0",))


async def report(there: Linked) -> None:
    (action,) = there.actions
    await there.h1.report(
        action.action_id, epoch=action.epoch, outcome=Outcome.DONE, detail="it is up"
    )


async def holds(there: Linked) -> bool:
    (action,) = there.actions
    return await there.h1.holds(action.action_id, action.epoch)


async def beats(there: Linked) -> None:
    (action,) = there.actions
    await there.h1.heartbeat({action.action_id: action.epoch})


Before = Callable[[Linked], Awaitable[None]]
Turn = Callable[[Linked], Awaitable[object]]
TURNS: dict[str, tuple[Before, Turn]] = {
    "turn that renews": (claimed, beats),
    "turn that confirms": (ordered, lambda there: there.h1.confirm("web", _incarnation(there))),
    "turn with traces": (ordered, lambda there: there.h1.turn(_traces(there))),
    "turn with an end": (claimed, report),
    "enable": (ordered, lambda there: there.h1.enable("web", "web-0")),
    "approve": (ordered, lambda there: there.h1.approve("web-0", (there.event_id,))),
    "claim": (started, lambda there: there.h1.claim("boot-1")),
    "holds": (claimed, holds),
    "sight": (ordered, lambda there: there.h1.sight([WEB_0, seen("new", 2)])),
    "blind": (ordered, lambda there: there.h1.blind("Libvirt cannot be reached.")),
    "adopted": (ordered, lambda there: there.h1.adopted("nothing", "")),
    "targets": (ordered, lambda there: there.h1.targets(["web-0", "nobody"])),
    "definition": (ordered, lambda there: there.h1.definition("web-0")),
    "changes": (ordered, lambda there: there.h1.changes(None, 0)),
}


async def rests(there: Linked, turn: str) -> None:
    """What the turn leads to has happened."""
    if turn == "approve":
        await until(there.started, "what is approved starts")


def test_every_turn_of_the_link_is_in_this_table() -> None:
    methods = {name for name in vars(HostLink) if not name.startswith("_")}
    assert {name.partition(" ")[0] for name in TURNS} == methods


@pytest.mark.parametrize("turn", TURNS)
def test_a_turn_that_is_repeated_changes_nothing_more(tmp_path: Path, kind: str, turn: str) -> None:
    async def story() -> None:
        async with linked(tmp_path, kind) as there:
            before, say = TURNS[turn]
            await before(there)
            first = await say(there)
            await rests(there, turn)
            known = there.everything()
            again = await say(there)
            assert there.everything() == known
            if turn == "claim":  # its answer was lost: what was taken comes back with its lease
                assert (len(_list(first)), _list(again)) == (1, [])
            else:
                assert again == first

    run(story)


def _list(found: object) -> list[Work]:
    assert isinstance(found, list | tuple)
    return list(found)


@pytest.mark.parametrize("turn", TURNS)
def test_a_turn_that_is_sent_twice_at_once_is_taken_once(
    tmp_path: Path, kind: str, turn: str
) -> None:
    async def story() -> None:
        async with linked(tmp_path, kind) as there:
            before, say = TURNS[turn]
            await before(there)
            number = len(there.facts())
            answers = await asyncio.gather(say(there), say(there), return_exceptions=True)
            refused = [one for one in answers if isinstance(one, BaseException)]
            assert len(refused) < 2
            for one in refused:  # the last report of a host counts, or waits for the one before
                assert turn == "sight", one
                assert isinstance(one, Unavailable | Conflict), one
            await rests(there, turn)
            new = there.facts()[number:]
            told = Counter((f.kind, f.event_id, f.vm, f.host, str(said(f))) for f in new)
            assert set(told.values()) <= {1}, told
            known = there.everything()
            await say(there)
            assert there.everything() == known
            if turn == "claim":
                taken = [action for one in answers for action in _list(one)]
                assert [action.epoch for action in taken] == [1]

    run(story)


# A host that says what cannot be.


def test_an_incarnation_that_never_was_is_refused_and_no_notice_runs(
    tmp_path: Path, kind: str
) -> None:
    async def story() -> None:
        async with linked(tmp_path, kind) as there:
            await there.order()
            known = there.everything()
            with pytest.raises(Conflict, match=f"incarnation {NEVER} of scope web.*/link/changes"):
                await there.h1.confirm("web", NEVER)
            assert there.everything() == known
            assert there.event().shown_ms is None
            await there.h1.confirm("web", _incarnation(there))
            assert there.event().shown_ms is not None

    run(story)


def test_another_host_gets_nothing_of_an_action_that_is_not_its_own(
    tmp_path: Path, kind: str
) -> None:
    async def story() -> None:
        async with linked(tmp_path, kind) as there:
            action = await there.claimed()
            await there.h2.claim("boot-1")  # control knows its boot from now on
            known = there.everything()
            assert _list(await there.h2.claim("boot-1")) == []
            assert not await there.h2.holds(action.action_id, action.epoch)
            for outcome in (Outcome.DONE, Outcome.FAILED):
                with pytest.raises(NotFound, match="Host h2 has no open action"):
                    await there.h2.report(
                        action.action_id, epoch=action.epoch, outcome=outcome, detail=""
                    )
            assert there.everything() == known

    run(story)


def test_a_lease_is_not_renewed_by_another_host(tmp_path: Path, kind: str) -> None:
    async def story() -> None:
        async with linked(tmp_path, kind) as there:
            action = await there.claimed()
            there.clock.pass_ms(LEASE_MS - 1)
            await there.h2.heartbeat({action.action_id: action.epoch})
            there.clock.pass_ms(1)
            (again,) = await there.h1.claim("boot-1")
            assert (again.action_id, again.epoch) == (action.action_id, action.epoch + 1)

    run(story)


def test_what_was_claimed_and_never_heard_of_comes_back_once_its_lease_has_lapsed(
    tmp_path: Path, kind: str
) -> None:
    async def story() -> None:
        async with linked(tmp_path, kind) as there:
            action = await there.claimed()  # and the answer is lost
            await there.lapses()
            (again,) = await there.h1.claim("boot-1")
            assert (again.action_id, again.epoch) == (action.action_id, 2)
            await there.h1.report(again.action_id, epoch=2, outcome=Outcome.DONE, detail="")
            assert there.event().phase is Phase.COMPLETED

    run(story)


def test_a_report_after_the_lease_has_lapsed_counts_while_no_other_claim_was_made(
    tmp_path: Path, kind: str
) -> None:
    async def story() -> None:
        async with linked(tmp_path, kind) as there:
            await there.claimed()
            await there.lapses()
            await report(there)
            assert there.event().phase is Phase.COMPLETED
            assert _list(await there.h1.claim("boot-1")) == []

    run(story)


def test_a_report_of_a_claim_that_was_given_anew_is_refused(tmp_path: Path, kind: str) -> None:
    async def story() -> None:
        async with linked(tmp_path, kind) as there:
            action = await there.claimed()
            await there.lapses()
            (again,) = await there.h1.claim("boot-1")
            known = there.everything()
            assert not await there.h1.holds(action.action_id, action.epoch)
            await there.h1.heartbeat({action.action_id: action.epoch})
            for outcome in Outcome:
                with pytest.raises(StaleReport, match="for epoch 1; it is claimed at epoch 2"):
                    await there.h1.report(
                        action.action_id, epoch=action.epoch, outcome=outcome, detail=""
                    )
            assert there.everything() == known
            assert await there.h1.holds(again.action_id, again.epoch)
            there.actions = [again]
            await report(there)
            assert there.event().phase is Phase.COMPLETED

    run(story)


def test_another_outcome_after_the_end_is_refused(tmp_path: Path, kind: str) -> None:
    async def story() -> None:
        async with linked(tmp_path, kind) as there:
            action = await there.claimed()
            await report(there)
            known = there.everything()
            with pytest.raises((StaleReport, NotFound)):
                await there.h1.report(
                    action.action_id, epoch=action.epoch, outcome=Outcome.FAILED, detail="no"
                )
            assert there.everything() == known

    run(story)


def test_what_is_not_there_is_named_in_the_refusal(tmp_path: Path, kind: str) -> None:
    async def story() -> None:
        async with linked(tmp_path, kind) as there:
            await there.order()
            h1, known = there.h1, there.everything()
            with pytest.raises(NotFound, match="no VM nobody"):
                await h1.approve("nobody", (there.event_id,))
            with pytest.raises(NotFound, match="no VM nobody"):
                await h1.enable("web", "nobody")
            with pytest.raises(NotYours, match="in scope web, not in elsewhere"):
                await h1.enable("elsewhere", "web-0")
            with pytest.raises(NotYours, match="web-1, which is on h2"):
                await h1.approve("web-1", (there.event_id,))
            with pytest.raises(NotFound, match="no open action nothing"):
                await h1.report("nothing", epoch=1, outcome=Outcome.DONE, detail="")
            assert not await h1.holds("nothing", 1)
            await h1.confirm("elsewhere", NEVER)  # the scope may have left just now
            assert await h1.targets(["nobody", "web-1"]) == {"nobody": None, "web-1": None}
            assert await h1.definition("nobody") is None
            await h1.heartbeat({"nothing": 7})
            told = await h1.changes(Since("the epoch of another control", NEVER), 0)
            assert told.names == ("web",)
            assert there.everything() == known

    run(story)


def test_one_trace_of_a_vm_that_is_gone_costs_the_others_nothing(tmp_path: Path, kind: str) -> None:
    async def story() -> None:
        async with linked(tmp_path, kind) as there:
            await there.order()
            await there.h1.enable("web", "web-0")
            good = ReadBefore("web", there.event_id, "web-0", 40)
            bad = (
                ReadBefore("elsewhere", there.event_id, "web-0", 40),
                ReadBefore("web", "never-was", "web-0", 40),
                ReadBefore("web", there.event_id, "web-1", 40),
                ReadBefore("web", there.event_id, "nobody", 40),
            )
            polls = {"elsewhere": 1, "web": -NEVER}
            returned = ("nobody", "web-1")
            for _ in range(2):
                await there.h1.turn(
                    wire.Turn(first_reads=(*bad, good), polls=polls, returned=returned)
                )
            reads = there.world.service.parts.store.first_reads(there.event_id)
            assert [read.vm for read in reads] == ["web-0"]
            assert there.fleet.scope("web").polled_ms == there.clock.now_ms()

    run(story)


def test_a_second_first_read_does_not_move_the_first(tmp_path: Path, kind: str) -> None:
    async def story() -> None:
        async with linked(tmp_path, kind) as there:
            await there.order()
            await there.h1.turn(_traces(there))
            (first,) = there.world.service.parts.store.first_reads(there.event_id)
            there.clock.pass_ms(5_000)
            await there.h1.turn(_traces(there))
            assert there.world.service.parts.store.first_reads(there.event_id) == (first,)

    run(story)


def test_an_approval_is_in_the_journal_once_however_often_it_is_said(
    tmp_path: Path, kind: str
) -> None:
    async def story() -> None:
        async with linked(tmp_path, kind) as there:
            await there.order()
            ids = (there.event_id, there.event_id.lower())
            await asyncio.gather(*(there.h1.approve("web-0", ids) for _ in range(5)))
            approved = [fact for fact in there.facts() if fact.kind is FactKind.APPROVED]
            assert [fact.by for fact in approved] == ["web-0"]

    run(story)
