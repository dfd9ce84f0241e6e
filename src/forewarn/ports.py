"""What the control plane asks of the outside world, as Protocols. Implementations are adapters.

Only Protocols and the values they exchange live here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from forewarn.core.incarnation_marks import VmKey
from forewarn.core.inventory.host_report import SeenVm, Traits
from forewarn.core.model import (
    ActionKind,
    Cause,
    EventType,
    Fact,
    FactKind,
    Host,
    Operation,
    OperationPhase,
    Phase,
    ScheduledEvent,
    Scope,
    Webhook,
)
from forewarn.core.retention import Prunable
from forewarn.core.tokens import Token
from forewarn.wire.link import Changes, Since, Turn, TurnTaken, Work

# Of the folder in which a backup is made before it is sent; the next start removes what is left.
BACKUP_SCRATCH_PREFIX = "forewarn-backup-"


class Clock(Protocol):
    """The only source of time."""

    def now_ms(self) -> int:
        """UTC wall time in milliseconds. It may step, in both directions."""
        ...

    def monotonic_ms(self) -> int:
        """Time that never goes back and never jumps; says nothing about the date."""
        ...


class Ids(Protocol):
    """The only source of names for new things."""

    def event_id(self) -> str:
        """A new GUID, 8-4-4-4-12, in upper case (contract 1.5)."""
        ...


class FirstRead(Struct, frozen=True, kw_only=True):
    """A receipt: when a VM first read an event."""

    scope: str
    event_id: str
    vm: str
    read_ms: int


class RememberedAnswer(Struct, frozen=True, kw_only=True):
    """The answer to an order, kept under its idempotency key."""

    key: str
    fingerprint: str
    answer: str
    at_ms: int


class VmDefinition(Struct, frozen=True, kw_only=True):
    """What another host needs to start a VM, as the host that showed it last has told it.

    `digest` is that of `text`, so that an unchanged one need not be written again.
    """

    vm: str
    host: str
    text: str
    digest: str
    seen_ms: int


class DepartedVm(Struct, frozen=True, kw_only=True):
    """A VM that has left the fleet, and the incarnation that it may have read by then."""

    key: VmKey
    incarnation: int
    left_ms: int


class JournalLine(Struct, frozen=True, kw_only=True):
    """A fact with its place in the journal.

    The writer numbers them, without gaps in the order of commits; a rollback gives numbers back.
    Pruning takes lines away, and no line gets the number of one that went.
    """

    number: int
    fact: Fact


class Generation(Struct, frozen=True):
    """The lines from `first_number` on, up to where the next generation begins.

    A restore begins one: the number of a line that it has lost is given again, to another line. A
    generation with the number of a line is never given again.
    """

    generation: int
    first_number: int


class JournalExtent(Struct, frozen=True, kw_only=True):
    """Whose journal it is, and which lines it has.

    `installation` is kept over a restore. `generations` are in their order, and cover all numbers.
    `end` is the number of the newest line, 0 while there is no line. Lines up to `pruned_through`
    may be gone; every later one is there.
    """

    installation: str = ""
    generations: tuple[Generation, ...] = (Generation(1, 1),)
    end: int = 0
    pruned_through: int = 0

    def generation_of(self, number: int) -> int:
        """The generation of the line that has this number, or will have it."""
        begun = (one for one in self.generations if one.first_number <= number)
        return max((one.generation for one in begun), default=self.generations[0].generation)


class Change(Struct, frozen=True, kw_only=True):
    """Everything one use case writes. Pairs are (what was loaded, or None if new; what follows).

    A scope or operation that follows may hold ended events or be ended itself: their rows are
    written and kept, but `Store.load` does not return them again. `commit` is the number of the
    commit that it is part of, 0 where that is not said. `shown` are those of the scopes of which
    some host may be shown something else from then on; every new scope is among them.
    """

    commit: int = 0
    shown: tuple[str, ...] = ()
    scopes: tuple[tuple[Scope | None, Scope], ...] = ()
    hosts: tuple[tuple[Host | None, Host], ...] = ()
    operations: tuple[tuple[Operation | None, Operation], ...] = ()
    removed_scopes: tuple[str, ...] = ()
    removed_hosts: tuple[str, ...] = ()
    lines: tuple[JournalLine, ...] = ()
    first_reads: tuple[FirstRead, ...] = ()
    remembered: RememberedAnswer | None = None
    heartbeat_ms: int | None = None
    pruned: Prunable | None = None  # after the lines are added, one of which says so
    inventory: str | None = None
    inventory_packed: str | None = None  # the same by `wire.packed`, if it was made beforehand
    unfinished: str | None = None  # what is noted of an inventory not yet applied whole; "": none
    definitions: tuple[VmDefinition, ...] = ()
    removed_definitions: tuple[str, ...] = ()  # by VM; those that are not there do not matter
    departed_vms: tuple[DepartedVm, ...] = ()
    forgotten_vms: tuple[VmKey, ...] = ()  # departed ones, of which nothing is kept any more
    tokens: tuple[Token, ...] = ()
    removed_tokens: tuple[str, ...] = ()  # by id
    webhooks: tuple[Webhook, ...] = ()
    removed_webhooks: tuple[str, ...] = ()  # by id


class Epoch(Struct, frozen=True):
    """One life of a control on the store, and the number of its first commit."""

    epoch_id: str
    first_commit: int


class Numbers(Struct, frozen=True, kw_only=True):
    """What a writer goes on counting from.

    `events` and `operations` are the highest numbers that were given. `open_events` are the numbers
    of the open ones, by id. `positions` are the places of the VMs of a scope in its order, of those
    scopes alone where they are not 1, 2, 3 and so on.
    """

    events: int = 0
    operations: int = 0
    open_events: Mapping[str, int] = field(default_factory=dict)
    positions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


class Snapshot(Struct, frozen=True, kw_only=True):
    """What was durable when the store was opened. Events and operations are the open ones.

    `digests` are those of the definitions, by VM: a VM is in there once a host has shown it.
    `departed_vms` are in the order in which they left. `unfinished` is what was noted of the
    inventory if it was not applied whole, and empty if it was. `position` is the number of the last
    commit, `shown` that of the one that last changed what hosts are shown of a scope, by name;
    `epochs` are the lives of controls that have committed, oldest first.
    """

    scopes: tuple[Scope, ...]
    hosts: tuple[Host, ...]
    operations: tuple[Operation, ...]
    heartbeat_ms: int | None
    inventory: str | None
    unfinished: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)
    departed_vms: tuple[DepartedVm, ...] = ()
    position: int = 0
    epochs: tuple[Epoch, ...] = ()
    shown: Mapping[str, int] = field(default_factory=dict)
    tokens: tuple[Token, ...] = ()
    webhooks: tuple[Webhook, ...] = ()
    journal: JournalExtent = JournalExtent()
    numbers: Numbers = Numbers()


class Questions(Struct, frozen=True, kw_only=True):
    """What commands want to know of what is no longer open, asked together.

    `keys` are idempotency keys; `events` and `operations` whole ids; `event_ids` and
    `operation_ids` beginnings of ids, of which `ids_max` are wanted each. `prunable_before_ms` asks
    for a slice of what ended before that.
    """

    keys: frozenset[str] = frozenset()
    events: frozenset[str] = frozenset()
    operations: frozenset[str] = frozenset()
    event_ids: frozenset[str] = frozenset()
    operation_ids: frozenset[str] = frozenset()
    ids_max: int = 0
    prunable_before_ms: int | None = None

    def __bool__(self) -> bool:
        by_name = self.keys or self.events or self.operations
        begun = self.event_ids or self.operation_ids
        return bool(by_name or begun or self.prunable_before_ms is not None)


class RecallResult(Struct, frozen=True, kw_only=True):
    """What there is of what was asked for, as last committed; the rest was never there, or is gone.

    `event_ids` and `operation_ids` are by the beginning that was asked for, in order.
    """

    remembered: Mapping[str, RememberedAnswer] = field(default_factory=dict)
    events: Mapping[str, ScheduledEvent] = field(default_factory=dict)
    operations: Mapping[str, Operation] = field(default_factory=dict)
    event_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    operation_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    prunable: Prunable = Prunable()


Cell = str | int | None
Cells = Mapping[str, Cell]  # of one row, by column


class TableWrites(Struct, frozen=True):
    """What a batch does to one table: each row once, in this order.

    `deleted` are the keys of rows, the others whole rows. What is `updated` must be there and be as
    it was when it was loaded; what is `upserted` may be there.
    """

    deleted: tuple[Cells, ...] = ()
    inserted: tuple[Cells, ...] = ()
    updated: tuple[Cells, ...] = ()
    upserted: tuple[Cells, ...] = ()


class Batch(Struct, frozen=True, kw_only=True):
    """Everything that one commit writes, as rows (made by `tables.folding`).

    `commit` is its number, the one after the last. `pruned` goes after everything else is written.
    """

    commit: int
    tables: Mapping[str, TableWrites]
    pruned: Prunable | None = None


class Fence(Struct, frozen=True):
    """Under which leadership a batch is written. A store of one control knows none."""

    epoch: int


class ListedEvent(Struct, frozen=True, kw_only=True):
    """An event with its place in lists. Numbers grow in the order of scheduling."""

    number: int
    event: ScheduledEvent


class ListedOperation(Struct, frozen=True, kw_only=True):
    """An operation with its place in lists. Numbers grow in the order of ordering."""

    number: int
    operation: Operation


class ListFilter(Struct, frozen=True, kw_only=True):
    """Which events, operations or lines of the journal are meant; what is None lets all through.

    A VM and a tag (`key=value`) are those of the event: it named the VM, which had the tag then.
    `by` ordered or approved it; of a line, who did what it says. The times are those of
    scheduling, of ordering, or of the line. Of a line, type, phase and cause are those of the
    event or operation that it is about; only lines have a kind and an event. With `scopes`, what
    belongs to none of these is left out, and what belongs to no scope.
    """

    scope: str | None = None
    scopes: tuple[str, ...] | None = None
    host: str | None = None
    vm: str | None = None
    tag: str | None = None
    event_type: EventType | None = None
    phase: Phase | OperationPhase | None = None
    cause: Cause | None = None
    by: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    kind: FactKind | None = None
    event_id: str | None = None


EVERYTHING = ListFilter()


class StaleRevision(Exception):  # noqa: N818 - says what is the case
    """Another write changed the aggregate since it was loaded. Nothing of this batch was saved."""


class Unstorable(AssertionError):  # noqa: N818 - says what is the case
    """A change breaks a constraint: a bug of ours, never a user's or the disk's.

    Nothing of its batch was saved.
    """


class StoreFailed(Exception):  # noqa: N818 - says what is the case
    """The store cannot keep what it is given (disk full, I/O error). Nothing was promised.

    After `fatal` ones the process must exit: what is on the disk is no longer known.
    """

    def __init__(self, message: str, *, fatal: bool) -> None:
        super().__init__(message)
        self.fatal = fatal


class LeadershipLost(StoreFailed):
    """This control leads no longer, or cannot know whether its last batch is durable.

    It answers nothing of that batch with success, and writes nothing until it leads anew.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, fatal=True)


