"""The tables `[[oidc]]` of the settings: each is an issuer, and what its tokens grant."""

from __future__ import annotations

from collections.abc import Iterator

from forewarn.core.access import Role
from forewarn.core.addresses import is_safe_url
from forewarn.core.errors import Invalid
from forewarn.core.model import MINUTE_MS, SECOND_MS
from forewarn.core.oidc_claims import LIFETIME_S_MAX, IssuerRules
from forewarn.core.suggestions import shown
from forewarn.text.field_tables import Fields, Mistakes, Table
from forewarn.text.fields import Field, Mistake, Wrong, choice, duration, line, ruled, several

ISSUERS_MAX = 16
ROLES_MAX = 256
AUDIENCES_MAX = 16
CLAIM_PARTS_MAX = 8
TEXT_CHARS_MAX = 256

_TEXT = line(f"a text of 1 to {TEXT_CHARS_MAX} printable characters", TEXT_CHARS_MAX, chars_min=1)


def _url(text: str) -> str:
    if len(text) > TEXT_CHARS_MAX or not is_safe_url(text) or "?" in text:
        raise Invalid("This is not an issuer.")
    return text


def _one_or_several(accepted: str, limit: int) -> Field:
    """A text, or a list of texts that is not empty."""
    listed = several(accepted, _TEXT, split=str, limit=limit)

    def read(value: object) -> tuple[str, ...]:
        found: tuple[str, ...] = listed.read([value] if isinstance(value, str) else value)
        if not found:
            raise Wrong
        return found

    return Field(accepted, read)


_ROLE = choice({role.value: role for role in Role})


def _roles(value: object) -> dict[str, Role]:
    if not isinstance(value, dict) or not 1 <= len(value) <= ROLES_MAX:
        raise Wrong
    wrong, roles = [], {}
    for claimed, role in value.items():
        try:
            roles[claimed] = _ROLE.read(role)
        except Wrong:
            words = f"{shown(claimed)} = {shown(role)} is refused. Accepted: {_ROLE.accepted}."
            wrong.append(Mistake((claimed,), words))
    if wrong:
        raise Wrong(inside=wrong)
    return roles


_CLAIM = _one_or_several(
    'the name of a claim, like "groups", or the names of nested ones, like'
    ' ["realm_access", "roles"]',
    CLAIM_PARTS_MAX,
)
_FIELDS = Fields(
    fields={
        "issuer": ruled(
            "the URL of an issuer exactly as its tokens say it: https, or http on loopback", _url
        ),
        "audience": _one_or_several(
            f"a text, or a list of 1 to {AUDIENCES_MAX}: what `aud` of the tokens must be",
            AUDIENCES_MAX,
        ),
        "roles": Field(
            f"a table of 1 to {ROLES_MAX} values of the claim `role_claim` and the role of each,"
            ' like { "ops" = "operator" }',
            _roles,
        ),
        "role_claim": _CLAIM,
        "scopes_claim": _CLAIM,
        "scopes_prefix": line(
            f"a text of up to {TEXT_CHARS_MAX} printable characters", TEXT_CHARS_MAX
        ),
        "name_claim": _CLAIM,
        "lifetime": duration(
            'a length of time from a minute to a day, like "2h"',
            more_than_ms=MINUTE_MS - 1,
            most_ms=LIFETIME_S_MAX * SECOND_MS,
            unit_ms=SECOND_MS,
        ).then(lambda ms: ms // SECOND_MS, to="lifetime_s"),
    },
    required=("issuer", "audience", "roles"),
)


KEYS = tuple(_FIELDS.fields)


def read_issuers(value: object) -> tuple[IssuerRules, ...]:
    """The issuers of a list of tables. Raises Wrong, with every mistake."""
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise Wrong
    if len(value) > ISSUERS_MAX:
        raise Wrong(f"{len(value)} issuers are too many.")
    found, mistakes = [], Mistakes()
    for number, written in enumerate(value):
        table = Table(written, at=(number,))
        before = len(mistakes.found)
        _FIELDS.read(table, mistakes)
        if len(mistakes.found) == before:
            found.append(IssuerRules(**table.values))
            mistakes.found += _clashes(found, number)
    if mistakes.found:
        raise Wrong(inside=mistakes.found)
    return tuple(found)


def _clashes(found: list[IssuerRules], number: int) -> Iterator[Mistake]:
    """How the last issuer does not fit with itself or with those before it."""
    last = found[-1]
    if any(last.issuer == one.issuer for one in found[:-1]):
        words = f"issuer {last.issuer} is there twice. Write one table for each issuer."
        yield Mistake((number, "issuer"), words)
    if Role.OWNER in last.roles.values() and not last.scopes_claim:
        words = "roles gives the role owner. Write scopes_claim = ..., the claim that names scopes."
        yield Mistake((number, "roles"), words)
