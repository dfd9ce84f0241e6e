"""kill -9 while VMs and hosts are being restarted, moved and frozen: every event still ends.

One test on purpose: a claim that died with the process is free after one lease (30 s), and all
impacts wait for it together.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from support.system_world import HOSTS, QUICK, Service, no_events, running
from support.waiting import wait_until

# A lease, a sweep over the hosts, the impact itself, and some room.
ENDED_WITHIN_S = 100.0
# The service confirms before it says that it runs, and we look at the clock after that.
ROUNDING = timedelta(seconds=1)

FLEET = HOSTS + "".join(
    f'[[vm]]\nname = "{name}"\nhost = "{host}"\nlisten = "127.0.0.1:0"\npriority = "spot"\n'
    for name, host in (("restarted", "h1"), ("moved", "h1"), ("frozen", "h2"), ("evicted", "h3"))
)
SLOW = {f"FOREWARN_{kind}_SECONDS": "6" for kind in ("FREEZE", "REBOOT", "REDEPLOY")}
PREEMPT_NOTICE = timedelta(seconds=30)


def under_way(service: Service) -> dict[str, str]:
    """Bring a restart, a move and a freeze under way: event id by VM."""
    frozen = service.order("hosts/h2/maintain", {"event_type": "Freeze"})
    events = {
        "restarted": service.order("vms/restarted/restart")["event_id"],
        "moved": service.order("vms/moved/redeploy")["event_id"],
        "frozen": frozen["events"][0]["event_id"],
    }
    for vm, event_id in events.items():
        assert service.guest(vm).approve(event_id).status == 200
    for event_id in events.values():
        service.wait_for_phase(event_id, "started")
    return events


def test_what_was_under_way_at_kill_9_stays_started_and_ends_and_lost_notice_is_given_again(
    tmp_path: Path,
) -> None:
    with running(tmp_path, fleet=FLEET, settings={**QUICK, **SLOW}) as service:
        for vm in ("restarted", "moved", "frozen", "evicted"):
            service.guest(vm).document()
        preempt = service.order("vms/evicted/evict")["event_id"]
        events = under_way(service)
        before = {vm: service.guest(vm).document() for vm in (*events, "evicted")}
        service.kill()
        service.start()
        restarted = datetime.now(UTC)

        assert {vm: service.guest(vm).document() for vm in before} == before
        for vm, event_id in events.items():
            service.wait_for_phase(event_id, "completed", limit_s=ENDED_WITHIN_S)
            wait_until(partial(no_events, service.guest(vm)), "it leaves the document")
            assert service.guest(vm).incarnation() == before[vm]["DocumentIncarnation"] + 1
            kinds = [line["kind"] for line in service.journal(event_id)]
            assert kinds.count("started") == kinds.count("completed") == 1
        assert service.look("vms/moved")["host"] != "h1"
        assert service.look("operations")["items"] == []
        evicted = service.wait_for_phase(preempt, "completed", limit_s=ENDED_WITHIN_S)
        # Its notice had just begun when the service died, so all of it is given after that.
        assert datetime.fromisoformat(evicted["started"]) >= restarted + PREEMPT_NOTICE - ROUNDING
