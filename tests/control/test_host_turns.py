"""What a host says in one turn: taken together, each part for itself, and any of it twice."""

from __future__ import annotations

import msgspec
import pytest

from forewarn.control import command_json, commands
from forewarn.control.command_handlers import decide
from forewarn.control.hosts.turns import LIVES_MAX
from forewarn.control.transaction import Transaction
from forewarn.core.errors import Conflict, NotFound
from forewarn.core.model import (
    HOUR_MS,
    EventType,
    Fact,
    FactKind,
    Outcome,
    Phase,
    Policy,
    ScheduledEvent,
)
from forewarn.ports import StoreFailed
from support import ordered
from support.control import run_now
from support.core_fleet import WEB, Cloud, scope
from support.watched_store import WatchedStore, disk_full


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("web", WEB), scope("api", {"api_0": (0, "h1")}))


def ended(action_id: str, epoch: int = 1, outcome: Outcome = Outcome.DONE) -> commands.EndedAction:
    return commands.EndedAction(action_id=action_id, epoch=epoch, outcome=outcome)


def claimed(cloud: Cloud, vm: str) -> tuple[ScheduledEvent, str]:
    event = cloud.order(vm, EventType.REBOOT)
    cloud.start(event)
    [action] = cloud.claim("h1")
    return event, action.action_id


def everything_noted(cloud: Cloud) -> list[Fact]:
    return [fact for kind in FactKind for fact in cloud.facts(kind)]


def test_all_that_a_host_says_is_one_commit(cloud: Cloud) -> None:
    event, action_id = claimed(cloud, "web_0")
    other = cloud.order("api_0", EventType.REBOOT)
    before = cloud.scope("web").revision
    read = commands.ReadAgo(vm="api_0", scope="api", event_id=other.event_id, age_ms=40)
    taken = cloud.run(
        ordered.turn(
            "h1",
            holding={action_id: 1},
            confirms={"web": cloud.scope("web").incarnation, "api": cloud.scope("api").incarnation},
            first_reads=(read,),
            ended=(ended(action_id),),
        )
    )
    assert taken == commands.TurnResult()
    assert cloud.event(event).phase is Phase.COMPLETED
    assert cloud.event(other).shown_ms is not None
    assert [one.vm for one in cloud.store.first_reads(other.event_id)] == ["api_0"]
    assert cloud.scope("web").revision == before + 1


def test_the_answer_says_that_there_is_work_until_the_host_has_claimed_it(cloud: Cloud) -> None:
    def work(**said: object) -> bool:
        return cloud.run(ordered.turn("h1", **said)).work

    event = cloud.order("web_0", EventType.REBOOT)
    assert not work()
    cloud.start(event)
    assert work()
    [action] = cloud.claim("h1")
    held = {action.action_id: action.epoch}
    assert not work(holding=held)
    assert work(), "it was claimed, but the host does not know"
    assert not work(holding=held, ended=(ended(action.action_id),))
    assert not work()


def test_two_ends_of_one_scope_are_one_step_for_guests() -> None:
    cloud = Cloud(scope("web", {"a": (0, "h1"), "b": (0, "h1")}))
    events = [cloud.order(vm, EventType.REBOOT) for vm in ("a", "b")]
    cloud.approve(*events)
    cloud.tick()
    actions = cloud.claim("h1")
    before = cloud.scope().incarnation
    cloud.run(ordered.turn("h1", ended=tuple(ended(one.action_id) for one in actions)))
    assert [cloud.event(event).phase for event in events] == [Phase.COMPLETED] * 2
    assert cloud.scope().incarnation == before + 1


def test_what_is_refused_is_named_and_costs_the_rest_nothing(cloud: Cloud) -> None:
    event, action_id = claimed(cloud, "web_0")
    other = cloud.order("api_0", EventType.REBOOT)
    taken = cloud.run(
        ordered.turn(
            "h1",
            confirms={"web": 1_000, "api": cloud.scope("api").incarnation, "gone": 7},
            ended=(ended("never-was"), ended(action_id, epoch=2)),
        )
    )
    assert {name: why.code for name, why in taken.refused_confirms.items()} == {"web": "conflict"}
    assert taken.refused_confirms["web"].accepted.endswith("and confirm that.")
    assert taken.refused_ended["never-was"].code == "not-found"
    assert taken.refused_ended[action_id].code == "stale-report"
    assert cloud.event(other).shown_ms is not None
    assert cloud.event(event).phase is Phase.STARTED


def test_claims_that_are_not_the_hosts_any_more_are_lost(cloud: Cloud) -> None:
    _, action_id = claimed(cloud, "web_0")
    assert cloud.run(ordered.turn("h1", holding={action_id: 1})).lost == ()
    holding = {action_id: 2, "never-was": 1}
    assert cloud.run(ordered.turn("h1", holding=holding)).lost == tuple(holding)
    assert cloud.run(ordered.turn("h2", holding={action_id: 1})).lost == (action_id,)
    cloud.run(ordered.turn("h1", ended=(ended(action_id),)))
    assert cloud.run(ordered.turn("h1", holding={action_id: 1})).lost == (action_id,)


