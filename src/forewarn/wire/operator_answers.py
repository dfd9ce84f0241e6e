"""What the operator API answers, as types: JSON and the OpenAPI document are made of them.

Keys are the words of the glossary; times are ISO 8601 in UTC with milliseconds, or null.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from forewarn.core.access import Right, Role
from forewarn.core.agent_polling import Reading
from forewarn.core.inventory.host_report import Power, WhenHostGoesDown
from forewarn.core.model import (
    ActionKind,
    ActionPhase,
    Cause,
    EndedAs,
    EventSource,
    EventType,
    FactKind,
    Health,
    OperationPhase,
    Outcome,
    Phase,
    ScopeKind,
    WebhookCondition,
    WebhookFormat,
)
from forewarn.core.notice import NoticeVerdict
from forewarn.core.principal import PrincipalKind
from forewarn.core.starting import HoldReason
from forewarn.core.vm_profile import Priority

Time = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
Seconds = int | float
# True in what an owner is answered: there may be more that is not his.
Filtered = bool


class AnswerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Has all of its keys and no others."""


# Events.


class ActionJson(AnswerBody, frozen=True, kw_only=True):
    """One thing that one host does, to one VM or to itself."""

    action_id: str
    kind: ActionKind
    host: str | None
    vm: str | None
    target_host: str | None
    duration_seconds: int
    phase: ActionPhase
    epoch: int
    outcome: Outcome | None
    detail: str


class WindowJson(AnswerBody, frozen=True, kw_only=True):
    """When an order may start at all: from `start` on and before `end`, approved or not."""

    start: Time
    end: Time


class EventJson(AnswerBody, frozen=True, kw_only=True):
    """An event with everything that is known of it.

    `not_before` is the earliest start without approval that guests were told. `earliest_start` is
    that as it is known now: later, if the event could not be read for its minimum notice by then;
    null while no host has confirmed that it shows it, and once it has started. Of an approved
    event it is the start of its window, null without one.

    `postponed_from` is the event that was withdrawn for this one, `postponed_to` the one that was
    announced in its place. `postponements` and `postponed_seconds` are how often, and by how much
    in all, that was done until this event was announced.
    """

    event_id: str
    event_type: EventType
    event_source: EventSource
    phase: Phase
    not_before: Time
    earliest_start: Time | None
    window: WindowJson | None
    resources: tuple[str, ...]
    scope: str
    update_domain: int
    host: str
    cause: Cause
    silent: bool
    description: str
    duration_seconds: int
    minimum_notice_seconds: Seconds
    scheduled: Time
    ordered_not_before: Time | None
    ordered_by: str
    ordered_by_kind: PrincipalKind | None
    operation_id: str | None
    breaks_domains: bool
    lose_disk: bool
    shown: Time | None
    unreadable_seconds: Seconds
    approved: Time | None
    approved_by: str | None
    approved_by_kind: PrincipalKind | None
    overridden_by: str | None
    override_reason: str
    postponed_from: str | None
    postponed_to: str | None
    postponements: int
    postponed_seconds: Seconds
    started: Time | None
    deadline: Time | None
    ended: Time | None
    outcome: str
    actions: tuple[ActionJson, ...]


class EventAnswer(EventJson, frozen=True, kw_only=True):
    """The answer to an order for a VM. `silent_scopes` do not hear of it: no VM there polls."""

    silent_scopes: tuple[str, ...]


class EventCanceledJson(EventAnswer, frozen=True, kw_only=True):
    """An event as it ended, and the ids of every event that was canceled with it."""

    canceled: tuple[str, ...]


class EventPostponedJson(EventAnswer, frozen=True, kw_only=True):
    """The event that was announced in place of the one that was named, and the ids of all that
    were withdrawn and announced with them, each at the same place: those of a whole operation.
    """

    withdrawn: tuple[str, ...]
    announced: tuple[str, ...]


class FirstReadJson(AnswerBody, frozen=True, kw_only=True):
    """When a VM first read an event, and how long before it started."""

    vm: str
    read: Time | None
    notice_seconds: float | None


class ChainedEventJson(AnswerBody, frozen=True, kw_only=True):
    """One event of those that postponing has made one after the other."""

    event_id: str
    scheduled: Time
    not_before: Time
    ended: Time | None
    outcome: str


