"""A turn or claim in which something of control's own breaks: the host has all the rest of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from forewarn.api.link.in_process import InProcessLink
from forewarn.api.link.routes import LinkRoutes
from forewarn.control import commands
from forewarn.control.hosts.action_claims import CLAIMS_PER_CALL_MAX
from forewarn.control.hosts.host_feed import HostFeed
from forewarn.control.hosts.liveness import Observed
from forewarn.control.hosts.report_intake import ReportIntake
from forewarn.control.hosts.turn_parts import parts_of, turn_of
from forewarn.core import notice
from forewarn.core.errors import Unavailable
from forewarn.core.model import EventType, Outcome, Phase, ScheduledEvent
from forewarn.ports import Batch, Fence, StoreFailed, TableWrites, Unstorable
from support import ordered
from support.control import run_now
from support.core_fleet import Cloud, scope
from support.ordered import Given
from support.watched_store import WatchedStore, disk_full

SCOPES = tuple(f"s{number}" for number in range(9))


class BuggyStore(WatchedStore):
    """Breaks when it is to keep what `breaks` says, as a bug of ours would."""

    def __init__(self) -> None:
        super().__init__()
        self.breaks: Callable[[Batch], bool] = lambda _: False

    def commit(self, batch: Batch, fence: Fence | None = None) -> None:
        if self.breaks(batch):
            raise Unstorable("a bug of ours")
        super().commit(batch, fence)


def scopes_of(batch: Batch) -> set[object]:
    """The scopes that a batch writes."""
    written = batch.tables.get("scope", TableWrites())
    return {row["name"] for row in (*written.inserted, *written.updated)}


def touches(*scopes: str) -> Callable[[Batch], bool]:
    return lambda batch: not scopes_of(batch).isdisjoint(scopes)


class Buggy(Cloud):
    """A VM on h1 in each of nine scopes, or of these; hosts are heard by their turns."""

    def __init__(self, *names: str) -> None:
        self.buggy = BuggyStore()
        vms = [scope(name, {f"{name}_vm": (0, "h1")}) for name in names or SCOPES]
        super().__init__(*vms, store=self.buggy)
        self.take()

    def _observe(self) -> Observed:
        return Observed(self.clock)

    def run(self, command: Given[object]) -> object:  # type: ignore[override]
        try:
            return super().run(command)
        except StoreFailed as failed:  # as the writer's thread says it
            raise Unavailable(str(failed)) from None

    def take(self, **said: object) -> commands.TurnResult:
        return run_now(self.control.turns.take(ordered.turn("h1", **said)))

    def ordered(self, name: str) -> ScheduledEvent:
        return self.order(f"{name}_vm", EventType.REBOOT)

    def shown(self, *names: str) -> dict[str, int]:
        return {name: self.scope(name).incarnation for name in names}


@pytest.fixture
def cloud() -> Buggy:
    return Buggy()


def test_a_host_is_heard_whatever_breaks_in_what_it_says(cloud: Buggy) -> None:
    """Its heartbeat counts, turn after turn, and what is sound is durable when it is answered."""
    events = {name: cloud.ordered(name) for name in SCOPES}
    cloud.buggy.breaks = touches("s4")
    for _ in range(5):
        cloud.clock.pass_ms(notice.HEARTBEAT_EVERY_MS)
        taken = cloud.take(confirms=cloud.shown(*SCOPES))
        assert cloud.observed.silent_ms("h1") == 0
        assert cloud.observed.alive("h1")
        assert set(taken.refused_confirms) == {"s4"}
        assert taken.refused_confirms["s4"].code == "internal"
    kept = {event.event_id: event for one in cloud.store.load().scopes for event in one.events}
    assert [name for name in SCOPES if kept[events[name].event_id].shown_ms is None] == ["s4"]
    cloud.buggy.breaks = lambda _: False
    assert cloud.take(confirms=cloud.shown("s4")) == commands.TurnResult()
    assert cloud.event(events["s4"]).shown_ms is not None


def test_a_part_that_breaks_is_written_not_at_all(cloud: Buggy) -> None:
    cloud.ordered("s1")
    cloud.clock.pass_ms(5_000)
    before = {one.name: one for one in cloud.store.load().scopes}
    cloud.buggy.breaks = touches("s1")
    cloud.take(confirms=cloud.shown("s1", "s2"), polls={"s1": 5, "s3": 5})
    after = {one.name: one for one in cloud.store.load().scopes}
    assert after["s1"] == before["s1"] == cloud.scope("s1")
    assert [name for name in SCOPES if after[name] != before[name]] == ["s3"]


def test_an_end_that_breaks_is_named_and_the_others_are_kept(cloud: Buggy) -> None:
    events = [cloud.ordered(name) for name in ("s1", "s2", "s3")]
    for event in events:
        cloud.start(event)
    work = {one.vm: one for one in cloud.claim("h1")}
    holding = {one.action_id: one.epoch for one in work.values()}
    cloud.buggy.breaks = touches("s2")
    ended = tuple(
        commands.EndedAction(action_id=action, epoch=epoch, outcome=Outcome.DONE)
        for action, epoch in holding.items()
    )
    taken = cloud.take(holding={**holding, "never was": 3}, ended=ended)
    broken = work["s2_vm"].action_id
    assert {action: why.code for action, why in taken.refused_ended.items()} == {broken: "internal"}
    assert taken.lost == ("never was",)
    phases = [cloud.event(event).phase for event in events]
    assert phases == [Phase.COMPLETED, Phase.STARTED, Phase.COMPLETED]

    # The host drops it. It is handed out again once its lease has lapsed, and looked at anew.
    cloud.buggy.breaks = lambda _: False
    cloud.clock.pass_ms(31_000)
    [again] = cloud.claim("h1")
    assert (again.action_id, again.epoch) == (broken, holding[broken] + 1)
    said = commands.EndedAction(action_id=broken, epoch=again.epoch, outcome=Outcome.DONE)
    assert cloud.take(ended=(said,)) == commands.TurnResult()
    assert cloud.event(events[1]).phase is Phase.COMPLETED


def test_parts_that_break_only_together_are_all_taken(cloud: Buggy) -> None:
    events = [cloud.ordered(name) for name in SCOPES]
    cloud.buggy.breaks = lambda batch: len(scopes_of(batch)) > 3
    with capture_logs() as logs:
        assert cloud.take(confirms=cloud.shown(*SCOPES)) == commands.TurnResult()
    assert all(cloud.event(event).shown_ms is not None for event in events)
    assert [line["why"] for line in logs] == ["the whole turn: Unstorable: a bug of ours"]


def test_what_breaks_is_logged_once_however_often_it_is_said(cloud: Buggy) -> None:
    cloud.ordered("s1")
    cloud.buggy.breaks = touches("s1")
    with capture_logs() as logs:
        for _ in range(4):
            cloud.take(confirms=cloud.shown("s1", "s2"))
    assert [(line["event"], line["host"], line["why"]) for line in logs] == [
        ("turn_part_broke", "h1", "confirms s1: Unstorable: a bug of ours")
    ]
    assert cloud.control.turns.failures == 4


def test_a_host_is_not_heard_if_its_silence_cannot_be_written_down(cloud: Buggy) -> None:
    """What was no notice would count as notice otherwise."""
    cloud.ordered("s1")
    cloud.take(confirms=cloud.shown("s1"))
    cloud.clock.pass_ms(notice.HOST_SILENT_AFTER_MS)
    cloud.buggy.breaks = touches("s1")
    with pytest.raises(Unstorable):
        cloud.take(confirms=cloud.shown("s2"))
    assert not cloud.observed.alive("h1")
    cloud.buggy.breaks = lambda _: False
    cloud.take()
    assert cloud.observed.alive("h1")


def test_a_disk_that_fills_up_between_two_parts_is_said_and_all_is_said_again(cloud: Buggy) -> None:
    events = [cloud.ordered(name) for name in ("s1", "s2", "s3", "s4")]
    shown = cloud.shown("s1", "s2", "s3", "s4")

    first_half: list[set[object]] = []

    def full_after_the_first_half(batch: Batch) -> bool:
        if first_half:
            cloud.buggy.fails["commit"] = disk_full()
            return False
        if scopes_of(batch) == {"s1", "s2"}:
            first_half.append(scopes_of(batch))
        return "s4" in scopes_of(batch)

    cloud.buggy.breaks = full_after_the_first_half
    with pytest.raises(Unavailable):
        cloud.take(confirms=shown)
    assert [cloud.event(event).shown_ms is None for event in events] == [False, False, True, True]
    cloud.buggy.breaks = lambda _: False
    assert cloud.take(confirms=shown) == commands.TurnResult()
    assert all(cloud.event(event).shown_ms is not None for event in events)


# Claims.


def started(cloud: Buggy, *names: str) -> None:
    for name in names:
        cloud.start(cloud.ordered(name))


def claims(cloud: Buggy, boot_id: str = "boot-1") -> list[str]:
    """The scopes of the VMs that the host is given to do something to, over the link."""
    report_intake = ReportIntake(cloud.clock, cloud.volatile)
    routes = LinkRoutes(cloud.control, host_feed=HostFeed(), report_intake=report_intake)
    work = run_now(InProcessLink(routes, "h1").claim(boot_id))
    return [(one.vm or "").removesuffix("_vm") for one in work]


def test_a_scope_that_breaks_costs_the_host_no_other_claim(cloud: Buggy) -> None:
    started(cloud, *SCOPES)
    cloud.buggy.breaks = touches("s4")
    assert claims(cloud) == [name for name in SCOPES if name != "s4"]
    kept = {one.name: one for one in cloud.store.load().scopes}
    assert kept["s4"] == cloud.scope("s4")
    assert {action.epoch for one in kept["s4"].events for action in one.actions} == {0}
    assert claims(cloud) == [], "the others are held, and this one still breaks"
    cloud.buggy.breaks = lambda _: False
    assert claims(cloud) == ["s4"]


def test_a_claim_that_breaks_is_logged_once_and_counted_each_time(cloud: Buggy) -> None:
    started(cloud, "s1", "s2")
    cloud.buggy.breaks = touches("s1")
    with capture_logs() as logs:
        for _ in range(3):
            claims(cloud)
    [event] = cloud.scope("s1").events
    assert [(line["event"], line["host"], line["why"]) for line in logs] == [
        (
            "claim_broke",
            "h1",
            f"claim of {event.event_id}/s1_vm: Unstorable: a bug of ours",
        )
    ]
    assert cloud.control.turns.failures == 3


def test_claims_that_break_only_together_are_all_given_and_no_more_than_a_call_holds() -> None:
    names = [f"s{number:03}" for number in range(CLAIMS_PER_CALL_MAX + 6)]
    cloud = Buggy(*names)
    started(cloud, *names)
    cloud.buggy.breaks = lambda batch: len(scopes_of(batch)) > 20 or touches("s003")(batch)
    first, second = claims(cloud), claims(cloud)
    assert len(first) == CLAIMS_PER_CALL_MAX
    assert sorted(first + second) == [name for name in names if name != "s003"]


def test_claims_that_break_only_together_are_logged_as_that(cloud: Buggy) -> None:
    started(cloud, *SCOPES)
    cloud.buggy.breaks = lambda batch: len(scopes_of(batch)) > 3
    with capture_logs() as logs:
        assert claims(cloud) == list(SCOPES)
    why = "claim of all claims together: Unstorable: a bug of ours"
    assert [line["why"] for line in logs] == [why]


def test_a_claim_whose_boot_cannot_be_written_down_gives_nothing(cloud: Buggy) -> None:
    """A VM that went down with its host would be taken for one that runs."""
    assert claims(cloud) == []
    started(cloud, "s1", "s2")
    cloud.buggy.breaks = lambda batch: "host" in batch.tables
    with pytest.raises(Unstorable):
        claims(cloud, "boot-2")
    assert cloud.host("h1").boot_id == "boot-1"
    cloud.buggy.breaks = lambda _: False
    assert claims(cloud, "boot-2") == ["s1", "s2"]


def test_a_disk_that_is_full_takes_no_claim_apart(cloud: Buggy) -> None:
    started(cloud, "s1")
    cloud.buggy.fails["commit"] = disk_full()
    with pytest.raises(Unavailable):
        claims(cloud)
    assert cloud.control.turns.failures == 0


def test_a_turn_and_its_parts_say_the_same() -> None:
    whole = ordered.turn(
        "h1",
        confirms={"a": 1, "b": 2},
        first_reads=(commands.ReadAgo(vm="v", scope="a", event_id="E", age_ms=4),),
        polls={"a": 3},
        returned=("v", "w"),
        ended=(commands.EndedAction(action_id="E/v", epoch=1, outcome=Outcome.DONE),),
        refuses="no",
    )
    parts = parts_of(whole)
    assert turn_of(whole, parts) == whole
    assert [part.name for part in parts] == ["a", "b", "E by v", "a", "v", "w", "E/v"]
