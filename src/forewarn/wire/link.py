"""The link: what hosts and control say to each other, as JSON (docs/link.md).

It is HTTPS with a certificate on both sides. Every question is a POST to `/link/<name>`; who asks
is the name in its certificate and nothing in the body. Refusals are the problems of the operator
API (`wire.problems`). Every answer carries the wall clock of control in NOW_HEADER, and both sides
say LINK_VERSION in VERSION_HEADER. Times are ages: no side compares two wall clocks. Nothing of the
core is in here: renaming a field there changes no protocol.
"""

from __future__ import annotations

import msgspec

# Major and minor. Those of one major version understand each other: a minor one may add messages,
# and fields that have a default. An unknown field is ignored, an unknown message refused by name.
LINK_VERSION = "1.1"
VERSION_HEADER = "forewarn-link"
NOW_HEADER = "forewarn-now-ms"


def same_major(version: str) -> bool:
    """Whether who says this version of the link is understood."""
    return version.partition(".")[0] == LINK_VERSION.partition(".")[0]


def tells_vm_polls(version: str) -> bool:
    """Whether a host of this version says in its turns when its VMs polled: since 1.1."""
    minor = version.partition(".")[2]
    return minor.isascii() and minor.isdecimal() and minor.strip("0") != ""


# One question holds at most so much; a host with more VMs than that is not built yet.
BODY_BYTES_MAX = 64 * 1024 * 1024
CHANGES_WAIT_S_MAX = 25
# What one turn may hold, so that it fits into QUESTION_BYTES_MAX; the rest waits for the next one.
QUESTION_BYTES_MAX = 1_024 * 1_024
HOLDING_MAX = 2_000
CONFIRMS_MAX = 500
FIRST_READS_MAX = 1_000
POLLS_MAX = 500
RETURNED_MAX = 500
ENDED_MAX = 64
DETAIL_CHARS_MAX = 4_096
ENDED_CHARS_MAX = 1_024  # of the detail of each


class Join(msgspec.Struct, frozen=True):
    """`/link/join`, the only question without a certificate: a one-time token for one of its own.

    `request` is a certificate signing request in PEM; its subject is the host's name.
    """

    name: str
    token: str
    request: str


class Joined(msgspec.Struct, frozen=True):
    """The host's certificate and that of the authority, both in PEM."""

    certificate: str
    authority: str


class Renew(msgspec.Struct, frozen=True):
    """`/link/renew`: a new certificate for the host that asks; answered with Joined."""

    request: str


class Since(msgspec.Struct, frozen=True):
    """How far a host is: the number of a commit, and in which life of a control it was told that.

    Every control on the same store knows what that is. One that does not tells everything, as it
    does for a position below 0.
    """

    epoch: str
    position: int


class AskChanges(msgspec.Struct, frozen=True):
    """`/link/changes`: what is new for me since then? Answered at once if there is anything."""

    since: Since | None
    wait_s: int = CHANGES_WAIT_S_MAX


