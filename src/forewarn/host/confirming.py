"""The word of hosts that documents show: what is unconfirmed, said to control until it is kept.

`once` is one turn over everything that a host has not confirmed. Who drives it decides when the
next one is, and which hosts have theirs at the same time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from forewarn.core.errors import Refusal, Unavailable
from forewarn.host.documents import Documents
from forewarn.logs import Log
from forewarn.wire.link import ShownScope

log = Log(__name__)


class Confirmations:
    """What is shown and not confirmed yet, by host and scope. Belongs to the event loop.

    `confirm` tells control that a host shows an incarnation of a scope. What is shown but not
    `readable`, because a way to its guests is broken, is not confirmed: its notice does not run.
    Hosts that are not `powered` say nothing until they are.
    """

    def __init__(
        self,
        documents: Documents,
        *,
        confirm: Callable[[str, str, int], Awaitable[None]],
        readable: Callable[[ShownScope], bool] = lambda _: True,
        powered: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._documents = documents
        self._confirm = confirm
        self._readable = readable
        self._powered = powered
        self._unconfirmed: dict[str, dict[str, int]] = {}  # incarnations, by host, then by scope
        self._why_not: dict[tuple[str, str], str] = {}
        self.failures = 0

    def __bool__(self) -> bool:
        """True while something is unconfirmed by a host that could say it."""
        return any(self._powered(host) for host in self._unconfirmed)

    @property
    def hosts(self) -> Collection[str]:
        """Those that have something to confirm, by name."""
        return sorted(self._unconfirmed)

    def shown(self, host: str, scope: ShownScope) -> None:
        """The scope's document is on show at the host, which says so if control wants to hear."""
        if scope.to_confirm:
            self._unconfirmed.setdefault(host, {})[scope.name] = scope.incarnation
        else:
            self._done(host, scope.name)

    def forget(self, host: str) -> None:
        """This host is none of ours, or has left: it confirms nothing."""
        self._unconfirmed.pop(host, None)

    async def once(self, host: str) -> bool:
        """Confirm what guests of the host can read by now. False if some must be sent again."""
        all_kept = True
        for scope, incarnation in list(self._unconfirmed.get(host, {}).items()):
            if host not in self._unconfirmed:
                break  # forgotten meanwhile
            shown = self._documents.incarnation_shown(scope)
            if shown is None:
                self._done(host, scope)
                continue
            if shown < incarnation or not self._powered(host):
                continue
            page = self._documents.page(scope)
            if page is None or not self._readable(page.scope):
                self._say_once("not_readable", host, "a guest cannot be reached", scope=scope)
                all_kept = False
                continue
            try:
                await self._confirm(host, scope, shown)
            except (Refusal, Unavailable) as why:
                self._say_once("confirmation_not_kept", host, str(why), scope=scope)
                all_kept = False
            except Exception:
                log.exception("confirmation_failed", host=host, scope=scope)  # the others go on
                self.failures += 1
                all_kept = False
            else:
                self._why_not.pop(("confirmation_not_kept", host), None)
                self._why_not.pop(("not_readable", host), None)
                if self._unconfirmed.get(host, {}).get(scope) == incarnation:
                    self._done(host, scope)
        return all_kept

    def _done(self, host: str, scope: str) -> None:
        left = self._unconfirmed.get(host, {})
        left.pop(scope, None)
        if not left:
            self._unconfirmed.pop(host, None)

    def _say_once(self, what: str, host: str, why: str, *, scope: str) -> None:
        """Log what control would not take, once for each reason: it may be away for hours."""
        if self._why_not.get((what, host)) != why:
            log.warning(what, host=host, why=why, scope=scope)
        self._why_not[what, host] = why
