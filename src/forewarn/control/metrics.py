"""Numbers for /metrics, counted from what was committed and read from the endpoint at a scrape.

Only counting happens here; the code that causes something calls one method. All belongs to the
event loop's thread. Counters begin at zero with the process, as Prometheus expects.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from forewarn.control.receipt import judge
from forewarn.core import document, notice
from forewarn.core.facts import approved_by_kind
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
from forewarn.core.notice import NoticeVerdict
from forewarn.core.principal import PrincipalKind
from forewarn.metrics import Collector, Counts, Exposition, Family, Times, counter, gauge, gauges
from forewarn.ports import Change, FirstRead

# Around the promises of contract 3.3: 30 s, 5, 10 and 15 minutes; a week for degraded hardware.
NOTICE_BUCKETS_S = (1, 10, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 86_400, 604_800)
# Who approves, as forewarn_approvals_total says it.
GUEST = "guest"
WHY_NOT_TOLD = ("failure", "silent")
ORDER_OUTCOMES = ("accepted", "repeated", "refused", "failed")
APPROVERS = {
    PrincipalKind.OPERATOR: "operator",
    PrincipalKind.OWNER: "owner",
    PrincipalKind.CONTROL: "policy",
}


class ControlMetrics:
    """The numbers of one service. Made once; tell it of every commit and every tick."""

    def __init__(self, *, version: Callable[[], str] = str) -> None:
        self._shown = Exposition()
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
        self._not_told_yet = self._counter(
            "forewarn_starts_without_notice",
            "Events that started without notice to any VM: failures and silent scopes.",
            "event_type",
            "why",
        )
        self._ended = self._counter(
            "forewarn_events_ended", "Events that have ended.", "event_type", "phase"
        )
        self._approvals = self._counter(
            "forewarn_approvals", "Events approved, by whom: guest, owner, operator, policy.", "by"
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
        self._access_refused = self._counter(
            "forewarn_access_refused",
            "Requests to the operator API that were not let in, or lacked a right, by reason.",
            "reason",
        )
        self._first_reads = self._counter("forewarn_first_reads", "First reads that were kept.")
        self._count_what_breaks()
        self._unread = self._counter(
            "forewarn_started_unread", "Events that started unread and unapproved.", "event_type"
        )
        self._backup_ms = 0
        self._lag_s = 0.0
        self._begin()
        self._ask(lambda: gauges("forewarn_build", "Always 1.", ["version"], [([version()], 1)]))

    def _count_what_breaks(self) -> None:
        self._failures = self._counter("forewarn_store_failures", "Failures of the store.")
        self._errors = self._counter(
            "forewarn_operator_errors", "Failures inside the operator API; each is logged."
        )
        self._tick_errors = self._counter(
            "forewarn_ticker_errors", "Ticks that broke; each is logged."
        )

    def _begin(self) -> None:
        """Every value of a label that has a fixed set is there from the start."""
        for counts in (self._short, self._exempted, self._unread):
            counts.begin(EventType)
        for times in (self._delivered, self._read_notice):
            times.begin(EventType)
        self._not_told_yet.begin(EventType, WHY_NOT_TOLD)
        self._ended.begin(EventType, (phase for phase in Phase if phase.ended))
        self._approvals.begin((GUEST, *APPROVERS.values()))
        self._facts.begin(FactKind)
        self._ask(self._last_backup)
        self._ask(self._lag)
        self._shown.add(_OpenEvents(self._open))

    def _last_backup(self) -> Family:
        text = "When the last backup was given, as far as the journal says; 0 if it says none."
        return gauge("forewarn_last_backup_timestamp_seconds", text, self._backup_ms // SECOND_MS)

    def _lag(self) -> Family:
        text = "By how much the last tick was late."
        return gauge("forewarn_ticker_lag_seconds", text, self._lag_s)

    def _ask(self, read: Callable[[], Family]) -> None:
        self._shown.add(_ScrapedNumber(read))

    def _counter(self, name: str, text: str, *labels: str) -> Counts:
        counts = Counts(name, text, *labels)
        self._shown.add(counts)
        return counts

    def _histogram(self, name: str, text: str) -> Times:
        times = Times(name, text, "event_type", limits_s=NOTICE_BUCKETS_S)
        self._shown.add(times)
        return times

    # What others call.

    def loaded(
        self,
        scopes: Iterable[Scope],
        first_reads: Iterable[FirstRead] = (),
        *,
        backup_ms: int | None = None,
    ) -> None:
        """Begin with what was open when the store was opened, and who had read it."""
        for scope in scopes:
            self._keep_open(scope)
        self._keep_reads(first_reads)
        self._backup_ms = backup_ms or 0

    def expect_order(self, order: str) -> None:
        """Such an order can be given: show it at 0."""
        self._orders.begin((order,), ORDER_OUTCOMES)

    def add(self, numbers: Collector) -> None:
        """Ask another collector for its numbers too, at every scrape. Call it once for each."""
        self._shown.add(numbers)

    def count(self, name: str, text: str, read: Callable[[], int]) -> None:
        """Ask for this number too, at every scrape. It only grows. Once per name."""
        self._ask(lambda: counter(name, text, read()))

    def sizes(self, read: Callable[[], Mapping[str, int]]) -> None:
        """Ask for the bytes of these files too, at every scrape. Once."""
        text = "Bytes of the database file and of its WAL; 0 in memory."
        self._ask(
            lambda: gauges(
                "forewarn_database_bytes",
                text,
                ["file"],
                [((name,), size) for name, size in read().items()],
            )
        )

    def committed(self, changes: Sequence[Change]) -> None:
        """Count what a commit has changed."""
        for change in changes:
            self._first_reads.add(by=len(change.first_reads))
            self._keep_reads(change.first_reads)
            for before, after in change.scopes:
                self._scope_changed(before, after)
            for name in change.removed_scopes:
                self._forget(name)
            for line in change.lines:
                self._count_fact(line.fact, change)

    @property
    def backup_ms(self) -> int | None:
        """When the last backup was given, as far as the journal says."""
        return self._backup_ms or None

    def tick(self, lag_s: float) -> None:
        """A tick was late by this much."""
        self._lag_s = lag_s

    def tick_failed(self) -> None:
        """A tick broke; the next one tries again."""
        self._tick_errors.add()

    def store_failed(self) -> None:
        self._failures.add()

    def order(self, order: str, outcome: str) -> None:
        """An operator's order ended: accepted, repeated, refused or failed."""
        self._orders.add(order, outcome)

    def expect_refusals(self, reasons: Iterable[str]) -> None:
        """Requests can be refused for these reasons: show them at 0."""
        self._access_refused.begin(reasons)

    def access_refused(self, reason: str) -> None:
        """A request to the operator API was not let in, or lacked a right."""
        self._access_refused.add(reason)

    def answered(self, status: int) -> None:
        """The operator API has answered."""
        self._answers.add(str(status))

    def error(self) -> None:
        """Something of ours broke in the operator API."""
        self._errors.add()

    def exposition(self) -> bytes:
        """Everything, in the text format of Prometheus."""
        return self._shown.text()

    # Counting.

    def _scope_changed(self, before: Scope | None, after: Scope) -> None:
        pairs, gone = document.moved(before, after)
        moved = bool(gone)
        for earlier, event in pairs:
            moved = moved or earlier is None or earlier.phase is not event.phase
            if event.started_ms is not None and (earlier is None or earlier.started_ms is None):
                self._count_start(event, event.started_ms)
            if event.phase.ended and (earlier is None or not earlier.phase.ended):
                self._ended.add(event.event_type.value, event.phase.value)
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

    def _keep_reads(self, first_reads: Iterable[FirstRead]) -> None:
        for read in first_reads:
            if read.event_id in self._scheduled.get(read.scope, ()):
                self._reads.setdefault(read.event_id, {}).setdefault(read.vm, read.read_ms)

    def _forget(self, scope: str) -> None:
        self._open.pop(scope, None)
        self._scheduled.pop(scope, None)

    def _count_start(self, event: ScheduledEvent, started_ms: int) -> None:
        event_type = event.event_type.value
        reads = self._reads.pop(event.event_id, {})
        if event.silent or event.cause is Cause.FAILURE:
            why = "failure" if event.cause is Cause.FAILURE else "silent"
            self._not_told_yet.add(event_type, why)
            return
        if event.approved_ms is None and not any(vm in reads for vm in event.resources):
            self._unread.add(event_type)
        given_ms = notice.readable_ms(event, started_ms)
        self._delivered.observe(given_ms / SECOND_MS, event_type)
        for read_ms in (reads[vm] for vm in event.resources if vm in reads):
            before_start_ms = max(0, started_ms - read_ms)
            self._read_notice.observe(before_start_ms / SECOND_MS, event_type)
        if judge(event).kept is NoticeVerdict.NO:
            self._short.add(event_type)

    def _count_fact(self, fact: Fact, change: Change) -> None:
        self._facts.add(fact.kind.value)
        if fact.kind is FactKind.APPROVED:
            self._approvals.add(APPROVERS.get(approved_by_kind(fact), GUEST))
        elif fact.kind is FactKind.BACKED_UP:
            self._backup_ms = fact.at_ms
        elif fact.kind is FactKind.EXEMPTED:
            found = (after.event(fact.event_id or "") for _, after in change.scopes)
            event = next((event for event in found if event is not None), None)
            self._exempted.add("" if event is None else event.event_type.value)


class _OpenEvents:
    """Open events by type and phase, added up at a scrape."""

    def __init__(self, by_scope: Mapping[str, Tally[tuple[str, str]]]) -> None:
        self._by_scope = by_scope

    def collect(self) -> Iterator[Family]:
        total: Tally[tuple[str, str]] = Tally()
        for tally in self._by_scope.values():
            total.update(tally)
        found = [
            (event_type.value, phase.value)
            for event_type in EventType
            for phase in (Phase.SCHEDULED, Phase.STARTED)
        ]
        yield gauges(
            "forewarn_events",
            "Open events, silent ones included.",
            ("event_type", "phase"),
            [(labels, total[labels]) for labels in found],
        )


class _ScrapedNumber:
    """One number that is asked for at a scrape."""

    def __init__(self, read: Callable[[], Family]) -> None:
        self._read = read

    def collect(self) -> Iterator[Family]:
        yield self._read()
