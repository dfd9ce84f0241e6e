"""The values every rule speaks about: scopes, VMs, hosts, events, operations, actions, facts.

Only frozen, slotted values and read-only properties live here; no rule does. Times are UTC
milliseconds (`*_ms`), lengths of time too unless the name says otherwise.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from forewarn.core.principal import PrincipalKind
from forewarn.core.vm_profile import NOTHING_SAID, VmProfile

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


class EventType(StrEnum):
    """What the event does to a VM (contract 1.6)."""

    FREEZE = "Freeze"
    REBOOT = "Reboot"
    REDEPLOY = "Redeploy"
    PREEMPT = "Preempt"
    TERMINATE = "Terminate"


class EventSource(StrEnum):
    """Who wanted it: the platform's operator, or the owner of the VM."""

    PLATFORM = "Platform"
    USER = "User"


class Phase(StrEnum):
    """Where an event is in its life. `lifecycle` holds every legal move."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def ended(self) -> bool:
        return self not in OPEN


# Named once: a look at a member of an enumeration costs more than the rest of the question.
OPEN = (Phase.SCHEDULED, Phase.STARTED)


class Cause(StrEnum):
    """Why an event exists; decides its exemptions and its words."""

    ORDER = "order"  # the owner of the VM asked
    EVICTION = "eviction"  # the platform wants a spot VM's place back
    MAINTENANCE = "maintenance"  # planned work on a host
    DEGRADED = "degraded"  # hardware that is expected to fail
    FAILURE = "failure"  # a host that has failed


class ScopeKind(StrEnum):
    """The groups that share a document (contract C1)."""

    STANDALONE = "standalone"
    CLOUD_SERVICE = "cloud-service"
    AVAILABILITY_SET = "availability-set"
    PLACEMENT_GROUP = "placement-group"


class Health(StrEnum):
    """What the operator has said of a host's hardware."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILED = "failed"


class ActionKind(StrEnum):
    """What a host does: to itself (`*_HOST`) or to one VM."""

    FREEZE_HOST = "freeze-host"
    REBOOT_HOST = "reboot-host"
    REBOOT_VM = "reboot-vm"
    MOVE_VM = "move-vm"
    START_VM = "start-vm"
    DEFINE_VM = "define-vm"  # have it there, and leave it off
    FIND_VM = "find-vm"  # only look whether it runs there; nothing is done to it
    DELETE_VM = "delete-vm"


class ActionPhase(StrEnum):
    PENDING = "pending"
    CLAIMED = "claimed"
    ENDED = "ended"


class Outcome(StrEnum):
    """How an action ended."""

    DONE = "done"
    FAILED = "failed"
    LOST = "lost"  # no report by the deadline of its event, or its host cannot know
    SPARED = "spared"  # nothing was done: its VM was to be off (`Action.only_off`), and runs


class OperationPhase(StrEnum):
    WAITING = "waiting"
    STARTED = "started"
    ENDED = "ended"


