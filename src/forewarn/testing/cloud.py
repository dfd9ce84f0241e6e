"""The cloud of a test: a whole Forewarn in the background, driven by plain calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from forewarn.api import orders
from forewarn.control import overview
from forewarn.core.model import SECOND_MS, EventType
from forewarn.emulator.fleet import inventory_text
from forewarn.settings import SIMULATE_DEFAULTS, Settings
from forewarn.testing.background import Background
from forewarn.wire.api_versions import NEWEST
from forewarn.wiring.simulate import Plan


class Cloud:
    """One emulated fleet. `with Cloud(scopes=["web:3"]) as cloud:` or the fixture `cloud`."""

    def __init__(
        self,
        *,
        vms: Sequence[str] = (),
        scopes: Sequence[str] = (),
        inventory: str | None = None,
        seed: int | None = None,
        speed: int = 0,
        **settings: Any,
    ) -> None:
        text = inventory_text(vms=vms, scopes=scopes) if inventory is None else inventory
        chosen = Settings(data=Path("unused"), **{**SIMULATE_DEFAULTS, **settings})
        self._background = Background(Plan(settings=chosen, inventory=text, seed=seed, speed=speed))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the cloud. A second time is without effect."""
        self._background.close()

    @property
    def background(self) -> Background:
        """The way to the emulator itself."""
        return self._background

    def urls(self) -> dict[str, str]:
        """Where each VM reads its document."""

        async def work(emulator: Any) -> dict[str, str]:
            return dict(emulator.urls())

        return self._background.call(work)

    def restart(self, vm: str) -> dict[str, Any]:
        return self._background.call(
            lambda e: e.control.submit(orders.order_vm(vm, EventType.REBOOT))
        )

    def advance(self, seconds: float) -> None:
        self._background.call(lambda e: e.pacer.advance(int(seconds * SECOND_MS)))

    def document(self, vm: str) -> dict[str, Any]:
        async def work(emulator: Any) -> bytes:
            return bytes(emulator.document(vm, NEWEST.name))

        found: dict[str, Any] = json.loads(self._background.call(work))
        return found

    def event(self, event_id: str) -> dict[str, Any]:
        return self._background.call(
            lambda e: e.control.read(
                lambda store: overview.show_event(store, event_id, e.clock.now_ms())
            )
        )
