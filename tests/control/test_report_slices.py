"""A long report is taken in slices: others get their turn, and nothing is gone before its end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec
import pytest
from msgspec.structs import replace

from forewarn.control.command_handlers import decide
from forewarn.control.control import Control
from forewarn.control.hosts import report_slices
from forewarn.control.hosts.report_intake import ReportIntake
from forewarn.control.writer import Wanted
from forewarn.core.errors import Conflict, NotFound, NotMember, Unavailable
from forewarn.core.inventory.apply_report import GRACE_MS
from forewarn.core.inventory.host_report import Power, SeenVm
from forewarn.core.model import Decision, FactKind, Scope, ScopeKind, Vm
from forewarn.ports import StoreFailed
from forewarn.wire import link as wire
from support import ordered
from support.ordered import Given
from support.reporting_fleet import ReportingFleet, seen, web
from support.shown_scopes import sighting

T = TypeVar("T")

LIMIT_S = 60


@pytest.fixture
def fleet() -> ReportingFleet:
    return ReportingFleet(slice_vms=2)


def vms(number: int, power: Power = Power.RUNNING) -> tuple[SeenVm, ...]:
    return tuple(seen(f"vm-{n:03d}", power) for n in range(number))


# How a report is cut.


def cut(
    *given: SeenVm, vms_max: int = 3, chars: int = 0
) -> list[tuple[tuple[str, ...], frozenset[str]]]:
    told = tuple(replace(one, definition="x" * chars) for one in given)
    report = report_slices.read("h1", told, report_slices.digested("h1", told))
    return [(part.names, part.unsettled) for part in report_slices.slices(report, vms_max=vms_max)]


def test_vms_of_one_scope_are_taken_together_as_far_as_a_slice_goes() -> None:
    one = [seen(name, scope=scope) for name, scope in (("a", "x"), ("c", "x"), ("b", "y"))]
    two = [seen(name, scope="y") for name in ("d", "e")]
    nothing = frozenset[str]()
    assert cut(*one) == [(("a", "c", "b"), nothing)]
    assert cut(*one, *two) == [(("a", "c"), nothing), (("b", "d", "e"), nothing)]


def test_a_scope_that_goes_on_in_the_next_slice_is_not_settled_before() -> None:
    given = [seen(f"v{n}", scope="s") for n in range(5)]
    assert cut(*given, vms_max=2) == [
        (("v0", "v1"), frozenset({"s"})),
        (("v2", "v3"), frozenset({"s"})),
        (("v4",), frozenset()),
    ]


def test_long_definitions_make_short_slices() -> None:
    long = report_slices.SLICE_CHARS_MAX // 5  # too long to be kept: it costs nothing to take
    kept = report_slices.SLICE_CHARS_MAX // 8
    given = vms(16)
    assert [len(names) for names, _ in cut(*given, vms_max=100, chars=kept)] == [8, 8]
    assert len(cut(*given, vms_max=100, chars=2 * long)) == 1


def test_every_vm_of_a_report_is_in_one_slice() -> None:
    rng = random.Random(7)
    for _ in range(50):
        given = [seen(f"v{n}", scope=rng.choice(("", "s", "t"))) for n in range(rng.randrange(40))]
        found = [name for names, _ in cut(*given, vms_max=rng.randrange(1, 9)) for name in names]
        assert sorted(found) == sorted(one.name for one in given)


# What others see meanwhile.


@pytest.mark.parametrize("taken", range(4))
def test_an_incomplete_report_makes_no_vm_gone(fleet: ReportingFleet, taken: int) -> None:
    there = vms(6)
    fleet.shows("h1", *there)
    for _ in range(3):  # the host hangs up in the middle, again and again
        steps = fleet.report_intake.steps("h1", there[:5])
        assert len(steps) == 4
        fleet.take("h1", *steps[:taken])
        fleet.later(2 * GRACE_MS / 1_000)
    assert fleet.names() == [one.name for one in there]
    assert fleet.facts(FactKind.VM_GONE) == []
    for _ in range(2):
        fleet.shows("h1", *there[:5])
        fleet.later(2 * GRACE_MS / 1_000)
    assert fleet.names() == [one.name for one in there[:5]]


class HungUp(Exception):  # noqa: N818 - says what is the case
    """The host is gone in the middle of its report."""


def hang_up() -> None:
    raise HungUp


def test_until_its_end_a_report_leaves_the_rest_as_it_was_shown(fleet: ReportingFleet) -> None:
    fleet.shows("h1", *vms(4))
    with pytest.raises(HungUp):
        fleet.shows("h1", *vms(3, Power.OFF), between=hang_up)
    shown = fleet.observed.reported("h1")
    assert [shown[f"vm-{n:03d}"].power for n in range(4)] == [Power.OFF] * 2 + [Power.RUNNING] * 2
    assert fleet.settled("h1", vms(4)) is None  # what was before is not any more
    assert fleet.settled("h1", vms(3, Power.OFF)) is None
    fleet.shows("h1", *vms(3, Power.OFF))
    assert sorted(fleet.observed.reported("h1")) == ["vm-000", "vm-001", "vm-002"]


def test_a_vm_that_a_slice_found_here_is_not_taken_back_by_the_host_it_left(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h1", *vms(4))
    fleet.shows("h2")
    moved = [*vms(4), seen("vm-999")]
    left = [seen(one.name, Power.OFF) for one in vms(4)]

    fleet.shows("h2", *moved, between=lambda: reports_whole(fleet, "h1", left))
    fleet.shows("h2", *moved)
    hosts = {vm.name: vm.host for scope in fleet.index.scopes.values() for vm in scope.vms}
    assert set(hosts.values()) == {"h2"}
    assert len(fleet.facts(FactKind.MOVED)) == 4


def test_a_vm_that_an_action_brings_here_while_a_report_is_taken_stays(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h1", *vms(5))
    fleet.shows("h2", seen("vm-900"))
    here = [seen(f"vm-90{n}") for n in range(4)]
    steps = fleet.report_intake.steps("h2", here)  # made before the VM came
    fleet.take("h2", *steps[:-1])
    moved = replace(fleet.index.scopes["vm-000"].vms[0], host="h2")
    fleet.run(lambda tx: tx.apply(placed(tx.scopes["vm-000"], moved)))
    fleet.take("h2", steps[-1])
    assert fleet.index.scopes["vm-000"].vms[0].host == "h2"


def placed(scope: Scope, vm: Vm) -> Decision:
    """What the report of a move leads to."""
    return Decision(scopes=(replace(scope, vms=(vm,)),))


def reports_whole(fleet: ReportingFleet, host: str, given: Sequence[SeenVm]) -> None:
    fleet.take(host, *fleet.report_intake.steps(host, given))


def test_a_vm_that_runs_twice_is_found_out_by_reports_in_slices(fleet: ReportingFleet) -> None:
    problems: list[Mapping[str, str]] = []
    for _ in range(5):
        fleet.shows("h1", *vms(5))
        problems.append(fleet.shows("h2", *vms(1), *(seen(f"other-{n}") for n in range(4))))
        fleet.later(GRACE_MS / 3_000)
    assert problems[0] == {}
    assert "it runs on host h1 too" in problems[-1]["vm-000"]
    assert len(fleet.facts(FactKind.VM_ON_TWO_HOSTS)) == 1


# Which report counts.


def test_the_last_report_wins(fleet: ReportingFleet) -> None:
    fleet.shows("h1", *vms(2))
    older = fleet.report_intake.steps("h1", vms(7, Power.OFF))
    fleet.take("h1", *older[:2])
    newer = fleet.report_intake.steps("h1", vms(5))
    fleet.take("h1", *newer[:1])
    for step in older[2:]:
        with pytest.raises(Conflict, match="reported again"):
            fleet.take("h1", step)
    fleet.take("h1", *newer[1:])
    with pytest.raises(Conflict, match="reported again"):
        fleet.take("h1", older[-1])
    assert fleet.names() == [one.name for one in vms(5)]
    assert {one.power for one in fleet.observed.reported("h1").values()} == {Power.RUNNING}
    assert fleet.settled("h1", vms(5)) == {}


def test_a_host_that_left_in_the_middle_is_not_heard_on(fleet: ReportingFleet) -> None:
    steps = fleet.report_intake.steps("h3", vms(5))
    fleet.take("h3", *steps[:1])
    for one in list(fleet.names()):
        fleet.run(lambda tx, name=one: tx.remove_scope(name))  # type: ignore[misc]
    fleet.run(ordered.host_left("h3", by="operator"))
    for step in steps[1:]:
        with pytest.raises(NotFound):
            fleet.take("h3", step)
    assert fleet.names() == []


def test_what_could_not_be_written_of_a_slice_is_looked_at_again(fleet: ReportingFleet) -> None:
    first, second, *_ = fleet.report_intake.steps("h1", vms(6))
    fleet.take("h1", first)

    def undone(tx: Any) -> None:
        decide(tx, second)
        raise Conflict("Something else of the same command is refused.")

    with pytest.raises(Conflict, match="Something else"):
        fleet.run(undone)
    assert fleet.names() == ["vm-000", "vm-001"]
    fleet.shows("h1", *vms(6))
    assert fleet.names() == [one.name for one in vms(6)]
    assert fleet.settled("h1", vms(6)) == {}


def test_an_inventory_that_is_applied_in_the_middle_has_the_report_looked_at_again(
    fleet: ReportingFleet,
) -> None:
    steps = fleet.report_intake.steps("h1", vms(5))
    fleet.take("h1", *steps[:2])
    fleet.run(lambda tx: tx.applied_inventory("# nothing\n"))
    fleet.take("h1", *steps[2:])
    assert fleet.settled("h1", vms(5)) is None
    fleet.shows("h1", *vms(5))
    assert fleet.settled("h1", vms(5)) == {}


# It comes to the same.


def anything(rng: random.Random, names: int) -> list[SeenVm]:
    return [
        seen(
            f"v{n}",
            rng.choice(tuple(Power)),
            scope=rng.choice(("", "web", "api")),
            update_domain=rng.randrange(3),
            scope_kind=rng.choice((None, ScopeKind.PLACEMENT_GROUP)),
            terminate_notice_ms=rng.choice((None, 300_000, 600_000)),
            problem=rng.choice(("", "", "it has a problem.")),
        )
        for n in range(names)
        if rng.random() < 0.8
    ]


@pytest.mark.parametrize("seed", range(10))
def test_slices_come_to_the_same_as_the_whole_report(seed: int) -> None:
    rng = random.Random(seed)
    fleets = [ReportingFleet(slice_vms=most) for most in (1, 3, 1_000)]
    for _ in range(6):
        report = anything(rng, 12)
        for _ in range(3):
            answers = [fleet.shows("h1", *report) for fleet in fleets]
            for fleet in fleets:
                fleet.later(GRACE_MS / 1_000)
        assert answers[0] == answers[1] == answers[2]
        assert fingerprint(fleets[0]) == fingerprint(fleets[1]) == fingerprint(fleets[2])


def fingerprint(fleet: ReportingFleet) -> object:
    """Everything but how often it was written, and in which order VMs came."""
    scopes = [
        replace(one, revision=0, vms=tuple(sorted(one.vms, key=lambda vm: vm.name)))
        for one in fleet.index.scopes.values()
        if one.vms
    ]
    shown = {host: dict(fleet.observed.reported(host)) for host in fleet.index.hosts}
    return sorted(scopes, key=lambda one: one.name), shown, fleet.index.digests


# Who gets a turn.


class Batches:
    """`Control` as its writer works: all that waits is one batch. Keeps what each one held."""

    def __init__(self, fleet: ReportingFleet) -> None:
        self._fleet = fleet
        self.fleet, self.observed = fleet.published, fleet.observed
        self._queue: list[tuple[str, Given[Any], asyncio.Future[Any]]] = []
        self.batches: list[list[str]] = []

    async def submit(self, command: Given[T], what: str = "slice") -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append((what, command, future))
        return await future

    def write(self) -> bool:
        """One batch; False if nothing waited."""
        batch, self._queue = self._queue, []
        if batch:
            self.batches.append([what for what, _, _ in batch])
        for _, command, future in batch:
            try:
                value = self._fleet.run(command)
            except Exception as error:  # noqa: BLE001 - as the writer does, it is the caller's
                future.set_exception(error)
            else:
                future.set_result(value)
        return bool(batch)


def told(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(LIMIT_S):
            await story()

    asyncio.run(main())


def test_another_command_gets_its_turn_between_two_slices(fleet: ReportingFleet) -> None:
    control = Batches(fleet)

    async def beat() -> None:
        while True:
            await control.submit(lambda _: None, "heartbeat")

    async def story() -> None:
        taking = asyncio.ensure_future(
            fleet.report_intake.take(cast("Control", control), "h1", vms(20))
        )
        beating = asyncio.ensure_future(beat())
        while not taking.done():
            await asyncio.sleep(0)
            control.write()
        beating.cancel()
        assert taking.result() == {}

    told(story)
    with_slice = [batch for batch in control.batches if "slice" in batch]
    assert len(with_slice) == 11  # ten slices, and the end
    assert all(batch.count("slice") == 1 for batch in with_slice)
    assert sum("heartbeat" in batch for batch in control.batches) >= 10
    assert fleet.names() == [one.name for one in vms(20)]


def test_reports_of_many_hosts_take_turns_slice_by_slice(fleet: ReportingFleet) -> None:
    control = Batches(fleet)
    hosts = ("h1", "h2", "h3")

    async def story() -> None:
        taking = [
            asyncio.ensure_future(
                fleet.report_intake.take(
                    cast("Control", control), host, [seen(f"{host}-{n}") for n in range(6)]
                )
            )
            for host in hosts
        ]
        while not all(one.done() for one in taking):
            await asyncio.sleep(0)
            control.write()
            if not taking[0].done():
                assert not any(one.done() for one in taking[1:])
        assert [one.result() for one in taking] == [{}, {}, {}]

    told(story)
    assert all(batch == ["slice"] for batch in control.batches)  # never two of them in one batch
    assert len(fleet.names()) == 18


def test_what_is_found_out_about_a_host_in_the_middle_ends_the_taking(
    fleet: ReportingFleet,
) -> None:
    control = Batches(fleet)
    revoked = False

    def check() -> None:
        if revoked:
            raise NotMember("Host h1 was revoked.")

    async def story() -> None:
        nonlocal revoked
        taking = asyncio.ensure_future(
            fleet.report_intake.take(cast("Control", control), "h1", vms(20), check=check)
        )
        while not taking.done():
            await asyncio.sleep(0)
            if control.write() and len(control.batches) == 3:
                revoked = True
        with pytest.raises(NotMember):
            taking.result()

    told(story)
    assert len(control.batches) == 3


def test_a_host_that_hangs_up_leaves_the_writer_to_the_others(fleet: ReportingFleet) -> None:
    control = Batches(fleet)

    async def story() -> None:
        taking = asyncio.ensure_future(
            fleet.report_intake.take(cast("Control", control), "h1", vms(20))
        )
        while len(control.batches) < 2:
            await asyncio.sleep(0)
            control.write()
        taking.cancel()
        await asyncio.wait({taking})
        other = asyncio.ensure_future(fleet.report_intake.take(cast("Control", control), "h2", ()))
        while not other.done():
            await asyncio.sleep(0)
            control.write()

    told(story)
    assert fleet.names() == [one.name for one in vms(4)]


def test_a_store_that_fails_in_the_middle_fails_the_report_and_the_next_one_is_whole() -> None:
    fleet = ReportingFleet(slice_vms=2)
    full = True

    class FullAfterTwo:
        def __init__(self) -> None:
            self.fleet, self.observed = fleet.published, fleet.observed
            self.taken = 0

        async def submit(self, command: Wanted[T]) -> T:
            self.taken += 1
            if full and self.taken > 2:
                raise Unavailable(str(StoreFailed("the disk is full", fatal=False)))
            return fleet.run(command)

    async def take() -> None:
        await fleet.report_intake.take(cast("Control", FullAfterTwo()), "h1", vms(9))

    with pytest.raises(Unavailable):
        asyncio.run(take())
    assert fleet.names() == [one.name for one in vms(4)]
    full = False
    asyncio.run(take())
    assert fleet.names() == [one.name for one in vms(9)]


def test_a_short_report_is_one_command(fleet: ReportingFleet) -> None:
    report_intake = ReportIntake(fleet.clock, fleet.volatile)
    assert len(report_intake.steps("h1", vms(report_slices.SLICE_VMS_MAX))) == 1
    assert len(report_intake.steps("h1", ())) == 1
    assert len(report_intake.steps("h1", vms(report_slices.SLICE_VMS_MAX + 1))) == 3


# As it comes over the wire.


def test_a_long_report_is_read_vm_by_vm_and_is_the_same() -> None:
    told_vms = (web(0), *vms(3), seen("odd", problem="it is odd", tags=(("a", "b"),)))
    body = msgspec.json.encode(sighting(told_vms))
    assert wire.read_sighting(body) == msgspec.json.decode(body, type=wire.Sighting)
    for bad in (b"null", b'{"vms": null}', b'{"vms": [1]}', b"{"):
        with pytest.raises(msgspec.DecodeError):
            wire.read_sighting(bad)
    newer = b'{"vms": [], "more": 1}'  # a host of a later minor version
    assert wire.read_sighting(newer) == wire.Sighting(vms=())