class EndedAs(StrEnum):
    """How an operation ended, in one word; its outcome says it in more."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    WITHDRAWN = "withdrawn"


class Vm(Struct, frozen=True, kw_only=True):
    """A virtual machine. Its name is unique in the fleet and is what `Resources` shows (C6).

    `may_run_on` is a second host that may run it: an action was bringing it there, and no host
    has said how that ended. Until that is known the VM starts nowhere else. `off` is that its
    owner switched it off: it is left so, and nothing waits for it. `went_down` is that a boot of
    its host may have taken it down, and no host has shown it running since. `has_polled` is that it
    was heard to poll, ever.
    """

    name: str
    vm_id: str
    update_domain: int
    host: str
    profile: VmProfile = NOTHING_SAID
    may_run_on: str | None = None
    off: bool = False
    went_down: bool = False
    has_polled: bool = False


class Action(Struct, frozen=True, kw_only=True):
    """One thing one host does. Written down before it is done; `epoch` fences late reports.

    `host` is who must act, or None while a VM of a failed host has nowhere to start yet.
    `boot_id` is what the host's boot id was when a host reboot was claimed. `target_failed` is that
    the target of a move was declared failed before its end was reported: what arrived may be down.
    `only_off` is that its VM was not asked because it is off: nothing is done to one that runs.
    `lose_disk` is that of its event.
    """

    action_id: str
    kind: ActionKind
    host: str | None
    vm: str | None = None
    target_host: str | None = None
    duration_s: int = 0
    phase: ActionPhase = ActionPhase.PENDING
    epoch: int = 0
    boot_id: str | None = None
    target_failed: bool = False
    only_off: bool = False
    lose_disk: bool = False
    outcome: Outcome | None = None
    detail: str = ""

    @property
    def ended(self) -> bool:
        return self.phase is ActionPhase.ENDED


class Window(Struct, frozen=True, kw_only=True):
    """When an order may start at all: from `start_ms` on and before `end_ms`, by the wall clock."""

    start_ms: int
    end_ms: int


class ScheduledEvent(Struct, frozen=True, kw_only=True):
    """One entry of a scope's document, with what the rules need to know beyond the wire.

    All VMs of an event are in one update domain and on one host. `not_before_ms` never changes
    once the event is visible. A silent event is never shown (`document.visible`).
    Of events of earlier versions the kinds and the id of who ordered and approved are not known.
    `override_reason` is why an operator approved it in place of its VMs; empty if none did.
    `shown_ms` is when the host confirmed that it shows the event, None while that is not known;
    `unreadable_ms` corrects the time since then for steps and outages (signed, see `notice`).
    `window` is that of its order: outside of it the event does not start, approved or not.
    `ordered_not_before_ms` is the time that its order named, or that it was postponed to.
    `postponed_from` is the event that was withdrawn for this one, `postponed_to` the one that was
    announced for it. `postponements` and `postponed_ms` say how often and by how much in all that
    was done before this event was announced.
    `lose_disk`: its VMs start on their new hosts with empty local disks (Redeploy only).
    """

    event_id: str
    scope: str
    event_type: EventType
    event_source: EventSource
    cause: Cause
    phase: Phase
    update_domain: int
    host: str
    resources: tuple[str, ...]
    not_before_ms: int
    minimum_notice_ms: int
    scheduled_ms: int
    description: str = ""
    duration_s: int = -1
    silent: bool = False
    ordered_not_before_ms: int | None = None
    window: Window | None = None
    ordered_by: str = ""
    ordered_by_kind: PrincipalKind | None = None
    ordered_by_id: str | None = None
    operation_id: str | None = None
    breaks_domains: bool = False
    lose_disk: bool = False
    appeared_incarnation: int = 0
    shown_ms: int | None = None
    unreadable_ms: int = 0
    approved_ms: int | None = None
    approved_by: str | None = None
    approved_by_kind: PrincipalKind | None = None
    override_reason: str = ""
    postponed_from: str | None = None
    postponed_to: str | None = None
    postponements: int = 0
    postponed_ms: int = 0
    started_ms: int | None = None
    deadline_ms: int | None = None
    ended_ms: int | None = None
    outcome: str = ""
    actions: tuple[Action, ...] = ()

    @property
    def visible(self) -> bool:
        return not self.silent and self.phase in OPEN


class Recovery(Struct, frozen=True, kw_only=True):
    """An update domain that was just rebooted or moved, until its VMs are back."""

    update_domain: int
    since_ms: int
    until_ms: int
    waiting_for: tuple[str, ...]


class ScopeHold(Struct, frozen=True, kw_only=True):
    """Platform events of the scope wait for `forewarn scope release` since an event failed."""

    since_ms: int
    event_id: str
    reason: str


class Scope(Struct, frozen=True, kw_only=True):
    """The first aggregate: a group of VMs, its open events and what its guests may know.

    `revision` counts writes and is the optimistic lock. `incarnation` counts visible changes and
    is what guests see. `events` holds the open events (scheduled or started), oldest first.
    `deleted` names VMs that an order deleted and that an inventory file may still list.
    """

    name: str
    kind: ScopeKind
    revision: int = 0
    incarnation: int = 1
    terminate_notice_ms: int = 5 * MINUTE_MS
    auto_approve: frozenset[EventType] = frozenset()
    enabled: bool = False
    polled_ms: int | None = None
    hold: ScopeHold | None = None
    recoveries: tuple[Recovery, ...] = ()
    vms: tuple[Vm, ...] = ()
    events: tuple[ScheduledEvent, ...] = ()
    deleted: tuple[str, ...] = ()

    def vm(self, name: str) -> Vm | None:
        return next((vm for vm in self.vms if vm.name == name), None)

    def event(self, event_id: str) -> ScheduledEvent | None:
        return next((event for event in self.events if event.event_id == event_id), None)


class Host(Struct, frozen=True, kw_only=True):
    """A machine that runs VMs, as the operator has described and judged it.

    `boot_id` is the boot in which it last asked for work or showed VMs, None until it did.
    """

    name: str
    revision: int = 0
    capacity: int | None = None
    closed: bool = False
    health: Health = Health.OK
    fenced: bool = False
    listed: bool = True  # False once the inventory no longer lists it but VMs are still there
    joined: bool = False  # it has a daemon of its own, which says what is there
    boot_id: str | None = None


class Operation(Struct, frozen=True, kw_only=True):
    """The second aggregate: one thing done to a host, with the events it waits for.

    Freeze and Reboot are done once, by `action`, when every event is due. Redeploy only groups
    its events: each starts by itself and the operation ends with the last of them.
    `members` are (scope, event id), in the order they were added; `named` are all VMs that the
    operation ever announced itself to. `window`, `duration_s`, `description` and `lose_disk` are
    what the order said of its events, None where it said nothing. `ordered_not_before_ms`,
    `postponements` and `postponed_ms` are as those of an event; of a Redeploy each event counts
    its own.
    """

    operation_id: str
    host: str
    event_type: EventType
    cause: Cause
    phase: OperationPhase
    ordered_ms: int
    revision: int = 0
    ordered_by: str = ""
    ordered_by_kind: PrincipalKind | None = None
    ordered_by_id: str | None = None
    ordered_not_before_ms: int | None = None
    window: Window | None = None
    duration_s: int | None = None
    description: str | None = None
    broke_domains_by: str | None = None
    postponements: int = 0
    postponed_ms: int = 0
    lose_disk: bool = False
    members: tuple[tuple[str, str], ...] = ()
    named: tuple[str, ...] = ()
    action: Action | None = None
    started_ms: int | None = None
    deadline_ms: int | None = None
    ended_ms: int | None = None
    outcome: str = ""

    @property
    def whole_host(self) -> bool:
        """True if it is done once to the host; a Redeploy only groups the moves of its VMs."""
        return self.event_type is not EventType.REDEPLOY


class Policy(Struct, frozen=True, kw_only=True):
    """The settings that rules depend on.

    `postponements_max` and `postpone_ms_max` are how often, and by how much in all, owners may
    postpone an event; with 0 of either they may not.
    """

    freeze_s: int = 5
    reboot_s: int = 5
    redeploy_s: int = 5
    delete_s: int = 5
    domain_recovery_ms: int = 600 * SECOND_MS
    user_events_max: int = 100
    postponements_max: int = 3
    postpone_ms_max: int = DAY_MS
    always_enabled: bool = False
    hosts_join: bool = False  # hosts have daemons of their own: only those count that have joined


class FactKind(StrEnum):
    """Every kind of line the journal may hold."""

    ORDERED = "ordered"
    SCHEDULED = "scheduled"
    APPEARED = "appeared"
    CONFIRMED = "confirmed"
    APPROVED = "approved"
    STARTED = "started"
    EXEMPTED = "exempted"
    ASSIGNED = "assigned"
    CLAIMED = "claimed"
    REPORTED = "reported"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    POSTPONED = "postponed"
    AVOIDED = "avoided"
    MOVED = "moved"
    DELETED = "deleted"
    RECOVERING = "recovering"
    RECOVERED = "recovered"
    HELD = "held"
    RELEASED = "released"
    ENABLED = "enabled"
    DISABLED = "disabled"
    HOST_CLOSED = "host-closed"
    HOST_OPENED = "host-opened"
    HOST_DEGRADED = "host-degraded"
    HOST_FAILED = "host-failed"
    HOST_FENCED = "host-fenced"
    HOST_REPAIRED = "host-repaired"
    HOST_JOINED = "host-joined"
    HOST_LEFT = "host-left"
    ADOPTION_ORDERED = "adoption-ordered"
    VM_SEEN = "vm-seen"
    VM_CHANGED = "vm-changed"
    VM_POWER = "vm-power"
    VM_ON_TWO_HOSTS = "vm-on-two-hosts"
    VM_GONE = "vm-gone"
    INVENTORY_APPLIED = "inventory-applied"
    DOWNTIME = "downtime"
    CLOCK_STEPPED = "clock-stepped"
    RESTORED = "restored"
    BACKED_UP = "backed-up"
    PRUNED = "pruned"
    WEBHOOK_MADE = "webhook-made"
    WEBHOOK_CHANGED = "webhook-changed"
    WEBHOOK_ROTATED = "webhook-rotated"
    WEBHOOK_REPLAYED = "webhook-replayed"
    WEBHOOK_SKIPPED = "webhook-skipped"
    WEBHOOK_ENABLED = "webhook-enabled"
    WEBHOOK_DISABLED = "webhook-disabled"
    WEBHOOK_REMOVED = "webhook-removed"
    TOKEN_MADE = "token-made"  # noqa: S105 - no secret
    TOKEN_ROTATED = "token-rotated"  # noqa: S105 - no secret
    TOKEN_REVOKED = "token-revoked"  # noqa: S105 - no secret
    ACCESS_REFUSED = "access-refused"


class Detail(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a fact says beyond what every fact says; `facts.DETAILS` has one for each kind."""


