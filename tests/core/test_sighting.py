"""Where a VM is, judged from what hosts show: every pair of claims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from msgspec.structs import replace

from forewarn.core.inventory import apply_report
from forewarn.core.inventory.host_report import Power, SeenVm, Traits
from forewarn.core.model import (
    EventType,
    FactKind,
    Health,
    Host,
    Operation,
    Scope,
    ScopeKind,
    Vm,
)
from support.clock import START_MS

VM_ID = "11111111-2222-4333-8444-555555555555"
NOW_MS = START_MS
HOME = Vm(name="web-0", vm_id=VM_ID, update_domain=0, host="h1")
WEB = Scope(name="web", kind=ScopeKind.AVAILABILITY_SET, vms=(HOME,))
SAID = Traits(scope="web", update_domain=0)


class TwoHosts:
    """`core.fleet.Fleet` of h1 and h2, with one scope."""

    def __init__(self, *, silent: str = "", failed: str = "") -> None:
        self._silent = silent
        self._hosts = {
            name: Host(name=name, health=Health.FAILED if name == failed else Health.OK)
            for name in ("h1", "h2")
        }

    def host(self, name: str) -> Host | None:
        return self._hosts.get(name)

    def hosts(self) -> Iterable[Host]:
        return self._hosts.values()

    def alive(self, host: str) -> bool:
        return host != self._silent

    def silent_ms(self, host: str) -> int:
        return 0 if self.alive(host) else 60_000

    def may_be_on(self, host: str) -> bool:
        return self.alive(host)

    def hypervisor_unreachable(self, host: str) -> str:  # noqa: ARG002 - both see
        return ""

    def two_daemons(self, host: str) -> bool:  # noqa: ARG002 - each has one
        return False

    def refuses(self, host: str) -> str:  # noqa: ARG002 - both obey
        return ""

    def shut_out(self, host: str) -> bool:  # noqa: ARG002 - both are in
        return False

    def scope(self, name: str) -> Scope | None:
        return WEB if name == "web" else None

    def scopes_on(self, host: str) -> Sequence[Scope]:
        return [WEB] if host == "h1" else []

    def vm_count(self, host: str) -> int:
        return len(self.scopes_on(host))

    def arriving(self, host: str) -> Sequence[tuple[str, Vm]]:
        del host
        return []

    def strangers(self, host: str) -> Sequence[str]:
        del host
        return []

    def places(self) -> Sequence[tuple[Host, int]]:
        return []

    def operation(self, operation_id: str) -> Operation | None:
        del operation_id
        return None

    def operations_on(self, host: str) -> Sequence[Operation]:
        del host
        return []


def shown(power: Power | None) -> dict[str, SeenVm]:
    """A report with the VM, or without it."""
    if power is None:
        return {}
    return {"web-0": SeenVm(name="web-0", vm_id=VM_ID, power=power, traits=SAID)}


def look(
    host: str,
    *,
    h1: dict[str, SeenVm] | None,
    h2: dict[str, SeenVm] | None,
    fleet: TwoHosts | None = None,
    known: apply_report.ReportContext | None = None,
) -> apply_report.ReportDecision:
    reports = {name: report for name, report in (("h1", h1), ("h2", h2)) if report is not None}
    base = known or apply_report.ReportContext(reports={}, ever_shown={"web-0"})
    return apply_report.step(
        host,
        replace(base, reports=reports),
        apply_report.FleetNow(
            scopes={"web": WEB},
            scope_of_vm={"web-0": "web"},
            fleet=fleet or TwoHosts(),
            now_ms=NOW_MS,
        ),
    )


def host_after(looked: apply_report.ReportDecision) -> str:
    after = {vm.name: vm.host for scope in looked.decision.scopes for vm in scope.vms}
    return after.get("web-0", "h1")


R, P, OFF, C, NONE = Power.RUNNING, Power.PAUSED, Power.OFF, Power.CRASHED, None

# What h1 shows, for each of which: what h2 must show for the VM to be there.
CLAIMS: dict[Power | None, set[Power | None]] = {
    R: set(),
    P: {R},
    OFF: {R, P},
    C: {R, P},
    NONE: {R, P, OFF, C},
}


@pytest.mark.parametrize("there", [R, P, OFF, C, NONE])
@pytest.mark.parametrize("here", [R, P, OFF, C])
def test_a_vm_is_where_it_runs_else_where_it_is_paused_else_where_it_is(
    there: Power | None, here: Power
) -> None:
    looked = look("h2", h1=shown(there), h2=shown(here))
    assert host_after(looked) == ("h2" if here in CLAIMS[there] else "h1")
    assert looked.waiting


@pytest.mark.parametrize("here", [R, P, OFF, C])
def test_a_host_that_has_not_spoken_yet_is_waited_for(here: Power) -> None:
    assert host_after(look("h2", h1=None, h2=shown(here))) == "h1"


@pytest.mark.parametrize("why", ["silent", "failed"])
@pytest.mark.parametrize("here", [R, P, OFF, C])
@pytest.mark.parametrize("there", [R, OFF, NONE])
def test_of_a_host_that_cannot_be_asked_only_what_runs_elsewhere_is_taken(
    why: str, here: Power, there: Power | None
) -> None:
    fleet = TwoHosts(silent="h1") if why == "silent" else TwoHosts(failed="h1")
    looked = look("h2", h1=shown(there), h2=shown(here), fleet=fleet)
    assert host_after(looked) == ("h2" if here in (R, P) else "h1")


def test_what_a_host_shows_of_anothers_vm_says_nothing_of_its_scope() -> None:
    said = replace(SAID, auto_approve=frozenset({EventType.REBOOT}))
    at_home = {"web-0": SeenVm(name="web-0", vm_id=VM_ID, power=R, traits=said)}
    assert look("h2", h1=at_home, h2=shown(OFF)).decision.scopes == ()
    (settled,) = look("h1", h1=at_home, h2=shown(OFF)).decision.scopes
    assert settled.auto_approve == {EventType.REBOOT}


def test_a_failed_host_decides_nothing_and_is_looked_at_again() -> None:
    looked = look("h1", h1={}, h2={}, fleet=TwoHosts(failed="h1"))
    assert (looked.decision.scopes, looked.decision.facts, looked.waiting) == ((), (), True)


def test_a_claim_of_a_host_that_cannot_be_asked_moves_nothing() -> None:
    fleet = TwoHosts(silent="h2")
    looked = look("h1", h1={}, h2=shown(R), fleet=fleet)
    assert host_after(looked) == "h1"
    assert looked.absent == {"web-0"}


@pytest.mark.parametrize(("absent_ms", "gone"), [(0, False), (29_999, False), (30_000, True)])
def test_a_vm_is_gone_after_the_grace_and_not_before(absent_ms: int, gone: bool) -> None:  # noqa: FBT001
    known = apply_report.ReportContext(
        reports={}, ever_shown={"web-0"}, absent_ms={"web-0": absent_ms}
    )
    looked = look("h1", h1={}, h2={}, known=known)
    kinds = [fact.kind for fact in looked.decision.facts]
    assert (FactKind.VM_GONE in kinds) is gone
    assert looked.absent == (frozenset() if gone else {"web-0"})


def test_nothing_changes_and_nothing_waits_when_all_is_as_it_was() -> None:
    looked = look("h1", h1=shown(R), h2={})
    assert looked == apply_report.ReportDecision()


def test_a_vm_that_only_a_file_knew_is_taken_where_it_is_shown() -> None:
    known = apply_report.ReportContext(reports={}, ever_shown=())
    other = {"web-0": replace(shown(OFF)["web-0"], vm_id=VM_ID.replace("1", "a"))}
    looked = look("h2", h1=None, h2=other, known=known)
    [scope] = looked.decision.scopes
    assert [(vm.host, vm.vm_id) for vm in scope.vms] == [("h2", VM_ID.replace("1", "a"))]
