"""Who may come in, as it changes: tokens, and what is written down of callers that were refused.

Each function decides one command. Secrets do not come here; a command carries their hash.
"""

from __future__ import annotations

from forewarn.control import commands
from forewarn.control.fleet_reader import FleetLook
from forewarn.control.transaction import Transaction
from forewarn.core import tokens
from forewarn.core.facts import AccessRefusedDetail, by_whom
from forewarn.core.model import Fact, FactKind
from forewarn.core.tokens import Token, TokenChange


def make_token(tx: Transaction, command: commands.MakeToken) -> Token:
    return _kept(tx, token_to_make(tx, command))


def token_to_make(fleet: FleetLook, command: commands.MakeToken) -> TokenChange:
    """The token that an order makes. Changes nothing; `order_previews` asks it too."""
    wanted = tokens.TokenTerms(
        token_id=command.token_id,
        name=command.name,
        role=command.role,
        scopes=command.scopes,
        secret_hash=command.secret_hash,
        valid_ms=command.valid_ms,
        later=command.later,
    )
    return tokens.make(
        fleet.tokens, wanted, scopes=fleet.scopes, by=command.by, now_ms=fleet.now_ms
    )


def rotate_token(tx: Transaction, command: commands.RotateToken) -> Token:
    return _kept(tx, token_to_rotate(tx, command))


def token_to_rotate(fleet: FleetLook, command: commands.RotateToken) -> TokenChange:
    """The token with its other secret. Changes nothing; `order_previews` asks it too."""
    return tokens.rotate(
        tokens.find(fleet.tokens, command.token_id),
        secret_hash=command.secret_hash,
        valid_ms=command.valid_ms,
        by=command.by,
        now_ms=fleet.now_ms,
    )


def revoke_token(tx: Transaction, command: commands.RevokeToken) -> Token:
    token = tokens.find(tx.tokens, command.token_id)
    made = tokens.revoke(token, by=command.by, now_ms=tx.now_ms)
    return token if made is None else _kept(tx, made)


def note_token_use(tx: Transaction, command: commands.NoteTokenUse) -> None:
    token = tokens.used(tx.tokens.get(command.token_id), tx.now_ms)
    if token is not None:
        tx.put_token(token.token_id, token)


def note_refused(tx: Transaction, command: commands.NoteRefused) -> None:
    detail = AccessRefusedDetail(
        reason=command.reason,
        count=command.count,
        address=command.address,
        what=command.what,
        token=command.token,
    )
    fact = Fact(kind=FactKind.ACCESS_REFUSED, at_ms=tx.now_ms, detail=detail)
    tx.note(by_whom(fact, command.who))


def _kept(tx: Transaction, made: TokenChange) -> Token:
    for token_id in made.dropped:
        tx.put_token(token_id, None)
    tx.put_token(made.token.token_id, made.token)
    tx.note(made.fact)
    return made.token
