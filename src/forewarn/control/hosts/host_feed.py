"""What each host is shown: which scopes, what of them is new to it, and whether it has work.

Lives on the event loop and is told of every commit. How far a host is, is the number of a commit
in the store (`feed_positions`): control tells a host that followed an earlier control of this store
what has changed since then, at once, so that the host knows which control tells it now.

What is new to a host is computed when it asks: a commit only marks the scopes and rings, so a
change that concerns two hundred hosts costs the writer's next batch next to nothing. Hosts that are
shown the same as before, as they are after an approval, are left alone. What a host is shown of a
scope is encoded once for each host and change, however often it asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile

import msgspec
from msgspec import Struct, field

from forewarn.control.hosts.feed_positions import NOTHING, History
from forewarn.control.hosts.own_vms import ScopeByHost
from forewarn.core import document, scope_edits
from forewarn.core.model import Action, ActionPhase, Operation, OperationPhase, Scope
from forewarn.core.unfinished_moves import carriers, hosts_mentioned, mention_the_same
from forewarn.doorbell import rung
from forewarn.ports import Change
from forewarn.wire.link import (
    CHANGES_WAIT_S_MAX,
    Adoption,
    Changes,
    ShownScope,
    Since,
)

# What a host has never been shown is encoded for it, so many scopes at a time; then the event loop
# has its turn. A host may have thousands.
ENCODED_AT_ONCE = 128
# One daemon needs one. What is left of connections that it gave up makes way for what it asks next.
WAITING_PER_HOST_MAX = 8

_NONE: frozenset[str] = frozenset()


class EncodedChanges(msgspec.Struct, frozen=True):
    """`wire.link.Changes`, with scopes as they go over the wire."""

    epoch: str
    position: int
    names: tuple[str, ...]
    scopes: tuple[msgspec.Raw, ...]
    work: bool
    adoptions: tuple[Adoption, ...]


class _Scope(Struct, frozen=True):
    """A scope as last committed, with the hosts it mentions and the actions that wait there.

    `unconfirmed` are its events (host, id) of which the host has not said that it shows them.
    `commit` is its last commit, `shown` the last one that changed what some host is shown of it.
    """

    showing: ScopeByHost
    carriers: frozenset[str]  # of its VMs
    hosts: frozenset[str]
    waiting: Mapping[str, frozenset[str]]
    unconfirmed: frozenset[tuple[str, str]]
    commit: int
    shown: int


class _Shown(Struct):
    """What a host is shown of a scope since a commit. `looked` is the last one it was made of.

    It is made when it is asked for: as a value by a host in this process, as JSON by any other.
    """

    showing: ScopeByHost
    host: str
    since: int
    looked: int
    what: ShownScope | None = None
    raw: msgspec.Raw | None = None

    def value(self) -> ShownScope:
        if self.what is None:
            self.what = self.showing.to(self.host)
        return self.what

    def encoded(self) -> msgspec.Raw:
        if self.raw is None:
            self.raw = self.showing.encoded(self.host)
        return self.raw


class _Told(Struct, frozen=True):
    """What a host is told, before anything is encoded."""

    epoch: str
    position: int
    names: tuple[str, ...]
    scopes: tuple[_Shown, ...]
    work: bool
    adoptions: tuple[Adoption, ...]

    def as_values(self) -> Changes:
        scopes = tuple(one.value() for one in self.scopes)
        return Changes(self.epoch, self.position, self.names, scopes, self.work, self.adoptions)


class _Known(Struct, frozen=True):
    """What a host knows when it asks: a position, and how often it was rung for.

    `anew`: this control has not told it anything yet, and is to say that it is there.
    """

    position: int
    rings: int
    anew: bool


class _Reader(Struct):
    """One host that reads. `rung` is the last commit with something else that is new.

    `rings` counts what is new without a commit, `told_rings` what the host was told of that.
    """

    names: set[str] = field(default_factory=set)
    in_order: tuple[str, ...] | None = None  # the names; None once they have changed
    shown: dict[str, _Shown] = field(default_factory=dict)  # what changed last is at the end
    marked: set[str] = field(default_factory=set)  # names that may have changed since they were
    newest: int = 0  # the commit since which the last of `shown` is shown so
    rung: int = 0
    rings: int = 1  # a host that asks for the first time is answered
    told_rings: int = 0
    worked: int = 0
    ring: asyncio.Event = field(default_factory=asyncio.Event)
    asked: int = 0  # questions so far that wait or waited
    waiting: list[int] = field(default_factory=list)  # those that do, by number, the oldest first
    forgotten: bool = False  # the host has left since; a question that still looks here begins anew


class HostFeed:
    """Answers `/link/changes`. Belongs to the event loop.

    `adoptions` are those that wait for a host; ring it when there is a new one. `asked` is called
    with a host that has looked at what is shown in this epoch: one that is told everything, or asks
    what is new since it was told.
    """

    def __init__(
        self,
        history: History | None = None,
        *,
        adoptions: Callable[[str], tuple[Adoption, ...]] = lambda _: (),
        asked: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._history = history or History()
        self.epoch = self._history.epoch
        self.position = self._history.position
        self._adoptions = adoptions
        self._asked = asked
        self._scopes: dict[str, _Scope] = {}
        self._operations: dict[str, Operation] = {}  # whose action no host has claimed yet
        self._by_host: dict[str, _Reader] = {}
        self._rung: set[str] = set()
        self._closed = False

    def load(
        self,
        scopes: Iterable[Scope],
        operations: Iterable[Operation],
        shown: Mapping[str, int] | None = None,
    ) -> None:
        """Begin with what was open before any host asks.

        `shown` says which commit last changed what hosts are shown of a scope; the newest one where
        it says nothing.
        """
        known = shown or {}
        for scope in scopes:
            self._put_scope(scope, known.get(scope.name, self.position))
        for operation in operations:
            self._put_operation(operation)

    def published(self, changes: Sequence[Change]) -> None:
        """Take over what was committed, and wake the hosts it concerns."""
        for change in changes:
            self.position = change.commit
            for _, after in change.scopes:
                self._put_scope(scope_edits.open_only(after), self._shown(change, after.name))
            for name in change.removed_scopes:
                self._drop_scope(name)
            for _, operation in change.operations:
                self._put_operation(operation)

    def _shown(self, change: Change, name: str) -> int:
        """The last commit that changed what some host is shown of a scope."""
        before = self._scopes.get(name)
        return change.commit if before is None or name in change.shown else before.shown

    def ring(self, host: str) -> None:
        """There is something new for the host that is no scope and no work, and no commit."""
        if host in self._by_host:  # else it is told everything when it asks
            self._wake(host).rings += 1

    def forget(self, hosts: Iterable[str]) -> None:
        """These hosts have left the fleet. A caller that waits as one of them is answered.

        One that comes back is told everything there is for it, whatever it knows.
        """
        for host in hosts:
            self.ring(host)
            reader = self._by_host.pop(host, None)
            if reader is not None:
                reader.forgotten = True
            self._rung.discard(host)

    def waiting(self) -> int:
        """How many questions wait for a change now."""
        return sum(len(reader.waiting) for reader in self._by_host.values())

    def close(self) -> None:
        """No host waits any more, now or later: the service is stopping."""
        self._closed = True
        for reader in self._by_host.values():
            reader.ring.set()

    async def encoded(self, host: str, since: Since | None, wait_s: int) -> EncodedChanges:
        """As `changes`, for the wire."""
        told = await self._changes(host, since, wait_s)
        scopes: list[msgspec.Raw] = []
        while len(scopes) < len(told.scopes):
            if scopes:
                await asyncio.sleep(0)
            some = told.scopes[len(scopes) : len(scopes) + ENCODED_AT_ONCE]
            scopes += [one.encoded() for one in some]
        return EncodedChanges(
            told.epoch, told.position, told.names, tuple(scopes), told.work, told.adoptions
        )

    async def changes(self, host: str, since: Since | None, wait_s: int) -> Changes:
        """What is new for the host since then, as soon as there is anything, or when time is up.

        Of too many that wait for one host the oldest is answered that nothing is new.
        """
        return (await self._changes(host, since, wait_s)).as_values()

    def now(self, host: str, since: Since | None) -> Changes | None:
        """What is new for the host since then, without waiting; None if nothing is."""
        reader = self._reader(host)
        for name in self._marked(reader):
            self._refresh(host, reader, name)
        reader.marked.clear()
        told = self._look(host, reader, self._known(reader, since))
        return None if told is None else told.as_values()

    def take_rung(self) -> list[str]:
        """The hosts that have been rung since this was last asked, by name."""
        rung, self._rung = sorted(self._rung), set()
        return rung

    async def _changes(self, host: str, since: Since | None, wait_s: int) -> _Told:
        reader = self._reader(host)
        if since is not None and since.epoch == self.epoch:
            self._asked(host)
        known = self._known(reader, since)
        ring = _unrung(reader)
        await self._refresh_all(host, reader)
        found = self._look(host, reader, known)
        if found is None and wait_s > 0 and not self._closed:
            found = await self._wait(host, reader, known, ring, min(wait_s, CHANGES_WAIT_S_MAX))
        if since is None and not reader.forgotten:
            self._asked(host)
        return found or self._answer(host, reader, (), work=False)

    async def _wait(
        self, host: str, reader: _Reader, known: _Known, ring: asyncio.Event, wait_s: int
    ) -> _Told | None:
        """What is new for the host once there is anything; None when time is up."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + wait_s
        reader.asked += 1
        number = reader.asked
        reader.waiting.append(number)
        if len(reader.waiting) > WAITING_PER_HOST_MAX:
            del reader.waiting[0]
            reader.ring.set()
        try:
            while True:
                await rung(ring, give_up_s - loop.time())
                ring = _unrung(reader)
                await self._refresh_all(host, reader)
                found = self._look(host, reader, known)
                over = self._closed or number not in reader.waiting or loop.time() >= give_up_s
                if found is not None or over:
                    return found
        finally:
            if number in reader.waiting:
                reader.waiting.remove(number)

    def _known(self, reader: _Reader, since: Since | None) -> _Known:
        position = self._history.position_of(since, self.position)
        anew = position == NOTHING or since is None or since.epoch != self.epoch
        return _Known(position, reader.told_rings, anew)

    # Looking.

    async def _refresh_all(self, host: str, reader: _Reader) -> None:
        """Have what the host is shown as it is now, also of what is committed meanwhile."""
        while reader.marked:
            some = self._marked(reader)[:ENCODED_AT_ONCE]
            for name in some:
                self._refresh(host, reader, name)
            reader.marked.difference_update(some)
            if reader.marked:
                await asyncio.sleep(0)

    def _marked(self, reader: _Reader) -> list[str]:
        """What may have changed for a host, in the order in which it did."""
        return sorted(reader.marked, key=lambda name: self._scopes[name].shown)

    def _look(self, host: str, reader: _Reader, known: _Known) -> _Told | None:
        """What is new for the host, None if nothing is. Nothing is marked any more."""
        then = known.position
        fresh = list(takewhile(lambda one: one.since > then, reversed(reader.shown.values())))
        fresh.sort(key=lambda one: one.showing.scope.name)
        work = (known.anew or reader.worked > then) and self._has_work(host, reader)
        rung = known.anew or reader.rung > then or reader.rings > known.rings
        if not fresh and not work and not rung:
            return None
        return self._answer(host, reader, fresh, work=work)

    def _answer(self, host: str, reader: _Reader, scopes: Iterable[_Shown], *, work: bool) -> _Told:
        if reader.in_order is None:
            reader.in_order = tuple(sorted(reader.names))
        reader.told_rings = reader.rings
        return _Told(
            epoch=self.epoch,
            position=NOTHING if reader.forgotten else self.position,
            names=reader.in_order,
            scopes=tuple(scopes),
            work=work,
            adoptions=self._adoptions(host),
        )

    def _refresh(self, host: str, reader: _Reader, name: str) -> None:
        """Have what the host is shown of a scope as it is now."""
        scope, shown = self._scopes[name], reader.shown
        before = shown.get(name)
        now = _Shown(scope.showing, host, scope.shown, scope.commit)
        if before is not None:
            if before.looked == scope.commit:
                return
            if _alike(before, now):
                now.since = before.since
                shown[name] = now  # in its place: nothing is new
                return
            del shown[name]
        reader.newest = max(reader.newest, scope.shown)  # in their order, or a host hears less
        now.since = reader.newest
        shown[name] = now

    def _has_work(self, host: str, reader: _Reader) -> bool:
        if any(operation.host == host for operation in self._operations.values()):
            return True
        return any(host in self._scopes[name].waiting for name in reader.names)

    # Taking over what was committed.

    def _put_scope(self, scope: Scope, shown: int) -> None:
        before = self._scopes.get(scope.name)
        now = self._scopes[scope.name] = _followed(before, scope, self.position, shown)
        if before is None:
            self._begin_scope(now)
        else:
            self._change_scope(before, now)

    def _begin_scope(self, now: _Scope) -> None:
        self._mark(now.hosts, now.showing.scope.name)
        for host in now.hosts & now.waiting.keys():
            self._wake(host).worked = self.position

    def _change_scope(self, before: _Scope, now: _Scope) -> None:
        name = now.showing.scope.name
        for host in now.showing.confirmed_since(before.showing) & now.hosts:
            self._reader(host).marked.add(name)  # wake no host: this one knows
        self._tell_of_work(before, now)
        if now.hosts is before.hosts and now.showing.same_as(before.showing):
            return
        for host in before.hosts - now.hosts:
            self._take_away(host, name)
        marked: Iterable[str] = now.hosts
        if not now.showing.differs_for_all(before.showing):
            came = now.hosts - before.hosts
            marked = [h for h in now.hosts if h in came or now.showing.differs(before.showing, h)]
        self._mark(marked, name)
        for host, _ in now.unconfirmed - before.unconfirmed:
            # What a host had confirmed does not count any more. It may never have been shown the
            # scope as confirmed: then it is shown nothing else now, and yet has to confirm again.
            self._reader(host).shown.pop(name, None)

    def _tell_of_work(self, before: _Scope, now: _Scope) -> None:
        if now.waiting is before.waiting:
            return
        for host, actions in now.waiting.items():
            if actions - before.waiting.get(host, _NONE):
                self._wake(host).worked = self.position

    def _mark(self, hosts: Iterable[str], name: str) -> None:
        """These hosts are shown something else of a scope, or it for the first time."""
        for host in hosts:
            reader = self._wake(host)
            if name not in reader.names:
                reader.names.add(name)
                reader.in_order = None
            reader.marked.add(name)

    def _drop_scope(self, name: str) -> None:
        before = self._scopes.pop(name, None)
        for host in before.hosts if before else ():
            self._take_away(host, name)

    def _take_away(self, host: str, name: str) -> None:
        reader = self._wake(host)
        reader.names.discard(name)
        reader.in_order = None
        reader.shown.pop(name, None)
        reader.marked.discard(name)
        reader.rung = self.position

    def _put_operation(self, operation: Operation) -> None:
        known = operation.operation_id in self._operations
        if operation.phase is OperationPhase.ENDED or not _unclaimed(operation.action):
            self._operations.pop(operation.operation_id, None)
            return
        self._operations[operation.operation_id] = operation
        if not known:
            self._wake(operation.host).worked = self.position

    def _wake(self, host: str) -> _Reader:
        """The host as a reader that has something new to read; wakes the caller that waits."""
        reader = self._reader(host)
        if not reader.ring.is_set():
            reader.ring.set()
        self._rung.add(host)
        return reader

    def _reader(self, host: str) -> _Reader:
        reader = self._by_host.get(host)
        if reader is None:
            reader = self._by_host[host] = _Reader()
        return reader


