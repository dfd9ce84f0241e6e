"""The book of faults: which there are, which of them hit a request, and when they are over.

Everything here belongs to the event loop's thread. Nothing here knows HTTP; `endpoint` does
to a request what the book says. `kinds` says what each kind is, `orders` reads orders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from forewarn.core.errors import Conflict, NotFound
from forewarn.core.incarnation_marks import ScopeWithIncarnation
from forewarn.core.model import SECOND_MS
from forewarn.core.suggestions import meant, shown
from forewarn.emulator.faults.kinds import KINDS, FaultKind
from forewarn.emulator.faults.orders import FaultOrder
from forewarn.wire.instants import time_text

# At once; each is looked at for every request.
FAULTS_MAX = 100
# How many that are over are still known, with their hits.
FAULTS_OVER_KEPT_MAX = 1_000

# The kinds of which at most one decides a request: the oldest that hits it. The others are rules
# that hold beside them.
ONE_PER_REQUEST = frozenset(row.kind for row in KINDS.values() if row.methods) - {
    FaultKind.UNQUOTED_ETAG
}
OF_ACTIONS = frozenset({FaultKind.ACTION_FAILS, FaultKind.ACTION_HANGS, FaultKind.ACTION_SLOW})


class Fault(Struct, frozen=True, kw_only=True):
    """A fault as it is now: what was ordered, until when, and how often it has hit."""

    fault_id: str
    order: FaultOrder
    added_ms: int
    until_ms: int | None = None
    hits: int = 0
    over: bool = False

    @property
    def kind(self) -> FaultKind:
        return self.order.kind


class _Entry(Struct):
    """A fault that stands, and what it remembers of each VM or scope."""

    fault: Fault
    looked: dict[str, int] = field(default_factory=dict)  # how often it looked, for `share`
    slowed: set[str] = field(default_factory=set)  # VMs that had their slow first answer


class _Numbering(Struct):
    """One scope: the true incarnation as last seen, and how many were skipped on top."""

    seen: int
    skipped: int = 0


class FaultBook:
    """All faults, oldest first. The same seed and the same requests give the same choices.

    `vms` gives the names of the VMs there are; without it every name is believed. Incarnations go
    on after those in `after`, by scope.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        seed: int,
        *,
        vms: Callable[[], Collection[str]] | None = None,
        after: Mapping[str, int] | None = None,
    ) -> None:
        self._after = after or {}
        self._now_ms = now_ms
        self._seed = seed
        self._vms = vms
        self._added = 0
        self._entries: dict[str, _Entry] = {}
        self._over: dict[str, Fault] = {}
        self._numbering: dict[str, _Numbering] = {}
        self._hidden: set[str] = set()  # started events that no guest reads

    # What operators do.

    def add(self, order: FaultOrder) -> Fault:
        """The fault stands from now on. Raises NotFound for its VM, Conflict if there are too many.

        A book that is asked for the same faults in the same order names them the same: f1, f2.
        """
        self._end_due()
        self._refuse_stranger(order.vm)
        if len(self._entries) >= FAULTS_MAX:
            raise Conflict(
                f"There are {FAULTS_MAX} faults already.",
                "Clear some first: `forewarn fault clear ID`.",
            )
        self._added += 1
        now_ms = self._now_ms()
        fault = Fault(
            fault_id=f"f{self._added}",
            order=order,
            added_ms=now_ms,
            until_ms=None if order.for_ms is None else now_ms + order.for_ms,
        )
        self._entries[fault.fault_id] = _Entry(fault)
        return fault

    def _refuse_stranger(self, vm: str | None) -> None:
        if vm is None or self._vms is None:
            return
        names = self._vms()
        if vm not in names:
            raise NotFound(f"There is no VM {shown(vm)}.", meant(vm, names))

    def list(self, *, over: bool = False) -> tuple[Fault, ...]:
        """Those that stand, oldest first; with `over` also those that are over, in front."""
        self._end_due()
        standing = tuple(entry.fault for entry in self._entries.values())
        return (*self._over.values(), *standing) if over else standing

    def get(self, fault_id: str) -> Fault:
        """The fault, also if it is over. Raises NotFound for one that is not known."""
        self._end_due()
        entry = self._entries.get(fault_id)
        fault = self._over.get(fault_id) if entry is None else entry.fault
        if fault is None:
            raise NotFound(
                f"There is no fault {shown(fault_id)}.",
                "`forewarn fault list` shows those there are.",
            )
        return fault

    def clear(self, fault_id: str | None = None) -> tuple[Fault, ...]:
        """End one fault, or all; what is over stays over. Returns those that this has ended.

        An answer that is being delayed or stalls at the moment still is. Raises NotFound.
        """
        if fault_id is None:
            ended = self.list()
        else:
            fault = self.get(fault_id)
            ended = () if fault.over else (fault,)
        return tuple(self._end(fault) for fault in ended)

    def ends(self) -> int | None:
        """When the next fault ends by the clock, in wall milliseconds; None if none will."""
        self._end_due()
        ends_ms = [entry.fault.until_ms for entry in self._entries.values()]
        return min((until_ms for until_ms in ends_ms if until_ms is not None), default=None)

    # What requests and documents meet.

    def pick(
        self, vm: str, method: str, kinds: Collection[FaultKind] = ONE_PER_REQUEST
    ) -> Fault | None:
        """The oldest fault of these kinds that hits this request, with the hit counted."""
        if not self._entries:
            return None
        self._end_due()
        for entry in tuple(self._entries.values()):
            order = entry.fault.order
            if order.kind not in kinds or not _fits(order, vm, method):
                continue
            if order.kind is FaultKind.SLOW_FIRST and vm in entry.slowed:
                continue
            if self._chosen(entry, vm):
                return self._hit(entry, vm)
        return None

    def rate_limit(self, vm: str) -> Fault | None:
        """The oldest rate limit of this VM; nothing is counted until `refused`."""
        if not self._entries:
            return None
        self._end_due()
        limits = (e.fault for e in self._entries.values() if e.fault.kind is FaultKind.RATE_LIMIT)
        return next((fault for fault in limits if fault.order.vm in (None, vm)), None)

    def refused(self, fault_id: str, vm: str) -> None:
        """A rate limit has hit. Without effect if it does not stand any more."""
        entry = self._entries.get(fault_id)
        if entry is not None:
            self._hit(entry, vm)

    def renumbered(self, scope: ScopeWithIncarnation) -> int:
        """The incarnation that guests see: the scope's, and everything skipped so far on top.

        To be asked for every scope that is shown. Each incarnation since the last call is a change
        that a `skip` of one of its VMs may hit (L14); what was skipped stays skipped for good.
        """
        numbering = self._numbering.get(scope.name)
        if numbering is None:
            numbering = self._numbering[scope.name] = _Numbering(
                scope.incarnation, self._after.get(scope.name, 0)
            )
        for number in range(numbering.seen + 1, scope.incarnation + 1):
            if self._starts_over(scope):
                numbering.skipped = 1 - number
            numbering.skipped += self._skip(scope)
        numbering.seen = scope.incarnation
        return scope.incarnation + numbering.skipped

    def hidden(self, scope: ScopeWithIncarnation, started: Iterable[str]) -> frozenset[str]:
        """Those of the started events of a scope that its guests must not read."""
        for event_id in started:
            if event_id not in self._hidden:
                entry = next(self._of_scope(FaultKind.NEVER_STARTED, scope), None)
                if entry is not None:
                    self._hidden.add(event_id)
                    self._hit(entry, scope.name)
        return frozenset(self._hidden.intersection(started))

    def late_ms(self, scope: ScopeWithIncarnation) -> int:
        """How late a change of this scope is shown, by the oldest fault; 0 if it is not."""
        entry = next(self._of_scope(FaultKind.LATE_DOCUMENT, scope), None)
        if entry is None:
            return 0
        self._hit(entry, scope.name)
        return entry.fault.order.delay_ms or 0

    def of_action(self, names: Collection[str]) -> Fault | None:
        """The oldest fault that hits an action on one of these VMs, with the hit counted."""
        self._end_due()
        for entry in tuple(self._entries.values()):
            order = entry.fault.order
            if order.kind not in OF_ACTIONS or not (order.vm is None or order.vm in names):
                continue
            whom = order.vm or next(iter(names), "")
            if self._chosen(entry, whom):
                return self._hit(entry, whom)
        return None

    def unheard(self, vm: str) -> Fault | None:
        """The oldest fault by which the VM has no listener; nothing is counted until `refused`."""
        self._end_due()
        found = (e.fault for e in self._entries.values() if e.fault.kind is FaultKind.NO_LISTENER)
        return next((fault for fault in found if fault.order.vm in (None, vm)), None)

    def incarnations(self) -> dict[str, int]:
        """The last incarnation of each scope that guests were shown."""
        return {name: one.seen + one.skipped for name, one in self._numbering.items()}

    def drawn_order(self, fault: Fault, count: int) -> Sequence[int]:
        """An order of so many things, drawn for this hit of the fault."""
        words = f"{self._seed}\n{fault.fault_id}\n{fault.hits}".encode()
        return sorted(range(count), key=lambda n: _drawn(words + b"\n%d" % n))

    # How.

    def _of_scope(self, kind: FaultKind, scope: ScopeWithIncarnation) -> Iterator[_Entry]:
        """The faults of a kind that stand for a scope, or for one of its VMs."""
        self._end_due()
        names = {vm.name for vm in scope.vms}
        for entry in tuple(self._entries.values()):
            order = entry.fault.order
            if order.kind is kind and (order.vm is None or order.vm in names):
                yield entry

    def _skip(self, scope: ScopeWithIncarnation) -> int:
        """How many incarnations one change of this scope skips."""
        skipped = 0
        for entry in self._of_scope(FaultKind.SKIP, scope):
            if self._chosen(entry, scope.name):
                skipped += entry.fault.order.by or 0
                self._hit(entry, scope.name)
        return skipped

    def _starts_over(self, scope: ScopeWithIncarnation) -> bool:
        """Whether one change of this scope begins to count from 1 again."""
        for entry in self._of_scope(FaultKind.START_OVER, scope):
            if self._chosen(entry, scope.name):
                self._hit(entry, scope.name)
                return True
        return False

    def _chosen(self, entry: _Entry, whom: str) -> bool:
        """Whether a fault with a share hits this time.

        Each VM has its own row of choices, made from the seed, the fault and how often the fault
        has looked at that VM: what other VMs do meanwhile changes nothing.
        """
        share = entry.fault.order.share
        if share is None:
            return True
        turn = entry.looked[whom] = entry.looked.get(whom, 0) + 1
        words = f"{self._seed}\n{entry.fault.fault_id}\n{turn}\n{whom}".encode()
        return _drawn(words) < share * 2**64

    def _hit(self, entry: _Entry, vm: str) -> Fault:
        fault = entry.fault = replace(entry.fault, hits=entry.fault.hits + 1)
        order = fault.order
        once = order.kind is FaultKind.SLOW_FIRST
        if once:
            entry.slowed.add(vm)
        if fault.hits == order.count or (once and order.vm is not None):
            return self._end(fault)
        return fault

    def _end(self, fault: Fault) -> Fault:
        del self._entries[fault.fault_id]
        over = self._over[fault.fault_id] = replace(fault, over=True)
        if len(self._over) > FAULTS_OVER_KEPT_MAX:
            del self._over[next(iter(self._over))]
        return over

    def _end_due(self) -> None:
        """End what the clock has ended."""
        now_ms = self._now_ms()
        for fault in [entry.fault for entry in self._entries.values()]:
            if fault.until_ms is not None and now_ms >= fault.until_ms:
                self._end(fault)


def _drawn(words: bytes) -> int:
    """A number below 2**64, always the same for the same words."""
    return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "big")


def _fits(order: FaultOrder, vm: str, method: str) -> bool:
    return order.vm in (None, vm) and order.method in (None, method)


def fault_json(fault: Fault) -> dict[str, object]:
    """A fault as the operator API and the command line show it. Lengths of time are seconds."""
    order = fault.order
    return {
        "fault_id": fault.fault_id,
        "kind": order.kind.value,
        "vm": order.vm,
        "method": None if order.method is None else order.method.value,
        "count": order.count,
        "share": order.share,
        "seconds": None if order.delay_ms is None else order.delay_ms / SECOND_MS,
        "retry_after": order.retry_after_s,
        "by": order.by,
        "per_second": order.per_second,
        "document": order.document,
        "added": time_text(fault.added_ms),
        "until": time_text(fault.until_ms),
        "hits": fault.hits,
        "over": fault.over,
    }
