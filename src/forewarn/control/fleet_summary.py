"""What a person wants to see first of a fleet of any size, kept up to date with each commit.

Which events come next, which scopes are held or do not listen, how each host is at its worst. A
page of 10,000 hosts must not walk 200,000 VMs: what a commit has not touched is not looked at
again. What is heard of hosts changes without a commit, so hosts are also looked at in slices.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from heapq import nsmallest
from itertools import islice, takewhile

from forewarn.control import slices
from forewarn.control.first_names import FirstNames
from forewarn.control.fleet_reader import FleetReader
from forewarn.control.published_fleet import PublishedFleet
from forewarn.control.slices import Walk
from forewarn.core import notice, scheduling
from forewarn.core.model import Health, Host, OperationPhase, Phase, ScheduledEvent, Scope
from forewarn.ports import Change

_NUMBERS = re.compile(r"(\d+)")
_SLICE = 500  # scopes that are taken over before others have their turn
_NO_EVENTS: Counter[Phase] = Counter()


class HostCondition(StrEnum):
    """How a host is at its worst, the worst first."""

    FAILED = "failed"  # the operator has said so
    TROUBLED = "troubled"  # it is heard, and nothing can be done there
    SILENT = "silent"  # no heartbeat
    WORKING = "working"  # something has started there
    ANNOUNCED = "announced"  # something will
    DEGRADED = "degraded"
    CLOSED = "closed"  # no VM is placed there
    WELL = "well"


# What an operator has to do something about.
BROKEN = (HostCondition.FAILED, HostCondition.TROUBLED, HostCondition.SILENT)


def natural(name: str) -> tuple[str | int, ...]:
    """A key that sorts names as people do: h2 before h10."""
    parts = _NUMBERS.split(name)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts))


def starts_ms(event: ScheduledEvent) -> int:
    """When a scheduled event may start, as far as it is known: else what guests were told."""
    known = notice.earliest_start_ms(event)
    return event.not_before_ms if known is None else known


def asks_for_consent(event: ScheduledEvent) -> bool:
    """True of a scheduled event that guests read of and have not approved."""
    return event.phase is Phase.SCHEDULED and event.approved_ms is None and not event.silent


class FleetSummary:
    """The summary of one published fleet. Belongs to the event loop; tell it of every commit.

    It knows the whole fleet when it is made, or, not `at_once`, when `begin` has ended.
    """

    def __init__(self, fleet: PublishedFleet, *, at_once: bool = True) -> None:
        self._fleet = fleet
        self.held: set[str] = set()  # scopes that wait to be released
        self.deaf = FirstNames()  # scopes of which no VM polls: no guest there is told of anything
        self._polled_ms: dict[str, int] = {}  # of the others, who polled longest ago first
        self._upcoming: list[tuple[int, str]] = []  # (from when on, event id), in order
        self._started: dict[str, str] = {}  # scopes, by event id
        self.unapproved = 0  # scheduled events that guests read and have not approved
        self._of_scope: dict[str, tuple[ScheduledEvent, ...]] = {}  # the open ones that are counted
        self._events_on: dict[str, Counter[Phase]] = {}  # by host
        self._keys: dict[str, tuple[str | int, ...]] = {}  # what names of hosts are sorted by
        self._names: tuple[str, ...] = ()
        self._places: dict[str, int] = {}
        self._conditions: list[HostCondition] = []
        self._that_are: dict[HostCondition, set[int]] = {one: set() for one in HostCondition}
        self._touched: set[str] = set()
        self._came_or_left = True
        self._swept = 0
        self.looked_at = 0  # hosts, since it was made
        if at_once:
            slices.at_once(self.begin())

    def begin(self) -> Walk[None]:
        """Take the whole fleet over. Commits in between are told as always."""
        known = list(self._fleet.scopes)
        for start in range(0, len(known), _SLICE):
            for name in known[start : start + _SLICE]:
                scope = self._fleet.scope(name)
                if scope is not None:
                    self._keep(scope)
            yield
        self._polled_ms = dict(sorted(self._polled_ms.items(), key=lambda polled: polled[1]))
        self._arrange_hosts()
        names, self._touched = sorted(self._touched), set()
        for start in range(0, len(names), _SLICE):
            self._look_at_hosts(names[start : start + _SLICE])
            yield

    def committed(self, changes: Sequence[Change]) -> None:
        """Take over what a commit has changed, once it can be read in the fleet."""
        for change in changes:
            for _, scope in change.scopes:
                self._keep(self._fleet.scope(scope.name) or scope)
            for name in change.removed_scopes:
                self._forget(name)
            for before, host in change.hosts:
                self._came_or_left = self._came_or_left or before is None
                self._touched.add(host.name)
            self._came_or_left = self._came_or_left or bool(change.removed_hosts)
            self._touched.update(operation.host for _, operation in change.operations)

    # Scopes and events.

    def _keep(self, scope: Scope) -> None:
        if scope.hold is None:
            self.held.discard(scope.name)
        else:
            self.held.add(scope.name)
        if not scheduling.is_enabled(scope, self._fleet.policy):
            self.deaf.add(scope.name)
            self._polled_ms.pop(scope.name, None)
        else:
            self.deaf.discard(scope.name)
            polled_ms = scope.polled_ms if scope.enabled else None
            if polled_ms is not None and self._polled_ms.get(scope.name) != polled_ms:
                self._polled_ms.pop(scope.name, None)
                self._polled_ms[scope.name] = polled_ms
        before = self._of_scope.get(scope.name, ())
        if before is not scope.events:
            self._count_events(scope.name, before, scope.events)

    def _forget(self, name: str) -> None:
        self.held.discard(name)
        self.deaf.discard(name)
        self._polled_ms.pop(name, None)
        self._count_events(name, self._of_scope.get(name, ()), ())

    def _count_events(
        self, scope: str, before: Sequence[ScheduledEvent], after: tuple[ScheduledEvent, ...]
    ) -> None:
        known = {id(event) for event in after}
        same = {id(event) for event in before if id(event) in known}
        for event in before:
            if id(event) not in same:
                self._leave(event)
        for event in after:
            if id(event) not in same:
                self._enter(event, scope)
        if after:
            self._of_scope[scope] = after
        else:
            self._of_scope.pop(scope, None)

    def _enter(self, event: ScheduledEvent, scope: str) -> None:
        if event.phase is Phase.SCHEDULED:
            insort(self._upcoming, (starts_ms(event), event.event_id))
            self.unapproved += asks_for_consent(event)
        elif event.phase is Phase.STARTED:
            self._started[event.event_id] = scope
        self._events_on.setdefault(event.host, Counter())[event.phase] += 1
        self._touch(event)

    def _leave(self, event: ScheduledEvent) -> None:
        if event.phase is Phase.SCHEDULED:
            entry = (starts_ms(event), event.event_id)
            place = bisect_left(self._upcoming, entry)
            if place < len(self._upcoming) and self._upcoming[place] == entry:
                del self._upcoming[place]
                self.unapproved -= asks_for_consent(event)
        elif event.phase is Phase.STARTED:
            self._started.pop(event.event_id, None)
        counted = self._events_on[event.host]
        counted[event.phase] -= 1
        if not any(counted.values()):
            del self._events_on[event.host]
        self._touch(event)

    def _touch(self, event: ScheduledEvent) -> None:
        self._touched.add(event.host)
        self._touched.update(action.target_host for action in event.actions if action.target_host)

    def scheduled(self) -> Iterator[tuple[Scope, ScheduledEvent]]:
        """Scheduled events with their scopes, by when they may start, the first one first.

        Those of now: one that goes before it is reached is left out.
        """
        return self._found([event_id for _, event_id in self._upcoming])

    def started(self) -> Iterator[tuple[Scope, ScheduledEvent]]:
        """Started events with their scopes, in the order in which they have started."""
        return self._found(list(self._started))

    def _found(self, event_ids: Iterable[str]) -> Iterator[tuple[Scope, ScheduledEvent]]:
        for event_id in event_ids:
            found = self._fleet.open_event(event_id)
            if found is not None:
                yield found

    def unheard_since(self, at_ms: int) -> list[tuple[int, str]]:
        """(last poll, scope) of those that are told and have not polled since then."""
        # Polls come in the order of time, or nearly so: who comes late is found a little later.
        found = takewhile(lambda polled: polled[1] < at_ms, self._polled_ms.items())
        return [(polled_ms, name) for name, polled_ms in found]

    # Hosts.

    @property
    def host_names(self) -> tuple[str, ...]:
        """All hosts, as people sort names. Places in it stand until a host comes or leaves."""
        self._arrange_hosts()
        return self._names

    @property
    def conditions(self) -> Sequence[HostCondition]:
        """How each host is, in the places of `host_names`."""
        self._look_at_touched()
        return self._conditions

    def counts(self) -> Mapping[HostCondition, int]:
        """How many hosts are how."""
        self._look_at_touched()
        return {one: len(places) for one, places in self._that_are.items() if places}

    def hosts_that_are(self, condition: HostCondition, hosts_max: int) -> Iterator[str]:
        """The first hosts that are so, in their order, at most so many."""
        self._look_at_touched()
        return (self._names[place] for place in nsmallest(hosts_max, self._that_are[condition]))

    def look_again(self, hosts_max: int) -> dict[int, HostCondition]:
        """Look at what a commit has touched and at the next so many hosts: what has changed.

        Called again and again it sees every host in turn, also those that fell silent.
        """
        changed = self._look_at_touched()
        count = len(self._names)
        for place in islice(range(self._swept, self._swept + count), min(hosts_max, count)):
            self._look_at(place % count, changed)
        self._swept = (self._swept + hosts_max) % count if count else 0
        return changed

    def _look_at_touched(self) -> dict[int, HostCondition]:
        self._arrange_hosts()
        touched, self._touched = self._touched, set()
        return self._look_at_hosts(touched)

    def _look_at_hosts(self, names: Iterable[str]) -> dict[int, HostCondition]:
        changed: dict[int, HostCondition] = {}
        for name in names:
            place = self._places.get(name)
            if place is not None:
                self._look_at(place, changed)
        return changed

    def _look_at(self, place: int, changed: dict[int, HostCondition]) -> None:
        self.looked_at += 1
        host = self._fleet.host(self._names[place])
        found = HostCondition.WELL if host is None else self._condition(host)
        before = self._conditions[place]
        if found is not before:
            self._that_are[before].discard(place)
            self._that_are[found].add(place)
            self._conditions[place] = changed[place] = found

    def _arrange_hosts(self) -> None:
        """Give each host its place anew if one came or left."""
        if not self._came_or_left:
            return
        self._came_or_left = False
        before = dict(zip(self._names, self._conditions, strict=True))
        hosts = self._fleet.hosts_by_name
        self._keys = {name: self._keys.get(name) or natural(name) for name in hosts}
        self._names = tuple(sorted(hosts, key=self._keys.__getitem__))
        self._places = {name: place for place, name in enumerate(self._names)}
        self._conditions = [before.get(name, HostCondition.WELL) for name in self._names]
        self._that_are = {one: set() for one in HostCondition}
        for place, condition in enumerate(self._conditions):
            self._that_are[condition].add(place)
        self._touched.update(name for name in self._names if name not in before)
        self._swept = 0

    def _condition(self, host: Host) -> HostCondition:
        fleet, name = self._fleet, host.name
        if host.health is Health.FAILED:
            return HostCondition.FAILED
        if not fleet.shut_out(name) and not fleet.alive(name):
            return HostCondition.SILENT
        if why_troubled(fleet, name):
            return HostCondition.TROUBLED
        return self._busy(name) or _at_rest(host)

    def _busy(self, host: str) -> HostCondition | None:
        phases = {operation.phase for operation in self._fleet.operations_on(host)}
        counted = self._events_on.get(host, _NO_EVENTS)
        if OperationPhase.STARTED in phases or counted[Phase.STARTED]:
            return HostCondition.WORKING
        return HostCondition.ANNOUNCED if phases or counted[Phase.SCHEDULED] else None


def _at_rest(host: Host) -> HostCondition:
    if host.health is Health.DEGRADED:
        return HostCondition.DEGRADED
    return HostCondition.CLOSED if host.closed or not host.listed else HostCondition.WELL


def why_troubled(fleet: FleetReader, host: str) -> str:
    """Why nothing can be done on a host that has not failed and is not silent; else empty."""
    if fleet.shut_out(host):
        return f"Host {host} was revoked, or has not joined yet: nothing it says is heard."
    if fleet.two_daemons(host):
        return f"Two daemons speak as host {host}: neither is given anything to do."
    return fleet.refuses(host) or fleet.hypervisor_unreachable(host)