def test_a_host_that_was_given_up_holds_nothing_any_more(cloud: Cloud) -> None:
    """It may be alive: what it begins now would collide with its replacement."""
    _, action_id = claimed(cloud, "web_0")
    cloud.fail("h1")
    assert cloud.run(ordered.turn("h1", holding={action_id: 1})).lost == (action_id,)
    assert not cloud.run(ordered.holds("h1", action_id, 1))


def test_a_host_that_does_not_obey_confirms_nothing(cloud: Cloud) -> None:
    """What it shows under that number is what another control said."""
    event = cloud.order("web_0", EventType.REBOOT)
    shown = {"web": cloud.scope("web").incarnation}
    taken = cloud.run(ordered.turn("h1", confirms=shown, refuses="it would go back"))
    assert taken.refused_confirms["web"].code == "conflict"
    assert cloud.event(event).shown_ms is None
    assert cloud.run(ordered.turn("h1", confirms=shown)) == commands.TurnResult()
    assert cloud.event(event).shown_ms is not None


def test_only_what_is_for_a_vm_that_is_off_can_be_spared(cloud: Cloud) -> None:
    event, action_id = claimed(cloud, "web_0")
    spared = ordered.turn("h1", ended=(ended(action_id, outcome=Outcome.SPARED),))
    assert cloud.run(spared).refused_ended[action_id].code == "conflict"
    assert cloud.event(event).phase is Phase.STARTED


def test_a_turn_that_comes_twice_changes_nothing_more(cloud: Cloud) -> None:
    _, action_id = claimed(cloud, "web_0")
    said = ordered.turn(
        "h1",
        confirms={"web": cloud.scope("web").incarnation},
        holding={action_id: 1},
        ended=(ended(action_id),),
    )
    cloud.run(said)
    facts, now = everything_noted(cloud), cloud.scope("web")
    again = cloud.run(said)
    assert again == commands.TurnResult(lost=(action_id,))
    assert (everything_noted(cloud), cloud.scope("web")) == (facts, now)


def moving(cloud: Cloud) -> tuple[ScheduledEvent, str]:
    """h1 moves two VMs away; the host that the first goes to has failed meanwhile, and is well."""
    [move] = cloud.events_of(cloud.maintain("h1", EventType.REDEPLOY))
    cloud.start(move)
    first, _ = cloud.claim("h1")
    assert (first.vm, first.target_host) == ("a", "h2")
    cloud.fail("h2")
    cloud.repair("h2")
    return move, first.action_id


def started_on(cloud: Cloud, host: str) -> None:
    """The host starts what was declared to be down there."""
    cloud.tick()
    [start] = cloud.claim(host)
    cloud.run(ordered.turn(host, ended=(ended(start.action_id, start.epoch),)))


@pytest.mark.parametrize("late", [False, True])
def test_an_end_that_is_said_again_is_not_decided_again(*, late: bool) -> None:
    """Its answer was lost, and what followed from it is over: a VM that was down runs again."""
    cloud = Cloud(scope("web", {"a": (0, "h1"), "b": (0, "h1")}))
    move, action_id = moving(cloud)
    if late:
        cloud.pass_time(HOUR_MS + 1)  # the event is given up
    assert cloud.event(move).phase is (Phase.FAILED if late else Phase.STARTED)
    said = ordered.turn("h1", ended=(ended(action_id),))
    assert cloud.run(said).refused_ended == {}
    assert [event.resources for event in cloud.scope().events if event.event_id != move.event_id]
    started_on(cloud, "h2")
    facts, now, leases = everything_noted(cloud), cloud.scope(), dict(cloud.volatile.leases)
    assert [event.event_id for event in now.events] == ([] if late else [move.event_id])
    for _ in range(2):
        assert cloud.run(said).refused_ended == {}
        assert (everything_noted(cloud), cloud.scope()) == (facts, now)
        assert cloud.volatile.leases == leases


def test_a_vm_that_returned_before_it_was_hit_again_is_waited_for_anew() -> None:
    """One turn says both: that it is back from the first reboot, and that the second has ended."""
    cloud = Cloud(scope("web", WEB), policy=Policy(domain_recovery_ms=600_000))
    _, first = claimed(cloud, "web_0")
    cloud.run(ordered.turn("h1", ended=(ended(first),)))
    _, second = claimed(cloud, "web_0")
    assert [one.waiting_for for one in cloud.scope("web").recoveries] == [("web_0",)]
    cloud.run(ordered.turn("h1", returned=("web_0",), ended=(ended(second),)))
    assert [one.waiting_for for one in cloud.scope("web").recoveries] == [("web_0",)]
    assert len(cloud.facts(FactKind.RECOVERED)) == 1
    cloud.run(ordered.turn("h1", returned=("web_0",)))
    assert cloud.scope("web").recoveries == ()
    assert len(cloud.facts(FactKind.RECOVERED)) == 2


