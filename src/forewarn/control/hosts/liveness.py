"""What was heard of hosts and is written down nowhere: when each was heard, what it reported.

Twice, as two threads ask. `Observed` is the event loop's: hosts are heard there, and most of what
they say costs no transaction. `HeardByWriter` is what commands are decided by. It does not change
while a batch is decided but by the transactions of that batch: before each batch it is given what
the loop has heard since (`News`), and time stands still in it. What hosts reported goes the other
way: transactions take it in, and the loop has it once they are committed. After a restart nothing
is known until hosts are heard and report again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from threading import Lock

import msgspec
from msgspec import Struct

from forewarn.control.hosts.leases import Daemon, two_speak, with_daemon
from forewarn.control.hosts.simulated_power import HostPower
from forewarn.control.timekeeper import STALL_NOTICED_FROM_MS
from forewarn.core.inventory.host_report import Power, WhenHostGoesDown
from forewarn.core.model import Vm
from forewarn.core.notice import HOST_SILENT_AFTER_MS
from forewarn.core.starting import TWO_DAEMONS_REMEDY
from forewarn.logs import Log
from forewarn.ports import Clock
from forewarn.wire.link import tells_vm_polls

# Of a host that is heard and has not yet looked at the documents of this life of control.
NOT_YET = "It has not looked yet at what this control shows. It does so within seconds."
# Of one that does not say what it has looked at, until it asks.
NOT_ASKED = "It has not asked yet what this control shows. It does so within seconds."

log = Log(__name__)


class ReportedVm(Struct, frozen=True):
    """A VM as its host reported it last; `problem` says what about it cannot be used."""

    power: Power
    problem: str = ""
    freeze_by_move: bool = False
    when_host_goes_down: WhenHostGoesDown = WhenHostGoesDown.RESTART


class LastPoll(Struct, frozen=True):
    """When a VM was last heard to poll. Another VM of its name has another id."""

    vm_id: str
    at_ms: int


class LastHeard(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What was last heard of a host. Times are monotonic."""

    heard_ms: int | None = None  # None until it is heard
    came_ms: int | None = None  # of a host that came after our own start
    silences: int = 0  # how often it was silent and came back
    refuses: str = ""  # why it obeys nothing of this control, in its words
    hypervisor_unreachable: str = ""  # why it cannot reach its own hypervisor
    lost: bool = False  # off, until it speaks again
    daemons: tuple[Daemon, ...] = ()  # that speak for it
    asked: bool = False  # what this control shows, from the beginning or from where that was told


