"""`cloud.aio`: the waits of a cloud as coroutines, for tests whose app runs in their own loop."""

from __future__ import annotations

from forewarn.emulator.faults.book import Fault
from forewarn.testing import expectations
from forewarn.testing.background import Background
from forewarn.testing.expectations import WITHIN_S, Expectation
from forewarn.testing.faults import fault_id_of
from forewarn.testing.tracebacks import for_refusals
from forewarn.testing.values import CloudVm, EventLike, ids_of, name_of

__tracebackhide__ = for_refusals


class AsyncWaits:
    """The same waits as those of `Cloud`, awaited: the event loop of the test goes on meanwhile.

    For asyncio. Everything else of a cloud takes a few milliseconds and does not wait.
    """

    def __init__(self, background: Background) -> None:
        self._background = background

    async def expect_approved(
        self, event: EventLike, *, by: str | CloudVm | None = None, within: float = WITHIN_S
    ) -> None:
        """See `Cloud.expect_approved`."""
        __tracebackhide__ = True
        await self._expect(expectations.approved(ids_of(event), by=name_of(by)), within)

    async def expect_not_approved(self, event: EventLike, *, within: float = 0) -> None:
        """See `Cloud.expect_not_approved`."""
        __tracebackhide__ = True
        await self._expect(expectations.not_approved(ids_of(event)), within)

    async def expect_started(self, event: EventLike, *, within: float = WITHIN_S) -> None:
        """See `Cloud.expect_started`."""
        __tracebackhide__ = True
        await self._expect(expectations.started(ids_of(event)), within)

    async def expect_gone(self, event: EventLike, *, within: float = WITHIN_S) -> None:
        """See `Cloud.expect_gone`."""
        __tracebackhide__ = True
        await self._expect(expectations.gone(ids_of(event)), within)

    async def expect_read(
        self, vm: str | CloudVm, event: EventLike, *, within: float = WITHIN_S
    ) -> None:
        """See `Cloud.expect_read`."""
        __tracebackhide__ = True
        await self._expect(expectations.read(name_of(vm), ids_of(event)), within)

    async def expect_polled(
        self, vm: str | CloudVm, *, more_than: int = 0, within: float = WITHIN_S
    ) -> None:
        """See `Cloud.expect_polled`."""
        __tracebackhide__ = True
        await self._expect(expectations.polled(name_of(vm), more_than=more_than), within)

    async def expect_met(
        self, fault: Fault | str, *, times: int | None = None, within: float = WITHIN_S
    ) -> None:
        """See `Cloud.expect_met`."""
        __tracebackhide__ = True
        await self._expect(expectations.met(fault_id_of(fault), times=times), within)

    async def _expect(self, expectation: Expectation, within_s: float) -> None:
        __tracebackhide__ = True
        wrong = await self._background.call_async(expectations.judging(expectation, within_s))
        if wrong:
            raise AssertionError(wrong)
