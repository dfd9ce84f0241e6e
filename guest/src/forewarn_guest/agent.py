"""The agent: documents and ends of steps in, facts into the journal, deeds done.

One thread decides. It takes news (a document, the end of a step, the answer to an approval), keeps
the facts that follow, asks `deciding` what to do, does it, and asks again until nothing is left.
Whatever kills it, the facts say where to go on.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Callable, Protocol, Union

from forewarn_guest import deciding, facts, observing
from forewarn_guest.configuration import Configuration, Part
from forewarn_guest.deciding import Timing
from forewarn_guest.document import Document, Event
from forewarn_guest.errors import EndpointError
from forewarn_guest.facts import Fact, FactKind, Outcome
from forewarn_guest.http1 import Stop
from forewarn_guest.journal_buffer import COMPACT_FROM_FACTS, JournalBuffer, JournalWriter
from forewarn_guest.logs import Log
from forewarn_guest.pauses import Pause
from forewarn_guest.step_input import StepInput
from forewarn_guest.step_runner import STOP_GRACE_S, End, StepProcesses, StepRunner, run_name
from forewarn_guest.tracked_event import Run, TrackedEvent, fold, fold_all

LOOK_EVERY_S = 60.0  # without any news
STEP_LOOK_EVERY_S = 0.05  # while a step runs
KEEP_AGAIN_S = 1.0  # after the journal could not be written
DEEDS_IN_A_ROW_MAX = 10_000
APPROVALS_AT_ONCE_MAX = 8


class Endpoint(Protocol):
    """What the agent asks of a client."""

    def documents(self, stop: Stop) -> Iterable[Document]: ...

    def approve(self, *event_ids: str) -> None: ...


@dataclass(frozen=True)
class _Answered:
    """How an approval was answered; empty `why` is a 200."""

    tracked: str
    why: str


News = Union[Document, _Answered, Pause, None]


@dataclass(frozen=True)
class View:
    """What the agent is doing now, for the status file and the metrics."""

    vm: str
    tracked_events: tuple[TrackedEvent, ...]
    running: tuple[tuple[str, str, str], ...]  # tracked event, part, step
    document: Document | None
    counts: Mapping[str, int]
    unkept: int  # facts that the journal could not be given yet


class Agent:
    """Looks after one VM. Everything is called on the thread that calls `run`."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        endpoint: Endpoint,
        journal: JournalWriter,
        kept: Iterable[Fact],
        steps: StepProcesses,
        vm: str,
        log: Log,
        show: Callable[[View], None] = lambda _: None,
        look_every_s: float = LOOK_EVERY_S,
        compact_from: int = COMPACT_FROM_FACTS,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._configuration = configuration
        self._endpoint = endpoint
        self._boot_id = steps.boot_id
        self._stepping = StepRunner(steps, log=log, now_s=now_s)
        self._vm = vm
        self._log = log
        self._show = show
        self._look_every_s = look_every_s
        self._now_s = now_s
        self._keeping = JournalBuffer(
            journal, kept, log=log, compact_from=compact_from, now_s=now_s
        )
        self._tracked_events = fold_all(self._keeping.kept)
        self._timings: dict[str, Timing] = {}
        # A signal handler calls `tell`, and may put into no other kind of queue than this one.
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._document: Document | None = None
        self._look_again_s: float | None = None
        self._asked = 0  # approvals that are under way
        self.counts: dict[str, int] = {}

    # Life.

    def run(self, stop: Stop) -> None:
        """Work until told to stop. Steps that run then go on; the next agent waits for them."""
        self._compact()
        self._keep(Fact(FactKind.BEGIN, facts.now(), "", {"boot_id": self._boot_id}))
        self._find_steps()
        self._keep(
            *observing.booted(self._tracked_events.values(), boot_id=self._boot_id, at=facts.now())
        )
        watching = threading.Thread(target=self._watch, args=(stop,), name="watch", daemon=True)
        watching.start()
        while not stop.is_set():
            self.turn(self._take())

    def tell(self, news: News) -> None:
        """Hand in news from another thread or a signal handler; None only wakes."""
        self._news.put(news)

    def _watch(self, stop: Stop) -> None:
        for document in self._endpoint.documents(stop):
            self.tell(document)

    def _take(self) -> News:
        wait_s = STEP_LOOK_EVERY_S if self._stepping else self._look_every_s
        if self._keeping.unkept:
            wait_s = min(wait_s, KEEP_AGAIN_S)
        if self._look_again_s is not None:
            wait_s = min(wait_s, max(0.0, self._look_again_s - self._now_s()))
        try:
            return self._news.get(timeout=wait_s)
        except queue.Empty:
            return None

    def turn(self, news: News) -> None:
        """Take one piece of news and do everything that follows from it now."""
        self._keep()
        if isinstance(news, Document):
            self._observe(news)
        elif isinstance(news, _Answered):
            self._answered(news)
        elif isinstance(news, Pause):
            self._paused(news)
        for end in self._stepping.ends():
            self._ended(end)
        for _ in range(DEEDS_IN_A_ROW_MAX):
            deeds = self._decide()
            if not deeds:
                break
            for deed in deeds:
                self._do(deed)
        self._compact()
        self._show(self.view())

    def view(self) -> View:
        """The state of the agent now."""
        return View(
            vm=self._vm,
            tracked_events=tuple(
                tracked for tracked in self._tracked_events.values() if not tracked.closed
            ),
            running=tuple((c, run.part.value, run.step) for c, run in self._stepping.running()),
            document=self._document,
            counts=dict(self.counts),
            unkept=len(self._keeping.unkept),
        )

    # The journal.

    def _keep(self, *new: Fact) -> None:
        """Take these facts and keep them; what cannot be kept now is kept as soon as it can.

        A full disk stops no preparation: it only holds approval back, because what is approved
        must not be forgotten.
        """
        for fact in new:
            fold(self._tracked_events, fact)
            self._say(fact)
        if not self._keeping.add(new):
            self._count("journal_failures")

    def _compact(self) -> None:
        if self._keeping.compact():
            self._tracked_events = fold_all([*self._keeping.kept, *self._keeping.unkept])

    def _say(self, fact: Fact) -> None:
        detail = {key: value for key, value in fact.detail.items() if key != "event"}
        if fact.kind is FactKind.APPEARED:
            event = self._tracked_events[fact.tracked].event
            detail.update(event_type=event.event_type, event_status=event.status)
            if detail["sighting"] > observing.SIGHTINGS_MAX:
                what = "an id that comes back again and again is left alone, and never approved"
                self._log.once(f"back {event.key}", what, event=event.event_id)
            elif not detail["rule"]:
                self._log.warning(
                    "no rule matches; it is never approved", tracked_event=fact.tracked
                )
            if detail["sighting"] > 1:
                self._count("came_back")
        say = self._log.error if fact.kind is FactKind.WITHHELD else self._log.info
        if fact.kind is FactKind.ENDED and detail["outcome"] != Outcome.DONE.value:
            say = self._log.warning
        say(fact.kind.value, **({"tracked_event": fact.tracked} if fact.tracked else {}), **detail)
        self._count(f"facts_{fact.kind.value.replace('-', '_')}")

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    # Documents.

    def _observe(self, document: Document) -> None:
        self._document = document
        self._count("documents")
        self._keep(
            *observing.observe(
                document,
                self._tracked_events,
                vm=self._vm,
                rules=self._configuration.rules,
                boot_id=self._boot_id,
                at=facts.now(),
            )
        )
        for tracked in self._tracked_events.values():
            event = document.event(tracked.key)
            left_s = None if event is None else document.seconds_left(event)
            if left_s is not None and tracked.gone is None and not tracked.closed:
                self._time(tracked, not_before_s=document.received_s + left_s)

    def _time(self, tracked: TrackedEvent, **changes: Any) -> None:
        self._timings[tracked.tracked_id] = replace(
            self._timings.get(tracked.tracked_id, Timing()), **changes
        )

    def _paused(self, pause: Pause) -> None:
        """Keep that the VM stood still, beside the events that may have been the cause."""
        tracked_events = [
            tracked.tracked_id for tracked in self._tracked_events.values() if not tracked.closed
        ]
        self._keep(
            Fact(
                FactKind.PAUSE,
                facts.now(),
                "",
                {**pause.to_json(), "tracked_events": tracked_events},
            )
        )

    # Deeds.

    def _decide(self) -> list[deciding.Deed]:
        now_s = self._now_s()
        for tracked in self._tracked_events.values():
            rule = self._configuration.rule(tracked.rule)
            timing = self._timings.get(tracked.tracked_id, Timing())
            if tracked.closed or rule is None or timing.prepared_s is not None:
                continue
            if deciding.prepared(tracked, rule):
                self._time(tracked, prepared_s=now_s)
        decision = deciding.decide(
            self._tracked_events, self._configuration, self._timings, vm=self._vm, now_s=now_s
        )
        self._look_again_s = decision.look_again_s
        if self._document is None:
            # What was true when an agent died may not be now; only what is gone stays gone.
            return [
                deed
                for deed in decision.deeds
                if self._tracked_events[deed.tracked].gone is not None
            ]
        if not self._keeping.unkept and self._asked < APPROVALS_AT_ONCE_MAX:
            return decision.deeds
        # What is approved must not be forgotten: nothing is approved that is not kept.
        return [deed for deed in decision.deeds if not isinstance(deed, deciding.SayGoAhead)]

    def _do(self, deed: deciding.Deed) -> None:
        at = facts.now()
        if isinstance(deed, deciding.RunStep):
            self._run_step(deed)
        elif isinstance(deed, deciding.SayGoAhead):
            self._approve(self._tracked_events[deed.tracked])
        elif isinstance(deed, deciding.CountAs):
            where = {"part": deed.part.value, "step": deed.step, "attempt": deed.attempt}
            detail = {**where, "counts_as": deed.outcome.value}
            self._keep(Fact(FactKind.RULED, at, deed.tracked, detail))
        elif isinstance(deed, deciding.LeaveOut):
            detail = {"part": deed.part.value, "step": deed.step, "why": deed.why}
            self._keep(Fact(FactKind.LEFT_OUT, at, deed.tracked, detail))
        elif isinstance(deed, deciding.Share):
            self._keep(Fact(FactKind.SHARED, at, deed.tracked, {"by": deed.by}))
        elif isinstance(deed, deciding.HandOver):
            detail = {"to": deed.to, "prepared": deed.prepared}
            self._keep(Fact(FactKind.HANDED_OVER, at, deed.tracked, detail))
        elif isinstance(deed, deciding.Withhold):
            self._keep(Fact(FactKind.WITHHELD, at, deed.tracked, {"why": deed.why}))
        else:
            self._say_what_is_not_back(self._tracked_events[deed.tracked])
            self._keep(Fact(FactKind.CLOSED, at, deed.tracked))
            self._timings.pop(deed.tracked, None)

    def _say_what_is_not_back(self, tracked: TrackedEvent) -> None:
        """An event that is over is not shown any more, so this is the time to say what is left."""
        rule = self._configuration.rule(tracked.rule)
        failed = [
            step.name
            for part in (Part.RECOVER, Part.CANCELED)
            for step in (() if rule is None else rule.steps(part))
            if tracked.counts_as(part, step.name) not in (None, Outcome.DONE) and not step.optional
        ]
        if failed:
            self._count("not_brought_back")
            what = "the event is over, and not everything was brought back"
            self._log.error(what, tracked_event=tracked.tracked_id, failed=", ".join(failed))

    # Approval.

    def _approve(self, tracked: TrackedEvent) -> None:
        """Say go ahead on a thread of its own: an endpoint that hangs holds nothing up.

        That it may have been said is kept first: an event that goes while the agent is dead must
        not be taken for one that was canceled.
        """
        if self._asked >= APPROVALS_AT_ONCE_MAX:
            return  # the answer to one of them is news
        if not tracked.approving:
            self._keep(Fact(FactKind.APPROVING, facts.now(), tracked.tracked_id))
        if self._keeping.unkept:
            return  # it is said when this is kept
        before = self._timings.get(tracked.tracked_id, Timing())
        self._time(tracked, approvals=before.approvals + 1, approved_s=self._now_s())
        tracked_id, event_id = tracked.tracked_id, tracked.event.event_id
        self._asked += 1

        def approving() -> None:
            try:
                self._endpoint.approve(event_id)
            except Exception as why:  # noqa: BLE001 - it is said, and tried again
                said = str(why) if isinstance(why, EndpointError) else repr(why)
                self.tell(_Answered(tracked_id, said))
            else:
                self.tell(_Answered(tracked_id, ""))

        try:
            threading.Thread(target=approving, name="approve", daemon=True).start()
        except RuntimeError as why:  # no thread to be had; there may be one at the next try
            self.tell(_Answered(tracked_id, str(why)))

    def _answered(self, answer: _Answered) -> None:
        self._asked -= 1
        tracked = self._tracked_events.get(answer.tracked)
        if answer.why:
            self._count("approvals_failed")
            self._log.once(f"approve {answer.tracked}", "not approved yet", why=answer.why)
        elif tracked is not None and not tracked.approved and not tracked.closed:
            self._keep(Fact(FactKind.APPROVED, facts.now(), answer.tracked))
            self._log.over(
                f"approve {answer.tracked}", "approved at last", tracked_event=answer.tracked
            )

    # Steps.

    def _run_step(self, deed: deciding.RunStep) -> None:
        tracked = self._tracked_events[deed.tracked]
        where = {"part": deed.part.value, "step": deed.step.name, "attempt": deed.attempt}
        self._stepping.reserve(run_name(deed.tracked, deed.part, deed.step.name, deed.attempt))
        self._keep(Fact(FactKind.INTENDED, facts.now(), deed.tracked, where))
        event = self._live_event(tracked)
        left_s = self._seconds_left(tracked)
        first_named = bool(event.resources) and event.resources[0].casefold() == self._vm.casefold()
        occasion = StepInput(
            event, self._vm, deed.part, deed.step, first_named=first_named, left_s=left_s
        )
        run = tracked.runs[deed.part, deed.step.name]
        try:
            step = self._stepping.begin(
                deed.tracked,
                run,
                deed.step.argv,
                environment=occasion.environment(),
                given=occasion.given(deed.limit_s),
                limit_s=deed.limit_s,
            )
        except OSError as why:
            self._ended(End(deed.tracked, run, Outcome.FAILED, str(why)))
            return
        begun = {"pid": step.pid, "start_ticks": step.start_ticks, "boot_id": step.boot_id}
        self._keep(Fact(FactKind.BEGUN, facts.now(), deed.tracked, {**where, **begun}))

    def _live_event(self, tracked: TrackedEvent) -> Event:
        live = None if self._document is None else self._document.event(tracked.key)
        return tracked.event if live is None or tracked.gone is not None else live

    def _seconds_left(self, tracked: TrackedEvent) -> float | None:
        at_s = self._timings.get(tracked.tracked_id, Timing()).not_before_s
        return None if at_s is None or tracked.started else at_s - self._now_s()

    def _ended(self, end: End) -> None:
        run = end.run
        what = {"part": run.part.value, "step": run.step, "attempt": run.attempt}
        what.update(outcome=end.outcome.value, detail=end.detail)
        self._keep(Fact(FactKind.ENDED, facts.now(), end.tracked, what))
        self._count(f"steps_{end.outcome.value.replace('-', '_')}")

    def _find_steps(self) -> None:
        """Find out what has become of the steps that an agent before this one had begun."""
        for tracked in self._tracked_events.values():
            for run in [run for run in tracked.runs.values() if run.open and not tracked.closed]:
                found = self._stepping.find(tracked.tracked_id, run, self._limit_s(tracked, run))
                if isinstance(found, End):
                    self._ended(found)
                elif found is not None:
                    where = {"part": run.part.value, "step": run.step, "attempt": run.attempt}
                    self._keep(Fact(FactKind.NOT_BEGUN, facts.now(), tracked.tracked_id, where))

    def _limit_s(self, tracked: TrackedEvent, run: Run) -> float:
        rule = self._configuration.rule(tracked.rule)
        steps = () if rule is None else rule.steps(run.part)
        return next((step.limit_s for step in steps if step.name == run.step), STOP_GRACE_S)
