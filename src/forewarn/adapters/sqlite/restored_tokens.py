"""Tokens in a database that a restore makes: what was revoked or rotated since stays so."""

from __future__ import annotations

import sqlite3

from msgspec import Struct

from forewarn.adapters.sqlite.writing import statements
from forewarn.core import tokens
from forewarn.core.tokens import Token
from forewarn.tables.statements import named_queries
from forewarn.tables.table_specs import TOKENS


class TokensThere(Struct, frozen=True):
    """The tokens of a database, and the installation that they let in to; empty if it has none."""

    installation: str = ""
    tokens: tuple[Token, ...] = ()


class TokensRestored(Struct, frozen=True):
    """What became of the tokens of a backup: names of those that let in, and of those that ended.

    `known` is False where no later database was there: then what was revoked since lets in again.
    """

    valid: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    known: bool = False


def tokens_there(connection: sqlite3.Connection) -> TokensThere:
    """What a database has; of an earlier version it has none."""
    tables = "SELECT count(*) FROM sqlite_master WHERE name IN ('token', 'journal_extent')"
    if connection.execute(tables).fetchone()[0] != 2:
        return TokensThere()
    extent = connection.execute(named_queries()["journal_extent"]).fetchone()
    rows = connection.execute(named_queries()["tokens"]).fetchall()
    return TokensThere(extent["installation_id"], tuple(map(TOKENS.value, rows)))


def settle_tokens(
    copy: sqlite3.Connection, replaced: tuple[TokensThere, ...], now_ms: int
) -> TokensRestored:
    """Have the copy of a backup let in by no token that was revoked or rotated since.

    What counts is what the databases that are `replaced` know, the latest last; those of other
    installations know nothing.
    """
    kept = tokens_there(copy)
    same = [one for one in replaced if one.installation and one.installation == kept.installation]
    found = kept.tokens
    if same:
        known = {one.token_id: one for there in same for one in there.tokens}
        found = tuple(tokens.after_restore(kept.tokens, known, now_ms))
        for token in found:
            copy.execute(statements("token").upsert, TOKENS.cells(token))
    before = {one.token_id for one in kept.tokens if one.ended_ms(now_ms) is None}
    return TokensRestored(
        valid=tuple(sorted(one.name for one in found if one.ended_ms(now_ms) is None)),
        ended=tuple(
            sorted(
                one.name
                for one in found
                if one.token_id in before and one.ended_ms(now_ms) is not None
            )
        ),
        known=bool(same),
    )
