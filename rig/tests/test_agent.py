"""The guest agent in a real VM: it reads the notice by itself, prepares, approves and recovers."""

from __future__ import annotations

from rig.consoles import Line
from rig.domains import Guest
from rig.service import Service
from rig.waiting import wait_for

READS_LIMIT_S = 90.0
DONE_LIMIT_S = 120.0
VM = "job-0"


def test_the_agent_of_a_vm_prepares_approves_and_recovers(service: Service) -> None:
    rig = service.rig
    rig.define(Guest(name=VM, number=60, agent=True), "h1")
    wait_for("it reads its document", lambda: rig.consoles.last_poll(VM), within_s=READS_LIMIT_S)
    wait_for("its scope is told", lambda: _enabled(service), within_s=READS_LIMIT_S)

    ordered = service.operator.post(f"/v1/vms/{VM}/redeploy")
    event_id = ordered["event_id"]
    steps = wait_for("it has recovered", lambda: _steps(service, "recover"), within_s=DONE_LIMIT_S)

    assert [(step.words["what"], step.words["type"]) for step in steps] == [
        ("prepare", "Redeploy"),
        ("recover", "Redeploy"),
    ]
    assert {step.words["event"] for step in steps} == {event_id}
    event = service.operator.get(f"/v1/events/{event_id}")
    assert (event["phase"], event["approved_by"]) == ("completed", VM)
    assert event["started"] < event["not_before"]  # nothing waited for the notice to run out
    assert service.operator.get(f"/v1/vms/{VM}")["host"] == "h2"


def _enabled(service: Service) -> bool:
    return bool(service.operator.get(f"/v1/scopes/{VM}")["enabled"])


def _steps(service: Service, until: str) -> list[Line]:
    """What the steps of the agent have said, once the one that is waited for is among it."""
    steps = [line for line in service.rig.consoles.lines(VM) if line.kind == "step"]
    return steps if any(step.words["what"] == until for step in steps) else []
