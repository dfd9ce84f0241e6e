"""What was observed of hosts and is written down nowhere: when each was heard, what it reported.

It belongs to the event loop: only what runs there changes it, one value at a time, and every value
is immutable. The writer's thread and readers look single values up. After a restart nothing is
known until hosts are heard and report again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from forewarn.control.host_power import HostPower
from forewarn.control.timekeeper import STALL_NOTICED_FROM_MS
from forewarn.core.machines import Power, WhenHostGoesDown
from forewarn.core.notice import HOST_SILENT_AFTER_MS
from forewarn.logs import Log
from forewarn.ports import Clock

# Of a host that is heard and has not yet looked at the documents of this life of control.
NOT_YET = "It has not looked yet at what this control shows. It does so within seconds."

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class ReportedVm:
    """A VM as its host reported it last; `problem` says what about it cannot be used."""

    power: Power
    problem: str = ""
    freeze_by_move: bool = False
    when_host_goes_down: WhenHostGoesDown = WhenHostGoesDown.RESTART


class Observed:
    """The last observations, by host. Times are monotonic.

    `power` is that of simulated hosts: one without power is not heard. None if all are real.
    """

    def __init__(self, clock: Clock, *, power: HostPower | None = None) -> None:
        self._clock = clock
        self.power = power
        self._began_ms = clock.monotonic_ms()
        self._pulse_ms: int | None = None  # None while nobody beats the pulse
        self._deaf_until_ms = self._began_ms  # since then the event loop has not stood still
        self._heard_ms: dict[str, int] = {}
        self._came_ms: dict[str, int] = {}  # of hosts that came after our own start
        self._reports: dict[str, Mapping[str, ReportedVm]] = {}
        self._blind: dict[str, str] = {}
        self._refusing: dict[str, str] = {}
        self._silences: Counter[str] = Counter()
        self._lost: set[str] = set()

    # Looking things up, on any thread.

    def alive(self, host: str) -> bool:
        """True while the host's last heartbeat is fresh. False until the first."""
        if host in self._lost or not self._has_power(host):
            return False
        heard_ms = self._heard_ms.get(host)
        return heard_ms is not None and self._clock.monotonic_ms() - heard_ms < HOST_SILENT_AFTER_MS

    def was_heard(self, host: str) -> bool:
        """True once the host was heard since our own start."""
        return host in self._heard_ms

    def silent_ms(self, host: str) -> int:
        """For how long the host has not been heard: since our own start or its coming at most."""
        return self._clock.monotonic_ms() - self._last_ms(host)

    def _last_ms(self, host: str) -> int:
        heard_ms = self._heard_ms.get(host)
        return self._came_ms.get(host, self._began_ms) if heard_ms is None else heard_ms

    def may_be_on(self, host: str) -> bool:
        """True while the host is heard, or we have not listened for long enough to say it is not.

        What we did not hear while our event loop stood still is no silence of the host. One that
        is lost, or without power, is surely off.
        """
        if host in self._lost or not self._has_power(host):
            return False
        return min(self.silent_ms(host), self._listened_ms()) < HOST_SILENT_AFTER_MS

    def _listened_ms(self) -> int:
        """For how long we could hear hosts, without a break. 0 while the loop stands still."""
        now_ms = self._clock.monotonic_ms()
        pulse_ms = self._pulse_ms
        if pulse_ms is not None and now_ms - pulse_ms > STALL_NOTICED_FROM_MS:
            return 0
        return now_ms - self._deaf_until_ms

    def silences(self, host: str) -> int:
        """How often the host was silent and came back."""
        return self._silences[host]

    def reported(self, host: str) -> Mapping[str, ReportedVm]:
        """The VMs that the host reported last, by name."""
        return self._reports.get(host, {})

    def blind(self, host: str) -> str:
        """Why the host cannot reach its own hypervisor; empty if it can, or never said so."""
        return self._blind.get(host, "")

    def refuses(self, host: str) -> str:
        """Why the host obeys nothing of this control, in its words; empty if it does obey."""
        return self._refusing.get(host, "")

    def _has_power(self, host: str) -> bool:
        return self.power is None or self.power.on(host)

    # Changing, on the event loop.

    def pulse(self) -> None:
        """The event loop runs. Called every PULSE_EVERY_S, from the start on."""
        now_ms = self._clock.monotonic_ms()
        if self._pulse_ms is not None and now_ms - self._pulse_ms > STALL_NOTICED_FROM_MS:
            self._deaf_until_ms = now_ms  # before the pulse: another thread looks at both
        self._pulse_ms = now_ms

    def came(self, host: str) -> None:
        """The host is new in the fleet: until now nobody waited to hear it."""
        self._came_ms[host] = self._clock.monotonic_ms()

    def lost(self, host: str) -> None:
        """The host is off: it is not heard until it speaks again, however little time passes."""
        self._lost.add(host)

    def heard(self, host: str, *, at_ms: int, refuses: str = "") -> None:
        """The host was heard at this time; `refuses` says why it obeys nothing of this control.

        What one says that has no power was said before, and does not count.
        """
        if not self._has_power(host):
            return
        self._lost.discard(host)
        if at_ms - self._last_ms(host) >= HOST_SILENT_AFTER_MS:
            self._silences[host] += 1
        self._heard_ms[host] = at_ms
        self._note_refusal(host, refuses)

    def _note_refusal(self, host: str, refuses: str) -> None:
        before = self.refuses(host)
        if refuses:
            self._refusing[host] = refuses
        else:
            self._refusing.pop(host, None)
        did, does = (words not in ("", NOT_YET) for words in (before, refuses))
        if does and not did:
            log.error("host_refuses_control", host=host, why=refuses)
        elif did and not does:
            log.info("host_refuses_no_longer", host=host)

    def report(self, host: str, vms: Mapping[str, ReportedVm]) -> None:
        """The host reported these VMs: it can reach its hypervisor."""
        self._blind.pop(host, None)
        self._reports[host] = vms

    def is_blind(self, host: str, why: str) -> None:
        """The hypervisor of the host does not answer."""
        self._blind[host] = why or "it does not say why"

    def forget(self, host: str) -> None:
        """The host has left: what it said does not count any more."""
        for known in (self._reports, self._blind, self._refusing):
            known.pop(host, None)
