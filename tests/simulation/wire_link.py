"""The network between hosts and control, on which questions and answers go astray.

Hosts ask by the deployed client (`adapters.control_link`), which encodes every question and decodes
every answer; only the way between is simulated. What can happen to a question is a `Fate`, drawn
from a stream of chance of its own.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from forewarn.adapters.control_link import Answer, ControlLink, Lane
from forewarn.core.errors import Unavailable
from forewarn.wire import link as wire
from simulation.sim_clock import SimClock

# A question that is on its way is given up by its host after so long, and goes no further.
LATE_MS_MAX = 8_000
OVERTAKEN_BY_MAX = 6
UNUSED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # no socket is ever opened


class Fate(Enum):
    """What becomes of a question whose way is not clear."""

    LOST = auto()  # it never arrives
    LATE = auto()  # its host gives it up; it arrives after others that were asked later
    UNANSWERED = auto()  # it arrives, and its answer does not
    TWICE = auto()  # its answer does not arrive; it is sent again, and is answered then
    SLOW = auto()  # it arrives after a while, and its host waits for it
    SLOWLY_ANSWERED = auto()  # its answer arrives after a while, and its host waits for it


FATES = tuple(Fate)


class Answering(Protocol):
    """Control, as the network reaches it."""

    def answer(self, certificate: bytes, name: str, body: bytes) -> tuple[int, bytes]:
        """Status and body. Unavailable if nobody is there, or dies over it."""
        ...


class Pause:
    """Awaited where a host waits for the network: whoever runs it goes on later."""

    def __await__(self) -> Generator[None, None, None]:
        yield


@dataclass(slots=True)
class Late:
    """A question that is still on its way, and by how many others it will be overtaken."""

    overtaken_by: int
    arrives_ms: int
    certificate: bytes
    name: str
    body: bytes


class Wire:
    """The network. `weather` is the part of all questions whose way is not clear."""

    def __init__(self, rng: random.Random, clock: SimClock, control: Answering) -> None:
        self._rng = rng
        self._clock = clock
        self._control = control
        self._late: list[Late] = []
        self.weather = 0.0
        self.cut_until_ms: dict[str, int] = {}  # by host
        self.fates: dict[str, int] = {}

    def heal(self) -> None:
        """From now on every way is clear, and nothing of before is on its way."""
        self.weather = 0.0
        self.cut_until_ms.clear()
        self._late.clear()

    def arrive(self) -> None:
        """Have everything arrive whose time has come."""
        now_ms = self._clock.real_ms
        for late in [one for one in self._late if one.arrives_ms <= now_ms]:
            self._arrive(late)

    async def carry(
        self, host: str, certificate: bytes, name: str, body: bytes
    ) -> tuple[int, bytes]:
        """Carry a question to control and its answer back. Raises Unavailable."""
        self._overtake()
        if self.cut_until_ms.get(host, 0) > self._clock.real_ms:
            raise Unavailable("the network is cut")
        fate = self._fate()
        if fate is None:
            return self._control.answer(certificate, name, body)
        self.fates[fate.name] = self.fates.get(fate.name, 0) + 1
        if fate is Fate.LOST:
            raise Unavailable("no answer: the question was lost")
        if fate is Fate.LATE:
            self._late.append(self._delayed(certificate, name, body))
            raise Unavailable("no answer: the question is late")
        asked_ms = self._clock.real_ms
        if fate is Fate.SLOW:
            await self._pause(asked_ms)
        answered = self._control.answer(certificate, name, body)
        if fate is Fate.UNANSWERED:
            raise Unavailable("no answer: it was lost")
        if fate is Fate.TWICE:
            return self._control.answer(certificate, name, body)
        if fate is Fate.SLOWLY_ANSWERED:
            await self._pause(asked_ms)
        return answered

    async def _pause(self, asked_ms: int) -> None:
        """Wait for the network; a host does not wait for ever."""
        await Pause()
        if self._clock.real_ms - asked_ms > LATE_MS_MAX:
            raise Unavailable("no answer in time")

    def _fate(self) -> Fate | None:
        if not self.weather or self._rng.random() >= self.weather:
            return None
        return self._rng.choice(FATES)

    def _delayed(self, certificate: bytes, name: str, body: bytes) -> Late:
        arrives_ms = self._clock.real_ms + self._rng.randint(1, LATE_MS_MAX)
        overtaken_by = self._rng.randint(1, OVERTAKEN_BY_MAX)
        return Late(overtaken_by, arrives_ms, certificate, name, body)

    def _overtake(self) -> None:
        """One more question overtakes those that are late."""
        for late in list(self._late):
            late.overtaken_by -= 1
            if not late.overtaken_by:
                self._arrive(late)

    def _arrive(self, late: Late) -> None:
        self._late.remove(late)
        try:
            self._control.answer(late.certificate, late.name, late.body)
        except Unavailable:
            return  # nobody waits for the answer


class SimLane(Lane):
    """The deployed connections of a host, without sockets."""

    def __init__(self, carry: Carry, *, monotonic_ms: Callable[[], int], now_ms: Heard) -> None:
        self._carry = carry
        self._monotonic_ms = monotonic_ms
        self._told_time = now_ms
        self._url = "control"

    async def send(
        self,
        method: str,  # noqa: ARG002 - there is only one
        path: str,
        content: bytes = b"",
        *,
        limit_s: float,  # noqa: ARG002 - of real time; how long the network takes is a Fate
    ) -> Answer:
        asked_ms = self._monotonic_ms()
        status, body = await self._carry(path.removeprefix("/link/"), content)
        self._told_time(asked_ms, self._monotonic_ms())
        return Answer(status, body)


class Carry(Protocol):
    """Carries one question, by its name and body, and gives status and body of the answer."""

    async def __call__(self, name: str, body: bytes) -> tuple[int, bytes]: ...


Heard = Callable[[int, int], None]  # an answer is here: when it was asked for, and now


class SimLink(ControlLink):
    """`ports.HostLink` of one life of a host's daemon, over the simulated network."""

    def __init__(
        self, carry: Carry, *, daemon: str, monotonic_ms: Callable[[], int], told_time: Heard
    ) -> None:
        self._carry = carry
        self._told_time = told_time
        super().__init__("control", UNUSED, monotonic_ms=monotonic_ms)
        self.daemon = daemon

    def _new_lanes(
        self,
        context: ssl.SSLContext,  # noqa: ARG002 - there are no sockets
    ) -> tuple[Lane, Lane, Lane]:
        lane = SimLane(self._carry, monotonic_ms=self._monotonic_ms, now_ms=self._told_time)
        return lane, lane, lane

    async def changes(
        self,
        since: wire.Since | None,
        wait_s: int,  # noqa: ARG002 - see below
    ) -> wire.Changes:
        """At once: nothing in this world waits while nothing happens."""
        return await super().changes(since, 0)