class Store(Protocol):
    """Durable state. Writing belongs to one thread; reading to any."""

    def load(self) -> Snapshot:
        """Everything that is open."""
        ...

    def position(self) -> int:
        """The number of the last commit; the next one has the number that follows."""
        ...

    def begin_epoch(self, epoch: str) -> None:
        """A life of control begins: the next commit is the first one of this epoch."""
        ...

    def commit(self, batch: Batch, fence: Fence | None = None) -> None:
        """Write a batch whole. It is durable when this returns; else nothing of it was written.

        Raises StaleRevision if a row is not as it was loaded, Unstorable if one cannot be,
        LeadershipLost if another control leads or it cannot be known, and StoreFailed.
        """
        ...

    def recall(self, questions: Questions) -> RecallResult:
        """What is kept of what is asked for, as last committed."""
        ...

    def event(self, event_id: str) -> ScheduledEvent | None:
        """An event, open or ended, as last committed."""
        ...

    def events(
        self, where: ListFilter, *, open_only: bool, limit: int, below: int | None = None
    ) -> Sequence[ListedEvent]:
        """Committed events, newest first; those with a number below `below`."""
        ...

    def event_ids(self, beginning: str, *, limit: int) -> Sequence[str]:
        """Ids of events, open or ended, that begin so, in order. `beginning` is upper case."""
        ...

    def operation(self, operation_id: str) -> Operation | None:
        """An operation, open or ended, as last committed."""
        ...

    def operations(
        self, where: ListFilter, *, open_only: bool, limit: int, below: int | None = None
    ) -> Sequence[ListedOperation]:
        """Committed operations, newest first; those with a number below `below`."""
        ...

    def operation_ids(self, beginning: str, *, limit: int) -> Sequence[str]:
        """Ids of operations, as `event_ids`."""
        ...

    def first_reads(self, event_id: str) -> Sequence[FirstRead]:
        """The receipts of an event, oldest first."""
        ...

    def definition(self, vm: str) -> VmDefinition | None:
        """What a VM was when a host last showed it otherwise, as last committed."""
        ...

    def journal(self, where: ListFilter, *, after: int, limit: int) -> Sequence[JournalLine]:
        """Committed facts with a number above `after`, oldest first."""
        ...

    def journal_end(self) -> int:
        """The number of the newest committed fact, 0 while there is no fact."""
        ...

    def backup(self, target: Path, *, files: Callable[[], Mapping[str, bytes]] = dict) -> None:
        """Write a consistent copy of the committed state while the store is in use.

        `files` are asked for after the copy, and kept in it by their names.
        """
        ...

    def close(self) -> None:
        """End it. Everything committed stays."""
        ...


