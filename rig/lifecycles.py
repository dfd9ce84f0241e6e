"""Real lifecycles: order, let notice pass, watch what happens to the guests, and have it judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rig.consoles import Line
from rig.domains import Guest
from rig.judge import SILENCE_S, Evidence, judge, milliseconds
from rig.operator import Unreachable
from rig.service import Service
from rig.waiting import NotInTime, wait_for

FAST = 300  # a quarter of an hour of notice in three seconds
NEARLY_MS = 30_000  # so long before NotBefore the clock is slowed down
NEARLY = 15
SEEN_LIMIT_S = 30.0
START_LIMIT_S = 90.0
END_LIMIT_S = 120.0
BACK_LIMIT_S = 60.0
FREEZE_S = 4
ACCOUNT_LINES = 25

_VERBS = {"Reboot": "restart", "Redeploy": "redeploy", "Terminate": "delete", "Preempt": "evict"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """One event of one VM from order to end, and what the judge has to say."""

    kind: str
    consent: str  # guest, operator, or empty
    vm: str
    event: Mapping[str, Any]
    complaints: tuple[str, ...]
    notice_s: float  # of control's time, from being shown to the start
    lasted_s: float  # real, from the start to the end
    reaction_ms: int | None  # from the guest's approval until a host has claimed the action


@dataclass(slots=True, kw_only=True)
class Opened:
    """An event under way."""

    kind: str
    vm: str
    event_id: str
    operation_id: str | None
    before: dict[str, str]
    ordered_s: float
    consent: str


class Lifecycles:
    """Carries out waves: the same thing for several VMs at once, all of one mind."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._rig = service.rig
        self.done: list[Lifecycle] = []

    # What can be ordered.

    def order(self, kind: str, vms: Sequence[str]) -> list[Lifecycle]:
        """Reboot, Redeploy, Terminate or Preempt these VMs, as their owners."""
        return self._wave(self.begin(kind, vms))

    def freeze(self, host: str) -> list[Lifecycle]:
        """Freeze a host, with every VM on it."""
        return self._wave(self.begin_freeze(host))

    def reboot_host(self, host: str) -> list[Lifecycle]:
        """Reboot a host, with every VM on it; the rig is the hand on its power."""
        opened = self._begin("Reboot", self._on(host), lambda: self._maintain("Reboot", host))
        self.let_notice_pass(opened)
        reboot = self._service.reboot_those_who_want
        wait_for("the host wants to reboot", reboot, within_s=END_LIMIT_S)
        return self.finish(opened)

    def fail(self, host: str) -> list[Lifecycle]:
        """Pull the plug of a host and say so; its VMs start at the other. Then it comes back."""

        def fail() -> list[dict[str, Any]]:
            self._service.fail_host(host)
            answer = self._service.operator.post(
                f"/v1/hosts/{host}/fail", fenced=True, force=True, reason="the plug is out"
            )
            return [event for event in answer["events"] if event["resources"][0] in running]

        running = self._on(host)  # nothing happens to the others
        done = self.finish(self._begin("Failure", running, fail))
        self.bring_back(host)
        return done

    def complaints(self) -> list[str]:
        """Everything that the judge has found wrong so far."""
        return [text for one in self.done for text in one.complaints]

    def bring_back(self, host: str) -> None:
        """Switch a failed hypervisor on again, as one that was repaired and holds no VMs."""
        hypervisor = self._rig.hypervisors[host]
        hypervisor.power_on()
        self._rig.note()
        for vm in hypervisor.vms():
            hypervisor.virsh("undefine", vm)
        self._service.start_host(host)
        self._service.operator.post(
            f"/v1/hosts/{host}/repair", force=True, reason="its power is back"
        )

    def _on(self, host: str) -> list[str]:
        powers = self._rig.hypervisors[host].vms()
        return [vm for vm, power in powers.items() if power == "running"]

    def _maintain(self, kind: str, host: str, **words: object) -> list[dict[str, Any]]:
        at = f"/v1/hosts/{host}/maintain"
        return list(self._service.operator.post(at, event_type=kind, **words)["events"])

    def _order(self, kind: str, vm: str) -> dict[str, Any]:
        return dict(self._service.operator.post(f"/v1/vms/{vm}/{_VERBS[kind]}"))

    # Step by step.

    def begin(self, kind: str, vms: Sequence[str]) -> list[Opened]:
        """Order, and wait until the guests can read it."""
        return self._begin(kind, vms, lambda: [self._order(kind, vm) for vm in vms])

    def begin_freeze(self, host: str) -> list[Opened]:
        """The same for the Freeze of a host."""
        words = {"duration_seconds": FREEZE_S}
        return self._begin(
            "Freeze", self._on(host), lambda: self._maintain("Freeze", host, **words)
        )

    def _begin(
        self, kind: str, vms: Sequence[str], order: Callable[[], list[dict[str, Any]]]
    ) -> list[Opened]:
        before = {vm: self._rig.where(vm) for vm in vms}
        ordered_s = time.monotonic()
        events = {event["resources"][0]: event for event in order()}
        if events.keys() != set(vms):
            where = {vm: self._rig.where(vm) for vm in events}
            raise ValueError(f"Running are {sorted(vms)}, events are for {where}.")
        opened = [
            Opened(
                kind=kind,
                vm=vm,
                event_id=event["event_id"],
                operation_id=event["operation_id"],
                before=before[vm],
                ordered_s=ordered_s,
                consent="guest" if self._rig.guests[vm].approves else "",
            )
            for vm, event in events.items()
        ]
        for one in opened:
            if kind != "Failure":
                shown = partial(self._shown, one)
                wait_for(f"{one.vm} is shown its {kind}", shown, within_s=SEEN_LIMIT_S)
        return opened

    def approve(self, opened: Sequence[Opened]) -> None:
        """Consent in the name of guests that do not, as the operator; to have it start now."""
        for one in opened:
            self._service.operator.post(f"/v1/events/{one.event_id}/approve", reason="the rig")
            one.consent = "operator"

    def wait_until_read(self, one: Opened) -> None:
        """Until the guest has seen it in its document, as the judge wants to find."""
        wait_for(f"{one.vm} reads its {one.kind}", lambda: self._seen(one), within_s=SEEN_LIMIT_S)

    def _seen(self, one: Opened) -> bool:
        line = self._rig.consoles.last_poll(one.vm, since_s=one.ordered_s)
        return line is not None and one.event_id in line.events()

    def wait_for_fact(self, kind: str, one: Opened, within_s: float = START_LIMIT_S) -> None:
        """Until the journal says so of the event or its operation."""

        def told() -> bool:
            return any(fact["kind"] == kind for fact in self._facts(one))

        wait_for(f"the journal says {kind} of {one.kind} of {one.vm}", told, within_s=within_s)

    def finish(self, opened: Sequence[Opened], *, judged: bool = True) -> list[Lifecycle]:
        """Wait until everything has ended, and have it judged.

        Without `judged` it is not counted: it is not meant to go well.
        """
        self._await_end(opened)
        ended_s = time.monotonic()
        done = [self._finish(one, ended_s) for one in opened]
        self.done += done if judged else []
        return done

    # How it goes.

    def _wave(self, opened: Sequence[Opened]) -> list[Lifecycle]:
        minds = {one.consent for one in opened}
        if len(minds) != 1:
            raise ValueError(f"A wave is of one mind; {[one.vm for one in opened]} are not.")
        if minds == {""}:
            self.let_notice_pass(opened)
        return self.finish(opened)

    def _event(self, one: Opened) -> dict[str, Any]:
        return dict(self._service.operator.get(f"/v1/events/{one.event_id}"))

    def let_notice_pass(self, opened: Sequence[Opened]) -> None:
        """Turn the clock up until nearly NotBefore, so that everything starts in slow motion."""
        clock = self._service.clock
        try:
            clock.run(FAST)
            first_ms = min(milliseconds(self._event(one)["not_before"]) for one in opened)
            wait_for(
                "notice passes",
                lambda: clock.now_ms() >= first_ms - NEARLY_MS,
                within_s=START_LIMIT_S,
            )
            clock.run(NEARLY)
            wait_for(
                "everything has started",
                lambda: all(self._event(one)["phase"] != "scheduled" for one in opened),
                within_s=START_LIMIT_S,
            )
        except NotInTime as why:
            raise NotInTime(f"{why} {self._explain(opened)}") from why
        finally:
            clock.run(1)

    def _await_end(self, opened: Sequence[Opened]) -> None:
        try:
            for one in opened:
                ended = partial(self._ended, one)
                wait_for(f"{one.kind} of {one.vm} ends", ended, within_s=END_LIMIT_S)
        except NotInTime as why:
            raise NotInTime(f"{why} {self._explain(opened)}") from why

    def _shown(self, one: Opened) -> bool:
        return self._event(one)["shown"] is not None

    def _ended(self, one: Opened) -> bool:
        try:
            return self._event(one)["phase"] in ("completed", "failed", "canceled")
        except Unreachable:  # control may be down, which is sometimes the point
            return False

    def _explain(self, opened: Sequence[Opened]) -> str:
        told = [
            self._service.operator.get(f"/v1/events/{one.event_id}/explain")
            for one in opened
            if not self._ended(one)
        ]
        return f"Control explains: {told}"

    def _facts(self, one: Opened) -> list[dict[str, Any]]:
        return [
            fact
            for fact in self._service.operator.journal()
            if fact["event_id"] == one.event_id
            or (one.operation_id is not None and fact["operation_id"] == one.operation_id)
        ]

    def _finish(self, one: Opened, ended_s: float) -> Lifecycle:
        if one.kind not in ("Terminate", "Preempt"):
            self._await_back(one, ended_s)
        evidence = Evidence(
            kind=one.kind,
            consent="" if one.kind == "Failure" else one.consent,
            vm=one.vm,
            event=self._event(one),
            facts=self._facts(one),
            lines=_since(self._rig.consoles.lines(one.vm), one.ordered_s),
            ordered_s=one.ordered_s,
            ended_s=ended_s,
            before=one.before,
            after=self._rig.where(one.vm),
            when_s=self._service.clock.when_s,
        )
        return _judged(evidence)

    def _await_back(self, one: Opened, ended_s: float) -> None:
        def back() -> bool:
            line = self._rig.consoles.last_poll(one.vm, since_s=ended_s)
            return line is not None and one.event_id not in line.events()

        try:
            wait_for(f"{one.vm} polls again", back, within_s=BACK_LIMIT_S)
        except NotInTime:
            return  # the judge says so, with everything else

    def define(self, guest: Guest, on: str) -> None:
        """Make a guest and wait until it reads its document, and control knows it there."""
        since_s = time.monotonic()
        self._rig.define(guest, on)
        wait_for(
            f"{guest.name} reads its document",
            lambda: self._rig.consoles.last_poll(guest.name, since_s=since_s),
            within_s=BACK_LIMIT_S,
        )


