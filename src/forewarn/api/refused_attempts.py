"""Callers that were not let in, or lacked a right: counted, and now and then written down.

The journal gets one line a minute at most for each reason, with how many there were since the line
before. Nothing that a caller sent is kept but where it came from; a secret least of all.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum

from msgspec import Struct

from forewarn.control.commands import Command, NoteRefused
from forewarn.control.control import Control
from forewarn.control.metrics import ControlMetrics
from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.principal import Principal, PrincipalKind
from forewarn.logs import Log

LINE_EVERY_S = 60.0
# Who writes such lines. It is in no line itself, so other principals may have the name.
GATE = Principal(kind=PrincipalKind.CONTROL, id="gate", name="gate")

log = Log(__name__)


class RefusedFor(StrEnum):
    """Why a caller was refused."""

    NO_TOKEN = "no-token"  # noqa: S105 - no secret
    WRONG_TOKEN = "wrong-token"  # noqa: S105 - no secret
    TOO_MANY = "too-many-wrong-tokens"
    ENDED = "token-ended"
    IN_URL = "token-in-url"
    NOT_ADMITTED = "not-admitted"
    MISSING_RIGHT = "missing-right"


class Attempt(Struct, frozen=True, kw_only=True):
    """One request that was refused. `who` asked, if that is known; `token` is the id of a token."""

    reason: RefusedFor
    address: str = ""
    who: Principal | None = None
    what: str = ""
    token: str = ""


class _Since(Struct):
    """What was refused for one reason since its last line, while the next one has to wait."""

    count: int
    last: Attempt
    timer: asyncio.TimerHandle


class RefusedAttempts:
    """Counts refused requests and has them written down. Belongs to the event loop."""

    def __init__(
        self, control: Control, measures: ControlMetrics, *, line_every_s: float = LINE_EVERY_S
    ) -> None:
        self._control = control
        self._measures = measures
        self._line_every_s = line_every_s
        self._since: dict[RefusedFor, _Since] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        measures.expect_refusals(RefusedFor)

    def note(self, attempt: Attempt) -> None:
        """A request was refused. Never waits."""
        self._measures.access_refused(attempt.reason)
        since = self._since.get(attempt.reason)
        if since is not None:
            since.count += 1
            since.last = attempt
            return
        self._write(attempt, 1)

    def _write(self, attempt: Attempt, count: int) -> None:
        """Write a line, and have the next one of this reason wait."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._line_every_s, self._look_again, attempt.reason)
        self._since[attempt.reason] = _Since(0, attempt, timer)
        self.in_background(
            NoteRefused(
                by=GATE,
                reason=attempt.reason.value,
                count=count,
                address=attempt.address,
                who=attempt.who,
                what=attempt.what,
                token=attempt.token,
            )
        )

    def _look_again(self, reason: RefusedFor) -> None:
        since = self._since.pop(reason)
        if since.count:
            self._write(since.last, since.count)

    def in_background(self, command: Command[None]) -> None:
        """Have a command carried out that no caller waits for; if it cannot be, the log says so."""
        task = asyncio.get_running_loop().create_task(self._submit(command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _submit(self, command: Command[None]) -> None:
        try:
            await self._control.submit(command)
        except (Refusal, Unavailable) as why:
            log.warning("not_noted", command=type(command).__name__, why=str(why))
