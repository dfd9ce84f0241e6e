"""The command log: all that decisions rest on, told before each commit, as lines of JSON."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.adapters.system import RandomIds, SystemClock
from forewarn.control import command_json
from forewarn.control.command_log import Began, LoggedBatch, TakenBack
from forewarn.control.commands import (
    BeginReport,
    Command,
    DecideInventory,
    EndReport,
    FailHost,
    FinishInventory,
    GoOnReport,
    Once,
    TakeInventorySlice,
)
from forewarn.control.hosts.liveness import LastHeard, News, Observed, Pulse
from forewarn.control.hosts.report_intake import ReportIntake
from forewarn.control.hosts.simulated_power import HostPower
from forewarn.control.inventory import apply_at_once
from forewarn.control.inventory.apply_runner import Inventories
from forewarn.control.writer import WriterThread
from forewarn.core.errors import Invalid, NotFound, Refusal, Unavailable
from forewarn.core.model import EventType, Policy
from forewarn.ports import Change, Store, StoreFailed
from simulation.replaying import everything, journal, replay
from support import ordered
from support.control import ControlParts
from support.core_fleet import WEB, Cloud, scope
from support.reporting_fleet import seen
from support.waiting import until
from support.watched_store import GatedStore, WatchedStore, disk_full

HANGS_S = 60  # only ends a hang
POLICY = Policy(always_enabled=True, domain_recovery_ms=0)
HOSTS = ("h1", "h2", "h3")
SLICE_VMS = 2


def fleet(scopes: int = 1) -> str:
    """Scopes of twelve VMs on three hosts."""
    text = "".join(f'[[host]]\nname = "{host}"\n' for host in HOSTS)
    for name in ["web", *(f"web{number}" for number in range(1, scopes))]:
        text += f'[[scope]]\nname = "{name}"\nkind = "availability-set"\n'
        text += "".join(
            f'[[vm]]\nname = "{name}-{n}"\nscope = "{name}"\nhost = "{HOSTS[n % 3]}"\n'
            f"update_domain = {n % 3}\n"
            for n in range(12)
        )
    return text


class Logged:
    """A control plane on the clock and the randomness of the machine, with a command log."""

    def __init__(self) -> None:
        clock = SystemClock()
        self.store = GatedStore()
        self.log: list[bytes] = []
        self.observed = Observed(clock, power=HostPower())
        self.clock = clock
        parts = ControlParts(
            self.store, clock=clock, observed=self.observed, policy=POLICY, ids=RandomIds()
        )
        self.volatile, self.fleet = parts.volatile, parts.published
        self._keep(
            Began(
                monotonic_ms=self.observed.began_ms,
                position=self.store.position(),
                policy=POLICY,
                powers_hosts=True,
            )
        )
        writer = parts.writer(self._committed, command_log=self._keep)
        self.thread = WriterThread(writer, publish=self.fleet.publish, on_fatal=pytest.fail)
        self.thread.start()
        self.control = parts.control(self.thread)

    def _keep(self, entry: Began | LoggedBatch | TakenBack) -> None:
        self.log.append(command_json.entry_written(entry))

    def _committed(self, changes: Sequence[Change]) -> None:
        self.thread.committed(changes)

    async def all_at_once(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Submit them while the writer is busy and hosts are heard; refusals come back as values.

        They share the next commit.
        """
        self.store.close_gate()
        first = asyncio.ensure_future(self.thread.submit(ordered.heartbeat()))
        assert await asyncio.to_thread(self.store.at_gate.wait, HANGS_S)
        tasks = [asyncio.ensure_future(self.thread.submit(command)) for command in commands]
        await asyncio.sleep(0)  # all of them are in the writer's queue
        self.store.open_gate()
        await first
        while not all(task.done() for task in tasks):
            for host in HOSTS:
                self.observed.heard(host, at_ms=self.clock.monotonic_ms())
            self.observed.pulse()
            await asyncio.sleep(0)
        return await asyncio.gather(*tasks, return_exceptions=True)


def orders() -> list[Command[Any]]:
    return [
        *(ordered.order_vm(f"web-{n}", EventType.REBOOT, by="owner") for n in range(14)),
        *(ordered.claim(host, "boot-1", daemon="d1") for host in HOSTS),
        *(ordered.turn(host) for host in HOSTS),
    ]


