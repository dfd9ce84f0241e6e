"""The documents this host shows: every scope rendered for every api-version, and its guests.

Mutable, on the event loop's thread. Rendering happens here, when a scope changes; the endpoint
only reads. What is durable is not known here: callers show what has been committed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from forewarn.endpoint.limits import DEFAULT_REQUESTS_PER_S, Bucket, connects
from forewarn.endpoint.registry import Document, Guest, Page
from forewarn.host.identity import Identity
from forewarn.wire import documents as wire_documents
from forewarn.wire.link import ShownEvent, ShownScope, ShownVm

EVENTS_KEPT_FROM = 8  # in a scope: what was rendered of each event is kept for the next time


class Documents:
    """Pages and guests by name. A VM keeps its Guest, and what it has read, while it exists."""

    def __init__(
        self, identity: Identity, *, requests_per_s: float = DEFAULT_REQUESTS_PER_S
    ) -> None:
        self._identity = identity
        self._requests_per_s = requests_per_s
        self._pages: dict[str, Page] = {}
        self._renderers: dict[str, wire_documents.Renderer] = {}
        self._told: dict[str, int] = {}
        self._shown_by: dict[str, dict[str, tuple[ShownVm, ...]]] = {}  # by scope, then by host
        self._guests: dict[str, Guest] = {}
        self._harvested_ms: dict[str, int] = {}
        self._vm_polls: dict[str, int] = {}  # since they were last asked for

    def show(self, scope: ShownScope, *, host: str = "", told: int | None = None) -> None:
        """Show this scope as it is from now on, to exactly its VMs. Wakes parked polls.

        Hosts that share a process each show their own VMs of a scope, by one document. `told` is
        the incarnation by which control knows it, if guests are shown another number.
        """
        page = self._pages.get(scope.name)
        if page is None:
            page = self._pages[scope.name] = Page(scope)
            self._shown_by[scope.name] = {}
        shown_by = self._shown_by[scope.name]
        before = shown_by.get(host, ())
        documents = self._rendered(page, scope)
        renewed = documents is not page.documents
        page.publish(scope, documents, enabled=scope.enabled)
        self._told[scope.name] = scope.incarnation if told is None else told
        shown_by[host] = scope.vms
        if renewed:
            self._look_again(shown_by.values())
        if before is scope.vms:
            return
        for vm in scope.vms:
            self._admit(vm, page)
        here = {vm.name for vm in scope.vms}
        gone = [vm for vm in before if vm.name not in here]
        if gone:
            self._dismiss_all(gone, page)

    def change(self, scope_name: str, incarnation: int, events: tuple[ShownEvent, ...]) -> None:
        """Show other events of a scope, to those to whom it is shown. Wakes parked polls."""
        page = self._pages.get(scope_name)
        if page is None:
            return
        scope = replace(page.scope, incarnation=incarnation, events=events)
        documents = self._rendered(page, scope)
        renewed = documents is not page.documents
        page.publish(scope, documents, enabled=page.enabled)
        if renewed:
            self._look_again(self._shown_by[scope_name].values())

    def _rendered(self, page: Page, scope: ShownScope) -> Mapping[str, Document]:
        """One document per api-version; versions with equal content share one.

        What has not changed keeps its document, so that its guests need not look again. Most
        changes (an approval, a confirmation, a claim) are nothing a guest can see: the incarnation
        says so (I4), and nothing is rendered. Only another control can mean other events by the
        same number.
        """
        before = page.documents if page.enabled == scope.enabled else {}
        same_number = bool(before) and page.incarnation == scope.incarnation
        if same_number and _tell_the_same(page.scope, scope):
            return before
        renderer = self._renderer(scope)
        shared: dict[tuple[bytes, frozenset[str]], Document] = {
            (document.body, document.event_ids): document for document in before.values()
        }
        documents: dict[str, Document] = {}
        for name, (body, event_ids) in renderer.render(scope).items():
            document = shared.get((body, event_ids))
            if document is None:
                document = Document(incarnation=scope.incarnation, body=body, event_ids=event_ids)
                shared[body, event_ids] = document
            documents[name] = document
        return documents

    def _renderer(self, scope: ShownScope) -> wire_documents.Renderer:
        """One that is kept while it saves more than it costs: what it keeps is memory."""
        if len(scope.events) < EVENTS_KEPT_FROM:
            self._renderers.pop(scope.name, None)
            return wire_documents.Renderer()
        return self._renderers.setdefault(scope.name, wire_documents.Renderer())

    def _look_again(self, shown: Iterable[Iterable[ShownVm]]) -> None:
        for vms in shown:
            for vm in vms:
                guest = self._guests.get(vm.name)
                if guest is not None:
                    guest.document = None

    def _dismiss_all(self, vms: Iterable[ShownVm], page: Page) -> None:
        """Cut off those of the VMs that no host shows the page to any more."""
        shown_by = self._shown_by.get(page.name, {})
        kept = {vm.name for shown in shown_by.values() for vm in shown}
        for vm in vms:
            if vm.name not in kept:
                self._dismiss(vm.name, page)

    def drop(self, scope_name: str, *, host: str = "") -> None:
        """Forget a scope and cut off its VMs. Without effect if it is not shown."""
        page = self._pages.get(scope_name)
        shown_by = self._shown_by.get(scope_name)
        if page is None or shown_by is None:
            return
        vms = shown_by.pop(host, ())
        self._dismiss_all(vms, page)
        if not shown_by:
            del self._pages[scope_name], self._shown_by[scope_name], self._told[scope_name]
            self._renderers.pop(scope_name, None)
            self._harvested_ms.pop(scope_name, None)

    def host_of(self, scope_name: str) -> str | None:
        """A host that shows the scope; None if none does."""
        return next(iter(self._shown_by.get(scope_name, ())), None)

    def expect(self, vm: str) -> None:
        """Tell the service (`returned`) when this VM polls next. Without effect if unknown."""
        guest = self._guests.get(vm)
        if guest is not None:
            guest.expected = True
            guest.look_again()

    def incarnation_shown(self, scope_name: str) -> int | None:
        """The incarnation that is on show, as control counts; None if the scope is not shown."""
        return self._told.get(scope_name)

    def polled(self) -> dict[str, int]:
        """The last poll, in wall ms, of every scope that was polled since the last call."""
        self._collect_polls(self._guests.values())
        fresh = {
            name: page.polled_ms
            for name, page in self._pages.items()
            if page.polled_ms and page.polled_ms != self._harvested_ms.get(name)
        }
        self._harvested_ms.update(fresh)
        return fresh

    def vm_polled(self) -> dict[str, int]:
        """The last poll, in wall ms, of every VM that has polled since the last call."""
        self._collect_polls(self._guests.values())
        fresh, self._vm_polls = self._vm_polls, {}
        return {vm: polled_ms for vm, polled_ms in fresh.items() if vm in self._guests}

    def vms(self) -> Collection[str]:
        """The names of the VMs that can read a document."""
        return self._guests.keys()

    def guest(self, vm: str) -> Guest | None:
        return self._guests.get(vm)

    def page(self, scope_name: str) -> Page | None:
        return self._pages.get(scope_name)

    def _collect_polls(self, guests: Iterable[Guest]) -> None:
        """Let the pages of these guests know of polls since this was last done.

        The newest of them counts, not the newest ever: the wall clock may have stepped back.
        """
        newest: dict[Page, int] = {}
        for guest in guests:
            if guest.polled_ms:
                newest[guest.page] = max(guest.polled_ms, newest.get(guest.page, 0))
                self._vm_polls[guest.name] = guest.polled_ms
                guest.polled_ms = 0
        for page, polled_ms in newest.items():
            page.polled_ms = polled_ms

    def _admit(self, vm: ShownVm, page: Page) -> Guest:
        guest = self._guests.get(vm.name)
        if guest is None:
            rate = self._requests_per_s
            guest = self._guests[vm.name] = Guest(vm, page, Bucket(rate), connects(rate))
            self._identity.learn(guest)
            return guest
        if guest.vm is vm and guest.page is page:
            return guest
        moved = guest.page is not page or guest.vm.vm_id != vm.vm_id  # or another VM of that name
        readdressed = guest.vm.address != vm.address
        if readdressed:
            self._identity.forget_address(guest)
        if moved or readdressed:
            self._collect_polls([guest])
            guest.cut()
            guest.look_again()
        guest.vm = vm
        guest.page = page
        if readdressed:
            self._identity.learn(guest)
        return guest

    def _dismiss(self, vm: str, page: Page) -> None:
        guest = self._guests.get(vm)
        if guest is None or guest.page is not page:
            return  # it lives in another scope by now
        del self._guests[vm]
        self._collect_polls([guest])
        self._identity.forget(guest)
        guest.gone = True
        guest.cut()


def _tell_the_same(one: ShownScope, other: ShownScope) -> bool:
    """Whether both show the same events in the same phases."""
    if one.events is other.events:  # hosts of one process are most often shown the same values
        return True
    if len(one.events) != len(other.events):
        return False
    for a, b in zip(one.events, other.events, strict=True):
        if a is b:
            continue
        if a.event_id != b.event_id or a.phase != b.phase:
            return False
    return True
