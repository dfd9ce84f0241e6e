"""What hosts show of their VMs, taken whole or slice by slice: each function decides one command.

What a report changes is decided in `core.inventory.apply_report`. Kept (`volatile`) is what the
next report is compared with.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from forewarn.control import commands
from forewarn.control.commands import ReportTaken
from forewarn.control.hosts import vm_power
from forewarn.control.hosts.liveness import ReportedVm
from forewarn.control.hosts.report_slices import Report, Slice
from forewarn.control.transaction import Transaction
from forewarn.control.volatile import Look, Taking
from forewarn.core.errors import Conflict
from forewarn.core.inventory import apply_report
from forewarn.core.inventory.host_report import Power, SeenVm
from forewarn.ports import VmDefinition


def take_report(tx: Transaction, command: commands.TakeReport) -> ReportTaken:
    report = command.report
    taking = _begin(tx, report, command.number)
    last = _last(tx, report.host)
    here = _names_on(tx, report.host)
    looked = apply_report.step(
        report.host, _known(tx, report, last, here.union(report.usable)), _now(tx)
    )
    _apply(tx, looked)
    looked = _look_at_powers(tx, report, looked)
    _define(tx, report, report.usable)
    taking = _with(taking, looked, report.usable)
    taken = _close(tx, taking)
    here.update(_names_on(tx, report.host), report.usable, last.usable if last else ())
    _keep_times(tx, here, looked)
    return taken


def begin_report(tx: Transaction, command: commands.BeginReport) -> ReportTaken:
    return _take_slice(tx, _begin(tx, command.report, command.number), command.part)


def go_on_report(tx: Transaction, command: commands.GoOnReport) -> ReportTaken:
    return _take_slice(tx, _taking(tx, command.host, command.number), command.part)


def end_report(tx: Transaction, command: commands.EndReport) -> ReportTaken:
    taking = _taking(tx, command.host, command.number)
    report, last = taking.report, _last(tx, command.host)
    here = _names_on(tx, report.host).difference(report.usable)
    looked = apply_report.conclude(report.host, _known(tx, report, last, here), _now(tx))
    _apply(tx, looked)
    looked = _look_at_powers(tx, report, looked)
    taken = _close(tx, _with(taking, looked, ()))
    here.update(last.usable if last else ())
    here.difference_update(report.usable)
    _keep_times(tx, here, looked)
    return taken


def _take_slice(tx: Transaction, taking: Taking, part: Slice) -> ReportTaken:
    """Look at some VMs of a report. For all others the earlier report still counts."""
    report, names = taking.report, frozenset(part.names)
    last, empty = _last(tx, report.host), _empty_scopes(tx)
    looked = apply_report.look(
        report.host,
        replace(_known(tx, report, last, names), empty_scopes=frozenset()),
        _now(tx),
        names=names,
        unsettled=part.unsettled,
    )
    _apply(tx, looked)
    _define(tx, report, names)
    taking = _with(taking, looked, names)
    tx.put(tx.volatile.takings, report.host, taking)
    taken = _keep_partly(tx, taking, last, names)
    _keep_times(tx, set(names), looked, also_empty=empty)
    return taken


# Which report counts.


def _begin(tx: Transaction, report: Report, number: int) -> Taking:
    """From now on this is the report of its host, and any before it is not."""
    tx.need_host(report.host)
    _need_latest(report.host, number, tx.volatile.reports.get(report.host, number))
    tx.put(tx.volatile.reports, report.host, number)
    tx.put(tx.volatile.takings, report.host, None)
    for gone in [name for name in tx.volatile.looks if tx.host(name) is None]:
        tx.put(tx.volatile.looks, gone, None)
    return Taking(report=report, problems=dict(report.unusable), inventory=tx.inventory)


def _taking(tx: Transaction, host: str, number: int) -> Taking:
    """The report that is being taken. Raises Conflict if it does not count any more."""
    tx.need_host(host)
    _need_latest(host, number, tx.volatile.reports.get(host, -1))
    found = tx.volatile.takings.get(host)
    if found is None:
        raise Conflict(f"No report of host {host} is being taken.", "Report again.")
    return found


def _need_latest(host: str, number: int, latest: int) -> None:
    if number < latest:
        raise Conflict(f"Host {host} has reported again since.", "The last report counts.")


def _last(tx: Transaction, host: str) -> Look | None:
    """What is known of the host before this command."""
    return tx.volatile.looks.get(host)


# Looking.


def _with(taking: Taking, looked: apply_report.ReportDecision, names: Container[str]) -> Taking:
    """With what one look has found. Of VMs that are not in `names` more is said now."""
    problems = dict(taking.problems)
    for name, words in looked.problems.items():
        said = "" if name in names else problems.get(name, "")
        problems[name] = f"{said} {words}".strip()
    return msgspec.structs.replace(
        taking,
        problems=problems,
        busy=taking.busy | looked.busy,
        waiting=taking.waiting or looked.waiting,
    )


def _look_at_powers(
    tx: Transaction, report: Report, looked: apply_report.ReportDecision
) -> apply_report.ReportDecision:
    """Take over which VMs of the whole report are off; look again while one is about to be.

    A new boot of the host comes first: what runs in it did not go down with the one before.
    """
    if report.boot_id:
        vm_power.booted(tx, report.host, report.boot_id)
    waits = vm_power.seen(tx, report.host, _powers(tx, report.usable))
    return replace(looked, waiting=True) if waits else looked


def _apply(tx: Transaction, looked: apply_report.ReportDecision) -> None:
    tx.apply(looked.decision)
    for name in looked.removed_scopes:
        tx.remove_scope(name)


def _close(tx: Transaction, taking: Taking) -> ReportTaken:
    """The whole report was looked at: it is what the host shows."""
    report = taking.report
    again = taking.inventory != tx.inventory  # some of it was compared with another
    look = Look(
        told=report.told,
        usable=report.usable,
        looked=apply_report.ReportDecision(busy=taking.busy, waiting=taking.waiting or again),
        problems=taking.problems,
        inventory=tx.inventory,
        at_ms=tx.monotonic_ms,
    )
    tx.put(tx.volatile.looks, report.host, look)
    tx.put(tx.volatile.takings, report.host, None)
    tx.hears_of_vms(report.host, _reported(report.told, taking.problems))
    return ReportTaken(problems=dict(taking.problems))


def _keep_partly(
    tx: Transaction, taking: Taking, last: Look | None, names: frozenset[str]
) -> ReportTaken:
    """Some VMs are as this report shows them, the others as the host showed them before."""
    report = taking.report
    before = last or Look()
    problems = {n: words for n, words in before.problems.items() if n not in names}
    problems |= {n: words for n, words in taking.problems.items() if n in names}
    told = (report.usable[name] for name in names)
    look = Look(
        usable={**before.usable, **{name: report.usable[name] for name in names}},
        looked=apply_report.ReportDecision(
            busy=before.looked.busy.difference(names).union(taking.busy & names), waiting=True
        ),
        problems=problems,
        at_ms=tx.monotonic_ms,
    )
    tx.put(tx.volatile.looks, report.host, look)
    reported = {**tx.reported(report.host), **_reported(told, taking.problems)}
    tx.hears_of_vms(report.host, reported)
    return ReportTaken(problems=dict(taking.problems))


def _known(
    tx: Transaction, report: Report, last: Look | None, names: Collection[str]
) -> apply_report.ReportContext:
    """What else is known while these VMs are judged."""
    known, now = tx.volatile, tx.monotonic_ms
    file = known.files.by_name(tx.inventory)
    shown = {name: look.usable for name, look in known.looks.items()}
    return apply_report.ReportContext(
        reports={**shown, report.host: report.usable},
        before=last.usable if last else {},
        file_scopes=file.scopes,
        file_vms=file.vms,
        ever_shown=tx.digests,
        settling=_settling(tx, names),
        busy_before=last.looked.busy if last else (),
        absent_ms={name: now - since for name, since in known.absent_since.items()},
        twice_ms={name: now - since for name, since in known.twice_since.items()},
        problems_before=last.problems if last else {},
        empty_scopes=_empty_scopes(tx),
    )


def _empty_scopes(tx: Transaction) -> frozenset[str]:
    """Scopes that were empty when a host was last looked at; all that are, at the first look."""
    if tx.volatile.looks:
        return frozenset(tx.volatile.empty_scopes)
    return frozenset(scope.name for scope in tx.scopes.values() if not scope.vms)


def _settling(tx: Transaction, vms: Collection[str]) -> frozenset[str]:
    """The VMs that an order has moved or deleted since the last look."""
    hosts, placed = _hosts_of(tx, vms), tx.volatile.placed
    return frozenset(name for name in vms if placed.get(name) not in (None, hosts.get(name)))


def _define(tx: Transaction, report: Report, names: Collection[str]) -> None:
    """Keep the definitions that are new, of those of the VMs that are on this host now."""
    host, texts = report.host, report.texts
    hosts = _hosts_of(tx, names)
    for name in names:
        seen = report.usable[name]
        known = tx.digests.get(name)
        if known == seen.definition or hosts.get(name) != host:
            continue
        if known is not None and not texts[name]:
            continue  # a host that cannot say what a VM is now does not unsay what it was
        tx.define(
            VmDefinition(
                vm=name,
                host=host,
                text=texts[name],
                digest=seen.definition,
                seen_ms=tx.now_ms,
            )
        )


def _keep_times(
    tx: Transaction,
    vms: set[str],
    looked: apply_report.ReportDecision,
    *,
    also_empty: Iterable[str] = (),
) -> None:
    """Remember, of the VMs that the look was about, since when they are as they are."""
    known = tx.volatile
    for names, since in (
        (looked.absent, known.absent_since),
        (looked.twice, known.twice_since),
    ):
        for name in vms - names:
            tx.put(since, name, None)
        for name in names:
            if name not in since:
                tx.put(since, name, tx.monotonic_ms)
    hosts = _hosts_of(tx, vms)
    for name in vms:
        tx.put(known.placed, name, hosts.get(name))
    empty = looked.empty_scopes.union(also_empty)
    for name in known.empty_scopes.keys() ^ empty:
        tx.put(known.empty_scopes, name, True if name in empty else None)


def _now(tx: Transaction) -> apply_report.FleetNow:
    return apply_report.FleetNow(
        scopes=tx.scopes,
        scope_of_vm=tx.scope_of_vm,
        fleet=tx,
        now_ms=tx.now_ms,
    )


def _reported(told: Iterable[SeenVm], problems: Mapping[str, str]) -> dict[str, ReportedVm]:
    return {
        seen.name: ReportedVm(
            seen.power,
            problems.get(seen.name, ""),
            freeze_by_move=seen.traits.freeze_by_move,
            when_host_goes_down=seen.traits.when_host_goes_down,
        )
        for seen in told
    }


def _powers(tx: Transaction, usable: Mapping[str, SeenVm]) -> dict[str, Power]:
    """Which of the VMs of the fleet run, as a host shows them; another of its name is not one."""
    known = ((seen, tx.vm(name)) for name, seen in usable.items())
    return {vm.name: seen.power for seen, vm in known if vm and vm.vm_id == seen.vm_id}


def _names_on(tx: Transaction, host: str) -> set[str]:
    return {vm.name for scope in tx.scopes_on(host) for vm in scope.vms if vm.host == host}


def _hosts_of(tx: Transaction, vms: Collection[str]) -> dict[str, str]:
    """Where those of the VMs are that are in the fleet."""
    found = (tx.vm(name) for name in vms)
    return {vm.name: vm.host for vm in found if vm is not None}
