"""What runs by itself in the control plane: the ticker.

Each turn catches everything, logs it once and counts on: a loop that ends would be a promise
that ends.
"""

from __future__ import annotations

import asyncio

from forewarn.control import ticker
from forewarn.control.agenda import Agenda
from forewarn.control.commands import NoteHeartbeat
from forewarn.control.control import Control
from forewarn.control.metrics import ControlMetrics
from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.principal import TICKER
from forewarn.logs import Log

log = Log(__name__)

TICK_EVERY_S = 1.0
TICK_AGAIN_AFTER_S = 0.01
EVENTS_AT_ONCE = 64  # that a tick looks at before the event loop has its turn
COMMANDS_AT_ONCE = 32  # of a tick in the writer's queue; what guests and operators ask goes between
TICK_SHARE_MAX = 0.2  # of the time, while rings keep coming; approvals and orders get the rest


class TickerLoop:
    """One tick a second, and one more soon after each ring.

    A tick looks at what the agenda names, so under a storm of rings it waits in proportion to what
    the last one took.
    """

    def __init__(self, control: Control, measures: ControlMetrics) -> None:
        self._control = control
        self._measures = measures
        self._agenda = Agenda(control.fleet)
        control.fleet.on_publish(self._agenda.published)
        self._ring = asyncio.Event()
        self._beat_monotonic_ms: int | None = None

    def ring(self) -> None:
        """Something was committed: look again soon."""
        self._ring.set()

    async def run(self) -> None:
        """Tick until canceled."""
        loop = asyncio.get_running_loop()
        planned_s = loop.time()
        while True:
            self._ring.clear()
            began_s = loop.time()
            self._measures.tick(max(0.0, began_s - planned_s))
            await self._tick_safely()
            ended_s = loop.time()
            rest_s = (ended_s - began_s) * (1 / TICK_SHARE_MAX - 1)
            planned_s = ended_s + TICK_EVERY_S
            try:
                async with asyncio.timeout_at(planned_s):
                    await self._ring.wait()
                    # Rings come in bursts; the time limit above ends a long rest.
                    await asyncio.sleep(max(TICK_AGAIN_AFTER_S, ended_s + rest_s - loop.time()))
                planned_s = loop.time()
            except TimeoutError:
                continue

    async def _tick_safely(self) -> None:
        try:
            await self.tick()
        except Unavailable as why:
            log.warning("tick_put_off", why=str(why))
        except Exception:
            log.exception("tick_failed")
            self._measures.tick_failed()

    async def tick(self) -> None:
        """Survey, then try what the survey names, in its order."""
        now = self._control.clock.monotonic_ms()
        beat = self._beat_monotonic_ms
        if beat is None or now - beat >= ticker.HEARTBEAT_EVERY_MS:
            await self._control.submit(NoteHeartbeat(by=TICKER))
            self._beat_monotonic_ms = now
        named = await self._survey()
        results: list[object] = []
        for first in range(0, len(named), COMMANDS_AT_ONCE):
            some = (self._control.submit(c) for c in named[first : first + COMMANDS_AT_ONCE])
            results += await asyncio.gather(*some, return_exceptions=True)
        for result in results:
            if isinstance(result, Refusal | Unavailable):
                log.warning("tick_command_refused", why=str(result))
            elif isinstance(result, BaseException):
                raise result

    async def _survey(self) -> ticker.Nominated:
        """What may be due, looked for piece by piece: the event loop has its turn in between."""
        fleet, found = self._control.fleet, ticker.Survey()
        names = sorted(self._agenda.due(self._control.clock.now_ms()))
        while names:
            look, events = fleet.look(), 0
            while names and events < EVENTS_AT_ONCE:
                scope = look.scope(names.pop())
                if scope is not None:
                    found.scopes(look, [scope])
                    events += max(1, len(scope.events))
            await asyncio.sleep(0)
        found.silent_hosts(fleet.look(), self._agenda.told_hosts())
        found.whole_operations(fleet.look())
        return found.nominated()
