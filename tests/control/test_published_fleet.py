"""The published fleet: a commit is seen whole or not at all, and a page costs what it shows."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.control import operator_overview, ticker
from forewarn.control.agenda import OUTDATED_MIN, Agenda
from forewarn.control.hosts.liveness import Observed, ReportedVm
from forewarn.control.published_fleet import NAMES_PLACED_MAX, SortedNames
from forewarn.control.transaction import Transaction
from forewarn.core import notice
from forewarn.core.errors import NotFound
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import Decision, EventType, Host
from forewarn.ports import EVERYTHING, StoreFailed
from simulation.faulty_store import Fault, FaultyStore
from support import ordered
from support.control import run_now
from support.core_fleet import WEB, Cloud, minutes, scope
from support.ordered import Given
from support.watched_store import WatchedStore, disk_full

REPORTED = {"web_0": ReportedVm(power=Power.PAUSED)}


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("web", WEB), scope("api", {"x": (0, "h1")}))


def published(cloud: Cloud) -> tuple[object, ...]:
    fleet = cloud.published
    return dict(fleet.scopes), dict(fleet.hosts_by_name), dict(fleet.operations)


def seen_by_reader(cloud: Cloud) -> tuple[object, ...]:
    """What is published, and what hosts reported."""
    reported = {host: dict(cloud.published.reported(host)) for host in ("h1", "h2")}
    return *published(cloud), reported


def test_what_is_published_is_what_was_committed(cloud: Cloud) -> None:
    cloud.start(cloud.order("web_0", EventType.REDEPLOY))
    cloud.maintain("h2", EventType.FREEZE)
    assert published(cloud) == cloud.everything()
    cloud.carry_out(cloud.order("x", EventType.TERMINATE))
    assert published(cloud) == cloud.everything()
    assert cloud.published.vm("x") is None
    assert cloud.published.scopes_on("h1") == cloud.index.scopes_on("h1")


def test_a_reader_during_a_rollback_sees_the_last_commit() -> None:
    store = WatchedStore()
    cloud = Cloud(scope("web", WEB), store=store)
    cloud.run(partial(Transaction.hears_of_vms, host="h2", vms=REPORTED))
    before = seen_by_reader(cloud)
    assert before[-1] == {"h1": {}, "h2": REPORTED}
    seen: list[tuple[object, ...]] = []

    def command(tx: Transaction) -> None:
        tx.apply(Decision(hosts=(Host(name="h9"),)))
        tx.hears_of_vms("h1", REPORTED)
        tx.hears_of_vms("h2", {})
        assert tx.host("h9") is not None
        assert (tx.reported("h1"), tx.reported("h2")) == (REPORTED, {})
        seen.append(seen_by_reader(cloud))

    store.fails["commit"] = disk_full()
    with pytest.raises(StoreFailed):
        cloud.run(command)
    assert [*seen, seen_by_reader(cloud)] == [before, before]
    cloud.run(command)
    assert seen[-1] == before
    assert cloud.published.host("h9") is not None
    assert seen_by_reader(cloud)[-1] == {"h1": REPORTED, "h2": {}}


def test_what_was_reported_and_kept_nowhere_is_read_once_it_is_answered(cloud: Cloud) -> None:
    """A report that changes nothing durable is no commit; readers see it all the same."""
    told: list[object] = []
    cloud.published.on_publish(told.extend)
    cloud.run(partial(Transaction.hears_of_vms, host="h1", vms=REPORTED))
    assert cloud.published.reported("h1") == REPORTED
    assert told == []


def test_a_report_with_a_refused_command_is_not_read(cloud: Cloud) -> None:
    def refused(tx: Transaction) -> None:
        tx.hears_of_vms("h1", REPORTED)
        raise NotFound("vm", "nobody")

    with pytest.raises(NotFound):
        cloud.run(refused)
    assert cloud.published.reported("h1") == {}


def test_a_reader_of_the_store_during_a_rollback_sees_the_last_commit(tmp_path: Path) -> None:
    inner = SqliteStore.in_folder(tmp_path / "data")
    store = FaultyStore(inner)
    cloud = Cloud(scope("web", WEB), store=store)
    seen: list[tuple[object, ...]] = []

    def read() -> tuple[object, ...]:
        return store.events(EVERYTHING, open_only=False, limit=9), store.journal_end()

    before = read()

    def looking(_: Transaction) -> None:  # after the order was saved, in the same commit
        with ThreadPoolExecutor(1) as reader:
            seen.append(reader.submit(read).result())

    order = ordered.order_vm("web_0", EventType.REBOOT, by="owner")
    store.fault = Fault.DISK_FULL
    with pytest.raises(StoreFailed):
        cloud.writer.run([order, ordered.wanted(looking)])
    assert [*seen, read()] == [before, before]
    cloud.writer.run([order, ordered.wanted(looking)])
    assert seen[-1] == before
    assert read() != before
    inner.close()


def test_scopes_stay_in_the_order_in_which_they_came(cloud: Cloud) -> None:
    cloud.order("web_0", EventType.REBOOT)
    cloud.order("x", EventType.REBOOT)
    cloud.order("web_1", EventType.REBOOT)
    assert list(cloud.published.scopes) == ["api", "web"]  # of one commit, by name
    assert list(cloud.index.scopes) == ["web", "api"]


def test_pages_are_in_the_order_of_names_and_go_on_after_the_last(cloud: Cloud) -> None:
    names = []
    after = ""
    while True:
        page = operator_overview.list_vms(cloud.published, after=after, limit=1, scope="", host="")
        names += [item.name for item in page.items]
        if not page.more:
            break
        after = names[-1]
    assert names == ["web_0", "web_1", "x"]
    here = operator_overview.list_vms(cloud.published, after="", limit=9, scope="", host="h1")
    assert [item.name for item in here.items] == ["web_0", "x"]
    with pytest.raises(NotFound):
        operator_overview.list_vms(cloud.published, after="", limit=9, scope="none", host="")


def test_a_page_of_many_vms_looks_at_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    many = {f"vm-{number:05}": (0, "h1") for number in range(2_000)}
    cloud = Cloud(*(scope(name, {name: place}, enabled=False) for name, place in many.items()))
    operator_overview.list_vms(cloud.published, after="", limit=50, scope="", host="")
    looked: list[str] = []
    real = cloud.published.need_scope_of_vm

    def counted(vm: str) -> Any:
        looked.append(vm)
        return real(vm)

    monkeypatch.setattr(cloud.published, "need_scope_of_vm", counted)
    operator_overview.list_vms(cloud.published, after="vm-01000", limit=50, scope="", host="")
    assert looked == [f"vm-{number:05}" for number in range(1_001, 1_051)]


@pytest.mark.parametrize("at_once", [1, NAMES_PLACED_MAX, 3 * NAMES_PLACED_MAX])
def test_names_stay_sorted_whatever_comes_and_goes(at_once: int) -> None:
    rng = random.Random(at_once)
    expected = {str(rng.randrange(10_000)) for _ in range(500)}
    names = SortedNames(expected)
    for _ in range(30):
        for _ in range(at_once):
            name = str(rng.randrange(10_000))
            if rng.random() < 0.5:
                expected.add(name)
                names.add(name)
            else:
                expected.discard(name)
                names.remove(name)
        after = str(rng.randrange(10_000))
        assert names.after(after, 7) == sorted(n for n in expected if n > after)[:7]
        assert names.after("", len(expected) + 1) == sorted(expected)


# Heartbeats.


class Heard(Cloud):
    """A cloud that hears its hosts by their heartbeats, and counts what the writer is asked."""

    submitted = 0

    def _observe(self) -> Observed:
        return Observed(self.clock)

    def run(self, command: Given[Any]) -> Any:
        self.submitted += 1
        return super().run(command)


def test_most_heartbeats_ask_nothing_of_the_writer() -> None:
    cloud = Heard(scope("web", WEB))
    cloud.submitted = 0
    for _ in range(10):
        run_now(cloud.control.turns.take(ordered.turn("h1")))
        cloud.clock.pass_ms(5_000)
    assert cloud.submitted == 0
    cloud.clock.pass_ms(notice.HOST_SILENT_AFTER_MS)
    run_now(cloud.control.turns.take(ordered.turn("h1")))
    assert cloud.submitted == 1
    assert cloud.observed.silences("h1") == 1


def test_a_host_that_has_just_come_was_not_silent_before() -> None:
    cloud = Heard(scope("web", WEB))
    cloud.clock.pass_ms(10 * notice.HOST_SILENT_AFTER_MS)
    cloud.run(lambda tx: tx.apply(Decision(hosts=(Host(name="new"),))))
    cloud.submitted = 0
    cloud.clock.pass_ms(4_000)
    run_now(cloud.control.turns.take(ordered.turn("new")))
    assert (cloud.submitted, cloud.observed.silences("new")) == (0, 0)
    cloud.run(lambda tx: tx.apply(Decision(hosts=(Host(name="late"),))))
    cloud.clock.pass_ms(notice.HOST_SILENT_AFTER_MS)
    run_now(cloud.control.turns.take(ordered.turn("late")))
    assert cloud.observed.silences("late") == 1


def test_a_host_at_work_has_its_leases_renewed() -> None:
    cloud = Heard(scope("web", WEB))
    run_now(cloud.control.turns.take(ordered.turn("h1")))
    cloud.start(cloud.order("web_0", EventType.REBOOT))
    [action] = cloud.claim("h1")
    cloud.submitted = 0
    run_now(cloud.control.turns.take(ordered.turn("h1", holding={action.action_id: action.epoch})))
    assert cloud.submitted == 1


def test_two_heartbeats_at_once_after_a_silence_count_it_once() -> None:
    cloud = Heard(scope("web", WEB))
    run_now(cloud.control.turns.take(ordered.turn("h1")))
    cloud.order("web_0", EventType.REBOOT)
    cloud.show()
    run_now(cloud.control.turns.take(ordered.turn("h1")))
    cloud.clock.pass_ms(10_000)

    async def both() -> None:
        take = cloud.control.turns.take
        await asyncio.gather(take(ordered.turn("h1")), take(ordered.turn("h1")))

    asyncio.run(both())
    assert [event.unreadable_ms for event in cloud.scope().events] == [5_000]


# The agenda.


def test_the_agenda_has_nothing_of_scopes_in_which_nothing_is_due(cloud: Cloud) -> None:
    agenda = Agenda(cloud.published)
    cloud.published.on_publish(agenda.published)
    assert agenda.due(cloud.clock.wall) == {"web", "api"}  # at the start everything is looked at
    assert agenda.due(cloud.clock.wall) == set()
    event = cloud.order("web_0", EventType.REBOOT)
    assert agenda.due(cloud.clock.wall) == {"web"}  # it has changed
    cloud.show()
    assert agenda.due(cloud.clock.wall) == {"web"}
    assert agenda.due(cloud.clock.wall) == set()
    cloud.hearing.falls_silent("h1")
    cloud.clock.pass_ms(minutes(16))
    for _ in range(3):  # it is due, and held
        assert agenda.due(cloud.clock.wall) == {"web"}
    cloud.hearing.returns("h1")
    assert [type(one) for one in ticker.survey(cloud.published.look())] != []
    cloud.cancel(event)
    agenda.due(cloud.clock.wall)
    assert agenda.due(cloud.clock.wall) == set()


def test_what_was_approved_is_due_also_after_the_clock_was_set_back(cloud: Cloud) -> None:
    agenda = Agenda(cloud.published)
    cloud.published.on_publish(agenda.published)
    cloud.hearing.falls_silent("h1")
    cloud.approve(cloud.order("web_0", EventType.REBOOT))
    cloud.clock.wall -= minutes(60)
    cloud.tick()
    agenda.due(cloud.clock.wall)
    assert agenda.due(cloud.clock.wall) == {"web"}


def test_the_agenda_stays_small_however_often_a_scope_is_polled(cloud: Cloud) -> None:
    """Each poll that is saved puts off the day without one; what was planned before is dropped."""
    agenda = Agenda(cloud.published)
    cloud.published.on_publish(agenda.published)
    for _ in range(1_000):
        cloud.clock.pass_ms(1_000)
        polled = Decision(scopes=(replace(cloud.scope(), polled_ms=cloud.clock.wall),))
        cloud.run(partial(Transaction.apply, decision=polled))
        agenda.due(cloud.clock.wall)
    assert len(agenda) <= OUTDATED_MIN + 2 * 2
    cloud.order("web_0", EventType.REBOOT)
    size = len(agenda)
    for _ in range(10):  # looked at, and the next instant is the same
        cloud.order("web_1", EventType.REBOOT)
        agenda.due(cloud.clock.wall)
    assert len(agenda) <= size + 1
    cloud.clock.pass_ms(notice.ENABLED_FOR_MS - 1)
    assert "web" not in agenda.due(cloud.clock.wall)
    cloud.clock.pass_ms(1)
    assert "web" in agenda.due(cloud.clock.wall)


def test_a_scope_that_left_is_on_no_agenda(cloud: Cloud) -> None:
    agenda = Agenda(cloud.published)
    cloud.published.on_publish(agenda.published)
    cloud.order("x", EventType.REBOOT)
    cloud.show()
    assert set(agenda.told_hosts()) == {"h1"}
    cloud.cancel(cloud.scope("api").events[0])
    cloud.run(lambda tx: tx.remove_scope("api"))
    agenda.due(cloud.clock.wall)
    cloud.clock.pass_ms(minutes(60))
    assert agenda.due(cloud.clock.wall) == set()
    assert list(agenda.told_hosts()) == []
