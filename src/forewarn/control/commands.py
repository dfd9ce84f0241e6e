"""Every change that can be asked of control, as a value: what is wanted, and by whom.

A command says everything that its decision needs and that is not in the fleet, so it can be written
down, read back and decided anew. `Command[R]` is one whose decision answers R. Which function
decides which of them is `command_handlers`; times are those of the transaction that it decides in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from forewarn.control.hosts.report_slices import Report, Slice
from forewarn.control.inventory.file_reader import InventoryClash, Mistake
from forewarn.core.access import Access, Role
from forewarn.core.errors import Refusal
from forewarn.core.inventory.entries import Applied
from forewarn.core.inventory.host_report import Traits
from forewarn.core.model import (
    Action,
    AnyProgress,
    AnyWebhookOrder,
    EventType,
    Host,
    Operation,
    Outcome,
    ScheduledEvent,
    Scope,
    Webhook,
)
from forewarn.core.principal import Principal
from forewarn.core.retention import Prunable
from forewarn.core.tokens import Token
from forewarn.wire.instants import TimeInput, WindowInput

R_co = TypeVar("R_co", covariant=True)


def _tag(class_name: str) -> str:
    """`RestartVm` as `restart-vm`."""
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in class_name).lstrip("-")


class Command(
    msgspec.Struct,
    Generic[R_co],
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="command",
    tag=_tag,
):
    """What a principal wants. Two equal orders want the same."""

    by: Principal


# What operators order. Outside of the `window` of an order nothing of it starts.


class RestartVm(Command[ScheduledEvent], frozen=True, kw_only=True):
    """Reboot a VM, as its owner. Answers the event, also if the same order was open already."""

    vm: str
    window: WindowInput | None = None


class RedeployVm(Command[ScheduledEvent], frozen=True, kw_only=True):
    """Move a VM to another host, as its owner; with `lose_disk` its local disks are empty there."""

    vm: str
    window: WindowInput | None = None
    lose_disk: bool = False


class DeleteVm(Command[ScheduledEvent], frozen=True, kw_only=True):
    """Terminate a VM, as its owner."""

    vm: str
    window: WindowInput | None = None


class EvictVm(Command[ScheduledEvent], frozen=True, kw_only=True):
    """Preempt a spot VM, as the platform."""

    vm: str
    window: WindowInput | None = None


class StartVm(Command[ScheduledEvent], frozen=True, kw_only=True):
    """Start a VM of a failed host, which waits for a place, on this host.

    `break_domains` accepts that another update domain of its scope is there; `reason` says why.
    """

    vm: str
    host: str
    break_domains: bool = False
    reason: str = ""


class MaintainHost(Command[Operation], frozen=True, kw_only=True):
    """Freeze or reboot a host, or move its VMs away (Redeploy).

    `duration_s` is the length of a Freeze; `description` replaces the words that guests read.
    `break_domains` accepts that two update domains of one scope are hit at once; `reason` says why.
    `lose_disk`: the VMs of a Redeploy start with empty local disks.
    """

    host: str
    event_type: EventType
    not_before: TimeInput | None = None
    window: WindowInput | None = None
    duration_s: int | None = None
    description: str | None = None
    break_domains: bool = False
    lose_disk: bool = False
    reason: str = ""


class DegradeHost(Command[Operation], frozen=True, kw_only=True):
    """Say that a host's hardware is expected to fail; its VMs move, a week ahead by default."""

    host: str
    not_before: TimeInput | None = None
    window: WindowInput | None = None


class HostFailed(msgspec.Struct, frozen=True):
    """A host that was declared failed, and the open events of the VMs that were on it."""

    host: Host
    events: tuple[ScheduledEvent, ...]


class FailHost(Command[HostFailed], frozen=True, kw_only=True):
    """Say that a host has failed, and with `fenced` that it is surely off.

    The power of a simulated host is cut first, so that it is. Any other that is heard has not
    failed: HostHeard, unless `force`, for a `reason`.
    """

    host: str
    fenced: bool = False
    force: bool = False
    reason: str = ""


class RepairHost(Command[Host], frozen=True, kw_only=True):
    """Say that a degraded or failed host is well again; a simulated one gets its power back.

    Any other that is not heard: HostSilent, unless `force`, for a `reason`.
    """

    host: str
    force: bool = False
    reason: str = ""


