"""Reading a signed token (JWS, compact form) strictly, before anything of it is believed.

The header only says which key and algorithm to try. What it says of keys elsewhere (`jku`, `x5u`,
`jwk`, `x5c`) is never looked at.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import urlsafe_b64decode
from typing import Any, NoReturn

from msgspec import Struct

from forewarn.core.errors import BadToken

TOKEN_CHARS_MAX = 8 * 1_024  # those of issuers with hundreds of groups have some 6 KiB
KEY_ID_CHARS_MAX = 256
# What `typ` may say: nothing, any JWT, or an access token (RFC 9068). Others are for other uses:
# a logout token, a proof of a key, a security event.
TYPES = frozenset({"", "jwt", "at+jwt"})

_PART = re.compile(r"[A-Za-z0-9_-]+")
_SIGN_IN_AGAIN = "Send the access token or ID token as the issuer gave it."


class UnverifiedToken(Struct, frozen=True):
    """A token as it was sent. Nothing of it is known to be true."""

    text: str
    key_id: str
    algorithm: str
    issuer: str


def read_token(token: str) -> UnverifiedToken:
    """Take a token apart. Raises BadToken for what is no token, or not one that callers show."""
    if len(token) > TOKEN_CHARS_MAX:
        raise BadToken(
            f"The token has more than {TOKEN_CHARS_MAX} characters.",
            "Have the issuer put fewer groups into it.",
        )
    parts = token.split(".")
    if len(parts) == 5:
        raise BadToken("The token is encrypted.", "Have the issuer sign it without encrypting it.")
    if len(parts) != 3 or not all(_PART.fullmatch(part) for part in parts):
        raise BadToken("This is not a signed token.", _SIGN_IN_AGAIN)
    header, claims = (read_json(_decoded(part)) for part in parts[:2])
    _need_plain(header)
    key_id, algorithm, issuer = header.get("kid"), header.get("alg"), claims.get("iss")
    if not isinstance(key_id, str) or not 1 <= len(key_id) <= KEY_ID_CHARS_MAX:
        raise BadToken("The token does not say which key of its issuer has signed it (`kid`).")
    if not isinstance(algorithm, str) or not isinstance(issuer, str):
        raise BadToken("The token does not say who has signed it, or how.", _SIGN_IN_AGAIN)
    return UnverifiedToken(token, key_id, algorithm, issuer)


def _need_plain(header: dict[str, Any]) -> None:
    """Refuse what must be understood and is not (RFC 7515, 4.1.11), and tokens for other uses."""
    if "crit" in header or "b64" in header or "zip" in header:
        raise BadToken("The token uses extensions that this service does not understand.")
    if "cty" in header:
        raise BadToken("The token holds another token.", _SIGN_IN_AGAIN)
    kind = header.get("typ", "")
    if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in TYPES:
        raise BadToken("The token is of a type that callers do not send.", _SIGN_IN_AGAIN)


def _decoded(part: str) -> bytes:
    try:
        return urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        raise BadToken("This is not a signed token.", _SIGN_IN_AGAIN) from None


def read_json(content: bytes) -> dict[str, Any]:
    """The members of a JSON object, each given once. Raises BadToken."""
    try:
        found = json.loads(
            content.decode(), object_pairs_hook=_each_once, parse_constant=_no_number
        )
    except (ValueError, RecursionError):
        raise BadToken("The token is not JSON, or gives a name twice.") from None
    if not isinstance(found, dict):
        raise BadToken("The token is not JSON, or gives a name twice.")
    return found


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name is given twice")
    return members


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")
