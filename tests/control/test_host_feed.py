"""What each host is told: everything once, then what changed for it, at once and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
import pytest

from forewarn.control.hosts import feed_positions
from forewarn.control.hosts.host_feed import ENCODED_AT_ONCE, WAITING_PER_HOST_MAX, HostFeed
from forewarn.control.inventory import apply_at_once
from forewarn.control.transaction import Transaction
from forewarn.core.model import Decision, EventType, Host, Outcome
from forewarn.wire.link import CHANGES_WAIT_S_MAX, Adoption, Changes, Since, VmTraits
from support import ordered
from support.core_fleet import WEB, Cloud, scope

T = TypeVar("T")

WAIT_S = 60


class Shown:
    """A cloud, and the views that are told of each of its commits."""

    def __init__(self, cloud: Cloud, **more: Any) -> None:
        self.cloud = cloud
        snapshot = cloud.store.load()
        self.host_feed = HostFeed(feed_positions.begin(cloud.store, snapshot), **more)
        self.host_feed.load(snapshot.scopes, snapshot.operations, snapshot.shown)
        self._published = len(cloud.commits)

    def publish(self) -> None:
        """What the writer's thread has the event loop do after a commit."""
        fresh = self.cloud.commits[self._published :]
        self._published = len(self.cloud.commits)
        self.host_feed.published(fresh)

    async def ask(self, host: str, since: Since | None = None, wait_s: int = 0) -> Changes:
        async with asyncio.timeout(WAIT_S):
            answer = await self.host_feed.changes(host, since, wait_s)
        return msgspec.json.decode(msgspec.json.encode(answer), type=Changes)

    async def asleep(self, host: str, since: Since) -> asyncio.Task[Changes]:
        """A question that waits for something new."""
        asked = asyncio.ensure_future(self.ask(host, since, CHANGES_WAIT_S_MAX))
        await asyncio.sleep(0)
        assert not asked.done()
        return asked


def told(answer: Changes) -> Since:
    return Since(answer.epoch, answer.position)


def web() -> Shown:
    return Shown(Cloud(scope("web", WEB), scope("db", {"db_0": (0, "h2")})))


def run(story: Callable[[], Awaitable[T]]) -> T:
    async def main() -> T:
        return await story()

    return asyncio.run(main())


def test_a_host_that_knows_nothing_is_told_everything_at_once() -> None:
    async def story() -> None:
        shown = web()
        answer = await shown.ask("h2", None, CHANGES_WAIT_S_MAX)
        assert answer.names == ("db", "web")
        assert [one.name for one in answer.scopes] == ["db", "web"]
        assert [vm.name for one in answer.scopes for vm in one.vms] == ["db_0", "web_1"]
        assert not answer.work

        empty = await shown.ask("h3", None, CHANGES_WAIT_S_MAX)
        assert (empty.names, empty.scopes) == ((), ())

    run(story)


def test_a_host_that_knows_everything_waits_until_its_time_is_up() -> None:
    async def story() -> None:
        shown = web()
        first = await shown.ask("h2")
        second = await shown.ask("h2", told(first))
        assert (second.scopes, second.work) == ((), False)
        assert second.names == first.names

    run(story)


def test_a_change_is_told_to_the_hosts_of_its_scope_and_to_no_other() -> None:
    async def story() -> None:
        shown = web()
        known = {host: told(await shown.ask(host)) for host in ("h1", "h2", "h3")}
        waiting = {host: await shown.asleep(host, since) for host, since in known.items()}

        event = shown.cloud.order("web_0", EventType.REBOOT)
        shown.publish()

        for host in ("h1", "h2"):
            answer = await waiting[host]
            (one,) = answer.scopes
            assert [e.event_id for e in one.events] == [event.event_id]
            assert answer.names == (("web",) if host == "h1" else ("db", "web"))
        await asyncio.sleep(0)
        assert not waiting["h3"].done()
        waiting["h3"].cancel()

    run(story)