class VmTraits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the owner of a VM has said of it, in its domain. None (an empty scope) if not said.

    `scope_kind` is standalone, cloud-service, availability-set or placement-group; `priority`
    regular or spot; `auto_approve` are types of events; `os_type` is Linux or Windows.
    `freeze_by_move`: a Freeze of its host moves it away. `when_host_goes_down` is move or restart.
    """

    scope: str = ""
    update_domain: int | None = None
    scope_kind: str | None = None
    terminate_notice_ms: int | None = None
    auto_approve: tuple[str, ...] | None = None
    priority: str | None = None
    address: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    fault_domain: int | None = None
    zone: str = ""
    os_type: str | None = None
    freeze_by_move: bool = False
    when_host_goes_down: str = "restart"


class VmNic(msgspec.Struct, frozen=True, omit_defaults=True):
    """One interface of a VM: its MAC address, the tap while it runs, and the bridge of that."""

    mac: str
    tap: str | None = None
    bridge: str | None = None


class VmSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """A VM as its hypervisor shows it now. `power` is running, paused, off or crashed.

    `definition` is what another host needs to start it; `problem` says what about it cannot be
    used, in words for the operator.
    """

    name: str
    vm_id: str
    power: str
    traits: VmTraits = VmTraits()
    nics: tuple[VmNic, ...] = ()
    definition: str = ""
    problem: str = ""


class Adoption(msgspec.Struct, frozen=True):
    """The operator wants these traits written to a VM of the host; `/link/adopted` answers."""

    adoption_id: str
    vm: str
    traits: VmTraits


class ShownVm(msgspec.Struct, frozen=True, omit_defaults=True):
    """A VM of the host, as its guest may know it."""

    name: str
    vm_id: str
    host: str
    update_domain: int = 0
    fault_domain: int = 0
    priority: str = "regular"  # or spot
    address: str | None = None
    listen: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    zone: str = ""
    os_type: str = "Linux"
    computer_name: str = ""


class ShownEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event as guests read it. `phase` is scheduled or started."""

    event_id: str
    event_type: str
    event_source: str
    phase: str
    not_before_ms: int
    resources: tuple[str, ...]
    description: str = ""
    duration_s: int = -1


class ShownScope(msgspec.Struct, frozen=True, omit_defaults=True):
    """A scope as the host shows it: its events, oldest first, to those of its VMs that are here.

    `waiting_for` are VMs whose next poll control wants to hear of. With `to_confirm` the host says
    that it shows the scope once it does: until then the notice of an event does not run.
    """

    name: str
    kind: str
    incarnation: int
    enabled: bool
    vms: tuple[ShownVm, ...] = ()
    events: tuple[ShownEvent, ...] = ()
    waiting_for: tuple[str, ...] = ()
    to_confirm: bool = False


class Changes(msgspec.Struct, frozen=True):
    """All scopes the host shows, by name, and those of them that are new since then.

    `epoch` is this life of control: what it says is followed before it is obeyed. `work` is a
    doorbell: there is something to claim. Scopes that are not in `names` any more are to be
    dropped.
    """

    epoch: str
    position: int
    names: tuple[str, ...]
    scopes: tuple[ShownScope, ...]
    work: bool
    adoptions: tuple[Adoption, ...] = ()


class Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    """`/link/claim`. `daemon` is one life of the host's daemon: claims of another one are free.

    `epoch` is as in Turn: a control in another one has to be followed before it is obeyed, and
    gives the host nothing.
    """

    boot_id: str
    daemon: str = ""
    epoch: str | None = None


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that `host` has to do, claimed for it under `epoch`.

    `kind` is what: freeze-host, reboot-host, reboot-vm, move-vm, start-vm, define-vm, find-vm,
    delete-vm. `about` are the VMs that were told of it, as (name, id), with an empty id where no
    host has shown one; nothing is done to another VM of that name. `only_off`: no VM was asked, so
    nothing is done to a VM that runs. `lose_disk`: what is moved starts with empty local disks.
    `left_ms` is the time until it is given up.
    """

    action_id: str
    kind: str
    host: str
    epoch: int
    vm: str | None = None
    target_host: str | None = None
    duration_s: int = 0
    boot_id: str | None = None
    only_off: bool = False
    about: tuple[tuple[str, str], ...] = ()
    left_ms: int | None = None
    lose_disk: bool = False


class Claimed(msgspec.Struct, frozen=True):
    work: tuple[Work, ...]


class Holds(msgspec.Struct, frozen=True):
    """`/link/holds`: is the claim still mine? Asked before old work begins."""

    action_id: str
    epoch: int


class Held(msgspec.Struct, frozen=True):
    holds: bool


class Approve(msgspec.Struct, frozen=True):
    """`/link/approve`: a VM of the host has said go ahead. Durable when it is answered."""

    vm: str
    event_ids: tuple[str, ...]


class Enable(msgspec.Struct, frozen=True):
    """`/link/enable`: a VM of the host polled a scope that was not enabled."""

    scope: str
    vm: str


class ReadBefore(msgspec.Struct, frozen=True):
    """A first read, and how long ago it was."""

    scope: str
    event_id: str
    vm: str
    age_ms: int


class Ended(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the work under a claim ended: done, failed, lost or spared."""

    action_id: str
    epoch: int
    outcome: str
    detail: str = ""


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """`/link/turn`: the host is there, and everything it has to say by now. Said every 5 s.

    `holding` are the claims (action id, epoch) it still works on. `refuses` says why it obeys
    nothing of this control, in words with the remedy. `epoch` is that of the changes it has taken
    over, empty if it has not yet; None if it does not say: then it obeys nothing until it has asked
    for changes in this life of control. `confirms` are the incarnations, by scope, that its guests
    can read. `first_reads`, `polls` (the age of the last one, by scope), `vm_polls` (by VM) and
    `returned` (VMs that polled again) are what guests did in passing; `rebooted` are VMs that were
    rebooted, and not by work of this host. `ended` is work that has
    ended. `daemon` is one life of the host's daemon. All of it may be said twice.
    """

    holding: dict[str, int] = {}
    refuses: str = ""
    epoch: str | None = None
    confirms: dict[str, int] = {}
    first_reads: tuple[ReadBefore, ...] = ()
    polls: dict[str, int] = {}
    returned: tuple[str, ...] = ()
    ended: tuple[Ended, ...] = ()
    daemon: str = ""
    vm_polls: dict[str, int] = {}
    rebooted: tuple[str, ...] = ()


