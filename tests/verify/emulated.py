"""An emulator in the background, as the conformance kit meets it: a URL and an operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forewarn.core.errors import Refusal
from forewarn.core.model import SECOND_MS, EventType
from forewarn.emulator.fleet import inventory_text
from forewarn.settings import SIMULATE_DEFAULTS, Settings
from forewarn.testing.background import Background
from forewarn.verify import OperatorFailed, Options
from forewarn.wiring.simulate import EmulationPlan, Emulator
from support import ordered

TYPES = ("Reboot", "Redeploy", "Freeze", "Preempt", "Terminate")


class Emulated:
    """A running emulator with one Spot VM, which can be ordered anything."""

    def __init__(self, *, requests_per_s: int = 0, speed: int = 0) -> None:
        changed = {**SIMULATE_DEFAULTS, "guest_requests_per_second": requests_per_s}
        settings = Settings(data=Path("unused"), **changed)
        plan = EmulationPlan(
            settings=settings, inventory=inventory_text(spot=True), seed=1, speed=speed
        )
        self.background = Background(plan)
        self.vm, self.url = self.background.call(_first_url)

    def options(self, **changes: Any) -> Options:
        """Everything but the burst allowed, as fast as possible."""
        allowed: dict[str, Any] = {
            "approve": True,
            "operator": self.schedule,
            "cancel": self.cancel,
            "advance": self.advance,
            "types": TYPES,
            "vm": self.vm,
            "pace_per_s": 0,
            "timeout_s": 3.0,
        }
        return Options(**{**allowed, **changes})

    def schedule(self, event_type: str, vm: str) -> None:
        async def work(emulator: Emulator) -> None:
            control, wanted = emulator.control, EventType(event_type)
            if wanted is EventType.FREEZE:
                host = _host_of(control.fleet, vm)
                await control.submit(ordered.maintain_host(host, wanted, by="test"))
            else:
                await control.submit(ordered.order_vm(vm, wanted, by="test"))

        self._order(work)

    def cancel(self, event_id: str) -> None:
        async def work(emulator: Emulator) -> None:
            await emulator.control.submit(ordered.cancel_event(event_id, by="test"))

        self._order(work)

    def advance(self, seconds: int) -> None:
        self._order(lambda emulator: emulator.pacer.advance(seconds * SECOND_MS))

    def _order(self, work: Any) -> None:
        try:
            self.background.call(work)
        except Refusal as refusal:
            raise OperatorFailed(str(refusal)) from None


async def _first_url(emulator: Emulator) -> tuple[str, str]:
    return next(iter(emulator.urls().items()))


def _host_of(tx: Any, vm: str) -> str:
    return str(tx.need_scope_of_vm(vm).vm(vm).host)


@contextmanager
def emulated(*, requests_per_s: int = 0, speed: int = 0) -> Iterator[Emulated]:
    """An emulator, until the block ends. The rate limit is off and the clock stands still
    unless asked for otherwise.
    """
    world = Emulated(requests_per_s=requests_per_s, speed=speed)
    try:
        yield world
    finally:
        world.background.close()
