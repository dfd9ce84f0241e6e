"""The hosts of a process that is control too: each follows control, in step with its commits.

What a daemon far from control does by loops and questions is done here by steps that never wait:
before any caller is answered, the hosts have taken over what was committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from forewarn.endpoint.registry import Guest, Page
from forewarn.host.daemon import Hosts
from forewarn.host.feed_reader import FeedReader
from forewarn.host.served_documents import Documents
from forewarn.logs import Log
from forewarn.ports import Clock, HostLink
from forewarn.wire.link import Changes, ShownScope, Since

log = Log(__name__)


class HostDocuments:
    """The documents of one host among several that share a process.

    `shown_as` turns a scope into what its guests are shown.
    """

    def __init__(
        self, documents: Documents, host: str, shown_as: Callable[[ShownScope], ShownScope]
    ) -> None:
        self._documents = documents
        self._host = host
        self._shown_as = shown_as

    def show(self, scope: ShownScope) -> None:
        shown = self._shown_as(scope)
        self._documents.show(shown, host=self._host, told=scope.incarnation)

    def drop(self, scope_name: str) -> None:
        self._documents.drop(scope_name, host=self._host)

    def expect(self, vm: str) -> None:
        self._documents.expect(vm)

    def page(self, scope_name: str) -> Page | None:
        return self._documents.page(scope_name)

    def guest(self, vm: str) -> Guest | None:
        return self._documents.guest(vm)


class InProcessHosts:
    """Followers of all hosts of this process. Belongs to the event loop.

    `now` is what is new for a host, without waiting.
    """

    def __init__(
        self,
        *,
        links: Callable[[str], HostLink],
        now: Callable[[str, Since | None], Changes | None],
        documents: Documents,
        hosts: Hosts,
        clock: Clock,
        shown_as: Callable[[ShownScope], ShownScope] = lambda scope: scope,
    ) -> None:
        self._links = links
        self._now = now
        self._documents = documents
        self._hosts = hosts
        self._clock = clock
        self._shown_as = shown_as
        self._readers: dict[str, FeedReader] = {}
        self._broken: dict[str, str] = {}  # hosts that have still to take over, and why
        self.failures = 0

    def take_over(self, hosts: Iterable[str]) -> None:
        """Have these hosts take over what is new for them, and those that could not before.

        The caller is told of a ring only once. A host that breaks does not hold up the others, and
        is tried again with the next commit, of which the service makes one every 5 s.
        """
        for host in sorted({*hosts, *self._broken}):
            try:
                self._take_over(host)
            except Exception as error:  # noqa: BLE001 - one host: the others go on; logged once
                self._broke(host, error)
            else:
                self._broken.pop(host, None)

    def _take_over(self, host: str) -> None:
        feed_reader = self._readers.get(host) or self._follow(host)
        changes = self._now(host, feed_reader.since)
        if changes is not None:
            feed_reader.take(changes)

    def _broke(self, host: str, error: Exception) -> None:
        self.failures += 1
        if self._broken.get(host) != repr(error):
            log.error("taking_over_broke", host=host, exc_info=error)
        self._broken[host] = repr(error)

    def forget(self, hosts: Iterable[str]) -> None:
        """These hosts have left the fleet, and have taken over that they show nothing."""
        for host in hosts:
            self._readers.pop(host, None)
            self._broken.pop(host, None)

    def _follow(self, host: str) -> FeedReader:
        documents = HostDocuments(self._documents, host, self._shown_as)
        feed_reader = self._readers[host] = FeedReader(
            host,
            link=self._links(host),
            documents=documents,
            hosts=self._hosts,
            monotonic_ms=self._clock.monotonic_ms,
        )
        return feed_reader
