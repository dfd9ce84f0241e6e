"""A small OIDC issuer on loopback, with keys of its own, and tokens of every form a test wants.

It signs with cryptography alone and shares nothing with what checks its tokens.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives import hashes, hmac, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
Answer = tuple[int, Mapping[str, str], bytes | Iterable[bytes]]
AUDIENCE = "forewarn"
POLL_S = 0.01  # how soon it notices that it is to end


def b64(content: bytes | str) -> str:
    raw = content.encode() if isinstance(content, str) else content
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def rsa_key(bits: int = 2_048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65_537, bits)


def ec_key(curve: ec.EllipticCurve | None = None) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve or ec.SECP256R1())


def jwk(key: PrivateKey, key_id: str | None, **more: object) -> dict[str, object]:
    """The public half as an issuer publishes it."""
    named = {} if key_id is None else {"kid": key_id}
    public = key.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        found = public.public_numbers()
        return {"kty": "RSA", "n": number(found.n), "e": number(found.e), **named, **more}
    if isinstance(public, ec.EllipticCurvePublicKey):
        point = public.public_numbers()
        size = (public.curve.key_size + 7) // 8
        x, y = (b64(one.to_bytes(size, "big")) for one in (point.x, point.y))
        names = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
        curve = names.get(public.curve.name, public.curve.name)
        return {"kty": "EC", "crv": curve, "x": x, "y": y, **named, **more}
    raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return {"kty": "OKP", "crv": "Ed25519", "x": b64(raw), **named, **more}


def pem(key: PrivateKey) -> bytes:
    """The public half as text: what a forger takes for a secret."""
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


_HASHES: dict[str, hashes.HashAlgorithm] = {
    "256": hashes.SHA256(),
    "384": hashes.SHA384(),
    "512": hashes.SHA512(),
}


def signature(key: PrivateKey | bytes, algorithm: str, content: bytes) -> bytes:
    """A signature as `algorithm` says; with bytes as a key an HMAC."""
    digest = _HASHES.get(algorithm[-3:], hashes.SHA256())
    if isinstance(key, bytes):
        made = hmac.HMAC(key, digest)
        made.update(content)
        return made.finalize()
    if isinstance(key, rsa.RSAPrivateKey):
        pss = padding.PSS(padding.MGF1(digest), padding.PSS.DIGEST_LENGTH)
        filled = pss if algorithm.startswith("PS") else padding.PKCS1v15()
        return key.sign(content, filled, digest)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = utils.decode_dss_signature(key.sign(content, ec.ECDSA(digest)))
        size = (key.curve.key_size + 7) // 8
        return r.to_bytes(size, "big") + s.to_bytes(size, "big")
    return key.sign(content)


def signed(
    header: Mapping[str, object] | bytes,
    claims: Mapping[str, object] | bytes,
    key: PrivateKey | bytes | None,
    algorithm: str,
) -> str:
    """A token of exactly these parts; without a key it has no signature."""
    parts = [b64(one if isinstance(one, bytes) else json.dumps(one)) for one in (header, claims)]
    content = ".".join(parts)
    if key is None:
        return f"{content}."
    return f"{content}.{b64(signature(key, algorithm, content.encode()))}"


@dataclass
class OidcIssuer:
    """An issuer that a test tells what to publish."""

    url: str
    keys: dict[str, PrivateKey] = field(default_factory=dict)
    more_keys: list[object] = field(default_factory=list)  # published as they are
    answers: dict[str, Callable[[], Answer]] = field(default_factory=dict)  # instead of ours
    asked: list[str] = field(default_factory=list)  # paths, in the order of the questions
    hangs: threading.Event = field(default_factory=threading.Event)  # set: it answers again

    def rotate(self, key_id: str, key: PrivateKey | None = None) -> None:
        """Publish this key and no other."""
        self.keys = {key_id: key or ec_key()}

    def token(
        self,
        now_s: float,
        *,
        key_id: str | None = None,
        header: Mapping[str, object] | None = None,
        algorithm: str = "ES256",
        **claims: object,
    ) -> str:
        """A good token, but for what is given; a claim or member that is None is left out."""
        signer = key_id or next(iter(self.keys))
        said: dict[str, Any] = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "u-1",
            "iat": now_s,
            "exp": now_s + 600,
            "roles": ["ops"],
            "preferred_username": "ann",
            **claims,
        }
        named = {"alg": algorithm, "kid": signer, "typ": "JWT", **(header or {})}
        kept = {name: value for name, value in said.items() if value is not None}
        plain = {name: value for name, value in named.items() if value is not None}
        return signed(plain, kept, self.keys[signer], algorithm)

    def published(self, path: str) -> Answer:
        self.asked.append(path)
        if path in self.answers:
            return self.answers[path]()
        if path == "/.well-known/openid-configuration":
            return document({"issuer": self.url, "jwks_uri": f"{self.url}/keys"})
        if path == "/keys":
            listed = [jwk(key, key_id) for key_id, key in self.keys.items()]
            return document({"keys": [*listed, *self.more_keys]})
        return 404, {}, b"nothing"


def document(content: object) -> Answer:
    return 200, {"Content-Type": "application/json"}, json.dumps(content).encode()


class _Handler(BaseHTTPRequestHandler):
    issuer: OidcIssuer

    def do_GET(self) -> None:
        try:
            status, headers, body = self.issuer.published(self.path)
            self.send_response(status)
            whole = {"Content-Length": str(len(body))} if isinstance(body, bytes) else {}
            for name, value in {**whole, **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            for piece in [body] if isinstance(body, bytes) else body:
                self.wfile.write(piece)
        except OSError:  # who asked has had enough
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing on standard error."""


@contextmanager
def issuing() -> Iterator[OidcIssuer]:
    """An issuer on a free port for the length of the block, with one key."""
    issuer = OidcIssuer("")
    handler = type("Handler", (_Handler,), {"issuer": issuer})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
        issuer.rotate("k1")
        thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), name="issuer")
        thread.start()
        try:
            yield issuer
        finally:
            issuer.hangs.set()
            server.shutdown()
            thread.join(60)
