"""An emulator in the background of a test, with operators by commands and guests over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from forewarn.control import operator_overview
from forewarn.control.commands import Command, Once, Order
from forewarn.control.writer import Wanted
from forewarn.core.inventory.entries import Applied
from forewarn.core.model import MINUTE_MS, EventType
from forewarn.emulator.fleet import inventory_text
from forewarn.emulator.pacer import Instant
from forewarn.ports import EVERYTHING
from forewarn.settings import SIMULATE_DEFAULTS, Settings
from forewarn.testing.background import Background
from forewarn.wiring.simulate import EmulationPlan, Emulator
from support import ordered
from support.system_world import Guest

NOTICE_MS = 15 * MINUTE_MS  # of a Reboot and of a Freeze


@dataclass(frozen=True, slots=True)
class Emulated:
    """One running emulator."""

    background: Background

    def guest(self, vm: str = "vm0") -> Guest:
        """The VM as its software is: it has nothing but HTTP."""

        async def urls(emulator: Emulator) -> dict[str, str]:
            return emulator.urls()

        parts = urlsplit(self.background.call(urls)[vm])
        return Guest((parts.hostname or "", parts.port or 0))

    def order(self, order: Command[object]) -> Any:
        """Give an order, as the operator API would."""
        assert isinstance(order, Order)
        once = Once(
            by=order.by,
            order=order,
            access=ordered.full_access(order.by),
            key=None,
            fingerprint="",
        )
        answer = self.background.call(lambda emulator: emulator.control.submit(once))
        return json.loads(answer.text)

    def apply(self, inventory: Wanted[Applied]) -> Applied:
        return self.background.call(lambda emulator: emulator.control.submit(inventory))

    def restart(self, vm: str = "vm0") -> str:
        """Order a restart; the id of its event."""
        event_id: str = self.order(ordered.order_vm(vm, EventType.REBOOT, by="operator"))[
            "event_id"
        ]
        return event_id

    def advance(self, ms: int) -> list[Instant]:
        return self.background.call(lambda emulator: emulator.pacer.advance(ms))

    def next(self) -> list[Instant]:
        return self.background.call(lambda emulator: emulator.pacer.next())

    def upcoming(self) -> list[Instant]:
        return self.background.call(lambda emulator: emulator.pacer.upcoming())

    def now_ms(self) -> int:
        async def now(emulator: Emulator) -> int:
            return emulator.clock.now_ms()

        return self.background.call(now)

    def event(self, event_id: str) -> Any:
        """The event as an operator sees it, also when it has ended."""
        return msgspec.to_builtins(
            self.background.call(
                lambda emulator: emulator.control.read(
                    lambda store: operator_overview.show_event(
                        store, event_id, emulator.clock.now_ms()
                    )
                )
            )
        )

    def journal(self) -> list[Any]:
        """Every line of the journal."""
        found = self.background.call(
            lambda emulator: emulator.control.read(
                lambda store: operator_overview.list_journal(store, EVERYTHING, after=0, limit=1000)
            )
        )
        return cast("list[Any]", msgspec.to_builtins(found.items))


@contextmanager
def emulated(
    *,
    vms: Sequence[str] = (),
    scopes: Sequence[str] = (),
    spot: bool = False,
    inventory: str | None = None,
    seed: int | None = 1,
    speed: int = 0,
    start_ms: int | None = None,
    **settings: Any,
) -> Iterator[Emulated]:
    """An emulator for the length of the block."""
    chosen = Settings(data=Path("unused"), **{**SIMULATE_DEFAULTS, **settings})
    text = inventory or inventory_text(vms=vms, scopes=scopes, spot=spot)
    plan = EmulationPlan(settings=chosen, inventory=text, seed=seed, speed=speed, start_ms=start_ms)
    background = Background(plan)
    try:
        yield Emulated(background)
    finally:
        background.close()
