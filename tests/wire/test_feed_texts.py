"""Lines of the feed as texts for people: each says what, where, when, and what helps."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from forewarn.core.facts import (
    ApprovedDetail,
    CanceledDetail,
    ClaimedDetail,
    CompletedDetail,
    DisabledDetail,
    FailedDetail,
    HeldDetail,
    HostFailedDetail,
    OrderedDetail,
    PostponedDetail,
    ScheduledDetail,
    StartedDetail,
    WebhookDisabledDetail,
)
from forewarn.core.model import Cause, Detail, EventSource, EventType, Fact, FactKind
from forewarn.wire.cloud_events import CloudEvent, cloud_event, encoded
from forewarn.wire.feed_texts import KINDS_WITH_TEXT, TEXT_CHARS_MAX, chat_text, text_of

ID = "4D6A3A5B-6B0E-4D5A-9C9B-0F5B3D1E7A11"
AT_MS = 1_772_532_000_000
NAMES = ("web_0", "web_1")


def line(kind: FactKind, detail: Detail | None, **more: Any) -> CloudEvent:
    about = {"scope": "web", "event_id": ID, "host": "h1", **more}
    fact = Fact(kind=kind, at_ms=AT_MS, detail=detail, **about)
    made = encoded(cloud_event(fact, 7, generation=1, installation="x"))
    return msgspec.json.decode(made, type=CloudEvent)


def scheduled(**more: Any) -> ScheduledDetail:
    said = {
        "event_type": EventType.REBOOT,
        "event_source": EventSource.PLATFORM,
        "cause": Cause.MAINTENANCE,
        "resources": NAMES,
        "update_domain": 0,
        "not_before_ms": AT_MS,
        "silent": False,
        **more,
    }
    return ScheduledDetail(**said)


ABOUT: dict[str, Any] = {"event_type": EventType.REBOOT, "resources": NAMES}
REBOOT = "Reboot of web_0, web_1 in scope web on host h1"


@pytest.mark.parametrize(
    ("kind", "detail", "text"),
    [
        (
            FactKind.SCHEDULED,
            scheduled(),
            f"Announced: {REBOOT}, not before Tue, 03 Mar 2026 10:00:00 GMT. [4D6A3A5B]",
        ),
        (
            FactKind.SCHEDULED,
            scheduled(silent=True),
            (
                f"Announced: {REBOOT}, not before Tue, 03 Mar 2026 10:00:00 GMT."
                " No VM of the scope listens, so none reads it. [4D6A3A5B]"
            ),
        ),
        (FactKind.STARTED, StartedDetail(**ABOUT), f"Starting: {REBOOT}. [4D6A3A5B]"),
        (FactKind.COMPLETED, CompletedDetail(**ABOUT), f"Done: {REBOOT}. [4D6A3A5B]"),
        (
            FactKind.FAILED,
            FailedDetail(**ABOUT, reason="it was lost"),
            f"Failed: {REBOOT}: it was lost. [4D6A3A5B]",
        ),
        (
            FactKind.CANCELED,
            CanceledDetail(**ABOUT, reason="by alice"),
            f"Canceled: {REBOOT}: by alice. [4D6A3A5B]",
        ),
        (
            FactKind.POSTPONED,
            PostponedDetail(not_before_ms=AT_MS, postponements=1, postponed_ms=1),
            (
                "Postponed: an event of scope web, now not before Tue, 03 Mar 2026 10:00:00 GMT."
                " [4D6A3A5B]"
            ),
        ),
        (
            FactKind.HELD,
            HeldDetail(release="forewarn scope release web"),
            (
                "Held: platform events of scope web wait, because an event has failed."
                " To go on: forewarn scope release web [4D6A3A5B]"
            ),
        ),
        (
            FactKind.APPROVED,
            ApprovedDetail(**ABOUT, overridden_by="alice", reason="it cannot wait"),
            (
                f"Override: alice has approved {REBOOT} in the place of its VMs."
                " Reason: it cannot wait. [4D6A3A5B]"
            ),
        ),
        (
            FactKind.DISABLED,
            DisabledDetail(last_poll_ms=AT_MS),
            (
                "Silent: no VM of scope web has asked for 24 hours (last Tue, 03 Mar 2026 10:00:00"
                " GMT). Its agents hear of no new event until one asks again."
            ),
        ),
        (
            FactKind.ORDERED,
            OrderedDetail(
                event_type=EventType.REBOOT,
                cause=Cause.MAINTENANCE,
                broke_domains=("web", "db"),
                reason="fire",
            ),
            (
                "Override: alice has ordered a Reboot of host h1 that hits two update domains of"
                " web, db at once. Reason: fire."
            ),
        ),
        (
            FactKind.HOST_FAILED,
            HostFailedDetail(fenced=True),
            "Failed: host h1 is declared failed.",
        ),
        (
            FactKind.WEBHOOK_DISABLED,
            WebhookDisabledDetail(
                webhook="wh-1", name="ops", to="https://x", because="answered 503, 3 days long"
            ),
            "Disabled: the webhook ops sends no more: answered 503, 3 days long.",
        ),
    ],
)
def test_each_line_for_people_has_its_words(kind: FactKind, detail: Detail, text: str) -> None:
    assert text_of(line(kind, detail, by="alice")) == text


def test_lines_that_are_not_for_people_have_no_text() -> None:
    assert text_of(line(FactKind.CLAIMED, ClaimedDetail(action_id="a", epoch=1))) is None
    assert text_of(line(FactKind.APPROVED, ApprovedDetail(**ABOUT))) is None
    of_operation = line(FactKind.STARTED, StartedDetail(), event_id=None, operation_id="O")
    assert text_of(of_operation) is None


def test_a_line_that_says_less_than_it_should_has_a_text_all_the_same() -> None:
    for kind in KINDS_WITH_TEXT:
        text = text_of(line(kind, None, scope=None, host=None))
        assert text is None or text


def test_a_text_is_short_whatever_the_line_says() -> None:
    reason = "x" * 5_000
    text = text_of(line(FactKind.FAILED, FailedDetail(**ABOUT, reason=reason)))
    assert text is not None
    assert len(text) == TEXT_CHARS_MAX


def test_a_name_cannot_call_a_channel_together() -> None:
    assert chat_text("Failed: <!channel> & more") == "Failed: &lt;!channel&gt; &amp; more"
