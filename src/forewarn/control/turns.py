"""What a host says in its turn: that it is there, what it shows, what guests did, what has ended.

Most turns say no more than that the host is there. They are taken on the event loop, and nothing of
them has to be written down.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from forewarn.control import dispatch, metadata
from forewarn.control.commands import Refused, TakeTurn, TurnTaken
from forewarn.control.transaction import Transaction
from forewarn.core import notice
from forewarn.core.errors import Refusal

if TYPE_CHECKING:
    from forewarn.control.control import Control

_NOTHING_TO_SAY = TurnTaken()
_NOT_OBEYED = Refused(
    "conflict",
    "A host that does not follow this control confirms nothing to it.",
    "Confirm what the last answer to /link/changes has, once it is taken over.",
)


class Turns:
    """Takes the turns of all hosts, one at a time of each. Belongs to the event loop."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def take_at_once(self, host: str) -> bool:
        """The host is there and says nothing else. False if that takes a transaction.

        Raises NotFound.
        """
        control = self._control
        control.fleet.need_host(host)
        if self._locks[host].locked() or control.fleet.acts(host):
            return False
        if control.observed.silent_ms(host) > notice.HEARTBEAT_LATE_MS:
            return False
        control.observed.heard(host, at_ms=control.lease_clock.monotonic_ms())
        return True

    async def take(self, turn: TakeTurn) -> TurnTaken:
        """The host is there, and says this. Durable when it is answered.

        While it `refuses` to obey this control nothing starts there. Raises NotFound, and
        Unavailable if it could not be written down: then the host was not heard.
        """
        host, control = turn.host, self._control
        async with self._locks[host]:
            control.fleet.need_host(host)
            at_ms = control.lease_clock.monotonic_ms()
            late = control.observed.silent_ms(host) > notice.HEARTBEAT_LATE_MS
            taken = _NOTHING_TO_SAY
            if late or control.fleet.acts(host) or _says_something(turn):
                taken = await control.submit(turn)
            control.observed.heard(host, at_ms=at_ms, refuses=turn.refuses)
            return taken


def _says_something(turn: TakeTurn) -> bool:
    said = turn.holding or turn.confirms or turn.ended
    return bool(said or turn.first_reads or turn.polls or turn.returned)


def take_turn(tx: Transaction, command: TakeTurn) -> TurnTaken:
    """One part that is refused keeps no other from being taken."""
    host = command.host
    lost = dispatch.renew(tx, host, command.holding, command.refuses)
    confirms, ended = {}, {}
    for scope, incarnation in command.confirms.items():
        shown = partial(metadata.confirm_scope, tx, host, scope, incarnation)
        if command.refuses:  # what it shows is not what this control says
            confirms[scope] = _NOT_OBEYED
        elif (why := tx.attempt(shown)) is not None:
            confirms[scope] = _as_value(why)
    metadata.keep_traces(tx, command)
    for one in command.ended:
        if (why := tx.attempt(partial(dispatch.end_action, tx, host, one))) is not None:
            ended[one.action_id] = _as_value(why)
    return TurnTaken(lost=lost, refused_confirms=confirms, refused_ended=ended)


def _as_value(why: Refusal) -> Refused:
    return Refused(why.code, why.refused, why.accepted)
