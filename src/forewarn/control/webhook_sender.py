"""Sends the feed to webhooks: each in order, one request at a time, at least once.

One task for each webhook. What to do after an answer is `core.webhook_retries`; how far a webhook
has come is a row, written after the receiver has taken something, so what was sent just before the
service died is sent again. While that cannot be written, nothing more is sent.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from forewarn.control.commands import NoteDelivery
from forewarn.control.control import Control
from forewarn.control.feed import Feed
from forewarn.control.webhook_messages import Headers, Message, MessageLook, Messages
from forewarn.core.errors import Conflict, Refusal, Unavailable
from forewarn.core.model import SECOND_MS, AnyProgress, Came, Failing, Webhook
from forewarn.core.principal import WEBHOOKS
from forewarn.core.webhook_retries import (
    RETRY_MS,
    GiveUp,
    GoOn,
    ReceiverAnswer,
    Streak,
    TryAgain,
    after,
)
from forewarn.doorbell import rung
from forewarn.logs import Log
from forewarn.metrics import Counts, Family, counter, gauge
from forewarn.ports import Change, Clock, StoreFailed
from forewarn.wire.instance import ResourceLocation

LOOK_EVERY_S = (
    1.0  # a webhook that waits looks whether it may go on: the clock may have been turned
)
KEEP_EVERY_S = 0.25  # how far one has come is written no more often, and no later than this
HIDDEN_LINES_MAX = 1_000  # lines that are not for it, before how far it has come is written
TESTS_MAX = 4  # under way at a time
OUTCOMES = ("taken", "refused", "unreachable")

log = Log(__name__)


class Posts(Protocol):
    """Who sends a request and says what came back: `adapters.webhook_client`, or a test."""

    def __call__(self, url: str, headers: Headers, body: bytes) -> Awaitable[ReceiverAnswer]: ...


class LastTry(Struct, frozen=True, kw_only=True):
    """What came back the last time, and when."""

    answer: ReceiverAnswer
    at_ms: int


class WebhookStanding(Struct, frozen=True, kw_only=True):
    """How a webhook is doing, beyond what is kept: `again_in_ms` is None unless it waits."""

    last: LastTry | None = None
    again_in_ms: int | None = None


class WebhookSender:
    """All webhooks of a service. Belongs to the event loop; one that runs sends."""

    def __init__(
        self,
        control: Control,
        feed: Feed,
        *,
        post: Posts,
        clock: Clock,
        place: ResourceLocation,
        look_every_s: float = LOOK_EVERY_S,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`clock` is the machine's, also in the emulator: receivers know of no other."""
        self.control = control
        self.feed = feed
        self.clock = clock
        self.look_every_s = look_every_s
        self.chance = chance
        self.messages = Messages(control, feed, place)
        self.lines = 0  # that receivers have taken
        self.errors = 0  # that must not happen
        self._post = post
        self._requests = Counts(
            "forewarn_webhook_requests", "Requests to webhooks, by what came back.", "outcome"
        )
        self._requests.begin(OUTCOMES)
        self._deliveries: dict[str, Delivery] = {}
        self._told = asyncio.Event()
        self._tests = 0
        control.fleet.on_publish(self._published)

    async def run(self) -> None:
        """Send until canceled; then write how far each has come."""
        tasks: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                self._told.clear()
                for webhook in self.control.fleet.webhooks.values():
                    task = tasks.get(webhook.webhook_id)
                    if webhook.disabled_ms is None and (task is None or task.done()):
                        delivery = self._delivery(webhook.webhook_id)
                        tasks[webhook.webhook_id] = asyncio.create_task(delivery.run())
                for gone in self._deliveries.keys() - self.control.fleet.webhooks.keys():
                    if gone not in tasks or tasks[gone].done():
                        tasks.pop(gone, None)
                        del self._deliveries[gone]
                await rung(self._told, self.look_every_s)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    def _delivery(self, webhook_id: str) -> Delivery:
        if webhook_id not in self._deliveries:
            self._deliveries[webhook_id] = Delivery(self, webhook_id)
        return self._deliveries[webhook_id]

    def _published(self, changes: Sequence[Change]) -> None:
        named = {one.webhook_id for change in changes for one in change.webhooks}
        named.update(one for change in changes for one in change.removed_webhooks)
        if named:
            self._told.set()
        if any(change.lines for change in changes):
            named.update(self._deliveries)
        # Not all at each commit: most of them only say how far another webhook has come.
        for webhook_id in named & self._deliveries.keys():
            self._deliveries[webhook_id].told.set()

    async def post(self, webhook: Webhook, message: Message) -> ReceiverAnswer:
        """Send a message once."""
        headers = message.headers(webhook, at_ms=self.clock.now_ms())
        answer = await self._post(webhook.url, headers, message.body)
        self._requests.add(_outcome(answer))
        return answer

    async def test(self, webhook: Webhook) -> LastTry:
        """Send a marked message at once, beside what is under way. Raises Conflict."""
        if self._tests >= TESTS_MAX:
            raise Conflict(
                f"{TESTS_MAX} tests of webhooks are under way, the most there may be.",
                "Test it again when one has ended: 20 seconds at most.",
            )
        self._tests += 1
        try:
            at_ms = self.clock.now_ms()
            message = self.messages.test(webhook, at_ms=at_ms, mark=secrets.token_hex(4))
            return LastTry(answer=await self.post(webhook, message), at_ms=at_ms)
        finally:
            self._tests -= 1

    def standing(self, webhook_id: str) -> WebhookStanding:
        """How a webhook is doing."""
        delivery = self._deliveries.get(webhook_id)
        return WebhookStanding() if delivery is None else delivery.standing()

    def collect(self) -> Iterator[Family]:
        """Its numbers, for /metrics."""
        webhooks = self.control.fleet.webhooks.values()
        lag_s = max((one.lag_ms() / SECOND_MS for one in self._deliveries.values()), default=0.0)
        text = "For how long the line waits that a webhook has waited to send for longest."
        yield gauge("forewarn_webhook_lag_seconds", text, lag_s)
        end = self.control.fleet.journal.end
        behind = max((end - one.number for one in webhooks if one.disabled_ms is None), default=0)
        text = "How many lines of the journal the webhook is behind that is furthest behind."
        yield gauge("forewarn_webhook_lag_lines", text, behind)
        yield from self._requests.collect()
        text = "Lines that receivers of webhooks have taken."
        yield counter("forewarn_webhook_lines", text, self.lines)
        text = "What broke in sending to webhooks and must not."
        yield counter("forewarn_webhook_errors", text, self.errors)


