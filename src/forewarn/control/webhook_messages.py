"""What a webhook sends: the next lines of the feed in its format, as one signed request.

Nothing here is sent, waits for a receiver, or knows how far another webhook is.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from forewarn.control.control import Control
from forewarn.control.feed import Feed, FeedFilter
from forewarn.core.model import EventSource, EventType, FactKind, Webhook, WebhookFormat
from forewarn.wire import event_grid, standard_webhooks
from forewarn.wire.cloud_events import (
    BATCH_CONTENT_TYPE,
    SPEC_VERSION,
    TYPE_PREFIX,
    CloudEvent,
    FeedData,
)
from forewarn.wire.feed_texts import KINDS_WITH_TEXT, chat_text, text_of
from forewarn.wire.instance import ResourceLocation
from forewarn.wire.instants import needed_time_text

CONTENT_TYPE = "application/cloudevents+json"
JSON_CONTENT_TYPE = "application/json"
MESSAGE_BYTES_MAX = 256 * 1_024  # a message ends with the line that exceeds it
TEST_KIND = "webhook.test.v1"
TEST_TEXT = "Test: the webhook {name} of Forewarn works. Nothing has happened."
TEST_EVENT_ID = "00000000-0000-0000-0000-000000000000"

_decoder = msgspec.json.Decoder(CloudEvent)

Headers = tuple[tuple[str, str], ...]


class Message(Struct, frozen=True, kw_only=True):
    """One request: a body that stays the same however often it is sent.

    `last` is the number of its last line, `lines` how many there are.
    """

    message_id: str
    content_type: str
    body: bytes
    last: int
    lines: int

    def headers(self, webhook: Webhook, *, at_ms: int) -> Headers:
        """Its headers, signed with the secrets that the webhook has by now."""
        secrets = [webhook.secret]
        if webhook.old_secret is not None and at_ms < (webhook.old_until_ms or 0):
            secrets.append(webhook.old_secret)
        signed = standard_webhooks.headers(self.message_id, at_ms // 1_000, self.body, secrets)
        return (("Content-Type", self.content_type), *signed)


class MessageLook(Struct, frozen=True, kw_only=True):
    """What was found after a number: a message, or None up to `end`; `more` lines are there."""

    message: Message | None
    end: int
    more: bool


class Messages:
    """Makes the messages of all webhooks of a service."""

    def __init__(self, control: Control, feed: Feed, place: ResourceLocation) -> None:
        self._control = control
        self._feed = feed
        self._place = place

    async def after(self, number: int, webhook: Webhook) -> MessageLook:
        """The next message. Raises StoreFailed."""
        found = await self._feed.after(
            number, _filter(webhook), lines=webhook.batch, size=MESSAGE_BYTES_MAX
        )
        bodies = [
            body for _, json in found.lines if (body := await self._body(webhook, json)) is not None
        ]
        if not bodies:
            return MessageLook(message=None, end=found.end, more=found.more)
        journal = self._feed.journal
        first, last = (
            str(self._feed.position(one[0])) for one in (found.lines[0], found.lines[-1])
        )
        named = first if first == last else f"{first}_{last}"
        message = Message(
            message_id=f"{journal.installation}-{named}",
            content_type=_content_type(webhook),
            body=_joined(webhook, bodies),
            last=found.end,
            lines=len(bodies),
        )
        return MessageLook(message=message, end=found.end, more=found.more)

    async def _body(self, webhook: Webhook, json: bytes) -> bytes | None:
        """A line as the format has it; None if it has no words for it."""
        if webhook.format is WebhookFormat.CLOUDEVENTS:
            return json
        line = _decoder.decode(json)
        if webhook.format is WebhookFormat.TEXT:
            text = text_of(line)
            return None if text is None else chat_text(text).encode()
        event_id, scope_name = line.data.event_id, line.data.scope
        if event_id is None or scope_name is None:
            return None
        event = await self._control.read(lambda store: store.event(event_id))
        scope = self._control.fleet.scope(scope_name)
        kind = None if scope is None else scope.kind
        made = event_grid.grid_event(line, event, kind, self._place)
        return None if made is None else msgspec.json.encode(made)

    def test(self, webhook: Webhook, *, at_ms: int, mark: str) -> Message:
        """A marked message, in the format of the webhook. `mark` tells it from other tests."""
        line = CloudEvent(
            specversion=SPEC_VERSION,
            id=f"test-{mark}",
            source=f"/forewarn/{self._feed.journal.installation}",
            type=TYPE_PREFIX + TEST_KIND,
            time=needed_time_text(at_ms),
            datacontenttype="application/json",
            sequence="test",
            data=FeedData(
                kind=FactKind.SCHEDULED,
                number=0,
                scope="test",
                event_id=TEST_EVENT_ID,
                detail={
                    "event_type": EventType.FREEZE,
                    "event_source": EventSource.PLATFORM,
                    "resources": ["test"],
                    "not_before_ms": at_ms,
                },
            ),
        )
        return Message(
            message_id=f"{self._feed.journal.installation}-test-{mark}",
            content_type=_content_type(webhook),
            body=_joined(webhook, [self._test_body(webhook, line)]),
            last=0,
            lines=1,
        )

    def _test_body(self, webhook: Webhook, line: CloudEvent) -> bytes:
        text = TEST_TEXT.format(name=webhook.name)
        if webhook.format is WebhookFormat.TEXT:
            return chat_text(text).encode()
        if webhook.format is WebhookFormat.EVENTGRID:
            made = event_grid.grid_event(line, None, None, self._place) or {}
            made["data"]["resourceInfo"]["properties"]["Description"] = text
            return msgspec.json.encode(made)
        said = msgspec.to_builtins(line)
        said["data"] = {"text": text}
        return msgspec.json.encode(said)


def _filter(webhook: Webhook) -> FeedFilter:
    kinds = frozenset(webhook.kinds)
    spoken = _SPOKEN.get(webhook.format)
    if spoken is not None:
        # Without a kind of its own a format would let all through: a set of none lets none.
        kinds = (kinds & spoken or frozenset(kinds)) if kinds else spoken
    return FeedFilter(scopes=frozenset(webhook.scopes), kinds=kinds)


_SPOKEN = {
    WebhookFormat.TEXT: KINDS_WITH_TEXT,
    WebhookFormat.EVENTGRID: frozenset(event_grid.STATUSES),
}


def _content_type(webhook: Webhook) -> str:
    if webhook.format is not WebhookFormat.CLOUDEVENTS:
        return JSON_CONTENT_TYPE
    return CONTENT_TYPE if webhook.batch == 1 else BATCH_CONTENT_TYPE


def _joined(webhook: Webhook, bodies: Sequence[bytes]) -> bytes:
    match webhook.format:
        case WebhookFormat.TEXT:
            return msgspec.json.encode({"text": b"\n".join(bodies).decode()})
        case WebhookFormat.CLOUDEVENTS if webhook.batch == 1:
            return bodies[0]
        case _:
            return b"[" + b",".join(bodies) + b"]"
