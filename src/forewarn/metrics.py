"""Numbers for /metrics: counted as plain values all the time, shown at a scrape.

A counter that is kept here begins at zero with the process, as Prometheus expects. A part that has
numbers of its own is a `Collector`. The only module that knows prometheus_client.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, product
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Sequence[str]


class Sample(NamedTuple):
    """One line of /metrics."""

    name: str
    labels: dict[str, str]
    value: float


class Family:
    """One metric as it is now, with a sample for each of its labels' values."""

    def __init__(self, kind: str, name: str, text: str, labels: Labels = ()) -> None:
        self.kind = kind
        self.name = name
        self.text = text
        self._labels = labels
        self.samples: list[Sample] = []

    def add(self, values: Labels, number: float, *, suffix: str = "", **more: str) -> None:
        """A sample: what the labels are, and the number."""
        named = dict(zip(self._labels, values, strict=True)) | more
        self.samples.append(Sample(self.name + suffix, named, number))


def counter(name: str, text: str, value: float) -> Family:
    """A number that only grows, without labels."""
    return counters(name, text, (), [((), value)])


def counters(
    name: str, text: str, labels: Labels, values: Iterable[tuple[Labels, float]]
) -> Family:
    """Numbers that only grow."""
    family = Family("counter", name, text, labels)
    for given, value in values:
        family.add(given, value, suffix="_total")
    return family


def gauge(name: str, text: str, value: float) -> Family:
    """A number that goes up and down, without labels."""
    return gauges(name, text, (), [((), value)])


def gauges(name: str, text: str, labels: Labels, values: Iterable[tuple[Labels, float]]) -> Family:
    """Numbers that go up and down."""
    family = Family("gauge", name, text, labels)
    for given, value in values:
        family.add(given, value)
    return family


class Collector(Protocol):
    """A part that has numbers of its own."""

    def collect(self) -> Iterable[Family]:
        """The numbers as they are now."""
        ...


class Counts:
    """A number that only grows, for each value of its labels that has come up."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        self._words = (name, text, labels)
        self._counts: dict[tuple[str, ...], int] = {} if labels else {(): 0}

    def begin(self, *sets: Iterable[str]) -> None:
        """Show every value of the labels at 0 from the start: an alert sees the first one too."""
        for values in product(*sets):
            self._counts.setdefault(tuple(str(value) for value in values), 0)

    def add(self, *values: str, by: int = 1) -> None:
        self._counts[values] = self._counts.get(values, 0) + by

    def collect(self) -> Iterator[Family]:
        yield counters(*self._words, self._counts.items())


class Times:
    """How long something took, in seconds, for each value of its labels that has come up."""

    def __init__(self, name: str, text: str, *labels: str, limits_s: Sequence[float]) -> None:
        self._words = (name, text, labels)
        self._limits_s = limits_s
        self._seen: dict[tuple[str, ...], list[int]] = {}
        self._sums_s: dict[tuple[str, ...], float] = {}
        if not labels:
            self._begin(())

    def begin(self, *sets: Iterable[str]) -> None:
        """Show every value of the labels from the start."""
        for values in product(*sets):
            self._begin(tuple(str(value) for value in values))

    def observe(self, seconds: float, *values: str) -> None:
        if values not in self._seen:
            self._begin(values)
        self._seen[values][bisect_left(self._limits_s, seconds)] += 1
        self._sums_s[values] += seconds

    def _begin(self, values: tuple[str, ...]) -> None:
        self._seen[values] = [0] * (len(self._limits_s) + 1)
        self._sums_s[values] = 0.0

    def collect(self) -> Iterator[Family]:
        family = Family("histogram", *self._words)
        for values, seen in self._seen.items():
            limits = [*(str(float(limit)) for limit in self._limits_s), "+Inf"]
            for limit, count in zip(limits, accumulate(seen), strict=True):
                family.add(values, count, suffix="_bucket", le=limit)
            family.add(values, sum(seen), suffix="_count")
            family.add(values, self._sums_s[values], suffix="_sum")
        yield family


class Exposition:
    """What is shown at one /metrics."""

    def __init__(self) -> None:
        self._collectors: list[Collector] = []

    def add(self, numbers: Collector) -> None:
        """Ask for these numbers at every scrape. Once for each."""
        self._collectors.append(numbers)

    def text(self) -> bytes:
        """Everything, in the text format of Prometheus."""
        # It loads an HTTP server, sixty modules in all, and most emulators are never asked.
        from prometheus_client import generate_latest  # noqa: PLC0415 - see above

        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """Everything, as prometheus_client wants it."""
        from prometheus_client.metrics_core import Metric  # noqa: PLC0415 - as in `text`

        for collector in self._collectors:
            for family in collector.collect():
                metric = Metric(family.name, family.text, family.kind)
                for sample in family.samples:
                    metric.add_sample(*sample)
                yield metric
