"""The numbers of a host daemon for /metrics, each read from its owner at a scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from forewarn.metrics import Exposition, Family, Times, counter, gauge

HEARTBEAT_BUCKETS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def heartbeat_times() -> Times:
    """How long control takes to answer the heartbeats of the hosts of one process."""
    return Times(
        "forewarn_heartbeat_seconds",
        "From a heartbeat to control's answer.",
        limits_s=HEARTBEAT_BUCKETS_S,
    )


class _ScrapedNumber:
    """One number, read from its owner at a scrape; left out while the owner does not know it."""

    def __init__(
        self,
        family: Callable[[str, str, float], Family],
        name: str,
        text: str,
        read: Callable[[], float | None],
    ) -> None:
        self._family = family
        self._name = name
        self._text = text
        self._read = read

    def collect(self) -> Iterator[Family]:
        value = self._read()
        if value is not None:
            yield self._family(self._name, self._text, value)


class HostMetrics(Exposition):
    """What one host daemon shows of itself."""

    def count(self, name: str, text: str, read: Callable[[], float | None]) -> None:
        """Ask for this number at every scrape. It only grows. Once per name."""
        self.add(_ScrapedNumber(counter, name, text, read))

    def gauge(self, name: str, text: str, read: Callable[[], float | None]) -> None:
        """Ask for this number at every scrape. Once per name."""
        self.add(_ScrapedNumber(gauge, name, text, read))
