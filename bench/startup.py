"""From exec to the first document: a service with 10,000 VMs and 1,000 open events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.figures import Figure
from bench.guests import Operator
from bench.polls import LARGE
from bench.processes import Failed, forewarn

STARTS = 5
START_S_MAX = 3.0


def from_folder(folder: Path) -> Iterator[Figure]:
    """Start the service several times on the data folder that `polls.spread` has left."""
    first_s, running_s = [], []
    for _ in range(STARTS):
        with forewarn(folder, LARGE.inventory()) as service:
            first_s.append(service.first_answer_s)
            running_s.append(service.started_s)
            events = int(Operator(service).metric("forewarn_events"))
    if events < len(LARGE.scopes):
        raise Failed(f"only {events} events were open")
    yield Figure(
        name="Start, 10,000 VMs and 1,000 open events",
        measured=median(first_s),
        unit="s",
        at_most=START_S_MAX,
        note=f"from exec to the first 200 to a guest; at most {max(first_s):.2f} s in {STARTS} "
        "starts",
        raw={"first_answer_s": first_s, "running_s": running_s, "open_events": events},
    )
