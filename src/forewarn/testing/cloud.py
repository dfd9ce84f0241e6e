"""The cloud of a test: a whole Forewarn in the background, driven by plain calls."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, Unpack, cast

from forewarn.core.errors import NotFound, Refusal
from forewarn.core.model import EventType, FactKind
from forewarn.core.suggestions import meant, shown
from forewarn.emulator.faults.book import Fault
from forewarn.ports import EVERYTHING, JournalLine, ListFilter
from forewarn.testing import expectations, orders
from forewarn.testing.aio import AsyncWaits
from forewarn.testing.arguments import CloudArguments, plan_of
from forewarn.testing.attached import attach
from forewarn.testing.background import CALL_TIMEOUT_S, Background
from forewarn.testing.clock import CloudClock
from forewarn.testing.expectations import WITHIN_S, Expectation, need_event
from forewarn.testing.faults import CloudFaults, fault_id_of
from forewarn.testing.instance import CloudInstance
from forewarn.testing.literals import ApiVersion, HostEventType
from forewarn.testing.orders import InWindow, When
from forewarn.testing.scenarios import ScenarioRun, scenario_of
from forewarn.testing.tracebacks import cut, for_refusals
from forewarn.testing.values import (
    Approval,
    CloudOperation,
    CloudVm,
    Event,
    EventLike,
    JournalFact,
    Read,
    event_of,
    fact_of,
    ids_of,
    name_of,
    read_of,
    time_of,
)
from forewarn.wire.api_versions import API_VERSIONS, NEWEST
from forewarn.wiring.simulate import Emulator

_NEWEST: Final = cast("ApiVersion", NEWEST.name)
EVENTS_MAX = 10_000
FACTS_MAX = 100_000
__tracebackhide__ = for_refusals


class Cloud:
    """One emulated fleet, from now until `close`.

    `with Cloud(scopes=["web:3"]) as cloud:`, or the fixtures `cloud` and `make_cloud` of pytest.
    `CloudArguments` says what can be said about it; without a word there is one VM, vm0.

    Every order is answered when everything that it causes has happened, so a test never waits for
    the cloud, only for the code it tests: that is what the `expect_...` are for. Their `within` is
    real seconds, whatever the clock of the cloud shows. A cloud can be used from any thread.

    Raises Invalid or BadInventory for words that make no sense, with nothing left behind; what is
    refused later is a Refusal too. After `close` everything but `close` raises Conflict.
    """

    def __init__(self, **words: Unpack[CloudArguments]) -> None:
        try:
            plan = plan_of(words)
        except Refusal as refusal:
            raise cut(refusal) from None
        self._background = Background(plan)
        self._finalizer = weakref.finalize(self, self._background.abandon)
        self.clock = CloudClock(self._background)
        self.faults = CloudFaults(self._background)
        self.instance = CloudInstance(self._background)
        self.aio = AsyncWaits(self._background)
        self._attaching = partial(attach, self._background)

    def __repr__(self) -> str:
        return f"<Cloud {self._background.summary()}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the cloud: no port, thread or task is left. A second time is without effect.

        Raises EmulatorBroke if something inside it has broken and no call has said so yet.
        """
        self._finalizer.detach()
        self._background.close()

    @property
    def closed(self) -> bool:
        """True once it has ended."""
        return self._background.closed

    def reset(self) -> None:
        """Have the fleet as it was at first: no event, fault, scenario or journal is left.

        For a cloud that several tests share. The clock starts again, and VMs that were deleted
        are back. What an app may hold on to stays: the URL of each VM and of the operator API. It
        sees incarnations go on and no EventId again. Attached processes are let go; connections
        are closed. What the cloud has returned before (events, faults, runs) is of no use after.
        """
        self._background.reset()

    @property
    def seed(self) -> int:
        """What EventIds and the choices of faults are made from: the one given, or its own."""
        return self._background.emulator.seed

    # The fleet.

    @property
    def vms(self) -> tuple[CloudVm, ...]:
        """Every VM: scope by scope in the order of their names, and in each as the inventory has
        its VMs.
        """

        async def work(emulator: Emulator) -> tuple[CloudVm, ...]:
            urls = emulator.urls()
            found = emulator.control.fleet.scopes.values()
            scopes = sorted(found, key=lambda scope: scope.name)
            return tuple(
                CloudVm(
                    name=vm.name,
                    url=urls[vm.name],
                    scope=scope.name,
                    host=vm.host,
                    update_domain=vm.update_domain,
                    attaching=self._attaching,
                )
                for scope in scopes
                for vm in scope.vms
                if vm.name in urls
            )

        return self._background.call(work)

    def vm(self, name: str) -> CloudVm:
        """The VM of that name. Raises NotFound."""
        by_name = {vm.name: vm for vm in self.vms}
        if name not in by_name:
            raise NotFound(f"There is no VM {shown(name)}.", meant(name, by_name))
        return by_name[name]

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of all hosts."""

        async def work(emulator: Emulator) -> tuple[str, ...]:
            return tuple(emulator.control.fleet.hosts_by_name)

        return self._background.call(work)

    # Orders.

    def restart(self, vm: str | CloudVm, *, window: InWindow | None = None) -> Event:
        """Order a Reboot, as the owner of the VM. `window` is as in `maintain`."""
        order = orders.order_vm(name_of(vm), EventType.REBOOT, window=window)
        return self._background.call(order)

    def redeploy(
        self, vm: str | CloudVm, *, window: InWindow | None = None, lose_disk: bool = False
    ) -> Event:
        """Order a Redeploy, as the owner of the VM; with `lose_disk` its local disks are lost."""
        order = orders.redeploy(name_of(vm), window=window, lose_disk=lose_disk)
        return self._background.call(order)

    def delete(self, vm: str | CloudVm, *, window: InWindow | None = None) -> Event:
        """Order a Terminate, as the owner of the VM."""
        order = orders.order_vm(name_of(vm), EventType.TERMINATE, window=window)
        return self._background.call(order)

    def evict(self, vm: str | CloudVm, *, window: InWindow | None = None) -> Event:
        """Want the place of a Spot VM back: a Preempt. Raises NotSpot for a regular one."""
        order = orders.order_vm(name_of(vm), EventType.PREEMPT, window=window)
        return self._background.call(order)

    def maintain(
        self,
        where: str | CloudVm,
        event_type: HostEventType,
        *,
        not_before: When | None = None,
        window: InWindow | None = None,
        duration: int | None = None,
        description: str | None = None,
        break_domains: bool = False,
        lose_disk: bool = False,
    ) -> CloudOperation:
        """Freeze or reboot a host, or move its VMs away (Redeploy).

        `where` is a host, or a VM on it. `not_before` is the earliest start without approval: an
        aware datetime, a timedelta from now or a text like +2h. `window` is two of these: outside
        of it nothing starts, approved or not. `duration` is the seconds of a Freeze, `description`
        what guests read; a Redeploy with `lose_disk` loses the local disks of what it moves.
        """
        return self._background.call(
            orders.maintain(
                name_of(where),
                event_type,
                not_before=not_before,
                window=window,
                duration=duration,
                description=description,
                break_domains=break_domains,
                lose_disk=lose_disk,
            )
        )

    def degrade(
        self,
        where: str | CloudVm,
        *,
        not_before: When | None = None,
        window: InWindow | None = None,
    ) -> CloudOperation:
        """Say that a host's hardware is expected to fail; its VMs move, a week ahead unless told.

        `where` is a host, or a VM on it; `not_before` and `window` are as in `maintain`.
        """
        order = orders.degrade(name_of(where), not_before=not_before, window=window)
        return self._background.call(order)

    def fail(self, where: str | CloudVm, *, fenced: bool = False) -> tuple[Event, ...]:
        """Cut the power of a host and say that it has failed, with `fenced` that it is surely off.

        Its VMs get a Reboot that has started already; those events are returned.
        """
        return self._background.call(orders.fail(name_of(where), fenced=fenced))

    def repair(self, where: str | CloudVm) -> None:
        """Say that a degraded or failed host is well again."""
        self._background.call(orders.repair(name_of(where)))

    def cancel(self, event: EventLike) -> None:
        """Cancel what has not started; an operation is canceled whole. Raises AlreadyStarted."""
        self._background.call(orders.cancel(ids_of(event)))

    def postpone(self, event: Event | str, until: When, *, reason: str = "") -> Event:
        """Withdraw an event of maintenance and announce it anew, later; the new event.

        `until` is its earliest start without approval, as `not_before` in `maintain`, and its
        notice begins anew. All events of a Freeze or Reboot of a host move together. Raises
        NotPostponable for other events, AlreadyStarted for what has started.
        """
        return self._background.call(orders.postpone(ids_of(event)[0], until, reason))

    def approve(self, event: EventLike, *, reason: str = "the test approves it") -> None:
        """Approve as an operator, in place of a VM. What has ended raises Conflict."""
        self._background.call(orders.approve(ids_of(event), reason))

    def scenario(self, script: str | Path, *, on: str | CloudVm | None = None) -> ScenarioRun:
        """Run a scenario on a VM or scope, or on the first that will do; take what is due now.

        `script` is the name of a shipped one, the path of a file (a Path, or a text that ends in
        .toml), or the script itself.
        """
        try:
            scenario = scenario_of(script)
        except Refusal as refusal:
            raise cut(refusal) from None
        run = self._background.call(lambda e: e.scenarios.start(scenario, name_of(on)))
        return ScenarioRun(self._background, run)

    # What is the case.

    def document(self, vm: str | CloudVm, api_version: ApiVersion = _NEWEST) -> dict[str, Any]:
        """What the VM would read now. A peek: it does not count as read by the VM."""
        if api_version not in API_VERSIONS:
            raise NotFound(
                f"There is no api-version {shown(api_version)}.", meant(api_version, API_VERSIONS)
            )

        async def work(emulator: Emulator) -> bytes:
            return emulator.document(name_of(vm), api_version)

        document: dict[str, Any] = json.loads(self._background.call(work))
        return document

    def events(self, *, ended: bool = False) -> tuple[Event, ...]:
        """The open events, oldest first; with `ended` those that have ended too."""
        found = self._background.call(
            lambda emulator: emulator.control.read(
                lambda store: store.events(EVERYTHING, open_only=not ended, limit=EVENTS_MAX)
            )
        )
        return tuple(event_of(one.event) for one in reversed(found))

    def event(self, event: Event | str) -> Event:
        """The event as it is now, also if it has ended. Raises NotFound."""
        event_id = ids_of(event)[0]
        return event_of(
            self._background.call(
                lambda emulator: emulator.control.read(lambda store: need_event(store, event_id))
            )
        )

    def journal(self, event: Event | str | None = None) -> tuple[JournalFact, ...]:
        """Everything that has happened, or happened to one event, oldest first."""
        return tuple(fact_of(line) for line in self._lines(event))

    def approvals(self, event: Event | str | None = None) -> tuple[Approval, ...]:
        """Who approved what, oldest first. Approving once more is without effect and not here."""
        return tuple(
            Approval(event_id=fact.event_id or "", by=fact.by or "", at=time_of(fact.at_ms))
            for fact in (line.fact for line in self._lines(event))
            if fact.kind is FactKind.APPROVED
        )

    def reads(self, event: Event | str) -> tuple[Read, ...]:
        """Which VMs were sent the event, and when first, oldest first."""
        event_id = ids_of(event)[0]

        async def work(emulator: Emulator) -> tuple[Read, ...]:
            await emulator.pacer.settle()  # first reads are kept when everything is settled
            found = await emulator.control.read(lambda store: store.first_reads(event_id))
            return tuple(read_of(one) for one in found)

        return self._background.call(work)

    def polls(self, vm: str | CloudVm) -> int:
        """How often the VM has asked for its document, whatever it was answered."""

        async def work(emulator: Emulator) -> int:
            return expectations.polls_of(emulator, name_of(vm))

        return self._background.call(work)

    # The operator API, for code that needs it.

    @property
    def operator_url(self) -> str:
        """Where the operator API is. It is opened when it is first asked for."""
        return self._background.operator()[0]

    @property
    def operator_token(self) -> str:
        """The token of the operator API."""
        return self._background.operator()[1]

    @property
    def environment(self) -> dict[str, str]:
        """What the command line `forewarn` needs in its environment to drive this cloud."""
        url, token = self._background.operator()
        return {"FOREWARN_URL": url, "FOREWARN_TOKEN": token}

    def report(self, path: str | Path, *, title: str = "", failure: str = "") -> Path:
        """Write everything that has happened as one HTML page, and return where it is.

        It has a timeline of requests and facts, every document that was read, the journal and the
        faults. Folders that are missing are made. `--forewarn-html DIR` has pytest do it for each
        test that fails.
        """
        from forewarn import __version__  # noqa: PLC0415 - most tests write none
        from forewarn.testing.report import gathered, page_of  # noqa: PLC0415

        found = self._background.call(gathered)
        target = Path(path)
        page = page_of(found, title=title or target.stem, failure=failure, version=__version__)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page, encoding="utf-8")
        return target

    # What is expected of the code under test.

    def expect_approved(
        self, event: EventLike, *, by: str | CloudVm | None = None, within: float = WITHIN_S
    ) -> None:
        """The event, or each of several, is approved, and with `by` by that VM.

        Fails at once if it has started or ended without.
        """
        __tracebackhide__ = True
        self._expect(expectations.approved(ids_of(event), by=name_of(by)), within)

    def expect_not_approved(self, event: EventLike, *, within: float = 0) -> None:
        """No VM has approved the event, and none does in the next `within` seconds.

        Without `within` this is one look, which proves something only if the app has had its turn.
        """
        __tracebackhide__ = True
        self._expect(expectations.not_approved(ids_of(event)), within)

    def expect_started(self, event: EventLike, *, within: float = WITHIN_S) -> None:
        """The event has started. On a virtual clock an approved one starts at once."""
        __tracebackhide__ = True
        self._expect(expectations.started(ids_of(event)), within)

    def expect_gone(self, event: EventLike, *, within: float = WITHIN_S) -> None:
        """The event has left the document: completed, failed or canceled.

        On a virtual clock that is when the clock has been turned past its impact.
        """
        __tracebackhide__ = True
        self._expect(expectations.gone(ids_of(event)), within)

    def expect_read(self, vm: str | CloudVm, event: EventLike, *, within: float = WITHIN_S) -> None:
        """The VM was sent a document with the event in it. Fails at once if that is gone."""
        __tracebackhide__ = True
        self._expect(expectations.read(name_of(vm), ids_of(event)), within)

    def expect_polled(
        self, vm: str | CloudVm, *, more_than: int = 0, within: float = WITHIN_S
    ) -> None:
        """The VM has asked for its document, and more often than that; see `polls`."""
        __tracebackhide__ = True
        self._expect(expectations.polled(name_of(vm), more_than=more_than), within)

    def expect_met(
        self, fault: Fault | str, *, times: int | None = None, within: float = WITHIN_S
    ) -> None:
        """The fault has hit so many requests; without `times` its whole `count`, or one."""
        __tracebackhide__ = True
        self._expect(expectations.met(fault_id_of(fault), times=times), within)

    def _expect(self, expectation: Expectation, within_s: float) -> None:
        __tracebackhide__ = True
        wrong = self._background.call(
            expectations.judging(expectation, within_s),
            timeout_s=within_s + CALL_TIMEOUT_S,
        )
        if wrong:
            raise AssertionError(f"{wrong}{_of_a_loop()}" if within_s else wrong)

    def _lines(self, event: Event | str | None) -> Sequence[JournalLine]:
        about = ListFilter(event_id=None if event is None else ids_of(event)[0])
        return self._background.call(
            lambda emulator: emulator.control.read(
                lambda store: store.journal(about, after=0, limit=FACTS_MAX)
            )
        )


def _of_a_loop() -> str:
    """What a failed wait of a cloud adds if the test runs in an event loop: its app stood still."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ""
    return (
        "\n  The event loop of this test stood still meanwhile: if the app runs in it, use"
        " `await cloud.aio.expect_...`."
    )