class Receipt(AnswerBody, frozen=True, kw_only=True):
    """What was promised, for how long it could be read, and who read it when.

    `notice_readable_seconds` is for how long the event could be read before it started;
    `notice_read_seconds` how long before it the last of its VMs read it first, null unless all did.
    `unread_by` are those of its VMs that have not read it. `approved_by` is a VM, an owner of the
    scope (`approved_by_kind`), or who overrode them; `overridden_by` is the operator who approved
    it in place of a VM. `chain` is what postponing has made of it: every event from the first to
    the last, this one among them, as far as they are kept; empty if it was not postponed.
    """

    scheduled: Time
    appeared: Time | None
    shown: Time | None
    first_reads: tuple[FirstReadJson, ...]
    unread_by: tuple[str, ...]
    approved: Time | None
    approved_by: str | None
    approved_by_kind: PrincipalKind | None
    overridden_by: str | None
    override_reason: str
    started: Time | None
    ended: Time | None
    notice_promised_seconds: Seconds
    notice_readable_seconds: Seconds
    notice_read_seconds: Seconds | None
    kept: NoticeVerdict
    why: str
    chain: tuple[ChainedEventJson, ...]


class EventDetail(EventJson, frozen=True, kw_only=True):
    """An event, open or ended, with its receipt."""

    receipt: Receipt


class HoldJson(AnswerBody, frozen=True, kw_only=True):
    """Who or what holds it, since when, until when at the latest, what would free it."""

    reason: HoldReason
    what: str
    since: Time | None
    until: Time | None
    remedy: str


class ExplanationJson(AnswerBody, frozen=True, kw_only=True):
    """What something waits for."""

    outcome: str
    phase: str
    holds: tuple[HoldJson, ...]
    until: Time | None
    filtered: Filtered = False


class PostponingJson(AnswerBody, frozen=True, kw_only=True):
    """How often and by how much in all an event was postponed, and whether its owner may again.

    `why_not` is empty if he may: `times_left` more times, to a `not_before` of `latest` at most.
    """

    postponements: int
    postponed_seconds: Seconds
    times_left: int
    latest: Time | None
    why_not: str


class EventExplanationJson(ExplanationJson, frozen=True, kw_only=True):
    """What an event waits for; `postponed_to` is what was announced in place of one that ended.

    `postponing` is null once it has started or ended.
    """

    event_id: str
    postponed_from: str | None
    postponed_to: str | None
    postponing: PostponingJson | None


class EventPage(AnswerBody, frozen=True, kw_only=True):
    """Events, newest first. `next` is what to give as `after` for those that follow."""

    items: tuple[EventJson, ...]
    more: bool
    next: str | None
    filtered: Filtered = False


# Operations.


class OperationMember(AnswerBody, frozen=True, kw_only=True):
    """An event that an operation waits for."""

    scope: str
    event_id: str


class OperationJson(AnswerBody, frozen=True, kw_only=True):
    """One thing that is done to a host. `ended_as` is its outcome in one word, null until then.

    `postponements` and `postponed_seconds` are how often, and by how much in all, a Freeze or
    Reboot was postponed; of a Redeploy each event has its own.
    """

    operation_id: str
    host: str
    event_type: EventType
    cause: Cause
    phase: OperationPhase
    ordered: Time
    ordered_by: str
    ordered_by_kind: PrincipalKind | None
    ordered_not_before: Time | None
    window: WindowJson | None
    duration_seconds: int | None
    description: str | None
    broke_domains_by: str | None
    postponements: int
    postponed_seconds: Seconds
    lose_disk: bool
    members: tuple[OperationMember, ...]
    action: ActionJson | None
    started: Time | None
    deadline: Time | None
    ended: Time | None
    ended_as: EndedAs | None
    outcome: str
    revision: int


class OperationDetail(OperationJson, frozen=True, kw_only=True):
    """An operation with its events, and the scopes that do not hear of it."""

    events: tuple[EventJson, ...]
    silent_scopes: tuple[str, ...]
    filtered: Filtered = False


class OperationExplanationJson(ExplanationJson, frozen=True, kw_only=True):
    """What an operation waits for."""

    operation_id: str


class OperationPage(AnswerBody, frozen=True, kw_only=True):
    """Operations, newest first. `next` is what to give as `after` for those that follow."""

    items: tuple[OperationJson, ...]
    more: bool
    next: str | None
    filtered: Filtered = False


# VMs, hosts and scopes.


class VmJson(AnswerBody, frozen=True, kw_only=True):
    """A VM as the fleet knows it."""

    name: str
    vm_id: str
    scope: str
    update_domain: int
    host: str
    priority: Priority
    address: str | None
    listen: str | None
    tags: dict[str, str]
    fault_domain: int
    zone: str
    os_type: str
    computer_name: str
    may_run_on: str | None
    off: bool
    went_down: bool
    has_polled: bool


