"""TLS of the operator API: a pair of files, or one of our own making, followed while it is served.

Loaded where the settings ask for it; `cryptography` only for a certificate of our own.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from forewarn.adapters.secret_files import OPERATOR_TLS_FOLDER
from forewarn.adapters.server_certificate import FollowedPair
from forewarn.adapters.sqlite.data_folder import DatabaseRefused
from forewarn.api.guarded_server import GuardedServer
from forewarn.core.errors import Invalid
from forewarn.logs import Log
from forewarn.metrics import Family, gauge
from forewarn.settings import Settings
from forewarn.wiring.own_names import server_names, server_url

if TYPE_CHECKING:
    from forewarn.adapters.certificate_authority import Authority

LOOK_EVERY_S = 5.0  # at files that others replace
RENEW_EVERY_S = 3_600.0

log = Log(__name__)


class OperatorTls:
    """The certificate of the operator API. Made and used on one event loop."""

    def __init__(
        self,
        settings: Settings,
        *,
        look_every_s: float = LOOK_EVERY_S,
        renew_every_s: float = RENEW_EVERY_S,
    ) -> None:
        """Have a certificate. Raises one of CannotStart with what is wrong with it."""
        self._settings = settings
        self._look_every_s = look_every_s
        self._renew_every_s = renew_every_s
        self._names = server_names(settings.operator, told=settings.operator_url)
        self._authority = _authority(settings) if settings.operator_tls == "own" else None
        self._followed = FollowedPair(*self._files())
        self._look_now = asyncio.Event()
        self._server: GuardedServer | None = None  # while it is served
        self._said = ""

    def _files(self) -> tuple[Path, Path]:
        if self._authority is not None:
            return self._authority.have_server(self._names)
        certificate, key = self._settings.operator_certificate, self._settings.operator_key
        if certificate is None or key is None:
            raise ValueError("the settings have no certificate")
        return certificate, key

    @property
    def context(self) -> ssl.SSLContext:
        """What the next connection is spoken to with."""
        return self._followed.pair.context

    @property
    def authority_file(self) -> Path | None:
        """What callers need to trust our own certificate; None for that of another authority."""
        return None if self._authority is None else self._authority.certificate_file

    def url(self, port: int) -> str:
        """How operators reach the API."""
        return server_url(self._settings.operator, port=port, told=self._settings.operator_url)

    def expiries_s(self) -> dict[str, float]:
        """When its certificates expire, in seconds since 1970."""
        mine: dict[str, float] = {"operator": self._followed.pair.until_s}
        if self._authority is not None:
            mine["operator-authority"] = self._authority.expiries_s()["authority"]
        return mine

    def collect(self) -> Iterator[Family]:
        yield gauge(
            "forewarn_operator_certificate_refused",
            "1 while the service cannot use its certificate files and serves the one before them.",
            int(bool(self._followed.refused)),
        )
        yield gauge(
            "forewarn_operator_handshakes",
            "Connections to the operator API that have not finished TLS now; normally few.",
            self._server.unfinished() if self._server else 0,
        )

    def look(self) -> None:
        """Look at the files now, and not only in a few seconds."""
        self._look_now.set()

    @asynccontextmanager
    async def followed(self, server: GuardedServer) -> AsyncIterator[None]:
        """Have a server, which runs, use each new certificate for the length of the block."""
        loop = asyncio.get_running_loop()
        self._server = server
        tasks = [loop.create_task(self._follow(server.use_tls))]
        if self._authority is not None:
            tasks.append(loop.create_task(self._renew()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, use: Callable[[ssl.SSLContext], None]) -> None:
        while True:
            try:
                async with asyncio.timeout(self._look_every_s):
                    await self._look_now.wait()
            except TimeoutError:
                pass
            self._look_now.clear()
            if await asyncio.to_thread(self._followed.look):
                use(self.context)
                log.info("operator_certificate_loaded", until_s=self._followed.pair.until_s)
            refused = self._followed.refused
            if refused and refused != self._said:
                log.error("operator_certificate_refused", why=refused, kept="the one before it")
            self._said = refused

    async def _renew(self) -> None:
        """Have our own certificate live on; the next look finds the new one."""
        while True:
            await asyncio.sleep(self._renew_every_s)
            try:
                await asyncio.to_thread(self._files)
            except DatabaseRefused as why:
                log.error("certificate_not_renewed", why=str(why))  # noqa: TRY400 - says it all


def _authority(settings: Settings) -> Authority:
    try:
        from forewarn.adapters.certificate_authority import Authority  # noqa: PLC0415 - see above
    except ModuleNotFoundError as missing:
        raise Invalid(
            f'operator_tls = "own" cannot be had without {missing.name}.',
            "Install it: pip install 'forewarn[hosts]'; or name the files of a certificate with"
            " operator_certificate and operator_key.",
        ) from None
    return Authority(settings.data / OPERATOR_TLS_FOLDER, name="forewarn operator authority")