class Fact(Struct, frozen=True, kw_only=True):
    """One line of the append-only journal: what happened, to what, by whom.

    `by` is the name of who did it; `by_kind` and `by_id` say in which capacity, and which principal
    it was. Lines of earlier versions have the name alone. `detail` is that of the kind, or None
    where there is nothing more to say.
    """

    kind: FactKind
    at_ms: int
    scope: str | None = None
    event_id: str | None = None
    operation_id: str | None = None
    host: str | None = None
    vm: str | None = None
    by: str | None = None
    by_kind: PrincipalKind | None = None
    by_id: str | None = None
    detail: Detail | None = None


class Decision(Struct, frozen=True, kw_only=True):
    """What a rule decided: the next values and the facts that say why.

    Saved in one transaction or not at all. A scope in a decision may still hold events that this
    decision ended; `scope_edits.seal` counts revision and incarnation, the saver drops the ended.
    """

    scopes: tuple[Scope, ...] = ()
    hosts: tuple[Host, ...] = ()
    operations: tuple[Operation, ...] = ()
    facts: tuple[Fact, ...] = ()


# Where lines of the journal are sent. The rules are in `webhooks`.


class WebhookFormat(StrEnum):
    """In which words a webhook is told."""

    CLOUDEVENTS = "cloudevents"
    EVENTGRID = "eventgrid"
    TEXT = "text"  # for chat: {"text": ...}


