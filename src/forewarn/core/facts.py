"""The lines of the journal: what each kind says, and a constructor for each thing they are about.

`DETAILS` has one value for every kind. Stored lines are read by `detail_from`: what an earlier
version wrote otherwise keeps every word, as an `EarlierDetail`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from forewarn.core.access import Role
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import (
    Action,
    ActionKind,
    Cause,
    Detail,
    EventSource,
    EventType,
    Fact,
    FactKind,
    Health,
    Operation,
    Outcome,
    ScheduledEvent,
    Vm,
    WebhookFormat,
    Window,
)
from forewarn.core.principal import PrincipalKind, Who, kept_of

NOTHING_MORE = "{}"  # of a line that has no detail

# Events and operations.


class AboutEvent(Detail, frozen=True, kw_only=True):
    """What lines say of their event or operation, so that a reader need not have read others."""

    event_type: EventType | None = None
    resources: tuple[str, ...] = ()


class OrderedDetail(Detail, frozen=True, kw_only=True):
    """Maintenance of a host was ordered.

    `broke_domains` are the scopes of which it hits two update domains at once, by force. The window
    is that of the order, if it has one.
    """

    event_type: EventType
    cause: Cause
    broke_domains: tuple[str, ...]
    reason: str = ""
    lose_disk: bool = False
    window_start_ms: int | None = None
    window_end_ms: int | None = None


class ScheduledDetail(Detail, frozen=True, kw_only=True):
    """An event was scheduled; a `silent` one is not shown to guests.

    `postponed_from` is the event that was withdrawn for it.
    """

    event_type: EventType
    event_source: EventSource
    cause: Cause
    resources: tuple[str, ...]
    update_domain: int
    not_before_ms: int
    silent: bool
    lose_disk: bool = False
    window_start_ms: int | None = None
    window_end_ms: int | None = None
    postponed_from: str | None = None


class AppearedDetail(Detail, frozen=True, kw_only=True):
    """A silent event is shown from now on, with its full notice."""

    not_before_ms: int


class ConfirmedDetail(Detail, frozen=True, kw_only=True):
    """The host of the event serves the document that has it."""

    incarnation: int


class ApprovedDetail(AboutEvent, frozen=True, kw_only=True):
    """The event may start. `by_kind` is left out where a VM has approved.

    An operator overrides the VMs, for a `reason`.
    """

    by_kind: PrincipalKind | None = None
    overridden_by: str | None = None
    reason: str = ""


class ActionBegun(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a host has to do, as it was when its event started."""

    kind: ActionKind
    host: str | None
    vm: str | None
    target_host: str | None


class StartedDetail(AboutEvent, frozen=True, kw_only=True):
    """An event or an operation has started.

    Of an event: whether it was approved, and for how long it could be read. `actions` is what hosts
    have to do for it. `declared`: a host has failed, and its VMs are down already.
    """

    approved: bool | None = None
    readable_ms: int | None = None
    actions: tuple[ActionBegun, ...] | None = None
    declared: bool = False


class ExemptedDetail(Detail, frozen=True, kw_only=True):
    """An event has started while another update domain of its scope was started."""

    because: str
    other_events: tuple[str, ...]


class AssignedDetail(Detail, frozen=True, kw_only=True):
    """A VM of a failed host is to start on the host of this line.

    `broke_domains` are update domains that it is put beside, by an operator and for a `reason`.
    """

    from_host: str = msgspec.field(name="from")
    kind: ActionKind | None = None
    broke_domains: tuple[int, ...] | None = None
    reason: str | None = None


class ClaimedDetail(Detail, frozen=True, kw_only=True):
    """A host has taken an action."""

    action_id: str
    epoch: int


class ReportedDetail(Detail, frozen=True, kw_only=True):
    """A host has said how an action ended; `detail` is in its own words."""

    action_id: str
    epoch: int
    outcome: Outcome | None
    detail: str


class CompletedDetail(AboutEvent, frozen=True, kw_only=True):
    """An event or an operation is done. `outcome` is that of a Redeploy of a host."""

    outcome: str = ""


class FailedDetail(AboutEvent, frozen=True, kw_only=True):
    """An event or an operation has failed. `outcome` is that of a Redeploy of a host."""

    reason: str = ""
    outcome: str = ""


class CanceledDetail(AboutEvent, frozen=True, kw_only=True):
    """An event or an operation will not start. `still_running` moves go on to their end."""

    reason: str
    still_running: int | None = None


