"""Orders that may be sent again: the same key and the same words get the same answer.

The answer is written down in the transaction of the order itself, so it is there after a restart
if and only if the order is. A refused order leaves nothing behind and may be sent again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import msgspec

from forewarn.control import order_answers, order_previews, order_rights
from forewarn.control.commands import Answer, Once
from forewarn.control.order_answers import Decide
from forewarn.control.transaction import Transaction
from forewarn.core.errors import IdempotencyMismatch, Invalid
from forewarn.core.principal import OPERATOR
from forewarn.ports import RememberedAnswer

KEY_CHARS_MAX = 128

_KEY = re.compile(rf"[!-~]{{1,{KEY_CHARS_MAX}}}")  # visible ASCII, no spaces


def key_of(values: Sequence[str]) -> str | None:
    """The key that a request's header names, None without one. Raises Invalid for a bad one."""
    if not values:
        return None
    if len(values) > 1 or _KEY.fullmatch(values[0]) is None:
        raise Invalid(
            "The Idempotency-Key was not understood.",
            f"One key of 1 to {KEY_CHARS_MAX} visible ASCII characters would be accepted,"
            " for instance a UUID.",
        )
    return values[0]


def fingerprint(method: str, path: str, body: bytes, *, by: str = OPERATOR.id) -> str:
    """What makes two requests the same order: verb, path and body, byte for byte, and who asks.

    `by` is the id of the principal: what one was answered is not shown to another.
    """
    digest = hashlib.sha256()
    who = () if by == OPERATOR.id else (by.encode(),)  # as before there were others
    for part in (method.encode(), path.encode(), body, *who):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def replayed(tx: Transaction, *, key: str | None, fingerprint: str) -> Answer | None:
    """The answer that was given to this order before, None if it is new.

    Raises IdempotencyMismatch if the key was used for another order.
    """
    before = None if key is None else tx.remembered(key)
    if before is None:
        return None
    if before.fingerprint != fingerprint:
        raise IdempotencyMismatch(
            f"The Idempotency-Key {before.key} was used before, for another order.",
            "Send the same order again, or this one with a key of its own.",
        )
    return Answer(text=before.answer, repeated=True)


def once(tx: Transaction, command: Once, decide: Decide) -> Answer:
    """Carry an order out, or find the answer that it got before. Raises Forbidden."""
    order = order_rights.allowed(tx, command.access, command.order)
    before = replayed(tx, key=command.key, fingerprint=command.fingerprint)
    if before is not None:
        return before
    if command.effect:
        order_previews.refuse_other_effect(tx, order, command.effect)
    text = msgspec.json.encode(order_answers.carried_out(tx, order, decide)).decode()
    remember(tx, command.key, command.fingerprint, text)
    return Answer(text=text, repeated=False)


def remember(tx: Transaction, key: str | None, fingerprint: str, text: str) -> None:
    """Keep an answer with what its order changed, if it has a key."""
    if key is not None:
        tx.remember(
            RememberedAnswer(key=key, fingerprint=fingerprint, answer=text, at_ms=tx.now_ms)
        )
