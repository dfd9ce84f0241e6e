"""/metrics: delivered notice, and everything else an operator wants to see growing or not."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from forewarn.control.metrics import ControlMetrics
from forewarn.core.facts import ApprovedDetail
from forewarn.core.model import EventType, FactKind
from forewarn.core.principal import PrincipalKind
from forewarn.endpoint import endpoint, protocol
from forewarn.endpoint.metrics import EndpointMetrics
from forewarn.endpoint.service import Counters
from forewarn.wire import problems
from support import ordered
from support.core_fleet import Cloud, scope
from support.operator_world import OperatorWorld, running
from support.ordered import WHY


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running() as world:
        yield world


def numbers(world: OperatorWorld) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every number by its name and the values of its labels."""
    answer = world.call("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return parsed(answer.body)


def parsed(exposition: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(exposition.decode())
        for sample in family.samples
    }


def test_delivered_notice_is_a_histogram_by_event_type(world: OperatorWorld) -> None:
    world.polls("web", "web-0")
    event_id = world.order("/v1/vms/web-0/restart")["event_id"]
    world.hosts_beat()
    world.pass_minutes(5)
    world.reads("web", event_id, "web-0")
    world.pass_minutes(10)

    found = numbers(world)

    assert found["forewarn_notice_seconds_count", ("Reboot",)] == 1
    assert found["forewarn_notice_seconds_sum", ("Reboot",)] == 900
    assert found["forewarn_notice_seconds_bucket", ("Reboot", "600.0")] == 0
    assert found["forewarn_notice_seconds_bucket", ("Reboot", "900.0")] == 1
    assert found["forewarn_read_notice_seconds_sum", ("Reboot",)] == 600
    assert found["forewarn_first_reads_total", ()] == 1
    assert found["forewarn_notice_short_total", ("Reboot",)] == 0


def test_starts_that_nobody_was_told_of_are_no_delivered_notice(world: OperatorWorld) -> None:
    world.order("/v1/vms/lonely/restart")
    world.tick()
    world.order("/v1/hosts/h2/fail", {"force": True, "reason": WHY})

    found = numbers(world)

    assert found["forewarn_starts_without_notice_total", ("Reboot", "silent")] == 1
    assert found["forewarn_starts_without_notice_total", ("Reboot", "failure")] == 1
    assert found["forewarn_notice_seconds_count", ("Reboot",)] == 0


def test_open_events_are_counted_by_type_and_phase_and_ended_ones_by_how(
    world: OperatorWorld,
) -> None:
    world.polls("web", "web-0")
    event_id = world.order("/v1/vms/web-0/restart")["event_id"]
    world.order("/v1/vms/web-1/redeploy")
    scheduled = numbers(world)
    world.order(f"/v1/events/{event_id}/approve", {"reason": "a test"})
    world.tick()
    started = numbers(world)
    world.hosts_work()
    ended = numbers(world)

    assert scheduled["forewarn_events", ("Reboot", "scheduled")] == 1
    assert scheduled["forewarn_events", ("Redeploy", "scheduled")] == 1
    assert started["forewarn_events", ("Reboot", "scheduled")] == 0
    assert started["forewarn_events", ("Reboot", "started")] == 1
    assert ended["forewarn_events", ("Reboot", "started")] == 0
    assert ended["forewarn_events_ended_total", ("Reboot", "completed")] == 1


def test_open_events_are_counted_after_a_restart_too(world: OperatorWorld) -> None:
    world.order("/v1/vms/web-0/restart")
    scopes = world.submit(lambda tx: list(tx.scopes.values()))
    measures = ControlMetrics()

    measures.loaded(scopes)

    assert parsed(measures.exposition())["forewarn_events", ("Reboot", "scheduled")] == 1


def test_approvals_exemptions_and_orders_are_counted(world: OperatorWorld) -> None:
    world.polls("web", "web-0")
    event_id = world.order("/v1/vms/web-0/restart", key="k")["event_id"]
    world.order("/v1/vms/web-0/restart", key="k")
    world.call("POST", "/v1/vms/nobody/restart")
    world.order(f"/v1/events/{event_id}/approve", {"reason": "a test"})
    world.tick()
    world.order("/v1/vms/web-1/delete")
    world.pass_minutes(6)

    found = numbers(world)

    assert found["forewarn_approvals_total", ("operator",)] == 1
    assert found["forewarn_orders_total", ("vm-restart", "accepted")] == 1
    assert found["forewarn_orders_total", ("vm-restart", "repeated")] == 1
    assert found["forewarn_orders_total", ("vm-restart", "refused")] == 1
    assert found["forewarn_domain_exemptions_total", ("Terminate",)] == 1
    assert found["forewarn_operator_answers_total", ("404",)] == 1


def test_an_approval_by_a_guest_is_counted_apart(world: OperatorWorld) -> None:
    world.polls("web", "web-0")
    event_id = world.order("/v1/vms/web-0/restart")["event_id"]

    world.approves("web-0", event_id)

    assert numbers(world)["forewarn_approvals_total", ("guest",)] == 1


@pytest.mark.parametrize("name", ["Ada Lovelace", "web-1", "operator"])
def test_approvals_are_counted_by_what_approved_and_not_by_its_name(name: str) -> None:
    """An operator may have the name of a VM; who is a VM is a guest, whatever its name."""
    cloud = Cloud(scope("web", {"web-0": (0, "h1"), "web-1": (1, "h2")}))
    measures = ControlMetrics()
    first, second = cloud.order("web-0", EventType.REBOOT), cloud.order("web-1", EventType.REBOOT)
    cloud.show()
    cloud.commits.clear()
    cloud.run(ordered.approve_event(first.event_id, by=name))
    cloud.run(ordered.approve("h2", "web-1", [second.event_id]))
    measures.committed(cloud.commits)

    found = parsed(measures.exposition())

    assert found["forewarn_approvals_total", ("operator",)] == 1
    assert found["forewarn_approvals_total", ("guest",)] == 1
    assert [fact.detail for fact in cloud.facts(FactKind.APPROVED)] == [
        ApprovedDetail(
            event_type=EventType.REBOOT,
            resources=("web-0",),
            by_kind=PrincipalKind.OPERATOR,
            overridden_by=name,
            reason="a test",
        ),
        ApprovedDetail(event_type=EventType.REBOOT, resources=("web-1",)),
    ]


def test_an_approval_by_policy_is_counted_apart() -> None:
    approves = frozenset({EventType.REBOOT})
    cloud = Cloud(scope("web", {"web-0": (0, "h1")}, auto_approve=approves))
    measures = ControlMetrics()
    cloud.commits.clear()
    cloud.order("web-0", EventType.REBOOT)
    measures.committed(cloud.commits)

    assert parsed(measures.exposition())["forewarn_approvals_total", ("policy",)] == 1


def test_ticker_lag_and_store_failures_are_shown() -> None:
    measures = ControlMetrics()
    measures.tick(1.5)
    measures.store_failed()

    found = parsed(measures.exposition())

    assert found["forewarn_ticker_lag_seconds", ()] == 1.5
    assert found["forewarn_store_failures_total", ()] == 1


def test_the_endpoints_counters_are_read_at_every_scrape() -> None:
    measures, counters = ControlMetrics(), Counters()
    measures.add(EndpointMetrics(counters))
    counters.polls_200 += 3
    counters.polls_304 += 2
    counters.parked = 7
    counters.refusals["rate-limit"] += 4
    counters.others[429] += 4

    found = parsed(measures.exposition())

    assert found["forewarn_guest_polls_total", ("200",)] == 3
    assert found["forewarn_guest_polls_total", ("304",)] == 2
    assert found["forewarn_guest_parked", ()] == 7
    assert found["forewarn_guest_refusals_total", ("rate-limit",)] == 4
    assert found["forewarn_guest_answers_total", ("429",)] == 4


def test_numbers_that_others_count_are_asked_for_at_every_scrape() -> None:
    measures, counted = ControlMetrics(), [3]
    measures.count("forewarn_example", "An example.", lambda: counted[0])
    assert b"forewarn_example_total 3.0" in measures.exposition()
    counted[0] = 4
    assert b"forewarn_example_total 4.0" in measures.exposition()


def test_every_reason_for_a_refusal_is_shown_at_0_from_the_start() -> None:
    """The reasons of the source: what the endpoint and its problems count under."""
    said: set[str] = set()
    for module in (problems, protocol, endpoint):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "GuestProblem":
                said.add(ast.unparse(node.args[1]))
            if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith(".refusals"):
                said.add(ast.unparse(node.slice))
    said -= {"problem.reason", "RATE_LIMIT", "UNKNOWN_CALLER"}
    reasons = {problems.RATE_LIMIT, problems.UNKNOWN_CALLER, *map(ast.literal_eval, said)}
    assert len(reasons) > 20
    assert reasons == set(problems.REFUSAL_REASONS)
    measures = ControlMetrics()
    measures.add(EndpointMetrics(Counters()))
    found = parsed(measures.exposition())
    assert all(found["forewarn_guest_refusals_total", (reason,)] == 0 for reason in reasons)