def test_a_host_that_was_silent_since_it_confirmed_is_told_to_confirm_again() -> None:
    """Also if it never heard that its word counted: what it is shown is what it knows already."""

    async def story() -> None:
        shown = web()
        first = told(await shown.ask("h1"))
        event = shown.cloud.order("web_0", EventType.REBOOT)
        shown.publish()
        asked = await shown.ask("h1", first)
        assert [one.to_confirm for one in asked.scopes] == [True]

        shown.cloud.show()
        shown.cloud.run(ordered.host_silent("h1"))
        assert shown.cloud.event(event).shown_ms is None
        shown.publish()

        (again,) = (await shown.ask("h1", told(asked))).scopes
        assert [e.event_id for e in again.events] == [event.event_id]
        assert again.to_confirm

    run(story)


def test_a_host_that_has_just_confirmed_a_scope_is_not_told_so() -> None:
    async def story() -> None:
        shown = web()
        first = told(await shown.ask("h1"))
        shown.cloud.order("web_0", EventType.REBOOT)
        shown.publish()
        asked = await shown.ask("h1", first)
        assert [one.to_confirm for one in asked.scopes] == [True]
        waiting = await shown.asleep("h1", told(asked))

        shown.cloud.show()
        shown.publish()

        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        (whole,) = [one for one in (await shown.ask("h1")).scopes if one.name == "web"]
        assert not whole.to_confirm  # and who asks for everything need not say it again

    run(story)


def test_what_no_guest_can_see_wakes_nobody() -> None:
    async def story() -> None:
        shown = web()
        event = shown.cloud.order("web_0", EventType.REBOOT)
        shown.cloud.show()
        shown.publish()
        waiting = await shown.asleep("h2", told(await shown.ask("h2")))

        shown.cloud.polls("web", "web_1")
        shown.cloud.approve(event)
        shown.publish()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

        assert not waiting.done()
        shown.cloud.tick()  # it starts: EventStatus changes
        shown.publish()
        assert (await waiting).scopes[0].incarnation == shown.cloud.scope().incarnation

    run(story)


def test_a_lost_answer_is_told_again() -> None:
    async def story() -> None:
        shown = web()
        known = told(await shown.ask("h1"))
        shown.cloud.order("web_0", EventType.REBOOT)
        shown.publish()
        lost = await shown.ask("h1", known)
        assert await shown.ask("h1", known) == lost
        assert (await shown.ask("h1", told(lost))).scopes == ()

    run(story)


@pytest.mark.parametrize(
    "since",
    [Since("another life", 1), Since("", 0), Since("another life", 10**12)],
)
def test_a_host_of_a_life_that_the_store_does_not_know_is_told_everything(since: Since) -> None:
    async def story() -> None:
        shown = web()
        assert (await shown.ask("h1", since)).names == ("web",)
        assert len((await shown.ask("h1", since)).scopes) == 1

    run(story)


def test_a_position_from_the_future_is_told_everything() -> None:
    async def story() -> None:
        shown = web()
        first = await shown.ask("h1")
        for position in (first.position + 1, 10**15, -7):
            assert len((await shown.ask("h1", Since(first.epoch, position))).scopes) == 1

    run(story)


def test_two_lives_of_control_have_different_epochs() -> None:
    async def story() -> None:
        assert len({HostFeed().epoch for _ in range(100)}) == 100

    run(story)


def test_an_action_that_nobody_has_claimed_is_work_once() -> None:
    async def story() -> None:
        shown = web()
        known = told(await shown.ask("h1"))
        event = shown.cloud.order("web_0", EventType.REBOOT)
        shown.cloud.start(event)
        shown.publish()

        rung = await shown.ask("h1", known)
        assert rung.work
        # A bell, not a demand: a host that cannot claim yet is not rung for in a circle.
        assert not (await shown.ask("h1", told(rung))).work
        assert not (await shown.ask("h2")).work
        assert (await shown.ask("h1")).work  # a daemon that was started anew is told

        (action,) = shown.cloud.claim("h1")
        shown.publish()
        assert not (await shown.ask("h1")).work
        shown.cloud.report("h1", action, Outcome.DONE)

    run(story)


def test_an_operation_on_the_host_is_work_too() -> None:
    async def story() -> None:
        shown = web()
        known = told(await shown.ask("h1"))
        operation = shown.cloud.maintain("h1", EventType.FREEZE)
        shown.cloud.start(*shown.cloud.events_of(operation))
        shown.publish()
        assert (await shown.ask("h1", known)).work
        shown.cloud.work()
        shown.publish()
        assert not (await shown.ask("h1")).work

    run(story)