class NotTaken(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a turn that control does not take, and why. `code` is for machines."""

    code: str
    detail: str
    remedy: str = ""


class TurnTaken(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was said is durable, but for what is refused: confirmations by scope, work by action.

    `lost` are claims of `holding` that are not the host's any more. `work` is a doorbell, as in
    Changes; None where control does not say: then the host asks for work now and then.
    """

    lost: tuple[str, ...] = ()
    work: bool | None = None
    refused_confirms: dict[str, NotTaken] = {}
    refused_ended: dict[str, NotTaken] = {}


class Sighting(msgspec.Struct, frozen=True, omit_defaults=True):
    """`/link/sight`: all VMs of the host, as its hypervisor shows them now, in this boot of it.

    `boot_id` is empty where the host does not say; the next claim tells it then.
    """

    vms: tuple[VmSeen, ...]
    boot_id: str = ""


class _Pieces(msgspec.Struct, frozen=True):
    """A sighting with its VMs still as they came."""

    vms: tuple[msgspec.Raw, ...]
    boot_id: str = ""


_decode_vm = msgspec.json.Decoder(VmSeen).decode


def read_sighting(body: bytes) -> Sighting:
    """The same as decoding it whole, VM by VM: a thread that does it lets others in between."""
    pieces = msgspec.json.decode(body, type=_Pieces)
    return Sighting(tuple([_decode_vm(piece) for piece in pieces.vms]), pieces.boot_id)


class Sighted(msgspec.Struct, frozen=True):
    """What of the sighting could not be used, in words for the operator, by the name of the VM."""

    problems: dict[str, str]


class Blind(msgspec.Struct, frozen=True):
    """`/link/blind`: the hypervisor does not answer, and why. The next sight ends it."""

    why: str


class Adopted(msgspec.Struct, frozen=True):
    """`/link/adopted`: the traits are written, or why not."""

    adoption_id: str
    problem: str = ""


class AskTargets(msgspec.Struct, frozen=True):
    """`/link/targets`: where should these VMs of mine go?"""

    vms: tuple[str, ...]


class Targets(msgspec.Struct, frozen=True):
    targets: dict[str, str | None]


class AskDefinition(msgspec.Struct, frozen=True):
    """`/link/definition`: a VM that comes to the host."""

    vm: str


class Definition(msgspec.Struct, frozen=True):
    definition: str | None


class Done(msgspec.Struct, frozen=True):
    """The answer that says nothing but yes."""
