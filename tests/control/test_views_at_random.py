"""Whatever happens in the fleet, and whichever answers are lost, hosts end up with what is true."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
import pytest

from core_fleet import Cloud, minutes, scope
from forewarn.control.own_vms import as_shown_to
from forewarn.control.views import Views
from forewarn.core.errors import Refusal
from forewarn.core.model import ActionPhase, EventType, Host, Outcome, Scope
from forewarn.core.whereabouts import hosts_mentioned
from forewarn.wire.host_json import Changes, Since

SEEDS = 40
STEPS = 120
HOSTS = ("h1", "h2", "h3", "h4")
LOST_ONE_IN = 4


@dataclass
class Follower:
    """A host that keeps what it is told, and now and then does not hear an answer."""

    host: str
    since: Since | None = None
    scopes: dict[str, Scope] = field(default_factory=dict)
    rung: bool = False

    def hear(self, answer: Changes) -> None:
        self.since = Since(answer.epoch, answer.revision)
        for one in answer.scopes:
            before = self.scopes.get(one.name)
            assert before is None or one.incarnation >= before.incarnation
            self.scopes[one.name] = one
        self.scopes = {name: one for name, one in self.scopes.items() if name in answer.names}
        assert set(answer.names) == self.scopes.keys()
        self.rung = self.rung or answer.work


class Story:
    """One random life of a fleet."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        vms = {f"web_{n}": (n % 3, HOSTS[n % 4]) for n in range(6)}
        self.cloud = Cloud(
            scope("web", vms),
            scope("db", {"db_0": (0, "h1"), "db_1": (1, "h2")}),
            scope("quiet", {"q_0": (0, "h3")}, enabled=False),
            hosts=[Host(name=name) for name in HOSTS],
        )
        self.followers = {name: Follower(name) for name in HOSTS}
        self.start_views()

    def start_views(self) -> None:
        """Control begins a new life with what is durable."""
        self.views = Views()
        memory = self.cloud.index
        self.views.load(memory.scopes.values(), memory.operations.values())
        self.published = len(self.cloud.commits)

    def publish(self) -> None:
        fresh, self.published = self.cloud.commits[self.published :], len(self.cloud.commits)
        self.views.published(fresh)

    def step(self) -> None:
        """One thing happens, if the rules allow it now."""
        choose = self.random.choice
        vms = [vm.name for one in self.cloud.index.scopes.values() for vm in one.vms]
        events = [e for one in self.cloud.index.scopes.values() for e in one.events]
        verbs = (EventType.REBOOT, EventType.REDEPLOY, EventType.REBOOT, EventType.TERMINATE)
        deeds: list[Callable[[], object]] = [
            lambda: self.cloud.order(choose(vms), choose(verbs)),
            lambda: self.cloud.maintain(
                choose(HOSTS), choose((EventType.FREEZE, EventType.REBOOT))
            ),
            lambda: self.cloud.approve(choose(events)),
            lambda: self.cloud.cancel(choose(events)),
            self.cloud.tick,
            self.cloud.tick,
            self.cloud.show,
            lambda: self.cloud.claim(choose(HOSTS)),
            lambda: self.cloud.work(choose((Outcome.DONE, Outcome.DONE, Outcome.FAILED))),
            lambda: self.cloud.polls("quiet", "q_0"),
            lambda: self.cloud.clock.pass_ms(minutes(self.random.randint(1, 20))),
        ]
        with suppress(Refusal, IndexError):  # not now, or nothing there to choose from
            choose(deeds)()
        self.publish()

    async def ask(self, host: str) -> None:
        follower = self.followers[host]
        answer = await self.views.changes(host, follower.since, 0)
        if self.random.randrange(LOST_ONE_IN):
            follower.hear(msgspec.json.decode(msgspec.json.encode(answer), type=Changes))

    async def live(self) -> None:
        for _ in range(STEPS):
            self.step()
            for host in HOSTS:
                if self.random.random() < 0.5:
                    await self.ask(host)
            if self.random.random() < 0.02:
                self.cloud.crash(down_ms=1_000)
                self.start_views()

    async def judge(self) -> None:
        for host, follower in self.followers.items():
            answer = await self.views.changes(host, follower.since, 0)
            follower.hear(msgspec.json.decode(msgspec.json.encode(answer), type=Changes))
            expected = {
                one.name: as_shown_to(one, host)
                for one in self.cloud.index.scopes.values()
                if host in hosts_mentioned(one)
            }
            assert follower.scopes == expected
            if self.unclaimed(host):
                assert follower.rung

    def unclaimed(self, host: str) -> bool:
        memory = self.cloud.index
        actions = [a for one in memory.scopes.values() for e in one.events for a in e.actions]
        actions += [o.action for o in memory.operations.values() if o.action is not None]
        return any(a.host == host and a.phase is ActionPhase.PENDING for a in actions)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_hosts_end_up_with_what_is_true(seed: int) -> None:
    async def main() -> None:
        story = Story(seed)
        await story.live()
        await story.judge()
        assert all(follower.since is not None for follower in story.followers.values())

    asyncio.run(main())
