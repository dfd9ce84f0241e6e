"""What an order would do is what it does; looking changes nothing; a moved effect is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from forewarn.control import commands, order_previews
from forewarn.control.order_previews import Preview
from forewarn.core.access import Role
from forewarn.core.errors import (
    AlreadyEnded,
    EffectMoved,
    Invalid,
    NotFound,
    OperationExists,
    TokenExists,
    TwoDomainsOnHost,
)
from forewarn.core.model import MINUTE_MS, EventType, Outcome, Phase, ScheduledEvent
from forewarn.core.principal import OPERATOR
from forewarn.core.starting import HoldReason
from support import ordered
from support.core_fleet import WEB, Cloud, reasons, scope

TWO = {"db_0": (0, "h1"), "db_1": (1, "h1")}


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("web", WEB), scope("mute", {"m": (0, "h1")}, enabled=False))


def look(cloud: Cloud, order: object) -> Preview:
    return order_previews.preview(cloud.published.look(), order)


def maintain(event_type: EventType = EventType.REBOOT, host: str = "h1") -> commands.MaintainHost:
    return commands.MaintainHost(by=OPERATOR, host=host, event_type=event_type)


def once(order: commands.Order, effect: str, key: str = "k") -> commands.Once:
    return commands.Once(
        by=OPERATOR,
        order=order,
        access=ordered.full_access(OPERATOR),
        key=key,
        fingerprint="f",
        effect=effect,
    )


def announced(events: Sequence[ScheduledEvent]) -> list[tuple[str, tuple[str, ...], int, bool]]:
    return sorted((e.scope, e.resources, e.not_before_ms, not e.silent) for e in events)


@pytest.mark.parametrize("event_type", [EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY])
def test_what_is_previewed_of_maintenance_is_what_it_announces(
    cloud: Cloud, event_type: EventType
) -> None:
    before = cloud.everything()
    shown = look(cloud, maintain(event_type))
    assert cloud.everything() == before
    assert cloud.journal() == (), "nothing was written down"

    operation = cloud.maintain("h1", event_type)

    made = announced(cloud.events_of(operation))
    assert [(e.scope, e.vms, e.not_before_ms, e.told) for e in shown.events] == made
    assert {e.event_id for e in shown.events} == {""}


def test_a_preview_says_what_would_hold_the_order_beyond_its_notice(cloud: Cloud) -> None:
    assert look(cloud, maintain()).holds == ()
    cloud.start(cloud.order("web_1", EventType.REBOOT))
    assert reasons(look(cloud, maintain()).holds) == {HoldReason.DOMAIN_STARTED}


def test_what_the_order_refuses_its_preview_refuses() -> None:
    cloud = Cloud(scope("db", TWO))
    with pytest.raises(TwoDomainsOnHost):
        look(cloud, maintain())
    cloud.maintain("h1", EventType.REDEPLOY)
    with pytest.raises(OperationExists):
        look(cloud, maintain(EventType.REDEPLOY))
    with pytest.raises(NotFound):
        look(cloud, maintain(host="no"))
    with pytest.raises(Invalid):
        look(cloud, maintain(EventType.PREEMPT))
    with pytest.raises(Invalid, match="beforehand"):
        look(cloud, commands.TellTime(by=OPERATOR))


def test_an_order_for_a_vm_starts_at_once_where_its_scope_needs_no_approval(cloud: Cloud) -> None:
    order = commands.RestartVm(by=OPERATOR, vm="web_0")
    [event] = look(cloud, order).events
    assert (event.phase, event.approved, event.vms) == (Phase.SCHEDULED, False, ("web_0",))
    auto = Cloud(scope("web", WEB, auto_approve=frozenset({EventType.REBOOT})))
    shown = look(auto, order)
    assert shown.events[0].approved
    assert shown.holds == ()


def test_the_same_order_again_is_said_to_be_there_already(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    shown = look(cloud, commands.RestartVm(by=OPERATOR, vm="web_0"))
    assert shown.unchanged
    assert [one.event_id for one in shown.events] == [event.event_id]


def test_an_approval_shows_what_it_still_waits_for(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.REBOOT)
    cloud.show()
    of_web = next(e for e in cloud.events_of(operation) if e.scope == "web")
    approve = commands.ApproveEvent(by=OPERATOR, event_id=of_web.event_id, reason="")
    shown = look(cloud, approve)
    assert shown.holds == (), "the other scope is silent and waits for nothing"
    assert shown.events[0].approved
    cloud.start(cloud.order("web_1", EventType.REBOOT))
    assert reasons(look(cloud, approve).holds) == {HoldReason.DOMAIN_STARTED}


def test_canceling_one_event_shows_all_that_go_with_it(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.REBOOT)
    first, *_ = members = cloud.events_of(operation)
    by_event = look(cloud, commands.CancelEvent(by=OPERATOR, event_id=first.event_id))
    whole = look(cloud, commands.CancelOperation(by=OPERATOR, operation_id=operation.operation_id))
    assert {e.event_id for e in by_event.events} == {e.event_id for e in members}
    assert {e.phase for e in by_event.events} == {Phase.CANCELED}
    assert whole == by_event
    cloud.cancel(first)
    with pytest.raises(AlreadyEnded):
        look(cloud, commands.CancelEvent(by=OPERATOR, event_id=first.event_id))
    with pytest.raises(AlreadyEnded):
        look(cloud, commands.CancelOperation(by=OPERATOR, operation_id=operation.operation_id))


def test_a_release_shows_why_the_scope_was_held_and_what_goes_on(cloud: Cloud) -> None:
    release = commands.ReleaseScope(by=OPERATOR, scope="web")
    with pytest.raises(NotFound, match="not held"):
        look(cloud, release)
    cloud.start(cloud.order("web_0", EventType.REBOOT))
    cloud.work(Outcome.FAILED)
    cloud.maintain("h2", EventType.REBOOT)
    cloud.pass_time(16 * MINUTE_MS)
    shown = look(cloud, release)
    assert shown.scope_held
    assert [e.vms for e in shown.events] == [("web_1",)]
    assert reasons(shown.holds) == set(), "it would start with the next tick"


def test_what_an_order_says_of_a_host_is_shown_with_how_the_host_is(cloud: Cloud) -> None:
    close = commands.CloseHost(by=OPERATOR, host="h1")
    assert not look(cloud, close).unchanged
    cloud.run(ordered.close_host("h1", by="operator"))
    assert look(cloud, close).unchanged
    assert not look(cloud, commands.OpenHost(by=OPERATOR, host="h1")).unchanged
    assert look(cloud, commands.RepairHost(by=OPERATOR, host="h1")).unchanged
    cloud.fail("h1")
    assert not look(cloud, commands.RepairHost(by=OPERATOR, host="h1")).unchanged
    assert look(cloud, commands.FailHost(by=OPERATOR, host="h1")).unchanged
    assert not look(cloud, commands.FailHost(by=OPERATOR, host="h1", fenced=True)).unchanged


def test_an_order_is_refused_if_its_effect_is_another_one_than_was_shown(cloud: Cloud) -> None:
    order = maintain(EventType.FREEZE)
    seen = look(cloud, order).mark
    cloud.clock.pass_ms(MINUTE_MS)
    assert look(cloud, order).mark == seen, "time alone moves no effect"
    cloud.polls("mute", "m")
    assert look(cloud, order).mark != seen, "one scope more is told"
    before = cloud.everything()
    with pytest.raises(EffectMoved):
        cloud.run(once(order, seen))
    assert cloud.everything() == before

    answer = cloud.run(once(order, look(cloud, order).mark))

    assert not answer.repeated
    assert cloud.run(once(order, seen)).repeated, "what is sent again gets its answer again"


def test_an_order_that_names_no_effect_is_carried_out_whatever_has_moved(cloud: Cloud) -> None:
    assert not cloud.run(once(maintain(EventType.FREEZE), "")).repeated


def test_a_poll_of_a_scope_that_listens_moves_no_effect(cloud: Cloud) -> None:
    order = maintain(EventType.FREEZE)
    seen = look(cloud, order).mark
    revision = cloud.scope("web").revision
    cloud.clock.pass_ms(MINUTE_MS)
    cloud.polls("web", "web_0")
    assert cloud.scope("web").revision != revision
    assert look(cloud, order).mark == seen


def test_times_are_no_part_of_an_effect_and_everything_else_is(cloud: Cloud) -> None:
    shown = look(cloud, maintain())
    [first, *rest] = shown.events
    later = replace(first, not_before_ms=first.not_before_ms + 1)
    assert replace(shown, events=(later, *rest)).mark == shown.mark
    for other in (
        replace(first, vms=("x",)),
        replace(first, told=not first.told),
        replace(first, phase=Phase.STARTED),
    ):
        assert replace(shown, events=(other, *rest)).mark != shown.mark


# What owners order, and tokens.


@pytest.mark.parametrize("event_type", [EventType.REBOOT, EventType.REDEPLOY])
def test_what_is_previewed_of_a_postponement_is_what_it_announces(
    cloud: Cloud, event_type: EventType
) -> None:
    operation = cloud.maintain("h1", event_type)
    cloud.show()
    mine = next(e for e in cloud.events_of(operation) if e.scope == "web")
    until_ms = cloud.clock.wall + 180 * MINUTE_MS
    order = ordered.postpone_event(mine.event_id, by=OPERATOR, until_ms=until_ms)
    before = cloud.everything()
    shown = look(cloud, order)
    assert cloud.everything() == before
    assert {e.event_id for e in shown.events} == {""}
    assert {e.not_before_ms for e in shown.events} == {until_ms}

    cloud.postpone(mine, 180 * MINUTE_MS, by=OPERATOR)
    withdrawn = [cloud.event(one) for one in shown.withdrawn]
    assert len(withdrawn) == (1 if event_type is EventType.REDEPLOY else 2)
    made = announced([cloud.event(one.postponed_to or "") for one in withdrawn])
    assert sorted((e.scope, e.vms, e.not_before_ms, e.told) for e in shown.events) == made


def test_an_owner_is_shown_what_holds_an_order_without_the_names_of_others() -> None:
    cloud = Cloud(scope("web", WEB), scope("db", {"db_0": (0, "h1")}))
    operation = cloud.maintain("h1", EventType.REBOOT)
    cloud.show()
    by = ordered.owner("ann")
    mine = next(e for e in cloud.events_of(operation) if e.scope == "web")
    approve = commands.ApproveEvent(by=by, event_id=mine.event_id, reason="")
    fleet = cloud.published.look()
    [full] = order_previews.preview(fleet, approve).holds
    [told] = order_previews.preview(fleet, approve, own=("web",)).holds
    assert "db" in full.what + full.remedy
    assert "db" not in told.what + told.remedy
    assert full.reason is told.reason is HoldReason.CONSENT
    postpone = ordered.postpone_event(
        mine.event_id, by=by, until_ms=cloud.clock.wall + 90 * MINUTE_MS
    )
    shown = order_previews.preview(fleet, postpone, own=("web",))
    assert {e.scope for e in shown.events} == {"web"}
    assert shown.withdrawn == (mine.event_id,)


def make_token(name: str = "ci", token_id: str = "a" * 10) -> commands.MakeToken:
    return commands.MakeToken(
        by=OPERATOR,
        token_id=token_id,
        name=name,
        role=Role.VIEWER,
        secret_hash="x",
        valid_ms=60 * MINUTE_MS,
    )


def test_a_token_is_previewed_as_it_would_be_and_refused_as_it_would_be(cloud: Cloud) -> None:
    shown = look(cloud, make_token()).token
    assert shown is not None
    assert (shown.name, shown.role) == ("ci", Role.VIEWER)
    assert shown.expires_ms == cloud.clock.wall + 60 * MINUTE_MS
    cloud.run(make_token())
    with pytest.raises(TokenExists):
        look(cloud, make_token(token_id="b" * 10))


def test_a_token_that_was_rotated_since_is_not_rotated_by_who_saw_it_before(cloud: Cloud) -> None:
    token = cloud.run(make_token())
    rotate = commands.RotateToken(
        by=OPERATOR, token_id=token.token_id, secret_hash="y", valid_ms=60 * MINUTE_MS
    )
    seen = look(cloud, rotate).mark
    cloud.pass_time(MINUTE_MS)
    assert look(cloud, rotate).mark == seen
    cloud.run(rotate)
    with pytest.raises(EffectMoved):
        order_previews.refuse_other_effect(cloud.published.look(), rotate, seen)
    revoke = commands.RevokeToken(by=OPERATOR, token_id=token.token_id)
    assert not look(cloud, revoke).unchanged
    cloud.run(revoke)
    assert look(cloud, revoke).unchanged
