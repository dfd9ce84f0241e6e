"""Scenarios over the operator API of the emulator and by the command line."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from emulator.scenario_stage import Stage, stage
from forewarn.emulator.clock_routes import PASSED_SHOWN_MAX
from forewarn.emulator.scenarios import library
from forewarn.emulator.scenarios.file import SCENARIO_BYTES_MAX, STEPS_MAX
from forewarn.emulator.scenarios.routes import RUN_BODY_BYTES_MAX
from support.cli_runner import Ran, forewarn

SCRIPT = 'title = "Mine"\n[[step]]\nat = "0s"\ndo = "restart"\nstarted_for = "1m"\n'


@pytest.fixture
def one() -> Iterator[Stage]:
    with stage() as world:
        yield world


def say(world: Stage, *arguments: str) -> Ran:
    return forewarn(*arguments, environment=world.environment)


# Over HTTP.


def test_the_shipped_scenarios_are_listed_and_shown(one: Stage) -> None:
    listed = one.get("/v1/scenarios")["items"]
    assert [item["name"] for item in listed] == list(library.names())
    assert listed[0]["needs"] == {"vms": 1, "domains": 1, "hosts": 1, "spot": False}
    shown = one.get("/v1/scenarios/canceled-maintenance")
    assert [(step["at"], step["what"]) for step in shown["steps"]] == [
        ("0s", "maintain host by Freeze of 9 s"),
        ("8m", "cancel of upkeep"),
    ]
    assert tomllib.loads(shown["toml"])["title"] == shown["title"]


def test_a_scenario_that_is_not_there_is_refused_with_the_closest_name(one: Stage) -> None:
    answer = one.ask("GET", "/v1/scenarios/user-rebot")
    assert (answer.status, answer.json()["remedy"]) == (404, "Did you mean user-reboot?")
    answer = one.ask("POST", "/v1/scenarios/runs", {"name": "user-rebot"})
    assert (answer.status, answer.json()["remedy"]) == (404, "Did you mean user-reboot?")


def test_a_script_runs_like_a_shipped_scenario(one: Stage) -> None:
    run = one.run(toml=SCRIPT)
    assert (run["scenario"], run["title"], run["on"]) == ("script", "Mine", "vm0")
    assert one.run(name="mine", toml=SCRIPT)["scenario"] == "mine"


def test_a_script_with_mistakes_is_refused_with_all_of_them(one: Stage) -> None:
    text = SCRIPT.replace("restart", "restrat").replace("title", "titel")
    problem = one.ask("POST", "/v1/scenarios/runs", {"toml": text}).json()
    assert problem["code"] == "bad-scenario"
    assert "line 1: " in problem["detail"]
    assert "line 4: " in problem["detail"]


@pytest.mark.parametrize(
    "body", [{}, {"on": "vm0"}, {"name": 1}, {"name": "preempt", "at": "0s"}, {"name": "x" * 257}]
)
def test_a_run_of_nothing_or_of_nonsense_is_refused(one: Stage, body: dict[str, object]) -> None:
    answer = one.ask("POST", "/v1/scenarios/runs", body)
    assert answer.status == 400
    assert answer.json()["remedy"]


def test_a_script_of_the_longest_length_fits_into_a_request(one: Stage) -> None:
    longest = SCRIPT + "#" * (SCENARIO_BYTES_MAX - len(SCRIPT))
    assert one.run(toml=longest)["run_id"] == "run-1"
    too_long = one.ask("POST", "/v1/scenarios/runs", {"toml": longest + "#"})
    assert (too_long.status, too_long.json()["code"]) == (400, "bad-scenario")
    far_too_long = one.ask("POST", "/v1/scenarios/runs", {"toml": "#" * RUN_BODY_BYTES_MAX})
    assert far_too_long.status == 413


def test_a_run_that_is_ordered_again_under_its_key_is_the_same_run(one: Stage) -> None:
    body = {"name": "user-reboot"}
    first = one.ask("POST", "/v1/scenarios/runs", body, Idempotency_Key="k").json()
    again = one.ask("POST", "/v1/scenarios/runs", body, Idempotency_Key="k").json()
    other = one.ask("POST", "/v1/scenarios/runs", {"name": "preempt"}, Idempotency_Key="k")
    assert first == again
    assert (other.status, other.json()["code"]) == (422, "idempotency-mismatch")
    assert len(one.get("/v1/scenarios/runs")["items"]) == 1


def test_a_run_that_is_not_known_is_refused(one: Stage) -> None:
    assert one.ask("GET", "/v1/scenarios/runs/run-1").status == 404
    assert one.ask("POST", "/v1/scenarios/runs/run-1/stop", {}).status == 404


def test_the_openapi_document_describes_runs(one: Stage) -> None:
    document = one.get("/v1/openapi.json")
    paths = {path for path in document["paths"] if path.startswith("/v1/scenarios")}
    assert paths == {
        "/v1/scenarios",
        "/v1/scenarios/{name}",
        "/v1/scenarios/runs",
        "/v1/scenarios/runs/{id}",
        "/v1/scenarios/runs/{id}/stop",
    }
    schemas = document["components"]["schemas"]
    assert set(schemas["RunJson"]["required"]) == set(one.run("user-reboot"))
    assert set(schemas["ScenarioJson"]["required"]) == set(one.get("/v1/scenarios/preempt"))


# By the command line.


def test_scenarios_are_listed_and_shown_without_an_emulator() -> None:
    listed = forewarn("scenario", "list")
    assert listed.code == 0
    for name in library.names():
        assert name in listed.out
    assert "3 update domains" in listed.out
    shown = forewarn("scenario", "show", "rolling-update")
    assert "maintain host of domain 2 by Reboot, Started for 10m" in " ".join(shown.out.split())
    as_json = forewarn("scenario", "show", "rolling-update", "--json").json
    assert as_json["needs"]["domains"] == 3
    assert forewarn("scenario", "list", "--json").json["items"][0]["name"]


def test_a_script_that_is_shown_can_be_run_as_ones_own(one: Stage, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(forewarn("scenario", "show", "user-reboot", "--toml").out, encoding="utf-8")
    ran = say(one, "scenario", "run", str(mine), "--on", "vm0", "--to-end", "--json")
    assert ran.code == 0
    assert (ran.json["scenario"], ran.json["over"]) == ("mine", True)
    assert ran.json["events"][0]["phase"] == "completed"


def test_a_run_is_printed_with_its_steps_and_events(one: Stage) -> None:
    ran = say(one, "scenario", "run", "canceled-maintenance")
    assert ran.code == 0
    assert "run-1: canceled-maintenance on vm0 is under way" in ran.out
    assert "waiting" in ran.out
    assert "scheduled" in ran.out
    assert "run-1" in say(one, "scenario", "runs").out
    stopped = say(one, "scenario", "stop", "run-1", "--json").json
    assert [step["phase"] for step in stopped["steps"]] == ["done", "stopped"]


def test_a_run_with_a_step_that_is_refused_does_not_end_well(one: Stage) -> None:
    assert say(one, "scenario", "run", "host-maintenance").code == 0
    again = say(one, "scenario", "run", "host-maintenance")
    assert again.code == 1
    assert "Host host0 already has" in " ".join(again.out.split())
    assert say(one, "scenario", "run", "host-maintenance", "--json").code == 1


def test_a_run_that_waits_for_the_clock_says_how_to_turn_it(one: Stage) -> None:
    assert "`forewarn clock next` turns the clock" in say(one, "scenario", "run", "preempt").out
    ended = say(one, "scenario", "run", "user-reboot", "--to-end")
    assert "clock next" not in ended.out


def test_what_was_due_on_the_way_is_one_line_each_however_narrow_the_terminal(one: Stage) -> None:
    freeze = 'at = "1m"\ndo = "maintain"\ntype = "Freeze"\nduration = "9s"'
    one.script(f'{freeze}\nnot_before = "2h"\nstarted_for = "10m"')
    lines = say(one, "clock", "advance", "1h").out.splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("by Freeze of 9 s, not before 2h from then, Started for 10m")


def test_no_run_is_said_in_words(one: Stage) -> None:
    assert say(one, "scenario", "runs").out.strip() == "No scenario has been run."


def test_what_the_emulator_refuses_is_said_with_its_remedy(one: Stage) -> None:
    ran = say(one, "scenario", "run", "rolling-update")
    assert ran.code == 1
    assert "it needs 3 update domains" in ran.err
    assert "--scope web:3" in ran.err


def test_mistakes_in_a_file_are_said_before_anything_is_asked(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(SCRIPT.replace("restart", "restrat"), encoding="utf-8")
    for command in ("show", "run"):
        ran = forewarn("scenario", command, str(wrong))
        assert ran.code == 2
        assert 'line 4: step 1: there is no order "restrat". Did you mean restart?' in ran.err
    wrong.write_bytes(b"\xff")
    assert "is not UTF-8" in forewarn("scenario", "show", str(wrong)).err
    missing = forewarn("scenario", "run", "user-rebot")
    assert (missing.code, "Did you mean user-reboot?" in missing.err) == (2, True)


def test_a_file_that_is_far_too_long_is_not_read_to_its_end(tmp_path: Path) -> None:
    huge = tmp_path / "huge.toml"
    huge.write_text(SCRIPT + "#" * SCENARIO_BYTES_MAX * 3, encoding="utf-8")
    ran = forewarn("scenario", "show", str(huge))
    assert (ran.code, f"Up to {SCENARIO_BYTES_MAX}" in ran.err) == (2, True)


def test_the_scripts_are_files_of_the_package() -> None:
    folder = resources.files("forewarn.emulator.scenarios").joinpath("scripts")
    assert {file.name for file in folder.iterdir() if file.name.endswith(".toml")} == {
        f"{name}.toml" for name in library.names()
    }
    assert json.dumps(library.names())


def test_an_advance_through_very_many_instants_shows_the_first_of_them(one: Stage) -> None:
    step = '[[step]]\nat = "{}s"\ndo = "clear-faults"\n'
    script = 'title = "Many"\n' + "".join(step.format(number) for number in range(1, STEPS_MAX + 1))
    for _ in range(3):
        one.run(toml=script)
    moved = one.ask("POST", "/v1/clock/advance", {"by": "1h"}).json()
    assert len(moved["passed"]) == PASSED_SHOWN_MAX < 3 * STEPS_MAX
    assert all(run["over"] for run in one.get("/v1/scenarios/runs")["items"])
