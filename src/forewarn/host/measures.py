"""The numbers of a host daemon for /metrics, each read from its owner when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HEARTBEAT_BUCKETS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def heartbeat_times() -> Histogram:
    """How long control takes to answer the heartbeats of the hosts of one process."""
    return Histogram(
        "forewarn_heartbeat_seconds",
        "From a heartbeat to control's answer.",
        buckets=HEARTBEAT_BUCKETS_S,
        registry=None,
    )


class _Asked(Collector):
    """One number that somebody else knows; nothing is said while nobody knows it."""

    def __init__(
        self,
        family: type[CounterMetricFamily | GaugeMetricFamily],
        name: str,
        text: str,
        read: Callable[[], float | None],
    ) -> None:
        self._family = family
        self._name = name
        self._text = text
        self._read = read

    def collect(self) -> Iterator[Metric]:
        value = self._read()
        if value is not None:
            yield self._family(self._name, self._text, value=value)


class HostMeasures:
    """What one host daemon shows of itself."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry(auto_describe=False)

    def count(self, name: str, text: str, read: Callable[[], float | None]) -> None:
        """Ask for this number at every scrape. It only grows. Once per name."""
        self._registry.register(_Asked(CounterMetricFamily, name, text, read))

    def gauge(self, name: str, text: str, read: Callable[[], float | None]) -> None:
        """Ask for this number at every scrape. Once per name."""
        self._registry.register(_Asked(GaugeMetricFamily, name, text, read))

    def add(self, collector: Collector) -> None:
        """Ask for these numbers too, at every scrape."""
        self._registry.register(collector)

    def text(self) -> bytes:
        """Everything, in the format of Prometheus."""
        return generate_latest(self._registry)