def _followed(before: _Scope | None, scope: Scope, commit: int, shown: int) -> _Scope:
    """A scope as it is now. What has not changed since `before` is not made again."""
    if before is None:
        carrying = carriers(scope)
        hosts, left = hosts_mentioned(scope, carrying), _unconfirmed(scope)
        return _Scope(ScopeByHost(scope), carrying, hosts, _waiting(scope), left, commit, shown)
    showing = ScopeByHost(scope, before.showing)
    same = showing.waits_as(before.showing)
    unconfirmed = before.unconfirmed if same else _unconfirmed(scope)
    then = before.showing.scope
    waiting = before.waiting if _act_as(then, scope) else _waiting(scope)
    if mention_the_same(then, scope):
        carrying, hosts = before.carriers, before.hosts
        return _Scope(showing, carrying, hosts, waiting, unconfirmed, commit, shown)
    carrying = before.carriers if then.vms is scope.vms else carriers(scope)
    hosts = hosts_mentioned(scope, carrying)
    return _Scope(showing, carrying, hosts, waiting, unconfirmed, commit, shown)


def _alike(before: _Shown, now: _Shown) -> bool:
    """True if the host is shown the same as before, or has confirmed that and nothing else."""
    if before.showing.incarnation != now.showing.incarnation:
        return False
    then, what = before.value(), now.value()
    return then == what or _confirmed(then, what)