class SightKind(StrEnum):
    """What a look at an action can show."""

    NOT_BEGUN = "not-begun"
    UNDER_WAY = "under-way"
    DONE = "done"
    FAILED = "failed"
    UNSURE = "unsure"  # of a move: the VM does not run here, and the target cannot be asked
    SPARED = "spared"  # nothing was done: the VM runs, and the action is for one that is off


class Sight(Struct, frozen=True):
    """What a look at an action showed; `detail` says why it failed or cannot be known."""

    kind: SightKind
    detail: str = ""


class HypervisorFailed(Exception):  # noqa: N818 - says what is the case
    """The hypervisor refused or could not be reached. Looking again later is always allowed."""

    kind = SightKind.FAILED  # what it means for an action that could not begin


class SwitchedOn(HypervisorFailed):
    """Nothing was done to a VM: it runs, and the action is for one that is off."""

    kind = SightKind.SPARED

    def __init__(self) -> None:
        super().__init__(SWITCHED_ON)


class WorkOrder(Struct, frozen=True, kw_only=True):
    """What one host has to do now, as control handed it out under an epoch.

    `boot_id` is the host's boot when a reboot of it was claimed. `only_off`: no VM was asked, so
    nothing is done to a VM that runs. `lose_disk`: a VM that is moved starts there with empty local
    disks; who cannot do that refuses to begin. `about` are the VMs that were told, as (name, id),
    with an empty id where no host has shown one; `left_ms` is the time until what it belongs to is
    given up. Both are None where control did not say.
    """

    action_id: str
    kind: ActionKind
    host: str | None
    vm: str | None = None
    target_host: str | None = None
    duration_s: int = 0
    epoch: int = 0
    boot_id: str | None = None
    only_off: bool = False
    lose_disk: bool = False
    about: tuple[tuple[str, str], ...] | None = None
    left_ms: int | None = None

    def is_about(self, vm: str, vm_id: str) -> bool:
        """Whether it is done to this VM, and not to another one of that name."""
        return self.about is None or any(one in self.about for one in ((vm, vm_id), (vm, "")))


