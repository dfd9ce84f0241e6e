"""What operators read: the promised keys, times in one form, and the times people may type."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, ParamSpec

import msgspec
import pytest
from msgspec.structs import fields, replace

from forewarn.core import errors
from forewarn.core.facts import HostLeftDetail
from forewarn.core.model import (
    Action,
    ActionKind,
    ActionPhase,
    Cause,
    EventType,
    Fact,
    FactKind,
    Operation,
    OperationPhase,
    Outcome,
    Recovery,
    Scope,
    ScopeHold,
)
from forewarn.wire import operator_json
from forewarn.wire.instants import LAST_MS, parse_time, time_text
from support.wire_samples import FREEZE, SCHEDULED_MS, STARTED, scope, vm

P = ParamSpec("P")

ACTION = Action(
    action_id="a-1",
    kind=ActionKind.MOVE_VM,
    host="host-1",
    vm="web_0",
    target_host="host-2",
    duration_s=5,
    phase=ActionPhase.ENDED,
    epoch=3,
    outcome=Outcome.LOST,
    detail="no report",
)


def shown_as_json(conversion: Callable[P, msgspec.Struct]) -> Callable[P, Any]:
    """The conversion, as whoever reads the JSON sees what it makes."""

    def converted(*given: P.args, **named: P.kwargs) -> Any:
        return json.loads(msgspec.json.encode(conversion(*given, **named)))

    return converted


def scope_json(of: Scope) -> Any:
    return shown_as_json(operator_json.scope_json)(of, enabled=True)


def test_an_event_has_the_promised_keys() -> None:
    shown = shown_as_json(operator_json.event_json)(FREEZE)
    promised = {
        "event_id": FREEZE.event_id,
        "event_type": "Freeze",
        "event_source": "Platform",
        "phase": "scheduled",
        "not_before": "2026-03-03T10:15:00.000Z",
        "resources": ["web_0", "web_1"],
        "scope": "web",
        "update_domain": 0,
        "host": "host-1",
        "scheduled": "2026-03-03T10:00:00.000Z",
        "approved": None,
        "approved_by": None,
        "started": None,
        "ended": None,
        "deadline": None,
        "silent": False,
        "cause": "maintenance",
        "operation_id": None,
        "description": "Host server is undergoing maintenance.",
        "duration_seconds": 5,
        "minimum_notice_seconds": 900,
        "outcome": "",
        "actions": [],
    }
    assert promised.items() <= shown.items()


def test_an_operator_sees_not_before_also_once_the_event_has_started() -> None:
    """Guests lose it on the wire; contract 8, row 26 asks to keep it somewhere."""
    shown = shown_as_json(operator_json.event_json)(replace(STARTED, actions=(ACTION,)))
    assert shown["not_before"] == "2026-03-03T10:15:00.000Z"
    assert shown["started"] == "2026-03-03T10:01:00.000Z"
    assert shown["actions"] == [shown_as_json(operator_json.action_json)(ACTION)]


def test_an_action_shows_who_acts_and_how_it_ended() -> None:
    assert shown_as_json(operator_json.action_json)(ACTION) == {
        "action_id": "a-1",
        "kind": "move-vm",
        "host": "host-1",
        "vm": "web_0",
        "target_host": "host-2",
        "duration_seconds": 5,
        "phase": "ended",
        "epoch": 3,
        "outcome": "lost",
        "detail": "no report",
    }


def test_a_vm_shows_its_scope_and_all_it_has() -> None:
    shown = shown_as_json(operator_json.vm_json)(vm(tags=(("role", "db"),)), "web")
    own = {field.name for field in fields(vm())} - {"profile"}
    assert shown.keys() == {"scope", *own, *(field.name for field in fields(vm().profile))}
    assert (shown["scope"], shown["tags"], shown["priority"]) == ("web", {"role": "db"}, "regular")


def test_a_scope_shows_its_hold_its_recoveries_and_silent_events() -> None:
    shown = scope_json(
        replace(
            scope(replace(FREEZE, silent=True)),
            polled_ms=SCHEDULED_MS,
            auto_approve=frozenset({EventType.REDEPLOY, EventType.REBOOT}),
            hold=ScopeHold(since_ms=SCHEDULED_MS, event_id="E", reason="lost"),
            recoveries=(
                Recovery(
                    update_domain=1,
                    since_ms=SCHEDULED_MS,
                    until_ms=SCHEDULED_MS + 1,
                    waiting_for=("web_1",),
                ),
            ),
        )
    )
    assert shown["hold"] == {"since": "2026-03-03T10:00:00.000Z", "event_id": "E", "reason": "lost"}
    assert shown["recoveries"] == [
        {
            "update_domain": 1,
            "since": "2026-03-03T10:00:00.000Z",
            "until": "2026-03-03T10:00:00.001Z",
            "waiting_for": ["web_1"],
        }
    ]
    assert shown["auto_approve"] == ["Reboot", "Redeploy"]
    assert shown["terminate_notice_seconds"] == 300
    assert shown["vms"] == [shown_as_json(operator_json.vm_json)(vm(), "web")]
    assert shown["events"] == [
        shown_as_json(operator_json.event_json)(replace(FREEZE, silent=True))
    ]
    assert scope_json(scope())["hold"] is None


def test_an_operation_shows_its_members_and_its_action() -> None:
    operation = Operation(
        operation_id="o-1",
        host="host-1",
        event_type=EventType.REBOOT,
        cause=Cause.MAINTENANCE,
        phase=OperationPhase.WAITING,
        ordered_ms=SCHEDULED_MS,
        members=(("web", FREEZE.event_id),),
    )
    shown = shown_as_json(operator_json.operation_json)(operation)
    assert shown["members"] == [{"scope": "web", "event_id": FREEZE.event_id}]
    assert (shown["phase"], shown["action"]) == ("waiting", None)
    assert (shown["duration_seconds"], shown["description"]) == (None, None)
    acting = shown_as_json(operator_json.operation_json)(replace(operation, action=ACTION))
    assert acting["action"] == shown_as_json(operator_json.action_json)(ACTION)


def test_a_fact_shows_its_number_and_its_detail() -> None:
    detail = HostLeftDetail(stays=True)
    fact = Fact(kind=FactKind.HOST_LEFT, at_ms=SCHEDULED_MS, host="host-1", detail=detail)
    assert shown_as_json(operator_json.fact_json)(fact, 12) == {
        "number": 12,
        "kind": "host-left",
        "at": "2026-03-03T10:00:00.000Z",
        "scope": None,
        "event_id": None,
        "operation_id": None,
        "host": "host-1",
        "vm": None,
        "by": None,
        "by_kind": None,
        "by_id": None,
        "detail": {"stays": True},
    }


def test_everything_is_ready_for_any_json_writer() -> None:
    fact = Fact(kind=FactKind.ORDERED, at_ms=SCHEDULED_MS)
    for value in (
        scope_json(scope(FREEZE, replace(STARTED, actions=(ACTION,)))),
        shown_as_json(operator_json.fact_json)(fact, 1),
    ):
        assert json.loads(json.dumps(value)) == value


def test_lengths_of_time_keep_their_fractions() -> None:
    shown = shown_as_json(operator_json.event_json)(replace(FREEZE, unreadable_ms=-1_500))
    assert shown["unreadable_seconds"] == -1.5


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, None),
        (0, "1970-01-01T00:00:00.000Z"),
        (SCHEDULED_MS + 7, "2026-03-03T10:00:00.007Z"),
        (LAST_MS, "9999-12-31T23:59:59.000Z"),
    ],
)
def test_times_are_utc_with_milliseconds(ms: int | None, text: str | None) -> None:
    assert time_text(ms) == text


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2026-03-03T10:00:00Z", SCHEDULED_MS),
        ("2026-03-03T10:00Z", SCHEDULED_MS),
        ("2026-03-03 11:00:00+01:00", SCHEDULED_MS),
        ("2026-03-03T04:30:00-05:30", SCHEDULED_MS),
        ("2026-03-03T10:00:00.1239Z", SCHEDULED_MS + 123),
        ("+0s", SCHEDULED_MS),
        ("+90s", SCHEDULED_MS + 90_000),
        ("+30m", SCHEDULED_MS + 1_800_000),
        ("+2h", SCHEDULED_MS + 7_200_000),
        ("+7d", SCHEDULED_MS + 604_800_000),
        ("1970-01-01T00:00:00Z", 0),
        ("9999-12-31T23:59:59Z", LAST_MS),
    ],
)
def test_a_time_with_a_zone_or_from_now_is_understood(text: str, ms: int) -> None:
    assert parse_time(text, now_ms=SCHEDULED_MS) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-03-03",
        "2026-03-03T10:00:00",
        "2026-02-30T10:00:00Z",
        "2026-03-03T25:00:00Z",
        "10:00Z",
        "1772532000",
        "2h",
        "-2h",
        "+2",
        "+h",
        "+2w",
        "+1.5h",
        "+ 2h",
        "+2h ",
        "+\u0663h",
        "+999999999999d",
        "+9999999999999999999d",
        "1969-12-31T23:59:59Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "9999-12-31T23:59:59.001Z",
        "\ud800",
        "x" * 10_000,
    ],
    ids=lambda text: ascii(text[:30]),
)
def test_any_other_time_is_refused_with_what_would_be_accepted(text: str) -> None:
    with pytest.raises(errors.Invalid) as caught:
        parse_time(text, now_ms=SCHEDULED_MS)
    assert "2026-03-03T10:15:00Z" in caught.value.accepted
    assert "+2h" in caught.value.accepted
    assert len(caught.value.refused) < 200


def test_a_time_without_a_zone_is_told_that_the_zone_is_missing() -> None:
    with pytest.raises(errors.Invalid, match="names no zone"):
        parse_time("2026-03-03T10:00:00", now_ms=SCHEDULED_MS)


def test_what_is_written_is_read_back() -> None:
    rng = random.Random(1)
    for _ in range(2_000):
        ms = rng.randint(0, LAST_MS)
        text = time_text(ms)
        assert text is not None
        assert parse_time(text, now_ms=0) == ms
