"""Numbers for /metrics, counted from what was committed and read from the endpoint at a scrape.

Only counting happens here; whoever causes something calls one method. Everything belongs to the
event loop's thread. Counters begin at zero with the process, as Prometheus expects.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from forewarn.control.receipt import Kept, judge
from forewarn.core import notice
from forewarn.core.model import (
    SECOND_MS,
    Cause,
    EventType,
    Fact,
    FactKind,
    Phase,
    ScheduledEvent,
    Scope,
)
from forewarn.core.scheduling import AUTO_APPROVED_BY
from forewarn.ports import Change

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Around the promises of contract 3.3: 30 s, 5, 10 and 15 minutes; a week for degraded hardware.
NOTICE_BUCKETS_S = (1, 10, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 86_400, 604_800)

OPERATOR = "operator"


class Measures:
    """The numbers of one service. Made once; tell it of every commit and every tick."""

    def __init__(self, *, version: str = "") -> None:
        self._registry = CollectorRegistry()
        self._open: dict[str, Tally[tuple[str, str]]] = {}
        self._scheduled: dict[str, frozenset[str]] = {}
        self._reads: dict[str, dict[str, int]] = {}  # of scheduled events only
        self._delivered = self._histogram(
            "forewarn_notice_seconds",
            "For how long a visible event could be read before it started.",
        )
        self._read_notice = self._histogram(
            "forewarn_read_notice_seconds",
            "From the first read of an event by a VM that it impacts to its start.",
        )
        self._short = self._counter(
            "forewarn_notice_short",
            "Events that started without their promised notice and without approval.",
            "event_type",
        )
        self._untold = self._counter(
            "forewarn_starts_without_notice",
            "Events that started without anybody being told: failures and silent scopes.",
            "event_type",
            "why",
        )
        self._ended = self._counter(
            "forewarn_events_ended", "Events that have ended.", "event_type", "phase"
        )
        self._approvals = self._counter(
            "forewarn_approvals", "Events approved, by whom: guest, operator, policy.", "by"
        )
        self._exempted = self._counter(
            "forewarn_domain_exemptions",
            "Starts that were exempt from the rule of one update domain at a time.",
            "event_type",
        )
        self._facts = self._counter("forewarn_facts", "Lines of the journal, by kind.", "kind")
        self._orders = self._counter(
            "forewarn_orders",
            "Orders of operators, by how they ended: accepted, repeated, refused, failed.",
            "order",
            "outcome",
        )
        self._answers = self._counter(
            "forewarn_operator_answers", "Answers of the operator API, by status.", "status"
        )
        self._first_reads = self._counter("forewarn_first_reads", "First reads that were kept.")
        self._failures = self._counter("forewarn_store_failures", "Failures of the store.")
        self._errors = self._counter(
            "forewarn_operator_errors", "Errors of ours in the operator API, each of them logged."
        )
        self._tick_errors = self._counter(
            "forewarn_ticker_errors", "Ticks that broke, each of them logged."
        )
        self._lag = Gauge(
            "forewarn_ticker_lag_seconds",
            "By how much the last tick was late.",
            registry=self._registry,
        )
        self._registry.register(_OpenEvents(self._open))
        self._tell_build(version)

    def _tell_build(self, version: str) -> None:
        build = Gauge("forewarn_build", "Always 1.", ["version"], registry=self._registry)
        build.labels(version).set(1)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(
            name, text, ["event_type"], buckets=NOTICE_BUCKETS_S, registry=self._registry
        )

    # What others call.

    def loaded(self, scopes: Iterable[Scope]) -> None:
        """Begin with what was open when the store was opened."""
        for scope in scopes:
            self._keep_open(scope)

    def add(self, numbers: Collector) -> None:
        """Ask somebody else for their numbers too, at every scrape. Once for each."""
        self._registry.register(numbers)

    def count(self, name: str, text: str, read: Callable[[], int]) -> None:
        """Ask for this number too, at every scrape. It only grows. Once per name."""
        self._registry.register(_Asked(name, text, read))

    def committed(self, changes: Sequence[Change]) -> None:
        """Count what a commit has changed."""
        for change in changes:
            self._first_reads.inc(len(change.first_reads))
            for read in change.first_reads:
                if read.event_id in self._scheduled.get(read.scope, ()):
                    self._reads.setdefault(read.event_id, {}).setdefault(read.vm, read.read_ms)
            for before, after in change.scopes:
                self._scope_changed(before, after)
            for name in change.removed_scopes:
                self._forget(name)
            for fact in change.facts:
                self._count_fact(fact, change)

    def tick(self, lag_s: float) -> None:
        """A tick was late by this much."""
        self._lag.set(lag_s)

    def tick_failed(self) -> None:
        """A tick broke; the next one tries again."""
        self._tick_errors.inc()

    def store_failed(self) -> None:
        self._failures.inc()

    def order(self, order: str, outcome: str) -> None:
        """An operator's order ended: accepted, repeated, refused or failed."""
        self._orders.labels(order, outcome).inc()

    def answered(self, status: int) -> None:
        """The operator API has answered."""
        self._answers.labels(str(status)).inc()

    def error(self) -> None:
        """Something of ours broke in the operator API."""
        self._errors.inc()

    def exposition(self) -> bytes:
        """Everything, in the text format of Prometheus."""
        return generate_latest(self._registry)

    # Counting.

    def _scope_changed(self, before: Scope | None, after: Scope) -> None:
        known = {} if before is None else {event.event_id: event for event in before.events}
        moved = len(known) != len(after.events)
        for event in after.events:
            earlier = known.get(event.event_id)
            if earlier is event:
                continue
            moved = moved or earlier is None or earlier.phase is not event.phase
            if event.started_ms is not None and (earlier is None or earlier.started_ms is None):
                self._count_start(event, event.started_ms)
            if event.phase.ended and (earlier is None or not earlier.phase.ended):
                self._ended.labels(event.event_type.value, event.phase.value).inc()
                self._reads.pop(event.event_id, None)
        if moved:
            self._keep_open(after)

    def _keep_open(self, scope: Scope) -> None:
        tally = Tally(
            (event.event_type.value, event.phase.value)
            for event in scope.events
            if not event.phase.ended
        )
        if not tally:
            self._forget(scope.name)
            return
        self._open[scope.name] = tally
        self._scheduled[scope.name] = frozenset(
            event.event_id for event in scope.events if event.phase is Phase.SCHEDULED
        )

    def _forget(self, scope: str) -> None:
        self._open.pop(scope, None)
        self._scheduled.pop(scope, None)

    def _count_start(self, event: ScheduledEvent, started_ms: int) -> None:
        event_type = event.event_type.value
        reads = self._reads.pop(event.event_id, {})
        if event.silent or event.cause is Cause.FAILURE:
            why = "failure" if event.cause is Cause.FAILURE else "silent"
            self._untold.labels(event_type, why).inc()
            return
        given_ms = notice.readable_ms(event, started_ms)
        self._delivered.labels(event_type).observe(given_ms / SECOND_MS)
        for read_ms in (reads[vm] for vm in event.resources if vm in reads):
            before_start_ms = max(0, started_ms - read_ms)
            self._read_notice.labels(event_type).observe(before_start_ms / SECOND_MS)
        if judge(event).kept is Kept.NO:
            self._short.labels(event_type).inc()

    def _count_fact(self, fact: Fact, change: Change) -> None:
        self._facts.labels(fact.kind.value).inc()
        if fact.kind is FactKind.APPROVED:
            by = fact.by if fact.by in (OPERATOR, AUTO_APPROVED_BY) else "guest"
            self._approvals.labels(by).inc()
        elif fact.kind is FactKind.EXEMPTED:
            found = (after.event(fact.event_id or "") for _, after in change.scopes)
            event = next((event for event in found if event is not None), None)
            self._exempted.labels("" if event is None else event.event_type.value).inc()


class _OpenEvents(Collector):
    """Open events by type and phase, added up when somebody asks."""

    def __init__(self, by_scope: Mapping[str, Tally[tuple[str, str]]]) -> None:
        self._by_scope = by_scope

    def collect(self) -> Iterator[Metric]:
        total: Tally[tuple[str, str]] = Tally()
        for tally in self._by_scope.values():
            total.update(tally)
        family = GaugeMetricFamily(
            "forewarn_events", "Open events, silent ones included.", labels=("event_type", "phase")
        )
        for event_type in EventType:
            for phase in (Phase.SCHEDULED, Phase.STARTED):
                labels = (event_type.value, phase.value)
                family.add_metric(labels, total[labels])
        yield family


class _Asked(Collector):
    """One number that somebody else counts."""

    def __init__(self, name: str, text: str, read: Callable[[], int]) -> None:
        self._name = name
        self._text = text
        self._read = read

    def collect(self) -> Iterator[Metric]:
        yield _plain(self._name, self._text, self._read())


def _plain(name: str, text: str, value: int) -> Metric:
    return CounterMetricFamily(name, text, value=value)
