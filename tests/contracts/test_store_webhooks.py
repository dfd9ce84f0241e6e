"""What every Store keeps of webhooks: their rows come back whole, also those that are disabled."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from forewarn.core.model import FactKind, Webhook, WebhookFormat
from forewarn.ports import Change, Store, StoreFailed
from support.batches import keep

FULL = Webhook(
    webhook_id="wh-1",
    name="it's \U0001f980",
    url="https://hooks.example.com/x",
    format=WebhookFormat.EVENTGRID,
    scopes=("web", "línea"),
    kinds=(FactKind.STARTED, FactKind.FAILED),
    batch=100,
    secret="whsec_MTIz",
    old_secret="whsec_NDU2",
    old_until_ms=1 << 60,
    number=1 << 53,
    generation=7,
    turn=9,
    made_ms=1,
    made_by="alice",
    failing_since_ms=2,
    failures=3,
    failing_ms=4,
    failure="answered 500",
    disabled_ms=5,
    disabled_by="webhooks",
    disabled_because="answered 500, 3 days long",
)
PLAIN = Webhook(
    webhook_id="wh-2",
    name="plain",
    url="https://hooks.example.com/y",
    secret="whsec_MTIz",
    number=0,
    generation=1,
    made_ms=1,
    made_by="bob",
)


def test_a_webhook_comes_back_as_it_was_kept(store: Store) -> None:
    keep(store, Change(webhooks=(PLAIN, FULL)))
    assert store.load().webhooks == (FULL, PLAIN)


def test_a_webhook_is_written_over_and_forgotten(store: Store) -> None:
    keep(store, Change(webhooks=(PLAIN, FULL)))
    moved = replace(PLAIN, number=12, generation=2, turn=3)
    keep(store, Change(webhooks=(moved,), removed_webhooks=("wh-1", "never-there")))
    assert store.load().webhooks == (moved,)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(PLAIN, batch=0),
        replace(PLAIN, batch=101),
        replace(PLAIN, number=-1),
        replace(PLAIN, failures=1),
        replace(PLAIN, old_secret="whsec_MTIz"),
        replace(PLAIN, disabled_ms=1),
    ],
)
def test_what_no_rule_makes_is_not_kept(store: Store, wrong: Webhook) -> None:
    with pytest.raises(Exception, match=r"(?i)check") as refused:
        keep(store, Change(webhooks=(wrong,)))
    assert not isinstance(refused.value, StoreFailed) or not refused.value.fatal
    assert store.load().webhooks == ()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_to_rows_the_last_value_is_kept(store: Store, seed: int) -> None:
    chance, there = random.Random(seed), dict[str, Webhook]()
    for number in range(50):
        webhook_id = f"wh-{chance.randrange(5)}"
        if chance.random() < 0.2:
            there.pop(webhook_id, None)
            keep(store, Change(removed_webhooks=(webhook_id,)))
            continue
        base = chance.choice([FULL, PLAIN])
        there[webhook_id] = replace(base, webhook_id=webhook_id, name=webhook_id, number=number)
        keep(store, Change(webhooks=(there[webhook_id],)))
    assert store.load().webhooks == tuple(there[key] for key in sorted(there))
