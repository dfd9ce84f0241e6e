"""Parked polls: how long after an order the last of 10,000 waiting guests has its answer."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.figures import Figure
from bench.fleets import BenchFleet, fleet
from bench.guests import ANSWER_LIMIT_S, Line, Operator, enable, in_turns, lines, poll_request
from bench.processes import Failed, Forewarn, forewarn, resident_mib

PARKED = 10_000
ROUNDS = 3
WAIT_S = 120
OPENED_AT_ONCE = 1_000
P99_MS_MAX = 250.0
LOOK_EVERY_S = 0.02


@dataclass(frozen=True, slots=True)
class Woken:
    """When the answers were here, in ms after the order was sent, sorted."""

    answers_ms: list[float]
    order_answered_ms: float

    def percentile(self, share: float) -> float:
        return self.answers_ms[int(share * (len(self.answers_ms) - 1))]


def parked(folder: Path) -> Iterator[Figure]:
    """One scope with 10,000 VMs, and one order that reaches 100 scopes at once."""
    one = fleet(scopes=1, vms_per_scope=PARKED, hosts=1, domains=1)
    restart = f"/v1/vms/{one.vms[0].name}/restart"
    yield _figure(folder / "one", one, "one scope", restart, None)
    many = fleet(scopes=100, vms_per_scope=PARKED // 100, hosts=1, domains=1)
    maintain = f"/v1/hosts/{many.vms[0].host}/maintain"
    yield _figure(folder / "many", many, "100 scopes", maintain, {"event_type": "Freeze"})


def _figure(
    folder: Path, fleet: BenchFleet, where: str, path: str, words: dict[str, str] | None
) -> Figure:
    rounds = []
    with forewarn(folder, fleet.inventory()) as service:
        enable(service.guest_port, [scope[0].address for scope in fleet.scopes])
        with lines(service.guest_port, [vm.address for vm in fleet.vms]) as opened:
            for _ in range(ROUNDS):
                _park(service, opened)
                woken, answer = _wake(service, opened, path, words)
                rounds.append(woken)
                _cancel(service, answer)
        resident = resident_mib(service.pid)
    worst_ms = [woken.percentile(0.99) for woken in rounds]
    return Figure(
        name=f"10,000 parked polls of {where}, p99",
        measured=median(worst_ms),
        unit="ms",
        at_most=P99_MS_MAX,
        note=f"all answered, {ROUNDS} rounds, p99 at most {max(worst_ms):.0f} ms; from the moment "
        f"the order is sent; {resident:.0f} MiB",
        raw={
            "p50_ms": [woken.percentile(0.5) for woken in rounds],
            "p99_ms": worst_ms,
            "last_ms": [woken.answers_ms[-1] for woken in rounds],
            "order_answered_ms": [woken.order_answered_ms for woken in rounds],
            "answered": [len(woken.answers_ms) for woken in rounds],
            "resident_mib": resident,
        },
    )


def _park(service: Forewarn, opened: Sequence[Line]) -> None:
    """Let every guest have the document of now and wait for the next."""
    for first in range(0, len(opened), OPENED_AT_ONCE):
        some = opened[first : first + OPENED_AT_ONCE]
        for line, answer in zip(some, in_turns(some, [poll_request()] * len(some)), strict=True):
            tag = answer.header("etag")
            line.send(poll_request(f"If-None-Match: {tag}", f"Prefer: wait={WAIT_S}"))
    operator = Operator(service)
    until_s = time.perf_counter() + ANSWER_LIMIT_S
    while operator.metric("forewarn_guest_parked") < len(opened):
        if time.perf_counter() > until_s:
            raise Failed("not every poll was parked")
        time.sleep(LOOK_EVERY_S)


def _wake(
    service: Forewarn, opened: Sequence[Line], path: str, words: dict[str, str] | None
) -> tuple[Woken, Any]:
    """Give one order; when each guest was answered 200, and what the order was answered."""
    operator = Operator(service)
    ordering = operator.line()
    waiting = {line.sock.fileno(): line for line in (*opened, ordering)}
    arrived: dict[int, float] = {}
    epoll = select.epoll()
    try:
        for number in waiting:
            epoll.register(number, select.EPOLLIN)
        began_s = time.perf_counter()
        ordering.send(operator.request("POST", path, words))
        while len(arrived) < len(waiting):
            if time.perf_counter() - began_s > ANSWER_LIMIT_S:
                raise Failed(f"{len(waiting) - len(arrived)} parked polls were not answered")
            for number, _ in epoll.poll(1.0, len(waiting)):
                if number in arrived:
                    continue  # the rest of an answer that came in two pieces
                arrived[number] = (time.perf_counter() - began_s) * 1_000
                waiting[number].take()
        answers = {number: line.receive() for number, line in waiting.items()}
    finally:
        epoll.close()
        ordering_number = ordering.sock.fileno()
        ordering.close()
    if any(answer.status != 200 for answer in answers.values()):
        raise Failed("an order or a parked poll was not answered 200")
    order_answered_ms = arrived.pop(ordering_number)
    woken = Woken(sorted(arrived.values()), order_answered_ms)
    return woken, json.loads(answers[ordering_number].body)


def _cancel(service: Forewarn, ordered: Any) -> None:
    event_id = ordered["events"][0]["event_id"] if "events" in ordered else ordered["event_id"]
    answer = Operator(service).ask("POST", f"/v1/events/{event_id}/cancel")
    if answer.status != 200:
        raise Failed(f"an event was not canceled: {answer.body!r}")