class CloseHost(Command[Host], frozen=True, kw_only=True):
    """Place no VM on a host any more."""

    host: str


class OpenHost(Command[Host], frozen=True, kw_only=True):
    """Place VMs on a host again."""

    host: str


class NoteAdoption(Command[None], frozen=True, kw_only=True):
    """Write down who had these traits written to a VM's domain.

    That its host has written them, or may have: what became of it is seen when it shows the VM.
    """

    host: str
    vm: str
    traits: Traits


class ApproveEvent(Command[ScheduledEvent], frozen=True, kw_only=True):
    """Say go ahead in place of a VM, for a reason; or as the owner of its scope, without one.

    `event_id` may be the beginning of one.
    """

    event_id: str
    reason: str = ""


class EventCanceled(msgspec.Struct, frozen=True):
    """An event that was canceled, and the ids of all that were canceled with it."""

    event: ScheduledEvent
    together: tuple[str, ...]


class CancelEvent(Command[EventCanceled], frozen=True, kw_only=True):
    """Cancel a scheduled event, or withdraw an eviction. An operation is canceled whole.

    `event_id` may be the beginning of one.
    """

    event_id: str


class EventPostponed(msgspec.Struct, frozen=True):
    """The event that was announced anew, and the ids of all that were withdrawn and announced.

    Both are in the same order, that of the event that was named first.
    """

    event: ScheduledEvent
    withdrawn: tuple[str, ...]
    announced: tuple[str, ...]


class PostponeEvent(Command[EventPostponed], frozen=True, kw_only=True):
    """Withdraw a scheduled event and announce it anew, later. A whole operation moves together.

    `event_id` may be the beginning of one. `until` is the earliest start without approval; if its
    minimum notice ends later, then that is. `reason` may be empty.
    """

    event_id: str
    until: TimeInput
    reason: str = ""


class CancelOperation(Command[Operation], frozen=True, kw_only=True):
    """Cancel what of an operation has not started. `operation_id` may be the beginning of one."""

    operation_id: str


class ReleaseScope(Command[Scope], frozen=True, kw_only=True):
    """Let platform events of a scope go on after one of its events has failed."""

    scope: str


# Inventory files. A file is read beforehand; every later reading of it says the same.


class ApplyInventory(Command[Applied], frozen=True, kw_only=True):
    """Make the fleet what a file says, in one commit.

    Nothing is written if it says what the last one said; the whole file is refused if the running
    fleet forbids a part of it. `deaf` are addresses at which nothing can listen now, and why.
    """

    text: str
    deaf: dict[str, str] = {}


class NothingToApply(Command[Applied], frozen=True, kw_only=True):
    """A file says what the fleet is already. Answers that nothing was changed."""


class ApplyInventoryAtOnce(Command[Applied], frozen=True, kw_only=True):
    """Make the fleet what a file says that was compared with it: it changes these scopes.

    `applied` is what that comparison found, and `packed` the text as it is kept. Refused with
    InventoryClash if something began since that forbids it.
    """

    text: str
    packed: str
    scopes: tuple[str, ...]
    applied: Applied


class DecideInventory(Command[Applied], frozen=True, kw_only=True):
    """Make a file durable as what is wanted, with its hosts. From here on it is applied."""

    text: str
    packed: str
    applied: Applied


class InventoryTried(msgspec.Struct, frozen=True):
    """What came of a part of a decided file: why it has to wait now, in words, if it does.

    `replaced` if another file took the place of this one.
    """

    waits: tuple[str, ...] = ()
    replaced: bool = False


class TakeInventorySlice(Command[InventoryTried], frozen=True, kw_only=True):
    """Have these scopes as the decided file wants them. `inventory` is the digest of its text."""

    inventory: str
    scopes: tuple[str, ...]


class FinishInventory(Command[InventoryTried], frozen=True, kw_only=True):
    """Every slice was tried: drop the hosts that go, and say why others cannot go now.

    If every slice was applied and no host has to wait, the inventory is applied whole.
    """

    inventory: str
    all_applied: bool


class AllOf(Command[tuple[Any, ...]], frozen=True, kw_only=True):
    """Orders that are carried out in this order, all or none. Answers what each of them did."""

    orders: tuple[Order, ...]


