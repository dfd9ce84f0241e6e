"""Every legal move of an event's phase, as one table. What is absent is illegal.

Nothing else in the product assigns a phase: rules name a move and `move` looks it up. The diagram
in docs/architecture.md is generated from this table, and a test fails when it is stale.
"""

from __future__ import annotations

from enum import StrEnum

from forewarn.core.model import Phase


class Move(StrEnum):
    """What may happen to an event. The first two make one.

    An auto-approved user order whose domain is free is scheduled, approved and started in one
    decision, so guests see it as Started from the beginning (contract L47).
    """

    SCHEDULE = "schedule"
    DECLARE = "declare"  # a host failure: the impact is already there
    APPROVE = "approve"
    START = "start"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"


TRANSITIONS: dict[tuple[Phase | None, Move], Phase] = {
    (None, Move.SCHEDULE): Phase.SCHEDULED,
    (None, Move.DECLARE): Phase.STARTED,
    (Phase.SCHEDULED, Move.APPROVE): Phase.SCHEDULED,
    (Phase.SCHEDULED, Move.START): Phase.STARTED,
    (Phase.SCHEDULED, Move.CANCEL): Phase.CANCELED,
    (Phase.STARTED, Move.COMPLETE): Phase.COMPLETED,
    (Phase.STARTED, Move.FAIL): Phase.FAILED,
}


class IllegalMove(AssertionError):  # noqa: N818 - it reads as what it is
    """A rule asked for a move that the table does not hold: a bug of ours, never a user's."""


def move(phase: Phase | None, wanted: Move) -> Phase:
    """Return the phase that `wanted` leads to, or raise IllegalMove and change nothing."""
    try:
        return TRANSITIONS[phase, wanted]
    except KeyError:
        raise IllegalMove(f"no event may {wanted.value} while {phase}") from None
