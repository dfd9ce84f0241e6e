"""Webhooks, as admins order them and as what is sent moves them on.

Each function decides one command. The rules are `core.webhooks`.
"""

from __future__ import annotations

from forewarn.control import commands
from forewarn.control.transaction import Transaction
from forewarn.core import webhooks
from forewarn.core.model import Webhook
from forewarn.core.webhooks import Surroundings, WebhookChange


def order_webhook(tx: Transaction, command: commands.OrderWebhook) -> Webhook:
    order = webhooks.OrderOnWebhook(
        webhook_id=command.webhook_id, do=command.do, by=command.by, webhooks=tx.webhooks
    )
    return _kept(tx, webhooks.ordered(order, _there(tx)))


def note_delivery(tx: Transaction, command: commands.NoteDelivery) -> bool:
    webhook = tx.webhooks.get(command.webhook_id)
    if webhook is None or webhook.turn != command.turn or webhook.disabled_ms is not None:
        return False
    _kept(tx, webhooks.progressed(webhook, command.progress, _there(tx), command.by))
    return True


def _there(tx: Transaction) -> Surroundings:
    journal = tx.journal
    return Surroundings(
        scopes=tx.scopes,
        end=journal.end,
        oldest=journal.pruned_through + 1,
        generation_of=journal.generation_of,
        now_ms=tx.now_ms,
    )


def _kept(tx: Transaction, made: WebhookChange) -> Webhook:
    webhook = made.webhook
    if made.gone:
        tx.put_webhook(webhook.webhook_id, None)
    elif webhook != tx.webhooks.get(webhook.webhook_id):
        tx.put_webhook(webhook.webhook_id, webhook)
    tx.note(*made.facts)
    return webhook
