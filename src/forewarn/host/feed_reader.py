"""Follows control: asks what changed, shows it, and knows how old what it shows is.

One question at a time, always with what is known already, so nothing arrives out of order. While
control is away guests keep their last documents; when it is back, or is another one than before, it
says what has changed since, or everything if it cannot know that. All of it is taken over, except
that no guest is ever shown an older incarnation: what is shown is marked first, durably, and what
is below a mark is refused. A control that is refused in one document has lost what it knew, so
nothing of it is obeyed while that is so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.incarnation_marks import MARKS_MAX, Above, Marks, VmKey, key_of
from forewarn.endpoint.registry import Guest, Page
from forewarn.logs import Log
from forewarn.ports import HostLink
from forewarn.wire.link import Adoption, Changes, ShownScope, Since

log = Log(__name__)

BACK_OFF_FIRST_S = 0.2
BACK_OFF_MAX_S = 5.0
# A poll is waited for no longer than this, so that the age of the documents stays small. That a
# connection died without a word is noticed before: turns are said over another one (`ask_now`).
WAIT_S = 25
# A control that answers at once without anything new must not be asked in a circle.
ASK_AGAIN_AFTER_S = 0.01
# While control is refused the operator may want it accepted, and that is looked for between polls.
REFUSING_WAIT_S = 1
# Scopes that were shown and are not any more; a control that forgot them may be refused them next.
PAST_MAX = 10_000
REFUSED_NAMED_MAX = 3

REMEDY = (
    "This control runs with an old or a new database: `forewarn restore` its newest backup there."
    " If its numbers are to count all the same, say `forewarn host accept-control` on the host."
)


class ShownDocuments(Protocol):
    """Where guests read: `host.served_documents.Documents`, or one host's part of it."""

    def show(self, scope: ShownScope) -> None: ...

    def drop(self, scope_name: str) -> None: ...

    def expect(self, vm: str) -> None: ...

    def page(self, scope_name: str) -> Page | None: ...

    def guest(self, vm: str) -> Guest | None: ...


class FeedListener(Protocol):
    """Who confirms what is shown and does what there is to do: `host.daemon.Hosts`."""

    def shown(self, host: str, scope: ShownScope) -> None: ...

    def ring(self, hosts: Sequence[str]) -> None: ...


class _Refused(Struct, frozen=True):
    """A document that was refused, and in which life of control."""

    why: Above
    epoch: str


def back_off_s(failures: int, chance: float) -> float:
    """How long to wait after so many failures in a row; `chance`, from 0 to 1, spreads hosts out.

    Between half and the whole of a time that doubles up to BACK_OFF_MAX_S.
    """
    whole_s = min(BACK_OFF_MAX_S, BACK_OFF_FIRST_S * 2.0 ** min(failures - 1, 16))
    return whole_s * (0.5 + 0.5 * chance)


async def _not_kept(_: Marks) -> None:
    """Nothing outlives this process."""


async def _nothing_kept() -> None:
    """There is nothing to forget."""