# Of a VM that was not asked because it was off (`WorkOrder.only_off`).
SWITCHED_ON = (
    "it was switched on before this began, and had not been asked because it was off; "
    "nothing was done to it"
)


class Hypervisor(Protocol):
    """What really happens to VMs and hosts.

    `look` comes first, always: an action may have been begun, or done, by a claim that died.
    `begin` returns once the action is under way, not when it is done; beginning an action twice
    is the caller's mistake and `look` is how not to make it.
    """

    async def boot_id(self, host: str) -> str:
        """Changes whenever the host has booted."""
        ...

    async def look(self, host: str, action: WorkOrder) -> Sight: ...

    async def begin(self, host: str, action: WorkOrder) -> None: ...


class HostLink(Protocol):
    """Everything that one host and control say to each other, in process or over HTTPS.

    The host is bound when the link is made. Every call may raise Refusal, or Unavailable if control
    cannot be reached or cannot keep it now.
    """

    # What the host is told.

    async def changes(self, since: Since | None, wait_s: int) -> Changes:
        """What is new since then, as soon as there is anything; waits up to `wait_s`."""
        ...

    # What it says of itself and does.

    async def turn(self, said: Turn) -> TurnTaken:
        """I am here, and this is what I have to say. Durable when it returns, but for the refused.

        The `epoch` of the turn is for the link to say.
        """
        ...

    async def claim(self, boot_id: str) -> Sequence[Work]:
        """What I have to do now."""
        ...

    async def holds(self, action_id: str, epoch: int) -> bool:
        """Is the claim still mine? Asked before acting on one that is not fresh; yes renews it."""
        ...

    # What it asks while it acts.

    async def targets(self, vms: Sequence[str]) -> Mapping[str, str | None]:
        """The host that each of these VMs should go to now; None where there is no place."""
        ...

    async def definition(self, vm: str) -> str | None:
        """What a VM was when it was last seen anywhere, to start it here."""
        ...

    # What it reports of its VMs.

    async def sight(self, vms: Sequence[SeenVm], boot_id: str = "") -> Mapping[str, str]:
        """These are my VMs in this boot; the answer says what of them cannot be used, by name."""
        ...

    async def blind(self, why: str) -> None:
        """My hypervisor does not answer; so it is until the next report."""
        ...

    async def adopted(self, adoption_id: str, problem: str) -> None:
        """An adoption is written, or `problem` says why not."""
        ...

    # What its guests do.

    async def approve(self, vm: str, event_ids: tuple[str, ...]) -> None:
        """A VM says go ahead. Durable when it returns."""
        ...

    async def enable(self, scope: str, vm: str) -> None:
        """A VM polled a scope that was not enabled. Durable when it returns."""
        ...