def test_the_target_of_a_move_is_shown_the_vm_before_it_arrives_and_the_source_drops_it() -> None:
    async def story() -> None:
        shown = Shown(Cloud(scope("web", {"web_0": (0, "h1")})))
        known = {host: told(await shown.ask(host)) for host in ("h1", "h2")}
        assert (await shown.ask("h2")).names == ()
        event = shown.cloud.order("web_0", EventType.REDEPLOY)
        shown.cloud.start(event)
        shown.publish()
        (action,) = shown.cloud.event(event).actions
        target = action.target_host or ""
        arriving = await shown.ask(target, known["h2"])
        assert [vm.name for one in arriving.scopes for vm in one.vms] == ["web_0"]

        shown.cloud.work()
        shown.publish()
        left = await shown.ask("h1", known["h1"])
        assert (left.names, left.scopes) == ((), ())
        assert (await shown.ask(target)).names == ("web",)

    run(story)


def test_a_scope_that_is_gone_is_named_no_more() -> None:
    async def story() -> None:
        hosts = [Host(name="h1")]
        shown = Shown(Cloud(scope("old", {"old_0": (0, "h1")}), hosts=hosts))
        waiting = await shown.asleep("h1", told(await shown.ask("h1")))
        shown.cloud.run(apply_at_once.apply('[[host]]\nname = "h1"\n', by=ordered.operator("test")))
        shown.publish()
        assert (await waiting).names == ()

    run(story)


def test_a_host_that_left_is_forgotten_and_whoever_waits_as_it_is_answered() -> None:
    async def story() -> None:
        shown = web()
        waiting = await shown.asleep("h3", told(await shown.ask("h3")))
        shown.host_feed.forget(["h3", "never-was"])
        async with asyncio.timeout(CHANGES_WAIT_S_MAX / 2):  # by itself it would wait for longer
            assert (await waiting).names == ()
        assert set(shown.host_feed._by_host) == {"h1", "h2"}
        shown.host_feed.ring("h3")  # who is shut out is rung for
        assert set(shown.host_feed._by_host) == {"h1", "h2"}
        assert "h3" not in shown.host_feed.take_rung()

    run(story)


def test_a_host_that_comes_back_before_its_question_of_before_is_answered_is_told_everything() -> (
    None
):
    async def story() -> None:
        shown = Shown(Cloud(scope("db", {"db_0": (0, "h2")})))
        waiting = await shown.asleep("h1", told(await shown.ask("h1")))
        shown.host_feed.forget(["h1"])
        shown.cloud.run(lambda tx: tx.apply(Decision(scopes=(scope("web", WEB),))))
        shown.publish()
        answer = await waiting
        again = await shown.ask("h1", told(answer))
        assert [one.name for one in (*answer.scopes, *again.scopes)] == ["web"]

    run(story)


def test_a_host_that_left_and_comes_back_is_told_what_it_shows_no_more() -> None:
    """It may still show what it was told before it left."""

    async def story() -> None:
        shown = web()
        known = told(await shown.ask("h2"))

        def away(tx: Transaction) -> None:
            for name in ("web", "db"):
                tx.remove_scope(name)

        shown.cloud.run(away)
        shown.publish()
        shown.host_feed.forget(["h2"])
        async with asyncio.timeout(WAIT_S):
            answer = await shown.ask("h2", known, CHANGES_WAIT_S_MAX)
        assert answer.names == ()
        assert answer.position > known.position
        await shown.asleep("h2", told(answer))

    run(story)


def test_a_scope_that_came_back_between_two_questions_is_told_anew() -> None:
    async def story() -> None:
        shown = web()
        known = told(await shown.ask("h1"))
        before = shown.cloud.scope()

        def away(tx: Transaction) -> None:
            tx.remove_scope("web")

        shown.cloud.run(away)
        shown.publish()
        shown.cloud.run(lambda tx: tx.apply(Decision(scopes=(before,))))
        shown.publish()
        answer = await shown.ask("h1", known)
        assert (answer.names, len(answer.scopes)) == (("web",), 1)

    run(story)


