"""What a cloud tells a test: frozen values, with times as aware datetimes in UTC.

Each is what was the case when it was asked for; nothing here changes or asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, Protocol, overload

from msgspec import Struct

from forewarn.core import model
from forewarn.core.errors import Conflict, Invalid
from forewarn.core.facts import detail_words
from forewarn.core.model import Phase
from forewarn.ports import FirstRead, JournalLine
from forewarn.testing.literals import EventSourceName, EventTypeName, HostEventType
from forewarn.testing.tracebacks import for_refusals
from forewarn.wire.api_versions import NEWEST
from forewarn.wire.instants import time_text

if TYPE_CHECKING:
    from forewarn.testing.attached import AttachedProcess

__tracebackhide__ = for_refusals
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def time_of(ms: int) -> datetime:
    """An instant of the emulator."""
    return _EPOCH + ms * _MILLISECOND


def ms_of(at: datetime) -> int:
    """The instant in milliseconds; fractions of one are cut. `at` is aware."""
    return (at - _EPOCH) // _MILLISECOND


class HasPid(Protocol):
    """A process that was started: a `subprocess.Popen`, or the like."""

    @property
    def pid(self) -> int: ...


Restart = Callable[[], int | HasPid] | Sequence[str]


class Attaching(Protocol):
    """How a cloud attaches a process to one of its VMs (`testing.attached`)."""

    def __call__(
        self, vm: str, pid: int | HasPid, *, group: bool, restart: Restart | None
    ) -> AttachedProcess: ...


def _time_or_none(ms: int | None) -> datetime | None:
    return None if ms is None else time_of(ms)


class ImpactFelt(Struct, frozen=True, kw_only=True):
    """What a process has felt: `impact` is freeze, thaw, kill or start; `failed` why it did not.

    `lose_disk` of a start: the local disks of the VM are empty.
    """

    impact: Literal["freeze", "thaw", "kill", "start"]
    pid: int
    event_id: str
    event_type: EventTypeName | Literal[""]
    at: datetime
    failed: str = ""
    lose_disk: bool = False


class CloudVm(Struct, frozen=True, kw_only=True):
    """A VM. `url` is where it, and only it, reaches its endpoint."""

    name: str
    url: str
    scope: str
    host: str
    update_domain: int
    attaching: Attaching | None = None  # of the cloud that it is a VM of

    def attach(
        self,
        pid: int | HasPid,
        *,
        group: bool = False,
        restart: Restart | None = None,
    ) -> AttachedProcess:
        """From now on the process feels what happens to this VM, as an app inside it would.

        A Freeze stops it (SIGSTOP) and lets it go on (SIGCONT) when its duration is over. A
        Reboot, Redeploy, Preempt, Terminate and the failure of its host kill it (SIGKILL). When the
        VM is up again, `restart` starts it: a function that returns the new pid or Popen, which
        must give no orders to the cloud, or the words of a command. With `group` the signals go to
        its process group, which it must lead (`start_new_session=True`).

        `pid` may be a Popen. Raises Invalid for a process that cannot be attached, Conflict on a
        system without pidfds (Linux has them).
        """
        if self.attaching is None:
            raise Conflict(f"{self.name} is a VM of no cloud.", "Use cloud.vm(NAME).attach(pid).")
        return self.attaching(self.name, pid, group=group, restart=restart)

    def __repr__(self) -> str:
        return (
            f"CloudVm(name={self.name!r}, url={self.url!r}, scope={self.scope!r},"
            f" host={self.host!r}, update_domain={self.update_domain!r})"
        )

    @property
    def document_url(self) -> str:
        """Where it reads its document and approves, at the newest api-version."""
        return f"{self.url}/metadata/scheduledevents?api-version={NEWEST.name}"


class Event(Struct, frozen=True, kw_only=True):
    """An event. `cloud.event(event)` gives it as it is now.

    `postponed_to` is the event that was announced in its place, `postponed_from` the one before it.
    """

    event_id: str
    event_type: EventTypeName
    event_source: EventSourceName
    phase: Phase
    resources: tuple[str, ...]
    scope: str
    update_domain: int
    host: str
    not_before: datetime
    description: str
    duration_seconds: int
    silent: bool
    scheduled: datetime
    approved: datetime | None
    approved_by: str | None
    started: datetime | None
    ended: datetime | None
    outcome: str
    operation_id: str | None
    postponed_from: str | None = None
    postponed_to: str | None = None

    @property
    def gone(self) -> bool:
        """True when it has left the document: completed, failed or canceled."""
        return self.phase.ended

    def __str__(self) -> str:
        return f"{self.event_type} {self.event_id[:8]} of {', '.join(self.resources)}"


class CloudOperation(Struct, frozen=True, kw_only=True):
    """Maintenance of one host, with one event for each scope and update domain on it."""

    operation_id: str
    host: str
    event_type: HostEventType
    events: tuple[Event, ...]

    @property
    def event(self) -> Event:
        """Its only event. Raises Conflict if it has none or several; then use `events`."""
        if len(self.events) != 1:
            raise Conflict(
                f"{self.event_type} of {self.host} has {len(self.events)} events.",
                "Use its `events`.",
            )
        return self.events[0]


class Due(Struct, frozen=True, kw_only=True):
    """Something that is due at an instant."""

    at: datetime
    what: str


class Approval(Struct, frozen=True, kw_only=True):
    """Who approved an event first, and when.

    `by` is a VM, `operator`, or `policy` for an order that the scope approves by itself.
    """

    event_id: str
    by: str
    at: datetime


class Read(Struct, frozen=True, kw_only=True):
    """When a VM was first sent a document with the event in it."""

    event_id: str
    vm: str
    at: datetime


class JournalFact(Struct, frozen=True, kw_only=True):
    """One line of the journal."""

    number: int
    kind: str
    at: datetime
    scope: str | None
    event_id: str | None
    operation_id: str | None
    host: str | None
    vm: str | None
    by: str | None
    detail: Mapping[str, object]

    def __hash__(self) -> int:
        return hash(self.number)  # `detail` cannot be hashed, and no two facts share a number

    def __str__(self) -> str:
        about = (("by", self.by), ("of", self.vm), ("on", self.host))
        words = " ".join(f"{word} {name}" for word, name in about if name)
        return f"{clock_text(self.at)} {self.kind} {words}".rstrip()


def clock_text(at: datetime) -> str:
    """An instant as the operator API writes it."""
    return time_text(ms_of(at)) or ""


def event_of(event: model.ScheduledEvent) -> Event:
    """An event of the core as a test sees it."""
    return Event(
        event_id=event.event_id,
        event_type=event.event_type.value,
        event_source=event.event_source.value,
        phase=event.phase,
        resources=event.resources,
        scope=event.scope,
        update_domain=event.update_domain,
        host=event.host,
        not_before=time_of(event.not_before_ms),
        description=event.description,
        duration_seconds=event.duration_s,
        silent=event.silent,
        scheduled=time_of(event.scheduled_ms),
        approved=_time_or_none(event.approved_ms),
        approved_by=event.approved_by,
        started=_time_or_none(event.started_ms),
        ended=_time_or_none(event.ended_ms),
        outcome=event.outcome,
        operation_id=event.operation_id,
        postponed_from=event.postponed_from,
        postponed_to=event.postponed_to,
    )


def fact_of(line: JournalLine) -> JournalFact:
    """A line of the journal as a test sees it."""
    fact = line.fact
    return JournalFact(
        number=line.number,
        kind=fact.kind.value,
        at=time_of(fact.at_ms),
        scope=fact.scope,
        event_id=fact.event_id,
        operation_id=fact.operation_id,
        host=fact.host,
        vm=fact.vm,
        by=fact.by,
        detail=detail_words(fact.detail),
    )


def read_of(first_read: FirstRead) -> Read:
    """A receipt as a test sees it."""
    return Read(event_id=first_read.event_id, vm=first_read.vm, at=time_of(first_read.read_ms))


EventLike = Event | CloudOperation | str | Sequence[Event]


def ids_of(events: EventLike) -> tuple[str, ...]:
    """The ids of an event, of all events of an operation, or of several events.

    Raises Invalid if there is none: nothing could be said about it.
    """
    if isinstance(events, str):
        return (events.upper(),)
    if isinstance(events, Event):
        return (events.event_id,)
    found = events.events if isinstance(events, CloudOperation) else events
    if not found:
        raise Invalid("There is no event in what was given.", "Give an event, or several.")
    return tuple(event.event_id for event in found)


@overload
def name_of(thing: str | CloudVm) -> str: ...


@overload
def name_of(thing: str | CloudVm | None) -> str | None: ...


def name_of(thing: str | CloudVm | None) -> str | None:
    """The name of a VM that is given as a value or by its name."""
    return thing.name if isinstance(thing, CloudVm) else thing