def _confirmed(before: ShownScope, now: ShownScope) -> bool:
    """True if nothing has changed but that the host need not confirm it any more: it did."""
    waited = before.to_confirm and not now.to_confirm
    return waited and msgspec.structs.replace(before, to_confirm=False) == now


def _act_as(before: Scope, scope: Scope) -> bool:
    """True if the scope surely has the same actions as before, each as it was."""
    pairs = document.in_place(before.events, scope.events)
    return pairs is not None and all(old.actions is new.actions for old, new in pairs)


def _waiting(scope: Scope) -> dict[str, frozenset[str]]:
    """The actions of a scope that no host has claimed yet, by the host that has to."""
    found: dict[str, set[str]] = {}
    for event in scope.events:
        for action in event.actions:
            if action.host is not None and _unclaimed(action):
                found.setdefault(action.host, set()).add(action.action_id)
    return {host: frozenset(actions) for host, actions in found.items()}


def _unconfirmed(scope: Scope) -> frozenset[tuple[str, str]]:
    return frozenset(
        (event.host, event.event_id)
        for event in scope.events
        if event.visible and event.shown_ms is None
    )


def _unclaimed(action: Action | None) -> bool:
    return action is not None and action.phase is ActionPhase.PENDING


def _unrung(reader: _Reader) -> asyncio.Event:
    """What rings at the next change. Taken before the caller looks, so that it misses nothing."""
    if reader.ring.is_set():
        reader.ring = asyncio.Event()
    return reader.ring
