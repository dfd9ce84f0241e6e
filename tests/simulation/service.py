"""Control's process in the simulated world: one life of it, and what it keeps for the next.

Everything in it is the deployed code; only the store can be told to fail, and who has joined is
kept in memory. What hosts ask is decoded, answered by the handlers of the link, and encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, ParamSpec, TypeVar

import msgspec

from forewarn.api.link.routes import Asker, LinkRoutes
from forewarn.control import command_json
from forewarn.control.agenda import Agenda
from forewarn.control.command_log import Began, LoggedBatch, TakenBack
from forewarn.control.commands import Command
from forewarn.control.control import Control
from forewarn.control.hosts import feed_positions
from forewarn.control.hosts.host_feed import HostFeed
from forewarn.control.hosts.liveness import Observed
from forewarn.control.hosts.membership import Membership, Signing
from forewarn.control.hosts.report_intake import ReportIntake
from forewarn.core.errors import Invalid, Refusal, Unavailable
from forewarn.core.invariants import InvariantBroken
from forewarn.core.membership import Members
from forewarn.core.model import Policy
from forewarn.ports import Change, StaleRevision, StoreFailed
from forewarn.wire import problems
from simulation.faulty_store import FaultyStore
from simulation.judge import Broken
from simulation.sim_clock import SimClock
from support import ordered
from support.control import ControlParts, run_now
from support.ids import CountedIds
from support.ordered import Given

P = ParamSpec("P")
T = TypeVar("T")

FOREVER_MS = 2**53


async def aside(work: Callable[P, T], /, *given: P.args, **named: P.kwargs) -> T:
    """What takes a while elsewhere takes none here."""
    return work(*given, **named)


@dataclass(frozen=True, slots=True)
class Certificate:
    """Who a host is: its name and its key, in the open."""

    name: str
    key: str
    until_ms: int = FOREVER_MS


@lru_cache(maxsize=1_000)
def read_certificate(text: bytes | str) -> Certificate:
    words = text.decode() if isinstance(text, bytes) else text
    name, _, key = words.partition(" ")
    return Certificate(name, key)


SIGNING = Signing(
    fingerprint="the-authority",
    pem="the-authority",
    read_request=read_certificate,
    read_peer=read_certificate,
    sign=lambda request, _: request,
)


@dataclass
class Durable:
    """What outlives a life of control."""

    store: FaultyStore
    members: Members = field(default_factory=Members)
    log: list[bytes] | None = None  # the command log, if somebody wants it

    def keep_members(self, members: Members) -> None:
        self.store.meet_before()
        self.members = members
        self.store.meet_after()

    def began(self, monotonic_ms: int, policy: Policy) -> None:
        """A life of control begins: the command log says so."""
        if self.log is not None:
            position = self.store.position()
            began = Began(monotonic_ms=monotonic_ms, position=position, policy=policy)
            self.log.append(command_json.entry_written(began))

    def logged(self, entry: LoggedBatch | TakenBack) -> None:
        """Keep an entry of the command log. Questions of the world itself are no commands."""
        if self.log is None:
            return
        if isinstance(entry, LoggedBatch):
            said = tuple(c for c in entry.commands if not isinstance(c, ordered.Acting))
            entry = msgspec.structs.replace(entry, commands=said)
        self.log.append(command_json.entry_written(entry))


def spoken(command: Command[T]) -> Command[T]:
    """A command as another control reads it."""
    if isinstance(command, ordered.Acting):
        return command
    return command_json.read(command_json.written(command))


class Service:
    """One life of control. Raises Crash wherever the store is told to."""

    def __init__(
        self,
        durable: Durable,
        *,
        clock: SimClock,
        ids: CountedIds,
        policy: Policy,
        committed: Callable[[Sequence[Change]], None],
    ) -> None:
        store = durable.store
        durable.began(clock.monotonic_ms(), policy)
        parts = ControlParts(store, clock=clock, observed=Observed(clock), policy=policy, ids=ids)
        snapshot = parts.snapshot
        self.heartbeat_ms = snapshot.heartbeat_ms
        self.fleet, self.volatile = parts.published, parts.volatile
        self.control: Control = parts.inline_control(self.run)
        self.writer = parts.writer(
            self.fleet.publish, command_log=None if durable.log is None else durable.logged
        )
        self.agenda = Agenda(self.fleet)
        self.report_intake = ReportIntake(clock, self.volatile)
        history = feed_positions.begin(store, snapshot)
        self.host_feed = HostFeed(
            history, adoptions=self.report_intake.adoptions_for, asked=parts.observed.asks
        )
        self.report_intake.on_adoption(self.host_feed.ring)
        self.host_feed.load(
            self.fleet.scopes.values(), self.fleet.operations.values(), snapshot.shown
        )
        self.fleet.on_publish(self.host_feed.published)
        self.fleet.on_publish(self.agenda.published)
        self.fleet.on_publish(committed)
        self.membership = Membership(
            durable.members,
            keep=durable.keep_members,
            signing=SIGNING,
            control=self.control,
            clock=clock,
            aside=aside,
        )
        routes = LinkRoutes(
            self.control, host_feed=self.host_feed, report_intake=self.report_intake
        )
        self._table = routes.table()

    def run(self, command: Given[T]) -> T:
        """Run one command as its own commit. Raises its Refusal, Unavailable, or Crash.

        Commands, answers and refusals go through JSON, as between two controls.
        """
        wanted = ordered.wanted(command)
        said = spoken(wanted if isinstance(wanted, Command) else wanted.command)
        try:
            done = self.writer.run([said])[0]
        except StoreFailed as failed:
            raise Unavailable(str(failed)) from None
        if isinstance(done.error, InvariantBroken):
            raise Broken(str(done.error))
        if done.error is not None:
            if not isinstance(done.error, Refusal | StaleRevision | Unavailable):
                raise Broken(f"a command broke: {done.error!r}") from done.error
            if isinstance(done.error, StaleRevision):
                raise done.error
            raise command_json.refusal_read(command_json.refusal_written(done.error))
        if isinstance(said, ordered.Acting):
            return done.value  # type: ignore[no-any-return]
        return command_json.answer_read(said, command_json.answer_written(done.value))

    def answer(self, certificate: bytes, name: str, body: bytes) -> tuple[int, bytes, Any]:
        """Status, body and the question as it was understood (None if it was not)."""
        question: Any = None
        try:
            member = self.membership.need_member(certificate)
            question = self._read(name, body)
            asker = Asker(member.name, partial(self.membership.need_still, member))
            asking = self._table[name]
            answer = None if asking.at_once is None else asking.at_once(asker, question)
            if answer is None:  # as deployed: what can be answered at once costs no transaction
                answer = run_now(asking.answer(asker, question))
            self.membership.need_member(certificate)
        except (Refusal, Unavailable) as why:
            status = problems.status_of(why)
            return status, msgspec.json.encode(problems.problem_json(why, status)), question
        return 200, msgspec.json.encode(answer), question

    def _read(self, name: str, body: bytes) -> object:
        try:
            return self._table[name].read(body)
        except msgspec.DecodeError as error:
            raise Invalid(f"The question was not understood: {error}.", "") from None
