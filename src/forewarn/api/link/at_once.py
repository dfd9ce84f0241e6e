"""Short questions of members that control can answer at once, without a task for each.

Hundreds of hosts say every few seconds that they are there, and most of them nothing else. What is
not answered here goes the ordinary way (`app`), which has the words for every refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from forewarn.api.link.metrics import LinkMetrics
from forewarn.api.link.routes import Asker, Asking
from forewarn.control.hosts.membership import Membership
from forewarn.core.errors import Refusal, Unavailable
from forewarn.logs import Log
from forewarn.ports import Clock
from forewarn.wire import link as wire

AT_ONCE_BYTES_MAX = 4_096  # of a question; a turn of a busy host may have more
BROKEN_KNOWN_MAX = 1_000  # what was logged is not logged again
BROKEN_REMEDY = (
    "the host is answered the ordinary way; this is a fault of Forewarn: report it with this line"
)

log = Log(__name__)

_VERSION_HEADER = wire.VERSION_HEADER.encode()
_HEAD = (
    b"content-type: application/json\r\n"
    + f"{wire.VERSION_HEADER}: {wire.LINK_VERSION}\r\n{wire.NOW_HEADER}: %d\r\n".encode()
    + b"content-length: %d\r\n\r\n%b"
)


class AskedAtOnce(NamedTuple):
    """A question as it was read. What is true of it depends on its bytes alone."""

    name: str
    asking: Asking
    question: msgspec.Struct


class AtOnce:
    """Answers what can be answered at once. Belongs to the event loop."""

    def __init__(
        self,
        table: Mapping[str, Asking],
        membership: Membership,
        *,
        clock: Clock,
        measures: LinkMetrics,
    ) -> None:
        self._membership = membership
        self._clock = clock
        self._measures = measures
        self._broken: dict[str, None] = {}  # what was logged, in words
        self._asked = {
            f"/link/{name}".encode(): (name, asking)
            for name, asking in table.items()
            if asking.at_once is not None
        }

    def knows(self, path: bytes) -> bool:
        """Whether a question to this path may be answered here."""
        return path in self._asked

    def read(
        self, path: bytes, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> AskedAtOnce | None:
        """What is asked; None if it takes more than a look to understand it.

        It raises nothing, nor does `answer`: who parses HTTP would take that for bad HTTP.
        """
        versions = [value for name, value in headers if name == _VERSION_HEADER]
        if len(versions) != 1 or not wire.same_major(versions[0].decode("latin-1")):
            return None
        name, asking = self._asked[path]
        try:
            return AskedAtOnce(name, asking, asking.read(body))
        except (msgspec.DecodeError, RecursionError):
            return None  # the ordinary way meets it again, and has the words
        except Exception as error:  # noqa: BLE001 - see `answer`
            self._broke(name, error)
            return None

    def answer(self, asked: AskedAtOnce, certificate: bytes) -> bytes | None:
        """Headers and body of an answer that says yes; None if it takes more than that."""
        at_once = asked.asking.at_once
        try:
            member = self._membership.need_member(certificate)
            answer = None if at_once is None else at_once(Asker(member.name), asked.question)
            content = b"" if answer is None else msgspec.json.encode(answer)
        except (Refusal, Unavailable):
            return None  # as above
        except Exception as error:  # noqa: BLE001 - the top of a question; logged once
            self._broke(asked.name, error)
            return None  # if it breaks there too, the host is answered 500
        if not content:
            return None
        self._measures.answered(asked.name, 200)
        return _HEAD % (self._clock.now_ms(), len(content), content)

    def _broke(self, question: str, error: Exception) -> None:
        """Log what broke once: hosts ask it every few seconds."""
        words = f"{question}: {type(error).__name__}: {error}"
        if words in self._broken:
            return
        log.error("link_answer_at_once_broke", why=words, remedy=BROKEN_REMEDY, exc_info=error)
        self._broken[words] = None
        if len(self._broken) > BROKEN_KNOWN_MAX:
            del self._broken[next(iter(self._broken))]
