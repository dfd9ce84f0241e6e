"""Whatever happens in the fleet, and whichever answers are lost, hosts end up with what is true."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
import pytest

from forewarn.control.hosts import feed_positions
from forewarn.control.hosts.host_feed import HostFeed
from forewarn.core import scope_edits
from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.model import ActionPhase, EventType, Host, Outcome
from forewarn.core.unfinished_moves import hosts_mentioned
from forewarn.host.feed_reader import FeedReader
from forewarn.host.identity import Identity
from forewarn.host.served_documents import Documents
from forewarn.ports import Change
from forewarn.wire.link import Changes, ShownScope, Since
from support.control import run_now
from support.core_fleet import Cloud, minutes, scope
from support.shown import as_shown_to
from support.unasked_link import UnaskedLink

SEEDS = 40
STEPS = 120
HOSTS = ("h1", "h2", "h3", "h4")
LOST_ONE_IN = 4


class Link(UnaskedLink):
    """What one host asks of the views of a story; now and then it does not hear the answer."""

    def __init__(self, story: Story, host: str) -> None:
        self._story = story
        self._host = host

    async def changes(self, since: Since | None, wait_s: int) -> Changes:
        assert wait_s >= 0
        answer = await self._story.host_feed.encoded(self._host, since, 0)
        if self._story.loses_answers and not self._story.random.randrange(LOST_ONE_IN):
            raise Unavailable("the answer was lost")
        return msgspec.json.decode(msgspec.json.encode(answer), type=Changes)


def confirmed(scope: ShownScope) -> ShownScope:
    return msgspec.structs.replace(scope, to_confirm=False)


def judge_shown(change: Change) -> None:
    """What a commit says that hosts are shown the same of is the same to each of them."""
    for before, after in change.scopes:
        if before is None or after.name in change.shown:
            continue
        now = scope_edits.open_only(after)
        assert hosts_mentioned(before) == hosts_mentioned(now)
        for host in hosts_mentioned(now):
            old, new = as_shown_to(before, host), as_shown_to(now, host)
            assert confirmed(old) == confirmed(new)
            assert old.to_confirm or not new.to_confirm


class FollowingHost:
    """A host with the follower and the documents that are deployed."""

    def __init__(self, story: Story, name: str) -> None:
        self.name = name
        self.documents = Documents(Identity())
        self.rung = False
        self.feed_reader = FeedReader(
            name,
            link=Link(story, name),
            documents=self.documents,
            hosts=self,
            monotonic_ms=story.cloud.clock.monotonic_ms,
        )

    def shown(self, host: str, scope: ShownScope) -> None:
        """Nobody confirms here."""

    def ring(self, hosts: Sequence[str]) -> None:
        self.rung = self.rung or self.name in hosts

    def ask(self) -> bool:
        before = {name: one.incarnation for name, one in self.scopes().items()}
        heard = run_now(self.feed_reader.once())
        after = self.scopes()
        assert all(after[name].incarnation >= before[name] for name in after.keys() & before.keys())
        return heard

    def scopes(self) -> dict[str, ShownScope]:
        """What it shows, by name."""
        pages = {name: self.documents.page(name) for name in self.feed_reader.names}
        return {name: page.scope for name, page in pages.items() if page is not None}


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
        self.loses_answers = True
        self.hosts = {name: FollowingHost(self, name) for name in HOSTS}
        self.start_views()

    def start_views(self) -> None:
        """Control begins a new life with what is durable."""
        snapshot = self.cloud.store.load()
        self.host_feed = HostFeed(feed_positions.begin(self.cloud.store, snapshot))
        self.host_feed.load(snapshot.scopes, snapshot.operations, snapshot.shown)
        self.published = len(self.cloud.commits)

    def publish(self) -> None:
        fresh, self.published = self.cloud.commits[self.published :], len(self.cloud.commits)
        for change in fresh:
            judge_shown(change)
        self.host_feed.published(fresh)

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

    def live(self) -> None:
        for _ in range(STEPS):
            self.step()
            for host in self.hosts.values():
                if self.random.random() < 0.5:
                    host.ask()
            if self.random.random() < 0.02:
                self.cloud.crash(down_ms=1_000)
                self.start_views()

    def judge(self) -> None:
        self.loses_answers = False
        for name, host in self.hosts.items():
            assert host.ask()
            expected = {
                one.name: as_shown_to(one, name)
                for one in self.cloud.index.scopes.values()
                if name in hosts_mentioned(one)
            }
            shown = host.scopes()
            assert {name: confirmed(one) for name, one in shown.items()} == {
                name: confirmed(one) for name, one in expected.items()
            }
            # Who confirmed is not told so.
            assert all(shown[n].to_confirm for n, one in expected.items() if one.to_confirm)
            own = {vm.name for one in expected.values() for vm in one.vms}
            assert set(host.documents.vms()) == own
            assert not host.feed_reader.refuses
            if self.unclaimed(name):
                assert host.rung

    def unclaimed(self, host: str) -> bool:
        memory = self.cloud.index
        actions = [a for one in memory.scopes.values() for e in one.events for a in e.actions]
        actions += [o.action for o in memory.operations.values() if o.action is not None]
        return any(a.host == host and a.phase is ActionPhase.PENDING for a in actions)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_hosts_end_up_with_what_is_true(seed: int) -> None:
    story = Story(seed)
    story.live()
    story.judge()
