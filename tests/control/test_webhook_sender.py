"""What is sent to a webhook: in order, signed, again until it is taken, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.core.facts import WebhookDisabledDetail, WebhookSkippedDetail
from forewarn.core.model import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    Fact,
    FactKind,
    NewSecret,
    NewTerms,
    Removal,
    Replay,
    SwitchOff,
    SwitchOn,
    WebhookCondition,
    WebhookFormat,
    WebhookTerms,
)
from forewarn.core.principal import CLOCK
from forewarn.core.retention import Prunable, pruned_fact
from forewarn.core.webhook_retries import GIVE_UP_MS, RETRY_AFTER_MS_MAX, RETRY_MS
from forewarn.wire.standard_webhooks import secret_text
from support.waiting import until
from support.watched_store import WatchedStore, disk_broken
from support.webhook_world import SECRET, Receiver, WebhookWorld, receiving, says

OTHER_SECRET = secret_text(b"another secret of the very same length")
KINDS = (FactKind.HOST_CLOSED,)

Story = Callable[[WebhookWorld, Receiver], Awaitable[None]]


def told(story: Story, store: SqliteStore | WatchedStore | None = None) -> None:
    """Tell a story with a world and a receiver."""

    async def work() -> None:
        async with receiving() as receiver:
            await story(WebhookWorld(store), receiver)

    asyncio.run(work())


def failing(world: WebhookWorld, times: int) -> Callable[[], bool]:
    return lambda: world.webhook().failures == times


def test_lines_arrive_in_order_each_once_and_signed() -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        world.add(receiver.url, kinds=KINDS)
        async with world.sending():
            world.says("h1", "h2", "h3")
            await until(lambda: len(receiver.received) == 3)
            world.says("h4")
            await until(lambda: world.webhook().number == world.published.journal.end)
        assert [one.json["data"]["host"] for one in receiver.received] == ["h1", "h2", "h3", "h4"]
        assert receiver.numbers == [2, 3, 4, 5]
        assert receiver.at_once_max == 1
        first = receiver.received[0]
        assert first.target == "/hook?x=1"
        assert first.headers["content-type"] == "application/cloudevents+json"
        assert first.headers["webhook-timestamp"] == str(world.clock.now_ms() // SECOND_MS)
        assert all(one.signed_with(SECRET) for one in receiver.received)
        assert not first.signed_with(OTHER_SECRET)
        assert len({one.headers["webhook-id"] for one in receiver.received}) == 4

    told(story)


def test_what_is_not_taken_is_sent_again_by_the_schedule_and_nothing_overtakes_it() -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        receiver.then = says(500)
        world.add(receiver.url, kinds=KINDS)
        async with world.sending() as sender:
            world.says("h1", "h2")
            for tried, wait_ms in enumerate((*RETRY_MS, 30 * MINUTE_MS, 30 * MINUTE_MS), 1):
                await until(failing(world, tried))
                assert sender.standing("wh-ops").again_in_ms == wait_ms
                world.clock.pass_ms(wait_ms - 1)
                await asyncio.sleep(0)
                assert len(receiver.received) == tried
                world.clock.pass_ms(1)
            assert world.webhook().failure == "answered 500"
            await until(failing(world, 7))
            receiver.then = says(204)
            world.clock.pass_ms(HOUR_MS)
            await until(lambda: world.webhook().number == world.published.journal.end)
        assert receiver.numbers == [2] * 8 + [3]
        ids = [one.headers["webhook-id"] for one in receiver.received]
        assert len(set(ids[:8])) == 1
        bodies = {one.body for one in receiver.received[:8]}
        assert len(bodies) == 1
        assert world.webhook().condition is WebhookCondition.OK

    told(story)


@pytest.mark.parametrize(
    ("asked", "waits_ms"),
    [("120", 120 * SECOND_MS), ("1", RETRY_MS[0]), ("999999999", RETRY_AFTER_MS_MAX)],
)
def test_a_receiver_that_asks_for_time_gets_it_within_a_limit(asked: str, waits_ms: int) -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        receiver.script = [says(429, f"Retry-After: {asked}")]
        world.add(receiver.url, kinds=KINDS)
        async with world.sending() as sender:
            world.says("h1")
            await until(failing(world, 1))
            assert sender.standing("wh-ops").again_in_ms == waits_ms
            world.clock.pass_ms(waits_ms)
            await until(lambda: world.webhook().number == 2)

    told(story)


def test_a_receiver_that_is_gone_is_given_up_at_once_and_the_journal_says_so() -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        receiver.then = says(410)
        world.add(receiver.url, kinds=KINDS)
        async with world.sending():
            world.says("h1")
            await until(lambda: world.webhook().disabled_ms is not None)
            world.says("h2")
            world.clock.pass_ms(DAY_MS)
            (fact,) = world.lines(FactKind.WEBHOOK_DISABLED)
            assert isinstance(fact.detail, WebhookDisabledDetail)
            assert fact.detail.because == "its receiver is gone (410)"
            assert fact.by == "webhooks"
            assert len(receiver.received) == 1
            receiver.then = says(200)
            world.order("wh-ops", SwitchOn())
            await until(lambda: receiver.numbers == [2, 2, 4])

    told(story)


def test_a_redirect_is_a_failure_and_is_not_followed() -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        receiver.script = [says(307, f"Location: {receiver.url}")]
        world.add(receiver.url, kinds=KINDS)
        async with world.sending():
            world.says("h1")
            await until(failing(world, 1))
        assert len(receiver.received) == 1
        assert world.webhook().failure == "answered 307; redirects are not followed"

    told(story)


def test_a_receiver_that_hangs_is_a_failure_and_holds_up_no_other() -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        world.limit_s = 0.2
        released = asyncio.Event()

        async def hang(_: asyncio.StreamWriter) -> None:
            await released.wait()

        async with receiving() as other:
            receiver.then = hang
            world.add(receiver.url, "hangs", kinds=KINDS)
            world.add(other.url, kinds=KINDS)
            async with world.sending():
                world.says("h1")
                await until(lambda: len(other.received) == 1)
                await until(lambda: world.webhook("wh-hangs").failures == 1)
            assert world.webhook("wh-hangs").failure == "no answer within 0.2 s"
            released.set()

    told(story)


@pytest.mark.parametrize("step_ms", [0, 400 * DAY_MS, -400 * DAY_MS])
def test_after_three_days_of_trying_it_is_given_up_whatever_the_clock_shows(step_ms: int) -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        receiver.then = says(503)
        world.add(receiver.url, kinds=KINDS)
        async with world.sending():
            world.says("h1")
            await until(failing(world, 1))
            world.clock.wall += step_ms
            for tried in range(2, 5):
                world.clock.pass_ms(GIVE_UP_MS // 4)
                await until(failing(world, tried))
                assert world.webhook().disabled_ms is None
            world.clock.pass_ms(GIVE_UP_MS // 4)
            await until(lambda: world.webhook().disabled_ms is not None)
        assert world.webhook().disabled_because == "answered 503, 3 days long"
        assert len(world.lines(FactKind.WEBHOOK_DISABLED)) == 1

    told(story)


def test_time_in_which_the_service_was_off_gives_none_up(tmp_path: Path) -> None:
    async def work() -> None:
        async with receiving() as receiver:
            receiver.then = says(503)
            world = WebhookWorld(SqliteStore.in_folder(tmp_path))
            world.add(receiver.url, kinds=KINDS)
            async with world.sending():
                world.says("h1")
                await until(failing(world, 1))
            world.store.close()
            world.clock.pass_ms(30 * DAY_MS)
            again = WebhookWorld(SqliteStore.in_folder(tmp_path), clock=world.clock)
            async with again.sending():
                await until(failing(again, 2))
                receiver.then = says(200)
                again.clock.pass_ms(RETRY_MS[1])
                await until(lambda: again.webhook().number == 2)
            assert receiver.numbers == [2, 2, 2]
            again.store.close()

    asyncio.run(work())


def test_while_a_secret_is_rotated_both_sign_and_then_the_new_one_alone() -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        world.add(receiver.url, kinds=KINDS)
        async with world.sending():
            receiver.script = [says(500)]
            world.says("h1")
            await until(failing(world, 1))
            world.order("wh-ops", NewSecret(secret=OTHER_SECRET, overlap_ms=HOUR_MS))
            world.clock.pass_ms(RETRY_MS[0])
            await until(lambda: len(receiver.received) == 2)
            await until(lambda: world.webhook().number == 2)
            world.clock.pass_ms(HOUR_MS)
            world.says("h2")
            await until(lambda: len(receiver.received) == 3)
        before, both, new = receiver.received
        assert before.signed_with(SECRET)
        assert not before.signed_with(OTHER_SECRET)
        assert both.signed_with(SECRET)
        assert both.signed_with(OTHER_SECRET)
        assert not new.signed_with(SECRET)
        assert new.signed_with(OTHER_SECRET)

    told(story)


def test_a_replay_sends_what_follows_the_line_again_under_the_same_ids() -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        world.add(receiver.url, kinds=KINDS)
        async with world.sending():
            world.says("h1", "h2")
            await until(lambda: world.webhook().number == 3)
            world.order("wh-ops", Replay(number=2))
            await until(lambda: receiver.numbers == [2, 3, 3])
        ids = [one.headers["webhook-id"] for one in receiver.received]
        assert ids[1] == ids[2]
        assert len(world.lines(FactKind.WEBHOOK_REPLAYED)) == 1

    told(story)


def test_a_webhook_that_is_removed_in_flight_leaves_nothing_behind() -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        async def remove_first(writer: asyncio.StreamWriter) -> None:
            world.order("wh-ops", Removal())
            writer.write(says(200))
            await writer.drain()

        receiver.script = [remove_first]
        world.add(receiver.url, kinds=KINDS)
        async with world.sending() as sender:
            world.says("h1", "h2")
            await until(lambda: receiver.received and "wh-ops" not in sender._deliveries)
        assert len(receiver.received) == 1
        assert dict(world.published.webhooks) == {}
        assert world.store.load().webhooks == ()

    told(story)


def test_a_webhook_that_is_removed_while_it_retries_is_not_tried_again() -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        receiver.then = says(500)
        world.add(receiver.url, kinds=KINDS)
        async with world.sending() as sender:
            world.says("h1")
            await until(failing(world, 1))
            world.order("wh-ops", Removal())
            world.clock.pass_ms(DAY_MS)
            await until(lambda: "wh-ops" not in sender._deliveries)
        assert len(receiver.received) == 1

    told(story)


def test_a_new_address_is_tried_at_once_and_old_failures_do_not_count_for_it() -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        receiver.then = says(500)
        webhook_id = world.add(receiver.url, kinds=KINDS)
        async with world.sending(), receiving() as other:
            world.says("h1")
            await until(failing(world, 1))
            webhook = world.webhook()
            terms = WebhookTerms(name="ops", url=other.url, kinds=KINDS)
            world.order(webhook_id, NewTerms(terms=terms, turn=webhook.turn))
            await until(lambda: other.numbers == [2])
            await until(lambda: world.webhook().number == 2)
        assert world.webhook().failures == 0
        assert len(receiver.received) == 1

    told(story)


def test_one_that_is_added_while_another_retries_is_sent_to_at_once() -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        receiver.then = says(500)
        world.add(receiver.url, kinds=KINDS)
        async with world.sending(), receiving() as other:
            world.says("h1")
            await until(failing(world, 1))
            world.add(other.url, "late", number=0, kinds=KINDS)
            await until(lambda: other.numbers == [2])
        assert other.numbers == [2]

    told(story)


def test_while_it_cannot_be_kept_how_far_one_has_come_nothing_more_is_sent() -> None:
    store = WatchedStore()

    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        world.add(receiver.url, kinds=KINDS)
        world.says("h1", "h2", "h3")
        broken = True

        class Full(dict[str, Exception]):
            def pop(self, call: str, default: Any = None) -> Any:
                return disk_broken() if broken and call == "commit" else default

        store.fails = Full()
        async with world.sending():
            await until(lambda: store.calls.count("commit") > 10, "it tries again and again")
            assert receiver.numbers == [2]
            broken = False
            await until(lambda: world.webhook().number == 4)
        assert receiver.numbers == [2, 3, 4]

    told(story, store)


def test_a_sender_that_died_before_it_was_kept_sends_again_and_misses_nothing() -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        world.add(receiver.url, kinds=KINDS)
        world.says("h1", "h2")

        async def never(_: asyncio.StreamWriter) -> None:
            raise OSError

        receiver.script = [says(200), never]
        before = world.webhook()
        async with world.sending():
            await until(failing(world, 1))
        # As if the process had died between the answer and the commit.
        world.run(lambda tx: tx.put_webhook("wh-ops", before))
        async with world.sending():
            await until(lambda: world.webhook().number == 3)
        assert receiver.numbers == [2, 3, 2, 3]

    told(story)


def test_thousands_of_lines_behind_it_catches_up_in_batches() -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        world.run(lambda tx: tx.note(*_many(5_000)))
        world.add(receiver.url, number=0, batch=100)
        async with world.sending() as sender:
            await until(lambda: world.webhook().number == world.published.journal.end)
            assert sender.lines == 5_001
        assert receiver.numbers == list(range(1, 5_002))
        assert len(receiver.received) == 51
        first = receiver.received[0].headers
        assert first["content-type"] == "application/cloudevents-batch+json"
        # Not each of them is a commit.
        assert len(world.commits) < 51

    told(story)


def _many(count: int) -> list[Fact]:
    return [Fact(kind=FactKind.HOST_CLOSED, at_ms=1, host=f"h{n}") for n in range(count)]


def test_lines_that_were_pruned_before_they_were_sent_are_said_to_be_missing() -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        world.says("h1", "h2", "h3")
        world.add(receiver.url, number=0, kinds=(*KINDS, FactKind.WEBHOOK_SKIPPED))
        gone = Prunable(lines=(1, 2))
        fact = pruned_fact(gone, before_ms=1, now_ms=1, by=CLOCK)
        world.run(lambda tx: tx.prune(gone, fact))
        async with world.sending():
            await until(lambda: world.webhook().number == world.published.journal.end)
        assert [one.json["data"].get("host") for one in receiver.received] == ["h3", None]
        (skipped,) = world.lines(FactKind.WEBHOOK_SKIPPED)
        assert isinstance(skipped.detail, WebhookSkippedDetail)
        assert (skipped.detail.before, skipped.detail.after) == (0, 2)

    told(story)


def test_lines_that_are_not_for_it_move_it_on_without_a_request() -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        world.run(lambda tx: tx.note(*_many(3_000)))
        world.add(receiver.url, number=0, kinds=(FactKind.STARTED,))
        async with world.sending():
            await until(lambda: world.webhook().number >= 3_000)
        assert receiver.received == []

    told(story)


def test_a_test_is_marked_and_sent_also_while_the_webhook_is_disabled() -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        receiver.then = says(202, body="thank you")
        for form in WebhookFormat:
            world.add(receiver.url, form.value, format=form)
            world.order(f"wh-{form.value}", SwitchOff())
        async with world.sending() as sender:
            for form in WebhookFormat:
                last = await sender.test(world.webhook(f"wh-{form.value}"))
                assert (last.answer.status, last.answer.body) == (202, b"thank you")
        plain, grid, text = (one.json for one in receiver.received)
        assert plain["type"] == "io.forewarn.webhook.test.v1"
        assert grid[0]["data"]["resourceInfo"]["properties"]["Description"].startswith("Test:")
        assert text["text"].startswith("Test: the webhook text")
        assert all(one.signed_with(SECRET) for one in receiver.received)
        assert world.webhook("wh-text").disabled_ms is not None

    told(story)


def test_its_numbers_are_there_for_an_alert_before_anything_happens() -> None:
    async def story(world: WebhookWorld, receiver: Receiver) -> None:
        world.add(receiver.url, kinds=KINDS)
        async with world.sending() as sender:
            shown = {
                (one.name, *one.labels.values()): one.value
                for family in sender.collect()
                for one in family.samples
            }
        assert shown["forewarn_webhook_requests_total", "unreachable"] == 0
        assert shown["forewarn_webhook_lag_seconds",] == 0

    told(story)
