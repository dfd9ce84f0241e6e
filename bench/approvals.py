"""Approvals per second with 64 callers, each of them the first approval of an event of its own:
with four open events in each scope, and with sixty. Also against a revision before, by turns."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bench import hot_path
from bench.figures import Figure
from bench.fleets import BenchFleet, fleet
from bench.guests import Caller, Operator, approve_request, call_all, enable, lines
from bench.processes import Failed, forewarn, program

CALLERS = 64
ROUNDS = 5  # of which the middle one counts
DELAY_US = 5_000
APPROVALS_PER_S_MIN = 1_000
LIMIT_S = 60.0
CROWDED_SHARE_MIN = 0.75  # of what is reached with few events in each scope
BASE = "3bfe36a"  # the last revision in which a change was a closure and not a value
BASE_PAIRS = 5
BASE_SHARE_MIN = 0.95

# One caller speaks for sixteen scopes, one after the other, with four events each.
FLEET = fleet(scopes=16 * CALLERS, vms_per_scope=4, hosts=32, domains=4)
# One caller speaks for one scope, with sixty events.
CROWDED = fleet(scopes=CALLERS, vms_per_scope=60, hosts=32, domains=4)


def durable(folder: Path) -> Iterator[Figure]:
    """Approvals as they are, and with 5 ms more in every fdatasync."""
    folder.mkdir()
    event_ids = _order(folder / "ordered", FLEET)
    crowded_ids = _order(folder / "crowded", CROWDED)
    plain, crowded = _in_turns(
        _Round(folder / "ordered", event_ids, "Approvals, 64 callers", FLEET),
        _Round(
            folder / "crowded",
            crowded_ids,
            "Approvals, 64 scopes with 60 open events each",
            CROWDED,
        ),
    )
    yield plain
    yield replace(crowded, at_least=CROWDED_SHARE_MIN * (plain.measured or 0.0))
    if program("strace") is None:
        yield Figure(
            name="Approvals, 64 callers, 5 ms more per fdatasync",
            measured=None,
            unit="/s",
            note="strace is not installed",
        )
        return
    trace = folder / "fdatasync.trace"
    # Without --seccomp-bpf every system call stops for the tracer, which costs a third.
    launcher = ["strace", "-f", "--seccomp-bpf", "-q", "-o", str(trace)]
    launcher += ["-e", "trace=fdatasync"]
    launcher += ["-e", f"inject=fdatasync:delay_exit={DELAY_US}"]
    shutil.copytree(folder / "ordered", folder / "delayed")
    found = _figure(
        folder / "delayed",
        event_ids,
        "Approvals, 64 callers, 5 ms more per fdatasync",
        launcher=launcher,
    )
    if "DELAYED" not in trace.read_text(encoding="ascii", errors="replace"):
        raise Failed("strace has delayed no fdatasync")
    yield found


def against_base(folder: Path) -> Iterator[Figure]:
    """The rate beside that of BASE, each on data of its own, by turns."""
    name = f"Approvals, 64 callers, against {BASE}"
    if not hot_path.is_here(BASE):
        note = hot_path.NOT_HERE
        yield Figure(name=name, measured=None, unit="x", at_least=BASE_SHARE_MIN, note=note)
        return
    folder.mkdir()
    with hot_path.sources(BASE) as source:
        sides = [
            _Round(there, _order(there, FLEET, source=at), name, FLEET, source=at)
            for there, at in ((folder / "now", None), (folder / "before", source))
        ]
        pairs = []
        for number in range(BASE_PAIRS):
            in_turn = sides if number % 2 else sides[::-1]
            rates = {one.folder.name: one.figure(number).measured or 0.0 for one in in_turn}
            pairs.append((rates["now"], rates["before"]))
    now, before = (median(one) for one in zip(*pairs, strict=True))
    yield Figure(
        name=name,
        measured=median(mine / theirs for mine, theirs in pairs),
        unit="x",
        at_least=BASE_SHARE_MIN,
        note=f"median of {BASE_PAIRS} pairs by turns; {now:,.0f} against {before:,.0f}/s",
        raw={"pairs": pairs},
    )


@dataclass(frozen=True, slots=True)
class _Round:
    """What is measured again and again, each time on a copy of the folder."""

    folder: Path
    event_ids: Sequence[str]
    name: str
    of: BenchFleet
    source: Path | None = None  # other sources than these

    def figure(self, number: int) -> Figure:
        copy = self.folder.with_name(f"{self.folder.name}-{number}")
        shutil.copytree(self.folder, copy)
        return _figure(copy, self.event_ids, self.name, self.of, source=self.source)


def _in_turns(*rounds: _Round) -> list[Figure]:
    """The figure with the middle rate of each: a machine is not equally quick all the time."""
    measured = [[one.figure(number) for one in rounds] for number in range(ROUNDS)]
    return [
        sorted(found, key=lambda figure: figure.measured or 0.0)[ROUNDS // 2]
        for found in zip(*measured, strict=True)
    ]


def _from(source: Path | None) -> dict[str, str]:
    return {} if source is None else {"PYTHONPATH": str(source)}


def _order(folder: Path, of: BenchFleet, *, source: Path | None = None) -> list[str]:
    """Make a data folder with an open event for each VM; the ids, in the order of the VMs."""
    with forewarn(folder, of.inventory(), settings=_from(source)) as service:
        enable(service.guest_port, [scope[0].address for scope in of.scopes])
        return Operator(service).restart_all([vm.name for vm in of.vms])


def _figure(
    folder: Path,
    event_ids: Sequence[str],
    name: str,
    of: BenchFleet = FLEET,
    *,
    launcher: Sequence[str] = (),
    source: Path | None = None,
) -> Figure:
    sources = [scope[0].address for scope in of.scopes]
    with (
        forewarn(folder, of.inventory(), launcher=launcher, settings=_from(source)) as service,
        lines(service.guest_port, sources) as opened,
    ):
        # A start takes the word of hosts back. They give it again in a moment, and that is over.
        Operator(service).wait_until_confirmed(len(event_ids))
        callers = [Caller([]) for _ in range(CALLERS)]
        ids = iter(event_ids)
        for number, line in enumerate(opened):
            for _ in of.scopes[number]:
                callers[number % CALLERS].todo.append((line, approve_request(next(ids))))
        took_s = call_all(callers, LIMIT_S)
    statuses = Counter(status for caller in callers for status in caller.statuses)
    waits_ms = sorted(done_s * 1_000 for caller in callers for done_s in caller.done_s)
    p99_ms = waits_ms[int(0.99 * (len(waits_ms) - 1))]
    return Figure(
        name=name,
        measured=statuses[200] / took_s,
        unit="/s",
        at_least=APPROVALS_PER_S_MIN,
        note=f"{statuses[200]:,} first approvals answered 200, p99 {p99_ms:.0f} ms",
        raw={
            "took_s": took_s,
            "statuses": {str(status): count for status, count in statuses.items()},
            "p50_ms": waits_ms[len(waits_ms) // 2],
            "p99_ms": p99_ms,
            "launcher": [word for word in launcher if "/" not in word],
        },
    )
