"""How operations end, in one word, and how they are canceled by themselves."""

from __future__ import annotations

import pytest

from forewarn.core import ending
from forewarn.core.errors import AlreadyEnded, AlreadyStarted, Invalid, NotFound
from forewarn.core.model import (
    EndedAs,
    EventType,
    FactKind,
    Operation,
    OperationPhase,
    Outcome,
    Phase,
)
from support import ordered
from support.clock import START_MS
from support.core_fleet import WEB, Cloud, minutes, scope


def ended_as(cloud: Cloud, operation: Operation) -> EndedAs | None:
    return ending.ended_as(cloud.operation(operation))


def cancel(cloud: Cloud, operation_id: str) -> None:
    cloud.run(ordered.cancel_operation(operation_id, by="ann"))


@pytest.mark.parametrize("event_type", [EventType.FREEZE, EventType.REDEPLOY])
@pytest.mark.parametrize(
    ("outcome", "word"), [(Outcome.DONE, EndedAs.COMPLETED), (Outcome.FAILED, EndedAs.FAILED)]
)
def test_what_was_done_is_completed_and_what_went_badly_failed(
    event_type: EventType, outcome: Outcome, word: EndedAs
) -> None:
    cloud = Cloud(scope("web", WEB))
    operation = cloud.maintain("h1", event_type)
    assert ended_as(cloud, operation) is None
    cloud.start(*cloud.events_of(operation))
    assert ended_as(cloud, operation) is None
    cloud.work(outcome)
    assert ended_as(cloud, operation) is word


def test_a_redeploy_of_which_one_move_failed_has_failed_and_says_which() -> None:
    cloud = Cloud(scope("web", {"web_0": (0, "h1")}), scope("db", {"db_0": (0, "h1")}))
    operation = cloud.maintain("h1", EventType.REDEPLOY)
    cloud.start(*cloud.events_of(operation))
    for action in cloud.claim("h1"):
        bad = action.vm == "web_0"
        cloud.report("h1", action, Outcome.FAILED if bad else Outcome.DONE, "no" if bad else "")
    cloud.tick()
    ended = cloud.operation(operation)
    assert ended_as(cloud, operation) is EndedAs.FAILED
    assert ended.outcome == "1 of 2 events failed, the first: web_0: no"
    assert cloud.facts(FactKind.FAILED)[-1].operation_id == operation.operation_id


def test_what_its_window_withdrew_is_withdrawn() -> None:
    cloud = Cloud(scope("web", WEB))
    window = (START_MS + minutes(60), START_MS + minutes(120))
    whole = cloud.maintain("h1", EventType.REBOOT, window=window)
    moves = cloud.maintain("h2", EventType.REDEPLOY, window=window)
    cloud.hearing.falls_silent("h1")
    cloud.hearing.falls_silent("h2")
    cloud.pass_time(minutes(120))
    assert {ended_as(cloud, whole), ended_as(cloud, moves)} == {EndedAs.WITHDRAWN}


def test_an_operation_is_canceled_by_its_own_id_or_its_beginning() -> None:
    cloud = Cloud(scope("web", WEB))
    operation = cloud.maintain("h1", EventType.REBOOT)
    cancel(cloud, operation.operation_id)
    assert ended_as(cloud, operation) is EndedAs.CANCELED
    assert {event.phase for event in cloud.events_of(operation)} == {Phase.CANCELED}
    (fact,) = (f for f in cloud.facts(FactKind.CANCELED) if f.event_id is None)
    assert (fact.by, fact.operation_id) == ("ann", operation.operation_id)


def test_an_operation_of_a_host_without_vms_can_be_canceled() -> None:
    cloud = Cloud(scope("web", WEB))
    operation = cloud.maintain("h3", EventType.REBOOT, not_before_ms=START_MS + minutes(60))
    cancel(cloud, operation.operation_id)
    assert ended_as(cloud, operation) is EndedAs.CANCELED


def test_moves_that_have_started_go_on_when_their_operation_is_canceled() -> None:
    cloud = Cloud(scope("web", {"web_0": (0, "h1"), "web_1": (1, "h1")}))
    operation = cloud.maintain("h1", EventType.REDEPLOY)
    first, second = cloud.events_of(operation)
    cloud.start(first)
    cancel(cloud, operation.operation_id)
    assert (cloud.event(first).phase, cloud.event(second).phase) == (Phase.STARTED, Phase.CANCELED)
    with pytest.raises(AlreadyStarted, match="canceled already"):
        cancel(cloud, operation.operation_id)
    cloud.work()
    assert ended_as(cloud, operation) is EndedAs.CANCELED


@pytest.mark.parametrize("event_type", [EventType.REBOOT, EventType.REDEPLOY])
def test_what_has_started_whole_cannot_be_canceled(event_type: EventType) -> None:
    cloud = Cloud(scope("web", WEB))
    operation = cloud.maintain("h1", event_type)
    cloud.start(*cloud.events_of(operation))
    with pytest.raises(AlreadyStarted, match="goes on to its end"):
        cancel(cloud, operation.operation_id)
    cloud.work()
    assert ended_as(cloud, operation) is EndedAs.COMPLETED
    with pytest.raises(AlreadyEnded, match=r"has ended: completed\."):
        cancel(cloud, operation.operation_id)


def test_to_cancel_an_operation_that_never_was_is_refused() -> None:
    cloud = Cloud(scope("web", WEB))
    with pytest.raises(NotFound, match="no operation ABCDEF"):
        cancel(cloud, "abcdef")
    with pytest.raises(Invalid, match="too short"):
        cancel(cloud, "abc")


def test_an_operation_of_a_host_that_fails_before_it_begins_is_canceled() -> None:
    cloud = Cloud(scope("web", WEB))
    waiting = cloud.maintain("h1", EventType.REBOOT)
    begun = cloud.maintain("h2", EventType.REBOOT)
    cloud.start(*cloud.events_of(begun))
    assert cloud.operation(begun).phase is OperationPhase.STARTED
    cloud.fail("h1")
    cloud.fail("h2")
    assert ended_as(cloud, waiting) is EndedAs.CANCELED
    assert ended_as(cloud, begun) is EndedAs.FAILED


@pytest.mark.parametrize("chars", [36, 34])
def test_to_cancel_an_event_that_has_ended_says_that_and_how(chars: int) -> None:
    cloud = Cloud(scope("web", WEB))
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.carry_out(event)
    with pytest.raises(AlreadyEnded, match=rf"Event {event.event_id} has ended: completed\."):
        cloud.run(ordered.cancel_event(event.event_id[:chars].lower(), by="ann"))
    with pytest.raises(AlreadyEnded, match="has ended"):
        cloud.run(ordered.approve_event(event.event_id[:chars], by="ann"))
