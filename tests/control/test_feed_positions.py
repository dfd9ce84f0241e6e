"""A host's position means the same to every control on the store, and nothing to any other."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from forewarn.adapters.sqlite.backup import restore
from forewarn.adapters.sqlite.data_folder import DATABASE_NAME
from forewarn.adapters.sqlite.database import EPOCHS_MAX
from forewarn.adapters.sqlite.database_mark import MARK_NAME
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.control.hosts import feed_positions
from forewarn.control.hosts.feed_positions import NOTHING, History, shown_alike
from forewarn.control.hosts.host_feed import HostFeed
from forewarn.core.model import Decision, EventType, Scope
from forewarn.core.unfinished_moves import hosts_mentioned
from forewarn.ports import Epoch, Snapshot, Store
from forewarn.wire.link import CHANGES_WAIT_S_MAX, Changes, ShownScope, Since
from support import ordered
from support.core_fleet import WEB, Cloud, scope
from support.profiles import described
from support.shown import as_shown_to

LIMIT_S = 60


def loaded(history: History, snapshot: Snapshot) -> HostFeed:
    host_feed = HostFeed(history)
    host_feed.load(snapshot.scopes, snapshot.operations, snapshot.shown)
    return host_feed


class Life:
    """One life of a control on a store: its views, and the cloud that they are told of.

    It begins with a commit, as every control does, unless it dies before.
    """

    def __init__(self, cloud: Cloud, *, dies_early: bool = False) -> None:
        self.cloud = cloud
        snapshot = cloud.store.load()
        self.host_feed = loaded(feed_positions.begin(cloud.store, snapshot), snapshot)
        self._published = len(cloud.commits)
        if not dies_early:
            cloud.run(ordered.heartbeat())
            self.publish()

    def publish(self) -> None:
        fresh = self.cloud.commits[self._published :]
        self._published = len(self.cloud.commits)
        self.host_feed.published(fresh)

    async def ask(self, host: str, since: Since | None = None, wait_s: int = 0) -> Changes:
        async with asyncio.timeout(LIMIT_S):
            return await self.host_feed.changes(host, since, wait_s)


def a_cloud(store: Store | None = None) -> Cloud:
    return Cloud(scope("web", WEB), scope("db", {"db_0": (0, "h2")}), store=store)


def told(answer: Changes) -> Since:
    return Since(answer.epoch, answer.position)


def names(answer: Changes) -> list[str]:
    return [one.name for one in answer.scopes]


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


def test_after_a_restart_a_host_is_told_only_what_has_changed_since() -> None:
    async def story() -> None:
        first = Life(a_cloud())
        known = await first.ask("h2")
        assert names(known) == ["db", "web"]
        first.cloud.order("db_0", EventType.REBOOT)
        second = Life(first.cloud)

        answer = await second.ask("h2", told(known))

        assert names(answer) == ["db"]
        assert answer.names == ("db", "web")
        assert answer.epoch != known.epoch
        assert answer.position > known.position

    run(story)


def test_a_host_that_knows_all_is_told_at_once_that_there_is_another_control() -> None:
    """It obeys none that it has not heard: waiting for a change would hold its work up."""

    async def story() -> None:
        first = Life(a_cloud())
        known = await first.ask("h2")
        second = Life(first.cloud)
        async with asyncio.timeout(CHANGES_WAIT_S_MAX / 2):  # by itself it would wait for longer
            answer = await second.ask("h2", told(known), CHANGES_WAIT_S_MAX)
        assert (names(answer), answer.names) == ([], ("db", "web"))
        assert answer.epoch == second.host_feed.epoch

    run(story)


def test_work_that_was_rung_for_in_another_life_is_rung_for_again() -> None:
    async def story() -> None:
        first = Life(a_cloud())
        event = first.cloud.order("web_0", EventType.REBOOT)
        first.cloud.start(event)
        first.publish()
        known = await first.ask("h1")
        assert known.work
        assert not (await first.ask("h1", told(known))).work
        answer = await Life(first.cloud).ask("h1", told(known))
        assert answer.work
        assert names(answer) == []

    run(story)


def test_what_was_committed_and_not_published_is_told_after_kill_9() -> None:
    async def story() -> None:
        first = Life(a_cloud())
        known = await first.ask("h1")
        first.cloud.order("web_0", EventType.REBOOT)  # and nobody publishes it
        assert (await first.ask("h1", told(known))).position == known.position
        answer = await Life(first.cloud).ask("h1", told(known))
        assert [len(one.events) for one in answer.scopes] == [1]

    run(story)


def test_a_second_control_answers_every_position_as_the_first_does() -> None:
    """After each thing that happens, for each host and each position that it ever had."""

    async def story() -> None:
        first = Life(a_cloud())
        cloud = first.cloud
        had: dict[str, list[Since]] = {host: [] for host in ("h1", "h2", "h3")}

        async def compare() -> None:
            first.publish()
            snapshot = cloud.store.load()
            second = loaded(History.after(snapshot), snapshot)
            for host, known in had.items():
                for since in known:
                    here = await first.ask(host, since)
                    there = await second.changes(host, since, 0)
                    assert there.names == here.names
                    assert there.position == here.position
                    assert {one.name: one for one in here.scopes}.items() <= {
                        one.name: one for one in there.scopes
                    }.items()
                    again = {one.name for one in there.scopes} - {one.name for one in here.scopes}
                    assert again <= of_some, "what concerned only some hosts may be said to all"
                known.append(told(await first.ask(host)))

        of_some: set[str] = set()
        await compare()
        event = cloud.order("web_0", EventType.REBOOT)
        await compare()
        cloud.show()
        await compare()
        cloud.approve(event)
        await compare()
        of_some = {"web"}
        cloud.run(ordered.host_silent("h1"))
        await compare()
        cloud.show()
        cloud.tick()
        await compare()
        cloud.work()
        await compare()
        of_some = {"web", "db"}
        cloud.carry_out(cloud.order("db_0", EventType.REDEPLOY))
        await compare()

    run(story)


@pytest.mark.parametrize(
    "position", [-1, -(2**63), 10**15], ids=["nothing", "negative", "far future"]
)
def test_a_position_that_never_was_is_told_everything(position: int) -> None:
    async def story() -> None:
        first = Life(a_cloud())
        first.cloud.order("web_0", EventType.REBOOT)
        known = await first.ask("h2")
        second = Life(first.cloud)
        for life in (first, second):
            assert names(await life.ask("h2", Since(known.epoch, position))) == ["db", "web"]

    run(story)


def test_position_0_of_a_store_that_has_it_is_told_all_that_came_since() -> None:
    async def story() -> None:
        store = SqliteStore.in_memory()
        snapshot = store.load()
        empty = HostFeed(feed_positions.begin(store, snapshot))
        known = await empty.changes("h2", None, 0)
        assert (known.position, known.names) == (0, ())
        cloud = a_cloud(store)  # commits in that life
        assert names(await Life(cloud).ask("h2", told(known))) == ["db", "web"]

    run(story)


def test_a_life_that_ends_before_its_first_commit_is_not_known_to_the_next() -> None:
    async def story() -> None:
        cloud = a_cloud()
        known = await Life(cloud, dies_early=True).ask("h2")
        assert names(await Life(cloud).ask("h2", told(known))) == ["db", "web"]

    run(story)


# Other stores and other histories.


@contextmanager
def in_folder(folder: Path) -> Iterator[Cloud]:
    """A cloud on the store of a data folder that has one, or on a new one."""
    with closing(SqliteStore.in_folder(folder)) as store:
        yield Cloud(store=store, hosts=()) if store.load().scopes else a_cloud(store)


def order_many(life: Life, up_to: int) -> None:
    """Let the store come to this position, without anything that hosts are shown."""
    while life.cloud.store.position() < up_to:
        life.cloud.run(ordered.heartbeat())
    life.publish()


def copied(folder: Path, target: Path) -> Path:
    """A copy of the database by hand, without the mark that would tell.

    Nor with a mark that is being written meanwhile, under a name of its own until it is whole.
    """
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns(f"*{MARK_NAME}*"))
    return target


def test_a_host_is_told_only_what_has_changed_by_a_control_that_opens_the_folder_anew(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        with in_folder(tmp_path / "a") as cloud:
            first = Life(cloud)
            cloud.order("web_0", EventType.REBOOT)
            first.publish()
            known = await first.ask("h2")
        with in_folder(tmp_path / "a") as cloud:
            other = replace(cloud.scope("db"), enabled=False)
            cloud.run(lambda tx: tx.apply(Decision(scopes=(other,))))
            assert names(await Life(cloud).ask("h2", told(known))) == ["db"]

    run(story)


def test_another_store_tells_everything_however_many_commits_it_has(tmp_path: Path) -> None:
    async def story() -> None:
        with in_folder(tmp_path / "a") as cloud:
            first = Life(cloud)
            order_many(first, 10)
            known = await first.ask("h2")
        with in_folder(tmp_path / "b") as cloud:
            other = Life(cloud)
            order_many(other, 100)
            assert names(await other.ask("h2", told(known))) == ["db", "web"]

    run(story)


def test_a_restored_store_tells_everything_also_when_it_has_come_past_the_position(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        with in_folder(tmp_path / "a") as cloud:
            first = Life(cloud)
            order_many(first, 10)
            cloud.store.backup(tmp_path / "backup.db")
            known = [await first.ask("h2")]
            cloud.order("db_0", EventType.REBOOT)
            first.publish()
            known.append(await first.ask("h2"))
        restore(tmp_path / "backup.db", tmp_path / "a", force=True)
        with in_folder(tmp_path / "a") as cloud:
            again = Life(cloud)
            assert cloud.store.position() < known[0].position
            for up_to in (0, 11, 12, 200):
                order_many(again, up_to)
                for answer in known:
                    assert names(await again.ask("h2", told(answer))) == ["db", "web"]

    run(story)


def test_an_older_copy_tells_everything_to_a_host_that_knows_what_it_lost(tmp_path: Path) -> None:
    """Also once the copy has come past that position, with another history and the same id."""

    async def story() -> None:
        with in_folder(tmp_path / "a") as cloud:
            first = Life(cloud)
            order_many(first, 10)
            before = await first.ask("h2")
            older = copied(tmp_path / "a", tmp_path / "older")
            order_many(first, 11)
            cloud.order("db_0", EventType.REBOOT)
            first.publish()
            after = await first.ask("h2")
        with in_folder(tmp_path / "a") as cloud:
            next_life = Life(cloud)
            order_many(next_life, 20)
            later = await next_life.ask("h2")
        with in_folder(older) as cloud:
            again = Life(cloud)
            for up_to in (0, 15, 100):
                order_many(again, up_to)
                assert names(await again.ask("h2", told(before))) == [], "both have that"
                assert names(await again.ask("h2", told(after))) == ["db", "web"]
                assert names(await again.ask("h2", told(later))) == ["db", "web"]

    run(story)


def test_an_older_copy_is_another_history_for_the_store_that_it_was_made_of(tmp_path: Path) -> None:
    async def story() -> None:
        with in_folder(tmp_path / "a") as cloud:
            order_many(Life(cloud), 10)
            older = copied(tmp_path / "a", tmp_path / "older")
            order_many(Life(cloud), 50)
        with in_folder(older) as cloud:
            again = Life(cloud)
            order_many(again, 20)
            known = await again.ask("h2")
        with in_folder(tmp_path / "a") as cloud:
            assert names(await Life(cloud).ask("h2", told(known))) == ["db", "web"]

    run(story)


def test_a_store_knows_so_many_lives_and_no_more(tmp_path: Path) -> None:
    with in_folder(tmp_path) as cloud:
        for _ in range(EPOCHS_MAX + 3):
            feed_positions.begin(cloud.store, cloud.store.load())
            cloud.run(ordered.heartbeat())
        epochs = cloud.store.load().epochs
        assert len(epochs) == EPOCHS_MAX
        assert epochs[-1].first_commit == cloud.store.position()
        assert [one.first_commit for one in epochs] == sorted(one.first_commit for one in epochs)


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    snapshot = replace(_EMPTY, position=30, epochs=(Epoch("a", 1), Epoch("b", 11), Epoch("c", 21)))
    history = feed_positions.begin(SqliteStore.in_memory(), snapshot)
    cases = [("a", 10), ("b", 20), ("c", 30), (history.epoch, 45)]
    for epoch, last in cases:
        assert history.position_of(Since(epoch, last), 45) == last
        assert history.position_of(Since(epoch, 0), 45) == 0
        assert history.position_of(Since(epoch, last + 1), 45) == NOTHING
        assert history.position_of(Since(epoch, -1), 45) == NOTHING
    assert history.position_of(Since("d", 0), 45) == NOTHING
    assert history.position_of(None, 45) == NOTHING


_EMPTY = Snapshot(scopes=(), hosts=(), operations=(), heartbeat_ms=None, inventory=None)


def test_two_lives_have_different_epochs() -> None:
    assert len({History().epoch for _ in range(100)}) == 100


# What counts as a change for hosts.


def shown_at(cloud: Cloud) -> int:
    return cloud.store.load().shown["web"]


def test_what_no_host_is_shown_is_not_counted() -> None:
    cloud = a_cloud()
    event = cloud.order("web_0", EventType.REBOOT)
    ordered_at = shown_at(cloud)
    assert ordered_at == cloud.store.position()
    cloud.show()
    cloud.approve(event)
    cloud.polls("web", "web_1")
    cloud.run(ordered.heartbeat())
    assert cloud.store.position() > ordered_at
    assert shown_at(cloud) == ordered_at
    cloud.tick()  # it starts: EventStatus changes
    assert shown_at(cloud) > ordered_at


def test_that_a_host_has_to_confirm_again_is_counted() -> None:
    cloud = a_cloud()
    cloud.order("web_0", EventType.REBOOT)
    cloud.show()
    before = shown_at(cloud)
    cloud.run(ordered.host_silent("h1"))
    assert shown_at(cloud) == cloud.store.position() > before


def test_commits_of_one_batch_have_one_number() -> None:
    cloud = a_cloud()
    before = cloud.store.position()
    wanted = [ordered.order_vm(vm, EventType.REBOOT, by="x") for vm in ("web_0", "db_0")]
    cloud.writer.run([ordered.wanted(one) for one in wanted])
    assert {change.commit for change in cloud.commits[-2:]} == {before + 1}
    assert cloud.store.position() == before + 1
    assert set(cloud.store.load().shown.values()) == {before + 1}


def test_a_scope_that_comes_back_is_new_to_hosts() -> None:
    async def story() -> None:
        life = Life(a_cloud())
        before = life.cloud.scope("db")
        known = await life.ask("h2")
        life.cloud.run(lambda tx: tx.remove_scope("db"))
        life.cloud.run(lambda tx: tx.apply(Decision(scopes=(before,))))
        assert names(await Life(life.cloud).ask("h2", told(known))) == ["db"]

    run(story)


def alike_to_hosts(before: Scope, after: Scope) -> bool:
    """What `shown_alike` may take for the same, found out the long way."""
    for host in hosts_mentioned(before) | hosts_mentioned(after):
        old, new = as_shown_to(before, host), as_shown_to(after, host)
        if old != new and not (old.to_confirm and old == _asked(new)):
            return False
    return hosts_mentioned(before) == hosts_mentioned(after)


def _asked(scope: ShownScope) -> ShownScope:
    return msgspec.structs.replace(scope, to_confirm=True)


def test_nothing_that_a_host_is_shown_is_missed() -> None:
    """Each thing of a scope that can change, changed alone."""
    cloud = a_cloud()
    cloud.order("web_0", EventType.REBOOT)
    cloud.show()
    web = cloud.scope()
    (event,) = web.events
    vm = web.vms[0]
    changed = [
        replace(web, incarnation=web.incarnation + 1),
        replace(web, enabled=not web.enabled),
        replace(web, vms=(described(vm, zone="z"), *web.vms[1:])),
        replace(web, vms=(replace(vm, may_run_on="h3"), *web.vms[1:])),
        replace(web, vms=web.vms[1:]),
        replace(web, events=()),
        *(
            replace(web, events=(replace(event, **one),))
            for one in (
                {"shown_ms": None},
                {"silent": True},
                {"host": "h3"},
                {"not_before_ms": event.not_before_ms + 1},
                {"resources": ("web_1",)},
                {"description": "other words"},
                {"duration_s": 17},
                {"event_type": EventType.FREEZE},
            )
        ),
    ]
    for other in changed:
        assert not alike_to_hosts(web, other), "the test would show nothing"
        assert not shown_alike(web, other)
    assert shown_alike(web, replace(web, polled_ms=5, revision=9))
    assert shown_alike(replace(web, events=(replace(event, shown_ms=None),)), web)


def test_the_database_says_which_lives_it_had(tmp_path: Path) -> None:
    with in_folder(tmp_path) as cloud:
        life = Life(cloud, dies_early=True)
        assert cloud.store.load().epochs == ()
        order_many(life, 5)
        assert [one.epoch_id for one in cloud.store.load().epochs] == [life.host_feed.epoch]
        assert cloud.store.load().epochs[0].first_commit == 3
    assert (tmp_path / DATABASE_NAME).exists()
