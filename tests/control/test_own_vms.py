"""A host speaks for its own VMs, and for those that are on their way to it, and for no others."""

from __future__ import annotations

import msgspec
import pytest

from forewarn.control.hosts import own_vms
from forewarn.core.errors import Conflict, NotFound, NotYours
from forewarn.core.model import EventType, FactKind, Policy, ScheduledEvent
from forewarn.wire.link import ReadBefore, ShownScope, Turn
from support import ordered
from support.core_fleet import WEB, Cloud, scope
from support.shown import as_shown_to


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("web", WEB), scope("db", {"db_0": (0, "h2")}))


def moving(cloud: Cloud) -> ScheduledEvent:
    """A Redeploy of web_0 that has started: h1 moves it, to where the event says."""
    event = cloud.order("web_0", EventType.REDEPLOY)
    cloud.start(event)
    return cloud.event(event)


def target_of(event: ScheduledEvent) -> str:
    (action,) = event.actions
    assert action.target_host is not None
    return action.target_host


def names(cloud: Cloud, host: str, scope_name: str = "web") -> set[str]:
    return {vm.name for vm in own_vms.own_vms(cloud.scope(scope_name), host)}


def test_a_host_has_the_vms_that_are_on_it(cloud: Cloud) -> None:
    assert names(cloud, "h1") == {"web_0"}
    assert names(cloud, "h2") == {"web_1"}
    assert names(cloud, "h3") == set()


def test_a_vm_that_is_being_moved_belongs_to_both_hosts_until_the_move_has_ended(
    cloud: Cloud,
) -> None:
    event = moving(cloud)
    target = target_of(event)
    assert "web_0" in names(cloud, "h1")
    assert "web_0" in names(cloud, target)

    cloud.work()

    assert "web_0" not in names(cloud, "h1")
    assert "web_0" in names(cloud, target)


def test_a_move_that_is_only_scheduled_gives_nobody_a_say(cloud: Cloud) -> None:
    cloud.order("web_0", EventType.REDEPLOY)
    assert [host for host in ("h1", "h2", "h3") if "web_0" in names(cloud, host)] == ["h1"]


def test_a_vm_of_another_host_cannot_be_spoken_for(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)

    for host in ("h2", "h3", "nobody"):
        with pytest.raises(NotYours, match="cannot speak for VM web_0, which is on h1"):
            cloud.run(ordered.approve(host, "web_0", (event.event_id,)))

    assert cloud.event(event).approved_ms is None
    cloud.run(ordered.approve("h1", "web_0", (event.event_id,)))
    assert cloud.event(event).approved_by == "web_0"


def test_a_vm_that_does_not_exist_is_not_found(cloud: Cloud) -> None:
    with pytest.raises(NotFound, match="There is no VM web_9"):
        cloud.run(ordered.approve("h1", "web_9", ()))


def test_a_host_enables_only_the_scope_of_its_own_vm() -> None:
    cloud = Cloud(scope("web", WEB, enabled=False), scope("db", {"db_0": (0, "h2")}, enabled=False))

    with pytest.raises(NotYours, match="VM web_0 is in scope web, not in db"):
        cloud.run(ordered.enable("h1", "db", "web_0"))
    with pytest.raises(NotYours):
        cloud.run(ordered.enable("h1", "db", "db_0"))
    assert not cloud.scope("db").enabled

    cloud.run(ordered.enable("h1", "web", "web_0"))
    assert cloud.scope("web").enabled


