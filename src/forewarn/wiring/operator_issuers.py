"""The OIDC issuers of the settings, asked while a service runs. Loaded where there are any."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from forewarn.adapters.system import SystemClock
from forewarn.api.access import AccessFor
from forewarn.control.metrics import ControlMetrics
from forewarn.core.errors import Invalid
from forewarn.settings import Settings


@asynccontextmanager
async def asking_issuers(
    settings: Settings, measures: ControlMetrics
) -> AsyncIterator[AccessFor | None]:
    """What says who comes with the token of an issuer; None if the settings have no issuer.

    A service starts also while an issuer is away. Raises Invalid without the library for it.
    """
    if not settings.issuers:
        yield None
        return
    try:
        from forewarn.adapters.oidc.issuers import Issuers  # noqa: PLC0415 - few have any
    except ModuleNotFoundError as missing:
        raise Invalid(
            f"Tokens of an issuer ([[oidc]]) cannot be checked without {missing.name}.",
            "Install it: pip install 'forewarn[oidc]'",
        ) from None
    # The machine's own clock, also in the emulator: an issuer knows of no other.
    issuers = Issuers(settings.issuers, SystemClock())
    measures.add(issuers)
    looking = asyncio.get_running_loop().create_task(issuers.run())
    try:
        yield issuers.access_for
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await issuers.close()