def _outcome(answer: ReceiverAnswer) -> str:
    if answer.taken:
        return "taken"
    return "refused" if answer.status else "unreachable"


class Delivery:
    """What is sent to one webhook. What is here dies with the process; the row is what counts."""

    def __init__(self, sender: WebhookSender, webhook_id: str) -> None:
        self.told = asyncio.Event()  # lines, or the webhook, have changed
        self._sender = sender
        self._id = webhook_id
        self._turn = 0  # of the webhook, that all of this is about
        self._position = 0  # the number up to which there is nothing left to send
        self._taken_to = 0  # the last line that was taken
        self._message: Message | None = None  # not yet taken: sent again as it is
        self._since_ms: int | None = None  # when it was there to be sent, by monotonic time
        self._again_ms = 0  # when it may be sent
        self._failed_ms: int | None = None  # when it failed last
        self._streak = Streak()
        self._kept_s = 0.0  # when the position was written last, by the loop
        self._last: LastTry | None = None
        self._stuck = False  # it could not be written: nothing is sent until it can

    def standing(self) -> WebhookStanding:
        left_ms = self._again_ms - self._now_ms()
        waits = self._message is not None and left_ms > 0
        return WebhookStanding(last=self._last, again_in_ms=left_ms if waits else None)

    def lag_ms(self) -> int:
        """For how long a message has been there that its receiver has not taken."""
        return 0 if self._since_ms is None else max(0, self._now_ms() - self._since_ms)

    def _now_ms(self) -> int:
        return self._sender.clock.monotonic_ms()

    def _webhook(self) -> Webhook | None:
        """The webhook as it is now, if it is to be sent to."""
        found = self._sender.control.fleet.webhooks.get(self._id)
        return found if found is not None and found.disabled_ms is None else None

    async def run(self) -> None:
        """Send until the webhook is gone or disabled, or until canceled."""
        try:
            while (webhook := self._webhook()) is not None:
                self.told.clear()
                wait_s = await self._step_safely(webhook)
                if wait_s != 0:
                    await rung(self.told, wait_s)
        except asyncio.CancelledError:
            await self._keep_at_the_end()
            raise
        self._message = self._since_ms = None

    async def _step_safely(self, webhook: Webhook) -> float | None:
        try:
            return await self._step(webhook)
        except (Unavailable, StoreFailed) as why:
            if not self._stuck:
                log.warning("webhook_put_off", webhook=webhook.name, why=str(why))
            self._stuck = True
            return self._sender.look_every_s
        except Exception:
            log.exception("webhook_failed", webhook=webhook.name)
            self._sender.errors += 1
            self._again_ms = self._now_ms() + RETRY_MS[-1]
            return self._sender.look_every_s

    async def _step(self, webhook: Webhook) -> float | None:
        """Go on a little. The answer is for how long to wait then; None: until told."""
        if webhook.turn != self._turn:
            self._begin(webhook)
        if self._stuck:
            await self._keep(webhook)
            self._stuck = False
            return 0
        if self._message is None:
            wait_s = await self._look(webhook)
            if self._message is None:
                return wait_s
        left_ms = self._again_ms - self._now_ms()
        if left_ms > 0:
            return min(left_ms / SECOND_MS, self._sender.look_every_s)
        await self._send(webhook, self._message)
        return 0

    def _begin(self, webhook: Webhook) -> None:
        """Forget what was under way: an admin has said something else since."""
        self._turn = webhook.turn
        self._position = self._taken_to = webhook.number
        self._message = self._since_ms = self._failed_ms = None
        self._again_ms = 0
        self._streak = Streak(failures=webhook.failures, failing_ms=webhook.failing_ms)
        self._stuck = False

    async def _look(self, webhook: Webhook) -> float | None:
        """Find the next message, if there is one; else how long to wait."""
        pruned = self._sender.feed.journal.pruned_through
        if self._position < pruned:
            log.warning("webhook_skips", webhook=webhook.name, after=self._position, to=pruned)
            await self._note(webhook, Came(number=pruned, skipped=True))
            self._position = pruned
            return 0
        found: MessageLook = await self._sender.messages.after(self._position, webhook)
        if found.message is not None:
            self._message = found.message
            self._since_ms = self._now_ms()
            return 0
        self._position = max(self._position, found.end)
        hidden = self._position - webhook.number
        behind = self._kept_behind(webhook)
        if hidden >= HIDDEN_LINES_MAX or (behind and self._keep_in_s() <= 0):
            await self._keep(webhook)
            return 0
        if found.more:
            return 0
        return self._keep_in_s() if behind else None

    def _keep_in_s(self) -> float:
        """How long until it may be written again how far it has come."""
        return max(0.0, self._kept_s + KEEP_EVERY_S - asyncio.get_running_loop().time())

    def _kept_behind(self, webhook: Webhook) -> bool:
        """Whether something was taken that is not written yet."""
        return self._taken_to > webhook.number

    async def _send(self, webhook: Webhook, message: Message) -> None:
        at_ms = self._sender.clock.now_ms()
        answer = await self._sender.post(webhook, message)
        self._last = LastTry(answer=answer, at_ms=at_ms)
        now_ms = self._now_ms()
        waited_ms = 0 if self._failed_ms is None else now_ms - self._failed_ms
        step = after(self._streak, answer, waited_ms=waited_ms, chance=self._sender.chance())
        if isinstance(step, GoOn):
            await self._taken(webhook, message)
            return
        if not self._streak.failures:
            log.warning("webhook_fails", webhook=webhook.name, why=answer.words)
        self._streak, self._failed_ms = step.streak, now_ms
        self._again_ms = now_ms + (step.wait_ms if isinstance(step, TryAgain) else RETRY_MS[0])
        await self._failed(webhook, step)

    async def _taken(self, webhook: Webhook, message: Message) -> None:
        self._sender.lines += message.lines
        if self._streak.failures:
            log.info("webhook_well_again", webhook=webhook.name, failures=self._streak.failures)
        self._message = self._since_ms = self._failed_ms = None
        self._again_ms, self._streak = 0, Streak()
        self._position = self._taken_to = message.last
        if webhook.failures or self._keep_in_s() <= 0:
            await self._keep(webhook)

    async def _failed(self, webhook: Webhook, step: TryAgain | GiveUp) -> None:
        ends = isinstance(step, GiveUp)
        if ends:
            log.error("webhook_given_up", webhook=webhook.name, why=step.why)
        failing = Failing(
            failures=step.streak.failures,
            failing_ms=step.streak.failing_ms,
            why=step.why,
            ends=ends,
        )
        try:
            await self._note(webhook, failing)
        except Unavailable as why:
            # It is tried again all the same; that it failed is told with the next try.
            log.warning("webhook_failure_not_kept", webhook=webhook.name, why=str(why))

    async def _keep(self, webhook: Webhook) -> None:
        """Write how far it has come. Raises Unavailable."""
        self._kept_s = asyncio.get_running_loop().time()
        if self._position != webhook.number or webhook.failures:
            await self._note(webhook, Came(number=self._position))

    async def _note(self, webhook: Webhook, progress: AnyProgress) -> None:
        """Write it, unless the webhook is in another turn by now. Raises Unavailable."""
        command = NoteDelivery(
            by=WEBHOOKS, webhook_id=webhook.webhook_id, turn=self._turn, progress=progress
        )
        await self._sender.control.submit(command)

    async def _keep_at_the_end(self) -> None:
        """What was taken is not sent again after a clean stop."""
        webhook = self._webhook()
        if webhook is None or webhook.turn != self._turn or not self._kept_behind(webhook):
            return
        try:
            await self._note(webhook, Came(number=self._taken_to))
        except (Unavailable, Refusal) as why:
            log.warning("webhook_put_off", webhook=webhook.name, why=str(why))