class FeedReader:
    """Keeps the documents of one host as control has them. Belongs to the event loop.

    `once` is one turn, and waits for nothing but control and what `keep` and `forget` wait for.
    `chance` gives numbers from 0 to 1 for the back-off. `marks` are those of before; `keep` makes
    marks durable, or raises OSError. `accepts` says whether the operator wants the
    marks forgotten, `forget` does that, durably. `took_over` is called after each answer that
    changed what is shown, `wants` with each adoption, once, `reconnected` when control is there
    again, `judged` when it is another one, or begins or ends to be refused. While `hurry` says so
    control is asked to answer at once.
    """

    def __init__(
        self,
        host: str,
        *,
        link: HostLink,
        documents: ShownDocuments,
        hosts: FeedListener,
        monotonic_ms: Callable[[], int],
        chance: Callable[[], float] = lambda: 1.0,
        marks: Marks | None = None,
        keep: Callable[[Marks], Awaitable[None]] = _not_kept,
        accepts: Callable[[], bool] = lambda: False,
        forget: Callable[[], Awaitable[None]] = _nothing_kept,
        took_over: Callable[[], None] = lambda: None,
        wants: Callable[[Adoption], None] = lambda _: None,
        reconnected: Callable[[], None] = lambda: None,
        judged: Callable[[], None] = lambda: None,
        hurry: Callable[[], bool] = lambda: False,
    ) -> None:
        self._host = host
        self._link = link
        self._documents = documents
        self._hosts = hosts
        self._monotonic_ms = monotonic_ms
        self._chance = chance
        self._marks = marks or Marks()
        self._keep = keep
        self._accepts = accepts
        self._forget = forget
        self._took_over = took_over
        self._wants = wants
        self._reconnected = reconnected
        self._judged = judged
        self._hurry = hurry
        self._judgment = ("", False)
        self._since: Since | None = None
        self._told_by = ""  # the epoch of the last answer
        self._names: set[str] = set()
        self._named: tuple[str, ...] | None = None  # by the last answer, if all of it was taken
        self._past: dict[str, ShownScope] = {}
        self._adoptions: frozenset[str] = frozenset()
        self._refused: dict[str, _Refused] = {}
        self._not_kept = ""
        self._why_not = ""
        self._heard_ms: int | None = None
        self._asking_ms = 0
        self._now = asyncio.Event()
        self.asked_ms: int | None = None  # the last question whose answer is on show
        self.answers = 0
        self.failures = 0
        self.epochs = 0

    @property
    def up(self) -> bool:
        """True while control answers."""
        return self._heard_ms is not None and not self._why_not

    @property
    def age_s(self) -> float | None:
        """How long ago control last said that this is what to show; None if it never did."""
        if self._heard_ms is None:
            return None
        return max(0, self._monotonic_ms() - self._heard_ms) / 1_000

    @property
    def names(self) -> frozenset[str]:
        """The scopes on show."""
        return frozenset(self._names)

    @property
    def epoch(self) -> str:
        """The life of control whose changes were taken over last; empty if none were."""
        return "" if self._since is None else self._since.epoch

    @property
    def refused(self) -> frozenset[str]:
        """Scopes whose document control wants to take back to an older incarnation."""
        return frozenset(self._refused)

    @property
    def refuses(self) -> str:
        """Why nothing of control is obeyed, in words with the remedy; empty if it is."""
        if self._not_kept:
            return f"What guests are shown cannot be written down ({self._not_kept})."
        if self._refused:
            named = [str(self._refused[name].why) for name in sorted(self._refused)]
            more = len(named) - REFUSED_NAMED_MAX
            words = "; ".join(named[:REFUSED_NAMED_MAX]) + (f"; {more} more" if more > 0 else "")
            return f"{words[0].upper()}{words[1:]}. {REMEDY}"
        if self._marks.lost:
            return (
                f"What guests have read is not known any more: {self._marks.lost}. If this control"
                " is the right one, say `forewarn host accept-control` on the host."
            )
        return ""

    def resume(self, scopes: Sequence[ShownScope], *, heard_ms: int | None) -> None:
        """Show what was shown before this daemon began; control was last heard then, if known.

        Whatever control says replaces it, and what it does not name is dropped. What is below a
        mark was outdated when the daemon ended, and is not shown.
        """
        newest = [scope for scope in scopes if self._marks.above(scope) is None]
        self._marks = self._marks.raised(newest)
        for scope in newest:
            self._show(scope)
        self._heard_ms = heard_ms
        log.warning("last_documents_shown", host=self._host, scopes=len(self._names))

    def recall(self, scopes: Sequence[ShownScope]) -> None:
        """These were shown last. Their guests keep them if what control sends is refused."""
        for scope in scopes:
            self._remember(scope)

    def ask_now(self) -> None:
        """A caller waits for what control says from now on: `run` asks at once."""
        self._now.set()

    async def run(self) -> None:
        """Follow until canceled."""
        in_a_row = 0
        while True:
            if await self._turn(self._changes_now):
                in_a_row = 0
                await asyncio.sleep(ASK_AGAIN_AFTER_S)
                continue
            in_a_row += 1
            await asyncio.sleep(back_off_s(in_a_row, self._chance()))

    async def once(self) -> bool:
        """Ask once and take the answer over. False if there was none; logged once per reason."""
        return await self._turn(self._changes)

    async def _turn(self, question: Callable[[], Awaitable[Changes]]) -> bool:
        answered = await self._ask(question)
        judgment = (self.epoch, bool(self.refuses))
        if judgment != self._judgment:
            self._judgment = judgment
            self._judged()
        return answered

    async def _changes(self) -> Changes:
        self._asking_ms = self._monotonic_ms()
        return await self._link.changes(self._since, self._wait_s())

    async def _changes_now(self) -> Changes:
        """As above; a question that waits is given up and asked anew if `ask_now` is called."""
        self._now.clear()
        asking, wanted = (
            asyncio.ensure_future(self._changes()),
            asyncio.ensure_future(self._now.wait()),
        )
        try:
            await asyncio.wait([asking, wanted], return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
        finally:
            asking.cancel()
            wanted.cancel()
            await asyncio.gather(asking, wanted, return_exceptions=True)
        return await self._changes()

    async def _ask(self, question: Callable[[], Awaitable[Changes]]) -> bool:
        try:
            if self._accepts():
                await self._accept()
            await self._take_over(await question())
            if not self._refused:  # else what is on show is not what control said
                self.asked_ms = self._asking_ms
        except (Refusal, Unavailable) as why:
            self._lost(str(why))
            return False
        except OSError as why:
            self._could_not_keep(str(why))
            return False
        except Exception as error:
            if self._why_not != repr(error):
                log.exception("following_failed", host=self._host)
            self._why_not = repr(error)
            self.failures += 1
            return False
        return True

    def _wait_s(self) -> int:
        """After an outage nothing is waited for: whether control is there is news enough.

        Nor while a VM waits to be told what it is to read; but a control that is refused has
        nothing to say to it, and must not be asked in a circle.
        """
        if self._why_not:
            return 0
        if self.refuses:
            return REFUSING_WAIT_S
        return 0 if self._hurry() else WAIT_S

    def _could_not_keep(self, why: str) -> None:
        """What cannot be marked is not shown: guests keep what they have until it can."""
        self.failures += 1
        if why != self._not_kept:
            log.error(
                "marks_not_kept",
                host=self._host,
                why=why,
                remedy="make room in the data folder; until then guests keep their documents",
            )
        self._not_kept = self._why_not = why

    async def _accept(self) -> None:
        """Forget how far guests have come, as the operator wants it, and ask for everything."""
        await self._forget()
        log.warning("control_accepted", host=self._host, marks_forgotten=len(self._marks.of_vm))
        self._marks = Marks()
        self._past.clear()
        self._refused.clear()
        self._since = None

    def _lost(self, why: str) -> None:
        self.failures += 1
        if not self._why_not:
            log.warning("control_lost", host=self._host, why=why, documents_age_s=self.age_s)
        elif why != self._why_not:
            log.warning("control_still_lost", host=self._host, why=why)
        self._why_not = why

    async def _take_over(self, changes: Changes) -> None:
        """Mark and show what is new, drop what is not named any more, ring for work."""
        newest = self._accepted(changes)
        await self._mark(newest)
        back = bool(self._why_not) or self.answers == 0
        self._follow(changes, newest)
        if back:
            log.info("control_heard", host=self._host, scopes=len(self._names))
            self._reconnected()

    def take(self, changes: Changes) -> None:
        """Take an answer over without marking it: for a host that cannot outlive its control."""
        self._follow(changes, changes.scopes)

    @property
    def since(self) -> Since | None:
        """How far control was followed; None if everything has to be told."""
        return self._since

    def _accepted(self, changes: Changes) -> Sequence[ShownScope]:
        """The scopes that may be shown; the others are refused."""
        above = {scope.name: self._above(scope, changes.epoch) for scope in changes.scopes}
        for scope in changes.scopes:
            if (why := above[scope.name]) is not None:
                self._refuse(scope, _Refused(why, changes.epoch))
        return [scope for scope in changes.scopes if above[scope.name] is None]

    def _follow(self, changes: Changes, newest: Sequence[ShownScope]) -> None:
        another = changes.epoch != self._told_by
        if another:
            self._told_by = changes.epoch
            self.epochs += 1
        for scope in newest:
            self._refused.pop(scope.name, None)
            self._show(scope)
        gone = changes.names is not self._named and self._drop_all_but(frozenset(changes.names))
        # In one process names that have not changed are the same value, which saves a look.
        self._named = None if self._refused else changes.names
        self._since = self._followed(changes)
        self._heard_ms = self._monotonic_ms()
        self.answers += 1
        self._why_not = self._not_kept = ""
        if changes.work or another:  # which knows nothing of this daemon, or of its boot
            self._hosts.ring([self._host])
        self._adopt(changes.adoptions)
        if changes.scopes or gone:
            self._took_over()

    def _followed(self, changes: Changes) -> Since | None:
        """How far control is followed now.

        Another control than the one that was refused has said what is new since then, and may have
        nothing to say of what was refused: it is asked for everything, and judged by that.
        """
        of_another = any(one.epoch != changes.epoch for one in self._refused.values())
        if of_another and self._since is not None:
            return None
        return Since(changes.epoch, changes.position)

    def _above(self, scope: ShownScope, epoch: str) -> Above | None:
        """Why a document is refused. Orders raise its number; that brings back nothing lost.

        So what was refused once stays refused for the life of that control.
        """
        known = self._refused.get(scope.name)
        refused = known.why if known is not None and known.epoch == epoch else None
        return self._marks.above(scope) or refused

    async def _mark(self, scopes: Sequence[ShownScope]) -> None:
        """Write down how far guests are about to come, before any guest is shown it."""
        raised = self._marks.raised(scopes)
        if raised is self._marks:
            return
        raised = raised.at_most(MARKS_MAX, on_show=lambda: self._keys(scopes))
        await self._keep(raised)
        self._marks = raised

    def _keys(self, scopes: Sequence[ShownScope]) -> set[VmKey]:
        pages = (self._documents.page(name) for name in self._names)
        shown = [page.scope for page in pages if page is not None]
        return {key_of(vm) for scope in (*shown, *scopes) for vm in scope.vms}

    def _show(self, scope: ShownScope) -> None:
        self._past.pop(scope.name, None)
        self._names.add(scope.name)
        self._documents.show(scope)
        self._hosts.shown(self._host, scope)
        for vm in scope.waiting_for:
            self._documents.expect(vm)

    def _refuse(self, scope: ShownScope, refused: _Refused) -> None:
        """Leave the guests of the scope what they have read last, as far as that is known."""
        why = refused.why
        if scope.name not in self._refused:
            log.error(
                "incarnation_would_go_back",
                scope=why.scope,
                vm=why.vm,
                shown=why.marked,
                sent=why.sent,
                remedy=REMEDY,
            )
        self._refused[scope.name] = refused
        for vm in scope.vms:
            if self._documents.guest(vm.name) is None:
                self._show_past(key_of(vm))

    def _show_past(self, vm: VmKey) -> None:
        for scope in self._past.values():
            if vm in map(key_of, scope.vms) and self._marks.above(scope) is None:
                del self._past[scope.name]
                self._names.add(scope.name)
                self._documents.show(scope)  # unconfirmed: this control does not know it
                return

    def _drop_all_but(self, names: frozenset[str]) -> bool:
        """Drop what is not named; but a control that is refused takes nothing from guests."""
        for name in self._refused.keys() - names:
            del self._refused[name]
        if self._refused:
            return False
        gone = self._names - names
        for name in gone:
            page = self._documents.page(name)
            if page is not None:
                self._remember(page.scope)
            self._documents.drop(name)
        self._names -= gone
        return bool(gone)

    def _remember(self, scope: ShownScope) -> None:
        self._past.pop(scope.name, None)
        self._past[scope.name] = msgspec.structs.replace(scope, waiting_for=())
        while len(self._past) > PAST_MAX:
            del self._past[next(iter(self._past))]

    def _adopt(self, adoptions: Sequence[Adoption]) -> None:
        """Hand on what is new; control repeats each until it is answered.

        One that is refused has no more to say about a VM's owner than about its documents.
        """
        if self.refuses:
            return
        for adoption in adoptions:
            if adoption.adoption_id not in self._adoptions:
                self._wants(adoption)
        self._adoptions = frozenset(adoption.adoption_id for adoption in adoptions)
