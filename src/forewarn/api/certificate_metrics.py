"""When certificates expire, for /metrics: those of every part that has some."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from forewarn.metrics import Family, gauges


class CertificateMetrics:
    """Asks its sources at a scrape. Each says by name when, in seconds since 1970."""

    def __init__(self, *sources: Callable[[], Mapping[str, float]]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Family]:
        yield gauges(
            "forewarn_certificate_expiry_timestamp_seconds",
            "When a certificate expires; `host` is the first one of a member. 0 if not known yet.",
            ("certificate",),
            [((name,), until_s) for one in self._sources for name, until_s in one().items()],
        )
