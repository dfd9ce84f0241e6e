"""What a scenario is: steps on the emulator's clock, each one order, and the fleet they need.

Values and their words only. Reading them from TOML is `file`, the shipped ones are
`library`, and what makes them happen is `runner`.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from forewarn.core.model import Cause, EventType
from forewarn.emulator.faults.orders import FaultOrder
from forewarn.text.durations import duration_text


class StepPhase(StrEnum):
    """How far a step has come."""

    WAITING = "waiting"
    DONE = "done"
    REFUSED = "refused"
    STOPPED = "stopped"


class Verb(StrEnum):
    """What a step can do."""

    RESTART = "restart"
    REDEPLOY = "redeploy"
    DELETE = "delete"
    EVICT = "evict"
    MAINTAIN = "maintain"
    DEGRADE = "degrade"
    FAIL = "fail"
    REPAIR = "repair"
    CANCEL = "cancel"
    POSTPONE = "postpone"
    APPROVE = "approve"
    FAULT = "fault"
    CLEAR_FAULTS = "clear-faults"


VM_VERBS: dict[Verb, tuple[EventType, Cause]] = {
    Verb.RESTART: (EventType.REBOOT, Cause.ORDER),
    Verb.REDEPLOY: (EventType.REDEPLOY, Cause.ORDER),
    Verb.DELETE: (EventType.TERMINATE, Cause.ORDER),
    Verb.EVICT: (EventType.PREEMPT, Cause.EVICTION),
}
HOST_VERBS = (Verb.MAINTAIN, Verb.DEGRADE, Verb.FAIL, Verb.REPAIR)
EVENT_VERBS = (Verb.CANCEL, Verb.POSTPONE, Verb.APPROVE)


class Whom(StrEnum):
    """The words of `on`, each seen from the VM that the scenario runs on."""

    VM = "vm"  # that VM; `vm 2` is the next one of its scope, and so on around
    DOMAIN = "domain"  # every VM of its update domain; `domain 2` is the next domain
    SCOPE = "scope"  # every VM of its scope
    NAME = "name"  # a VM or host by its own name


class StepPlace(Struct, frozen=True, kw_only=True):
    """What a step is done to: VMs, or with `of_host` the hosts that they are on."""

    whom: Whom
    number: int = 1
    of_host: bool = False
    name: str = ""

    @property
    def words(self) -> str:
        """As `on` has it."""
        if self.whom is Whom.NAME:
            return self.name
        numbered = self.whom.value
        if self.whom is Whom.DOMAIN or self.number > 1:  # "vm" alone is what the run is about
            numbered = f"{self.whom.value} {self.number}"
        if not self.of_host:
            return numbered
        return "host" if numbered == Whom.VM.value else f"host of {numbered}"


class ScenarioStep(Struct, frozen=True, kw_only=True):
    """One order at one time. `number` counts from 1; a field that a verb does not take has None.

    `label` names what the step made (`as`), `of` is the label that a later step means.
    `started_for_ms` is how long its events stay Started, `duration_s` the length of a Freeze that
    guests read, `not_before_ms` the earliest start without approval, `until_ms` what that is
    postponed to and `window_ms` the window, all from the time of the step.
    """

    number: int
    at_ms: int
    verb: Verb
    on: StepPlace | None = None
    label: str | None = None
    of: str | None = None
    started_for_ms: int | None = None
    event_type: EventType | None = None
    duration_s: int | None = None
    description: str | None = None
    not_before_ms: int | None = None
    until_ms: int | None = None
    window_ms: tuple[int, int] | None = None
    fenced: bool = False
    break_domains: bool = False
    lose_disk: bool = False
    fault: FaultOrder | None = None

    @property
    def words(self) -> str:
        """The step in one line, without its time."""
        parts: list[str] = [self.verb.value]
        if self.on is not None:
            parts.append(self.on.words)
        if self.of is not None:
            parts.append(f"of {self.of}")
        if self.event_type is not None:
            parts.append(f"by {self.event_type.value}")
        if self.duration_s is not None:
            parts.append(f"of {self.duration_s} s")
        if self.fault is not None:
            parts.insert(1, self.fault.kind.value)
        more = [
            f"not before {duration_text(self.not_before_ms)} from then"
            if self.not_before_ms is not None
            else "",
            f"until {duration_text(self.until_ms)} from then" if self.until_ms is not None else "",
            f"in a window from {duration_text(self.window_ms[0])} to"
            f" {duration_text(self.window_ms[1])} from then"
            if self.window_ms is not None
            else "",
            "fenced" if self.fenced else "",
            "with the loss of local disks" if self.lose_disk else "",
            f"Started for {duration_text(self.started_for_ms)}"
            if self.started_for_ms is not None
            else "",
        ]
        return ", ".join([" ".join(parts), *(one for one in more if one)])


class Needs(Struct, frozen=True, kw_only=True):
    """The fleet that a scenario needs: `vms` and `domains` in one scope, `hosts` in all."""

    vms: int = 1
    domains: int = 1
    hosts: int = 1
    spot: bool = False


class Scenario(Struct, frozen=True, kw_only=True):
    """A script: what it shows, what it needs, and its steps in the order of their times."""

    name: str
    title: str
    about: str
    needs: Needs
    steps: tuple[ScenarioStep, ...]
    text: str
