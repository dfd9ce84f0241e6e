"""Orders to the emulator itself under an idempotency key: done once, also while being done."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from emulator.scenario_stage import Stage, stage
from forewarn.emulator.idempotency import KEPT_MAX


@pytest.fixture
def one() -> Iterator[Stage]:
    with stage() as world:
        yield world


def test_an_order_that_was_refused_may_be_sent_again_under_its_key(one: Stage) -> None:
    assert one.ask("POST", "/v1/clock/next", {}, Idempotency_Key="k").status == 400
    one.run(name="user-reboot")
    moved = one.ask("POST", "/v1/clock/next", {}, Idempotency_Key="k")
    assert (moved.status, len(moved.json()["passed"])) == (200, 1)


def test_an_order_that_is_sent_by_many_at_once_is_done_once(one: Stage) -> None:
    began = one.get("/v1/clock")["now"]

    def turn(_: int) -> str:
        answer = one.ask("POST", "/v1/clock/advance", {"by": "1h"}, Idempotency_Key="k")
        return str(answer.json()["now"])

    with ThreadPoolExecutor(8) as many:
        shown = set(many.map(turn, range(16)))
    assert shown == {began.replace("T00:", "T01:")}
    assert one.get("/v1/clock")["now"] in shown


def test_the_answers_of_very_many_orders_are_not_all_kept(one: Stage) -> None:
    def add(key: str) -> str:
        answer = one.ask("POST", "/v1/clock/advance", {"by": "1s"}, Idempotency_Key=key)
        return str(answer.json()["now"])

    first = add("first")
    assert add("first") == first
    for number in range(KEPT_MAX):
        add(f"k{number}")
    assert add("first") > first
