"""Tokens by which people and programs come in over TCP: what one is, how it is made, how it ends.

A token is `fwt_<id>_<secret>`. The id is public and names it in lists and in the journal; of the
secret only a hash is known here, and nowhere is more than that kept. Nothing here makes a secret.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from forewarn.core.access import Access, Role
from forewarn.core.errors import Conflict, Invalid, NotFound, TokenEnded, TokenExists
from forewarn.core.facts import (
    AboutToken,
    TokenMadeDetail,
    TokenRevokedDetail,
    TokenRotatedDetail,
    by_whom,
)
from forewarn.core.model import DAY_MS, MINUTE_MS, Fact, FactKind
from forewarn.core.principal import Principal, PrincipalKind, refuse_name
from forewarn.core.suggestions import meant

TOKENS_MAX = 1_000  # in all: those that ended first make room for new ones
SCOPES_MAX = 100  # of one owner
VALID_MS_DEFAULT = 90 * DAY_MS
VALID_MS_MIN = MINUTE_MS
VALID_MS_MAX = 366 * DAY_MS
USED_EVERY_MS = 5 * MINUTE_MS  # the last use is kept so coarsely

ID_CHARS = 10
SECRET_BYTES = 25  # 200 bits
_BASE32 = "[a-z2-7]"
# The whole token, wherever it stands in a text; what is longer or shorter is no token of ours.
TOKEN = re.compile(rf"fwt_({_BASE32}{{{ID_CHARS}}})_({_BASE32}{{{SECRET_BYTES * 8 // 5}}})")
PRINCIPAL_PREFIX = "token:"  # of the id of its principal


class Token(Struct, frozen=True, kw_only=True):
    """A token as it is kept. `scopes` are those of an owner; `used_ms` is coarse."""

    token_id: str
    name: str
    role: Role
    scopes: tuple[str, ...] = ()
    secret_hash: str
    made_ms: int
    made_by: str
    expires_ms: int
    rotated_ms: int | None = None
    used_ms: int | None = None
    revoked_ms: int | None = None
    revoked_by: str | None = None

    def ended_ms(self, now_ms: int) -> int | None:
        """Since when it lets nothing in any more; None while it does."""
        if self.revoked_ms is not None:
            return self.revoked_ms
        return self.expires_ms if now_ms >= self.expires_ms else None

    def access(self) -> Access:
        """What it gives to who has it."""
        kind = PrincipalKind.OWNER if self.role is Role.OWNER else PrincipalKind.OPERATOR
        principal = Principal(kind=kind, id=f"{PRINCIPAL_PREFIX}{self.token_id}", name=self.name)
        return Access(principal=principal, role=self.role, scopes=self.scopes)


Tokens = Mapping[str, Token]  # by id


def token_text(token_id: str, secret: str) -> str:
    """The token as its owner gets it."""
    return f"fwt_{token_id}_{secret}"


def hash_of(text: str) -> str:
    """What is kept of a token. The secret is random and long, so a plain digest hides it."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def id_of(text: str) -> str | None:
    """The id in the text of a whole token; None if it is none of ours."""
    found = TOKEN.fullmatch(text)
    return None if found is None else found[1]


def refuse_ended(tokens: Tokens, by: Principal, now_ms: int) -> None:
    """Raises TokenEnded if the principal came by a token that lets nothing in any more."""
    if not by.id.startswith(PRINCIPAL_PREFIX):
        return
    token_id = by.id.removeprefix(PRINCIPAL_PREFIX)
    token = tokens.get(token_id)
    if token is None or token.ended_ms(now_ms) is not None:
        raise ended(token_id, token)


def ended(token_id: str, token: Token | None) -> TokenEnded:
    """That a token lets nothing in any more, and why."""
    remedy = "Ask an admin for another one: `forewarn token make NAME`."
    if token is None or token.revoked_ms is not None:
        return TokenEnded(f"The token fwt_{token_id} was revoked.", remedy)
    return TokenEnded(
        f"The token fwt_{token_id} has expired.",
        f"Ask an admin for a new secret: `forewarn token rotate {token_id}`.",
    )


def find(tokens: Tokens, given: str) -> Token:
    """The token of that id, or the one of that name that still lets in. Raises NotFound."""
    wanted = given.removeprefix("fwt_")
    if wanted in tokens:
        return tokens[wanted]
    named = [one for one in tokens.values() if one.name == given]
    if not named:
        known = [*tokens, *(one.name for one in tokens.values())]
        raise NotFound(
            f"There is no token {given}.{meant(given, known)}",
            "`forewarn token list` shows names and ids.",
        )
    # Of one name at most one lets in; of those that have ended the newest is meant.
    return max(named, key=lambda one: (one.revoked_ms is None, one.expires_ms, one.made_ms))


# Decisions.


class TokenTerms(Struct, frozen=True, kw_only=True):
    """A token as it is ordered. `later`: scopes that are not there yet are meant all the same."""

    token_id: str
    name: str
    role: Role
    scopes: tuple[str, ...]
    secret_hash: str
    valid_ms: int
    later: bool


class TokenChange(Struct, frozen=True):
    """A token that was made or changed, what the journal says, and tokens that made room."""

    token: Token
    fact: Fact
    dropped: tuple[str, ...] = ()


