"""Hosts as cells: one letter for each, in groups, with the words and numbers that go with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, islice

from msgspec import Struct

from forewarn.control.fleet_summary import FleetSummary, HostCondition

CELLS_IN_GROUP_MAX = 100
_GROUP_SIZE_MIN = 3  # on average; names that share nothing are one group
_NUMBER_AT_END = re.compile(r"\d+$")

CODES: Mapping[HostCondition, str] = {
    HostCondition.FAILED: "f",
    HostCondition.TROUBLED: "t",
    HostCondition.SILENT: "s",
    HostCondition.WORKING: "w",
    HostCondition.ANNOUNCED: "a",
    HostCondition.DEGRADED: "d",
    HostCondition.CLOSED: "c",
    HostCondition.WELL: "o",
}
WORDS: Mapping[str, str] = {code: condition.value for condition, code in CODES.items()}


class GridGroup(Struct, frozen=True, kw_only=True):
    """Hosts side by side. `first` is the place of the first one among all."""

    label: str
    first: int
    codes: str


class ConditionCount(Struct, frozen=True, kw_only=True):
    code: str
    word: str
    count: int


class Legend(Struct, frozen=True, kw_only=True):
    """How many hosts are how."""

    counts: tuple[ConditionCount, ...]
    total: int

    @property
    def said(self) -> str:
        """The grid in words, for those who do not see it."""
        parts = ", ".join(f"{one.count} {one.word}" for one in self.counts if one.count)
        return f"{self.total} hosts: {parts}" if self.total else "No hosts"


class Grid(Struct, frozen=True, kw_only=True):
    """The whole fleet. `named` are the names of hosts that are not well, by place."""

    groups: tuple[GridGroup, ...]
    total: int
    named: tuple[tuple[int, str], ...]

    @property
    def codes(self) -> str:
        return "".join(group.codes for group in self.groups)

    @property
    def shape(self) -> tuple[str, ...]:
        """What stays while no host comes or leaves."""
        return tuple(group.label for group in self.groups)


NAMED_MAX = 400  # cells that are links; the others are found by their place


def grid(summary: FleetSummary) -> Grid:
    names = summary.host_names
    codes = "".join([CODES[one] for one in summary.conditions])
    unwell = (place for place, code in enumerate(codes) if code != "o")
    return Grid(
        groups=tuple(
            GridGroup(label=label, first=start, codes=codes[start:end])
            for label, start, end in groups(names)
        ),
        total=len(names),
        named=tuple((place, names[place]) for place in islice(unwell, NAMED_MAX)),
    )


def legend(summary: FleetSummary) -> Legend:
    counts = summary.counts()
    return Legend(
        counts=tuple(
            ConditionCount(code=code, word=condition.value, count=counts.get(condition, 0))
            for condition, code in CODES.items()
        ),
        total=len(summary.host_names),
    )


@lru_cache(maxsize=8)  # the names of a fleet are one tuple until a host comes or leaves
def groups(names: tuple[str, ...]) -> tuple[tuple[str, int, int], ...]:
    """(label, from, to) of hosts that belong together: their names begin alike."""
    found = list(_by_beginning(names))
    if len(found) > 1 and len(names) < _GROUP_SIZE_MIN * len(found):
        found = [(0, len(names))]
    cut = [
        (start, min(start + CELLS_IN_GROUP_MAX, end))
        for first, end in found
        for start in range(first, end, CELLS_IN_GROUP_MAX)
    ]
    return tuple((_label(names[start], names[end - 1]), start, end) for start, end in cut)


def _by_beginning(names: Sequence[str]) -> Iterator[tuple[int, int]]:
    place = 0
    for _, alike in groupby(names, key=lambda name: _NUMBER_AT_END.sub("", name)):
        size = len(list(alike))
        yield place, place + size
        place += size


def _label(first: str, last: str) -> str:
    return first if first == last else f"{first} … {last}"
