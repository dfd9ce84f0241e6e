"""Signatures of Standard Webhooks, by the vector of its libraries and by a few lines here."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from forewarn.wire.standard_webhooks import headers, key_of, secret_text

# Of the specification's reference libraries.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
AT_S = 1_614_265_330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_signature_is_that_of_the_reference_libraries() -> None:
    assert headers(MESSAGE_ID, AT_S, BODY, [SECRET]) == (
        ("webhook-id", MESSAGE_ID),
        ("webhook-timestamp", str(AT_S)),
        ("webhook-signature", SIGNATURE),
    )


def test_two_secrets_give_two_signatures_divided_by_a_space() -> None:
    other = secret_text(b"x" * 32)
    said = dict(headers(MESSAGE_ID, AT_S, BODY, [SECRET, other]))["webhook-signature"]
    content = f"{MESSAGE_ID}.{AT_S}.".encode() + BODY
    right = base64.b64encode(hmac.new(b"x" * 32, content, hashlib.sha256).digest()).decode()
    assert said.split(" ") == [SIGNATURE, f"v1,{right}"]


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_AAAA", "whsec_%%%%", "MfKQ9r8GKYqrTwjUPD8I"])
def test_what_is_no_secret_signs_nothing(text: str) -> None:
    with pytest.raises(ValueError, match="no secret"):
        key_of(text)
