"""Decides a command log anew: the deployed writer over another store, and nothing else of a world.

No clock, no host, no event loop: whatever is decided is decided by what the log says.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

from forewarn.control import command_json
from forewarn.control.command_log import Began, Entry, LoggedBatch, TakenBack
from forewarn.control.fleet_index import FleetIndex
from forewarn.control.hosts.liveness import News, Observed
from forewarn.control.hosts.simulated_power import HostPower
from forewarn.control.timekeeper import ClockReading, Timekeeper
from forewarn.control.volatile import Volatile
from forewarn.control.writer import Writer
from forewarn.ports import Store, StoreFailed
from forewarn.tables.folding import RowNumbers
from simulation.faulty_store import Fault, FaultyStore
from simulation.fleets import hosts_of
from simulation.world import new_store
from support.clock import ManualClock

# Which database it is, which lives of control it had, when it was copied: not what they decided.
NOT_DECIDED = ("lineage", "epoch", "kept_file")


class NotTheSame(Exception):  # noqa: N818 - says what is the case
    """The log does not lead to where its run was."""


class SaidTimekeeper(Timekeeper):
    """Steps and standstills are commands of the log."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self._said = clock

    def read(self) -> ClockReading:
        return ClockReading(self._said.wall, self._said.monotonic, 0)


class SaidHearing(Observed):
    """What was heard is what the log says."""

    said = News()

    def news(self) -> News:
        return self.said


class SaidIds:
    """`ports.Ids` in the order of the log."""

    def __init__(self) -> None:
        self.left: list[str] = []

    def event_id(self) -> str:
        if not self.left:
            raise NotTheSame("an id is made that the log does not have")
        return self.left.pop(0)


class Life:
    """One life of control, decided anew."""

    def __init__(self, began: Began, store: Store) -> None:
        if store.position() != began.position:
            raise NotTheSame(
                f"there are {store.position()} commits where the log has {began.position}"
            )
        self._store = FaultyStore(store)
        self._clock, self._ids = ManualClock(wall=0, monotonic=began.monotonic_ms), SaidIds()
        power = HostPower() if began.powers_hosts else None
        self._heard = SaidHearing(self._clock, power=power)
        snapshot = store.load()
        self._writer = Writer(
            index=FleetIndex(snapshot),
            counted=RowNumbers.after(snapshot),
            observed=self._heard,
            store=self._store,
            timekeeper=SaidTimekeeper(self._clock),
            lease_clock=self._clock,
            volatile=Volatile(began.monotonic_ms),
            policy=began.policy,
            ids=self._ids,
            on_commit=lambda _: None,
        )

    def decide(self, batch: LoggedBatch, *, kept: bool) -> int:
        """Decide the commands of a batch; how many were refused."""
        self._clock.wall, self._clock.monotonic = batch.now_ms, batch.monotonic_ms
        self._heard.said, self._ids.left = batch.heard, list(batch.ids)
        self._store.fault = None if kept else Fault.DISK_FULL
        try:
            done = self._writer.run(batch.commands)
        except StoreFailed:
            return 0
        for one in done:
            if isinstance(one.error, NotTheSame):
                raise one.error
        if self._ids.left:
            raise NotTheSame(f"ids of the log are left over: {self._ids.left}")
        return sum(one.error is not None for one in done)


def replay(lines: Iterable[bytes], store: Store) -> Counter[str]:
    """Decide every batch of the log; how often things of note were in it. Raises NotTheSame."""
    entries = [command_json.entry_read(line) for line in lines]
    seen: Counter[str] = Counter()
    life: Life | None = None
    for entry, following in zip_longest(entries, entries[1:]):
        if isinstance(entry, Began):
            life = Life(entry, store)
            seen["lives"] += 1
        elif isinstance(entry, LoggedBatch) and life is not None:
            fate = _fate(following, store)
            seen[fate] += 1
            seen["refused"] += life.decide(entry, kept=fate in ("kept", "died after its commit"))
    return seen


def _fate(following: Entry | None, store: Store) -> str:
    """What became of the batch before this. Of the last one of a life the next life knows."""
    match following:
        case TakenBack():
            return "taken back"
        case Began() if following.position > store.position():
            return "died after its commit"
        case Began():
            return "died"
        case _:
            return "kept"


def everything(store: Store) -> list[str]:
    """Every row that is committed, as SQL, in the order of the tables."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        store.backup(copy)
        found = sqlite3.connect(copy)
        try:
            others = tuple(f'INSERT INTO "{table}"' for table in NOT_DECIDED)
            return [line for line in found.iterdump() if not line.startswith(others)]
        finally:
            found.close()


def journal(rows: Iterable[str]) -> list[str]:
    """Of all rows those of the journal, each as it is kept."""
    return [row for row in rows if row.startswith('INSERT INTO "journal"')]


def main() -> None:
    """Decide the command log of a seed anew (from a file) and print what is then committed."""
    seed, file = int(sys.argv[1]), Path(sys.argv[2])
    store = new_store(hosts_of(seed))
    replay(file.read_bytes().splitlines(), store)
    sys.stdout.write("\n".join(everything(store)))


if __name__ == "__main__":
    main()