class Answer(msgspec.Struct, frozen=True):
    """The answer to an order as JSON text. `repeated` if the order was carried out before."""

    text: str
    repeated: bool


class Once(Command[Answer], frozen=True, kw_only=True):
    """An order that is carried out at most once under `key`, and its answer to the operator.

    `access` is what who gives it may do: Forbidden if the order needs more than that, or is about
    a scope that is not theirs when it is decided. `fingerprint` tells it from other orders:
    IdempotencyMismatch if the key was used for one of those. Without a key nothing is remembered.
    `effect` is that which its author was shown before (`order_previews`): EffectMoved if the
    order would do something else by now.
    """

    order: Order | InventoryOrder
    access: Access
    key: str | None
    fingerprint: str
    effect: str = ""


class FindAnswer(Command[Answer | None], frozen=True, kw_only=True):
    """The answer that was given to an order before, None if it is new. Refused as `Once`."""

    key: str | None
    fingerprint: str


class NoteBackup(Command[None], frozen=True, kw_only=True):
    """Write down that a backup was given, to whom, and how large it was."""

    size: int


# Who may come in.


class MakeToken(Command[Token], frozen=True, kw_only=True):
    """Let a person or program in by a token. The secret was made before; its hash is kept.

    `later`: scopes that are not there yet are meant all the same.
    """

    token_id: str
    name: str
    role: Role
    scopes: tuple[str, ...] = ()
    secret_hash: str
    valid_ms: int
    later: bool = False


class RotateToken(Command[Token], frozen=True, kw_only=True):
    """Give a token another secret and a new expiry. The old secret lets nothing in any more."""

    token_id: str
    secret_hash: str
    valid_ms: int


class RevokeToken(Command[Token], frozen=True, kw_only=True):
    """Let nothing in by a token any more, from the commit on."""

    token_id: str


class NoteTokenUse(Command[None], frozen=True, kw_only=True):
    """A token has let in. Kept coarsely, and not in the journal."""

    token_id: str


class NoteRefused(Command[None], frozen=True, kw_only=True):
    """Write down that callers were not let in, or lacked a right: so many since the last line.

    `who`, `address` and `what` are those of the last of them, as far as they are known; `token` is
    the id of the token that it showed.
    """

    reason: str
    count: int
    address: str = ""
    who: Principal | None = None
    what: str = ""
    token: str = ""


class OrderWebhook(Command[Webhook], frozen=True, kw_only=True):
    """Make, change or remove a webhook, or have it go on otherwise. Answers the webhook.

    `webhook_id` may be its name; of a new one it is the id that it gets.
    """

    webhook_id: str
    do: AnyWebhookOrder


class NoteDelivery(Command[bool], frozen=True, kw_only=True):
    """How far a webhook has come, or that it fails. False if its `turn` is another one by now."""

    webhook_id: str
    turn: int
    progress: AnyProgress


class TellTime(Command[int], frozen=True, kw_only=True):
    """The time by which control decides, in ms: answered only if an order would get through."""


# What hosts say.


class HostIsSilent(Command[None], frozen=True, kw_only=True):
    """Stop the notice of the events on a host that is not heard; it runs on when it confirms."""

    host: str


class HostJoined(Command[None], frozen=True, kw_only=True):
    """A host has a daemon and a certificate: it is in the fleet, whatever a file lists.

    Refused for a bad name, and for one that differs from another host's in case only. A host that
    joins again keeps everything that was said of it.
    """

    host: str


class HostsLeft(Command[None], frozen=True, kw_only=True):
    """Hosts have no certificate any more. Each leaves the fleet unless something is still there.

    One that VMs are on, or that an event or operation is about, stays without new VMs until it is
    retired again; one that an inventory file lists stays as the file's.
    """

    hosts: tuple[str, ...]
    listed_by_file: tuple[str, ...] = ()
    inventory: str | None = None  # the digest of the file that was looked at, if there was one


class ApproveEvents(Command[None], frozen=True, kw_only=True):
    """A VM of the host says go ahead. All of it is applied, or with UnknownEventIds none of it."""

    host: str
    vm: str
    event_ids: tuple[str, ...]


