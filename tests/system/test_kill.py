"""kill -9 of the service at any moment: what was answered holds, and nothing begins too early."""

from __future__ import annotations

import http.client
import random
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.system_world import QUICK, Service, running, standalone_fleet

VMS = 12
CALLERS = 4


def orders_for_all(service: Service) -> dict[str, str]:
    """A restart of every VM, each enabled by a poll: event id by name."""
    ordered = {}
    for number in range(VMS):
        service.guest(f"vm{number}").document()
        ordered[f"vm{number}"] = service.order(f"vms/vm{number}/restart")["event_id"]
    return ordered


def approve_until_killed(
    service: Service, ordered: Mapping[str, str], kill_after: int
) -> dict[str, bool]:
    """Approve everything, several at a time, and kill the service after so many answers.

    Returns by VM whether its approval was answered 200.
    """
    guests = {vm: service.guest(vm) for vm in ordered}
    answered = threading.Semaphore(0)

    def approve(vm: str) -> bool:
        try:
            status = guests[vm].approve(ordered[vm]).status
        except (OSError, http.client.HTTPException):
            return False
        assert status == 200
        answered.release()
        return True

    with ThreadPoolExecutor(CALLERS) as callers:
        approvals = {vm: callers.submit(approve, vm) for vm in ordered}
        for _ in range(kill_after):
            assert answered.acquire(timeout=60)
        service.kill()
        return {vm: approval.result() for vm, approval in approvals.items()}


@pytest.mark.parametrize("seed", range(5))
def test_an_approval_answered_200_survives_kill_9(tmp_path: Path, seed: int) -> None:
    with running(tmp_path, fleet=standalone_fleet(VMS)) as service:
        ordered = orders_for_all(service)
        before = {vm: service.guest(vm).incarnation() for vm in ordered}
        kill_after = random.Random(seed).randrange(1, VMS - CALLERS)

        answers = approve_until_killed(service, ordered, kill_after)
        service.start()

        assert sum(answers.values()) >= kill_after
        for vm, event_id in ordered.items():
            event = service.look(f"events/{event_id}")
            if answers[vm]:
                assert event["approved_by"] == vm
                service.wait_for_phase(event_id, "started", "completed")
            elif event["approved"] is None:
                assert event["phase"] == "scheduled"
            assert service.guest(vm).incarnation() >= before[vm]


def test_an_approval_is_kept_when_the_kill_follows_the_answer_at_once(tmp_path: Path) -> None:
    """Again and again on the same folder: the incarnation only grows, over every restart."""
    settings = {**QUICK, "FOREWARN_REBOOT_SECONDS": "600"}
    with running(tmp_path, fleet=standalone_fleet(6), settings=settings) as service:
        seen = dict.fromkeys((f"vm{number}" for number in range(6)), 0)
        for vm in seen:
            guest = service.guest(vm)
            guest.document()
            event_id = service.order(f"vms/{vm}/restart")["event_id"]
            assert guest.approve(event_id).status == 200
            service.kill()
            service.start()

            assert service.look(f"events/{event_id}")["approved_by"] == vm
            service.wait_for_phase(event_id, "started")
            for other, before in seen.items():
                seen[other] = service.guest(other).incarnation()
                assert seen[other] >= before


def test_an_event_that_was_postponed_stays_so_when_the_kill_follows_the_answer_at_once(
    tmp_path: Path,
) -> None:
    """One event is withdrawn and one announced, never both or none; the old id starts nothing."""
    with running(tmp_path) as service:
        guest = service.guest("web_0")
        guest.document()
        made = service.order("hosts/h1/maintain", {"event_type": "Freeze", "not_before": "+1h"})
        (event_id,) = (one["event_id"] for one in made["events"] if "web_0" in one["resources"])
        for hours in (2, 3, 4):
            before = guest.incarnation()
            said = {"until": f"+{hours}h", "reason": "a sale"}
            new = service.order(f"events/{event_id}/postpone", said)
            service.kill()
            service.start()
            guest = service.guest("web_0")
            told = guest.document()
            assert [one["EventId"] for one in told["Events"]] == [new["event_id"]]
            assert told["DocumentIncarnation"] == before + 1
            assert guest.approve(event_id).status == 200  # it has ended: nothing comes of it
            old = service.look(f"events/{event_id}")
            assert (old["phase"], old["postponed_to"]) == ("canceled", new["event_id"])
            assert service.look(f"events/{new['event_id']}")["approved"] is None
            event_id = new["event_id"]
        assert len(service.look(f"events/{event_id}")["receipt"]["chain"]) == 4


def test_after_kill_9_events_are_as_they_were_and_nothing_starts_early(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        for vm in ("web_0", "vm0", "spot0"):
            service.guest(vm).document()
        service.order("hosts/h1/maintain", {"event_type": "Freeze", "not_before": "+2h"})
        service.order("vms/web_1/redeploy")
        service.order("vms/spot0/evict")
        before = {vm: service.guest(vm).document() for vm in ("web_0", "vm0", "spot0")}
        lines = service.journal()
        assert {len(document["Events"]) for document in before.values()} == {1, 2}

        for _ in range(2):
            service.kill()
            service.start()

            assert {vm: service.guest(vm).document() for vm in before} == before
        now = service.journal()
        assert now[: len(lines)] == lines
        assert {line["kind"] for line in now[len(lines) :]} <= {"downtime", "confirmed"}
        assert all(event["phase"] == "scheduled" for event in service.look("events")["items"])


def test_a_scope_stays_enabled_and_the_token_valid_over_kill_9(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        token = service.token()
        service.guest("vm0").document()
        service.kill()
        service.start()

        assert service.token() == token
        assert service.order("vms/vm0/restart")["silent_scopes"] == []
        assert service.order("vms/spot0/restart")["silent_scopes"] == ["spot0"]


def test_a_first_poll_that_was_answered_enabled_its_scope_for_good(tmp_path: Path) -> None:
    """Enabling is committed before the first answer (L4)."""
    with running(tmp_path, fleet=standalone_fleet(1)) as service:
        assert service.guest("vm0").get().status == 200
        service.kill()
        service.start()

        assert service.look("scopes/vm0")["enabled"] is True


def test_kill_9_while_orders_come_in_loses_none_that_was_answered(tmp_path: Path) -> None:
    with running(tmp_path, fleet=standalone_fleet(VMS)) as service:
        guests = [service.guest(f"vm{number}") for number in range(VMS)]
        for guest in guests:
            guest.document()
        answered: dict[str, str] = {}

        def order_all() -> None:
            for number in range(VMS):
                try:
                    event = service.order(f"vms/vm{number}/restart")
                except (OSError, http.client.HTTPException):
                    return
                answered[f"vm{number}"] = event["event_id"]
                if len(answered) == VMS // 2:
                    half_done.set()

        half_done = threading.Event()
        orders = threading.Thread(target=order_all)
        orders.start()
        assert half_done.wait(60)
        service.kill()
        orders.join()
        service.start()

        assert len(answered) >= VMS // 2
        for vm, event_id in answered.items():
            assert list(service.guest(vm).events()) == [event_id]