class PostponedDetail(Detail, frozen=True, kw_only=True):
    """An event was withdrawn for a later one (`postponed_to`), or an operation with all of its own.

    `postponements` and `postponed_ms` are how often and by how much it was postponed so far.
    """

    postponed_to: str | None = None
    not_before_ms: int
    postponements: int
    postponed_ms: int
    reason: str = ""


class AvoidedDetail(Detail, frozen=True, kw_only=True):
    """An event does not hit this VM any more; `event_canceled`: it hits none, and has ended."""

    because: str
    event_canceled: bool


# VMs and scopes.


class MovedDetail(Detail, frozen=True, kw_only=True):
    """A VM is on the host of this line now.

    `power` where its host has shown it there; `sure` is false while it may be on either host.
    """

    from_host: str = msgspec.field(name="from")
    power: Power | None = None
    sure: bool | None = None


class DeletedDetail(Detail, frozen=True, kw_only=True):
    """A VM was deleted by its event."""


class RecoveringDetail(Detail, frozen=True, kw_only=True):
    """Other update domains of the scope wait until these VMs have polled again."""

    update_domain: int
    waiting_for: tuple[str, ...]


class RecoveredDetail(Detail, frozen=True, kw_only=True):
    """The scope does not wait for that update domain any more."""

    update_domain: int
    because: str


class HeldDetail(Detail, frozen=True, kw_only=True):
    """Platform events of the scope wait for this command, because the event has failed."""

    release: str


class ReleasedDetail(Detail, frozen=True, kw_only=True):
    """An operator lets platform events of the scope go on."""

    held_since_ms: int


class EnabledDetail(Detail, frozen=True, kw_only=True):
    """A VM has polled: the scope is told of events from now on."""


class DisabledDetail(Detail, frozen=True, kw_only=True):
    """No VM of the scope has polled for 24 hours: new events are silent."""

    last_poll_ms: int


class AdoptionOrderedDetail(Detail, frozen=True, kw_only=True):
    """An operator has the host write this into the metadata of the VM's domain."""

    traits: Mapping[str, Any]


class VmSeenDetail(Detail, frozen=True, kw_only=True):
    """A host has shown a VM that the fleet did not have."""

    vm_id: str
    power: Power


class VmChangedDetail(Detail, frozen=True, kw_only=True):
    """The owner says something else of the VM; `from_scope` if it has left another scope."""

    changed: tuple[str, ...]
    from_scope: str = ""


class VmPowerDetail(Detail, frozen=True, kw_only=True):
    """A VM was switched on or off: as its host has shown it, or as it counts for the rules.

    `rebooted`: others than Forewarn have rebooted it.
    """

    before: Power | None = None
    after: Power | None = None
    counts_as: str | None = None
    rebooted: bool = False


class VmOnTwoHostsDetail(Detail, frozen=True, kw_only=True):
    """Two hosts show the VM running."""

    hosts: tuple[str, ...]


class VmGoneDetail(Detail, frozen=True, kw_only=True):
    """The VM has left the fleet."""

    because: str
    vm_id: str


# Hosts.


class HostClosedDetail(Detail, frozen=True, kw_only=True):
    """No VM is placed on the host any more."""


class HostOpenedDetail(Detail, frozen=True, kw_only=True):
    """VMs are placed on the host again."""


class HostDegradedDetail(Detail, frozen=True, kw_only=True):
    """The host is expected to fail."""


class HostFailedDetail(Detail, frozen=True, kw_only=True):
    """The host has failed. `fenced`: it is surely off; `forced`: it was heard all the same."""

    fenced: bool
    forced: bool = False
    reason: str = ""


class HostFencedDetail(Detail, frozen=True, kw_only=True):
    """A failed host is surely off; `forced`: it was heard all the same, for a `reason`."""

    forced: bool = False
    reason: str = ""


class HostRepairedDetail(Detail, frozen=True, kw_only=True):
    """The host is well again; `forced`: it was not heard."""

    was: Health
    forced: bool = False
    reason: str = ""


class HostJoinedDetail(Detail, frozen=True, kw_only=True):
    """The daemon of the host has joined; `again` if it had before."""

    again: bool


class HostLeftDetail(Detail, frozen=True, kw_only=True):
    """The host was revoked; it `stays` in the fleet while something there needs it."""

    stays: bool


# The service.


