"""Heartbeats, claims and leases: who is alive, who holds what, and what a silence costs."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.control.commands import ClaimResult
from forewarn.control.hosts.action_claims import CLAIMS_PER_CALL_MAX
from forewarn.control.hosts.leases import (
    DAEMONS_MAX,
    LEASE_MS,
    TWO_DAEMONS_MS,
    Daemon,
    two_speak,
    with_daemon,
)
from forewarn.control.hosts.liveness import NOT_YET, Observed
from forewarn.core import deadlines, notice
from forewarn.core.errors import HostHeard, NotFound, Refusal, StaleReport
from forewarn.core.model import (
    Action,
    ActionKind,
    Decision,
    EventType,
    FactKind,
    Outcome,
    Phase,
    Policy,
    ScheduledEvent,
)
from forewarn.core.starting import HoldReason
from forewarn.ports import StoreFailed
from support import ordered
from support.control import run_now
from support.core_fleet import WEB, Cloud, minutes, scope
from support.journal import said
from support.watched_store import WatchedStore, disk_full


class Beating(Cloud):
    """A cloud that hears its hosts by their real heartbeats."""

    def _observe(self) -> Observed:
        return Observed(self.clock)

    def beat(self, host: str, holding: dict[str, int] | None = None, *, refuses: str = "") -> None:
        run_now(self.control.turns.take(ordered.turn(host, holding=holding or {}, refuses=refuses)))

    def started(self, vm: str = "web_0", host: str = "h1") -> ScheduledEvent:
        self.beat(host)
        event = self.order(vm, EventType.REBOOT)
        self.start(event)
        return event


@pytest.fixture
def cloud() -> Beating:
    return Beating(scope("web", WEB))


def held(action: Action) -> dict[str, int]:
    return {action.action_id: action.epoch}


# Heartbeats.


def test_a_host_is_not_alive_before_its_first_heartbeat(cloud: Beating) -> None:
    assert not cloud.observed.alive("h1")
    cloud.beat("h1")
    assert cloud.observed.alive("h1")
    assert not cloud.observed.alive("h2")


def test_a_host_is_alive_for_fifteen_seconds_after_a_heartbeat(cloud: Beating) -> None:
    cloud.beat("h1")
    cloud.clock.pass_ms(notice.HOST_SILENT_AFTER_MS - 1)
    assert cloud.observed.alive("h1")
    cloud.clock.pass_ms(1)
    assert not cloud.observed.alive("h1")
    assert cloud.observed.silent_ms("h1") == notice.HOST_SILENT_AFTER_MS == 15_000


def test_a_step_of_the_wall_clock_makes_no_host_silent(cloud: Beating) -> None:
    cloud.beat("h1")
    cloud.clock.wall += minutes(600)
    assert cloud.observed.alive("h1")


def test_a_host_that_is_not_in_the_fleet_is_refused(cloud: Beating) -> None:
    with pytest.raises(NotFound):
        cloud.beat("stranger")
    assert not cloud.observed.alive("stranger")


def test_an_ordinary_heartbeat_writes_nothing(cloud: Beating) -> None:
    cloud.beat("h1")
    commits = len(cloud.commits)
    cloud.clock.pass_ms(5_000)
    cloud.beat("h1")
    assert len(cloud.commits) == commits


def shown_for(cloud: Beating, ms: int) -> ScheduledEvent:
    """A reboot of web_0 that its host has shown for this long."""
    cloud.beat("h1")
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.run(ordered.confirm("h1", "web", cloud.scope().incarnation))
    while ms > 0:
        cloud.clock.pass_ms(min(ms, 5_000))
        ms -= 5_000
        cloud.beat("h1")
    return event


def test_a_silence_that_nobody_noticed_is_taken_out_when_the_host_returns(
    cloud: Beating,
) -> None:
    event = shown_for(cloud, minutes(5))
    cloud.clock.pass_ms(minutes(20))
    cloud.beat("h1")
    stopped = cloud.event(event)
    assert stopped.shown_ms is None
    assert notice.readable_ms(stopped, cloud.clock.wall) == minutes(5)
    [fact] = cloud.facts(FactKind.DOWNTIME)
    assert (fact.host, said(fact)) == ("h1", {"lost_ms": minutes(20)})


@pytest.mark.parametrize(("late_s", "lost_s"), [(5, 0), (6, 0), (7, 2), (10, 5), (14, 9)])
def test_a_host_that_is_heard_late_has_shown_nothing_meanwhile(
    cloud: Beating, late_s: int, lost_s: int
) -> None:
    """Its daemon may have been restarted; one that is always a little late is not starved."""
    event = shown_for(cloud, minutes(5))
    for _ in range(3):
        cloud.clock.pass_ms(late_s * 1_000)
        cloud.beat("h1")
    shown = cloud.event(event)
    assert shown.shown_ms is not None
    given_ms = minutes(5) + 3 * (late_s - lost_s) * 1_000
    assert notice.readable_ms(shown, cloud.clock.wall) == given_ms


def test_nothing_starts_by_its_notice_alone_while_its_host_is_late(cloud: Beating) -> None:
    event = shown_for(cloud, minutes(15) - 5_000)
    cloud.clock.pass_ms(10_000)
    cloud.tick()
    assert cloud.event(event).phase is Phase.SCHEDULED
    [hold] = cloud.holds(event)
    assert hold.reason is HoldReason.HOST_SILENT
    assert "host h1 has not been heard for 10 s" in hold.what
    cloud.beat("h1")
    cloud.tick()
    assert cloud.event(event).phase is Phase.STARTED


def test_what_was_approved_starts_though_its_host_is_late(cloud: Beating) -> None:
    event = shown_for(cloud, minutes(1))
    cloud.clock.pass_ms(10_000)
    cloud.start(event)
    assert cloud.event(event).phase is Phase.STARTED


def test_a_silence_that_could_not_be_written_down_is_not_forgotten() -> None:
    store = WatchedStore()
    cloud = Beating(scope("web", WEB), store=store)
    event = shown_for(cloud, minutes(5))
    cloud.clock.pass_ms(minutes(20))
    store.fails["commit"] = disk_full()
    with pytest.raises(StoreFailed):
        cloud.beat("h1")
    assert not cloud.observed.alive("h1")
    cloud.beat("h1")
    assert notice.readable_ms(cloud.event(event), cloud.clock.wall) == minutes(5)


def test_a_host_that_refuses_control_is_said_once_and_so_is_its_end(cloud: Beating) -> None:
    def beat(refuses: str) -> None:
        cloud.beat("h1", refuses=refuses)

    with capture_logs() as said:
        for words in (NOT_YET, "", "it went back", "it went back", "no room", "", "", NOT_YET):
            beat(words)
            assert cloud.observed.refuses("h1") == words
    assert [(line["event"], line.get("why")) for line in said] == [
        ("host_refuses_control", "it went back"),
        ("host_refuses_no_longer", None),
    ]


# Claims.


def test_a_pending_action_is_claimed_once(cloud: Beating) -> None:
    cloud.started()
    assert len(cloud.claim("h1")) == 1
    assert cloud.claim("h1") == []


def test_a_host_claims_only_its_own_actions(cloud: Beating) -> None:
    cloud.started()
    assert cloud.claim("h2") == []


def test_a_claim_returns_with_the_next_epoch_when_its_lease_has_lapsed(cloud: Beating) -> None:
    cloud.started()
    [first] = cloud.claim("h1")
    cloud.clock.pass_ms(LEASE_MS - 1)
    assert cloud.claim("h1") == []
    cloud.clock.pass_ms(1)
    [second] = cloud.claim("h1")
    assert (first.action_id, second.epoch) == (second.action_id, first.epoch + 1)
    with pytest.raises(StaleReport):
        cloud.report("h1", first)
    cloud.report("h1", second)


def test_a_heartbeat_that_names_the_claim_renews_its_lease(cloud: Beating) -> None:
    cloud.started()
    [action] = cloud.claim("h1")
    for _ in range(5):
        cloud.clock.pass_ms(LEASE_MS - 1)
        cloud.beat("h1", held(action))
    assert cloud.claim("h1") == []
    cloud.report("h1", action)


def test_a_heartbeat_with_an_older_epoch_renews_nothing(cloud: Beating) -> None:
    cloud.started()
    [old] = cloud.claim("h1")
    cloud.clock.pass_ms(LEASE_MS)
    [new] = cloud.claim("h1")
    cloud.clock.pass_ms(LEASE_MS - 1)
    cloud.beat("h1", held(old))
    assert cloud.claim("h1") == []  # nor does it cost the new holder its lease
    cloud.clock.pass_ms(1)
    [newer] = cloud.claim("h1")
    assert newer.epoch == new.epoch + 1


def test_after_a_restart_a_claim_gets_one_more_lease(cloud: Beating) -> None:
    cloud.started()
    [action] = cloud.claim("h1")
    cloud.crash(down_ms=minutes(10))
    assert cloud.claim("h1") == []
    cloud.report("h1", action)  # the holder was at work all the time


def test_after_a_restart_a_claim_nobody_holds_returns_after_one_lease(cloud: Beating) -> None:
    cloud.started()
    [action] = cloud.claim("h1")
    cloud.crash(down_ms=minutes(10))
    cloud.clock.pass_ms(LEASE_MS)
    [again] = cloud.claim("h1")
    assert again.epoch == action.epoch + 1


def test_after_a_restart_a_claim_its_host_no_longer_knows_is_free_at_once(cloud: Beating) -> None:
    """Host and service died together: nobody works on it, and nobody has to wait for a lease."""
    cloud.started()
    [action] = cloud.claim("h1")
    cloud.crash(down_ms=minutes(1))
    cloud.beat("h1")
    [again] = cloud.claim("h1")
    assert again.epoch == action.epoch + 1
    cloud.beat("h1")
    assert cloud.claim("h1") == [], "a claim of our own time keeps its lease"


def test_after_a_restart_a_heartbeat_keeps_the_claim_alive(cloud: Beating) -> None:
    cloud.started()
    [action] = cloud.claim("h1")
    cloud.crash(down_ms=minutes(1))
    cloud.clock.pass_ms(LEASE_MS - 1)
    cloud.beat("h1", held(action))
    cloud.clock.pass_ms(LEASE_MS - 1)
    assert cloud.claim("h1") == []


def test_a_call_hands_out_a_limited_number_of_claims() -> None:
    vms = {f"vm_{i}": (0, "h1") for i in range(CLAIMS_PER_CALL_MAX + 6)}
    cloud = Beating(scope("web", vms), policy=Policy(user_events_max=1_000))
    cloud.beat("h1")
    cloud.beat("h2")
    [event] = cloud.events_of(cloud.maintain("h1", EventType.REDEPLOY))
    cloud.start(event)
    assert [len(cloud.claim("h1")) for _ in range(3)] == [CLAIMS_PER_CALL_MAX, 6, 0]


def test_the_boot_id_of_a_host_reboot_is_kept_with_its_first_claim(cloud: Beating) -> None:
    cloud.beat("h3")
    operation = cloud.maintain("h3", EventType.REBOOT)
    cloud.tick()
    [first] = cloud.claim("h3", "boot-before")
    assert first.kind is ActionKind.REBOOT_HOST
    cloud.crash(down_ms=1_000)
    cloud.clock.pass_ms(LEASE_MS)
    [again] = cloud.claim("h3", "boot-after")
    assert (first.boot_id, again.boot_id) == ("boot-before", "boot-before")
    stored = cloud.operation(operation).action
    assert stored is not None
    assert stored.boot_id == "boot-before"


def test_an_action_that_has_ended_is_never_claimed_again(cloud: Beating) -> None:
    event = cloud.started()
    [action] = cloud.claim("h1")
    cloud.report("h1", action)
    cloud.clock.pass_ms(10 * LEASE_MS)
    assert cloud.claim("h1") == []
    assert cloud.event(event).actions[0].epoch == action.epoch


def test_a_report_on_something_that_never_was_is_refused(cloud: Beating) -> None:
    ghost = Action(action_id="GHOST/web_0", kind=ActionKind.REBOOT_VM, host="h1", epoch=1)
    with pytest.raises(NotFound, match="no open action"):
        cloud.report("h1", ghost)


def test_a_new_control_counts_silence_from_its_own_start(cloud: Beating) -> None:
    cloud.run(lambda tx: tx.apply(Decision()))
    fresh = Observed(cloud.clock)
    cloud.clock.pass_ms(5_000)
    assert fresh.silent_ms("h1") == 5_000


def test_what_a_daemon_that_died_had_claimed_is_free_for_the_next_one_of_its_host(
    cloud: Beating,
) -> None:
    cloud.started()
    (first,) = [one.action for one in cloud.run(ordered.claim("h1", "b1", daemon="d1")).work]
    assert cloud.run(ordered.claim("h1", "b1", daemon="d1")).work == ()
    assert cloud.run(ordered.claim("h1", "b1")).work == ()  # nothing is said of a daemon

    (again,) = [one.action for one in cloud.run(ordered.claim("h1", "b1", daemon="d2")).work]
    assert (again.action_id, again.epoch) == (first.action_id, first.epoch + 1)
    assert not cloud.run(ordered.holds("h1", first.action_id, first.epoch))
    assert cloud.run(ordered.claim("h1", "b1", daemon="d2")).work == ()


def test_two_daemons_with_the_credentials_of_one_host_are_given_nothing_until_one_is_silent(
    cloud: Beating,
) -> None:
    def claims(daemon: str) -> ClaimResult:
        cloud.clock.pass_ms(5_000)
        cloud.observed.hears_daemon("h1", daemon)
        return cloud.run(ordered.claim("h1", "b1", daemon=daemon))

    assert claims("true") == ClaimResult(work=())
    assert claims("copy") == ClaimResult(work=())  # the first may have died
    cloud.started()
    for daemon in ("true", "copy", "true", "copy"):
        assert claims(daemon) == ClaimResult(work=(), two_daemons=True)
    cloud.clock.pass_ms(TWO_DAEMONS_MS)
    (action,) = [one.action for one in claims("true").work]
    assert action.vm == "web_0"
    cloud.report("h1", action)


def test_two_daemons_of_one_host_are_found_by_their_turns_and_told_when_they_ask(
    cloud: Beating,
) -> None:
    def says(daemon: str) -> bool:
        """Its turn; whether it is to ask for work."""
        cloud.clock.pass_ms(2_500)
        if cloud.control.turns.take_at_once("h1", daemon):
            return False
        return run_now(cloud.control.turns.take(ordered.turn("h1"), daemon)).work

    assert [says("true"), says("true")] == [False, False]
    assert not says("copy"), "the first may have died"
    assert [says("true"), says("copy"), says("true")] == [True, True, True]
    cloud.started()
    for daemon in ("true", "copy"):
        assert cloud.run(ordered.claim("h1", "b1", daemon=daemon)).two_daemons
    for _ in range(TWO_DAEMONS_MS // 2_500):
        says("true")  # and the copy is silent
    cloud.tick()  # what was held meanwhile starts
    assert cloud.run(ordered.claim("h1", "b1", daemon="true")).work


def test_two_daemons_that_begin_in_the_same_millisecond_are_two() -> None:
    known = with_daemon(with_daemon((), "true", 5), "copy", 5)
    assert not two_speak(known, 5)
    both = with_daemon(with_daemon(known, "true", 6), "copy", 6)
    assert two_speak(both, 6)


def test_a_crowd_of_daemons_of_one_host_is_not_remembered_without_end() -> None:
    known: tuple[Daemon, ...] = ()
    for number in range(100):
        known = with_daemon(known, f"d{number}", 2 * number)
        known = with_daemon(known, "true", 2 * number + 1)
    assert len(known) == DAEMONS_MAX
    assert two_speak(known, 200)
    later_ms = 200 + TWO_DAEMONS_MS
    assert not two_speak(with_daemon(known, "true", later_ms), later_ms)


def test_a_control_that_has_just_started_takes_no_host_for_off(cloud: Beating) -> None:
    """The host has not had the time to speak to it yet."""
    cloud.beat("h1")
    cloud.crash(down_ms=1_000)
    fencing = ordered.fail_host("h1", by="op", fenced=True)
    cloud.clock.pass_ms(notice.HOST_SILENT_AFTER_MS - 1)
    with pytest.raises(HostHeard, match="control has listened for it for less than 15 s"):
        cloud.run(fencing)
    cloud.clock.pass_ms(1)
    assert cloud.run(fencing).host.fenced


def beat_the_pulse(cloud: Beating, ms: int) -> None:
    """This much time passes, and the event loop of control runs meanwhile."""
    for _ in range(ms // 250):
        cloud.clock.pass_ms(250)
        cloud.observed.pulse()


def test_a_control_that_stood_still_does_not_take_its_own_deafness_for_a_hosts_silence(
    cloud: Beating,
) -> None:
    """What the host said meanwhile waits in its socket."""
    fencing = ordered.fail_host("h1", by="op", fenced=True)
    cloud.observed.pulse()
    cloud.beat("h1")
    beat_the_pulse(cloud, 1_000)
    cloud.clock.pass_ms(60_000)
    with pytest.raises(HostHeard, match=r"may be on: .* or since it stood still"):
        cloud.run(fencing)  # before anything else: the pulse has not beaten yet
    cloud.observed.pulse()
    beat_the_pulse(cloud, notice.HOST_SILENT_AFTER_MS - 250)
    with pytest.raises(HostHeard, match=r"may be on: .* or since it stood still"):
        cloud.run(fencing)
    assert not cloud.observed.alive("h1")  # nothing starts there meanwhile
    beat_the_pulse(cloud, 250)
    assert cloud.run(fencing).host.fenced


def test_a_host_that_speaks_after_control_stood_still_is_heard(cloud: Beating) -> None:
    cloud.observed.pulse()
    cloud.beat("h1")
    cloud.clock.pass_ms(60_000)
    cloud.beat("h1")
    with pytest.raises(HostHeard, match="it was heard 0 s ago"):
        cloud.run(ordered.fail_host("h1", by="op", fenced=True))


def test_a_start_that_takes_long_is_no_silence_of_hosts(cloud: Beating) -> None:
    """Nobody listens to them before it ends."""
    cloud.crash(down_ms=0)
    cloud.observed.pulse()
    cloud.clock.pass_ms(120_000)
    with pytest.raises(HostHeard, match="may be on"):
        cloud.run(ordered.fail_host("h1", by="op", fenced=True))
    cloud.observed.pulse()
    with pytest.raises(HostHeard, match="may be on"):
        cloud.run(ordered.fail_host("h1", by="op", fenced=True))


# Said twice at once.


@pytest.mark.parametrize("event_type", [EventType.REBOOT, EventType.FREEZE])
def test_a_report_that_comes_twice_in_one_commit_is_taken_once(
    tmp_path: Path, event_type: EventType
) -> None:
    """In a data folder: only there is what was saved not yet what others read."""
    store = SqliteStore.in_folder(tmp_path / "data")
    cloud = Beating(scope("web", WEB), store=store)
    cloud.beat("h1")
    if event_type is EventType.FREEZE:
        cloud.start(*cloud.events_of(cloud.maintain("h1", event_type)))
    else:
        cloud.start(cloud.order("web_0", event_type))
    [action] = cloud.claim("h1")
    report = ordered.report(
        "h1", action.action_id, epoch=action.epoch, outcome=Outcome.DONE, detail=""
    )
    failed = ordered.report(
        "h1", action.action_id, epoch=action.epoch, outcome=Outcome.FAILED, detail=""
    )
    first, again, other = cloud.writer.run([report, report, failed])
    assert (first.error, again.error) == (None, None)
    assert isinstance(other.error, Refusal)
    assert len(cloud.facts(FactKind.REPORTED)) == 1
    store.close()


# The deadline.


def near_the_deadline(cloud: Beating, left_ms: int) -> None:
    deadline_ms = deadlines.DEADLINE_MS[EventType.REBOOT]
    cloud.clock.pass_ms(deadline_ms - left_ms)


@pytest.mark.parametrize("more_ms", [0, -1])
def test_a_host_that_claims_right_before_the_deadline_gets_nothing(
    cloud: Beating, more_ms: int
) -> None:
    """It would begin after the event has failed and is no longer shown."""
    cloud.started()
    near_the_deadline(cloud, deadlines.CLAIM_FRESH_MS + more_ms)
    assert len(cloud.claim("h1")) == (1 if more_ms == 0 else 0)


@pytest.mark.parametrize("more_ms", [0, -1])
def test_a_host_that_asks_right_before_the_deadline_must_not_begin(
    cloud: Beating, more_ms: int
) -> None:
    cloud.started()
    [action] = cloud.claim("h1")
    near_the_deadline(cloud, deadlines.CLAIM_FRESH_MS + more_ms)
    held_still = cloud.run(ordered.holds("h1", action.action_id, action.epoch))
    assert held_still is (more_ms == 0)
    cloud.report("h1", action)  # what had begun before is taken
    assert cloud.facts(FactKind.REPORTED)