class EnableScope(Command[None], frozen=True, kw_only=True):
    """A VM of the host polled a scope that was not enabled."""

    host: str
    scope: str
    vm: str


class ReadAgo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A VM has read an event for the first time, so long ago."""

    vm: str
    scope: str
    event_id: str
    age_ms: int


class EndedAction(msgspec.Struct, frozen=True, kw_only=True):
    """How an action ended, as its host says."""

    action_id: str
    epoch: int
    outcome: Outcome
    detail: str = ""


class RefusedPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A refusal as a value: of a command, or of a part of one whose other parts are taken."""

    code: str
    refused: str
    accepted: str = ""
    found: tuple[Mistake, ...] = ()  # of an InventoryClash

    @classmethod
    def of(cls, why: Refusal) -> RefusedPart:
        found = why.found if isinstance(why, InventoryClash) else ()
        return cls(why.code, why.refused, why.accepted, found)


class TurnResult(msgspec.Struct, frozen=True, kw_only=True):
    """What of a turn is not taken: confirmations by scope, ended actions by id.

    `lost` are claims that the host holds no more. `work`: there is something that it should claim.
    """

    lost: tuple[str, ...] = ()
    work: bool = False
    refused_confirms: dict[str, RefusedPart] = {}
    refused_ended: dict[str, RefusedPart] = {}


class TakeTurn(Command[TurnResult], frozen=True, kw_only=True):
    """The host is there, and says what it has to say.

    If it was silent for long, guests there could not read: that time was no notice. `holding` are
    the claims it works on (action id, epoch). `confirms` are incarnations that it shows, by scope;
    refused for one that never was, but not for a scope that has left. Of what guests did in passing
    (`polls` are ages, by scope; `first_polls` are VMs that had never polled; `rebooted` are VMs
    that were, without an order) that of its own VMs is kept. An end is refused if the claim is held
    no more. `refuses` is why it obeys nothing of this control, in its words.
    """

    host: str
    holding: dict[str, int] = {}
    refuses: str = ""
    confirms: dict[str, int] = {}
    first_reads: tuple[ReadAgo, ...] = ()
    polls: dict[str, int] = {}
    returned: tuple[str, ...] = ()
    ended: tuple[EndedAction, ...] = ()
    first_polls: tuple[str, ...] = ()
    rebooted: tuple[str, ...] = ()


class HandedOut(msgspec.Struct, frozen=True):
    """An action that a host has claimed; the VMs that were told of it, as (name, id), with an empty
    id where no host has shown one; and the time until what it belongs to is given up.
    """

    action: Action
    about: tuple[tuple[str, str], ...] = ()
    left_ms: int | None = None


class ClaimResult(msgspec.Struct, frozen=True):
    """What a host has to do. `two_daemons`: two speak for it, so neither is given anything."""

    work: tuple[HandedOut, ...]
    two_daemons: bool = False


class ClaimActions(Command[ClaimResult], frozen=True, kw_only=True):
    """Take what the host has to do: what no daemon has taken, and what a lapsed lease freed.

    `daemon` names one life of the host's daemon. What an earlier one had claimed is free as soon
    as the next one asks: it died, and the next one looks before it acts. If the earlier one speaks
    again after that, two machines have the credentials of one host, and control cannot know which
    of them has its VMs: both get nothing until one is silent. `only` are the actions that it may be
    given, by id; None if it may be given any.
    """

    host: str
    boot_id: str
    daemon: str = ""
    only: tuple[str, ...] | None = None


class HoldClaim(Command[bool], frozen=True, kw_only=True):
    """Whether the host may still act on a claim. Yes renews its lease."""

    host: str
    action_id: str
    epoch: int


class ReportTaken(msgspec.Struct, frozen=True):
    """How far a report was taken: what of it cannot be used, in words by VM."""

    problems: dict[str, str]


class TakeReport(Command[ReportTaken], frozen=True, kw_only=True):
    """Take what a host shows, whole. `number` grows: of two reports the later one counts."""

    report: Report
    number: int


class BeginReport(Command[ReportTaken], frozen=True, kw_only=True):
    """Take the first slice of a long report. Until its end no VM is missing."""

    report: Report
    number: int
    part: Slice


