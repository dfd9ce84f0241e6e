"""What was heard of hosts: commands are decided by it, and it goes with their transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from forewarn.control.command_handlers import decide
from forewarn.control.commands import Command, ReportTaken, TakeTurn, TurnResult
from forewarn.control.hosts.liveness import LastHeard, News, Observed, Pulse
from forewarn.control.hosts.report_intake import ReportIntake
from forewarn.control.transaction import Transaction
from forewarn.control.writer import WriterThread
from forewarn.core import notice
from forewarn.core.errors import Conflict
from forewarn.core.inventory.host_report import Power, SeenVm
from forewarn.core.model import Decision, EventType, Host
from forewarn.ports import Change, StoreFailed
from support import ordered
from support.clock import ManualClock, RestlessClock
from support.control import run_now
from support.core_fleet import WEB, Cloud, scope
from support.reporting_fleet import ReportingFleet, seen, web
from support.watched_store import GatedStore, WatchedStore, disk_full

HANGS_S = 60  # only ends a hang
LATE_MS = notice.HEARTBEAT_LATE_MS + 1_000


class Listening(Cloud):
    """A cloud that hears its hosts by what they say, with a store that fails where told to."""

    def __init__(self, store: WatchedStore | None = None) -> None:
        self.watched = store or WatchedStore()
        self.between: Callable[[], None] = lambda: None  # a commit and its answer
        self.thread: WriterThread | None = None
        super().__init__(scope("web", WEB), store=self.watched)

    def _committed(self, changes: Sequence[Change]) -> None:
        if self.thread is not None:
            self.thread.committed(changes)
        else:
            super()._committed(changes)
            self.between()

    def _observe(self) -> Observed:
        return Observed(self.clock)

    def question(self, ask: Callable[[Transaction], Any]) -> Any:
        """What a command would see."""
        return self.run(ask)

    def heard(self) -> tuple[object, ...]:
        """All that a command could know of hosts and is written down nowhere."""

        def look(tx: Transaction) -> tuple[object, ...]:
            known = tx.volatile
            return (
                [(tx.alive(h), tx.silent_ms(h), tx.refuses(h)) for h in ("h1", "h2", "new")],
                [(tx.silences(h), dict(tx.reported(h))) for h in ("h1", "h2", "new")],
                (dict(known.looks), dict(known.reports), dict(known.seen_ms), dict(known.leases)),
            )

        found: tuple[object, ...] = self.run(look)
        return found


@pytest.fixture
def cloud() -> Listening:
    return Listening()


def report(cloud: Listening, host: str, *vms: SeenVm) -> Command[ReportTaken]:
    (taking,) = ReportIntake(cloud.clock, cloud.volatile).steps(host, vms)
    return taking


def stranger() -> SeenVm:
    """A VM that runs, and that the fleet cannot have: for its name."""
    return seen("a stranger")


def hearing(cloud: Listening) -> list[Command[Any]]:
    """What a command may hear: a host after a silence, its VMs, and a host that is new."""
    return [
        ordered.turn("h1"),
        report(cloud, "h2", stranger()),
        ordered.host_joined("new"),
    ]


# Taken back with the transaction.


def test_what_could_not_be_kept_was_not_heard(cloud: Listening) -> None:
    """The disk is full: the host says it again, and then it is news."""
    cloud.clock.pass_ms(notice.HOST_SILENT_AFTER_MS)
    before = cloud.heard()
    cloud.watched.fails["commit"] = disk_full()
    with pytest.raises(StoreFailed):
        cloud.writer.run(hearing(cloud))
    assert cloud.heard() == before
    assert cloud.observed.reported("h2") == {}
    cloud.writer.run(hearing(cloud))
    assert cloud.heard() != before
    assert list(cloud.observed.reported("h2")) == ["a stranger"]


@pytest.mark.parametrize("number", range(3))
def test_what_a_refused_command_heard_was_not_heard(cloud: Listening, number: int) -> None:
    cloud.clock.pass_ms(notice.HOST_SILENT_AFTER_MS)
    before = cloud.heard()

    def hears_and_refuses(tx: Transaction) -> None:
        decide(tx, hearing(cloud)[number])
        raise Conflict("on purpose")

    with pytest.raises(Conflict):
        cloud.run(hears_and_refuses)
    assert cloud.heard() == before


def test_a_host_that_comes_again_is_new_again_if_its_leaving_was_not_kept(
    cloud: Listening,
) -> None:
    cloud.run(ordered.host_joined("new"))
    cloud.run(report(cloud, "new", stranger()))
    cloud.observed.heard("new", at_ms=cloud.clock.monotonic_ms(), refuses="on purpose")
    before = cloud.heard()
    cloud.watched.fails["commit"] = disk_full()
    with pytest.raises(StoreFailed):
        cloud.run(ordered.host_left("new", by="op"))
    assert cloud.heard() == before
    cloud.run(ordered.host_left("new", by="op"))
    assert cloud.question(lambda tx: (tx.refuses("new"), dict(tx.reported("new")))) == ("", {})


# Part of the transaction.


def test_a_heartbeat_that_came_late_and_is_said_twice_costs_its_notice_once(
    cloud: Listening,
) -> None:
    """Two in one commit: the second one finds that the host was heard."""
    run_now(cloud.control.turns.take(ordered.turn("h1")))
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.show()
    cloud.clock.pass_ms(LATE_MS)
    unreadable_ms = cloud.event(event).unreadable_ms
    cloud.writer.run([ordered.turn("h1"), ordered.turn("h1")])
    lost_ms = LATE_MS - notice.HEARTBEAT_EVERY_MS
    assert cloud.event(event).unreadable_ms == unreadable_ms + lost_ms


def test_a_host_that_refuses_control_is_not_heard_without_that_for_a_moment(
    cloud: Listening,
) -> None:
    """The command that hears it knows: nothing starts there in between."""
    cloud.clock.pass_ms(notice.HOST_SILENT_AFTER_MS)
    cloud.order("web_0", EventType.REBOOT)
    cloud.show()
    found: list[tuple[bool, str]] = []

    def look() -> None:
        found.append(cloud.question(lambda tx: (tx.alive("h1"), tx.refuses("h1"))))

    cloud.between = look
    run_now(cloud.control.turns.take(ordered.turn("h1", refuses="it follows another one")))
    assert found == [(True, "it follows another one")]


def test_what_a_host_reports_counts_for_the_next_command_of_the_same_commit(
    cloud: Listening,
) -> None:
    strangers = ordered.wanted(lambda tx: list(tx.strangers("h1")))
    _, done = cloud.writer.run([report(cloud, "h1", stranger()), strangers])
    assert done.value == ["a stranger"]


def test_a_host_that_is_new_was_not_silent_for_the_next_command_of_the_same_commit(
    cloud: Listening,
) -> None:
    cloud.clock.pass_ms(10 * notice.HOST_SILENT_AFTER_MS)
    silent = ordered.wanted(lambda tx: tx.silent_ms("new"))
    _, done = cloud.writer.run([ordered.host_joined("new"), silent])
    assert done.value == 0


def test_a_report_is_heard_though_its_host_hung_up_before_the_answer() -> None:
    """It is committed, and the next one like it says nothing new."""
    slow = GatedStore()
    cloud = Listening(slow)

    async def main() -> None:
        publish = cloud.published.publish
        cloud.thread = thread = WriterThread(cloud.writer, publish=publish, on_fatal=pytest.fail)
        thread.start()
        control = cloud.parts.control(thread)
        try:
            shown = [seen("newcomer"), stranger()]
            slow.close_gate()
            report_intake = ReportIntake(cloud.clock, cloud.volatile)
            taking = asyncio.create_task(report_intake.take(control, "h1", shown))
            assert await asyncio.to_thread(slow.at_gate.wait, HANGS_S)
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
        finally:
            slow.open_gate()
            await thread.stop()

    asyncio.run(main())
    assert sorted(cloud.observed.reported("h1")) == ["a stranger", "newcomer"]
    assert cloud.published.strangers("h1") == ["a stranger"]


def test_a_host_that_left_and_joins_again_is_heard_though_it_reports_the_same() -> None:
    fleet = ReportingFleet("h1", "h2")
    fleet.shows("h1", web(0), stranger())
    assert "a stranger" in fleet.observed.reported("h1")
    fleet.run(ordered.host_left("h1", by="op"))
    assert fleet.observed.reported("h1") == {}
    fleet.run(ordered.host_joined("h1"))
    fleet.shows("h1", web(0), stranger())
    assert "a stranger" in fleet.observed.reported("h1")


# One moment for a batch.


def test_all_commands_of_a_batch_are_decided_by_what_was_heard_at_one_moment() -> None:
    cloud = Listening()
    cloud.clock = RestlessClock()
    cloud._open()
    observed = cloud.observed

    def look(tx: Transaction) -> tuple[int, bool, int]:
        found = tx.silent_ms("h1"), tx.alive("h1"), tx.monotonic_ms
        observed.heard("h1", at_ms=tx.monotonic_ms)  # the event loop goes on meanwhile
        return found

    batch = [ordered.wanted(look), ordered.wanted(look)]
    first, second = (done.value for done in cloud.writer.run(batch))
    assert first == second
    assert first[1] is False
    later, _ = (done.value for done in cloud.writer.run(batch))
    assert later[1] is True


def test_the_writer_is_told_of_each_host_what_was_heard_last() -> None:
    """However long nobody asked, and once."""
    clock = ManualClock()
    observed = Observed(clock)
    for _ in range(1_000):
        clock.pass_ms(5_000)
        observed.pulse()
        observed.heard("h1", at_ms=clock.monotonic_ms())
    observed.hypervisor_lost("h2", "Libvirt is down.")
    now_ms = clock.monotonic_ms()
    assert observed.news() == News(
        {
            "h1": LastHeard(heard_ms=now_ms),
            "h2": LastHeard(hypervisor_unreachable="Libvirt is down."),
        },
        Pulse(now_ms, now_ms),
    )
    assert observed.news() == News()


def test_of_a_host_that_is_gone_nothing_is_kept(cloud: Listening) -> None:
    """Hosts come and go for years under ever new names."""
    clock, observed, turns = cloud.clock, cloud.observed, cloud.control.turns

    def kept() -> list[bool]:
        writers: dict[str, LastHeard] = cloud.run(lambda tx: tx._heard.hosts)
        maps: list[dict[str, Any]] = [observed.hosts, turns._lives, turns._locks, writers]
        return ["new" in one for one in (*maps, *cloud.volatile.by_host())]

    cloud.run(lambda tx: tx.apply(Decision(hosts=(Host(name="new"),))))
    cloud.run(ordered.claim("new", "boot", daemon="its daemon"))
    run_now(turns.take(ordered.turn("new", confirms={"web": 1}), "its daemon"))
    cloud.run(report(cloud, "new", seen("stray", power=Power.OFF)))
    assert kept().count(True) >= 6
    cloud.run(lambda tx: tx.remove_host("new"))
    assert kept() == [False] * len(kept())
    assert not observed.was_heard("new")

    cloud.run(lambda tx: tx.apply(Decision(hosts=(Host(name="new"),))))
    clock.pass_ms(1_000)
    assert not observed.alive("new")  # that a host of its name was heard says nothing of it
    assert observed.silent_ms("new") == 1_000
    assert run_now(turns.take(ordered.turn("new"), "another")) == TurnResult()
    assert observed.alive("new")


def test_a_host_that_leaves_while_its_turn_is_taken_is_not_remembered(cloud: Listening) -> None:
    cloud.run(lambda tx: tx.apply(Decision(hosts=(Host(name="new"),))))
    turns = cloud.control.turns
    decides = turns._decided

    async def leaves(turn: TakeTurn) -> TurnResult:
        found = await decides(turn)
        cloud.run(lambda tx: tx.remove_host("new"))
        return found

    turns._decided = leaves  # type: ignore[method-assign]
    run_now(turns.take(ordered.turn("new", confirms={"web": 1}), "its daemon"))
    assert [name for name in ("new",) if name in cloud.observed.hosts] == []
    assert ("new" in turns._locks, "new" in turns._lives) == (False, False)


def all_of(host: str, heard: Observed | Transaction) -> tuple[object, ...]:
    return (
        heard.alive(host),
        heard.silent_ms(host),
        heard.may_be_on(host),
        heard.hypervisor_unreachable(host),
        heard.refuses(host),
        heard.silences(host),
    )


def test_the_writer_and_the_event_loop_say_the_same_of_what_the_loop_has_heard(
    cloud: Listening,
) -> None:
    observed, now_ms = cloud.observed, cloud.clock.monotonic_ms
    cloud.run(lambda tx: tx.apply(Decision(hosts=(Host(name="new"),))))
    steps: list[Callable[[], None]] = [
        lambda: observed.heard("h1", at_ms=now_ms(), refuses="it follows another one"),
        lambda: observed.hypervisor_lost("h1", "Libvirt is down."),
        lambda: observed.heard("h2", at_ms=now_ms()),
        lambda: observed.lost("h2"),
        lambda: observed.sees("h1"),
        lambda: observed.left("h1"),
        lambda: observed.heard("h2", at_ms=now_ms()),
        observed.pulse,
    ]
    for step in steps:
        cloud.clock.pass_ms(7_000)
        step()
        for host in ("h1", "h2", "h3", "new"):
            assert all_of(host, observed) == cloud.question(partial(all_of, host))