class InventoryAppliedDetail(Detail, frozen=True, kw_only=True):
    """The fleet is what a file says; `applied` if it is so in part only."""

    hosts_added: tuple[str, ...] = ()
    hosts_changed: tuple[str, ...] = ()
    hosts_removed: tuple[str, ...] = ()
    scopes_added: tuple[str, ...] = ()
    scopes_changed: tuple[str, ...] = ()
    scopes_removed: tuple[str, ...] = ()
    vms_added: tuple[str, ...] = ()
    vms_changed: tuple[str, ...] = ()
    vms_removed: tuple[str, ...] = ()
    vms_still_deleted: tuple[str, ...] = ()
    applied: str = ""


class DowntimeDetail(Detail, frozen=True, kw_only=True):
    """The service, or the host of this line, was away; that time does not count as notice."""

    lost_ms: int


class ClockSteppedDetail(Detail, frozen=True, kw_only=True):
    """The wall clock of control has jumped."""

    stepped_ms: int


class RestoredDetail(Detail, frozen=True, kw_only=True):
    """A backup was restored, and `added` to every incarnation.

    `unread` says why the incarnations of what was replaced could not be read. `generation` is that
    of the lines from here on.
    """

    source: str
    scopes: int
    added: int
    unread: str = ""
    generation: int | None = None


class BackedUpDetail(Detail, frozen=True, kw_only=True):
    """A backup was given."""

    bytes: int


class PrunedDetail(Detail, frozen=True, kw_only=True):
    """What had ended before `before_ms` was taken away; `last_line` is its highest number."""

    before_ms: int
    lines: int
    events: int
    operations: int
    receipts: int
    last_line: int | None = None


class AboutWebhook(Detail, frozen=True, kw_only=True):
    """Which webhook it is about. `to` is its place without the path, which may be a secret."""

    webhook: str
    name: str
    to: str


class WebhookMadeDetail(AboutWebhook, frozen=True, kw_only=True):
    """A webhook was made. Empty `scopes` and `kinds` let every line through."""

    format: WebhookFormat
    scopes: tuple[str, ...] = ()
    kinds: tuple[FactKind, ...] = ()


class WebhookChangedDetail(WebhookMadeDetail, frozen=True, kw_only=True):
    """A webhook was changed, and is this now."""

    changed: tuple[str, ...]


class WebhookRotatedDetail(AboutWebhook, frozen=True, kw_only=True):
    """A webhook has a new secret; the one before signs beside it until then, if at all."""

    old_until_ms: int | None = None


class WebhookReplayedDetail(AboutWebhook, frozen=True, kw_only=True):
    """An admin has a webhook go on after another line: the lines after it are sent (again)."""

    before: int
    after: int


class WebhookSkippedDetail(AboutWebhook, frozen=True, kw_only=True):
    """Lines were pruned before a webhook has sent them; it goes on after the last of those."""

    before: int
    after: int


class WebhookEnabledDetail(AboutWebhook, frozen=True, kw_only=True):
    """A webhook sends again, from where it has stopped."""


class WebhookDisabledDetail(AboutWebhook, frozen=True, kw_only=True):
    """A webhook sends nothing any more until an admin enables it."""

    because: str


class WebhookRemovedDetail(AboutWebhook, frozen=True, kw_only=True):
    """A webhook was removed."""


class AboutToken(Detail, frozen=True, kw_only=True):
    """Which token it is about, and what it lets in; never its secret."""

    token: str
    name: str
    role: Role
    scopes: tuple[str, ...]
    expires_ms: int


class TokenMadeDetail(AboutToken, frozen=True, kw_only=True):
    """A token was made."""


class TokenRotatedDetail(AboutToken, frozen=True, kw_only=True):
    """A token has a new secret, and the one before counts no more."""


class TokenRevokedDetail(AboutToken, frozen=True, kw_only=True):
    """A token lets no caller in any more."""


class AccessRefusedDetail(Detail, frozen=True, kw_only=True):
    """Attempts were refused: why, and how many since the line before that says so.

    `address` is where they came from, `what` the route that was asked for, `token` the public id of
    the token that was shown.
    """

    reason: str
    count: int
    address: str = ""
    what: str = ""
    token: str = ""


