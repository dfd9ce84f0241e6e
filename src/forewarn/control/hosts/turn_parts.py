"""The parts of a turn: how each is decided, and how a turn is taken apart.

`take_turn` decides the command; the rest is for a caller whose turn cannot be decided whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec

from forewarn.control import guest_commands
from forewarn.control.commands import RefusedPart, TakeTurn, TurnResult
from forewarn.control.hosts import action_claims
from forewarn.control.transaction import Transaction
from forewarn.wire import link

_NOT_OBEYED = RefusedPart(
    "conflict",
    "A host that does not follow this control confirms nothing to it.",
    "Confirm what the last answer to /link/changes has, once it is taken over.",
)


def says_more(turn: TakeTurn | link.Turn) -> bool:
    """Whether a turn says more than that the host is there, and whether it obeys."""
    said = turn.holding or turn.confirms or turn.ended
    return bool(said or turn.first_reads or turn.polls or turn.returned or turn.rebooted)


def take_turn(tx: Transaction, command: TakeTurn) -> TurnResult:
    """One part that is refused keeps no other from being taken."""
    host = command.host
    renewed = action_claims.renew(tx, host, command.holding, command.refuses)
    confirms, ended = {}, {}
    for scope, incarnation in command.confirms.items():
        shown = partial(guest_commands.confirm_scope, tx, host, scope, incarnation)
        if command.refuses:  # what it shows is not what this control says
            confirms[scope] = _NOT_OBEYED
        elif (why := tx.attempt(shown)) is not None:
            confirms[scope] = RefusedPart.of(why)
    guest_commands.keep_traces(tx, command)
    for one in command.ended:
        if (why := tx.attempt(partial(action_claims.end_action, tx, host, one))) is not None:
            ended[one.action_id] = RefusedPart.of(why)
    work = not set(renewed.not_held) <= {one.action_id for one in command.ended}
    return TurnResult(lost=renewed.lost, work=work, refused_confirms=confirms, refused_ended=ended)


class Part(NamedTuple):
    """The least that a turn can say: one entry of one of its fields."""

    field: Literal[
        "confirms", "first_reads", "polls", "first_polls", "returned", "rebooted", "ended"
    ]
    said: Any

    @property
    def name(self) -> str:
        """What it is about: a scope, an action, a VM."""
        if self.field == "ended":
            return str(self.said.action_id)
        if self.field == "first_reads":
            return f"{self.said.event_id} by {self.said.vm}"
        names = ("returned", "rebooted", "first_polls")
        return str(self.said if self.field in names else self.said[0])


def without_parts(turn: TakeTurn) -> TakeTurn:
    """That the host is there, what it holds, and whether it obeys: a turn has at least that."""
    return TakeTurn(by=turn.by, host=turn.host, holding=turn.holding, refuses=turn.refuses)


def parts_of(turn: TakeTurn) -> list[Part]:
    """Everything else, in the order in which it is decided."""
    return [
        *(Part("confirms", one) for one in turn.confirms.items()),
        *(Part("first_reads", one) for one in turn.first_reads),
        *(Part("polls", one) for one in turn.polls.items()),
        *(Part("first_polls", one) for one in turn.first_polls),
        *(Part("returned", one) for one in turn.returned),
        *(Part("rebooted", one) for one in turn.rebooted),
        *(Part("ended", one) for one in turn.ended),
    ]


def turn_of(whole: TakeTurn, parts: Sequence[Part]) -> TakeTurn:
    """A turn of the same host that says these parts of a whole one."""

    def said(field: str) -> tuple[Any, ...]:
        return tuple(part.said for part in parts if part.field == field)

    return msgspec.structs.replace(
        without_parts(whole),
        holding={},
        confirms=dict(said("confirms")),
        first_reads=said("first_reads"),
        polls=dict(said("polls")),
        first_polls=said("first_polls"),
        returned=said("returned"),
        rebooted=said("rebooted"),
        ended=said("ended"),
    )
