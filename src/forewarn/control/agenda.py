"""When the ticker has to look at which scope: a heap of instants, so that a tick costs what is due.

Time alone makes things possible at instants that are known beforehand: notice has been given, a
deadline or a recovery is over, no VM has polled for a day. What is due and still held (another
domain, a host that is silent, no place) is looked at in every tick until it has happened.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from forewarn.control.fleet_reader import FleetReader
from forewarn.core import document, lost_time, notice, starting, windows
from forewarn.core import hosts as host_rules
from forewarn.core.model import Phase, Scope
from forewarn.ports import Change

OUTDATED_MIN = 64  # entries; so few are no reason to make the heap anew


def instants(scope: Scope) -> Iterator[int]:
    """The wall times from which something of the scope is possible, as far as they are known."""
    if scope.enabled and scope.polled_ms is not None:
        yield scope.polled_ms + notice.ENABLED_FOR_MS
    for recovery in scope.recoveries:
        yield recovery.until_ms
    someone_off = any(vm.off for vm in scope.vms)
    for event in scope.events:
        if event.phase is Phase.SCHEDULED:
            unasked = someone_off and starting.unasked(scope, event)
            due_ms = notice.due_from_ms(event, unasked=unasked)
            if notice.due(event, 0, unasked=unasked):  # it stays due if the clock is set back
                due_ms = 0
            if due_ms is not None:
                yield max(due_ms, windows.opens_ms(event.window))
            if event.window is not None:
                yield event.window.end_ms
        elif event.phase is Phase.STARTED and event.deadline_ms is not None:
            yield event.deadline_ms


def _waits(scope: Scope, now_ms: int) -> bool:
    """True while something of the scope is due, also if the clock was set back since, or waits
    for a place.
    """
    someone_off = any(vm.off for vm in scope.vms)
    for event in scope.events:
        if host_rules.waits_for_place(event):
            return True
        if event.phase is Phase.SCHEDULED:
            unasked = someone_off and starting.unasked(scope, event)
            opened = windows.is_open(event.window, now_ms)
            if opened and notice.due(event, now_ms, unasked=unasked):
                return True
    return False


def _told_elsewhere(before: Scope | None, after: Scope) -> bool:
    """Whether notices of a scope may run on other hosts than before; no approval changes that."""
    pairs = None if before is None else document.in_place(before.events, after.events)
    if pairs is None:
        return True
    return any(
        old.host != new.host or lost_time.notice_runs(old) is not lost_time.notice_runs(new)
        for old, new in pairs
    )


class Agenda:
    """The scopes that may have something due. Belongs to the event loop; tell it of each commit."""

    def __init__(self, fleet: FleetReader) -> None:
        self._fleet = fleet
        self._heap: list[tuple[int, str]] = []
        self._at_ms: dict[str, int] = {}  # the entry that counts, by scope; others are outdated
        self._look_now: set[str] = set()
        self._told_hosts: dict[str, frozenset[str]] = {}  # by scope: where its notices run
        self._told: Counter[str] = Counter()
        for scope in fleet.scopes.values():
            self._changed(scope)

    def published(self, changes: Sequence[Change]) -> None:
        """Note the scopes that a commit changed, to look at them. The fleet has the commit."""
        for change in changes:
            for name in change.removed_scopes:
                self._tell(name, frozenset())
                self._at_ms.pop(name, None)
        told: dict[str, bool] = {}  # by scope: whether notices may run elsewhere than before
        for change in changes:
            for before, after in change.scopes:
                told[after.name] = told.get(after.name, False) or _told_elsewhere(before, after)
        for name, elsewhere in told.items():
            now = self._fleet.scope(name)
            if now is not None and elsewhere:
                self._changed(now)
            elif now is not None:
                self._look_now.add(name)

    def told_hosts(self) -> Collection[str]:
        """The hosts on which a notice runs."""
        return [host for host, count in self._told.items() if count]

    def due(self, now_ms: int) -> set[str]:
        """The names of the scopes to look at now."""
        names, self._look_now = self._look_now, set()
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, name = heapq.heappop(self._heap)
            if self._at_ms.get(name) == at_ms:
                del self._at_ms[name]
                names.add(name)
        for name in names:
            scope = self._fleet.scope(name)
            if scope is not None:
                self._plan(scope, now_ms)
        return names

    def _plan(self, scope: Scope, now_ms: int) -> None:
        """Look again at the next instant; in each tick while something is due and has not been."""
        next_ms = min(instants(scope), default=None)
        if _waits(scope, now_ms) or (next_ms is not None and next_ms <= now_ms):
            self._look_now.add(scope.name)
            self._at_ms.pop(scope.name, None)
        elif next_ms is None:
            self._at_ms.pop(scope.name, None)
        elif self._at_ms.get(scope.name) != next_ms:
            self._at_ms[scope.name] = next_ms
            heapq.heappush(self._heap, (next_ms, scope.name))
            self._drop_outdated()

    def _drop_outdated(self) -> None:
        """Make the heap anew once most of it is outdated: scopes that are polled all day plan
        again with each poll that is saved, and what they planned before lies a day ahead.
        """
        if len(self._heap) > 2 * len(self._at_ms) + OUTDATED_MIN:
            self._heap = [(at_ms, name) for name, at_ms in self._at_ms.items()]
            heapq.heapify(self._heap)

    def __len__(self) -> int:
        """How many entries it has, outdated ones included."""
        return len(self._heap)

    def _changed(self, scope: Scope) -> None:
        self._look_now.add(scope.name)
        told: Iterable[str] = (e.host for e in scope.events if lost_time.notice_runs(e))
        self._tell(scope.name, frozenset(told))

    def _tell(self, name: str, hosts: frozenset[str]) -> None:
        before = self._told_hosts.pop(name, frozenset())
        self._told.subtract(before - hosts)
        self._told.update(hosts - before)
        if hosts:
            self._told_hosts[name] = hosts
