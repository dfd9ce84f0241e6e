"""Follows control: asks what changed, shows it, and knows how old what it shows is.

One question at a time, always with what is known already, so nothing arrives out of order. While
control is away guests keep their last documents; when it is back, or is another one than before,
everything it sends is taken over, except that no guest is ever shown an older incarnation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.model import Scope
from forewarn.host.documents import Documents
from forewarn.wire.host_json import Adoption, Changes, Since

log = structlog.get_logger(__name__)

BACK_OFF_FIRST_S = 0.2
BACK_OFF_MAX_S = 5.0
# A poll is waited for no longer than this, so that a connection that died without a word is noticed
# soon, and the age of the documents stays small.
WAIT_S = 10
# A control that answers at once without anything new must not be asked in a circle.
ASK_AGAIN_AFTER_S = 0.01


class Asking(Protocol):
    """The one question of the follower."""

    async def changes(self, since: Since | None, wait_s: int, /) -> Changes: ...


class Showing(Protocol):
    """Who confirms what is shown and does what there is to do: `host.daemon.Hosts`."""

    def shown(self, scope: Scope) -> None: ...

    def ring(self, hosts: Sequence[str]) -> None: ...


def back_off_s(failures: int, chance: float) -> float:
    """How long to wait after so many failures in a row; `chance`, from 0 to 1, spreads hosts out.

    Between half and the whole of a time that doubles up to BACK_OFF_MAX_S.
    """
    whole_s = min(BACK_OFF_MAX_S, BACK_OFF_FIRST_S * 2.0 ** min(failures - 1, 16))
    return whole_s * (0.5 + 0.5 * chance)


class Follower:
    """Keeps the documents of one host as control has them. Belongs to the event loop.

    `chance` gives numbers from 0 to 1 for the back-off. `outdates` is called before anything newer
    is shown, `took_over` after each answer that changed what is shown, `wants` with each adoption,
    once, `reconnected` when control is there again.
    """

    def __init__(
        self,
        host: str,
        *,
        link: Asking,
        documents: Documents,
        hosts: Showing,
        monotonic_ms: Callable[[], int],
        chance: Callable[[], float] = lambda: 1.0,
        outdates: Callable[[], None] = lambda: None,
        took_over: Callable[[], None] = lambda: None,
        wants: Callable[[Adoption], None] = lambda _: None,
        reconnected: Callable[[], None] = lambda: None,
    ) -> None:
        self._host = host
        self._link = link
        self._documents = documents
        self._hosts = hosts
        self._monotonic_ms = monotonic_ms
        self._chance = chance
        self._outdates = outdates
        self._took_over = took_over
        self._wants = wants
        self._reconnected = reconnected
        self._since: Since | None = None
        self._names: set[str] = set()
        self._adoptions: frozenset[str] = frozenset()
        self._refused: set[str] = set()
        self._why_not = ""
        self._heard_ms: int | None = None
        self.answers = 0
        self.failures = 0
        self.epochs = 0

    @property
    def up(self) -> bool:
        """True while control answers."""
        return self._heard_ms is not None and not self._why_not

    @property
    def age_s(self) -> float | None:
        """How long ago control last said that this is what to show; None if it never did."""
        if self._heard_ms is None:
            return None
        return max(0, self._monotonic_ms() - self._heard_ms) / 1_000

    @property
    def names(self) -> frozenset[str]:
        """The scopes on show."""
        return frozenset(self._names)

    @property
    def refused(self) -> frozenset[str]:
        """Scopes whose document control wants to take back to an older incarnation."""
        return frozenset(self._refused)

    def resume(self, scopes: Sequence[Scope], *, heard_ms: int | None) -> None:
        """Show what was shown before this daemon began; control was last heard then, if known.

        Whatever control says replaces it, and what it does not name is dropped.
        """
        for scope in scopes:
            self._show(scope)
        self._heard_ms = heard_ms
        log.warning("last_documents_shown", host=self._host, scopes=len(self._names))

    async def run(self) -> None:
        """Follow until canceled."""
        in_a_row = 0
        while True:
            if await self.once():
                in_a_row = 0
                await asyncio.sleep(ASK_AGAIN_AFTER_S)
                continue
            in_a_row += 1
            await asyncio.sleep(back_off_s(in_a_row, self._chance()))

    async def once(self) -> bool:
        """Ask once and take the answer over. False if there was none; logged once per reason."""
        try:
            # After an outage nothing is waited for: whether control is there is news enough.
            wait_s = 0 if self._why_not else WAIT_S
            changes = await self._link.changes(self._since, wait_s)
            self._take_over(changes)
        except (Refusal, Unavailable) as why:
            self._lost(str(why))
            return False
        except Exception as error:
            if self._why_not != repr(error):
                log.exception("following_failed", host=self._host)
            self._why_not = repr(error)
            self.failures += 1
            return False
        return True

    def _lost(self, why: str) -> None:
        self.failures += 1
        if not self._why_not:
            log.warning("control_lost", host=self._host, why=why, documents_age_s=self.age_s)
        elif why != self._why_not:
            log.warning("control_still_lost", host=self._host, why=why)
        self._why_not = why

    def _take_over(self, changes: Changes) -> None:
        """Show what is new, drop what is not named any more, ring whoever has something to do."""
        if self._since is None or changes.epoch != self._since.epoch:
            self.epochs += 1
        if any(self._is_newer(scope) for scope in changes.scopes):
            self._outdates()
        for scope in changes.scopes:
            self._show(scope)
        gone = self._names.difference(changes.names)
        for name in gone:
            self._documents.drop(name)
            self._refused.discard(name)
        self._names.intersection_update(changes.names)
        self._since = Since(changes.epoch, changes.revision)
        self._heard_ms = self._monotonic_ms()
        self.answers += 1
        back, self._why_not = self._why_not, ""
        if changes.work:
            self._hosts.ring([self._host])
        self._adopt(changes.adoptions)
        if changes.scopes or gone:
            self._took_over()
        if back or self.answers == 1:
            log.info("control_heard", host=self._host, scopes=len(self._names))
            self._reconnected()

    def _is_newer(self, scope: Scope) -> bool:
        shown = self._documents.incarnation_shown(scope.name)
        return shown is None or shown < scope.incarnation

    def _show(self, scope: Scope) -> None:
        page = self._documents.page(scope.name)
        if page is not None and goes_back(page.scope, scope):
            if scope.name not in self._refused:
                log.error(
                    "incarnation_would_go_back",
                    scope=scope.name,
                    shown=page.incarnation,
                    sent=scope.incarnation,
                    remedy="control has lost what it knew: `forewarn restore` a backup there",
                )
            self._refused.add(scope.name)
            return
        self._refused.discard(scope.name)
        self._names.add(scope.name)
        self._documents.show(scope)
        self._hosts.shown(scope)
        for recovery in scope.recoveries:
            for vm in recovery.waiting_for:
                self._documents.expect(vm)

    def _adopt(self, adoptions: Sequence[Adoption]) -> None:
        """Hand on what is new; control repeats each until it is answered."""
        for adoption in adoptions:
            if adoption.adoption_id not in self._adoptions:
                self._wants(adoption)
        self._adoptions = frozenset(adoption.adoption_id for adoption in adoptions)


def goes_back(shown: Scope, sent: Scope) -> bool:
    """True if a guest that has read `shown` would read an older incarnation in `sent`.

    A scope whose VMs are all others is another scope of the same name, and begins anew.
    """
    if sent.incarnation >= shown.incarnation:
        return False
    return not {vm.vm_id for vm in shown.vms}.isdisjoint(vm.vm_id for vm in sent.vms)
