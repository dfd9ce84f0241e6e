"""The feed: how fast one reader is told, what two hundred readers cost, and who feels them.

Facts are made as they are in life: maintenance of hosts is ordered and taken back, and each event
of it is announced, confirmed and canceled. How late a line comes is counted from the instant that
it bears, which is before it was committed.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median

from bench.beside import Arrived, Stream, guests_asking, percentile, readers_of
from bench.figures import Figure
from bench.fleets import fleet
from bench.guests import Line, Operator, enable
from bench.processes import Failed, Forewarn, cpu_s, forewarn

MANY_FACTS_PER_S = 2_000.0
FACTS_PER_S_MIN = 5_000.0
VMS_OF_A_LARGE_HOST = 400
ONE_READER_S = 10.0

READERS = 200
FACTS_PER_S = 100.0
VMS_OF_A_SMALL_HOST = 3
HOSTS = 50
PHASES = 3  # with readers and without, by turns
PHASE_S = 8.0
SETTLE_S = 2.0
GUESTS = 100
ASKS_PER_S = 5.0
GET_MORE_MS_MAX = 5.0
ENCODED_MAX = 1.0

_LINE = rb'id: \d+-(\d+)\ndata: .*?"time":"([^"]+)"'
_ENCODINGS = "forewarn_feed_encodings_total"


def of_many_facts(folder: Path) -> Iterator[Figure]:
    """The figures of the feed."""
    yield from _one_reader(folder / "one")
    yield from _many_readers(folder / "many")


def _request(operator: Operator, after: str = "end") -> bytes:
    asked = operator.request("GET", f"/v1/feed?after={after}").decode()
    return asked.replace("Host:", "Accept: text/event-stream\r\nHost:", 1).encode()


class Facts:
    """Orders that make facts at a pace: maintenance of one host after the other, taken back."""

    def __init__(self, service: Forewarn, hosts: Sequence[str], vms: int) -> None:
        self._operator = Operator(service)
        self._hosts = hosts
        self._per_host = 3 * vms + 2  # each is announced, confirmed and canceled; two are of it
        self._turn = 0

    def make_for(self, seconds: float, per_s: float) -> None:
        """Make about so many in a second."""
        line, began_s, made = self._operator.line(), time.perf_counter(), 0
        try:
            while (due_s := began_s + made / per_s) < began_s + seconds:
                time.sleep(max(0.0, due_s - time.perf_counter()))
                self._maintain_and_cancel(line)
                made += self._per_host
        finally:
            line.close()

    def _maintain_and_cancel(self, line: Line) -> None:
        host = self._hosts[self._turn % len(self._hosts)]
        self._turn += 1
        path = f"/v1/hosts/{host}/maintain"
        ordered = line.ask(self._operator.request("POST", path, {"event_type": "Freeze"}))
        if ordered.status >= 300:
            raise Failed(f"{path} was refused: {ordered.body!r}")
        operation = json.loads(ordered.body)["operation_id"]
        path = f"/v1/operations/{operation}/cancel"
        canceled = line.ask(self._operator.request("POST", path, {}))
        if canceled.status >= 300:
            raise Failed(f"{path} was refused: {canceled.body!r}")


def _waits_ms(arrived: Sequence[Arrived]) -> list[float]:
    """How late each line came, for each reader."""
    wall_s = time.time() - time.perf_counter()
    return [
        (at_s + wall_s - datetime.fromisoformat(written.decode()).timestamp()) * 1_000
        for reader in arrived
        for at_s, found in zip(reader.at_s, reader.found, strict=True)
        for _, written in found
    ]


def _numbers(reader: Arrived) -> list[int]:
    return [int(number) for found in reader.found for number, _ in found]


def _newest(operator: Operator) -> int:
    answer = operator.ask("GET", "/v1/feed?after=end")
    return int(json.loads(answer.body)["next"].rpartition("-")[2])


def _one_reader(folder: Path) -> Iterator[Figure]:
    """One reader that is told of each fact as it is written, and one that reads all that is there.

    Orders make fewer facts in a second than a reader can be told of, so the second is the measure.
    """
    large = fleet(scopes=5 * VMS_OF_A_LARGE_HOST, vms_per_scope=1, hosts=5, domains=1)
    settings = {"FOREWARN_ENABLEMENT": "always"}
    with forewarn(folder, large.inventory(), settings=settings) as service:
        operator = Operator(service)
        facts = Facts(service, sorted({vm.host for vm in large.vms}), VMS_OF_A_LARGE_HOST)
        with readers_of(service.operator_port, [_request(operator)], _LINE) as readers:
            begin = _newest(operator)
            facts.make_for(ONE_READER_S, MANY_FACTS_PER_S)
            time.sleep(SETTLE_S)
            (reader,) = readers.arrived()
        end, waits_ms = _newest(operator), _waits_ms([reader])
        if [n for n in _numbers(reader) if n > begin] != list(range(begin + 1, end + 1)):
            raise Failed("the reader was not sent each fact once and in order")
        yield Figure(
            name="Feed, one reader of many facts, how late a fact comes, p99",
            measured=percentile(waits_ms, 0.99),
            unit="ms",
            note=f"after the instant it bears, its commit included; {end - begin:,} facts in "
            f"{reader.at_s[-1] - reader.at_s[0]:.0f} s, median {median(waits_ms):.0f} ms",
        )
        yield _catching_up(service, operator, end)


def _catching_up(service: Forewarn, operator: Operator, end: int) -> Figure:
    """A stream from the first line on: out of the store, then out of memory."""
    before_s, began_s = cpu_s(service.pid), time.perf_counter()
    stream = Stream(service.operator_port, _request(operator, "0"))
    pattern = re.compile(_LINE)
    try:
        while not stream.arrived.found or int(stream.arrived.found[-1][-1][0]) < end:
            if not stream.take(pattern):
                raise Failed("the stream was cut")
    finally:
        stream.sock.close()
    seconds = time.perf_counter() - began_s
    if _numbers(stream.arrived) != list(range(1, end + 1)):
        raise Failed("the reader was not sent each fact once and in order")
    return Figure(
        name="Feed, facts to one reader",
        measured=end / seconds,
        unit="/s",
        at_least=FACTS_PER_S_MIN,
        note=f"{end:,} facts as a stream, from the first on; "
        f"{(cpu_s(service.pid) - before_s) / end * 1e6:.0f} us of CPU each",
    )


def _many_readers(folder: Path) -> Iterator[Figure]:
    """200 readers and none, by turns, at 100 facts a second."""
    small = fleet(scopes=HOSTS * VMS_OF_A_SMALL_HOST, vms_per_scope=1, hosts=HOSTS, domains=1)
    with forewarn(folder, small.inventory()) as service:
        operator = Operator(service)
        addresses = [vm.address for vm in small.vms]
        enable(service.guest_port, addresses)
        facts = Facts(service, sorted({vm.host for vm in small.vms}), VMS_OF_A_SMALL_HOST)
        asked_for = [_request(operator)] * READERS
        with_readers, without = [], []
        used, waits_ms, sent, encoded = {True: 0.0, False: 0.0}, list[float](), 0, 0.0
        with guests_asking(service.guest_port, addresses[:GUESTS], ASKS_PER_S) as asking:
            for _ in range(PHASES):
                without.append(_phase(service, facts, used, readers=False))
                time.sleep(SETTLE_S)
                with readers_of(service.operator_port, asked_for, _LINE) as readers:
                    time.sleep(SETTLE_S)
                    begin, before = _newest(operator), operator.metric(_ENCODINGS)
                    with_readers.append(_phase(service, facts, used, readers=True))
                    time.sleep(SETTLE_S)
                    end, after = _newest(operator), operator.metric(_ENCODINGS)
                    arrived = readers.arrived()
                for reader in arrived:
                    if [n for n in _numbers(reader) if n > begin] != list(
                        range(begin + 1, end + 1)
                    ):
                        raise Failed("a reader was not sent each fact once and in order")
                waits_ms += _waits_ms(arrived)
                sent, encoded = sent + end - begin, encoded + after - before
            asked = asking.asked()
    yield Figure(
        name=f"Feed, {READERS} readers, encodings of a fact",
        measured=encoded / sent,
        unit="each",
        at_most=ENCODED_MAX,
        note=f"{encoded:.0f} encodings, {sent} facts to each reader, "
        f"{sent / PHASES / PHASE_S:.0f} facts/s",
    )
    cost = (used[True] - used[False]) / PHASES / PHASE_S * 100
    yield Figure(
        name=f"Feed, {READERS} readers at {FACTS_PER_S:.0f} facts/s, how late a fact comes, p99",
        measured=percentile(waits_ms, 0.99),
        unit="ms",
        note=f"median {median(waits_ms):.0f} ms, longest {max(waits_ms):.0f} ms; the readers cost "
        f"{cost:.0f} % of a core",
    )
    p99_ms = [percentile(asked.waits_ms(periods), 0.99) for periods in (with_readers, without)]
    yield Figure(
        name=f"GETs of guests beside {READERS} readers of the feed, p99 more than without",
        measured=p99_ms[0] - p99_ms[1],
        unit="ms",
        at_most=GET_MORE_MS_MAX,
        note=f"{p99_ms[0]:.2f} against {p99_ms[1]:.2f} ms; {GUESTS} guests, "
        f"{ASKS_PER_S * GUESTS:.0f}/s, {PHASES} phases each of {PHASE_S:.0f} s",
        raw={"p99_ms": p99_ms},
    )


def _phase(
    service: Forewarn, facts: Facts, used: dict[bool, float], *, readers: bool
) -> tuple[float, float]:
    """Make facts: from when to when. Notes the CPU time that the service used."""
    began_s, before_s = time.perf_counter(), cpu_s(service.pid)
    facts.make_for(PHASE_S, FACTS_PER_S)
    used[readers] += cpu_s(service.pid) - before_s
    return began_s, time.perf_counter()