def _since(lines: Sequence[Line], ordered_s: float) -> list[Line]:
    """What a guest said since a little before an order, of the boot that was then, and later.

    A VM of this name may have been deleted just before.
    """
    before = [line for line in lines if line.at_s <= ordered_s]
    boot = before[-1].boot if before else ""
    recent = [line for line in before if line.boot == boot and line.at_s >= ordered_s - SILENCE_S]
    return recent + [line for line in lines if line.at_s > ordered_s]


def _judged(evidence: Evidence) -> Lifecycle:
    event = evidence.event
    started = event["started"] or event["scheduled"]
    shown = event["shown"] or started
    ended = event["ended"] or started
    lasted_s = evidence.when_s(milliseconds(ended)) - evidence.when_s(milliseconds(started))
    return Lifecycle(
        kind=evidence.kind,
        consent=evidence.consent,
        vm=evidence.vm,
        event=event,
        complaints=tuple(_with_account(evidence, judge(evidence))),
        notice_s=(milliseconds(started) - milliseconds(shown)) / 1000,
        lasted_s=lasted_s,
        reaction_ms=_reaction_ms(evidence),
    )


def _with_account(evidence: Evidence, complaints: Sequence[str]) -> list[str]:
    """The complaints, the last with what the guest said, by seconds since the order."""
    if not complaints:
        return []
    said = [
        f"{line.at_s - evidence.ordered_s:+.1f} {line.kind} {line.boot}"
        f" {line.words.get('status', '')} {line.words.get('events', '')[-40:]}"
        for line in evidence.lines
    ]
    account = "; ".join(said[-ACCOUNT_LINES:])
    return [
        *complaints,
        f"{evidence.vm} said: {account}; ended +{evidence.ended_s - evidence.ordered_s:.1f}",
    ]