class Pulse(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Whether the event loop runs: `beat_ms` is None while the event loop does not beat the pulse.

    Since `deaf_until_ms` it has not stood still.
    """

    deaf_until_ms: int
    beat_ms: int | None = None


class News(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the event loop has heard since it was last asked: of each host the last."""

    hosts: dict[str, LastHeard] = {}
    pulse: Pulse | None = None


_NOTHING = LastHeard()


class Hearing:
    """Questions about what was heard of hosts. Times are monotonic.

    `power` is that of simulated hosts: one without power is not heard. None if all are real.
    `reports` are the VMs that each host reported last.
    """

    def __init__(self, began_ms: int, *, power: HostPower | None) -> None:
        self.power = power
        self.began_ms = began_ms
        self.hosts: dict[str, LastHeard] = {}
        self.reports: dict[str, Mapping[str, ReportedVm]] = {}
        self.polls: dict[str, LastPoll] = {}
        self._no_polls: set[str] = set()  # hosts whose daemon does not tell the polls of VMs
        self._pulse = Pulse(deaf_until_ms=began_ms)

    @abstractmethod
    def _now_ms(self) -> int:
        """The time by which it is asked."""

    def _polls_now_ms(self) -> int:
        """The time by which polls of VMs are counted."""
        return self._now_ms()

    def alive(self, host: str) -> bool:
        """True while the host's last heartbeat is fresh. False until the first."""
        known = self.hosts.get(host, _NOTHING)
        if known.heard_ms is None or known.lost or not self._has_power(host):
            return False
        return self._now_ms() - known.heard_ms < HOST_SILENT_AFTER_MS

    def was_heard(self, host: str) -> bool:
        """True once the host was heard since our own start."""
        return self.hosts.get(host, _NOTHING).heard_ms is not None

    def silent_ms(self, host: str) -> int:
        """For how long the host has not been heard: since our own start or its coming at most."""
        return self._now_ms() - self._last_ms(self.hosts.get(host, _NOTHING))

    def _last_ms(self, known: LastHeard) -> int:
        if known.heard_ms is not None:
            return known.heard_ms
        return self.began_ms if known.came_ms is None else known.came_ms

    def may_be_on(self, host: str) -> bool:
        """True while the host is heard, or we have not listened for long enough to say it is not.

        What we did not hear while our event loop stood still is no silence of the host. One that
        is lost, or without power, is surely off.
        """
        if self.hosts.get(host, _NOTHING).lost or not self._has_power(host):
            return False
        return min(self.silent_ms(host), self._listened_ms()) < HOST_SILENT_AFTER_MS

    def _listened_ms(self) -> int:
        """For how long we could hear hosts, without a break. 0 while the loop stands still."""
        now_ms, pulse = self._now_ms(), self._pulse
        if pulse.beat_ms is not None and now_ms - pulse.beat_ms > STALL_NOTICED_FROM_MS:
            return 0
        return now_ms - pulse.deaf_until_ms

    def silences(self, host: str) -> int:
        """How often the host was silent and came back."""
        return self.hosts.get(host, _NOTHING).silences

    def reported(self, host: str) -> Mapping[str, ReportedVm]:
        """The VMs that the host reported last, by name."""
        return self.reports.get(host, {})

    def polled_ago_ms(self, vm: Vm) -> int | None:
        """How long ago the VM last polled; None if that was not heard since our own start."""
        known = self.polls.get(vm.name)
        if known is None or known.vm_id != vm.vm_id:
            return None
        return max(0, self._polls_now_ms() - known.at_ms)

    def tells_polls(self, host: str) -> bool:
        """False for a host whose daemon is too old to tell when its VMs poll."""
        return host not in self._no_polls

    def up_ms(self) -> int:
        """How long ago our own start was."""
        return self._now_ms() - self.began_ms

    def hypervisor_unreachable(self, host: str) -> str:
        """Why the host cannot reach its own hypervisor; empty if it can, or never said so."""
        return self.hosts.get(host, _NOTHING).hypervisor_unreachable

    def refuses(self, host: str) -> str:
        """Why the host obeys nothing of this control, in its words; empty if it does obey."""
        return self.hosts.get(host, _NOTHING).refuses

    def two_daemons(self, host: str) -> bool:
        """True while two daemons speak for the host: two machines have its credentials."""
        return two_speak(self.hosts.get(host, _NOTHING).daemons, self._now_ms())

    def has_asked(self, host: str) -> bool:
        """True once the host has asked what this control shows, and so has looked at it."""
        return self.hosts.get(host, _NOTHING).asked

    def _has_power(self, host: str) -> bool:
        return self.power is None or self.power.on(host)

    # What a host is when something was heard of it. Nothing changes here.

    def if_heard(
        self, host: str, *, at_ms: int, refuses: str, daemon: str = ""
    ) -> LastHeard | None:
        """The host was heard at this time. None if it has no power: that was said before.

        `daemon` is the life of its daemon that speaks, empty if it does not say.
        """
        if not self._has_power(host):
            return None
        known = self.hosts.get(host, _NOTHING)
        silent = at_ms - self._last_ms(known) >= HOST_SILENT_AFTER_MS
        return msgspec.structs.replace(
            known,
            heard_ms=at_ms,
            silences=known.silences + silent,
            refuses=refuses,
            lost=False,
            daemons=with_daemon(known.daemons, daemon, at_ms) if daemon else known.daemons,
        )

    def if_asked(self, host: str, daemon: str, *, at_ms: int) -> LastHeard:
        """A daemon of the host asks for work at this time."""
        known = self.hosts.get(host, _NOTHING)
        daemons = with_daemon(known.daemons, daemon, at_ms)
        return msgspec.structs.replace(known, daemons=daemons)

    def if_new(self, host: str, *, at_ms: int) -> LastHeard:
        """The host is new in the fleet: control waits to hear it only from now on."""
        return msgspec.structs.replace(self.hosts.get(host, _NOTHING), came_ms=at_ms)

    def if_unreachable(self, host: str, why: str) -> LastHeard:
        """The hypervisor of the host does not answer; it does if `why` is empty."""
        return msgspec.structs.replace(self.hosts.get(host, _NOTHING), hypervisor_unreachable=why)

    def if_gone(self, host: str) -> LastHeard:
        """The host has left: what it said does not count any more."""
        known = self.hosts.get(host, _NOTHING)
        return msgspec.structs.replace(
            known, hypervisor_unreachable="", refuses="", daemons=(), asked=False
        )


class HeardByWriter(Hearing):
    """What commands are decided by. Belongs to the writer; only transactions change it, and take
    back what they changed.
    """

    def __init__(self, began_ms: int, *, power: HostPower | None = None) -> None:
        super().__init__(began_ms, power=power)
        self._at_ms = began_ms

    def _now_ms(self) -> int:
        return self._at_ms

    def begin(self, news: News, at_ms: int) -> None:
        """A batch is decided at this time, and by what the event loop has heard until then."""
        self._at_ms = at_ms
        self.hosts.update(news.hosts)
        for host in [name for name, known in news.hosts.items() if known == _NOTHING]:
            del self.hosts[host]  # it is gone
        if news.pulse is not None:
            self._pulse = news.pulse


class Observed(Hearing):
    """What the event loop has heard. It belongs to that: only what runs there changes it."""

    def __init__(
        self, clock: Clock, *, poll_clock: Clock | None = None, power: HostPower | None = None
    ) -> None:
        super().__init__(clock.monotonic_ms(), power=power)
        self._clock = clock
        self._poll_clock = poll_clock or clock
        self._committed_reports: dict[str, Mapping[str, ReportedVm]] = {}
        self._news: dict[str, LastHeard] = {}
        self._pulse_told: Pulse | None = None
        self._telling = Lock()
        self._said_two: set[str] = set()  # hosts of which was logged that two daemons speak

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def _polls_now_ms(self) -> int:
        return self._poll_clock.monotonic_ms()

    # For the writer.

    def for_writer(self) -> HeardByWriter:
        """What the writer of this life decides by. It knows what `news` tells it."""
        return HeardByWriter(self.began_ms, power=self.power)

    def news(self) -> News:
        """What was heard since this was last asked. Called on the writer's thread."""
        with self._telling:
            hosts, self._news = self._news, {}
        pulse, told = self._pulse, self._pulse_told
        self._pulse_told = pulse
        return News(hosts, None if pulse is told else pulse)

    def committed_reports(self, reports: Mapping[str, Mapping[str, ReportedVm]]) -> None:
        """What these hosts reported is committed. Called on the writer's thread."""
        with self._telling:
            self._committed_reports.update(reports)

    # Changing, on the event loop.

    def take_reports_over(self) -> None:
        """Have what was reported and is committed. A part of publishing."""
        with self._telling:
            reports, self._committed_reports = self._committed_reports, {}
        self.reports.update(reports)
        for host in [name for name, vms in reports.items() if not vms]:
            del self.reports[host]

    def pulse(self) -> None:
        """The event loop runs. Called every PULSE_EVERY_S, from the start on."""
        now_ms, before = self._now_ms(), self._pulse
        stood_still = before.beat_ms is not None and now_ms - before.beat_ms > STALL_NOTICED_FROM_MS
        self._pulse = Pulse(now_ms if stood_still else before.deaf_until_ms, now_ms)

    def came(self, host: str) -> None:
        """The host is new in the fleet: control waits to hear it only from now on."""
        self._put(host, self.if_new(host, at_ms=self._now_ms()))

    def lost(self, host: str) -> None:
        """The host is off: it is not heard until it speaks again, however little time passes."""
        self._put(host, msgspec.structs.replace(self.hosts.get(host, _NOTHING), lost=True))

    def heard(self, host: str, *, at_ms: int, refuses: str = "", daemon: str = "") -> None:
        """The host was heard at this time; `refuses` says why it obeys nothing of this control.

        What one says that has no power was said before, and does not count.
        """
        before = self.refuses(host)
        known = self.if_heard(host, at_ms=at_ms, refuses=refuses, daemon=daemon)
        if known is None:
            return
        self._put(host, known)
        self._say_of_daemons(host)
        did, does = (words not in ("", NOT_YET, NOT_ASKED) for words in (before, refuses))
        if does and not did:
            log.error("host_refuses_control", host=host, why=refuses)
        elif did and not does:
            log.info("host_refuses_no_longer", host=host)

    def polled(self, vm: Vm, *, age_ms: int) -> None:
        """The VM polled so long ago. What was told late does not count."""
        at_ms = self._polls_now_ms() - max(0, age_ms)
        known = self.polls.get(vm.name)
        if known is None or known.vm_id != vm.vm_id or known.at_ms < at_ms:
            self.polls[vm.name] = LastPoll(vm.vm_id, at_ms)

    def speaks(self, host: str, version: str) -> None:
        """The host speaks this version of the link."""
        if tells_vm_polls(version):
            self._no_polls.discard(host)
        else:
            self._no_polls.add(host)

    def forget_polls(self, vms: Iterable[str]) -> None:
        """These VMs have left the fleet."""
        for vm in vms:
            self.polls.pop(vm, None)

    def asks(self, host: str) -> None:
        """The host has asked what this control shows, and was told, or shows that it knows it."""
        known = self.hosts.get(host, _NOTHING)
        if known.asked and known.refuses != NOT_ASKED:
            return
        refuses = "" if known.refuses == NOT_ASKED else known.refuses
        self._put(host, msgspec.structs.replace(known, asked=True, refuses=refuses))

    def hears_daemon(self, host: str, daemon: str) -> None:
        """A daemon of the host asks for work."""
        self._put(host, self.if_asked(host, daemon, at_ms=self._now_ms()))
        self._say_of_daemons(host)

    def _say_of_daemons(self, host: str) -> None:
        """Log that two daemons speak as the host, and that they no longer do, once each."""
        if self.two_daemons(host):
            if host not in self._said_two:
                self._said_two.add(host)
                log.error("host_has_two_daemons", host=host, remedy=TWO_DAEMONS_REMEDY)
        elif host in self._said_two:
            self._said_two.discard(host)
            log.info("host_has_one_daemon", host=host)

    def hypervisor_lost(self, host: str, why: str) -> None:
        """The hypervisor of the host does not answer."""
        self._put(host, self.if_unreachable(host, why or "it does not say why"))

    def sees(self, host: str) -> None:
        """The host has reported its VMs: it can reach its hypervisor."""
        if self.hypervisor_unreachable(host):
            self._put(host, self.if_unreachable(host, ""))

    def left(self, host: str) -> None:
        """The host has left, and keeps its place: what it said does not count any more."""
        self._put(host, self.if_gone(host))

    def gone(self, host: str) -> None:
        """The host is in the fleet no more: nothing is kept of it."""
        with self._telling:
            self.hosts.pop(host, None)
            self._news[host] = _NOTHING
        self._no_polls.discard(host)
        self._said_two.discard(host)

    def _put(self, host: str, known: LastHeard) -> None:
        with self._telling:
            self.hosts[host] = self._news[host] = known
