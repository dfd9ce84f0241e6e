"""The counters of the guest endpoint as numbers for /metrics, read when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from forewarn.endpoint.service import Counters


class EndpointMeasures(Collector):
    """The counters of the guest endpoint, as they are when somebody asks."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        now = self._counters
        polls = CounterMetricFamily(
            "forewarn_guest_polls", "Polls answered, by status.", labels=("status",)
        )
        polls.add_metric(("200",), now.polls_200)
        polls.add_metric(("304",), now.polls_304)
        yield polls
        answers = CounterMetricFamily(
            "forewarn_guest_answers", "Answers to guests, by status.", labels=("status",)
        )
        for status, count in sorted(now.answers().items()):
            answers.add_metric((str(status),), count)
        yield answers
        refusals = CounterMetricFamily(
            "forewarn_guest_refusals", "Requests of guests refused, by reason.", labels=("reason",)
        )
        for reason, count in sorted(now.refused().items()):
            refusals.add_metric((reason,), count)
        yield refusals
        yield CounterMetricFamily(
            "forewarn_guest_waits", "Polls that were parked.", value=now.waits
        )
        yield CounterMetricFamily(
            "forewarn_guest_approvals", "POSTs of guests answered 200.", value=now.approvals
        )
        yield CounterMetricFamily(
            "forewarn_guest_errors", "Errors of ours in the endpoint.", value=now.failures
        )
        yield GaugeMetricFamily(
            "forewarn_guest_parked", "Polls that are parked now.", value=now.parked
        )
        yield GaugeMetricFamily(
            "forewarn_guest_connections", "Open connections of guests.", value=now.connections
        )
