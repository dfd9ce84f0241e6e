"""A host in the process of control is held to what every other host is held to."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from forewarn.api.link.in_process import InProcessLink
from forewarn.api.link.routes import EVENT_IDS_MAX, LinkRoutes
from forewarn.control.hosts.host_feed import HostFeed
from forewarn.control.hosts.report_intake import ReportIntake
from forewarn.control.writer import Wanted
from forewarn.core.errors import Conflict, Invalid, NotFound, NotYours, UnknownEventIds
from forewarn.core.model import EventType, Outcome, Phase
from forewarn.wire.link import HOLDING_MAX, ReadBefore, Since, Turn
from support.control import run_now
from support.core_fleet import WEB, Cloud, scope
from support.said import Saying


class Linked:
    """A cloud with a link for each of its hosts."""

    def __init__(self) -> None:
        self.cloud = Cloud(scope("web", WEB))
        self.host_feed = HostFeed()
        self.host_feed.load(self.cloud.published.scopes.values(), ())
        self.cloud.published.on_publish(self.host_feed.published)
        self.routes = LinkRoutes(
            self.cloud.control,
            host_feed=self.host_feed,
            report_intake=ReportIntake(self.cloud.clock, self.cloud.volatile),
        )

    def link(self, host: str) -> Saying:
        return Saying(InProcessLink(self.routes, host))


@pytest.fixture
def linked() -> Linked:
    return Linked()


def test_what_is_committed_is_told_without_waiting_and_only_once(linked: Linked) -> None:
    first = linked.host_feed.now("h1", None)
    assert first is not None
    assert [one.name for one in first.scopes] == ["web"]
    assert [vm.name for vm in first.scopes[0].vms] == ["web_0"]
    since = Since(first.epoch, first.position)
    assert linked.host_feed.now("h1", since) is None
    linked.cloud.order("web_0", EventType.REBOOT)
    assert "h1" in linked.host_feed.take_rung()
    news = linked.host_feed.now("h1", since)
    assert news is not None
    assert [event.resources for event in news.scopes[0].events] == [("web_0",)]
    assert linked.host_feed.take_rung() == []


def test_a_whole_order_goes_over_the_link(linked: Linked) -> None:
    cloud, h1 = linked.cloud, linked.link("h1")
    event = cloud.order("web_0", EventType.REBOOT)
    run_now(h1.heartbeat({}))
    run_now(h1.confirm("web", cloud.scope().incarnation))
    run_now(h1.approve("web_0", (event.event_id.lower(),)))
    cloud.tick()
    [action] = run_now(h1.claim("boot-1"))
    assert run_now(h1.holds(action.action_id, action.epoch))
    run_now(h1.heartbeat({action.action_id: action.epoch}))
    run_now(h1.report(action.action_id, epoch=action.epoch, outcome=Outcome.DONE, detail=""))
    assert cloud.event(event).phase is Phase.COMPLETED


def test_a_host_speaks_for_its_own_vms_only(linked: Linked) -> None:
    event = linked.cloud.order("web_0", EventType.REBOOT)
    h2 = linked.link("h2")
    with pytest.raises(NotYours):
        run_now(h2.approve("web_0", (event.event_id,)))
    with pytest.raises(NotYours):
        run_now(h2.enable("web", "web_0"))
    run_now(h2.turn(Turn(first_reads=(ReadBefore("web", event.event_id, "web_0", 0),))))
    assert not linked.cloud.store.first_reads(event.event_id)
    assert linked.cloud.event(event).approved_ms is None


def test_an_incarnation_that_never_was_is_confirmed_by_nobody(linked: Linked) -> None:
    event = linked.cloud.order("web_0", EventType.REBOOT)
    with pytest.raises(Conflict):
        run_now(linked.link("h1").confirm("web", linked.cloud.scope().incarnation + 1))
    assert linked.cloud.event(event).shown_ms is None


def test_limits_and_refusals_are_those_of_every_host(linked: Linked) -> None:
    h1 = linked.link("h1")
    with pytest.raises(Invalid, match="too many"):
        run_now(h1.heartbeat(dict.fromkeys(map(str, range(HOLDING_MAX + 1)), 1)))
    with pytest.raises(Invalid, match="too many"):
        run_now(h1.approve("web_0", tuple(map(str, range(EVENT_IDS_MAX + 1)))))
    with pytest.raises(UnknownEventIds):
        run_now(h1.approve("web_0", ("never-was",)))
    with pytest.raises(NotFound):
        run_now(linked.link("stranger").heartbeat({}))
    assert run_now(h1.targets(["web_1"])) == {"web_1": None}
    assert run_now(h1.definition("web_0")) is None


def test_a_repeated_report_is_taken_and_one_of_a_lapsed_claim_is_refused(linked: Linked) -> None:
    cloud, h1, h2 = linked.cloud, linked.link("h1"), linked.link("h2")
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.start(event)
    [action] = run_now(h1.claim("boot-1"))
    assert not run_now(h2.holds(action.action_id, action.epoch))
    with pytest.raises(NotFound):
        run_now(h2.report(action.action_id, epoch=1, outcome=Outcome.DONE, detail=""))
    for _ in range(2):
        run_now(h1.report(action.action_id, epoch=1, outcome=Outcome.DONE, detail=""))
    assert cloud.event(event).phase is Phase.COMPLETED


@pytest.mark.parametrize("module", ["forewarn.wiring.serve", "forewarn.testing"])
def test_who_needs_no_other_machine_loads_nothing_to_reach_one(module: str) -> None:
    code = (
        f"import sys, {module}; "
        "print([name for name in ('httpcore', 'cryptography', 'jwt') if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout == "[]\n"


def test_a_host_with_nothing_to_do_asks_for_work_without_a_turn_of_the_writer(
    linked: Linked,
) -> None:
    """Thousands of hosts in one process look for work every few seconds."""
    cloud, h1 = linked.cloud, linked.link("h1")
    turns = 0
    run = cloud.control._writer.submit

    async def counted(command: Wanted[Any]) -> Any:
        nonlocal turns
        turns += 1
        return await run(command)

    cloud.control._writer.submit = counted  # type: ignore[method-assign]
    assert list(run_now(h1.claim("boot-1"))) == []
    assert turns == 1  # the first in this boot is kept
    assert list(run_now(h1.claim("boot-1"))) == []
    assert turns == 1
    run_now(h1.heartbeat({}))
    event = cloud.order("web_0", EventType.REBOOT)
    run_now(h1.confirm("web", cloud.scope().incarnation))
    run_now(h1.approve("web_0", (event.event_id,)))
    cloud.tick()
    turns = 1
    (action,) = run_now(h1.claim("boot-1"))
    assert (turns, action.vm) == (2, "web_0")
    run_now(h1.claim("boot-2"))
    assert turns == 3  # another boot is news
