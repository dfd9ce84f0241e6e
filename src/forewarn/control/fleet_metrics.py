"""What the fleet is like at a scrape, as numbers that can be alerted on.

Labels have a fixed set of values, each of which is there from the start: never the name of a host,
a scope or a VM. What would take a look at every scope is kept up to date with each commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from forewarn.control.fleet_reader import FleetLook
from forewarn.control.published_fleet import PublishedFleet
from forewarn.core import ending, explain, notice, placement, windows
from forewarn.core.model import (
    MINUTE_MS,
    EndedAs,
    EventType,
    Health,
    Phase,
    ScheduledEvent,
    Scope,
    Vm,
    WebhookCondition,
)
from forewarn.core.starting import HoldReason
from forewarn.metrics import Counts, Family, gauge, gauges
from forewarn.ports import Change

OVERDUE_AFTER_MS = 15 * MINUTE_MS  # since it could have started
AGENTS_SILENT_AFTER_MS = 30 * MINUTE_MS
EXPLAINED_MAX = 2_000  # events, at one scrape: each is asked what holds it
# What holds nothing up: an event that is not due yet, and one that is being carried out.
NOT_HELD = frozenset(
    {HoldReason.CONSENT, HoldReason.CLOCK, HoldReason.UNCLAIMED, HoldReason.RUNNING}
)


class FleetMetrics:
    """The numbers of one fleet. Belongs to the event loop; tell it of every commit."""

    def __init__(self, fleet: PublishedFleet) -> None:
        self._fleet = fleet
        self._held: set[str] = set()
        self._agents: dict[str, tuple[Vm, ...]] = {}  # of enabled scopes: VMs that have polled
        self._operations = Counts(
            "forewarn_operations_ended", "Operations that have ended, by how.", "outcome"
        )
        self._operations.begin(EndedAs)
        for scope in fleet.scopes.values():
            self._keep(scope)

    def committed(self, changes: Sequence[Change]) -> None:
        """Count what a commit has changed, once it can be read in the fleet."""
        for change in changes:
            for _, scope in change.scopes:
                self._keep(scope)
            for name in change.removed_scopes:
                self._held.discard(name)
                self._agents.pop(name, None)
            for before, operation in change.operations:
                ended_as = ending.ended_as(operation)
                if ended_as is not None and (before is None or ending.ended_as(before) is None):
                    self._operations.add(ended_as)

    def _keep(self, scope: Scope) -> None:
        if scope.hold is None:
            self._held.discard(scope.name)
        else:
            self._held.add(scope.name)
        agents = tuple(vm for vm in scope.vms if vm.has_polled and not vm.off)
        if scope.enabled and agents:
            self._agents[scope.name] = agents
        else:
            self._agents.pop(scope.name, None)

    def collect(self) -> Iterator[Family]:
        look = self._fleet.look()
        yield from self._operations.collect()
        yield from _of_hosts(look)
        yield from self._of_scopes(look)
        agents = (vm for vms in self._agents.values() for vm in vms)
        yield gauge(
            "forewarn_agents_silent",
            "VMs that polled once and run where hosts are heard, without a poll for 30 minutes.",
            sum(look.agent_silent(vm, AGENTS_SILENT_AFTER_MS) for vm in agents),
        )
        conditions = Counter(webhook.condition for webhook in look.webhooks.values())
        shown = [((one,), conditions[one]) for one in WebhookCondition]
        yield gauges("forewarn_webhooks", "Webhooks by their condition.", ("condition",), shown)

    def _of_scopes(self, look: FleetLook) -> Iterator[Family]:
        overdue: Counter[EventType] = Counter()
        held: dict[HoldReason, set[str]] = {reason: set() for reason in HoldReason}
        held[HoldReason.SCOPE_HELD].update(self._held)
        without_host = explained = 0
        for scope, event in _open_events(look):
            without_host += sum(one.host is None and not one.ended for one in event.actions)
            if not _may_go_on(scope, event, look.now_ms):
                continue
            if _is_overdue(scope, event, look.now_ms):
                overdue[event.event_type] += 1
            if explained < EXPLAINED_MAX:
                explained += 1
                for hold in explain.explain_event(scope, event, look, look.now_ms).holds:
                    held[hold.reason].add(scope.name)
        yield gauges(
            "forewarn_scopes_held",
            "Scopes with an event that could go on but for this reason.",
            ("reason",),
            [((r.value,), len(names)) for r, names in held.items() if r not in NOT_HELD],
        )
        yield gauges(
            "forewarn_events_overdue",
            "Events that could have started 15 minutes ago, and have not.",
            ("event_type",),
            [((event_type.value,), overdue[event_type]) for event_type in EventType],
        )
        yield gauge(
            "forewarn_vms_without_host",
            "VMs of failed hosts that have nowhere to start yet.",
            without_host,
        )


def _open_events(look: FleetLook) -> Iterator[tuple[Scope, ScheduledEvent]]:
    for name in look.busy_scopes:
        scope = look.scope(name)
        for event in scope.events if scope is not None else ():
            if scope is not None and not event.phase.ended:
                yield scope, event


def _may_go_on(scope: Scope, event: ScheduledEvent, now_ms: int) -> bool:
    """True for what is started, and for what could be."""
    unasked = placement.all_off(scope, event)
    return event.phase is Phase.STARTED or notice.due(event, now_ms, unasked=unasked)


def _is_overdue(scope: Scope, event: ScheduledEvent, now_ms: int) -> bool:
    if event.phase is not Phase.SCHEDULED:
        return False
    from_ms = notice.due_from_ms(event, unasked=placement.all_off(scope, event))
    if from_ms is None:
        return False
    return now_ms - max(from_ms, windows.opens_ms(event.window)) >= OVERDUE_AFTER_MS


def _of_hosts(look: FleetLook) -> Iterable[Family]:
    hosts = list(look.hosts())
    health = Counter(host.health for host in hosts)
    room = [(host, load) for host, load in look.places()]
    counted = [(host.capacity, load) for host, load in room if host.capacity is not None]
    yield gauges(
        "forewarn_hosts",
        "Hosts, by what the operator or their hardware says of them.",
        ("health",),
        [((one.value,), health[one]) for one in Health],
    )
    yield gauge(
        "forewarn_hosts_silent",
        "Hosts that are not heard and were not declared failed.",
        sum(not look.alive(one.name) and one.health is not Health.FAILED for one in hosts),
    )
    yield gauges(
        "forewarn_hosts_with_room",
        "Hosts that can take one more VM now, by whether their capacity is known.",
        ("capacity",),
        [(("counted",), len(counted)), (("unlimited",), len(room) - len(counted))],
    )
    yield gauge(
        "forewarn_free_places",
        "VMs that the hosts with a known capacity can still take.",
        sum(capacity - load for capacity, load in counted),
    )
