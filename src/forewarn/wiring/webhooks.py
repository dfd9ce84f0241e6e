"""What sends the feed to webhooks, put together. Loaded with the first webhook of a service."""

from __future__ import annotations

from collections.abc import Iterable

from forewarn.adapters.system import SystemClock
from forewarn.adapters.webhook_client import WebhookClient
from forewarn.control.control import Control
from forewarn.control.feed import Feed
from forewarn.control.webhook_sender import WebhookSender
from forewarn.core.webhook_targets import targets_of
from forewarn.wire.instance import ResourceLocation


def new_sender(
    control: Control, feed: Feed, *, targets: Iterable[str], place: ResourceLocation
) -> WebhookSender:
    """Who sends to the webhooks of this control, to public places and to listed ones."""
    client = WebhookClient(targets_of(targets))
    # The machine's own clock, also in the emulator: receivers know of no other.
    return WebhookSender(control, feed, post=client.post, clock=SystemClock(), place=place)