def test_an_incarnation_that_does_not_exist_yet_is_confirmed_by_nobody(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    now = cloud.scope().incarnation

    with pytest.raises(Conflict):
        cloud.run(ordered.confirm("h1", "web", now + 1))
    assert cloud.event(event).shown_ms is None
    cloud.run(ordered.confirm("h2", "web", now))  # the event is on h1
    assert cloud.event(event).shown_ms is None

    cloud.run(ordered.confirm("h1", "web", now))
    assert cloud.event(event).shown_ms is not None
    cloud.run(ordered.confirm("h1", "nothing", 1))  # dropped meanwhile: no word to refuse


def test_first_reads_are_kept_for_own_vms_and_known_events_only(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    known = event.event_id
    reads = (
        ReadBefore("web", known, "web_0", 1_500),
        ReadBefore("web", known, "web_1", 0),  # on h2
        ReadBefore("db", known, "web_0", 0),  # not its scope
        ReadBefore("web", "NO-SUCH-EVENT", "web_0", 0),
        ReadBefore("nothing", known, "web_0", 0),
    )

    cloud.run(ordered.keep_traces("h1", Turn(first_reads=reads)))

    (kept,) = cloud.store.first_reads(known)
    assert (kept.vm, kept.read_ms) == ("web_0", cloud.clock.wall - 1_500)


@pytest.mark.parametrize(("age_ms", "at_ms"), [(-5_000, 0), (10**18, None), (250, -250)])
def test_what_was_done_in_passing_was_never_done_in_the_future(
    cloud: Cloud, age_ms: int, at_ms: int | None
) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    read = ReadBefore("web", event.event_id, "web_0", age_ms)

    cloud.run(ordered.keep_traces("h1", Turn(first_reads=(read,))))

    (kept,) = cloud.store.first_reads(event.event_id)
    assert kept.read_ms == (0 if at_ms is None else cloud.clock.wall + at_ms)


def test_polls_count_for_scopes_with_own_vms_only(cloud: Cloud) -> None:
    before = cloud.scope("db").polled_ms
    cloud.clock.pass_ms(60_000)

    cloud.run(ordered.keep_traces("h1", Turn(polls={"web": 1_000, "db": 0, "nothing": 0})))

    assert cloud.scope("web").polled_ms == cloud.clock.wall - 1_000
    assert cloud.scope("db").polled_ms == before


def test_a_host_brings_back_only_its_own_vms() -> None:
    cloud = Cloud(scope("web", WEB), policy=Policy(domain_recovery_ms=600_000))
    cloud.carry_out(cloud.order("web_0", EventType.REBOOT))
    assert cloud.scope().recoveries

    cloud.run(ordered.keep_traces("h2", Turn(returned=("web_0",))))
    assert cloud.scope().recoveries

    cloud.run(ordered.keep_traces("h1", Turn(returned=("web_0", "gone_since"))))
    assert not cloud.scope().recoveries
    assert cloud.facts(FactKind.RECOVERED)


def test_a_host_is_shown_its_own_vms_and_every_visible_event_of_the_scope(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.approve(event)

    shown = as_shown_to(cloud.scope(), "h2")

    assert [vm.name for vm in shown.vms] == ["web_1"]
    assert [one.event_id for one in shown.events] == [event.event_id]
    assert shown.incarnation == cloud.scope().incarnation
    assert shown.enabled
    assert not shown.to_confirm  # that is for the host of the event


def test_only_the_host_of_an_event_is_asked_to_confirm_it(cloud: Cloud) -> None:
    cloud.order("web_0", EventType.REBOOT)

    def to_confirm(host: str) -> bool:
        return as_shown_to(cloud.scope(), host).to_confirm

    assert (to_confirm("h1"), to_confirm("h2")) == (True, False)
    cloud.show()
    assert (to_confirm("h1"), to_confirm("h2")) == (False, False)


@pytest.mark.parametrize("host", ["h1", "h2", "h9"], ids=["to-confirm", "others", "no VM"])
def test_what_a_host_is_shown_is_the_same_over_the_wire(cloud: Cloud, host: str) -> None:
    cloud.order("web_0", EventType.REBOOT)
    showing = own_vms.ScopeByHost(cloud.scope())
    assert showing.to("h1").to_confirm
    assert not showing.to("h9").vms
    assert msgspec.json.decode(showing.encoded(host), type=ShownScope) == showing.to(host)


def test_what_guests_cannot_see_is_not_shown_to_hosts_either(cloud: Cloud) -> None:
    silent = Cloud(scope("web", WEB, enabled=False))
    silent.order("web_0", EventType.REBOOT)
    assert as_shown_to(silent.scope(), "h1").events == ()

    before = as_shown_to(cloud.scope(), "h1")
    cloud.polls("web", "web_0")
    assert as_shown_to(cloud.scope(), "h1") == before
