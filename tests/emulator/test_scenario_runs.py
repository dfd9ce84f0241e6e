"""Runs: what a step does, on whom, and what becomes of a step that is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from emulator.scenario_stage import Stage, stage
from forewarn.core.model import MINUTE_MS
from forewarn.emulator.scenarios.runner import RUNS_MAX
from support.waiting import wait_until

RESTART = 'at = "0s"\ndo = "restart"'
ONE_HOST = """
[[host]]
name = "h1"

[[vm]]
name = "plain"
host = "h1"
listen = "127.0.0.1:0"
"""


@pytest.fixture
def one() -> Iterator[Stage]:
    with stage() as world:
        yield world


@pytest.fixture
def web() -> Iterator[Stage]:
    with stage(vms=["alone"], scopes=["web:3"]) as world:
        yield world


def phases(run: Any) -> list[str]:
    return [step["phase"] for step in run["steps"]]


def hit(run: Any) -> list[tuple[str, list[str]]]:
    return [(event["event_type"], event["resources"]) for event in run["events"]]


def visible(world: Stage, vm: str = "vm0") -> list[tuple[str, str]]:
    return [(e["EventType"], e["EventStatus"]) for e in world.guest(vm).document()["Events"]]


def refused(world: Stage, body: dict[str, object]) -> Any:
    answer = world.ask("POST", "/v1/scenarios/runs", body)
    assert 400 <= answer.status < 500, answer
    return answer.json()


# Time.


def test_what_is_due_at_the_start_has_happened_when_the_run_is_answered(one: Stage) -> None:
    run = one.script(RESTART, 'at = "5m"\ndo = "delete"')
    assert phases(run) == ["done", "waiting"]
    assert visible(one) == [("Reboot", "Scheduled")]


def test_later_steps_are_instants_of_the_clock(one: Stage) -> None:
    run = one.script('at = "5m"\ndo = "restart"\nas = "r"')
    due = one.get("/v1/clock")["next"]
    assert due["at"] == run["steps"][0]["due"] == "2026-01-01T00:05:00.000Z"
    assert due["what"] == "run-1 (script) step 1: restart vm"
    one.advance(5 * MINUTE_MS - 1)
    assert visible(one) == []
    one.next()
    assert visible(one) == [("Reboot", "Scheduled")]
    assert phases(one.look(run)) == ["done"]


def test_steps_of_one_instant_are_taken_in_the_order_of_the_script(one: Stage) -> None:
    run = one.script(
        'at = "1m"\ndo = "restart"\nas = "r"',
        'at = "1m"\ndo = "cancel"\nof = "r"',
        'at = "1m"\ndo = "restart"',
    )
    one.advance(MINUTE_MS)
    assert phases(one.look(run)) == ["done", "done", "done"]
    assert visible(one) == [("Reboot", "Scheduled")]


def test_a_guest_that_approves_shortens_a_run(one: Stage) -> None:
    one.run("user-reboot")
    guest = one.guest("vm0")
    assert guest.approve(*guest.events()).status == 200
    assert visible(one) == [("Reboot", "Started")]
    one.advance(10 * MINUTE_MS)
    assert visible(one) == []


def test_two_runs_may_overlap_and_each_keeps_its_own_names(web: Stage) -> None:
    script = ('at = "0s"\ndo = "restart"\nas = "r"', 'at = "1m"\ndo = "cancel"\nof = "r"')
    first = web.script(*script, on="web_0")
    second = web.script(*script, on="web_1")
    assert (first["run_id"], second["run_id"]) == ("run-1", "run-2")
    web.advance(MINUTE_MS)
    for run, vm in ((first, "web_0"), (second, "web_1")):
        seen = web.look(run)
        assert hit(seen) == [("Reboot", [vm])]
        assert seen["events"][0]["phase"] == "canceled"


def test_the_same_seed_and_the_same_run_give_the_same_events() -> None:
    seen = []
    for _ in range(2):
        with stage(scopes=["web:3"], seed=7) as world:
            seen.append(world.run("rolling-update", to_end=True))
    assert seen[0] == seen[1]


def test_on_a_clock_that_runs_a_scenario_plays_by_itself() -> None:
    with stage(speed=3_600) as world:
        run = world.run("user-reboot")
        wait_until(lambda: world.look(run)["over"], "25 minutes, 3,600 times as fast")
        assert [event["phase"] for event in world.look(run)["events"]] == ["completed"]


def test_an_event_that_is_approved_beforehand_stays_started_as_long_as_the_script_says() -> None:
    scope = '[[scope]]\nname = "s"\nkind = "availability-set"\nauto_approve = ["reboot"]\n'
    vm = '[[vm]]\nscope = "s"\nupdate_domain = 0'
    with stage(inventory=ONE_HOST.replace("[[vm]]", vm) + scope) as world:
        world.run("user-reboot")
        assert visible(world, "plain") == [("Reboot", "Started")]
        world.advance(10 * MINUTE_MS - 1)
        assert visible(world, "plain") == [("Reboot", "Started")]
        world.advance(1)
        assert visible(world, "plain") == []


def test_to_the_end_turns_the_clock_until_nothing_of_the_run_is_left(one: Stage) -> None:
    began_ms = one.now_ms()
    run = one.run("user-reboot", to_end=True)
    assert run["over"]
    assert one.now_ms() - began_ms == 25 * MINUTE_MS


def test_a_vm_whose_host_never_returns_keeps_a_run_from_its_end_until_the_deadline() -> None:
    with stage(inventory=ONE_HOST) as world:
        run = world.script('at = "0s"\ndo = "fail"\nfenced = true', to_end=True)
        assert run["over"]
        assert run["events"][0]["phase"] == "failed"


# What an order says.


def test_a_step_may_name_the_earliest_start_from_its_own_time(web: Stage) -> None:
    run = web.script(
        'at = "5m"\ndo = "maintain"\ntype = "Reboot"\nnot_before = "1h"',
        'at = "5m"\ndo = "degrade"\non = "host of vm 2"\nnot_before = "1d"',
        on="web",
    )
    web.advance(5 * MINUTE_MS)
    assert [event["not_before"] for event in web.look(run)["events"]] == [
        "2026-01-01T01:05:00.000Z",
        "2026-01-02T00:05:00.000Z",
    ]


def test_a_step_may_have_a_window_outside_of_which_nothing_starts(web: Stage) -> None:
    run = web.script(
        'at = "5m"\ndo = "restart"\nas = "r"\nwindow = "1h/2h"',
        'at = "5m"\ndo = "maintain"\ntype = "Freeze"\non = "host of vm 2"\nwindow = "1h/2h"',
        'at = "6m"\ndo = "approve"\nof = "r"',
        on="web",
    )
    web.advance(65 * MINUTE_MS - 1)
    assert {event["phase"] for event in web.look(run)["events"]} == {"scheduled"}
    web.advance(1)
    restarted = next(e for e in web.look(run)["events"] if e["event_type"] == "Reboot")
    assert restarted["started"] == restarted["not_before"] == "2026-01-01T01:05:00.000Z"
    assert "in a window from 1h to 2h from then" in run["steps"][0]["what"]


def test_a_host_with_two_domains_is_hit_only_by_a_step_that_accepts_it() -> None:
    scope = '[[scope]]\nname = "s"\nkind = "availability-set"\n'
    first = ONE_HOST.replace("[[vm]]", '[[vm]]\nscope = "s"\nupdate_domain = 0')
    second = '[[vm]]\nname = "other"\nscope = "s"\nupdate_domain = 1\nhost = "h1"\n'
    step = 'at = "0s"\ndo = "maintain"\ntype = "Freeze"\n'
    with stage(inventory=f"{first}{second}listen = '127.0.0.1:0'\n{scope}") as world:
        refusing = world.script(step)
        taking = world.script(f"{step}break_domains = true")
    assert (phases(refusing), phases(taking)) == (["refused"], ["done"])
    assert "accept it with --break-domains" in refusing["steps"][0]["said"]


def test_a_vm_of_a_failed_host_waits_for_its_repair_unless_the_host_is_fenced(one: Stage) -> None:
    run = one.script(
        'at = "0s"\ndo = "fail"\nas = "failure"\nstarted_for = "5m"',
        'at = "1h"\ndo = "repair"\nof = "failure"',
    )
    one.advance(65 * MINUTE_MS - 1)
    assert visible(one) == [("Reboot", "Started")]
    one.advance(1)
    assert visible(one) == []
    assert one.look(run)["over"]
    assert one.get("/v1/vms/vm0")["host"] == "host0"


# On whom.


def test_a_run_is_on_the_vm_or_scope_that_is_named(web: Stage) -> None:
    assert hit(web.script(RESTART, on="web_2")) == [("Reboot", ["web_2"])]
    assert hit(web.script(RESTART, on="web")) == [("Reboot", ["web_0"])]


def test_a_run_that_names_nothing_is_on_the_first_scope_that_will_do(web: Stage) -> None:
    assert web.script(RESTART)["on"] == "alone"
    assert web.run("rolling-update")["on"] == "web_0"


def test_vms_and_domains_are_counted_from_the_vm_that_the_run_is_on(web: Stage) -> None:
    run = web.script(
        'at = "0s"\ndo = "restart"\non = "vm"',
        'at = "0s"\ndo = "restart"\non = "vm 2"',
        'at = "0s"\ndo = "restart"\non = "domain 3"',
        'at = "0s"\ndo = "restart"\non = "alone"',
        on="web_1",
    )
    assert [names for _, names in hit(run)] == [["web_1"], ["web_2"], ["web_0"], ["alone"]]


def test_a_whole_scope_is_ordered_in_one_step(web: Stage) -> None:
    run = web.script('at = "0s"\ndo = "delete"\non = "scope"', on="web")
    assert [names for _, names in hit(run)] == [["web_0"], ["web_1"], ["web_2"]]
    assert web.guest("web_0").incarnation() == 2  # all three in one change of the document


def test_hosts_are_those_that_the_vms_are_on_when_the_step_is_taken(web: Stage) -> None:
    run = web.script(
        'at = "0s"\ndo = "redeploy"\nas = "move"',
        'at = "1s"\ndo = "approve"\nof = "move"',
        'at = "1m"\ndo = "maintain"\ntype = "Freeze"',
        on="web_0",
    )
    web.advance(MINUTE_MS)
    operation = web.look(run)["steps"][2]["operations"][0]
    assert web.get(f"/v1/operations/{operation}")["host"] == "spare"


def test_vm_two_stays_the_same_vm_when_another_is_gone(web: Stage) -> None:
    run = web.script(
        'at = "0s"\ndo = "evict"\non = "vm 2"',
        'at = "2m"\ndo = "restart"\non = "vm 3"',
        on="web_0",
    )
    web.advance(2 * MINUTE_MS)
    assert hit(web.look(run)) == [("Preempt", ["web_1"]), ("Reboot", ["web_2"])]


def test_hosts_of_domains_and_of_the_scope_can_be_maintained_too(web: Stage) -> None:
    step = 'at = "0s"\ndo = "maintain"\ntype = "Freeze"\non = '
    assert hit(web.script(f'{step}"host of domain 2"', on="web")) == [("Freeze", ["web_1"])]
    assert hit(web.script(f'{step}"host of vm 3"', on="web")) == [("Freeze", ["web_2"])]
    assert hit(web.script(f'{step}"host0"')) == [("Freeze", ["alone"])]
    refused = web.script(f'{step}"host of scope"', on="web")["steps"][0]
    assert (refused["phase"], "already has a Freeze" in refused["said"]) == ("refused", True)


# What cannot be done.


@pytest.mark.parametrize(
    ("name", "refused_for", "accepted"),
    [
        ("rolling-update", "it needs 3 update domains, and scope vm0 has 1", "--scope web:3"),
        ("terminate-scale-in", "it needs 3 VMs in one scope, and scope vm0", "--scope web:3"),
    ],
)
def test_a_fleet_that_is_too_small_is_refused_with_the_options_that_give_a_larger_one(
    one: Stage, name: str, refused_for: str, accepted: str
) -> None:
    problem = refused(one, {"name": name})
    assert problem["code"] == "unfit-fleet"
    assert f"Scenario {name} cannot be run: {refused_for}" in problem["detail"]
    assert accepted in problem["remedy"]
    assert one.get("/v1/scenarios/runs")["items"] == []


def test_a_fleet_without_spot_vms_or_spare_hosts_is_refused_with_what_would_do() -> None:
    with stage(inventory=ONE_HOST) as world:
        spot = refused(world, {"name": "preempt"})
        hosts = refused(world, {"name": "host-failure"})
    assert "plain is a regular one" in spot["detail"]
    assert 'priority = "spot"' in spot["remedy"]
    assert "it needs 2 hosts, and the fleet has 1" in hosts["detail"]
    assert "without --inventory" in hosts["remedy"]


def test_a_name_that_nothing_has_is_refused_with_the_closest_one(web: Stage) -> None:
    problem = refused(web, {"name": "user-reboot", "on": "web_9"})
    assert (problem["code"], problem["detail"]) == ("not-found", 'There is no VM or scope "web_9".')
    assert problem["remedy"].startswith("Did you mean web_")
    web.run("terminate", on="web_2", to_end=True)
    assert "web_2" not in refused(web, {"name": "user-reboot", "on": "web_2"})["remedy"]
    stranger = refused(web, {"toml": f'title = "t"\n[[step]]\n{RESTART}\non = "hots"\n'})
    assert stranger["detail"] == 'Step 1 (restart): there is no VM "hots".'


def test_a_scope_without_vms_is_not_proposed(one: Stage) -> None:
    one.run("terminate", to_end=True)
    problem = refused(one, {"name": "user-reboot", "on": "vm0"})
    assert (problem["code"], problem["remedy"]) == ("not-found", "There are none.")


def test_a_step_that_is_refused_stands_in_the_record_and_the_others_go_on(one: Stage) -> None:
    run = one.script(
        'at = "0s"\ndo = "maintain"\ntype = "Freeze"\nas = "first"',
        'at = "1m"\ndo = "maintain"\ntype = "Freeze"\nas = "second"',
        'at = "2m"\ndo = "cancel"\nof = "second"',
        'at = "3m"\ndo = "cancel"\nof = "first"',
    )
    one.advance(3 * MINUTE_MS)
    seen = one.look(run)
    assert phases(seen) == ["done", "refused", "refused", "done"]
    assert "already has a Freeze operation" in seen["steps"][1]["said"]
    assert "second was refused, so there is nothing to cancel." in seen["steps"][2]["said"]
    assert visible(one) == []


def test_turning_the_clock_tells_which_steps_on_the_way_were_refused(one: Stage) -> None:
    one.script(
        'at = "0s"\ndo = "maintain"\ntype = "Freeze"\nas = "first"',
        'at = "1m"\ndo = "maintain"\ntype = "Freeze"\nas = "second"',
        'at = "2m"\ndo = "cancel"\nof = "second"',
        'at = "2m"\ndo = "cancel"\nof = "first"',
    )
    passed = one.order("/v1/clock/advance", {"by": "2m"})["passed"]
    second, third, fourth = (due["what"] for due in passed)
    assert second.startswith("run-1 (script) step 2: maintain host by Freeze was refused: ")
    assert "already has a Freeze operation" in second
    assert third.startswith("run-1 (script) step 3: cancel of second was refused: second was")
    assert fourth == "run-1 (script) step 4: cancel of first"


def test_canceling_and_approving_what_is_over_is_refused_in_the_record(one: Stage) -> None:
    run = one.script(
        'at = "0s"\ndo = "restart"\nas = "r"',
        'at = "0s"\ndo = "maintain"\ntype = "Freeze"\nas = "f"',
        'at = "1s"\ndo = "approve"\nof = "f"',
        'at = "1m"\ndo = "cancel"\nof = "f"',
        'at = "1m"\ndo = "cancel"\nof = "r"',
        'at = "2m"\ndo = "approve"\nof = "r"',
    )
    one.advance(2 * MINUTE_MS)
    seen = one.look(run)
    assert phases(seen) == ["done", "done", "done", "refused", "done", "refused"]
    assert "has no event left that has not started" in seen["steps"][3]["said"]
    assert "has ended: canceled" in seen["steps"][5]["said"]


def test_a_step_on_several_vms_is_taken_whole_or_not_at_all() -> None:
    two = ONE_HOST.replace("[[vm]]", '[[vm]]\nscope = "two"\nupdate_domain = 0\npriority = "spot"')
    two += '[[vm]]\nname = "regular"\nscope = "two"\nupdate_domain = 0\nhost = "h1"\n'
    two += 'listen = "127.0.0.1:0"\n'
    with stage(inventory=two + '[[scope]]\nname = "two"\nkind = "placement-group"\n') as world:
        run = world.script('at = "0s"\ndo = "evict"\non = "scope"')
        assert "regular is not a spot VM" in run["steps"][0]["said"]
        assert world.get("/v1/events")["items"] == []


def test_a_stopped_run_takes_no_further_step_and_its_events_go_on(one: Stage) -> None:
    run = one.script(RESTART, 'at = "1m"\ndo = "delete"')
    stopped = one.order(f"/v1/scenarios/runs/{run['run_id']}/stop")
    assert phases(stopped) == ["done", "stopped"]
    one.advance(MINUTE_MS)
    assert visible(one) == [("Reboot", "Scheduled")]
    assert one.get("/v1/clock")["next"]["what"] == "Reboot of vm0 may start"


def test_only_so_many_runs_are_under_way_at_once_and_the_oldest_that_is_done_is_forgotten(
    one: Stage,
) -> None:
    later = 'title = "t"\n[[step]]\nat = "1h"\ndo = "restart"\n'
    for _ in range(RUNS_MAX):
        one.run(toml=later)
    problem = refused(one, {"toml": later})
    assert problem["detail"] == f"{RUNS_MAX} runs are under way."
    one.order("/v1/scenarios/runs/run-7/stop")
    assert one.run(toml=later)["run_id"] == f"run-{RUNS_MAX + 1}"
    assert one.ask("GET", "/v1/scenarios/runs/run-7").status == 404


# Faults.


def test_faults_are_added_to_whom_the_step_says_and_cleared_with_their_run(web: Stage) -> None:
    other = web.order("/v1/faults", {"kind": "skip"})
    run = web.script(
        'at = "0s"\ndo = "fault"\non = "domain 2"\nfault = { kind = "503" }',
        'at = "0s"\ndo = "fault"\nfault = { kind = "empty", vm = "alone" }',
        'at = "1m"\ndo = "clear-faults"',
        on="web_0",
    )
    assert [len(step["faults"]) for step in run["steps"]] == [1, 1, 0]
    assert web.guest("web_1").get().status == 503
    assert web.guest("web_0").get().status == 200
    assert web.guest("alone").get().body == b""
    web.advance(MINUTE_MS)
    assert web.guest("web_1").get().status == 200
    assert web.guest("alone").get().body != b""
    standing = [fault["fault_id"] for fault in web.get("/v1/faults")["items"]]
    assert standing == [other["fault_id"]]


def test_a_fault_for_nobody_in_particular_hits_every_vm(web: Stage) -> None:
    web.script('at = "0s"\ndo = "fault"\nfault = { kind = "gone", for = "30s" }')
    assert {web.guest(vm).get().status for vm in ("alone", "web_0")} == {410}
    web.advance(30_000)
    assert {web.guest(vm).get().status for vm in ("alone", "web_0")} == {200}