DETAILS: Mapping[FactKind, type[Detail]] = {
    FactKind.ORDERED: OrderedDetail,
    FactKind.SCHEDULED: ScheduledDetail,
    FactKind.APPEARED: AppearedDetail,
    FactKind.CONFIRMED: ConfirmedDetail,
    FactKind.APPROVED: ApprovedDetail,
    FactKind.STARTED: StartedDetail,
    FactKind.EXEMPTED: ExemptedDetail,
    FactKind.ASSIGNED: AssignedDetail,
    FactKind.CLAIMED: ClaimedDetail,
    FactKind.REPORTED: ReportedDetail,
    FactKind.COMPLETED: CompletedDetail,
    FactKind.FAILED: FailedDetail,
    FactKind.CANCELED: CanceledDetail,
    FactKind.POSTPONED: PostponedDetail,
    FactKind.AVOIDED: AvoidedDetail,
    FactKind.MOVED: MovedDetail,
    FactKind.DELETED: DeletedDetail,
    FactKind.RECOVERING: RecoveringDetail,
    FactKind.RECOVERED: RecoveredDetail,
    FactKind.HELD: HeldDetail,
    FactKind.RELEASED: ReleasedDetail,
    FactKind.ENABLED: EnabledDetail,
    FactKind.DISABLED: DisabledDetail,
    FactKind.HOST_CLOSED: HostClosedDetail,
    FactKind.HOST_OPENED: HostOpenedDetail,
    FactKind.HOST_DEGRADED: HostDegradedDetail,
    FactKind.HOST_FAILED: HostFailedDetail,
    FactKind.HOST_FENCED: HostFencedDetail,
    FactKind.HOST_REPAIRED: HostRepairedDetail,
    FactKind.HOST_JOINED: HostJoinedDetail,
    FactKind.HOST_LEFT: HostLeftDetail,
    FactKind.ADOPTION_ORDERED: AdoptionOrderedDetail,
    FactKind.VM_SEEN: VmSeenDetail,
    FactKind.VM_CHANGED: VmChangedDetail,
    FactKind.VM_POWER: VmPowerDetail,
    FactKind.VM_ON_TWO_HOSTS: VmOnTwoHostsDetail,
    FactKind.VM_GONE: VmGoneDetail,
    FactKind.INVENTORY_APPLIED: InventoryAppliedDetail,
    FactKind.DOWNTIME: DowntimeDetail,
    FactKind.CLOCK_STEPPED: ClockSteppedDetail,
    FactKind.RESTORED: RestoredDetail,
    FactKind.BACKED_UP: BackedUpDetail,
    FactKind.PRUNED: PrunedDetail,
    FactKind.WEBHOOK_MADE: WebhookMadeDetail,
    FactKind.WEBHOOK_CHANGED: WebhookChangedDetail,
    FactKind.WEBHOOK_ROTATED: WebhookRotatedDetail,
    FactKind.WEBHOOK_REPLAYED: WebhookReplayedDetail,
    FactKind.WEBHOOK_SKIPPED: WebhookSkippedDetail,
    FactKind.WEBHOOK_ENABLED: WebhookEnabledDetail,
    FactKind.WEBHOOK_DISABLED: WebhookDisabledDetail,
    FactKind.WEBHOOK_REMOVED: WebhookRemovedDetail,
    FactKind.TOKEN_MADE: TokenMadeDetail,
    FactKind.TOKEN_ROTATED: TokenRotatedDetail,
    FactKind.TOKEN_REVOKED: TokenRevokedDetail,
    FactKind.ACCESS_REFUSED: AccessRefusedDetail,
}


class EarlierDetail(Detail, frozen=True, kw_only=True):
    """What an earlier version wrote, where that is not what this one writes. Every word is kept."""

    said: Mapping[str, Any]


# As the store and the answers have them.


def detail_words(detail: Detail | None) -> dict[str, Any]:
    """A detail as the plain values that its JSON has."""
    if detail is None:
        return {}
    if isinstance(detail, EarlierDetail):
        return dict(detail.said)
    words: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(detail))
    return words


def detail_text(detail: Detail | None) -> str:
    """A detail as the JSON that the store keeps."""
    if detail is None:
        return NOTHING_MORE
    said = detail.said if isinstance(detail, EarlierDetail) else detail
    return msgspec.json.encode(said).decode()


def detail_from(kind: FactKind, text: str) -> Detail | None:
    """The detail of a line of that kind, from the JSON that the store keeps."""
    if text == NOTHING_MORE:
        return None
    try:
        return _decoder(kind).decode(text)
    except msgspec.ValidationError:
        return EarlierDetail(said=msgspec.json.decode(text, type=dict[str, Any]))