def test_an_adoption_is_told_at_once_and_until_it_is_done() -> None:
    async def story() -> None:
        queued = [Adoption("a1", "vm0", VmTraits(scope="web"))]
        shown = Shown(Cloud(), adoptions=lambda host: tuple(queued) if host == "h1" else ())
        queued_before, queued[:] = list(queued), []
        waiting = await shown.asleep("h1", told(await shown.ask("h1")))
        queued[:] = queued_before
        shown.host_feed.ring("h1")
        answer = await waiting
        assert answer.adoptions == tuple(queued)
        assert (await shown.ask("h1", told(answer))).adoptions == tuple(queued)
        assert (await shown.ask("h2")).adoptions == ()

    run(story)


def test_of_too_many_questions_that_wait_for_one_host_the_oldest_is_answered() -> None:
    async def story() -> None:
        shown = web()
        known = told(await shown.ask("h1"))
        waiting = [await shown.asleep("h1", known) for _ in range(WAITING_PER_HOST_MAX + 1)]
        assert (await waiting[0]).scopes == (), "the oldest, which its daemon may have given up"
        assert shown.host_feed.waiting() == WAITING_PER_HOST_MAX
        assert not any(one.done() for one in waiting[1:])
        assert (await shown.ask("h1", known)).scopes == ()
        shown.cloud.order("web_0", EventType.REBOOT)
        shown.publish()
        answers = await asyncio.gather(*waiting[1:])
        assert {len(answer.scopes) for answer in answers} == {1}
        assert shown.host_feed.waiting() == 0

    run(story)


def test_a_question_that_makes_way_misses_nothing_that_was_committed_just_before() -> None:
    async def story() -> None:
        shown = web()
        known = told(await shown.ask("h1"))
        waiting = [await shown.asleep("h1", known) for _ in range(WAITING_PER_HOST_MAX)]
        shown.cloud.order("web_0", EventType.REBOOT)
        shown.publish()
        newest = Since(known.epoch, shown.host_feed.position)
        another = asyncio.ensure_future(shown.ask("h1", newest, CHANGES_WAIT_S_MAX))
        answers = await asyncio.gather(*waiting)
        assert {len(answer.scopes) for answer in answers} == {1}
        another.cancel()

    run(story)


def test_whoever_waits_is_answered_when_control_stops() -> None:
    async def story() -> None:
        shown = web()
        waiting = await shown.asleep("h1", told(await shown.ask("h1")))
        shown.host_feed.close()
        assert (await waiting).names == ("web",)
        assert (await shown.ask("h1", told(await waiting), CHANGES_WAIT_S_MAX)).scopes == ()

    run(story)


def test_after_a_restart_the_incarnation_that_is_told_has_not_gone_back() -> None:
    async def story() -> None:
        shown = web()
        shown.cloud.order("web_0", EventType.REBOOT)
        shown.publish()
        before = (await shown.ask("h1")).scopes[0]
        shown.cloud.crash(down_ms=60_000)
        after = (await Shown(shown.cloud).ask("h1")).scopes[0]
        assert after.incarnation >= before.incarnation
        assert [e.event_id for e in after.events] == [e.event_id for e in before.events]

    run(story)


def test_a_large_scope_is_cut_to_what_each_host_needs() -> None:
    async def story() -> None:
        vms = {f"big_{n}": (n % 20, f"h{n % 3 + 1}") for n in range(600)}
        shown = Shown(Cloud(scope("big", vms)))
        answers = [await shown.ask(f"h{n}") for n in (1, 2, 3)]
        assert [len(answer.scopes[0].vms) for answer in answers] == [200, 200, 200]

    run(story)


def test_a_host_with_thousands_of_scopes_is_told_them_while_others_have_their_turn() -> None:
    many = [scope(f"s{number}", {f"v{number}": (0, "h1")}) for number in range(9 * ENCODED_AT_ONCE)]
    shown = Shown(Cloud(*many))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            if turns == 4:  # what goes meanwhile is not told
                shown.cloud.run(lambda tx: tx.remove_scope("s7"))
                shown.publish()
            await asyncio.sleep(0)

    async def story() -> None:
        task = asyncio.ensure_future(others())
        answer = await shown.ask("h1")
        task.cancel()
        assert turns >= 8
        names = {one.name for one in many} - {"s7"}
        assert set(answer.names) == {one.name for one in answer.scopes} == names

    run(story)