class VmItem(VmJson, frozen=True, kw_only=True):
    """A VM with what its host reported of it, and whether its scope is told of events.

    `power` is null where it is not known, also while the host is not heard (`host_alive`). `polled`
    is the last poll of the VM, null if none was heard since control started; `reading` says what
    that means.
    """

    host_alive: bool
    power: Power | None
    problem: str
    freeze_by_move: bool | None
    when_host_goes_down: WhenHostGoesDown | None
    enabled: bool
    polled: Time | None
    reading: Reading
    open_events: int


class VmDetail(VmItem, frozen=True, kw_only=True):
    """A VM with its open events."""

    events: tuple[EventJson, ...]


class VmPage(AnswerBody, frozen=True, kw_only=True):
    """VMs by name."""

    items: tuple[VmItem, ...]
    more: bool
    filtered: Filtered = False


class AdoptedVm(VmDetail, frozen=True, kw_only=True):
    """A VM as it was adopted; `notes` are what its owner or an operator should know of that."""

    notes: tuple[str, ...]


class HostJson(AnswerBody, frozen=True, kw_only=True):
    """A host, whether it is heard, and why no VM is placed there."""

    name: str
    capacity: int | None
    closed: bool
    health: Health
    fenced: bool
    listed: bool
    joined: bool
    boot_id: str | None
    revision: int
    alive: bool
    silent_seconds: int
    hypervisor_unreachable: str
    refuses: str
    two_daemons: str
    placement: str
    vm_count: int
    open_operations: int


class VmProblem(AnswerBody, frozen=True, kw_only=True):
    """What of a VM that a host shows cannot be used."""

    vm: str
    power: Power
    problem: str


class HostDetail(HostJson, frozen=True, kw_only=True):
    """A host with its VMs and open operations, and what of its VMs cannot be used."""

    vms: tuple[VmItem, ...]
    operations: tuple[OperationJson, ...]
    problems: tuple[VmProblem, ...]


class HostFailedJson(HostJson, frozen=True, kw_only=True):
    """A host that has failed, and the events of the VMs that were on it."""

    events: tuple[EventJson, ...]
    silent_scopes: tuple[str, ...]


class HostPage(AnswerBody, frozen=True, kw_only=True):
    """Hosts by name."""

    items: tuple[HostJson, ...]
    more: bool
    filtered: Filtered = False


class HostBrief(AnswerBody, frozen=True, kw_only=True):
    """What an owner sees of a host that a VM of his is on: its name, and how it is."""

    name: str
    health: Health
    alive: bool


class HostBriefPage(AnswerBody, frozen=True, kw_only=True):
    """The hosts that VMs of an owner are on, by name."""

    items: tuple[HostBrief, ...]
    more: bool
    filtered: Filtered = True


class HostBriefDetail(HostBrief, frozen=True, kw_only=True):
    """Such a host, with those of its VMs that are the owner's."""

    vms: tuple[VmItem, ...]
    filtered: Filtered = True


class ScopeHoldJson(AnswerBody, frozen=True, kw_only=True):
    """Why platform events of a scope wait to be released."""

    since: Time
    event_id: str
    reason: str


class RecoveryJson(AnswerBody, frozen=True, kw_only=True):
    """An update domain that was just hit, and the VMs that it waits for."""

    update_domain: int
    since: Time
    until: Time
    waiting_for: tuple[str, ...]


class ScopeJson(AnswerBody, frozen=True, kw_only=True):
    """A scope, with numbers in place of its VMs and events."""

    name: str
    kind: ScopeKind
    incarnation: int
    revision: int
    enabled: bool
    polled: Time | None
    terminate_notice_seconds: Seconds
    auto_approve: tuple[str, ...]
    hold: ScopeHoldJson | None
    vm_count: int
    open_events: int


class ScopeDetail(ScopeJson, frozen=True, kw_only=True):
    """A scope with its VMs and its open events, silent ones included."""

    recoveries: tuple[RecoveryJson, ...]
    vms: tuple[VmJson, ...]
    events: tuple[EventJson, ...]
    deleted: tuple[str, ...]


class ScopePage(AnswerBody, frozen=True, kw_only=True):
    """Scopes by name."""

    items: tuple[ScopeJson, ...]
    more: bool
    filtered: Filtered = False


# Who may come in.


class AccessJson(AnswerBody, frozen=True, kw_only=True):
    """Who asks, and what they may do; an owner in `scopes` alone."""

    name: str
    kind: PrincipalKind
    id: str
    role: Role
    rights: tuple[Right, ...]
    scopes: tuple[str, ...]


