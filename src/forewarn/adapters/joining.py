"""How a host becomes a member: with a one-time token, trusting only the control that made it.

A token is `fw1.<secret>.<fingerprint>`; the fingerprint is that of control's authority (SHA-256 of
its certificate in DER, base64url). The host fetches the authority from the server that answers,
compares it with the fingerprint, and only then sends anything. After a kill at any point the same
command works again, or control says that the token is used up and what to do.
"""

from __future__ import annotations

import base64
import hashlib
import ssl
from http import HTTPStatus
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from forewarn.adapters import host_credentials
from forewarn.adapters.control_link import ANSWER_LIMIT_S, Lane, NotAdmitted, problem
from forewarn.adapters.host_credentials import Credentials
from forewarn.adapters.system import SystemClock
from forewarn.core.errors import Conflict, Invalid, Refusal, Unavailable
from forewarn.wire import link as wire

TOKEN_KIND = "fw1"  # noqa: S105 - the kind, not the token


def fingerprint_in(token: str) -> str:
    """The fingerprint of the authority that a token carries. Raises Invalid."""
    parts = token.strip().split(".")
    if len(parts) != 3 or parts[0] != TOKEN_KIND or not all(parts):
        raise Invalid(
            "That is not a token to join with.",
            "A token looks like fw1.SECRET.FINGERPRINT; `forewarn host invite NAME` prints one.",
        )
    return parts[2].rstrip("=")


def fingerprint_of(authority_pem: bytes) -> str:
    """The fingerprint of an authority. Raises ValueError for what is no certificate."""
    certificate = x509.load_pem_x509_certificate(authority_pem)
    der = certificate.public_bytes(serialization.Encoding.DER)
    return base64.urlsafe_b64encode(hashlib.sha256(der).digest()).decode().rstrip("=")


async def join(folder: Path, *, control: str, name: str, token: str) -> Credentials:
    """Become the host `name` of that control; what proves it is on the disk afterwards.

    Raises Refusal if control says no, Unavailable if it cannot be asked.
    """
    expected = fingerprint_in(token)
    key_pem = host_credentials.joining_key(folder)
    request = host_credentials.signing_request(key_pem, name)
    authority = await _authority(control, expected)
    question = wire.Join(name=name, token=token.strip(), request=request)
    lane = _lane(control, host_credentials.trusting(authority))
    try:
        content = msgspec.json.encode(question)
        status, body = await lane.send("POST", "/link/join", content, limit_s=ANSWER_LIMIT_S)
    finally:
        await lane.close()
    if status != HTTPStatus.OK:
        raise _said_no(status, body)
    try:
        joined = msgspec.json.decode(body, type=wire.Joined)
    except msgspec.DecodeError as error:
        raise Unavailable(
            f"Control at {control} sent an answer that is not understood: {error}."
        ) from error
    if fingerprint_of(joined.authority.encode()) != expected:
        raise Conflict(
            f"Control at {control} names another authority than its token does.",
            "Make a new token with `forewarn host invite NAME --replace`.",
        )
    return host_credentials.keep(
        folder,
        key_pem=key_pem,
        certificate_pem=joined.certificate,
        authority_pem=joined.authority,
        control=control,
        token_digest=host_credentials.digest_of(token.strip()),
    )


def _lane(control: str, context: ssl.SSLContext) -> Lane:
    clock = SystemClock()
    return Lane(control, context, monotonic_ms=clock.monotonic_ms, heard=lambda *_: None)


async def _authority(control: str, expected: str) -> str:
    """The authority that the token means, from the server that answers. Sends it nothing yet."""
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    lane = _lane(control, unverified)
    try:
        status, body = await lane.send("GET", "/link/authority", limit_s=ANSWER_LIMIT_S)
    finally:
        await lane.close()
    if status != HTTPStatus.OK:
        raise problem(status, body)
    try:
        found = fingerprint_of(body)
    except ValueError as error:
        raise Unavailable(f"{control} sent no authority: {error}.") from error
    if found != expected:
        raise Conflict(
            f"The server that answers at {control} is not the control that made this token.",
            "Check the URL; if it is right, another machine stands in between, or control was made"
            " anew and `forewarn host invite NAME` there prints another token.",
        )
    return body.decode()


def _said_no(status: int, body: bytes) -> Exception:
    """A refusal to join stops the start with its words; anything else may be tried again."""
    found = problem(status, body)
    return Refusal(str(found)) if isinstance(found, NotAdmitted) else found
