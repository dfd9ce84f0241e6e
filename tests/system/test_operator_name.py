"""The name of who orders by the operator API: in the journal, in answers, and what it may be."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from forewarn.testing import Cloud
from support.link_world import control_running, run
from support.simulate_process import simulating
from support.system_world import QUICK, Service, running, service_in

ADA = "Ada Lovelace"
EXIT_USAGE = 2


def named(name: str) -> dict[str, str]:
    return {**QUICK, "FOREWARN_OPERATOR_NAME": name}


def by(lines: list[Any], kind: str) -> list[str]:
    return [line["by"] for line in lines if line["kind"] == kind]


def approvals(service: Service) -> tuple[float, float]:
    """Those of operators, and those of all."""
    kinds = 'forewarn_approvals_total{by="operator"}', 'forewarn_facts_total{kind="approved"}'
    return service.metric(kinds[0]), service.metric(kinds[1])


def test_every_order_by_the_operator_api_bears_the_name_that_was_set(tmp_path: Path) -> None:
    with service_in(tmp_path) as service:
        chosen = tmp_path / "forewarn.toml"
        chosen.write_text(f'operator_name = "{ADA}"\n', encoding="utf-8")
        service.start("--settings", str(chosen))
        service.guest("web_0").document()
        first = service.order("vms/web_0/restart")["event_id"]
        assert by(service.journal(first), "scheduled") == [ADA]
        approved = service.order(f"events/{first}/approve", {"reason": "a test"})
        assert approved["approved_by"] == ADA
        (line,) = [one for one in service.journal(first) if one["kind"] == "approved"]
        assert line["by"] == ADA
        assert line["detail"] == {
            "event_type": "Reboot",
            "resources": ["web_0"],
            "by_kind": "operator",
            "overridden_by": ADA,
            "reason": "a test",
        }
        service.wait_for_phase(first, "completed")
        assert f"overridden by {ADA}: a test" in service.cli("event", "show", first).stdout

        # A guest approves in its own name; the command line comes by the socket, as a local user.
        second = service.order("vms/web_0/restart")["event_id"]
        assert service.guest("web_0").approve(second).status == 200
        (line,) = [one for one in service.journal(second) if one["kind"] == "approved"]
        detail = {"event_type": "Reboot", "resources": ["web_0"]}
        assert (line["by"], line["detail"]) == ("web_0", detail)
        assert approvals(service) == (1, 2)
        assert service.cli("host", "close", "h2").returncode == 0
        me = pwd.getpwuid(os.getuid()).pw_name
        (line,) = [one for one in service.journal() if one["kind"] == "host-closed"]
        who = {key: line[key] for key in ("by", "by_kind", "by_id")}
        assert who == {"by": me, "by_kind": "operator", "by_id": f"socket:{os.getuid()}"}

        # What was written keeps its name.
        service.stop()
        service.start()
        service.order("hosts/h2/open")
        assert by(service.journal(first), "scheduled") == [ADA]
        assert by(service.journal(), "host-opened") == ["operator"]
        assert service.look(f"events/{first}")["approved_by"] == ADA


def test_an_operator_with_the_name_of_a_vm_is_told_from_it(tmp_path: Path) -> None:
    with running(tmp_path, settings=named("web_0")) as service:
        service.guest("web_0").document()
        event = service.order("vms/web_0/restart")["event_id"]
        service.order(f"events/{event}/approve", {"reason": "a test"})
        (line,) = [one for one in service.journal(event) if one["kind"] == "approved"]
        assert (line["by"], line["detail"]["by_kind"]) == ("web_0", "operator")
        assert approvals(service) == (1, 1)


def test_an_order_that_is_sent_again_after_the_name_was_changed_is_the_same_order(
    tmp_path: Path,
) -> None:
    with running(tmp_path, settings=named(ADA)) as service:
        first = service.ask("POST", "vms/web_0/restart", key="k")
        service.stop()
        service.environment |= named("Grace Hopper")
        service.start()
        again = service.ask("POST", "vms/web_0/restart", key="k")
        assert (again.status, again.json()) == (200, first.json())
        assert again.headers["idempotency-replayed"] == "true"
        assert by(service.journal(), "scheduled") == [ADA]


@pytest.mark.parametrize("name", ["", "a" * 65, "Ada\nLovelace", "policy", os.fsdecode(b"\xff")])
def test_a_name_that_is_refused_stops_the_start_and_says_what_is_accepted(
    tmp_path: Path, name: str
) -> None:
    with service_in(tmp_path, settings=named(name)) as service:
        service.launch()
        assert service.exit_code() == EXIT_USAGE
        assert "FOREWARN_OPERATOR_NAME: operator_name = " in service.err()
        assert "1 to 64 printable characters, no space at either end" in service.err()
        assert "Traceback" not in service.err()
        assert service.out() == ""


def test_who_revokes_a_host_of_a_control_is_named_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path, operator_name=ADA) as world:
            await world.joined("h1")
            await world.order("/v1/hosts/h1/revoke")
            lines = (await world.operator("GET", "/v1/journal?limit=100")).json()["items"]
            assert by(lines, "host-left") == [ADA]
            health = await world.operator("GET", "/v1/health")
            assert health.status_code == 200

    run(story)


def test_in_the_emulator_scenarios_order_by_that_name_too(tmp_path: Path) -> None:
    with simulating(tmp_path, environment={"FOREWARN_OPERATOR_NAME": ADA}) as simulation:
        simulation.said("vm", "restart", "vm0")
        simulation.said("scenario", "run", "user-reboot")
        said = simulation.said("journal", "--json")
        assert f'"{ADA}"' in said
        assert '"by":"operator"' not in said.replace(" ", "")


def test_a_test_may_say_who_orders_in_its_cloud() -> None:
    with Cloud(operator_name=ADA) as cloud:
        event = cloud.restart("vm0")
        cloud.approve(event)
        cloud.expect_approved(event, by=ADA, within=0)
        assert {fact.by for fact in cloud.journal(event) if fact.by} == {ADA}