def make(
    tokens: Tokens, wanted: TokenTerms, *, scopes: Collection[str], by: Principal, now_ms: int
) -> TokenChange:
    """One more token. `scopes` are those that are there. Raises Invalid or TokenExists."""
    name = wanted.name
    refuse_name(name, "a token")
    _refuse_scopes(wanted, scopes)
    same = (one for one in tokens.values() if one.name == name and one.ended_ms(now_ms) is None)
    other = next(same, None)
    if other is not None:
        raise TokenExists(
            f"There is a token {name} already: fwt_{other.token_id}.",
            f"Choose another name, or say `forewarn token rotate {name}` for a new secret.",
        )
    if wanted.token_id in tokens:
        raise Conflict(f"There is a token fwt_{wanted.token_id} already.", "Order it again.")
    token = Token(
        token_id=wanted.token_id,
        name=name,
        role=wanted.role,
        scopes=wanted.scopes,
        secret_hash=wanted.secret_hash,
        made_ms=now_ms,
        made_by=by.name,
        expires_ms=_expires_ms(wanted.valid_ms, now_ms),
    )
    dropped = _room_for_one_more(tokens, now_ms)
    return TokenChange(
        token, _fact(FactKind.TOKEN_MADE, TokenMadeDetail, token, by, now_ms), dropped
    )


def rotate(
    token: Token, *, secret_hash: str, valid_ms: int, by: Principal, now_ms: int
) -> TokenChange:
    """The token with another secret and a new expiry; the old secret lets nothing in any more."""
    if token.revoked_ms is not None:
        raise Conflict(
            f"The token {token.name} (fwt_{token.token_id}) was revoked.",
            "A revoked token stays revoked: say `forewarn token make NAME`.",
        )
    rotated = replace(
        token,
        secret_hash=secret_hash,
        expires_ms=_expires_ms(valid_ms, now_ms),
        rotated_ms=now_ms,
        used_ms=None,
    )
    return TokenChange(
        rotated, _fact(FactKind.TOKEN_ROTATED, TokenRotatedDetail, rotated, by, now_ms)
    )


def revoke(token: Token, *, by: Principal, now_ms: int) -> TokenChange | None:
    """The token that lets nothing in any more; None if it was revoked before."""
    if token.revoked_ms is not None:
        return None
    revoked = replace(token, revoked_ms=now_ms, revoked_by=by.name)
    return TokenChange(
        revoked, _fact(FactKind.TOKEN_REVOKED, TokenRevokedDetail, revoked, by, now_ms)
    )


RESTORE = "restore"  # who has revoked a token that only a backup knows


def after_restore(kept: Iterable[Token], known: Tokens, now_ms: int) -> Iterator[Token]:
    """The tokens of a backup, once it takes the place of a database that knew these tokens.

    What was revoked or rotated since the backup stays so. A token that the database did not have
    any more lets no caller in: it was dropped, or is of a time that is undone.
    """
    for token in kept:
        if token.revoked_ms is not None:
            yield token
        elif token.token_id in known:
            yield known[token.token_id]
        else:
            yield replace(token, revoked_ms=now_ms, revoked_by=RESTORE)


def used(token: Token | None, used_ms: int) -> Token | None:
    """The token with its last use, if that is worth a write."""
    if token is None or used_ms - (token.used_ms or 0) < USED_EVERY_MS:
        return None
    return replace(token, used_ms=used_ms)


def _refuse_scopes(wanted: TokenTerms, scopes: Collection[str]) -> None:
    if (wanted.role is Role.OWNER) != bool(wanted.scopes):
        if wanted.scopes:
            raise Invalid(
                f"The role {wanted.role.value} is for the whole fleet, and has no scopes.",
                "Leave the scopes out, or say the role owner.",
            )
        raise Invalid("An owner needs scopes.", "Name at least one: --scope NAME.")
    if len(wanted.scopes) > SCOPES_MAX or len(set(wanted.scopes)) != len(wanted.scopes):
        raise Invalid(
            f"The order names {len(wanted.scopes)} scopes, or one of them twice.",
            f"Up to {SCOPES_MAX} scopes are accepted, each once.",
        )
    odd = [name for name in wanted.scopes if not name or not name.isprintable()]
    missing = [name for name in wanted.scopes if name not in scopes]
    if odd or (missing and not wanted.later):
        name = (odd or missing)[0]
        raise Invalid(
            f"There is no scope {name!r}.{meant(name, scopes)}",
            "Name scopes that are there, or say --later if they are to come.",
        )


def _expires_ms(valid_ms: int, now_ms: int) -> int:
    if not VALID_MS_MIN <= valid_ms <= VALID_MS_MAX:
        raise Invalid(
            "The token would be valid for too long, or too short.",
            f"From {VALID_MS_MIN // MINUTE_MS} minute to {VALID_MS_MAX // DAY_MS} days would be"
            " accepted; rotate it to use it for longer.",
        )
    return now_ms + valid_ms


def _room_for_one_more(tokens: Tokens, now_ms: int) -> tuple[str, ...]:
    """Those that have to go: the ones that ended first. Raises Conflict if too few have ended."""
    too_many = len(tokens) + 1 - TOKENS_MAX
    if too_many <= 0:
        return ()
    over = [(one.ended_ms(now_ms), one.token_id) for one in tokens.values()]
    gone = sorted((at_ms, token_id) for at_ms, token_id in over if at_ms is not None)
    if len(gone) < too_many:
        raise Conflict(
            f"There are {TOKENS_MAX} tokens, the most there may be.",
            "Revoke some: `forewarn token list` shows when each was last used.",
        )
    return tuple(token_id for _, token_id in gone[:too_many])


def _fact(
    kind: FactKind, about: type[AboutToken], token: Token, by: Principal, now_ms: int
) -> Fact:
    detail = about(
        token=token.token_id,
        name=token.name,
        role=token.role,
        scopes=token.scopes,
        expires_ms=token.expires_ms,
    )
    return by_whom(Fact(kind=kind, at_ms=now_ms, detail=detail), by)


def in_order(tokens: Iterable[Token]) -> Sequence[Token]:
    """As lists show them: by name, and of one name the newest first."""
    return sorted(tokens, key=lambda one: (one.name, -one.made_ms, one.token_id))
