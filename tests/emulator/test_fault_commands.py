"""Faults for operators: over `/v1/faults`, and by `forewarn fault`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest

from forewarn.cli import faults as commands
from forewarn.cli.client import Stop
from forewarn.emulator.faults.book import FaultBook
from forewarn.emulator.faults.kinds import KINDS
from forewarn.emulator.faults.orders import WORDS
from forewarn.emulator.faults.routes import FaultRequest, fault_routes
from support.clock import START_MS
from support.operator_world import TOKEN, OperatorWorld, running


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    book = FaultBook(lambda: START_MS, 1, vms=lambda: ["web-0"])
    with running(more=fault_routes(book)) as world:
        yield world


@pytest.fixture(autouse=True)
def _environment(world: OperatorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREWARN_URL", world.url)
    monkeypatch.setenv("FOREWARN_TOKEN", TOKEN)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def forewarn_fault(*arguments: str) -> str:
    out = StringIO()
    with redirect_stdout(out):
        commands.fault([*arguments], prog_name="forewarn fault", standalone_mode=False)
    return out.getvalue()


def listed(world: OperatorWorld, query: str = "") -> list[Any]:
    items: list[Any] = world.get(f"/v1/faults{query}")["items"]
    return items


def test_faults_are_added_listed_and_cleared_over_the_api(world: OperatorWorld) -> None:
    assert listed(world) == []
    added = world.order("/v1/faults", {"kind": 410, "vm": "web-0", "for": "60s"})
    assert added["fault_id"] == "f1"
    assert added["until"] == "2026-03-03T10:01:00.000Z"
    world.order("/v1/faults", {"kind": "cut", "count": 2})
    world.order("/v1/faults", {"kind": "reset", "share": 0.1})
    assert [item["kind"] for item in listed(world)] == ["gone", "cut", "reset"]
    cleared = world.call("DELETE", "/v1/faults/f2")
    assert [item["fault_id"] for item in cleared.json["items"]] == ["f2"]
    assert world.call("DELETE", "/v1/faults/f2").json["items"] == []
    cleared = world.call("DELETE", "/v1/faults")
    assert [item["fault_id"] for item in cleared.json["items"]] == ["f1", "f3"]
    assert listed(world) == []
    assert [item["over"] for item in listed(world, "?all=true")] == [True] * 3


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/faults", '{"kind":"odd"}', 400),
        ("POST", "/v1/faults", '{"kind":"gone","for":"71s"}', 400),
        ("POST", "/v1/faults", '{"kind":"error","kind":"gone"}', 400),
        pytest.param("POST", "/v1/faults", '{"kind":' + "[" * 5_000, 400, id="deep"),
        ("POST", "/v1/faults", "[]", 400),
        ("POST", "/v1/faults", "{", 400),
        ("POST", "/v1/faults", "", 400),
        ("POST", "/v1/faults", '{"kind":"error","vm":"web-9"}', 404),
        ("POST", "/v1/faults?now=1", '{"kind":"error"}', 400),
        ("DELETE", "/v1/faults/f9", None, 404),
        ("GET", "/v1/faults?over=1", None, 400),
    ],
)
def test_what_is_refused_is_a_problem_with_a_remedy(
    world: OperatorWorld, method: str, path: str, body: str | None, status: int
) -> None:
    answer = world.call(method, path, body)
    assert answer.status == status
    assert answer.json["code"] == {400: "invalid", 404: "not-found"}[status]
    assert answer.json["remedy"]
    assert listed(world, "?all=true") == []


def test_nobody_adds_a_fault_without_the_token(world: OperatorWorld) -> None:
    assert world.call("POST", "/v1/faults", {"kind": "error"}, token=None).status == 401
    assert listed(world) == []


def test_a_service_without_the_routes_has_no_faults() -> None:
    with running() as plain:
        assert plain.call("GET", "/v1/faults").status == 404
        assert plain.call("POST", "/v1/faults", {"kind": "error"}).status == 404


def test_the_documented_words_are_those_that_are_read(world: OperatorWorld) -> None:
    assert set(FaultRequest.__struct_encode_fields__) == set(WORDS)
    paths = world.get("/v1/openapi.json")["paths"]
    assert set(paths["/v1/faults"]) == {"get", "post", "delete"}
    assert set(paths["/v1/faults/{id}"]) == {"delete"}


# The command line.


def test_a_fault_is_added_with_every_option(world: OperatorWorld) -> None:
    forewarn_fault("add", "stall", "--vm", "web-0", "--method", "POST", "--seconds", "1.5s")
    forewarn_fault("add", "429", "--share", "0.5", "--retry-after", "9", "--for", "2m")
    forewarn_fault("add", "skip", "--by", "14", "--count", "3")
    forewarn_fault("add", "rate-limit", "--per-second", "2")
    stall, throttled, skip, rate = listed(world)
    assert (stall["vm"], stall["method"], stall["seconds"]) == ("web-0", "POST", 1.5)
    assert (throttled["share"], throttled["retry_after"]) == (0.5, 9)
    assert throttled["until"] == "2026-03-03T10:02:00.000Z"
    assert (skip["by"], skip["count"]) == (14, 3)
    assert rate["per_second"] == 2


def test_faults_are_shown_as_a_table_and_cleared(world: OperatorWorld) -> None:
    assert "no faults" in forewarn_fault("list")
    assert "f1" in forewarn_fault("add", "gone", "--count", "3", "--for", "1m")
    forewarn_fault("add", "cut", "--share", "0.25")
    table = forewarn_fault("list")
    assert "gone" in table
    assert "3 hits" in table
    assert "in 1m" in table
    assert "a share of 0.25" in table
    assert "Cleared: f1." in forewarn_fault("clear", "f1")
    assert "Cleared: f2." in forewarn_fault("clear")
    assert "nothing to clear" in forewarn_fault("clear")
    assert "over" in forewarn_fault("list", "--all")
    assert '"fault_id": "f1"' in forewarn_fault("list", "--all", "--json")
    assert max(len(line) for line in table.splitlines()) <= 80


def test_a_refused_fault_stops_with_its_sentence_and_remedy() -> None:
    with pytest.raises(Stop) as stopped:
        forewarn_fault("add", "gone", "--for", "5m")
    assert 'for = "5m" is refused' in stopped.value.sentence
    assert "70s" in stopped.value.remedy
    assert "E13" in stopped.value.remedy
    assert stopped.value.exit_code == 1
    with pytest.raises(Stop, match='There is no fault "f7"'):
        forewarn_fault("clear", "f7")


def test_the_help_has_every_kind() -> None:
    text = " ".join(forewarn_fault("add", "--help").split())
    for row in KINDS.values():
        assert f"{row.kind}" in text
    assert "--per-second (5) requests" in text
