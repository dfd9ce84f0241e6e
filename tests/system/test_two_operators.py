"""Several at once: the same order twice is one order, and races end one way or the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from support.system_world import QUICK, Service, no_events, running, standalone_fleet
from support.waiting import wait_until

T = TypeVar("T")

VMS = 16
CALLERS = 8


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running(tmp_path, fleet=standalone_fleet(VMS)) as service:
        yield service


def at_once(*calls: Callable[[], T]) -> list[T]:
    """Make all calls as much at the same moment as threads can."""
    gate = threading.Barrier(len(calls))

    def call(one: Callable[[], T]) -> T:
        gate.wait(60)
        return one()

    with ThreadPoolExecutor(len(calls)) as callers:
        return list(callers.map(call, calls))


def test_the_same_order_with_the_same_key_from_several_operators_is_one_operation(
    service: Service,
) -> None:
    body = {"event_type": "Reboot", "not_before": "+2h"}

    def order() -> tuple[int, str]:
        answer = service.ask("POST", "hosts/h1/maintain", body, key="monday")
        return answer.status, answer.json()["operation_id"]

    answers = at_once(*[order] * CALLERS)

    assert len(set(answers)) == 1
    assert answers[0][0] == 200
    assert len(service.look("operations")["items"]) == 1
    assert [line["kind"] for line in service.journal()].count("ordered") == 1


def test_the_same_key_for_another_order_is_refused(service: Service) -> None:
    assert service.ask("POST", "vms/vm0/restart", key="tuesday").status == 200
    assert service.ask("POST", "vms/vm1/restart", key="tuesday").status == 422
    assert service.look("events?scope=vm1&all=true")["items"] == []


def test_an_order_repeated_with_its_key_after_kill_9_is_still_one_event(service: Service) -> None:
    service.guest("vm0").document()
    first = service.ask("POST", "vms/vm0/restart", key="wednesday").json()
    service.kill()
    service.start()

    again = service.ask("POST", "vms/vm0/restart", key="wednesday").json()

    assert again["event_id"] == first["event_id"]
    assert len(service.look("events?scope=vm0&all=true")["items"]) == 1


def test_restarts_of_one_vm_by_several_operators_are_one_event(service: Service) -> None:
    service.guest("vm0").document()

    def order() -> str:
        event_id: str = service.order("vms/vm0/restart")["event_id"]
        return event_id

    ids = at_once(*[order] * CALLERS)

    assert len(set(ids)) == 1
    assert [line["kind"] for line in service.journal(ids[0])].count("scheduled") == 1


def test_cancel_against_approve_ends_one_way_and_the_journal_agrees(service: Service) -> None:
    events = {}
    for number in range(VMS):
        service.guest(f"vm{number}").document()
        events[f"vm{number}"] = service.order(f"vms/vm{number}/restart")["event_id"]
    guests = {vm: service.guest(vm) for vm in events}
    cancels = [partial(service.ask, "POST", f"events/{one}/cancel") for one in events.values()]
    approvals = [partial(guests[vm].approve, event_id) for vm, event_id in events.items()]

    # Approvals have a head start by their order, so that some of them win.
    answers = at_once(*approvals, *reversed(cancels))

    approved, canceled = answers[:VMS], answers[VMS:][::-1]
    assert {answer.status for answer in approved} == {200}  # without effect if it has ended
    for (vm, event_id), answer in zip(events.items(), canceled, strict=True):
        end = service.wait_for_phase(event_id, "canceled", "completed")
        kinds = [line["kind"] for line in service.journal(event_id)]
        assert answer.status in (200, 409)
        assert (end["phase"] == "canceled") == (answer.status == 200)
        assert ("canceled" in kinds) == (answer.status == 200)
        assert ("started" in kinds) == ("completed" in kinds) == (answer.status == 409)
        wait_until(partial(no_events, guests[vm]), "it leaves the document")


def test_cancel_after_the_start_is_refused_and_the_event_goes_on(tmp_path: Path) -> None:
    settings = {**QUICK, "FOREWARN_REBOOT_SECONDS": "5"}
    with running(tmp_path, fleet=standalone_fleet(1), settings=settings) as service:
        service.guest("vm0").document()
        event_id = service.order("vms/vm0/restart")["event_id"]
        assert service.guest("vm0").approve(event_id).status == 200
        service.wait_for_phase(event_id, "started")

        refused = service.ask("POST", f"events/{event_id}/cancel")

        assert refused.status == 409
        assert refused.json()["code"] == "already-started"
        service.wait_for_phase(event_id, "completed")