class GoOnReport(Command[ReportTaken], frozen=True, kw_only=True):
    """Take the next slice of a report. Refused if the host has reported again since."""

    host: str
    number: int
    part: Slice


class EndReport(Command[ReportTaken], frozen=True, kw_only=True):
    """All VMs of a report were looked at: look for those that are not in it."""

    host: str
    number: int


# What time makes possible. Each is looked at again when it is decided.


class StartEvents(Command[bool], frozen=True, kw_only=True):
    """Start those of the events of a scope that nothing holds, one after the other, in one commit.

    One that is refused keeps no other from starting. The answer says whether any has begun.
    """

    scope: str
    event_ids: tuple[str, ...]


class StartOperation(Command[bool], frozen=True, kw_only=True):
    """Start an operation, with all its events and in one transaction, if nothing holds it."""

    operation_id: str


class WithdrawEvent(Command[None], frozen=True, kw_only=True):
    """End an event of its own that did not start before the window of its order closed."""

    scope: str
    event_id: str


class WithdrawOperation(Command[None], frozen=True, kw_only=True):
    """End what of an operation has not started before the window of its order closed."""

    operation_id: str


class TellNewcomers(Command[None], frozen=True, kw_only=True):
    """Give VMs that arrived at an operation's host their own event and full notice."""

    operation_id: str


class SettleOperation(Command[None], frozen=True, kw_only=True):
    """End an operation all of whose events have ended."""

    operation_id: str


class ExpireEvent(Command[None], frozen=True, kw_only=True):
    """Give up an event that has not ended by its deadline."""

    scope: str
    event_id: str


class ExpireOperation(Command[None], frozen=True, kw_only=True):
    """Give up an operation that has not ended by its deadline."""

    operation_id: str


class AssignPlace(Command[None], frozen=True, kw_only=True):
    """Find a host for the VM of a failed one that waits for a place."""

    scope: str
    event_id: str


class EndRecoveries(Command[None], frozen=True, kw_only=True):
    """End the wait for VMs of a scope that did not poll again in time."""

    scope: str


class DisableScope(Command[None], frozen=True, kw_only=True):
    """Disable a scope that no VM has polled for a day."""

    scope: str


class NoteHeartbeat(Command[None], frozen=True, kw_only=True):
    """Write down that the service is up; a gap between two of these is a downtime."""


class ClockStepped(Command[None], frozen=True, kw_only=True):
    """Take a step of the wall clock out of every notice, deadline and recovery."""

    stepped_ms: int


class Stalled(Command[None], frozen=True, kw_only=True):
    """Take time in which the process stood still out of every notice: no guest could read."""

    stalled_ms: int


class Prune(Command[Prunable], frozen=True, kw_only=True):
    """Take away a slice of what ended before so many days, and write that down.

    Answers what went; nothing if there is nothing left, or with 0 days.
    """

    retention_days: int


class WasDown(Command[None], frozen=True, kw_only=True):
    """Take the time since the last heartbeat, in which no guest could read, out of every notice.

    Which hosts had fallen silent just before that died with the process, so every notice also
    loses as long as such a silence may have gone unnoticed. None if nothing was ever kept.
    """

    since_ms: int | None


# An order of an operator, each on its own.
Order = (
    RestartVm
    | RedeployVm
    | DeleteVm
    | EvictVm
    | StartVm
    | MaintainHost
    | DegradeHost
    | FailHost
    | RepairHost
    | CloseHost
    | OpenHost
    | ApproveEvent
    | CancelEvent
    | PostponeEvent
    | CancelOperation
    | ReleaseScope
    | MakeToken
    | RotateToken
    | RevokeToken
    | OrderWebhook
)

# What applies a file, or decides to.
InventoryOrder = ApplyInventory | NothingToApply | ApplyInventoryAtOnce | DecideInventory

# The orders of VMs, by the event that each leads to.
VM_ORDERS: Mapping[EventType, type[RestartVm | RedeployVm | DeleteVm | EvictVm]] = {
    EventType.REBOOT: RestartVm,
    EventType.REDEPLOY: RedeployVm,
    EventType.TERMINATE: DeleteVm,
    EventType.PREEMPT: EvictVm,
}
EVENT_TYPE_OF = {order: event_type for event_type, order in VM_ORDERS.items()}
