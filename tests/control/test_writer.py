"""The one writer: batches share a commit, failures stay alone, nothing leaves before it is kept."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from forewarn.control.command_handlers import decide
from forewarn.control.commands import Command
from forewarn.control.transaction import Transaction
from forewarn.control.writer import BATCH_COMMANDS_MAX, Wanted, WriterThread
from forewarn.core.errors import NotFound, Unavailable
from forewarn.core.facts import ClockSteppedDetail
from forewarn.core.model import EventType, Fact, FactKind, Phase
from forewarn.ports import EVERYTHING, Change, StaleRevision, StoreFailed
from support import ordered
from support.core_fleet import WEB, Cloud, minutes, scope
from support.journal import said
from support.ordered import Given
from support.watched_store import WatchedStore, disk_broken, disk_full

WAIT_S = 60


class Watched(Cloud):
    """A cloud whose store tells what was asked of it."""

    def __init__(self) -> None:
        self.watched = WatchedStore()
        super().__init__(scope("web", WEB), store=self.watched)
        self.watched.calls.clear()
        self.commits.clear()


@pytest.fixture
def cloud() -> Watched:
    return Watched()


def reboot(vm: str) -> Command[Any]:
    return ordered.order_vm(vm, EventType.REBOOT, by="owner")


def refused(tx: Transaction) -> None:
    decide(tx, reboot("web_0"))
    raise NotFound("no")


def broken(tx: Transaction) -> None:
    decide(tx, reboot("web_0"))
    raise ZeroDivisionError


def look(tx: Transaction) -> int:
    return len(tx.scopes)


LOOK = ordered.wanted(look)


# Batches.


def test_a_batch_is_one_commit_and_every_command_gets_its_own_answer(cloud: Watched) -> None:
    first, second, third = cloud.writer.run([reboot("web_0"), LOOK, reboot("web_1")])
    assert cloud.watched.calls == ["commit"]
    assert (first.value.resources, second.value, third.value.resources) == (
        ("web_0",),
        1,
        ("web_1",),
    )


def test_a_batch_that_only_looks_touches_the_store_not_at_all(cloud: Watched) -> None:
    assert [done.value for done in cloud.writer.run([LOOK, LOOK])] == [1, 1]
    assert cloud.watched.calls == []
    assert cloud.commits == []


def test_a_command_sees_what_the_one_before_it_did(cloud: Watched) -> None:
    first, second = cloud.writer.run([reboot("web_0"), reboot("web_0")])
    assert first.value.event_id == second.value.event_id


@pytest.mark.parametrize("bad", [refused, broken])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_command_that_refuses_or_breaks_costs_the_others_nothing(
    cloud: Watched, bad: Given[None], place: int
) -> None:
    commands: list[Wanted[Any]] = [reboot("web_1"), LOOK]
    commands.insert(place, ordered.wanted(bad))
    results = cloud.writer.run(commands)
    assert isinstance(results[place].error, NotFound | ZeroDivisionError)
    assert [done.error for done in results if done is not results[place]] == [None, None]
    assert [event.resources for event in cloud.scope().events] == [("web_1",)]
    assert [event.resources for event in cloud.store.load().scopes[0].events] == [("web_1",)]


def test_nothing_of_a_batch_is_kept_once_another_program_wrote_to_the_database(
    cloud: Watched,
) -> None:
    before = cloud.everything()
    cloud.watched.fails["commit"] = StaleRevision("somebody else was here")
    with pytest.raises(StaleRevision):
        cloud.writer.run([reboot("web_0"), reboot("web_1")])
    assert cloud.everything() == before


def test_commits_are_told_after_they_are_durable_and_before_the_answers(cloud: Watched) -> None:
    told: list[tuple[list[str], int]] = []
    writer = cloud.parts.writer(
        lambda changes: told.append((list(cloud.watched.calls), len(changes)))
    )
    writer.run([reboot("web_0"), reboot("web_1")])
    assert told == [(["commit"], 2)]


# A store that fails.


def test_when_the_store_fails_everything_of_the_batch_is_taken_back(cloud: Watched) -> None:
    before = cloud.everything()
    index = dict(cloud.index.scope_of_vm), set(cloud.index.busy_scopes)
    cloud.watched.fails["commit"] = disk_full()
    with pytest.raises(StoreFailed):
        cloud.writer.run(
            [
                reboot("web_0"),
                ordered.maintain_host("h2", EventType.FREEZE, by="operator"),
                ordered.close_host("h3", by="operator"),
            ]
        )
    assert cloud.everything() == before
    assert (dict(cloud.index.scope_of_vm), set(cloud.index.busy_scopes)) == index
    assert cloud.commits == []
    assert cloud.store.load().scopes[0].events == ()
    [done] = cloud.writer.run([reboot("web_0")])  # and the next batch is served as if nothing was
    assert done.error is None


def test_a_failure_in_the_middle_of_a_batch_takes_back_what_came_before(cloud: Watched) -> None:
    before = cloud.everything()

    def fill_the_disk(tx: Transaction) -> None:
        cloud.watched.fails["commit"] = disk_full()
        decide(tx, reboot("web_1"))

    with pytest.raises(StoreFailed):
        cloud.writer.run([reboot("web_0"), ordered.wanted(fill_the_disk)])
    assert cloud.everything() == before


# Numbers of lines.


def test_published_lines_have_the_numbers_of_the_store_without_gaps(cloud: Watched) -> None:
    end = cloud.store.journal_end()
    cloud.writer.run(
        [reboot("web_0"), ordered.wanted(refused), LOOK, ordered.wanted(broken), reboot("web_1")]
    )
    cloud.writer.run([ordered.close_host("h3", by="operator")])
    published = [line for change in cloud.commits for line in change.lines]
    assert published == list(cloud.store.journal(EVERYTHING, after=end, limit=100))
    assert [line.number for line in published] == list(range(end + 1, end + 1 + len(published)))
    assert len(published) >= 3
    assert cloud.index.journal.end == cloud.store.journal_end()


def test_numbers_of_lines_that_are_not_kept_are_given_again(cloud: Watched) -> None:
    end = cloud.index.journal.end
    cloud.watched.fails["commit"] = disk_full()
    with pytest.raises(StoreFailed):
        cloud.writer.run([reboot("web_0"), reboot("web_1")])
    assert cloud.index.journal.end == end == cloud.store.journal_end()
    cloud.writer.run([ordered.close_host("h3", by="operator")])
    (line,) = cloud.commits[-1].lines
    assert (line.number, line.fact.kind) == (end + 1, FactKind.HOST_CLOSED)


def test_a_fact_that_does_not_say_what_its_kind_says_is_a_bug_and_is_not_kept(
    cloud: Watched,
) -> None:
    def wrong(tx: Transaction) -> None:
        tx.note(Fact(kind=FactKind.STARTED, at_ms=1, detail=ClockSteppedDetail(stepped_ms=1)))

    end = cloud.store.journal_end()
    (done,) = cloud.writer.run([ordered.wanted(wrong)])
    assert isinstance(done.error, TypeError)
    assert cloud.store.journal_end() == end == cloud.index.journal.end


# Steps of the clock.


def test_a_step_is_accounted_for_before_the_commands_of_its_batch(cloud: Watched) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.show()
    cloud.clock.wall += minutes(60)
    [done] = cloud.writer.run([ordered.start_event("web", event.event_id)])
    assert done.value is False
    assert said(cloud.facts(FactKind.CLOCK_STEPPED)[-1]) == {"stepped_ms": minutes(60)}


def test_a_step_is_told_again_until_it_was_kept(cloud: Watched) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.show()
    cloud.clock.wall += minutes(60)
    cloud.watched.fails["commit"] = disk_full()
    with pytest.raises(StoreFailed):
        cloud.writer.run([LOOK])
    assert cloud.facts(FactKind.CLOCK_STEPPED) == []
    cloud.tick()
    assert len(cloud.facts(FactKind.CLOCK_STEPPED)) == 1
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.tick()
    assert len(cloud.facts(FactKind.CLOCK_STEPPED)) == 1


def test_nothing_is_decided_on_a_clock_whose_step_could_not_be_accounted_for(
    cloud: Watched,
) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.show()
    before = cloud.everything()
    cloud.clock.wall += minutes(60)
    cloud.watched.fails["commit"] = StaleRevision("somebody else was here")
    with pytest.raises(StaleRevision):
        cloud.writer.run([ordered.start_event("web", event.event_id)])
    assert cloud.everything() == before
    cloud.tick()
    assert cloud.event(event).phase is Phase.SCHEDULED


# The thread.


class OnThread:
    """A writer on its thread, with what it published and what it died of."""

    def __init__(self, cloud: Watched) -> None:
        self.published: list[Sequence[Change]] = []
        self.fatal: list[str] = []
        self.order: list[str] = []
        self.publish_fails = False
        writer = cloud.parts.writer(self._committed)
        self.thread = WriterThread(writer, publish=self._publish, on_fatal=self.fatal.append)
        self.thread.start()

    def _committed(self, changes: Sequence[Change]) -> None:
        self.thread.committed(changes)

    def _publish(self, changes: Sequence[Change]) -> None:
        self.published.append(changes)
        self.order.append("published")
        if self.publish_fails:
            raise ZeroDivisionError

    async def submit(self, command: Given[Any]) -> Any:
        async with asyncio.timeout(WAIT_S):
            value = await self.thread.submit(ordered.wanted(command))
        self.order.append("answered")
        return value


def on_thread(cloud: Watched, act: Callable[[OnThread], Any]) -> Any:
    async def main() -> Any:
        writer = OnThread(cloud)
        try:
            return await act(writer)
        finally:
            await writer.thread.stop()

    return asyncio.run(main())


def test_a_commit_is_published_before_its_commands_are_answered(cloud: Watched) -> None:
    async def act(writer: OnThread) -> list[str]:
        event = await writer.submit(reboot("web_0"))
        assert writer.published[0][0].scopes[0][1].event(event.event_id) is not None
        return writer.order

    assert on_thread(cloud, act) == ["published", "answered"]


def test_a_refusal_comes_back_to_its_caller_alone(cloud: Watched) -> None:
    async def act(writer: OnThread) -> Any:
        both = (writer.submit(refused), writer.submit(reboot("web_1")))
        return await asyncio.gather(*both, return_exceptions=True)

    first, second = on_thread(cloud, act)
    assert isinstance(first, NotFound)
    assert second.resources == ("web_1",)


def test_commands_that_wait_for_a_commit_share_the_next_one(cloud: Watched) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        entered.set()
        assert go_on.wait(WAIT_S)

    async def act(writer: OnThread) -> None:
        first = asyncio.ensure_future(writer.submit(slow))
        await asyncio.to_thread(entered.wait, WAIT_S)
        rest = [asyncio.ensure_future(writer.submit(reboot(vm))) for vm in WEB]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, *rest)

    on_thread(cloud, act)
    assert cloud.watched.calls.count("commit") == 1


def test_a_batch_has_a_limit(cloud: Watched) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        entered.set()
        assert go_on.wait(WAIT_S)

    async def act(writer: OnThread) -> None:
        first = asyncio.ensure_future(writer.submit(slow))
        await asyncio.to_thread(entered.wait, WAIT_S)
        many = [
            asyncio.ensure_future(writer.submit(lambda tx: tx.beat()))
            for _ in range(BATCH_COMMANDS_MAX + 1)
        ]
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.gather(first, *many)

    on_thread(cloud, act)
    assert cloud.watched.calls.count("commit") == 2


def test_when_nothing_can_be_kept_every_caller_is_told_and_the_writer_goes_on(
    cloud: Watched,
) -> None:
    async def act(writer: OnThread) -> Any:
        cloud.watched.fails["commit"] = disk_full()
        with pytest.raises(Unavailable, match="disk is full"):
            await writer.submit(reboot("web_0"))
        assert writer.published == []
        assert writer.fatal == []
        return await writer.submit(reboot("web_0"))

    assert on_thread(cloud, act).resources == ("web_0",)


def test_a_database_that_another_program_wrote_to_is_fatal(cloud: Watched) -> None:
    async def act(writer: OnThread) -> list[str]:
        cloud.watched.fails["commit"] = StaleRevision("host h1 is no longer at revision 3")
        with pytest.raises(Unavailable, match="another program"):
            await writer.submit(reboot("web_0"))
        return writer.fatal

    [why] = on_thread(cloud, act)
    assert "host h1 is no longer at revision 3" in why


def test_a_store_that_cannot_be_trusted_any_more_is_fatal(cloud: Watched) -> None:
    async def act(writer: OnThread) -> list[str]:
        cloud.watched.fails["commit"] = disk_broken()
        with pytest.raises(Unavailable):
            await writer.submit(reboot("web_0"))
        return writer.fatal

    assert on_thread(cloud, act) == ["fsync failed"]


def test_a_bug_below_the_commands_is_fatal_and_leaves_nobody_waiting(cloud: Watched) -> None:
    async def act(writer: OnThread) -> list[str]:
        cloud.watched.fails["commit"] = ZeroDivisionError()
        with pytest.raises(Unavailable):
            await writer.submit(reboot("web_0"))
        assert writer.published == []
        return writer.fatal

    before = cloud.everything()
    [reason] = on_thread(cloud, act)
    assert "must not happen" in reason
    assert cloud.everything() == before


def test_a_publisher_that_breaks_leaves_nobody_waiting(cloud: Watched) -> None:
    seen: list[dict[str, Any]] = []

    async def act(writer: OnThread) -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context))
        writer.publish_fails = True
        return await writer.submit(reboot("web_0"))

    assert on_thread(cloud, act).resources == ("web_0",)
    assert isinstance(seen[0]["exception"], ZeroDivisionError)


def test_a_caller_that_stops_waiting_does_not_stop_the_command(cloud: Watched) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        entered.set()
        assert go_on.wait(WAIT_S)
        decide(tx, reboot("web_0"))

    async def act(writer: OnThread) -> int:
        waiting = asyncio.ensure_future(writer.submit(slow))
        await asyncio.to_thread(entered.wait, WAIT_S)
        waiting.cancel()
        go_on.set()
        await writer.submit(look)
        return len(writer.published)

    assert on_thread(cloud, act) == 1
    assert [event.resources for event in cloud.scope().events] == [("web_0",)]


def test_stopping_finishes_what_was_submitted_and_refuses_what_comes_later(
    cloud: Watched,
) -> None:
    async def act(writer: OnThread) -> Any:
        submitted = asyncio.ensure_future(writer.submit(reboot("web_0")))
        await asyncio.sleep(0)
        await writer.thread.stop()
        with pytest.raises(Unavailable, match="stopping"):
            await writer.submit(look)
        return await submitted

    assert on_thread(cloud, act).resources == ("web_0",)
