"""A step as orders of the control plane: whom it means now, and what it orders there.

Everything a step does to the fleet is one transaction: whole, or refused with a sentence. The
orders are those that every operator has (`control.commands`); nothing here is a rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from forewarn.control import commands
from forewarn.control.fleet_reader import FleetReader
from forewarn.core.errors import Conflict, NotFound
from forewarn.core.model import (
    EventType,
    Operation,
    Phase,
    ScheduledEvent,
    Scope,
    Vm,
)
from forewarn.core.principal import OPERATOR, Principal
from forewarn.core.suggestions import meant, shown
from forewarn.core.vm_profile import Priority
from forewarn.emulator.scenarios.values import (
    HOST_VERBS,
    VM_VERBS,
    Needs,
    Scenario,
    ScenarioStep,
    StepPlace,
    Verb,
    Whom,
)
from forewarn.wire.instants import TimeInput, WindowInput

APPROVED_BECAUSE = BROKEN_BECAUSE = "the scenario says so"


class UnfitFleet(Conflict):
    """The fleet has not what the scenario needs."""


class RunTarget(Struct, frozen=True, kw_only=True):
    """What a run is about: a VM, and the VMs and update domains of its scope, counted from it.

    Taken down when the run starts, so that `vm 2` stays the same VM whatever happens.
    """

    vm: str
    scope: str
    vms: tuple[str, ...]
    domains: tuple[int, ...]


class StepResult(Struct, frozen=True, kw_only=True):
    """What a step has made, and the hosts it was done to."""

    event_ids: tuple[str, ...] = ()
    operation_ids: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    fault_ids: tuple[str, ...] = ()
    held: tuple[str, ...] = ()  # the owners of the actions that the step leads to


# Before a run.


def choose_target(fleet: FleetReader, scenario: Scenario, on: str | None) -> RunTarget:
    """What the scenario runs on: the VM or scope that is named, else the first that will do.

    Raises NotFound for a name that nothing has and UnfitFleet, with a fleet that would do.
    """
    _refuse_strangers(scenario, fleet)
    needs = scenario.needs
    candidates = [_of_scope(scope, needs) for scope in _scopes(fleet) if scope.vms]
    if on is not None:
        candidates = [_named(on, needs, fleet)]
    lacking: list[tuple[str, str]] = []
    for scope, vm in candidates:
        lacks = list(_lacks(needs, scope, vm, fleet))
        if not lacks:
            return _target(scope, vm)
        lacking = lacking or lacks
    refused, accepted = lacking[0] if lacking else ("there is no VM", "Apply an inventory.")
    raise UnfitFleet(f"Scenario {scenario.name} cannot be run: {refused}.", accepted)


def _scopes(fleet: FleetReader) -> list[Scope]:
    return sorted(fleet.scopes.values(), key=lambda scope: scope.name)


def _named(on: str, needs: Needs, fleet: FleetReader) -> tuple[Scope, Vm]:
    for scope in _scopes(fleet):
        vm = scope.vm(on)
        if vm is not None:
            return scope, vm
    found = fleet.scope(on)
    if found is None or not found.vms:
        scopes = [scope for scope in _scopes(fleet) if scope.vms]
        known = [name for scope in scopes for name in (scope.name, *_names(scope))]
        there_are = meant(on, dict.fromkeys(known))
        raise NotFound(f"There is no VM or scope {shown(on)}.", there_are)
    return _of_scope(found, needs)


def _of_scope(scope: Scope, needs: Needs) -> tuple[Scope, Vm]:
    """The first VM of a scope that will do, else its first."""
    spot = (vm for vm in scope.vms if vm.profile.priority is Priority.SPOT or not needs.spot)
    return scope, next(spot, scope.vms[0])


def _names(scope: Scope) -> tuple[str, ...]:
    return tuple(vm.name for vm in scope.vms)


def _lacks(needs: Needs, scope: Scope, vm: Vm, fleet: FleetReader) -> Iterator[tuple[str, str]]:
    """What a VM lacks for a run of the scenario, and how to get a fleet that has it."""
    domains = {one.update_domain for one in scope.vms}
    if len(scope.vms) < needs.vms:
        yield (
            f"it needs {needs.vms} VMs in one scope, and scope {scope.name} has {len(scope.vms)}",
            _scope_of(needs.vms),
        )
    if len(domains) < needs.domains:
        yield (
            f"it needs {needs.domains} update domains, and scope {scope.name} has {len(domains)}",
            _scope_of(needs.domains),
        )
    hosts = len(list(fleet.hosts()))
    if hosts < needs.hosts:
        yield (
            f"it needs {needs.hosts} hosts, and the fleet has {hosts}",
            "`forewarn simulate` without --inventory has one for every VM, and a spare one.",
        )
    if needs.spot and vm.profile.priority is not Priority.SPOT:
        yield (
            f"it needs a spot VM, and {vm.name} is a regular one",
            f'`forewarn simulate --spot {vm.name}` has one; an inventory says priority = "spot".',
        )


def _scope_of(size: int) -> str:
    return f"A scope web:{size} has them: `forewarn simulate --scope web:{size}`."


def _refuse_strangers(scenario: Scenario, fleet: FleetReader) -> None:
    """Raise NotFound if a step names a VM or host that is not there, before anything is done."""
    vms = [name for scope in _scopes(fleet) for name in _names(scope)]
    for step in scenario.steps:
        if step.on is None or step.on.whom is not Whom.NAME:
            continue
        of_host = step.verb in HOST_VERBS
        known = [host.name for host in fleet.hosts()] if of_host else vms
        if step.on.name not in known:
            raise NotFound(
                f"Step {step.number} ({step.verb}): there is no {'host' if of_host else 'VM'} "
                f"{shown(step.on.name)}.",
                meant(step.on.name, known),
            )


def _target(scope: Scope, vm: Vm) -> RunTarget:
    names = _names(scope)
    first = names.index(vm.name)
    domains = sorted({one.update_domain for one in scope.vms})
    first_domain = domains.index(vm.update_domain)
    return RunTarget(
        vm=vm.name,
        scope=scope.name,
        vms=(*names[first:], *names[:first]),
        domains=(*domains[first_domain:], *domains[:first_domain]),
    )


# During a run.


def vms_meant(place: StepPlace, target: RunTarget, fleet: FleetReader) -> tuple[str, ...]:
    """The names of the VMs that a place means now; a VM that is gone may be among them."""
    if place.whom is Whom.NAME:
        return (place.name,)
    if place.whom is Whom.VM:
        return (target.vms[place.number - 1],)
    scope = fleet.need_scope(target.scope)
    if place.whom is Whom.SCOPE:
        return _names(scope)
    domain = target.domains[place.number - 1]
    return tuple(vm.name for vm in scope.vms if vm.update_domain == domain)


def _hosts_meant(place: StepPlace, target: RunTarget, fleet: FleetReader) -> tuple[str, ...]:
    if place.whom is Whom.NAME:
        return (place.name,)
    found: dict[str, None] = {}
    for name in vms_meant(place, target, fleet):
        vm = fleet.need_scope_of_vm(name).vm(name)
        if vm is not None:
            found[vm.host] = None
    return tuple(found)


class StepOrders(Struct, frozen=True, kw_only=True):
    """The orders of one step, and the hosts that they are about. `makes`: events count as made."""

    orders: tuple[commands.Order, ...]
    hosts: tuple[str, ...] = ()
    makes: bool = True


def orders_of(
    step: ScenarioStep,
    target: RunTarget,
    earlier: Mapping[str, StepResult],
    fleet: FleetReader,
    *,
    by: Principal = OPERATOR,
) -> StepOrders:
    """What one step orders now. `earlier` is what named steps have made. Raises Refusal."""
    if step.verb is Verb.CANCEL:
        return _cancel(_made_by(step, earlier), fleet, by)
    if step.verb is Verb.APPROVE:
        return _approve(_made_by(step, earlier), fleet, by)
    if step.verb is Verb.POSTPONE:
        return _postpone(_made_by(step, earlier), step.until_ms or 0, fleet, by)
    if step.on is None:
        return _order_hosts(step, _made_by(step, earlier).hosts, by)
    if step.verb in VM_VERBS:
        kind = commands.VM_ORDERS[VM_VERBS[step.verb][0]]
        vms = vms_meant(step.on, target, fleet)
        made = [kind(by=by, vm=vm, window=_window(step)) for vm in vms]
        if step.lose_disk:
            made = [replace(order, lose_disk=True) for order in made]
        return StepOrders(orders=tuple(made))
    return _order_hosts(step, _hosts_meant(step.on, target, fleet), by)


def made_by(step: StepOrders, answers: Sequence[object]) -> StepResult:
    """What the orders of a step have made, by what each of them was answered."""
    events: list[str] = []
    operations: list[Operation] = []
    for answer in answers if step.makes else ():
        match answer:
            case ScheduledEvent():
                events.append(answer.event_id)
            case commands.HostFailed():
                events += [event.event_id for event in answer.events]
            case Operation():
                operations.append(answer)
    held = [*events]
    for operation in operations:
        if not operation.whole_host:  # each VM moves by an action of its own
            held += [event_id for _, event_id in operation.members]
        else:
            held.append(operation.operation_id)
    return StepResult(
        event_ids=tuple(events),
        operation_ids=tuple(operation.operation_id for operation in operations),
        hosts=step.hosts,
        held=tuple(held),
    )


def _made_by(step: ScenarioStep, earlier: Mapping[str, StepResult]) -> StepResult:
    made = earlier.get(step.of or "")
    if made is None:
        raise Conflict(
            f"{step.of} was refused, so there is nothing to {step.verb}.",
            "`forewarn scenario runs` says why it was.",
        )
    return made


def _order_hosts(step: ScenarioStep, hosts: tuple[str, ...], by: Principal) -> StepOrders:
    return StepOrders(orders=tuple(_host_order(step, host, by) for host in hosts), hosts=hosts)


def _host_order(step: ScenarioStep, host: str, by: Principal) -> commands.Order:
    when = None if step.not_before_ms is None else _from_now(step.not_before_ms)
    match step.verb:
        case Verb.REPAIR:
            return commands.RepairHost(by=by, host=host)
        case Verb.FAIL:
            return commands.FailHost(by=by, host=host, fenced=step.fenced)
        case Verb.DEGRADE:
            return commands.DegradeHost(by=by, host=host, not_before=when, window=_window(step))
    return commands.MaintainHost(
        by=by,
        host=host,
        event_type=step.event_type or EventType.FREEZE,
        not_before=when,
        window=_window(step),
        duration_s=step.duration_s,
        description=step.description,
        break_domains=step.break_domains,
        lose_disk=step.lose_disk,
        reason=BROKEN_BECAUSE if step.break_domains else "",
    )


def _from_now(ms: int) -> TimeInput:
    return TimeInput(said=f"{ms} ms from now", from_now_ms=ms)


def _window(step: ScenarioStep) -> WindowInput | None:
    if step.window_ms is None:
        return None
    start_ms, end_ms = step.window_ms
    return WindowInput(start=_from_now(start_ms), end=_from_now(end_ms))


def _cancel(made: StepResult, fleet: FleetReader, by: Principal) -> StepOrders:
    """Cancel events one by one, and operations by one of their events."""
    event_ids = list(made.event_ids)
    for operation_id in made.operation_ids:
        scheduled = _scheduled(operation_id, fleet)
        if not scheduled:
            raise Conflict(
                f"Operation {operation_id} has no event left that has not started.",
                "Cancel it earlier.",
            )
        event_ids.append(scheduled[0])
    orders = tuple(commands.CancelEvent(by=by, event_id=one) for one in event_ids)
    return StepOrders(orders=orders, makes=False)


def _postpone(made: StepResult, until_ms: int, fleet: FleetReader, by: Principal) -> StepOrders:
    """Postpone events one by one; of a Freeze or Reboot of a host one takes the others along.

    A later step means the same by the name of what was postponed: the operation has the new events.
    """
    event_ids = list(made.event_ids)
    for operation_id in made.operation_ids:
        operation = fleet.operations.get(operation_id)
        scheduled = _scheduled(operation_id, fleet)
        together = operation is not None and operation.whole_host
        event_ids += scheduled[:1] if together else scheduled
    until = _from_now(until_ms)
    orders = tuple(commands.PostponeEvent(by=by, event_id=one, until=until) for one in event_ids)
    if not orders:
        raise Conflict("There is no event left that has not started.", "Postpone it earlier.")
    return StepOrders(orders=orders, makes=False)


def _approve(made: StepResult, fleet: FleetReader, by: Principal) -> StepOrders:
    scheduled = [one for each in made.operation_ids for one in _scheduled(each, fleet)]
    event_ids = (*made.event_ids, *scheduled)
    orders = tuple(
        commands.ApproveEvent(by=by, event_id=one, reason=APPROVED_BECAUSE) for one in event_ids
    )
    return StepOrders(orders=orders, makes=False)


def _scheduled(operation_id: str, fleet: FleetReader) -> list[str]:
    """The events of an operation that have not started."""
    operation = fleet.operations.get(operation_id)
    found = []
    for scope_name, event_id in operation.members if operation else ():
        scope = fleet.scope(scope_name)
        event = scope.event(event_id) if scope else None
        if event is not None and event.phase is Phase.SCHEDULED:
            found.append(event_id)
    return found
