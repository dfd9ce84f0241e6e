"""One use case at work: the fleet as it is now, and everything the use case changes.

A transaction edits the writer's index in place and can take its edits back; what the store has not
kept is taken back. Nothing here waits, and nothing here decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from forewarn.control.archive import Archive
from forewarn.control.fleet_index import FleetIndex
from forewarn.control.fleet_reader import FleetLook
from forewarn.control.hosts.feed_positions import shown_alike
from forewarn.control.hosts.liveness import HeardByWriter, ReportedVm
from forewarn.control.volatile import Volatile
from forewarn.core import document, invariants, scope_edits
from forewarn.core.errors import Refusal
from forewarn.core.facts import is_typed
from forewarn.core.incarnation_marks import MARKS_MAX, VmKey, key_of
from forewarn.core.inventory import vm_changes_scope
from forewarn.core.model import (
    Decision,
    Fact,
    Host,
    Operation,
    OperationPhase,
    Policy,
    ScheduledEvent,
    Scope,
    Vm,
    Webhook,
)
from forewarn.core.retention import Prunable
from forewarn.core.tokens import Token
from forewarn.ports import (
    Change,
    DepartedVm,
    FirstRead,
    Ids,
    JournalLine,
    RememberedAnswer,
    VmDefinition,
)

V = TypeVar("V")

DEPARTED_MAX = MARKS_MAX  # hosts remember no more VMs either


class Undo(Struct, frozen=True):
    """What a transaction replaced, so that it can be put back."""

    scopes: dict[str, Scope | None]
    hosts: dict[str, Host | None]
    operations: dict[str, Operation | None]

    def and_then(self, later: Undo) -> None:
        """Have also what was replaced later, but for what was replaced before."""
        for scope in later.scopes:
            self.scopes.setdefault(scope, later.scopes[scope])
        for host in later.hosts:
            self.hosts.setdefault(host, later.hosts[host])
        for operation in later.operations:
            self.operations.setdefault(operation, later.operations[operation])


class Transaction(FleetLook):
    """One use case at work: the fleet as it is now, and everything the use case changes.

    It answers the questions of `core.fleet.Fleet`, its own changes included. Every command gets a
    new one; the writer seals it, saves it and only then publishes it.
    """

    def __init__(
        self,
        index: FleetIndex,
        heard: HeardByWriter,
        archive: Archive,
        *,
        now_ms: int,
        monotonic_ms: int,
        commit: int,
        volatile: Volatile,
        policy: Policy,
        ids: Ids,
    ) -> None:
        super().__init__(index, heard, policy, now_ms=now_ms)
        self._heard = heard
        self.monotonic_ms = monotonic_ms  # by which what is volatile is counted
        self.volatile = volatile
        self.reported_by: set[str] = set()  # hosts that reported other VMs than before, or left
        self._commit = commit
        self._archive = archive
        self._ids = ids
        self._before = Undo({}, {}, {})
        self._facts: list[Fact] = []
        self._first_reads: list[FirstRead] = []
        self._remembered: RememberedAnswer | None = None
        self._heartbeat_ms: int | None = None
        self._inventory: str | None = None
        self._inventory_packed: str | None = None
        self._inventory_before = index.inventory
        self._unfinished: str | None = None
        self._unfinished_before = index.unfinished
        self._journal_before = index.journal
        self._definitions: dict[str, VmDefinition] = {}
        self._digests_before: dict[str, str | None] = {}
        self._departed_before: dict[VmKey, DepartedVm | None] = {}
        self._ended_operations: dict[str, Operation] = {}
        self._on_take_back: list[Callable[[], None]] = []
        self._pruned: Prunable | None = None
        self._tokens: dict[str, Token | None] = {}  # None for those that go
        self._webhooks: dict[str, Webhook | None] = {}  # the same

    def new_id(self) -> str:
        return self._ids.event_id()

    def ids(self) -> Iterator[str]:
        """As many new ids as are asked for."""
        while True:
            yield self._ids.event_id()

    # What is kept beyond the open things. What came before in the same commit is included.

    def known_ids(self, scope: str, event_ids: Collection[str]) -> frozenset[str]:
        """Those of the (upper-case) ids that the scope has or ever had."""
        found = self._archive.events(event_ids)
        return frozenset(key for key, event in found.items() if event.scope == scope)

    def kept_events(self, event_ids: Iterable[str]) -> Sequence[ScheduledEvent]:
        """Those of these events that are kept, open or ended."""
        return list(self._archive.events(event_ids).values())

    def kept_event(self, event_id: str) -> ScheduledEvent | None:
        """An event, open or ended."""
        return self._archive.events((event_id,)).get(event_id)

    def kept_operation(self, operation_id: str) -> Operation | None:
        """An operation, open or ended."""
        return self._archive.operation(operation_id)

    def kept_event_ids(self, beginning: str) -> Sequence[str]:
        """Ids of events, open or ended, that begin so: enough to know whether one does."""
        return self._archive.event_ids(beginning)

    def kept_operation_ids(self, beginning: str) -> Sequence[str]:
        """The same of operations."""
        return self._archive.operation_ids(beginning)

    def remembered(self, key: str) -> RememberedAnswer | None:
        """The answer kept under an idempotency key."""
        return self._archive.remembered(key)

    def prunable(self, before_ms: int) -> Prunable:
        """A slice of what ended before that, oldest first."""
        return self._archive.prunable(before_ms)

    # Changing.

    def apply(self, decision: Decision) -> None:
        """Take a decision over. Later questions see it; it is durable when the writer says so."""
        self._places = None
        for scope in decision.scopes:
            self._before.scopes.setdefault(scope.name, self._index.scopes.get(scope.name))
            self._index.put_scope(scope.name, scope)
        for host in decision.hosts:
            self._before.hosts.setdefault(host.name, self._index.hosts.get(host.name))
            self._index.put_host(host.name, host)
        for operation in decision.operations:
            key = operation.operation_id
            self._before.operations.setdefault(key, self._index.operations.get(key))
            self._index.put_operation(key, operation)
            if operation.phase is OperationPhase.ENDED:
                self._ended_operations[key] = operation
        self._facts.extend(decision.facts)

    def attempt(self, part: Callable[[], None]) -> Refusal | None:
        """Do a part of the use case, or nothing of it if it is refused: then the refusal."""
        before, self._before = self._before, Undo({}, {}, {})
        facts, undoes = len(self._facts), len(self._on_take_back)
        ended = dict(self._ended_operations)
        try:
            part()
        except Refusal as why:
            while len(self._on_take_back) > undoes:
                self._on_take_back.pop()()
            self._put_back(self._before)
            del self._facts[facts:]
            self._ended_operations = ended
            return why
        finally:
            before.and_then(self._before)
            self._before = before
        return None

    def remove_scope(self, name: str) -> None:
        self._places = None
        self._before.scopes.setdefault(name, self._index.scopes.get(name))
        self._index.put_scope(name, None)

    def remove_host(self, name: str) -> None:
        self._places = None
        self.restore_power(name)
        self._before.hosts.setdefault(name, self._index.hosts.get(name))
        self._index.put_host(name, None)

    def cut_power(self, host: str) -> None:
        """Cut the power of a simulated host; of others it is not ours to cut. See `HostPower`."""
        power = self._heard.power
        if power is not None and power.on(host):
            power.cut(host)
            self.on_take_back(lambda: power.restore(host))

    def restore_power(self, host: str) -> bool:
        """Give a simulated host its power back; it is heard again once it has booted.

        False for others: their power is not ours.
        """
        power = self._heard.power
        if power is not None and not power.on(host):
            power.restore(host)
            self.on_take_back(lambda: power.cut(host))
        return power is not None

    def note(self, *facts: Fact) -> None:
        """Add facts that belong to no decision."""
        self._facts.extend(facts)

    def prune(self, what: Prunable, fact: Fact) -> None:
        """Take this away, with the line that says so."""
        self._pruned = what
        self._facts.append(fact)

    def put_token(self, token_id: str, token: Token | None) -> None:
        """Keep a token, or with None forget it."""
        self.put(self._index.tokens, token_id, token)
        self._tokens[token_id] = token

    def put_webhook(self, webhook_id: str, webhook: Webhook | None) -> None:
        """Keep a webhook, or with None forget it."""
        self.put(self._index.webhooks, webhook_id, webhook)
        self._webhooks[webhook_id] = webhook

    def receipts(self, first_reads: Iterable[FirstRead]) -> None:
        self._first_reads.extend(first_reads)

    def remember(self, remembered: RememberedAnswer) -> None:
        self._remembered = remembered

    def beat(self) -> None:
        """Write down that the service is up."""
        self._heartbeat_ms = self.now_ms

    def hears(self, host: str, *, refuses: str = "") -> None:
        """The host speaks; `refuses` says why it obeys nothing of this control."""
        known = self._heard.if_heard(host, at_ms=self.monotonic_ms, refuses=refuses)
        if known is not None:
            self.put(self._heard.hosts, host, known)

    def hears_of_vms(self, host: str, vms: Mapping[str, ReportedVm]) -> None:
        """The host reports these VMs: it can reach its hypervisor."""
        self._put_report(host, vms)
        if self.hypervisor_unreachable(host):
            self.put(self._heard.hosts, host, self._heard.if_unreachable(host, ""))

    def _put_report(self, host: str, vms: Mapping[str, ReportedVm] | None) -> None:
        self.put(self._heard.reports, host, vms)
        self.reported_by.add(host)

    def put(self, known: dict[str, V], key: str, value: V | None) -> None:
        """Have this, or nothing, in one of the maps that are not durable; see `volatile`."""
        before = known.get(key)
        if value is not before:
            self.on_take_back(partial(_put, known, key, before))
            _put(known, key, value)

    def on_take_back(self, restore: Callable[[], None]) -> None:
        """Also call this if the transaction is taken back: what else it touched."""
        self._on_take_back.append(restore)

    def applied_inventory(self, text: str, packed: str | None = None) -> None:
        """Keep the text of the inventory that this transaction applies.

        `packed` is the same by `wire.packed`, if it was made beforehand: it takes a while.
        """
        self._inventory = self._index.inventory = text
        self._inventory_packed = packed
        self.finish_inventory()

    def decide_inventory(self, text: str, packed: str, about: str) -> None:
        """Keep the text of an inventory that is applied from now on, and what is noted of it."""
        self._inventory = self._index.inventory = text
        self._inventory_packed = packed
        self._unfinished = self._index.unfinished = about

    def finish_inventory(self) -> None:
        """The inventory is applied whole."""
        if self._index.unfinished:
            self._unfinished = self._index.unfinished = ""

    def define(self, definition: VmDefinition) -> None:
        """Keep what a host showed of a VM, for as long as the VM is in the fleet."""
        self._put_digest(definition.vm, definition.digest)
        self._definitions[definition.vm] = definition

    def _put_digest(self, vm: str, digest: str | None) -> None:
        digests = self._index.digests
        self._digests_before.setdefault(vm, digests.get(vm))
        if digest is None:
            digests.pop(vm, None)
        else:
            digests[vm] = digest

    # For the writer.

    def seal(self) -> Change | None:
        """Count, check and collect what was changed; None if nothing was.

        After this the index holds the sealed values, without what has ended.
        """
        if self._untouched():
            return None  # most claims and looks
        self._note_departures()
        left, departed = self._departed_before, self._index.departed
        scopes: list[tuple[Scope | None, Scope]] = []
        removed: list[str] = []
        shown: list[str] = []
        for name, before in sorted(self._before.scopes.items()):
            after = self._index.scopes.get(name)
            if after is None:
                removed.append(name)
                continue
            if after == before:
                continue
            sealed = scope_edits.seal(before, after)
            invariants.check(before, sealed, self.now_ms)
            scopes.append((before, sealed))
            if before is None or not shown_alike(before, sealed):
                shown.append(name)
            self._index.put_scope(name, scope_edits.open_only(sealed))
        self._forget_definitions()
        self._end_leases()
        hosts, removed_hosts = self._seal_hosts()
        change = Change(
            commit=self._commit,
            shown=tuple(shown),
            scopes=tuple(scopes),
            hosts=hosts,
            operations=self._seal_operations(),
            removed_scopes=tuple(removed),
            removed_hosts=removed_hosts,
            lines=self._number_lines(),
            first_reads=tuple(self._first_reads),
            remembered=self._remembered,
            heartbeat_ms=self._heartbeat_ms,
            pruned=self._pruned,
            inventory=self._inventory,
            inventory_packed=self._inventory_packed,
            unfinished=self._unfinished,
            definitions=tuple(self._definitions.values()),
            removed_definitions=tuple(
                vm for vm in sorted(self._digests_before) if vm not in self._index.digests
            ),
            departed_vms=tuple(departed[key] for key in sorted(left) if key in departed),
            forgotten_vms=tuple(key for key in sorted(left) if key not in departed),
            tokens=_values(self._tokens),
            removed_tokens=_gone(self._tokens),
            webhooks=_values(self._webhooks),
            removed_webhooks=_gone(self._webhooks),
        )
        return None if change == Change(commit=self._commit) else change

    def _number_lines(self) -> tuple[JournalLine, ...]:
        """The facts, each under the number that follows; the journal ends after the last."""
        journal = self._index.journal
        lines = []
        for number, fact in enumerate(self._facts, journal.end + 1):
            if not is_typed(fact):
                raise TypeError(f"a {fact.kind.value} fact may not say {fact.detail}")
            lines.append(JournalLine(number=number, fact=fact))
        if lines:
            gone = self._pruned.lines if self._pruned is not None else ()
            pruned_through = max(journal.pruned_through, *gone, 0)
            self._index.journal = replace(
                journal, end=journal.end + len(lines), pruned_through=pruned_through
            )
        return tuple(lines)

    def _untouched(self) -> bool:
        before = self._before
        changed = before.scopes or before.hosts or before.operations or self._digests_before
        noted = self._facts or self._first_reads or self._definitions or self._remembered
        said = self._heartbeat_ms is not None or self._inventory is not None
        said = said or self._unfinished is not None or bool(self._tokens or self._webhooks)
        return not (changed or noted or said)

    def _note_departures(self) -> None:
        """Keep how far VMs may have read that leave; those that come back go on above that.

        Only for VMs that hosts have shown: it is hosts that remember it too.
        """
        index, changed = self._index, []
        for name, before in self._before.scopes.items():
            after = index.scopes.get(name)
            if before is None or after is None or before.vms is not after.vms:
                changed.append((before, after))
        known = {key_of(vm) for before, _ in changed for vm in (before.vms if before else ())}
        for before, _ in changed:
            for vm in before.vms if before else ():
                now = index.vms.get(vm.name)
                gone = now is None or key_of(now) != key_of(vm)
                if before is not None and gone and vm.name in index.digests:
                    self._departs(vm, before)
        for _, after in changed:
            came = [vm for vm in after.vms if key_of(vm) not in known] if after else []
            read = max(map(self._read_by, came), default=0)
            if after is not None and read:
                self.apply(Decision(scopes=(vm_changes_scope.above_what_was_read(after, read),)))

    def _departs(self, vm: Vm, left: Scope) -> None:
        departed, key = self._index.departed, key_of(vm)
        earlier = departed.pop(key, None)
        self._departed_before.setdefault(key, earlier)
        read = max(left.incarnation, earlier.incarnation if earlier else 0)
        departed[key] = DepartedVm(key=key, incarnation=read, left_ms=self.now_ms)
        while len(departed) > DEPARTED_MAX:
            oldest = next(iter(departed))
            self._departed_before.setdefault(oldest, departed.pop(oldest))

    def _read_by(self, vm: Vm) -> int:
        departed = self._index.departed.get(key_of(vm))
        return departed.incarnation if departed and departed.incarnation > 1 else 0

    def _forget_definitions(self) -> None:
        """What was kept of VMs that have left the fleet goes with them."""
        if not self._index.digests:
            return
        for before in self._before.scopes.values():
            for vm in before.vms if before is not None else ():
                if vm.name not in self._index.scope_of_vm and vm.name in self._index.digests:
                    self._put_digest(vm.name, None)
                    self._definitions.pop(vm.name, None)

    def _end_leases(self) -> None:
        """End the claims on what has ended or is gone, for whatever reason."""
        leases, index = self.volatile.leases, self._index
        if not leases:
            return
        for name, scope in self._before.scopes.items():
            for action_id in sorted(_acts_no_more(scope, index.scopes.get(name)) & leases.keys()):
                self.put(leases, action_id, None)
        for key in sorted(self._before.operations.keys() & leases.keys()):
            operation = index.operations.get(key)
            if operation is None or operation.action is None or operation.action.ended:
                self.put(leases, key, None)

    def _seal_hosts(self) -> tuple[tuple[tuple[Host | None, Host], ...], tuple[str, ...]]:
        changed: list[tuple[Host | None, Host]] = []
        removed = []
        for name, before in sorted(self._before.hosts.items()):
            after = self._index.hosts.get(name)
            self._hear_of_change(name, before, after)
            if after is None:
                removed.append(name)
            elif after != before:
                sealed = replace(after, revision=before.revision + 1) if before else after
                changed.append((before, sealed))
                self._index.put_host(name, sealed)
        return tuple(changed), tuple(removed)

    def _hear_of_change(self, name: str, before: Host | None, after: Host | None) -> None:
        """Begin to wait for a host that is new; forget what a host said that has left.

        Of one that is gone nothing is kept, but for `looks`: the next report takes that away.
        """
        heard, looks = self._heard, self.volatile.looks
        if before is None and after is not None:
            self.put(heard.hosts, name, heard.if_new(name, at_ms=self.monotonic_ms))
        if before is not None and (after is None or (before.joined and not after.joined)):
            self.put(heard.hosts, name, heard.if_gone(name) if after is not None else None)
            self._put_report(name, None)
            if after is None:
                for known in self.volatile.by_host():
                    self.put(known, name, None)
            if name in looks:  # should it report the same VMs again, that is news
                self.put(looks, name, msgspec.structs.replace(looks[name], told=()))

    def _seal_operations(self) -> tuple[tuple[Operation | None, Operation], ...]:
        changed: list[tuple[Operation | None, Operation]] = []
        for key, before in sorted(self._before.operations.items()):
            after = self._ended_operations.get(key) or self._index.operations.get(key)
            if after is None or after == before:
                continue
            sealed = replace(after, revision=before.revision + 1) if before else after
            changed.append((before, sealed))
            self._index.put_operation(key, sealed)
        return tuple(changed)

    def take_back(self) -> None:
        """Put everything back as it was before this transaction."""
        for restore in reversed(self._on_take_back):
            restore()
        self._index.inventory = self._inventory_before
        self._index.unfinished = self._unfinished_before
        self._index.journal = self._journal_before
        for vm, digest in self._digests_before.items():
            self._put_digest(vm, digest)
        self._take_departures_back()
        self._put_back(self._before)

    def _put_back(self, before: Undo) -> None:
        self._places = None
        for name, scope in before.scopes.items():
            self._index.put_scope(name, scope)
        for name, host in before.hosts.items():
            self._index.put_host(name, host)
        for key, operation in before.operations.items():
            self._index.put_operation(key, operation)

    def _take_departures_back(self) -> None:
        departed = self._index.departed
        for key in self._departed_before:
            departed.pop(key, None)
        back = [one for one in self._departed_before.values() if one is not None]
        if back:
            in_order = sorted([*departed.values(), *back], key=lambda one: (one.left_ms, one.key))
            departed.clear()
            departed.update((one.key, one) for one in in_order)


def _acts_no_more(before: Scope | None, after: Scope | None) -> set[str]:
    """The actions of a scope that have ended since, or are gone with their event."""
    if before is None:
        return set()
    if after is None:
        return _acted_on(before.events)
    pairs, gone = document.moved(before, after)
    were = [old for old, _ in pairs if old is not None]
    return _acted_on((*were, *gone)) - _acted_on(new for _, new in pairs)


def _acted_on(events: Iterable[ScheduledEvent]) -> set[str]:
    """The actions of events that have not ended."""
    return {one.action_id for event in events for one in event.actions if not one.ended}


def _values(changed: Mapping[str, V | None]) -> tuple[V, ...]:
    """What is there after the change, by its key."""
    return tuple(one for _, one in sorted(changed.items(), key=itemgetter(0)) if one is not None)


def _gone(changed: Mapping[str, V | None]) -> tuple[str, ...]:
    """The keys of what is not there any more."""
    return tuple(key for key, one in sorted(changed.items(), key=itemgetter(0)) if one is None)


def _put(known: dict[str, V], key: str, value: V | None) -> None:
    """Have this under the key, or nothing."""
    if value is None:
        known.pop(key, None)
    else:
        known[key] = value
