"""What guests cause: enabling, approvals that are all or nothing, returns, polls, receipts."""

from __future__ import annotations

import pytest

from forewarn.core.errors import NotFound, UnknownEventIds
from forewarn.core.model import EventType, Policy
from forewarn.ports import FirstRead
from forewarn.wire.link import ReadBefore, Turn
from support import ordered
from support.core_fleet import WEB, Cloud, minutes, scope


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("web", WEB), scope("api", {"x": (0, "h3")}))


def test_enabling_is_durable_before_it_is_answered(cloud: Cloud) -> None:
    quiet = Cloud(scope("web", WEB, enabled=False))
    quiet.run(ordered.enable("h1", "web", "web_0"))
    assert quiet.store.load().scopes[0].enabled


def test_an_approval_survives_a_restart(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.approves("web_0", [event.event_id])
    cloud.crash(down_ms=1)
    assert cloud.scope().events[0].approved_by == "web_0"


def test_an_approval_of_an_event_that_has_ended_is_accepted_after_a_restart_too(
    cloud: Cloud,
) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.carry_out(event)
    cloud.crash(down_ms=1)
    before = cloud.everything()
    cloud.approves("web_1", [event.event_id])
    assert cloud.everything() == before


def test_many_unknown_ids_are_counted_and_only_some_are_named(cloud: Cloud) -> None:
    with pytest.raises(UnknownEventIds, match="and 7 more"):
        cloud.approves("web_0", [f"ID-{i}" for i in range(10)])


def test_an_approval_by_a_vm_that_is_gone_is_refused(cloud: Cloud) -> None:
    with pytest.raises(NotFound):
        cloud.approves("nobody", [])


def test_the_return_of_a_vm_that_is_gone_is_no_error(cloud: Cloud) -> None:
    before = cloud.everything()
    cloud.run(ordered.keep_traces("h1", Turn(returned=("nobody",))))
    assert cloud.everything() == before


def test_a_return_that_nobody_waits_for_writes_nothing(cloud: Cloud) -> None:
    commits = len(cloud.commits)
    cloud.run(ordered.keep_traces("h1", Turn(returned=("web_0",))))
    assert len(cloud.commits) == commits


def test_a_return_is_durable() -> None:
    cloud = Cloud(scope("web", WEB), policy=Policy(domain_recovery_ms=minutes(10)))
    cloud.carry_out(cloud.order("web_0", EventType.REBOOT))
    cloud.run(ordered.keep_traces("h1", Turn(returned=("web_0",))))
    assert cloud.store.load().scopes[0].recoveries == ()


def test_polls_are_saved_for_enabled_scopes_and_never_go_back(cloud: Cloud) -> None:
    cloud.clock.pass_ms(10_000)
    now = cloud.clock.wall
    cloud.run(ordered.keep_traces("h1", Turn(polls={"web": 5_000, "gone": 0})))
    cloud.run(ordered.keep_traces("h3", Turn(polls={"api": 1_000})))
    cloud.run(ordered.keep_traces("h1", Turn(polls={"web": 9_000})))
    saved = {owner.name: owner.polled_ms for owner in cloud.store.load().scopes}
    assert saved == {"web": now - 5_000, "api": now - 1_000}


def test_a_late_poll_does_not_enable_a_scope_that_fell_silent() -> None:
    cloud = Cloud(scope("web", WEB, enabled=False))
    cloud.run(ordered.keep_traces("h1", Turn(polls={"web": 0})))
    assert not cloud.scope().enabled
    assert cloud.scope().polled_ms is None


def test_a_confirmation_for_a_scope_that_is_gone_is_no_error(cloud: Cloud) -> None:
    before = cloud.everything()
    cloud.run(ordered.confirm("h1", "gone", 1))
    assert cloud.everything() == before


def test_a_confirmation_counts_once(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.show()
    first_ms = cloud.event(event).shown_ms
    cloud.clock.pass_ms(minutes(1))
    commits = len(cloud.commits)
    cloud.show()
    assert cloud.event(event).shown_ms == first_ms
    assert len(cloud.commits) == commits


def test_receipts_are_kept(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    read = FirstRead(scope="web", event_id=event.event_id, vm="web_1", read_ms=cloud.clock.wall)
    ago = ReadBefore(scope="web", event_id=event.event_id, vm="web_1", age_ms=0)
    cloud.run(ordered.keep_traces("h2", Turn(first_reads=(ago,))))
    assert list(cloud.store.first_reads(event.event_id)) == [read]
