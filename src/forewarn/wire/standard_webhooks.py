"""Standard Webhooks 1.0.0: what the headers of a request say, and how it is signed.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable

SECRET_PREFIX = "whsec_"  # noqa: S105 - what secrets begin with
SECRET_BYTES = 32
SECRET_BYTES_MIN = 24
ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"


def secret_text(random: bytes) -> str:
    """A secret as its receiver gets it."""
    return SECRET_PREFIX + base64.b64encode(random).decode()


def key_of(secret: str) -> bytes:
    """The bytes that sign. Raises ValueError for a text that is not a secret of this form."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("no secret") from None
    if not secret.startswith(SECRET_PREFIX) or len(key) < SECRET_BYTES_MIN:
        raise ValueError("no secret")
    return key


def headers(
    message_id: str, at_s: int, body: bytes, secrets: Iterable[str]
) -> tuple[tuple[str, str], ...]:
    """The three headers; one signature for each secret, divided by spaces."""
    signed = f"{message_id}.{at_s}.".encode() + body
    signatures = (
        f"v1,{base64.b64encode(hmac.digest(key_of(one), signed, hashlib.sha256)).decode()}"
        for one in secrets
    )
    return (
        (ID_HEADER, message_id),
        (TIMESTAMP_HEADER, str(at_s)),
        (SIGNATURE_HEADER, " ".join(signatures)),
    )