def _reaction_ms(evidence: Evidence) -> int | None:
    """With the clock at its own speed only, which is how consent is given here."""
    approved = [fact["at"] for fact in evidence.facts if fact["kind"] == "approved"]
    claimed = [fact["at"] for fact in evidence.facts if fact["kind"] == "claimed"]
    if evidence.consent != "guest" or not approved or not claimed:
        return None
    return milliseconds(claimed[0]) - milliseconds(approved[-1])


def table(done: Sequence[Lifecycle]) -> str:
    """Counts by kind and consent, as a table."""
    groups: dict[tuple[str, str], list[Lifecycle]] = {}
    for one in done:
        groups.setdefault((one.kind, one.consent), []).append(one)
    lines = ["| what | consent | lifecycles | as announced | least notice | longest Started |"]
    lines.append("|---|---|---|---|---|---|")
    for (kind, consent), some in sorted(groups.items()):
        well = sum(not one.complaints for one in some)
        notice_s = min(one.notice_s for one in some)
        asked = "-" if kind == "Failure" else consent or "no"
        notice = "-" if kind == "Failure" else f"{notice_s:.1f} s"
        lasted = f"{max(one.lasted_s for one in some):.1f} s"
        lines.append(f"| {kind} | {asked} | {len(some)} | {well} | {notice} | {lasted} |")
    reactions = sorted(one.reaction_ms for one in done if one.reaction_ms is not None)
    well = sum(not one.complaints for one in done)
    lines.append(f"| all | | {len(done)} | {well} | | |")
    if reactions:
        most = reactions[min(len(reactions) - 1, len(reactions) * 99 // 100)]
        middle = reactions[len(reactions) // 2]
        lines.append(
            f"From a guest's approval to the claim of the action: p50 {middle} ms,"
            f" p99 {most} ms ({len(reactions)} approvals)."
        )
    return "\n".join(lines)
