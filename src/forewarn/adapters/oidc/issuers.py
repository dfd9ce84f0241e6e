"""Who comes with the token of an issuer: the issuers of the settings, and the keys that they have.

Keys are fetched at the start, looked at again every few minutes and when a token names one that is
not known, and kept for a while when the issuer cannot be asked. Belongs to the event loop, which
nothing here blocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress

from forewarn.adapters.oidc.compact_tokens import read_token
from forewarn.adapters.oidc.fetching import Fetcher, NotFetched, may_ask
from forewarn.adapters.oidc.key_sets import KeySet, read_keys
from forewarn.core.access import Access
from forewarn.core.errors import BadToken, Unavailable
from forewarn.core.model import SECOND_MS
from forewarn.core.oidc_claims import IssuerRules, granted
from forewarn.logs import Log
from forewarn.metrics import Family, gauges
from forewarn.ports import Clock

KEYS_FRESH_MS = 300 * SECOND_MS  # a key that the issuer takes back is refused after this
KEYS_KEPT_MS = 24 * 3_600 * SECOND_MS  # while the issuer cannot be asked
# Between two attempts to get the keys of one issuer, whatever callers send.
ATTEMPT_EVERY_MS = 10 * SECOND_MS
LOOK_EVERY_S = 60.0  # whether keys are still fresh
DISCOVERY = "/.well-known/openid-configuration"

log = Log(__name__)


class Issuers:
    """Finds out what the bearers of tokens may do. `clock` is the machine's."""

    def __init__(
        self, rules: Iterable[IssuerRules], clock: Clock, fetcher: Fetcher | None = None
    ) -> None:
        fetcher = fetcher or Fetcher()
        self._clock = clock
        self._issuers = {one.issuer: _Issuer(one, clock, fetcher) for one in rules}

    async def access_for(self, token: str) -> Access:
        """What the bearer of a token may do.

        Raises BadToken if it is not by one of the issuers, not for us or not for now; NoRole if it
        grants nothing; Unavailable if the keys of its issuer cannot be had.
        """
        sent = read_token(token)
        issuer = self._issuers.get(sent.issuer)
        if issuer is None:
            raise BadToken("The settings do not name the issuer of this token.")
        keys = await issuer.keys_for(sent.key_id)
        claims = keys.verified(sent)
        return granted(claims, issuer.rules, now_s=self._clock.now_ms() / SECOND_MS)

    async def run(self) -> None:
        """Have fresh keys of every issuer, until canceled, so that callers need not wait."""
        while True:
            await asyncio.gather(*(one.refresh() for one in self._issuers.values()))
            await asyncio.sleep(LOOK_EVERY_S)

    async def close(self) -> None:
        """End what is under way."""
        await asyncio.gather(*(one.close() for one in self._issuers.values()))

    def collect(self) -> Iterator[Family]:
        yield gauges(
            "forewarn_oidc_keys_age_seconds",
            "Seconds since the service last got the keys of an issuer; -1 if it has none.",
            ("issuer",),
            [((name,), one.age_s()) for name, one in self._issuers.items()],
        )


class _Issuer:
    """One issuer and its keys."""

    def __init__(self, rules: IssuerRules, clock: Clock, fetcher: Fetcher) -> None:
        self.rules = rules
        self._clock = clock
        self._fetcher = fetcher
        self._keys: KeySet | None = None
        self._fetched_ms = 0
        self._attempt_ms: int | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._failed = ""  # why the last attempt failed; each new reason is logged

    def age_s(self) -> float:
        if self._keys is None:
            return -1
        return (self._clock.monotonic_ms() - self._fetched_ms) / SECOND_MS

    async def keys_for(self, key_id: str) -> KeySet:
        """Keys to check a signature with. Raises BadToken or Unavailable."""
        keys = self._kept()
        if keys is None:
            await self._fetch()
            keys = self._kept()
            if keys is None:
                raise Unavailable(
                    "The service cannot get the keys of the token's issuer, so it cannot check"
                    " the token."
                )
        elif key_id not in keys:
            await self._fetch()
            keys = self._kept() or keys
        elif self._is_old():
            self._begin()
        if key_id not in keys:
            raise BadToken("The token is signed with a key that its issuer does not have.")
        return keys

    def _kept(self) -> KeySet | None:
        """The keys, unless the issuer was away for too long."""
        if self._clock.monotonic_ms() - self._fetched_ms >= KEYS_KEPT_MS:
            self._keys = None
        return self._keys

    async def _fetch(self) -> None:
        """Have looked for keys, unless the last attempt was just now. One look for all callers."""
        under_way = self._begin()
        if under_way is not None:
            await asyncio.shield(under_way)

    def _begin(self) -> asyncio.Task[None] | None:
        """The look at the keys that is under way, or a new one; None if it is too early for one."""
        if self._fetching is not None:
            return self._fetching
        now_ms = self._clock.monotonic_ms()
        if self._attempt_ms is not None and now_ms - self._attempt_ms < ATTEMPT_EVERY_MS:
            return None
        self._attempt_ms = now_ms
        self._fetching = asyncio.get_running_loop().create_task(self._look())
        return self._fetching

    async def _look(self) -> None:
        try:
            self._keys = await self._published()
        except NotFetched as why:
            if str(why) != self._failed:
                log.warning("issuer_keys_not_fetched", issuer=self.rules.issuer, why=str(why))
            self._failed = str(why)
        else:
            self._fetched_ms = self._clock.monotonic_ms()
            if self._failed:
                log.info("issuer_keys_fetched", issuer=self.rules.issuer)
            self._failed = ""
        finally:
            self._fetching = None

    async def _published(self) -> KeySet:
        """The keys as the issuer publishes them. Raises NotFetched."""
        issuer = self.rules.issuer
        where = issuer.rstrip("/") + DISCOVERY
        discovered = await self._fetcher.fetch(where)
        if discovered.get("issuer") != issuer:
            raise NotFetched(f"{where} is of another issuer")
        url = discovered.get("jwks_uri")
        if not may_ask(url, issuer=issuer):
            raise NotFetched(f"{where} names no https URL as `jwks_uri`")
        document = await self._fetcher.fetch(str(url))
        try:
            return read_keys(document)
        except ValueError as error:
            raise NotFetched(f"{url} is no key set that can be used: {error}") from error

    async def refresh(self) -> None:
        """Have looked for keys if there are none or they are old; a failure is logged."""
        if self._kept() is None or self._is_old():
            await self._fetch()

    def _is_old(self) -> bool:
        return self._clock.monotonic_ms() - self._fetched_ms >= KEYS_FRESH_MS

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            with suppress(asyncio.CancelledError):
                await self._fetching
