"""The summary of a fleet follows each commit, and says what a walk over everything would say."""

from __future__ import annotations

import random
from collections.abc import Callable

from forewarn.control.fleet_summary import FleetSummary, HostCondition, natural, starts_ms
from forewarn.core.model import DAY_MS, MINUTE_MS, EventType, Host, Outcome, Phase
from support import ordered
from support.core_fleet import WEB, Cloud, scope

WELL, SILENT = HostCondition.WELL, HostCondition.SILENT


def summary_of(cloud: Cloud) -> FleetSummary:
    """One that hears of every commit from now on."""
    made = FleetSummary(cloud.published)
    cloud.published.on_publish(made.committed)
    return made


def conditions(summary: FleetSummary) -> dict[str, HostCondition]:
    summary.look_again(len(summary.host_names))
    return dict(zip(summary.host_names, summary.conditions, strict=True))


def counts(summary: FleetSummary) -> tuple[int, int]:
    """How many events are scheduled, and how many are started."""
    return len(list(summary.scheduled())), len(list(summary.started()))


def same(one: FleetSummary, cloud: Cloud) -> None:
    """What was kept up to date is what one that begins now finds."""
    new = FleetSummary(cloud.published)
    assert conditions(one) == conditions(new)
    assert one.held == new.held
    assert set(one.deaf) == set(new.deaf)
    assert [event for _, event in one.scheduled()] == [event for _, event in new.scheduled()]
    assert {e.event_id for _, e in one.started()} == {e.event_id for _, e in new.started()}
    assert counts(one) == counts(new)
    assert one.unapproved == new.unapproved
    assert sorted(one.unheard_since(2**60)) == sorted(new.unheard_since(2**60))


def test_hosts_are_in_the_order_in_which_people_count() -> None:
    names = [f"h{number}" for number in (10, 2, 1, 11)]
    cloud = Cloud(hosts=[Host(name=name) for name in names])
    assert list(FleetSummary(cloud.published).host_names) == ["h1", "h2", "h10", "h11"]
    assert natural("r2-n10") > natural("r2-n9") > natural("r1-n99")


def test_a_host_is_shown_at_its_worst() -> None:
    cloud = Cloud(scope("web", WEB))
    summary = summary_of(cloud)
    assert set(conditions(summary).values()) == {WELL}
    cloud.run(ordered.close_host("h3", by="operator"))
    assert conditions(summary)["h3"] is HostCondition.CLOSED
    operation = cloud.maintain("h1", EventType.REBOOT)
    assert conditions(summary)["h1"] is HostCondition.ANNOUNCED
    cloud.show()
    cloud.start(*cloud.events_of(operation))
    assert conditions(summary)["h1"] is HostCondition.WORKING
    cloud.hearing.falls_silent("h1")
    assert conditions(summary)["h1"] is SILENT
    cloud.hearing.returns("h1")
    cloud.work()
    assert conditions(summary)["h1"] is WELL
    cloud.degrade("h2")
    assert conditions(summary)["h2"] is HostCondition.ANNOUNCED, "its VM is to be moved"
    cloud.fail("h2")
    assert conditions(summary)["h2"] is HostCondition.FAILED
    same(summary, cloud)


def test_a_host_that_falls_silent_is_found_by_looking_again_in_slices() -> None:
    cloud = Cloud(hosts=[Host(name=f"h{number}") for number in range(10)])
    summary = summary_of(cloud)
    summary.look_again(10)
    cloud.hearing.falls_silent("h7")
    found: dict[int, HostCondition] = {}
    for _ in range(4):
        found |= summary.look_again(3)
    assert found == {7: SILENT}
    assert list(summary.hosts_that_are(SILENT, 10)) == ["h7"]
    assert summary.counts() == {WELL: 9, SILENT: 1}


def test_events_are_listed_by_when_they_may_start() -> None:
    cloud = Cloud(scope("web", WEB), scope("db", {"db_0": (0, "h3")}))
    summary = summary_of(cloud)
    later = cloud.order("web_0", EventType.REBOOT)
    sooner = cloud.order("db_0", EventType.REDEPLOY)
    assert [event.event_id for _, event in summary.scheduled()] == [
        sooner.event_id,
        later.event_id,
    ]
    cloud.start(sooner)
    assert [event.event_id for _, event in summary.started()] == [sooner.event_id]
    assert counts(summary) == (1, 1)
    cloud.cancel(later)
    assert counts(summary) == (0, 1)
    cloud.work()
    assert counts(summary) == (0, 0)


def test_scopes_that_are_held_and_scopes_that_do_not_listen_are_known() -> None:
    cloud = Cloud(scope("web", WEB), scope("mute", {"m": (0, "h3")}, enabled=False))
    summary = summary_of(cloud)
    assert set(summary.deaf) == {"mute"}
    assert summary.unheard_since(cloud.clock.wall + 1) == [(cloud.clock.wall, "web")]
    cloud.polls("mute", "m")
    assert set(summary.deaf) == set()
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.start(event)
    cloud.work(Outcome.FAILED)
    assert summary.held == {"web"}
    cloud.pass_time(DAY_MS + MINUTE_MS)
    assert "web" in summary.deaf
    assert "web" not in {name for _, name in summary.unheard_since(2**60)}
    same(summary, cloud)


def test_hosts_and_scopes_that_come_and_leave_are_followed() -> None:
    cloud = Cloud(scope("web", WEB))
    summary = summary_of(cloud)
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.cancel(event)

    def leave(tx: object) -> None:
        tx.remove_scope("web")  # type: ignore[attr-defined]
        tx.remove_host("h2")  # type: ignore[attr-defined]

    cloud.run(leave)
    assert list(summary.host_names) == ["h1", "h3"]
    same(summary, cloud)


def test_whatever_happens_it_agrees_with_a_summary_that_begins_now() -> None:
    for seed in range(20):
        draw = random.Random(seed)
        cloud = Cloud(
            scope("a", {"a_0": (0, "h1"), "a_1": (1, "h2")}),
            scope("b", {"b_0": (0, "h1"), "b_1": (1, "h3")}, enabled=bool(seed % 2)),
            hosts=[Host(name=f"h{n}") for n in range(1, 5)],
        )
        summary = summary_of(cloud)
        for _ in range(25):
            _something(cloud, draw)
            same(summary, cloud)


def _something(cloud: Cloud, draw: random.Random) -> None:
    vm = draw.choice(["a_0", "a_1", "b_0", "b_1"])
    host = f"h{draw.randrange(1, 5)}"
    steps: list[Callable[[], object]] = [
        lambda: cloud.order(vm, draw.choice([EventType.REBOOT, EventType.REDEPLOY])),
        lambda: cloud.maintain(host, draw.choice([EventType.FREEZE, EventType.REDEPLOY])),
        lambda: cloud.pass_time(draw.choice([MINUTE_MS, 20 * MINUTE_MS])),
        lambda: cloud.work(draw.choice([Outcome.DONE, Outcome.FAILED])),
        lambda: cloud.polls("b", "b_0"),
        lambda: cloud.run(ordered.close_host(host, by="operator")),
        lambda: cloud.fail(host, fenced=True),
        lambda: cloud.repair(host),
    ]
    try:
        draw.choice(steps)()
    except Exception as refusal:
        if not hasattr(refusal, "refused"):
            raise


def test_the_start_of_an_event_that_no_host_has_shown_is_what_guests_were_told() -> None:
    cloud = Cloud(scope("web", WEB))
    event = cloud.order("web_0", EventType.REBOOT)
    assert event.phase is Phase.SCHEDULED
    assert event.shown_ms is None
    assert starts_ms(event) == event.not_before_ms
