"""The public keys of an issuer (RFC 7517), and the check of a signature with one of them.

The only module that knows PyJWT. Symmetric keys are never taken: what an issuer publishes is known
to all, and a signature with it proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from msgspec import Struct

from forewarn.adapters.oidc.compact_tokens import UnverifiedToken, read_json
from forewarn.core.errors import BadToken

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

KEYS_MAX = 64
KEYS_OF_ONE_ID_MAX = 4
RSA_BITS = (2_048, 8_192)  # a longer one takes the event loop's time at each request

_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_OF_CURVES: Mapping[str, frozenset[str]] = {
    "secp256r1": frozenset({"ES256"}),
    "secp384r1": frozenset({"ES384"}),
    "secp521r1": frozenset({"ES512"}),
}
_ED25519 = frozenset({"EdDSA"})
# Every algorithm that is taken. All are asymmetric; `none` and HMAC are not among them.
ALGORITHMS = frozenset({*_RSA, *frozenset().union(*_OF_CURVES.values()), *_ED25519})

_READERS: Mapping[object, Callable[[dict[str, Any]], object]] = {
    "RSA": RSAAlgorithm.from_jwk,
    "EC": ECAlgorithm.from_jwk,
    "OKP": OKPAlgorithm.from_jwk,
}
_UNREADABLE = (jwt.PyJWTError, UnsupportedAlgorithm, ValueError, TypeError, KeyError)
_JWS = jwt.PyJWS(algorithms=sorted(ALGORITHMS), options={"enforce_minimum_key_length": True})


class IssuerKey(Struct, frozen=True):
    """A public key, and the algorithms that a signature with it may have."""

    key_id: str
    key: PublicKey
    algorithms: frozenset[str]


class KeySet(Struct, frozen=True):
    """The keys of one issuer by their id. Two that share one are both tried."""

    keys: Mapping[str, tuple[IssuerKey, ...]]

    def __contains__(self, key_id: str) -> bool:
        return key_id in self.keys

    def verified(self, token: UnverifiedToken) -> dict[str, Any]:
        """The claims of a token, which the issuer has signed. Raises BadToken."""
        if token.algorithm not in ALGORITHMS:
            raise BadToken(
                "The token is signed in a way that is not accepted.",
                f"Accepted: {', '.join(sorted(ALGORITHMS))}.",
            )
        for one in self.keys.get(token.key_id, ()):
            if token.algorithm not in one.algorithms:
                continue
            try:
                found = _JWS.decode_complete(token.text, one.key, [token.algorithm])
            except (jwt.PyJWTError, ValueError, TypeError):
                continue
            return read_json(found["payload"])
        raise BadToken("The signature of the token is not that of its issuer.")


def read_keys(document: Mapping[str, Any]) -> KeySet:
    """The usable keys of a key set. Raises ValueError if it has none."""
    listed = document.get("keys")
    if not isinstance(listed, list) or len(listed) > KEYS_MAX:
        raise ValueError(f"it is no list of up to {KEYS_MAX} keys")
    by_id: dict[str, tuple[IssuerKey, ...]] = {}
    for key in _usable(listed):
        same = by_id.get(key.key_id, ())
        if len(same) < KEYS_OF_ONE_ID_MAX:
            by_id[key.key_id] = (*same, key)
    if not by_id:
        raise ValueError("it has no public key that signatures can be checked with")
    return KeySet(by_id)


def _usable(listed: list[Any]) -> Iterator[IssuerKey]:
    """What can be used of a list: public keys with an id, for signatures, of a fitting size."""
    for one in listed:
        key_id = one.get("kid") if isinstance(one, dict) else None
        if not isinstance(key_id, str) or not key_id or one.get("use", "sig") != "sig":
            continue
        key = _read_key(one)
        algorithms = _algorithms(key)
        stated = one.get("alg")
        if stated is not None:
            algorithms &= {stated} if isinstance(stated, str) else set()
        if key is not None and algorithms:
            yield IssuerKey(key_id, key, algorithms)


def _read_key(one: dict[str, Any]) -> PublicKey | None:
    """The public key; None for one that cannot be read, is symmetric, or is private."""
    kind = one.get("kty")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        return None
    try:
        found = read(one)
    except _UNREADABLE:
        return None
    return found if isinstance(found, PublicKey) else None  # a private one is known to all by now


def _algorithms(key: PublicKey | None) -> frozenset[str]:
    if isinstance(key, rsa.RSAPublicKey):
        return _RSA if RSA_BITS[0] <= key.key_size <= RSA_BITS[1] else frozenset()
    if isinstance(key, ec.EllipticCurvePublicKey):
        return _OF_CURVES.get(key.curve.name, frozenset())
    return _ED25519 if isinstance(key, ed25519.Ed25519PublicKey) else frozenset()