class TokenJson(AnswerBody, frozen=True, kw_only=True):
    """A token, without its secret. `used` is coarse: it is kept every five minutes at most."""

    token_id: str
    name: str
    role: Role
    scopes: tuple[str, ...]
    made: Time
    made_by: str
    expires: Time
    rotated: Time | None
    used: Time | None
    revoked: Time | None
    revoked_by: str | None
    valid: bool


class TokenShown(TokenJson, frozen=True, kw_only=True):
    """A token with its secret, which is shown this once. `note` says why it is not, if so."""

    token: str | None
    note: str


class TokenPage(AnswerBody, frozen=True, kw_only=True):
    """All tokens by name, those that have ended too."""

    items: tuple[TokenJson, ...]
    more: bool


# Where the feed is sent.


class WebhookAnswerJson(AnswerBody, frozen=True, kw_only=True):
    """What the receiver of a webhook has answered. `status` is 0 where there is no answer.

    `said` is how it begins, `address` where it was. `taken`: it has what it was sent.
    """

    at: Time
    taken: bool
    status: int
    problem: str
    took_ms: int
    address: str
    said: str


class WebhookJson(AnswerBody, frozen=True, kw_only=True):
    """A webhook, without its secrets. `after` is the last line that its receiver has.

    `behind` is how many lines of the journal follow that one, for it or not. `last` and `next_try`
    are there while the service knows them: not after a restart.
    """

    webhook_id: str
    name: str
    url: str
    format: WebhookFormat
    scopes: tuple[str, ...]
    kinds: tuple[FactKind, ...]
    batch: int
    condition: WebhookCondition
    after: str
    behind: int
    turn: int
    made: Time
    made_by: str
    old_secret_until: Time | None
    failing_since: Time | None
    failures: int
    failure: str
    disabled: Time | None
    disabled_by: str | None
    disabled_because: str
    next_try: Time | None = None
    last: WebhookAnswerJson | None = None


class WebhookShown(WebhookJson, frozen=True, kw_only=True):
    """A webhook with its secret, which is shown this once. `note` says why it is not, if so."""

    secret: str | None
    note: str


class WebhookPage(AnswerBody, frozen=True, kw_only=True):
    """All webhooks by name."""

    items: tuple[WebhookJson, ...]
    more: bool


# The rest.


class FactJson(AnswerBody, frozen=True, kw_only=True):
    """A line of the journal under its number. `by` is the name of who did what it says.

    `by_kind` and `by_id` say in which capacity, and which principal it was; they are null where no
    principal did it, and in lines of earlier versions.
    """

    number: int
    kind: FactKind
    at: Time
    scope: str | None
    event_id: str | None
    operation_id: str | None
    host: str | None
    vm: str | None
    by: str | None
    by_kind: PrincipalKind | None
    by_id: str | None
    detail: dict[str, Any]


class JournalPage(AnswerBody, frozen=True, kw_only=True):
    """Lines, oldest first. `end` is where to go on: after it, nothing was missed."""

    items: tuple[FactJson, ...]
    more: bool
    end: int
    filtered: Filtered = False


class ChangesJson(AnswerBody, frozen=True, kw_only=True):
    """Names that an inventory has added, changed and removed."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]


class InventoryApplied(AnswerBody, frozen=True, kw_only=True):
    """What an inventory has changed.

    `waiting` says in words what has to wait for something that began meanwhile, or broke.
    `replaced` is true if it is sent again and another was applied since; `note` says what that
    means.
    """

    differs: bool
    hosts: ChangesJson
    scopes: ChangesJson
    vms: ChangesJson
    still_deleted: tuple[str, ...]
    waiting: tuple[str, ...] | UnsetType = UNSET
    replaced: bool | UnsetType = UNSET
    note: str | UnsetType = UNSET


class HealthJson(AnswerBody, frozen=True, kw_only=True):
    """Whether orders can be kept. `inventory_waits` is as `waiting` of the last inventory."""

    status: str
    version: str
    now: Time
    vms: int
    hosts: int
    hosts_silent: tuple[str, ...]
    open_events: int
    open_operations: int
    inventory_waits: tuple[str, ...]
    filtered: Filtered = False


class ConsoleLinkJson(AnswerBody, frozen=True, kw_only=True):
    """A link that opens the console once. `url` is as far as the service knows its own address."""

    url: str
    path: str
    valid_seconds: int


class Problem(AnswerBody, frozen=True, kw_only=True):
    """A refusal: what was refused (`detail`), and what would be accepted (`remedy`).

    A 410 of the feed says where a reader can `begin`; from the line `oldest` on all are there.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    remedy: str
    begin: str | UnsetType = UNSET
    oldest: int | UnsetType = UNSET
