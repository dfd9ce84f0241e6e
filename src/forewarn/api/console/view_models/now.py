"""The Now page: whether anything is broken, what is under way, what comes next, who holds it up.

Each block is a value of its own, so that a stream sends what has changed and nothing else. Of the
fleet no block looks at more than what is open and what the summary keeps.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from msgspec import Struct

from forewarn.api.console.view_models.explaining import explained_event
from forewarn.api.console.view_models.values import (
    Names,
    Offers,
    OrderLink,
    Ref,
    given,
    named,
    of_event,
    of_failed_host,
    of_operation,
)
from forewarn.control.fleet_metrics import AGENTS_SILENT_AFTER_MS
from forewarn.control.fleet_reader import FleetLook
from forewarn.control.fleet_summary import (
    FleetSummary,
    HostCondition,
    asks_for_consent,
    starts_ms,
    why_troubled,
)
from forewarn.control.slices import Walk, at_once
from forewarn.core import placement, starting
from forewarn.core.agent_polling import Reading
from forewarn.core.model import (
    DAY_MS,
    MINUTE_MS,
    SECOND_MS,
    Cause,
    Host,
    Phase,
    ScheduledEvent,
    Scope,
    Vm,
)
from forewarn.core.starting import HoldReason

TROUBLES_MAX = 12  # of each kind; the rest are counted
HOSTS_NAMED_MAX = 200  # of one condition, where a person goes through them
ROWS_MAX = 10
EVENTS_IN_SLICE = 200
HOSTS_IN_SLICE = 400
EVENTS_LOOKED_AT_MAX = 400  # for VMs that will not hear of what comes
POLLED_STEP_MS = MINUTE_MS  # a row is not drawn anew with every poll
OWNER_TAG = "owner"


# 1. What is broken.


class Trouble(Struct, frozen=True, kw_only=True):
    """Something that a person has to do something about, and what."""

    what: str
    why: str
    remedy: str
    ref: Ref
    since_ms: int | None = None
    orders: tuple[OrderLink, ...] = ()


class Broken(Struct, frozen=True, kw_only=True):
    """What is broken, worst first; `more` are not named. Without any: how much is well."""

    troubles: tuple[Trouble, ...]
    more: int
    hosts: int
    scopes: int
    vms: int

    @property
    def count(self) -> int:
        return len(self.troubles) + self.more


def broken(look: FleetLook, summary: FleetSummary, offers: Offers) -> Broken:
    hosts = summary.counts() if offers.access.all_scopes else {}
    kinds = [
        _few(_failed_hosts(look, summary, offers), hosts.get(HostCondition.FAILED, 0)),
        _few(_without_host(look, summary, offers)),
        _few(_held_scopes(look, summary, offers)),
        _few(_troubled_hosts(look, summary, offers), hosts.get(HostCondition.TROUBLED, 0)),
        _few(_silent_hosts(look, summary, offers), hosts.get(HostCondition.SILENT, 0)),
    ]
    everything = offers.access.all_scopes
    scopes = look.scopes if everything else offers.access.scopes
    own = (look.scope(name) for name in offers.access.scopes)
    return Broken(
        troubles=tuple(trouble for found, _ in kinds for trouble in found),
        more=sum(more for _, more in kinds),
        hosts=len(look.hosts_by_name) if everything else 0,
        scopes=len(scopes),
        vms=len(look.scope_of_vm) if everything else sum(len(one.vms) for one in own if one),
    )


def _few(found: Iterator[Trouble], total: int | None = None) -> tuple[list[Trouble], int]:
    """The first of them, and how many more there are; `total` where that is known already."""
    first = list(islice(found, TROUBLES_MAX))
    if total is None:
        return first, sum(1 for _ in found)
    return first, max(0, total - len(first))


def to_decide(look: FleetLook, summary: FleetSummary, offers: Offers) -> Iterator[Trouble]:
    """Those troubles that end only when a person says so."""
    yield from _failed_hosts(look, summary, offers)
    yield from _held_scopes(look, summary, offers)


def _failed_hosts(look: FleetLook, summary: FleetSummary, offers: Offers) -> Iterator[Trouble]:
    if not offers.access.all_scopes:
        return
    for name in summary.hosts_that_are(HostCondition.FAILED, HOSTS_NAMED_MAX):
        host = look.need_host(name)
        yield Trouble(
            what=f"Host {name} has failed",
            why=_failed_why(look, host),
            remedy=f"`forewarn host repair {name}` when it is back"
            + (
                "." if host.fenced else f", or `forewarn host fail {name} --fenced` when it is off."
            ),
            ref=Ref("host", name),
            orders=given(
                offers.link("host-repair", name, "Repair"),
                None if host.fenced else offers.link("host-fail", name, "Is surely off"),
            ),
        )


def _failed_why(look: FleetLook, host: Host) -> str:
    count = look.vm_count(host.name)
    if host.fenced and not count:
        return "It is fenced, and all its VMs have a place elsewhere."
    if host.fenced:
        return f"It is fenced. {vms(count)} of it still without a place."
    return f"It is not fenced: {vms(count)} may still run there and start nowhere else."


def _without_host(look: FleetLook, summary: FleetSummary, offers: Offers) -> Iterator[Trouble]:
    """VMs of fenced hosts that no host can take."""
    for scope, event in summary.started():
        if not offers.access.sees(scope.name):
            continue
        host = look.host(event.host)
        if host is None or not host.fenced or all(one.host or one.ended for one in event.actions):
            continue
        for hold in explained_event(look, offers.access, scope, event).holds:
            if hold.reason is HoldReason.NO_HOST:
                yield Trouble(
                    what=f"{of_event(event)}: nowhere to start",
                    why=hold.what,
                    remedy=hold.remedy,
                    ref=Ref("event", event.event_id),
                    since_ms=hold.since_ms,
                )


def _held_scopes(look: FleetLook, summary: FleetSummary, offers: Offers) -> Iterator[Trouble]:
    for name in sorted(summary.held):
        scope = look.scope(name)
        if scope is None or scope.hold is None or not offers.access.sees(name):
            continue
        yield Trouble(
            what=f"Scope {name} is held",
            why=f"Event {scope.hold.event_id[:8]} failed: {scope.hold.reason}",
            remedy="Look at the event, then release the scope: until then no platform event of it"
            " starts.",
            ref=Ref("event", scope.hold.event_id),
            since_ms=scope.hold.since_ms,
            orders=given(offers.link("scope-release", name, "Release", name)),
        )


def _troubled_hosts(look: FleetLook, summary: FleetSummary, offers: Offers) -> Iterator[Trouble]:
    if not offers.access.all_scopes:
        return
    for name in summary.hosts_that_are(HostCondition.TROUBLED, HOSTS_NAMED_MAX):
        hold = next(iter(starting.host_holds(name, look, look.now_ms)), None)
        yield Trouble(
            what=f"Nothing can start on host {name}",
            why=why_troubled(look, name),
            remedy=hold.remedy if hold else "",
            ref=Ref("host", name),
        )


def _silent_hosts(look: FleetLook, summary: FleetSummary, offers: Offers) -> Iterator[Trouble]:
    if not offers.access.all_scopes:
        return
    for name in summary.hosts_that_are(HostCondition.SILENT, HOSTS_NAMED_MAX):
        count = look.vm_count(name)
        yield Trouble(
            what=f"Host {name} is silent",
            why=f"No heartbeat. Nothing starts there, and no notice counts for its {vms(count)}.",
            remedy=f"Look at its daemon. If the machine is gone: `forewarn host fail {name}`.",
            ref=Ref("host", name),
            since_ms=(look.now_ms - look.silent_ms(name)) // SECOND_MS * SECOND_MS,
            orders=given(offers.link("host-fail", name, "Declare failed")),
        )


def vms(count: int) -> str:
    return f"{count} VM" if count == 1 else f"{count} VMs"


# 3. Hosts under way, and what starts next.


class NextRow(Struct, frozen=True, kw_only=True):
    """A host or VM that something is done to, or will be. `at_ms`: given up, or may start."""

    ref: Ref
    what: str
    host: str
    vms: int
    at_ms: int | None
    started_ms: int | None = None
    approved: int = 0
    total: int = 0


class Coming(Struct, frozen=True, kw_only=True):
    """What has started, and what starts next, soonest first."""

    under_way: tuple[NextRow, ...]
    under_way_more: int
    upcoming: tuple[NextRow, ...]
    upcoming_more: int


def coming(look: FleetLook, summary: FleetSummary, offers: Offers) -> Coming:
    return at_once(coming_walk(lambda: look, summary, offers))


def coming_walk(
    look: Callable[[], FleetLook], summary: FleetSummary, offers: Offers
) -> Walk[Coming]:
    """As `coming`, in slices. `look` is asked anew after each pause."""
    sees = offers.access.sees
    whole = offers.access.all_scopes
    seen = (event for scope, event in summary.started() if sees(scope.name))
    started = yield from _together(seen, whole=whole)
    seen = (event for scope, event in summary.scheduled() if sees(scope.name))
    scheduled = yield from _together(seen, whole=whole)
    first = islice(started.items(), ROWS_MAX)
    under_way = tuple(_next_row(look(), *one, whole=whole) for one in first)
    soonest = heapq.nsmallest(ROWS_MAX, scheduled.items(), key=lambda one: _from_ms(one[1]))
    return Coming(
        under_way=under_way,
        under_way_more=max(0, len(started) - ROWS_MAX),
        upcoming=tuple(_next_row(look(), *one, whole=whole) for one in soonest),
        upcoming_more=max(0, len(scheduled) - ROWS_MAX),
    )


def _together(
    events: Iterable[ScheduledEvent], *, whole: bool
) -> Walk[dict[str, list[ScheduledEvent]]]:
    """Events of one operation, and of one failed host, that are in one phase are one row.

    Not `whole`: event by event, as an owner is shown them. Operations and hosts are not his.
    """
    groups: dict[str, list[ScheduledEvent]] = {}
    for number, event in enumerate(events, 1):
        key = (event.operation_id if whole else None) or event.event_id
        if event.cause is Cause.FAILURE and whole:
            key = f"failed {event.host}"
        groups.setdefault(key, []).append(event)
        if not number % EVENTS_IN_SLICE:
            yield
    return groups


def _from_ms(events: Sequence[ScheduledEvent]) -> int:
    """When all of them may start."""
    return max(starts_ms(event) for event in events)


def _next_row(
    look: FleetLook, key: str, events: Sequence[ScheduledEvent], *, whole: bool
) -> NextRow:
    first = events[0]
    if not whole:
        return _own_row(first)
    operation = look.operation(key)
    if first.cause is Cause.FAILURE:
        return _row(Ref("host", first.host), of_failed_host(first.host, events), events)
    if operation is None:
        return _own_row(first)
    return _row(Ref("operation", key), of_operation(operation), events)


def _own_row(event: ScheduledEvent) -> NextRow:
    return _row(Ref("event", event.event_id), of_event(event), [event])


def _row(ref: Ref, what: str, events: Sequence[ScheduledEvent]) -> NextRow:
    first = events[0]
    started = first.phase is Phase.STARTED
    return NextRow(
        ref=ref,
        what=what,
        host=first.host,
        vms=sum(len(event.resources) for event in events),
        at_ms=first.deadline_ms if started else _from_ms(events),
        started_ms=first.started_ms,
        approved=sum(event.approved_ms is not None for event in events),
        total=len(events),
    )


# 4. Who has not approved.


class ConsentRow(Struct, frozen=True, kw_only=True):
    """An event that waits for a VM to say go ahead; `at_ms` is when it starts without."""

    ref: Ref
    what: str
    scope: str
    vms: Names
    owners: tuple[str, ...]
    reading: Reading
    polled_ms: int | None
    at_ms: int
    approve: OrderLink | None


class Consent(Struct, frozen=True, kw_only=True):
    rows: tuple[ConsentRow, ...]
    more: int


def consent(look: FleetLook, summary: FleetSummary, offers: Offers) -> Consent:
    """What waits for an approval, the least time left first."""
    sees = offers.access.sees
    waiting = (
        (scope, event)
        for scope, event in summary.scheduled()
        if asks_for_consent(event) and sees(scope.name)
    )
    rows = tuple(_consent_row(look, *found, offers) for found in islice(waiting, ROWS_MAX))
    total = summary.unapproved if offers.access.all_scopes else len(rows) + sum(1 for _ in waiting)
    return Consent(rows=rows, more=max(0, total - len(rows)))


def _consent_row(
    look: FleetLook, scope: Scope, event: ScheduledEvent, offers: Offers
) -> ConsentRow:
    own = [vm for vm in scope.vms if vm.name in event.resources]
    reading, polled_ms = heard(look, own)
    return ConsentRow(
        ref=Ref("event", event.event_id),
        what=event.event_type.value,
        scope=scope.name,
        vms=named(event.resources),
        owners=owners(own),
        reading=reading,
        polled_ms=polled_ms,
        at_ms=starts_ms(event),
        approve=offers.link("event-approve", event.event_id, "Approve", scope.name),
    )


def owners(own: Iterable[Vm]) -> tuple[str, ...]:
    """Whose VMs they are, as their tags say it."""
    tags = (dict(vm.profile.tags).get(OWNER_TAG) for vm in own)
    return tuple(dict.fromkeys(tag for tag in tags if tag))


_BEST = (Reading.READING, Reading.UNKNOWN, Reading.STOPPED, Reading.NEVER)


def heard(look: FleetLook, own: Sequence[Vm]) -> tuple[Reading, int | None]:
    """Whether an agent in one of the VMs reads, and when one last polled, to the minute."""
    found = min((look.reading(vm) for vm in own), key=_BEST.index, default=Reading.UNKNOWN)
    ago = [ms for ms in map(look.polled_ago_ms, own) if ms is not None]
    if not ago:
        return found, None
    return found, (look.now_ms - min(ago)) // POLLED_STEP_MS * POLLED_STEP_MS


# 5. Who will not hear us.


class DeafRow(Struct, frozen=True, kw_only=True):
    """VMs that something will be done to and that do not read of it."""

    ref: Ref
    what: str
    scope: str
    vms: Names
    why: str
    at_ms: int


class Deaf(Struct, frozen=True, kw_only=True):
    """Who will not hear of what comes, and how many scopes would not hear of anything."""

    rows: tuple[DeafRow, ...]
    more: int
    silent: int
    silent_named: Names
    stopped: int
    stopped_named: Names
    scopes: int


def deaf(look: FleetLook, summary: FleetSummary, offers: Offers) -> Deaf:
    access = offers.access
    upcoming = (found for found in summary.scheduled() if access.sees(found[0].name))
    found = [
        row
        for scope, event in islice(upcoming, EVENTS_LOOKED_AT_MAX)
        if (row := _deaf_row(look, scope, event)) is not None
    ]
    unheard = summary.unheard_since(look.now_ms - AGENTS_SILENT_AFTER_MS)
    stopped = [name for _, name in unheard if access.sees(name)]
    silent = len(summary.deaf), summary.deaf.first(ROWS_MAX)
    if not access.all_scopes:
        own = sorted(name for name in access.scopes if name in summary.deaf)
        silent = len(own), own[:ROWS_MAX]
    return Deaf(
        rows=tuple(found[:ROWS_MAX]),
        more=max(0, len(found) - ROWS_MAX),
        silent=silent[0],
        silent_named=Names(tuple(silent[1]), silent[0] - len(silent[1])),
        stopped=len(stopped),
        stopped_named=_smallest(stopped),
        scopes=len(look.scopes) if access.all_scopes else len(access.scopes),
    )


def _smallest(names: Sequence[str]) -> Names:
    first = heapq.nsmallest(ROWS_MAX, names)
    return Names(tuple(first), len(names) - len(first))


def _deaf_row(look: FleetLook, scope: Scope, event: ScheduledEvent) -> DeafRow | None:
    own = [vm for vm in scope.vms if vm.name in event.resources and not vm.off]
    if event.silent and own:
        unheard, why = own, "no VM of the scope polls, so none is told"
    else:
        gone = (Reading.NEVER, Reading.STOPPED)
        unheard = [vm for vm in own if look.reading(vm) in gone]
        why = "the agent there does not poll"
    if not unheard:
        return None
    return DeafRow(
        ref=Ref("event", event.event_id),
        what=event.event_type.value,
        scope=scope.name,
        vms=named([vm.name for vm in unheard]),
        why=why,
        at_ms=starts_ms(event),
    )


# 6. The fleet as a grid is in `grid`. 7. Notice is in `notice_week`. 8. The journal is in `lines`.


# 9. Capacity.


class Capacity(Struct, frozen=True, kw_only=True):
    """Whether the VMs of one more host would find a place, whichever host it is.

    `worst` is the host whose loss would cost most, with its VMs and the places for them elsewhere.
    """

    may_lose: bool
    free: int
    counted: int
    unlimited: int
    worst: str
    worst_vms: int
    worst_places: int


def capacity(look: FleetLook) -> Capacity:
    return at_once(capacity_walk(lambda: look))


def capacity_walk(look: Callable[[], FleetLook]) -> Walk[Capacity]:
    """By numbers of places. Update domains may need more, and `explain` says so when they do.

    In slices: `look` is asked anew after each pause.
    """
    room: dict[str, int | None] = {}
    counts: dict[str, int] = {}
    names = list(look().hosts_by_name)
    for start in range(0, len(names), HOSTS_IN_SLICE):
        now = look()
        for name in names[start : start + HOSTS_IN_SLICE]:
            host = now.host(name)
            if host is None:
                continue
            counts[name] = now.vm_count(name)
            left = placement.places_left(host, now)
            if left != 0:
                room[name] = left
        yield
    unlimited = sum(left is None for left in room.values())
    free = sum(left for left in room.values() if left is not None)
    # VMs that find no place without it: its own, and those that it had room for.
    worst = max(counts, key=lambda name: counts[name] + (room.get(name) or 0), default="")
    worst_places = free - (room.get(worst) or 0)
    others = unlimited - (room.get(worst, 0) is None)
    return Capacity(
        may_lose=bool(others) or counts.get(worst, 0) <= worst_places,
        free=free,
        counted=len(room) - unlimited,
        unlimited=unlimited,
        worst=worst,
        worst_vms=counts.get(worst, 0),
        worst_places=worst_places,
    )


# 10. Versions, certificates, the last backup.


class Expiry(Struct, frozen=True, kw_only=True):
    what: str
    at_ms: int
    soon: bool


class About(Struct, frozen=True, kw_only=True):
    """The service itself. `backup_late`: none was made for a week, or ever."""

    version: str
    expiries: tuple[Expiry, ...]
    backup_ms: int | None
    backup_late: bool
    database_bytes: int
    kept: bool  # False for an emulator, which keeps nothing


SOON_MS = 30 * DAY_MS
BACKUP_LATE_MS = 7 * DAY_MS


def about(
    now_ms: int,
    *,
    version: str,
    expiries_ms: Mapping[str, int],
    backup_ms: int | None,
    database_bytes: int,
    kept: bool,
) -> About:
    expiries = (
        Expiry(what=what, at_ms=at_ms, soon=at_ms - now_ms < SOON_MS)
        for what, at_ms in expiries_ms.items()
    )
    return About(
        version=version,
        expiries=tuple(sorted(expiries, key=lambda one: one.at_ms)),
        backup_ms=backup_ms,
        backup_late=kept and (backup_ms is None or now_ms - backup_ms > BACKUP_LATE_MS),
        database_bytes=database_bytes,
        kept=kept,
    )