def test_a_late_copy_of_a_turn_of_an_earlier_daemon_ends_no_new_wait_for_a_vm() -> None:
    """Its bytes were on their way for minutes, while the daemon was started anew."""
    cloud = Cloud(scope("web", WEB), policy=Policy(domain_recovery_ms=600_000))

    def waits() -> bool:
        return bool(cloud.scope("web").recoveries)

    def says(daemon: str, **said: object) -> commands.TurnResult:
        return run_now(cloud.control.turns.take(ordered.turn("h1", **said), daemon))

    _, first = claimed(cloud, "web_0")
    says("before", ended=(ended(first),))
    assert waits()
    says("before", returned=("web_0",))
    assert not waits()
    assert cloud.control.turns.take_at_once("h1", "after")
    _, second = claimed(cloud, "web_0")
    says("after", ended=(ended(second),))
    assert waits()
    says("before", returned=("web_0",))
    assert waits()
    for number in range(LIVES_MAX - 2):  # it is not forgotten soon
        says(f"later {number}")
    says("before", returned=("web_0",))
    assert waits()
    says(f"later {LIVES_MAX - 3}", returned=("web_0",))
    assert not waits()


def test_a_daemon_that_does_not_say_its_life_is_believed_that_a_vm_has_returned() -> None:
    cloud = Cloud(scope("web", WEB), policy=Policy(domain_recovery_ms=600_000))
    _, first = claimed(cloud, "web_0")
    run_now(cloud.control.turns.take(ordered.turn("h1", ended=(ended(first),)), "one"))
    run_now(cloud.control.turns.take(ordered.turn("h1", returned=("web_0",))))
    assert cloud.scope("web").recoveries == ()


def test_a_host_that_is_none_of_ours_is_refused(cloud: Cloud) -> None:
    with pytest.raises(NotFound):
        cloud.run(ordered.turn("nobody", confirms={"web": 1}))


def test_a_turn_that_could_not_be_kept_leaves_nothing_behind() -> None:
    store = WatchedStore()
    cloud = Cloud(scope("web", WEB), store=store)
    event, action_id = claimed(cloud, "web_0")
    store.fails["commit"] = disk_full()
    with pytest.raises(StoreFailed):
        cloud.run(ordered.turn("h1", holding={action_id: 1}, ended=(ended(action_id),)))
    assert cloud.event(event).phase is Phase.STARTED
    assert cloud.run(ordered.turn("h1", ended=(ended(action_id),))) == commands.TurnResult()
    assert cloud.event(event).phase is Phase.COMPLETED


def test_what_a_turn_is_answered_goes_over_json(cloud: Cloud) -> None:
    said = ordered.turn("h1", confirms={"web": 1_000}, ended=(ended("never-was"),))
    taken = cloud.run(said)
    text = command_json.answer_written(taken)
    assert command_json.answer_read(said, text) == taken
    assert msgspec.json.decode(text)["refused_confirms"]["web"]["code"] == "conflict"


# A part of a transaction that is refused.


def test_a_part_that_is_refused_in_its_middle_is_taken_back_alone(cloud: Cloud) -> None:
    events = {vm: cloud.order(vm, EventType.REBOOT) for vm in ("web_0", "api_0")}
    kept: dict[str, int] = {}

    def whole(tx: Transaction) -> None:
        scope = tx.need_scope("api")
        tx.put(kept, "before", 1)
        ids = (events["api_0"].event_id,)
        decide(tx, ordered.approve("h1", "api_0", ids))

        def part() -> None:
            tx.put(kept, "before", 2)
            tx.put(kept, "part", 1)
            ids = (events["web_0"].event_id,)
            decide(tx, ordered.approve("h1", "web_0", ids))
            tx.remove_scope("api")
            raise Conflict("Not so far.")

        why = tx.attempt(part)
        assert str(why) == "Not so far."
        assert tx.need_scope("api") != scope  # as the first part left it
        assert tx.attempt(lambda: None) is None

    cloud.run(whole)
    assert kept == {"before": 1}
    assert cloud.event(events["api_0"]).approved_ms is not None
    assert cloud.event(events["web_0"]).approved_ms is None
    [approved] = cloud.facts(FactKind.APPROVED)
    assert approved.event_id == events["api_0"].event_id


def test_what_went_well_in_parts_is_taken_back_with_the_whole(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    before = cloud.scope("web")

    def whole(tx: Transaction) -> None:
        approval = ordered.approve("h1", "web_0", (event.event_id,))
        tx.attempt(lambda: decide(tx, approval))
        assert tx.need_scope("web") != before
        raise Conflict("Nothing of it.")

    with pytest.raises(Conflict):
        cloud.run(whole)
    assert cloud.scope("web") == before
