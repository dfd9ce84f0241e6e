"""The counters of the guest endpoint as numbers for /metrics, read at a scrape."""

from __future__ import annotations

from collections.abc import Iterator

from forewarn.endpoint.service import Counters
from forewarn.metrics import Family, counter, counters, gauge
from forewarn.wire.problems import REFUSAL_REASONS

# Each is there from the start, so that an alert sees the first one too.
_NO_REFUSALS = {(reason,): 0 for reason in REFUSAL_REASONS}


class EndpointMetrics:
    """The counters of the guest endpoint, as they are at a scrape."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Family]:
        now = self._counters
        yield counters(
            "forewarn_guest_polls",
            "Polls answered, by status.",
            ("status",),
            [(("200",), now.polls_200), (("304",), now.polls_304)],
        )
        yield counters(
            "forewarn_guest_answers",
            "Answers to guests, by status.",
            ("status",),
            [((str(status),), count) for status, count in sorted(now.answers().items())],
        )
        yield counters(
            "forewarn_guest_refusals",
            "Requests of guests refused, by reason.",
            ("reason",),
            sorted({**_NO_REFUSALS, **{(r,): n for r, n in now.refused().items()}}.items()),
        )
        yield counter("forewarn_guest_waits", "Polls that were parked.", now.waits)
        yield counter("forewarn_guest_approvals", "POSTs of guests answered 200.", now.approvals)
        yield counter("forewarn_guest_errors", "Errors of ours in the endpoint.", now.failures)
        yield gauge("forewarn_guest_parked", "Polls that are parked now.", now.parked)
        yield gauge("forewarn_guest_connections", "Open connections of guests.", now.connections)
