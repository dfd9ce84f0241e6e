"""Numbers of the link for /metrics: who has joined, who is silent, what was answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from forewarn.core.model import SECOND_MS


class LinkMeasures(Collector):
    """Counts answers, and asks the others when somebody wants to know. On the event loop."""

    def __init__(
        self,
        *,
        members: Callable[[], Sequence[str]],
        silent_ms: Callable[[str], int],
        refuses: Callable[[str], bool],
        waiting: Callable[[], int],
        handshakes: Callable[[], int],
    ) -> None:
        self._members = members
        self._silent_ms = silent_ms
        self._refuses = refuses
        self._waiting = waiting
        self._handshakes = handshakes
        self._answers: Counter[tuple[str, str]] = Counter()

    def answered(self, question: str, status: int) -> None:
        """One question was answered. `question` is one of a few names, never what a host sent."""
        self._answers[question, str(status)] += 1

    def collect(self) -> Iterator[Metric]:
        members = self._members()
        yield GaugeMetricFamily(
            "forewarn_link_members", "Hosts that have joined.", value=len(members)
        )
        yield GaugeMetricFamily(
            "forewarn_link_waiting",
            "Questions of hosts that wait for a change now; one for each host is right.",
            value=self._waiting(),
        )
        yield GaugeMetricFamily(
            "forewarn_link_handshakes",
            "Connections to the link that have not finished TLS now; few is right.",
            value=self._handshakes(),
        )
        silence = GaugeMetricFamily(
            "forewarn_link_silent_seconds",
            "For how long a host that has joined was not heard, since control started.",
            labels=("host",),
        )
        for name in members:
            silence.add_metric((name,), self._silent_ms(name) / SECOND_MS)
        yield silence
        refusing = GaugeMetricFamily(
            "forewarn_link_refusing",
            "1 for a host that takes no orders from this control; `host show` has its words.",
            labels=("host",),
        )
        for name in members:
            refusing.add_metric((name,), int(self._refuses(name)))
        yield refusing
        answers = CounterMetricFamily(
            "forewarn_link_answers",
            "Answers to hosts, by question and status.",
            labels=("question", "status"),
        )
        for labels, count in sorted(self._answers.items()):
            answers.add_metric(labels, count)
        yield answers
