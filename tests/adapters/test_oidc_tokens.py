"""Whose token it is: only what an issuer of the settings has signed lets a caller in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from forewarn.adapters.oidc.compact_tokens import TOKEN_CHARS_MAX
from forewarn.adapters.oidc.issuers import ATTEMPT_EVERY_MS, Issuers
from forewarn.adapters.oidc.key_sets import RSA_BITS, read_keys
from forewarn.core.access import Access, Role
from forewarn.core.errors import BadToken, NoRole
from forewarn.core.oidc_claims import IssuerRules
from support.clock import START_MS, ManualClock
from support.oidc_issuer import (
    AUDIENCE,
    OidcIssuer,
    b64,
    ec_key,
    issuing,
    jwk,
    number,
    pem,
    rsa_key,
    signed,
)

T = TypeVar("T")
NOW_S = START_MS // 1_000
LIMIT_S = 60.0
ROLES = {"ops": Role.OPERATOR}


def rules_of(*issuers: OidcIssuer) -> list[IssuerRules]:
    return [IssuerRules(issuer=one.url, audience=(AUDIENCE,), roles=ROLES) for one in issuers]


@dataclass
class World:
    """Two issuers of the settings, one that is not, and a clock."""

    ours: OidcIssuer
    other: OidcIssuer
    stranger: OidcIssuer
    clock: ManualClock

    def ask(self, *tokens: str) -> list[Access | BadToken]:
        """What becomes of tokens that come one after the other to a service that just started."""

        async def asked() -> list[Access | BadToken]:
            issuers = Issuers(rules_of(self.ours, self.other), self.clock)
            found: list[Access | BadToken] = []
            for token in tokens:
                try:
                    found.append(await issuers.access_for(token))
                except BadToken as bad:
                    found.append(bad)
            await issuers.close()
            return found

        return asyncio.run(within(asked))

    def refused(self, token: str) -> str:
        """Why a token is refused. A good one beside it lets in, so it is the token."""
        bad, good = self.ask(token, self.ours.token(NOW_S))
        assert isinstance(good, Access)
        assert isinstance(bad, BadToken), bad
        said = f"{bad.refused} {bad.accepted}"
        secret = token.rsplit(".", 1)[-1]
        assert len(secret) < 8 or secret not in said
        return bad.refused


def forged_claims(world: World) -> dict[str, object]:
    """What a forger would like to be signed."""
    wanted = {"iss": world.ours.url, "aud": AUDIENCE, "sub": "u", "roles": ["ops"]}
    return {**wanted, "iat": NOW_S, "exp": NOW_S + 60}


async def within(story: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(LIMIT_S):
        return await story()


@pytest.fixture
def world() -> Iterator[World]:
    with issuing() as ours, issuing() as other, issuing() as stranger:
        yield World(ours, other, stranger, ManualClock())


def test_a_token_of_an_issuer_lets_its_bearer_in(world: World) -> None:
    (found,) = world.ask(world.ours.token(NOW_S))

    assert isinstance(found, Access)
    assert found.role is Role.OPERATOR
    assert found.principal.id == f"oidc:{world.ours.url}#u-1"
    assert found.principal.name == "ann"


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        ("RS256", rsa_key()),
        ("RS512", rsa_key()),
        ("PS384", rsa_key()),
        ("ES256", ec_key()),
        ("ES384", ec_key(ec.SECP384R1())),
        ("ES512", ec_key(ec.SECP521R1())),
        ("EdDSA", ed25519.Ed25519PrivateKey.generate()),
    ],
)
def test_every_asymmetric_algorithm_of_the_list_is_taken(
    world: World, algorithm: str, key: ec.EllipticCurvePrivateKey
) -> None:
    world.ours.rotate("k", key)

    (found,) = world.ask(world.ours.token(NOW_S, algorithm=algorithm))

    assert isinstance(found, Access)


# The classic forgeries. In each of them only the one thing is wrong.


@pytest.mark.parametrize("none", ["none", "None", "NONE", "nOnE", ""])
def test_a_token_without_a_signature_is_refused(world: World, none: str) -> None:
    good = world.ours.token(NOW_S)
    claims = json.dumps({"iss": world.ours.url, "sub": "x"})
    header = b64(json.dumps({"alg": none, "kid": "k1"}))

    assert world.refused(f"{header}.{b64(claims)}.")
    assert world.refused(f"{header}.{good.split('.')[1]}.{good.split('.')[2]}")
    assert world.refused(good.rsplit(".", 1)[0] + ".")
    assert world.refused(good.rsplit(".", 1)[0])


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_the_public_key_is_no_secret_to_sign_with(world: World, algorithm: str) -> None:
    key = rsa_key()
    world.ours.rotate("k1", key)
    claims = forged_claims(world)
    header = {"alg": algorithm, "kid": "k1"}
    published = json.dumps(jwk(key, "k1")).encode()
    der = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )

    for secret in (pem(key), pem(key).strip(), der, published, b"k1"):
        forged = signed(header, claims, secret, algorithm)
        (bad,) = world.ask(forged)
        assert isinstance(bad, BadToken)
        assert "not accepted" in bad.refused


def test_a_symmetric_key_that_an_issuer_publishes_is_never_used(world: World) -> None:
    secret = b"published for all to see, and long enough"
    world.ours.more_keys.append({"kty": "oct", "kid": "s", "k": b64(secret), "alg": "HS256"})
    world.ours.more_keys.append({"kty": "oct", "kid": "k1", "k": b64(secret)})
    claims = forged_claims(world)

    for key_id in ("s", "k1"):
        forged = signed({"alg": "HS256", "kid": key_id}, claims, secret, "HS256")
        assert world.refused(forged)


def test_a_changed_claim_header_or_signature_is_noticed(world: World) -> None:
    header, claims, signature = world.ours.token(NOW_S).split(".")
    other = world.ours.token(NOW_S, sub="root", roles=["ops", "boss"]).split(".")

    assert "signature" in world.refused(f"{header}.{other[1]}.{signature}")
    assert "signature" in world.refused(f"{header}.{claims}.{other[2]}")
    changed = b64(json.dumps({"alg": "ES256", "kid": "k1"}))
    assert "signature" in world.refused(f"{changed}.{claims}.{signature}")
    assert "signature" in world.refused(f"{header}.{claims}.{signature[:-4]}AAAA")


def test_no_character_of_a_token_can_be_another(world: World) -> None:
    good = world.ours.token(NOW_S)
    changed = [
        good[:at] + other + good[at + 1 :]
        for at, one in enumerate(good)
        for other in ("A" if one != "A" else "B", ".")
        if other != one
    ]

    found = world.ask(good, *changed)

    assert isinstance(found[0], Access)
    assert [one for one in found[1:] if not isinstance(one, BadToken)] == []


def test_a_token_of_an_issuer_that_is_not_in_the_settings_is_refused(world: World) -> None:
    assert "do not name the issuer" in world.refused(world.stranger.token(NOW_S))
    assert world.stranger.asked == []


def test_a_key_of_one_issuer_signs_nothing_for_another(world: World) -> None:
    world.other.rotate("theirs")
    stolen = world.other.token(NOW_S, iss=world.ours.url)
    assert "does not have" in world.refused(stolen)
    # Also where both have a key of that name.
    world.other.rotate("k1")
    assert "signature" in world.refused(world.other.token(NOW_S, iss=world.ours.url))


def test_the_same_subject_of_two_issuers_is_two_principals(world: World) -> None:
    one, two = world.ask(world.ours.token(NOW_S), world.other.token(NOW_S))

    assert isinstance(one, Access)
    assert isinstance(two, Access)
    assert one.principal.id != two.principal.id


def test_keys_that_a_token_brings_or_names_are_never_looked_at(world: World) -> None:
    mine = ec_key()
    world.stranger.rotate("k1", mine)
    where = f"{world.stranger.url}/keys"
    for header in (
        {"jwk": jwk(mine, "k1")},
        {"jku": where},
        {"x5u": where},
        {"x5c": [b64(b"certificate")]},
        {"jwk": jwk(mine, "evil"), "kid": "evil"},
        {"jku": where, "kid": "evil"},
    ):
        forged = world.stranger.token(NOW_S, iss=world.ours.url, header=header)
        assert world.refused(forged)
        # A token that is good is good whatever it says there.
        (good,) = world.ask(world.ours.token(NOW_S, header={**header, "kid": "k1"}))
        assert isinstance(good, Access)
    assert world.stranger.asked == []


@pytest.mark.parametrize(
    "key_id",
    [None, "", 7, ["k1"], "k2", "K1", "../../k1", "k1\0", "' OR 1=1 --", "x" * 300, "k1 "],
)
def test_a_token_names_a_key_that_its_issuer_has(world: World, key_id: object) -> None:
    assert world.refused(world.ours.token(NOW_S, header={"kid": key_id}))


@pytest.mark.parametrize(
    "header",
    [
        {"crit": ["exp"]},
        {"crit": []},
        {"b64": False, "crit": ["b64"]},
        {"b64": True},
        {"zip": "DEF"},
        {"cty": "JWT"},
        {"typ": "logout+jwt"},
        {"typ": "dpop+jwt"},
        {"typ": "application/secevent+jwt"},
        {"typ": "kb+jwt"},
        {"typ": 7},
        {"alg": 7},
        {"alg": None},
        {"alg": ["ES256"]},
        {"alg": "RS256"},
        {"alg": "ES384"},
        {"alg": "ES256K"},
        {"alg": "dir"},
    ],
    ids=json.dumps,
)
def test_a_header_that_wants_something_else_is_refused(
    world: World, header: Mapping[str, object]
) -> None:
    assert world.refused(world.ours.token(NOW_S, header=header))


@pytest.mark.parametrize("kind", [None, "", "jwt", "JWT", "at+jwt", "application/at+jwt", "AT+JWT"])
def test_access_tokens_and_plain_ones_are_taken(world: World, kind: str | None) -> None:
    (found,) = world.ask(world.ours.token(NOW_S, header={"typ": kind}))

    assert isinstance(found, Access)


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": NOW_S - 61}, "expired"),
        ({"nbf": NOW_S + 61}, "not valid yet"),
        ({"iat": NOW_S + 61}, "not valid yet"),
        ({"exp": NOW_S + 86_400}, "lives longer"),
        ({"exp": None}, "`exp`"),
        ({"iat": None}, "`iat`"),
        ({"sub": None}, "`sub`"),
        ({"aud": "other"}, "audience"),
        ({"aud": ["other", "another"]}, "audience"),
        ({"aud": None}, "audience"),
    ],
    ids=str,
)
def test_a_token_that_is_not_for_us_or_not_for_now_says_so_in_one_sentence(
    world: World, claims: Mapping[str, Any], why: str
) -> None:
    said = world.refused(world.ours.token(NOW_S, **claims))

    assert why in said
    assert said.count(".") == 1


def test_a_good_token_without_a_role_is_told_so(world: World) -> None:
    async def story() -> None:
        issuers = Issuers(rules_of(world.ours), world.clock)
        with pytest.raises(NoRole):
            await issuers.access_for(world.ours.token(NOW_S, roles=["nothing"]))

    asyncio.run(within(story))


@pytest.mark.parametrize(
    "claims",
    [
        b'{"iss":"%s","aud":"forewarn","sub":"a","sub":"b"}',
        b'{"iss":"%s","aud":"forewarn","exp":1,"exp":9999999999}',
        b'{"iss":"https://a.example","iss":"%s"}',
        b'{"iss":"%s","groups":{"a":1,"a":2}}',
        b'{"iss":"%s","exp":NaN}',
        b'{"iss":"%s","exp":Infinity}',
        b'{"iss":"%s"',
        b'["%s"]',
        b'"%s"',
        b"null",
        b"",
        b"\xff\xfe",
        b"<html>%s</html>",
        b"[" * 4_000,
    ],
)
def test_claims_that_are_no_json_or_say_something_twice_are_refused(
    world: World, claims: bytes
) -> None:
    written = claims.replace(b"%s", world.ours.url.encode())
    header = {"alg": "ES256", "kid": "k1"}

    assert world.refused(signed(header, written, world.ours.keys["k1"], "ES256"))


@pytest.mark.parametrize(
    "header",
    [b'{"alg":"none","alg":"ES256","kid":"k1"}', b'{"alg":"ES256","kid":"k1","kid":"k2"}', b"[]"],
)
def test_a_header_that_says_something_twice_is_refused(world: World, header: bytes) -> None:
    claims = {"iss": world.ours.url, "aud": AUDIENCE, "sub": "u", "iat": NOW_S, "exp": NOW_S + 60}

    assert world.refused(signed(header, claims, world.ours.keys["k1"], "ES256"))


def test_a_token_in_a_token_is_refused(world: World) -> None:
    inner = world.ours.token(NOW_S)
    outer = signed(
        {"alg": "ES256", "kid": "k1", "cty": "JWT"}, inner.encode(), world.ours.keys["k1"], "ES256"
    )

    assert world.refused(outer)
    assert world.refused(f"{inner}.{inner}")
    assert "encrypted" in world.refused(".".join(["eyJ", "a", "b", "c", "d"]))


@pytest.mark.parametrize(
    "token",
    ["", ".", "..", "...", "a.b.c", "eyJ.eyJ.eyJ", "eyJhbGciOiJub25lIn0.e30.", "\u2028.\u2028.x"],
)
def test_what_is_no_token_is_refused(world: World, token: str) -> None:
    assert world.refused(token)


def test_a_huge_token_is_refused_before_anything_of_it_is_read(world: World) -> None:
    huge = world.ours.token(NOW_S, groups=["x" * 64] * (TOKEN_CHARS_MAX // 64))
    assert str(TOKEN_CHARS_MAX) in world.refused(huge)
    large = world.ours.token(NOW_S, groups=["g" * 40] * 100)
    (found,) = world.ask(large)
    assert isinstance(found, Access)


def test_a_signature_in_another_spelling_is_refused(world: World) -> None:
    good = world.ours.token(NOW_S)

    for spelled in (good + "=", good + "==", good.replace(".", ".\n"), f" {good}", good + "."):
        assert world.refused(spelled)


@pytest.mark.parametrize(
    "published",
    [
        {"use": "enc"},
        {"alg": "RS256"},
        {"alg": 7},
        {"kid": None},
        {"kid": 7},
        {"x": "AAAA"},
        {"crv": "secp256k1"},
        {"crv": 7},
        {"kty": "RSA"},
        {"kty": ["EC"]},
        {"d": b64(b"\x01" * 32)},
    ],
    ids=json.dumps,
)
def test_a_published_key_that_is_not_for_this_is_not_used(
    world: World, published: Mapping[str, object]
) -> None:
    key = ec_key()
    world.ours.more_keys.append({**jwk(key, "odd"), **published})
    world.ours.more_keys += [None, 7, "x", [], {}]
    world.ours.keys["odd"] = key
    token = world.ours.token(NOW_S, key_id="odd")
    del world.ours.keys["odd"]

    assert world.refused(token)


def test_a_published_private_key_is_not_used(world: World) -> None:
    key = ec_key()
    secret = b64(key.private_numbers().private_value.to_bytes(32, "big"))
    world.ours.keys["known"] = key
    token = world.ours.token(NOW_S, key_id="known")
    del world.ours.keys["known"]
    world.ours.more_keys.append({**jwk(key, "known"), "d": secret})

    assert world.refused(token)


def test_a_key_signs_in_the_way_only_that_is_published_with_it(world: World) -> None:
    key = rsa_key()
    world.ours.more_keys.append(jwk(key, "r", alg="RS256"))
    claims = forged_claims(world)
    for algorithm in ("PS256", "RS512"):
        token = signed({"alg": algorithm, "kid": "r"}, claims, key, algorithm)
        assert "signature" in world.refused(token)
    (found,) = world.ask(signed({"alg": "RS256", "kid": "r"}, claims, key, "RS256"))
    assert isinstance(found, Access)


def test_a_short_rsa_key_is_not_used_and_none_that_takes_long(world: World) -> None:
    world.ours.keys["short"] = rsa_key(1_024)
    assert world.refused(world.ours.token(NOW_S, key_id="short", algorithm="RS256"))
    for bits in (1_024, RSA_BITS[1] + 8):
        with pytest.raises(ValueError, match="no public key"):
            read_keys(
                {"keys": [{"kty": "RSA", "kid": "k", "e": "AQAB", "n": number(1 << bits - 1 | 1)}]}
            )
    good = read_keys(
        {"keys": [{"kty": "RSA", "kid": "k", "e": "AQAB", "n": number(1 << 2_047 | 1)}]}
    )
    assert "k" in good


def test_two_keys_of_one_name_are_both_tried_and_no_others(world: World) -> None:
    key, mine = ec_key(), ec_key()
    world.ours.more_keys = [jwk(key, "k1"), jwk(rsa_key(), "k1")]
    both = [world.ours.token(NOW_S)]
    world.ours.keys["k1"], first = key, world.ours.keys["k1"]
    both.append(world.ours.token(NOW_S))
    world.ours.keys["k1"] = mine
    forged = world.ours.token(NOW_S)
    world.ours.keys["k1"] = first

    assert all(isinstance(one, Access) for one in world.ask(*both))
    assert "signature" in world.refused(forged)


def test_after_a_rotation_the_new_key_is_taken_and_the_old_one_is_not(world: World) -> None:
    async def story() -> None:
        issuers = Issuers(rules_of(world.ours), world.clock)
        old = world.ours.token(NOW_S)
        await issuers.access_for(old)
        world.ours.rotate("k2")
        new = world.ours.token(NOW_S)
        with pytest.raises(BadToken):
            await issuers.access_for(new)  # its keys were looked at just now
        world.clock.pass_ms(ATTEMPT_EVERY_MS)
        await issuers.access_for(new)
        with pytest.raises(BadToken, match="does not have"):
            await issuers.access_for(old)

    asyncio.run(within(story))
