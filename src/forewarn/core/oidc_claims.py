"""What the claims of a signed token grant: checked against what the settings say of its issuer.

Only values live here. That a claim is the issuer's was found out before (`adapters.oidc`); what a
token says of itself in its header is of no interest here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping

from msgspec import Struct

from forewarn.core.access import Access, Role
from forewarn.core.attributes import NAME
from forewarn.core.errors import BadToken, NoRole
from forewarn.core.model import SECOND_MS
from forewarn.core.principal import (
    OPERATOR_NAME_CHARS_MAX,
    RESERVED_NAMES,
    Principal,
    PrincipalKind,
)

LEEWAY_S = 60  # by which the clocks of issuer and service may differ
LIFETIME_S = 2 * 3_600
LIFETIME_S_MAX = 86_400
SUBJECT_CHARS_MAX = 255  # OpenID Connect Core 1.0, section 2
TIME_S_MAX = 1 << 40  # far beyond every date that is meant

# Claims that hold several values in one text, divided by spaces (RFC 9068, 2.2.3; `scp` of Entra).
_SPACED = frozenset({"scope", "scp"})
# The role that counts is the last of these that a claim gives.
_RANKS = (Role.VIEWER, Role.OWNER, Role.OPERATOR, Role.ADMIN)

Claims = Mapping[str, object]
ClaimPath = tuple[str, ...]  # the names of nested claims, from the outermost on


class IssuerRules(Struct, frozen=True, kw_only=True):
    """What the settings say of one issuer: for whom its tokens are, and what they grant."""

    issuer: str
    audience: tuple[str, ...]
    roles: Mapping[str, Role]  # by the values of the claim that gives them
    role_claim: ClaimPath = ("roles",)
    scopes_claim: ClaimPath = ()
    scopes_prefix: str = ""  # what values of that claim begin with that name a scope
    name_claim: ClaimPath = ("preferred_username",)
    lifetime_s: int = LIFETIME_S


def granted(claims: Claims, rules: IssuerRules, *, now_s: float) -> Access:
    """What the bearer of a token with these claims may do.

    Raises BadToken if the token is not for us or not for now, NoRole if it grants nothing.
    """
    _need_issuer(claims, rules)
    _need_time(claims, rules, now_s)
    _need_bearer(claims)
    subject = _subject(claims)
    role = _role(claims, rules)
    scopes = _scopes(claims, rules) if role is Role.OWNER else ()
    kind = PrincipalKind.OWNER if role is Role.OWNER else PrincipalKind.OPERATOR
    principal = Principal(
        kind=kind,
        id=f"oidc:{rules.issuer}#{subject}",
        name=_name(_found(claims, rules.name_claim), subject),
    )
    ends_ms = round((_time(claims, "exp") + LEEWAY_S) * SECOND_MS)
    return Access(principal=principal, role=role, scopes=scopes, ends_ms=ends_ms)


def _need_issuer(claims: Claims, rules: IssuerRules) -> None:
    if claims.get("iss") != rules.issuer:
        raise BadToken("The settings do not name the issuer of this token.")
    named = claims.get("aud")
    audience = named if isinstance(named, list) else [named]
    if not any(isinstance(one, str) and one in rules.audience for one in audience):
        raise BadToken(
            "The token is for another audience.",
            "Ask the issuer for one whose `aud` is what the settings of this service say.",
        )


def _need_time(claims: Claims, rules: IssuerRules, now_s: float) -> None:
    expires, issued = _time(claims, "exp"), _time(claims, "iat")
    if now_s >= expires + LEEWAY_S:
        raise BadToken("The token has expired.", "Ask the issuer for a new one.")
    begins = _time(claims, "nbf") if "nbf" in claims else issued
    if max(begins, issued) > now_s + LEEWAY_S:
        raise BadToken(
            "The token is not valid yet.",
            "If it is new, the clock of the issuer or of this service is wrong.",
        )
    if expires - issued > rules.lifetime_s:
        raise BadToken(
            "The token lives longer than this service allows.",
            f"Have the issuer make tokens of at most {rules.lifetime_s} s, or raise `lifetime`"
            " in the settings of this service.",
        )


def _time(claims: Claims, name: str) -> float:
    """A time of a token in seconds since 1970. Raises BadToken."""
    value = claims.get(name)
    if value is None:
        raise BadToken(f"The token has no `{name}`.")
    number = value if isinstance(value, int | float) else -1
    if isinstance(value, bool) or not 0 <= number <= TIME_S_MAX:
        raise BadToken(f"The `{name}` of the token is no time.")
    return float(number)


def _need_bearer(claims: Claims) -> None:
    """Refuse tokens that were made for something else than being shown by who has them."""
    if claims.get("cnf") is not None:
        raise BadToken(
            "The token is bound to a key of its owner, which this service does not check.",
            "Ask the issuer for a plain bearer token.",
        )
    if claims.get("events") is not None:
        raise BadToken("The token reports an event to a service, and lets no caller in.")


def _subject(claims: Claims) -> str:
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 1 <= len(subject) <= SUBJECT_CHARS_MAX:
        raise BadToken(f"The token has no `sub` of 1 to {SUBJECT_CHARS_MAX} characters.")
    if not subject.isprintable():
        raise BadToken("The `sub` of the token has characters that cannot be printed.")
    return subject


def _role(claims: Claims, rules: IssuerRules) -> Role:
    """The highest role that the claim gives. Raises NoRole."""
    given = {rules.roles[one] for one in _texts(claims, rules.role_claim) if one in rules.roles}
    for role in reversed(_RANKS):
        if role in given:
            return role
    raise NoRole(
        f"The token is good, but its claim {_shown(rules.role_claim)} gives no role here.",
        "Have the issuer put a value there that the table `roles` of the settings names.",
    )


def _scopes(claims: Claims, rules: IssuerRules) -> tuple[str, ...]:
    """The scopes of an owner, each once. Raises NoRole without any."""
    prefix, texts = rules.scopes_prefix, _texts(claims, rules.scopes_claim)
    named = (one.removeprefix(prefix) for one in texts if one.startswith(prefix))
    scopes = tuple(dict.fromkeys(one for one in named if NAME.fullmatch(one)))
    if not scopes:
        where = f"its claim {_shown(rules.scopes_claim)}" if rules.scopes_claim else "it"
        raise NoRole(
            f"The token gives the role owner, and {where} names no scope.",
            f"`scopes_claim` in the settings says which claim does{_prefixed(prefix)}.",
        )
    return scopes


def _prefixed(prefix: str) -> str:
    return f", with values that begin with {prefix}" if prefix else ""


def _shown(path: ClaimPath) -> str:
    return ".".join(path)


def _found(claims: Claims, path: ClaimPath) -> object:
    """The claim at a path; None if it is not there."""
    value: object = claims if path else None
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _texts(claims: Claims, path: ClaimPath) -> Iterator[str]:
    """The values of a claim that is a text or a list of texts."""
    value = _found(claims, path)
    if isinstance(value, str):
        yield from value.split() if path[-1] in _SPACED else (value,)
    elif isinstance(value, list):
        yield from (one for one in value if isinstance(one, str))


def _name(claimed: object, subject: str) -> str:
    """What people read: the claimed name if it can be shown and is not one of control's own."""
    for candidate in (claimed, subject):
        name = _printable(candidate) if isinstance(candidate, str) else ""
        if name and unicodedata.normalize("NFKC", name).casefold() not in RESERVED_NAMES:
            return name
    return _printable(f"oidc {subject}")


def _printable(text: str) -> str:
    """At most so many characters, without those that a terminal or a page would obey."""
    whole = unicodedata.normalize("NFC", text[: 4 * OPERATOR_NAME_CHARS_MAX])
    plain = "".join(c if c.isprintable() else " " for c in whole)
    return " ".join(plain.split())[:OPERATOR_NAME_CHARS_MAX].strip()
