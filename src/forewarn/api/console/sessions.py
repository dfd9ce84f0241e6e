"""Who is at the console: sessions in memory, and codes that are good once, for a minute.

A session is known by a secret in a cookie; only its digest is kept. A code is no token: it opens
one session, and says so if it is used again. Nothing here is durable: a restart ends all sessions.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable

from msgspec import Struct

from forewarn.core.access import Access
from forewarn.core.errors import Conflict, Forbidden

IDLE_S = 2 * 3_600.0
LIFE_S = 12 * 3_600.0
CODE_S = 60.0
SESSIONS_MAX = 500  # the one that was idle longest goes
CODES_MAX = 100
USED_CODES_KEPT_MAX = 1_000
SECRET_BYTES = 32
NOTES_MAX = 5  # told once, on the next page


class CodeRefused(Forbidden):
    """The code lets no person in: it is not ours, or its minute is over."""


class CodeUsed(CodeRefused):
    """The code was used before."""


class TooManyCodes(Conflict):
    """So many codes wait to be used that no other is made."""


class ConsoleSession(Struct, eq=False, kw_only=True):
    """One person at one browser. Times are monotonic seconds."""

    number: int
    access: Access
    way: str  # how the person came in, in words
    form_secret: str  # in each form: no other site knows it
    made_s: float
    used_s: float
    streams: int = 0
    notes: list[str]

    def note(self, words: str) -> None:
        """Say this on the next page."""
        self.notes = [*self.notes, words][-NOTES_MAX:]

    def take_notes(self) -> list[str]:
        notes, self.notes = self.notes, []
        return notes


class _Code(Struct, frozen=True):
    access: Access
    way: str
    until_s: float


def loop_s() -> float:
    return asyncio.get_running_loop().time()


def everyone(_: Access) -> bool:
    """No access ends before its session does."""
    return True


class Sessions:
    """All sessions of one service. Belongs to the event loop."""

    def __init__(self, *, now_s: Callable[[], float] = loop_s) -> None:
        self._now_s = now_s
        self._stands: Callable[[Access], bool] = everyone
        self._sessions: dict[str, ConsoleSession] = {}
        self._codes: OrderedDict[str, _Code] = OrderedDict()
        self._used: OrderedDict[str, None] = OrderedDict()
        self._made = 0

    def ask_whether(self, stands: Callable[[Access], bool]) -> None:
        """Ask this at each request: a token that was revoked ends the sessions opened with it."""
        self._stands = stands

    # Codes.

    def make_code(self, access: Access, way: str) -> str:
        """A code that opens one session with this access, within a minute."""
        self._forget_codes()
        if len(self._codes) >= CODES_MAX:
            raise TooManyCodes(
                f"{CODES_MAX} codes for the console wait to be used.", "Ask again in a minute."
            )
        code = secrets.token_urlsafe(SECRET_BYTES)
        self._codes[_digest(code)] = _Code(access, way, self._now_s() + CODE_S)
        return code

    def enter(self, code: str) -> str:
        """Open a session with a code: the secret of its cookie. Raises CodeRefused."""
        self._forget_codes()
        digest = _digest(code)
        if digest in self._used:
            raise CodeUsed(
                "This link was used before, and opens one session only.",
                "`forewarn console` on the machine of the service prints a fresh one.",
            )
        found = self._codes.pop(digest, None)
        if found is None:
            raise CodeRefused(
                "This link is not ours, or is older than a minute.",
                "`forewarn console` on the machine of the service prints a fresh one.",
            )
        self._used[digest] = None
        while len(self._used) > USED_CODES_KEPT_MAX:
            self._used.popitem(last=False)
        return self.open(found.access, found.way)

    def _forget_codes(self) -> None:
        now_s = self._now_s()
        for digest in [key for key, code in self._codes.items() if code.until_s < now_s]:
            del self._codes[digest]

    # Sessions.

    def open(self, access: Access, way: str) -> str:
        """Begin a session: the secret of its cookie."""
        now_s = self._now_s()
        self._end_old(now_s)
        while len(self._sessions) >= SESSIONS_MAX:
            idle = min(self._sessions, key=lambda digest: self._sessions[digest].used_s)
            del self._sessions[idle]
        secret = secrets.token_urlsafe(SECRET_BYTES)
        self._made += 1
        self._sessions[_digest(secret)] = ConsoleSession(
            number=self._made,
            access=access,
            way=way,
            form_secret=secrets.token_urlsafe(SECRET_BYTES),
            made_s=now_s,
            used_s=now_s,
            notes=[],
        )
        return secret

    def find(self, secret: str, *, used: bool = True) -> ConsoleSession | None:
        """The session of a cookie, if it still holds. `used`: a person asks, not a stream."""
        digest = _digest(secret)
        session = self._sessions.get(digest)
        if session is None:
            return None
        now_s = self._now_s()
        if self._over(session, now_s) or not self._stands(session.access):
            del self._sessions[digest]
            return None
        if used:
            session.used_s = now_s
        return session

    def all(self) -> list[ConsoleSession]:
        """The sessions that hold, oldest first."""
        self._end_old(self._now_s())
        return sorted(self._sessions.values(), key=lambda session: session.number)

    def end(self, number: int) -> None:
        """End a session. Without effect if it has ended."""
        self._sessions = {d: one for d, one in self._sessions.items() if one.number != number}

    def idle_s(self, session: ConsoleSession) -> float:
        return self._now_s() - session.used_s

    def age_s(self, session: ConsoleSession) -> float:
        return self._now_s() - session.made_s

    @staticmethod
    def _over(session: ConsoleSession, now_s: float) -> bool:
        return now_s - session.used_s > IDLE_S or now_s - session.made_s > LIFE_S

    def _end_old(self, now_s: float) -> None:
        kept = {d: one for d, one in self._sessions.items() if not self._over(one, now_s)}
        self._sessions = {d: one for d, one in kept.items() if self._stands(one.access)}


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