class Machines(Protocol):
    """All VMs of one hypervisor, ours and others."""

    async def seen(self) -> Sequence[SeenVm]:
        """Every VM that is there now, by name. HypervisorFailed if they cannot be known."""
        ...

    async def adopt(self, vm: str, traits: Traits) -> None:
        """Write the traits where `seen` reads them. HypervisorFailed if that cannot be."""
        ...

    def on_change(self, ring: Callable[[], None]) -> None:
        """Call `ring` on the event loop whenever there may be something new to see."""
        ...


class Interface(Struct, frozen=True, kw_only=True):
    """A network interface of the host as the kernel shows it. `ifindex` is never given again.

    `kind` is what made it (bridge, tun, veth, macvtap; empty for hardware), `master` the name of
    the bridge that it is a port of. `addresses` are written with their prefix (192.0.2.7/24).
    """

    name: str
    ifindex: int
    mac: str
    kind: str = ""
    master: str | None = None
    addresses: tuple[str, ...] = ()
    up: bool = True


class NetworkFailed(Exception):  # noqa: N818 - says what is the case
    """The network of the host could not be read or changed. Says why and what would help."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}")
        self.message = message
        self.remedy = remedy


class Interfaces(Protocol):
    """The interfaces of this host's network namespace. Every method may raise NetworkFailed."""

    async def interfaces(self) -> Sequence[Interface]:
        """Every interface that is there now."""
        ...

    async def add_address(self, interface: str, address: str) -> None:
        """Have the address (with its prefix) on the interface; without effect if it is there."""
        ...

    async def remove_address(self, interface: str, address: str) -> None:
        """Have it no more; without effect if it, or the interface, is not there."""
        ...

    async def strict(self, names: Collection[str]) -> Collection[str]:
        """Those of them on which the kernel drops guests, because it has no route to them."""
        ...

    def marks_are_inherited(self) -> bool:
        """Whether an accepted connection carries the mark of the packet that opened it."""
        ...

    def inherit_marks(self, *, on: bool) -> None:
        """Have it so (net.ipv4.tcp_fwmark_accept)."""
        ...


class PacketRules(Protocol):
    """The packet filter of this host's network namespace. May raise NetworkFailed."""

    async def sets(self, table: str) -> Mapping[str, Sequence[object]] | None:
        """The elements of every set of an inet table, by its name; None without such a table."""
        ...

    async def apply(self, text: str) -> None:
        """Apply a whole text of nft or, if anything of it is refused, nothing."""
        ...