def test_a_log_of_real_threads_time_and_ids_replays_to_the_same_journal() -> None:
    """Commits of many commands, hosts heard meanwhile, refusals, a full disk, power that is cut."""

    async def main() -> Logged:
        control = Logged()
        by = ordered.operator("op")
        try:
            await control.thread.submit(apply_at_once.apply(fleet(), by=by, needs_channels=False))
            found = await control.all_at_once(orders())
            assert any(isinstance(one, Refusal) for one in found)  # there is no web-12
            control.store.fails["commit"] = disk_full()
            with pytest.raises(Unavailable):
                await control.thread.submit(ordered.fail_host("h2", by="op", fenced=True))
            found = await control.all_at_once(
                [
                    ordered.fail_host("h1", by="op", fenced=True),
                    ordered.maintain_host("h3", EventType.FREEZE, by="op"),
                    ordered.host_silent("h3"),
                    ordered.heartbeat(),
                ]
            )
            assert not any(isinstance(one, Exception) for one in found), found
        finally:
            await control.thread.stop()
        return control

    control = asyncio.run(main())
    batches = [e for e in map(command_json.entry_read, control.log) if isinstance(e, LoggedBatch)]
    assert max(len(batch.commands) for batch in batches) == len(orders())
    found = replays(control.log, control.store)
    assert (found["taken back"], found["refused"]) == (1, 2)


def replays(log: Sequence[bytes], store: Store) -> Counter[str]:
    """Decide the log anew: it leads to what the store has."""
    other = SqliteStore.in_memory()
    found = replay(log, other)
    assert journal(everything(other)) == journal(everything(store))
    assert everything(other) == everything(store)
    return found


def test_a_log_of_what_is_taken_in_slices_and_of_remembered_answers_replays() -> None:
    """Of a large file and a long report little is said with each slice; the rest was said before.

    An answer that is kept says how long its host was silent.
    """

    async def main() -> Logged:
        logged = Logged()
        control, by = logged.control, ordered.operator("op")
        inventories = Inventories(control, needs_channels=False, slice_vms=SLICE_VMS)
        slices = asyncio.ensure_future(inventories.run())
        try:
            async with asyncio.timeout(HANGS_S):
                await inventories.apply(fleet(12), by=by, guard=lambda command: command)
                await until(lambda: not logged.fleet.unfinished, "all is applied")
                order = FailHost(by=by, host="h1", fenced=True)
                access = ordered.full_access(by)
                once = Once(by=by, order=order, access=access, key="k", fingerprint="f")
                answers = [await logged.thread.submit(once) for _ in range(2)]
                assert [answer.repeated for answer in answers] == [False, True]
                report_intake = ReportIntake(logged.clock, logged.volatile, slice_vms=SLICE_VMS)
                await report_intake.take(control, "h2", [seen(f"new-{n}") for n in range(7)])
        finally:
            slices.cancel()
            await asyncio.gather(slices, return_exceptions=True)
            await logged.thread.stop()
        return logged

    logged = asyncio.run(main())
    said = {
        type(command)
        for entry in map(command_json.entry_read, logged.log)
        if isinstance(entry, LoggedBatch)
        for command in entry.commands
    }
    assert said >= {DecideInventory, TakeInventorySlice, FinishInventory, Once}
    assert said >= {BeginReport, GoOnReport, EndReport}
    assert "new-6" in logged.fleet.scope_of_vm
    replays(logged.log, logged.store)


# When the log is told, and what it is told.


class Told(Cloud):
    """A cloud whose log keeps what it is told, or fails."""

    def __init__(self) -> None:
        self.watched = WatchedStore()
        super().__init__(scope("web", WEB), store=self.watched)
        self.log: list[LoggedBatch | TakenBack] = []
        self.log_fails: Exception | None = None
        self.writer = self.parts.writer(self._committed, command_log=self._told)

    def _told(self, entry: LoggedBatch | TakenBack) -> None:
        if self.log_fails is not None:
            raise self.log_fails
        self.watched.calls.append("log")
        self.log.append(entry)


@pytest.fixture
def cloud() -> Told:
    return Told()


def test_a_batch_is_told_once_before_its_commit_with_refused_commands_and_ids(
    cloud: Told,
) -> None:
    good = ordered.order_vm("web_0", EventType.REBOOT, by="op")
    bad = ordered.order_vm("ghost", EventType.REBOOT, by="op")
    cloud.watched.calls.clear()
    done = cloud.writer.run([bad, good])
    assert isinstance(done[0].error, NotFound)
    assert cloud.watched.calls[-2:] == ["log", "commit"]
    [batch] = cloud.log
    assert batch == LoggedBatch(
        now_ms=cloud.clock.wall,
        monotonic_ms=cloud.clock.monotonic,
        commands=(bad, good),
        ids=(done[1].value.event_id,),
    )