class WebhookCondition(StrEnum):
    """How a webhook is."""

    OK = "ok"
    FAILING = "failing"
    DISABLED = "disabled"


class WebhookTerms(Struct, frozen=True, kw_only=True):
    """What an admin says of a webhook. Empty `scopes` and `kinds` let every line through.

    `batch` is how many lines one request may have.
    """

    name: str
    url: str
    format: WebhookFormat = WebhookFormat.CLOUDEVENTS
    scopes: tuple[str, ...] = ()
    kinds: tuple[FactKind, ...] = ()
    batch: int = 1


class Webhook(WebhookTerms, frozen=True, kw_only=True):
    """A webhook as it is kept.

    The line `number`, of that `generation`, is the last one that its receiver has taken, or that is
    not for it. `old_secret` signs beside `secret` until `old_until_ms`. `turn` grows with all that
    an admin does to it: what was sent before says nothing of the webhook as it is now. It fails
    since `failing_since_ms`, so many times, and was tried in vain for `failing_ms` in all.
    """

    webhook_id: str
    secret: str
    old_secret: str | None = None
    old_until_ms: int | None = None
    number: int
    generation: int
    turn: int = 1
    made_ms: int
    made_by: str
    failing_since_ms: int | None = None
    failures: int = 0
    failing_ms: int = 0
    failure: str = ""
    disabled_ms: int | None = None
    disabled_by: str | None = None
    disabled_because: str = ""

    @property
    def condition(self) -> WebhookCondition:
        if self.disabled_ms is not None:
            return WebhookCondition.DISABLED
        return WebhookCondition.FAILING if self.failures else WebhookCondition.OK


class WebhookOrder(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=str.lower, tag_field="order"
):
    """What is done to a webhook."""


class NewWebhook(WebhookOrder, frozen=True, kw_only=True):
    """Make it, and send the lines after `number`; None: those that come from now on.

    `later`: scopes that are not there yet are meant all the same.
    """

    terms: WebhookTerms
    secret: str
    number: int | None = None
    later: bool = False


class NewTerms(WebhookOrder, frozen=True, kw_only=True):
    """Have it be as the terms say. Refused if it has changed since `turn`."""

    terms: WebhookTerms
    turn: int
    later: bool = False


class NewSecret(WebhookOrder, frozen=True, kw_only=True):
    """Give it another secret; the old one signs too for so long."""

    secret: str
    overlap_ms: int


class Replay(WebhookOrder, frozen=True, kw_only=True):
    """Have it go on after that line, whatever was sent already."""

    number: int


class SwitchOn(WebhookOrder, frozen=True, kw_only=True):
    """Have it send again, from where it has stopped."""


class SwitchOff(WebhookOrder, frozen=True, kw_only=True):
    """Have it send nothing any more."""


class Removal(WebhookOrder, frozen=True, kw_only=True):
    """Forget it."""


AnyWebhookOrder = NewWebhook | NewTerms | NewSecret | Replay | SwitchOn | SwitchOff | Removal


class DeliveryProgress(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=str.lower, tag_field="is"
):
    """What has come of sending."""


class Came(DeliveryProgress, frozen=True, kw_only=True):
    """Its receiver has taken the lines up to `number`; `skipped`: they were pruned instead."""

    number: int
    skipped: bool = False


class Failing(DeliveryProgress, frozen=True, kw_only=True):
    """It fails: so many times by now, for so long in all. `ends`: it is given up."""

    failures: int
    failing_ms: int
    why: str
    ends: bool = False


AnyProgress = Came | Failing