@cache
def _decoder(kind: FactKind) -> msgspec.json.Decoder[Detail]:
    return msgspec.json.Decoder(DETAILS[kind])


def is_typed(fact: Fact) -> bool:
    """Whether the fact says what its kind says."""
    detail = fact.detail
    return detail is None or type(detail) is DETAILS[fact.kind]


# By what they are about, so that each line names all it can name.


def event_fact(
    kind: FactKind,
    event: ScheduledEvent,
    at_ms: int,
    *,
    by: Who | None = None,
    vm: str | None = None,
    host: str | None = None,
    detail: Detail | None = None,
) -> Fact:
    """Something happened to an event; `host` if it is about another host than the event's."""
    name, by_kind, by_id = kept_of(by)
    return Fact(
        kind=kind,
        at_ms=at_ms,
        scope=event.scope,
        event_id=event.event_id,
        operation_id=event.operation_id,
        host=host or event.host,
        vm=vm,
        by=name,
        by_kind=by_kind,
        by_id=by_id,
        detail=_telling(kind, detail, event.event_type, event.resources),
    )


def _telling(
    kind: FactKind, detail: Detail | None, event_type: EventType, resources: tuple[str, ...] = ()
) -> Detail | None:
    """The detail with what it says of its event or operation, where its kind says that."""
    if not issubclass(DETAILS[kind], AboutEvent):
        return detail
    known = DETAILS[kind]() if detail is None else detail
    if not isinstance(known, AboutEvent):
        raise TypeError(f"a {kind.value} fact may not say {detail}")
    return replace(known, event_type=event_type, resources=resources)


def approved_fact(
    event: ScheduledEvent,
    at_ms: int,
    *,
    by: Who,
    by_kind: PrincipalKind,
    reason: str = "",
) -> Fact:
    """An event was approved. Who is no VM is told from one by kind: names can be the same.

    An operator overrides the VMs, for a `reason`. An owner's approval is consent, like a VM's.
    """
    kind = None if by_kind is PrincipalKind.VM else by_kind
    consents = not reason or by_kind is PrincipalKind.OWNER
    overridden_by = None if consents else str(by)
    detail = ApprovedDetail(by_kind=kind, overridden_by=overridden_by, reason=reason)
    return event_fact(FactKind.APPROVED, event, at_ms, by=by, detail=detail)


def approved_by_kind(fact: Fact) -> PrincipalKind:
    """Of what kind it was who approved."""
    return PrincipalKind(detail_words(fact.detail).get("by_kind", PrincipalKind.VM))


def operation_fact(
    kind: FactKind,
    operation: Operation,
    at_ms: int,
    *,
    by: Who | None = None,
    detail: Detail | None = None,
) -> Fact:
    """Something happened to an operation."""
    name, by_kind, by_id = kept_of(by)
    return Fact(
        kind=kind,
        at_ms=at_ms,
        operation_id=operation.operation_id,
        host=operation.host,
        by=name,
        by_kind=by_kind,
        by_id=by_id,
        detail=_telling(kind, detail, operation.event_type),
    )


def host_fact(
    kind: FactKind, host: str, at_ms: int, *, by: Who | None = None, detail: Detail | None = None
) -> Fact:
    """Something was said of a host."""
    return by_whom(Fact(kind=kind, at_ms=at_ms, host=host, detail=detail), by)


def by_whom(fact: Fact, who: Who | None) -> Fact:
    """The line with who did what it says."""
    name, by_kind, by_id = kept_of(who)
    return replace(fact, by=name, by_kind=by_kind, by_id=by_id)


def vm_fact(
    kind: FactKind, scope: str, vm: Vm, at_ms: int, *, detail: Detail | None = None
) -> Fact:
    """Something was seen of a VM, which is on the host it is on."""
    return Fact(kind=kind, at_ms=at_ms, scope=scope, host=vm.host, vm=vm.name, detail=detail)


def action_begun(action: Action) -> ActionBegun:
    """An action as the line of its start names it."""
    return ActionBegun(
        kind=action.kind, host=action.host, vm=action.vm, target_host=action.target_host
    )


def window_bounds(window: Window | None) -> dict[str, int]:
    """What a line says of the window of an order; nothing where it has none."""
    if window is None:
        return {}
    return {"window_start_ms": window.start_ms, "window_end_ms": window.end_ms}
