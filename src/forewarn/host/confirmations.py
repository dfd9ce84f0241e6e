"""The word of hosts that documents show: what is unconfirmed, said in turns until it is kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from forewarn.host.served_documents import Documents
from forewarn.logs import Log
from forewarn.wire.link import CONFIRMS_MAX, NotTaken, ShownScope

log = Log(__name__)


class Confirmations:
    """What is shown and not confirmed yet, by host and scope. Belongs to the event loop.

    What is shown but not `readable`, because a way to its guests is broken, is not confirmed: its
    notice does not run. Hosts that are not `powered` say nothing until they are.
    """

    def __init__(
        self,
        documents: Documents,
        *,
        readable: Callable[[ShownScope], bool] = lambda _: True,
        powered: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._documents = documents
        self._readable = readable
        self._powered = powered
        self._unconfirmed: dict[str, dict[str, int]] = {}  # incarnations, by host, then by scope
        self._wanted_since: set[tuple[str, str]] = set()  # since the last turn said it
        self._why_not: dict[tuple[str, str], str] = {}

    @property
    def hosts(self) -> Collection[str]:
        """Those that have something to confirm, by name."""
        return sorted(self._unconfirmed)

    def waits(self, host: str) -> bool:
        """True while something is unconfirmed by the host."""
        return host in self._unconfirmed

    def shown(self, host: str, scope: ShownScope) -> None:
        """The scope's document is on show at the host, which says so if control wants to hear."""
        if scope.to_confirm:
            self._unconfirmed.setdefault(host, {})[scope.name] = scope.incarnation
            self._wanted_since.add((host, scope.name))
        else:
            self._done(host, scope.name)

    def forget(self, host: str) -> None:
        """This host is none of ours, or has left: it confirms nothing."""
        for scope in self._unconfirmed.pop(host, {}):
            self._wanted_since.discard((host, scope))

    def ready(self, host: str) -> dict[str, int]:
        """The incarnations that guests of the host can read by now, at most as a turn holds."""
        confirms: dict[str, int] = {}
        for scope, incarnation in list(self._unconfirmed.get(host, {}).items()):
            shown = self._documents.incarnation_shown(scope)
            if shown is None:
                self._done(host, scope)
            elif shown < incarnation or not self._powered(host) or len(confirms) >= CONFIRMS_MAX:
                continue
            else:
                page = self._documents.page(scope)
                if page is not None and self._readable(page.scope):
                    confirms[scope] = shown
                else:
                    self._say_once("not_readable", host, "a guest cannot be reached", scope=scope)
        return confirms

    def said(self, host: str, confirms: Mapping[str, int]) -> None:
        """A turn says this now."""
        self._wanted_since.difference_update((host, scope) for scope in confirms)

    def told(self, host: str, said: Mapping[str, int], refused: Mapping[str, NotTaken]) -> None:
        """Control has taken a turn that said this. What it refuses is said again."""
        for scope, incarnation in said.items():
            why = refused.get(scope)
            if why is not None:
                words = f"{why.detail} {why.remedy}".strip()
                self._say_once("confirmation_not_kept", host, words, scope=scope)
                waiting = self._unconfirmed.get(host, {})
                if scope in waiting:  # behind the others: a turn holds only so many
                    waiting[scope] = waiting.pop(scope)
                continue
            self._why_not.pop(("confirmation_not_kept", host), None)
            self._why_not.pop(("not_readable", host), None)
            wanted = self._unconfirmed.get(host, {}).get(scope, incarnation)
            if wanted <= incarnation and (host, scope) not in self._wanted_since:
                self._done(host, scope)

    def _done(self, host: str, scope: str) -> None:
        self._wanted_since.discard((host, scope))
        left = self._unconfirmed.get(host, {})
        left.pop(scope, None)
        if not left:
            self._unconfirmed.pop(host, None)

    def _say_once(self, what: str, host: str, why: str, *, scope: str) -> None:
        """Log what control would not take, once for each reason: it may be away for hours."""
        if self._why_not.get((what, host)) != why:
            log.warning(what, host=host, why=why, scope=scope)
        self._why_not[what, host] = why