def test_what_changes_nothing_durable_is_told_too(cloud: Told) -> None:
    """A lease, or what was heard, may decide later."""
    cloud.observed.heard("h1", at_ms=7)
    cloud.watched.calls.clear()
    cloud.writer.run([ordered.renew("h1", {})])
    assert cloud.watched.calls == ["log"]
    [batch] = cloud.log
    assert isinstance(batch, LoggedBatch)
    assert batch.heard.hosts["h1"].heard_ms == 7


def test_a_step_of_the_clock_is_in_the_log_as_the_command_that_it_is(cloud: Told) -> None:
    cloud.clock.wall += 60_000
    cloud.writer.run([ordered.heartbeat()])
    [batch] = cloud.log
    assert isinstance(batch, LoggedBatch)
    assert batch.commands == (ordered.clock_stepped(60_000), ordered.heartbeat())


def test_a_batch_that_could_not_be_kept_is_told_and_so_is_that(cloud: Told) -> None:
    cloud.watched.fails["commit"] = disk_full()
    orders = [ordered.close_host("h1", by="op"), ordered.close_host("h2", by="op")]
    with pytest.raises(StoreFailed):
        cloud.writer.run(orders)
    [batch, taken_back] = cloud.log
    assert isinstance(batch, LoggedBatch)
    assert batch.commands == tuple(orders)
    assert taken_back == TakenBack()


def test_a_batch_that_the_log_cannot_keep_is_not_kept_either(cloud: Told) -> None:
    before = cloud.everything()
    cloud.log_fails = disk_full()
    with pytest.raises(StoreFailed):
        cloud.writer.run([ordered.close_host("h1", by="op")])
    assert cloud.everything() == before
    assert cloud.store.load().hosts == tuple(cloud.index.hosts.values())
    cloud.log_fails = None
    cloud.run(ordered.close_host("h1", by="op"))
    assert cloud.host("h1").closed


# As lines of JSON.


@pytest.mark.parametrize(
    "entry",
    [
        Began(monotonic_ms=5, position=3, policy=POLICY, powers_hosts=True),
        LoggedBatch(
            now_ms=1,
            monotonic_ms=2,
            commands=(ordered.close_host("h1", by="op"), ordered.heartbeat()),
            heard=News({"h1": LastHeard(heard_ms=4, silences=1, refuses="é")}, Pulse(3, 9)),
            ids=("A", "B"),
        ),
        TakenBack(),
    ],
)
def test_an_entry_is_read_as_it_was_written_in_one_line(
    entry: Began | LoggedBatch | TakenBack,
) -> None:
    line = command_json.entry_written(entry)
    assert b"\n" not in line
    assert command_json.entry_read(line) == entry


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"null", "Expected `object`"),
        (b"{}", "missing required field `entry`"),
        (b'{"entry":"batch","now_ms":1', "truncated"),
        (b'{"entry":"party"}', "'party'"),
        (b'{"entry":"taken-back","why":"x"}', "unknown field `why`"),
        (b'{"entry":"batch","now_ms":1,"monotonic_ms":2}', "`commands`"),
        (
            b'{"entry":"batch","now_ms":1,"monotonic_ms":2,"commands":[{"command":"party"}]}',
            "'party'",
        ),
        (
            (
                b'{"entry":"batch","now_ms":1,"monotonic_ms":2,"commands":[{'
                b'"command":"note-heartbeat",'
                b'"by":{"kind":"control","id":"ticker","name":"ticker","rights":"all"}}]}'
            ),
            "unknown field `$.by.rights`",
        ),
        (
            (
                b'{"entry":"began","monotonic_ms":2,"position":1,"powers_hosts":false,"policy":'
                b'{"domain_recovery_ms":0,"surprise":1}}'
            ),
            "unknown field `$.policy.surprise`",
        ),
        (b"\xff", "not understood"),
    ],
)
def test_an_entry_that_is_half_understood_is_refused(line: bytes, why: str) -> None:
    with pytest.raises(Invalid, match="was not understood") as refused:
        command_json.entry_read(line)
    assert why in str(refused.value)
