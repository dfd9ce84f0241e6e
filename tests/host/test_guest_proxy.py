"""What guests do, as control hears of it: at once or gathered, with ages and bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from forewarn.core.errors import NotYours, Unavailable, UnknownEventIds
from forewarn.host import guest_proxy
from forewarn.host.guest_proxy import TRACES_SENT_EVERY_S, VM_POLLS_SENT_EVERY_S, GuestProxy
from forewarn.wire.link import FIRST_READS_MAX, ReadBefore
from support.clock import ManualClock
from support.unasked_link import UnaskedLink
from support.waiting import until


class Control(UnaskedLink):
    """Keeps what it is told; raises what is in `refusals`, one each."""

    def __init__(self) -> None:
        self.told: list[guest_proxy.Traces] = []
        self.refusals: list[Exception] = []

    def _meets(self) -> None:
        if self.refusals:
            raise self.refusals.pop(0)

    async def approve(self, vm: str, event_ids: tuple[str, ...]) -> None:  # noqa: ARG002
        self._meets()

    async def enable(self, _scope: str, _vm: str) -> None:
        self._meets()


class Bench:
    """Guests of one host. Made inside an event loop."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.control = Control()
        self.polls: dict[str, int] = {}
        self.vm_polls: dict[str, int] = {}
        self.wanted = 0
        self.guests = GuestProxy(
            self.control,
            polled=self._polled,
            now_ms=self.clock.now_ms,
            monotonic_ms=self.clock.monotonic_ms,
            want_turn=self._want_turn,
            vm_polled=self._vm_polled,
        )

    def _want_turn(self) -> None:
        self.wanted += 1

    async def send(self) -> None:
        """What is gathered is said in turns, until control has taken all of it."""
        await self.guests.tell_all(self._turn)

    async def _turn(self) -> None:
        said = self.guests.gathered()
        self.control._meets()
        self.control.told.append(said)
        self.guests.told(said)

    def _polled(self) -> dict[str, int]:
        fresh, self.polls = self.polls, {}
        return fresh

    def _vm_polled(self) -> dict[str, int]:
        fresh, self.vm_polls = self.vm_polls, {}
        return fresh


def run(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await test(Bench())

    asyncio.run(main())


def test_first_reads_are_told_with_their_age() -> None:
    async def test(bench: Bench) -> None:
        bench.guests.first_read("web_0", "web", frozenset({"E2", "E1"}))
        bench.clock.pass_ms(1_500)
        bench.guests.first_read("web_1", "web", frozenset({"E1"}))
        await bench.send()

        (told,) = bench.control.told
        assert told.first_reads == (
            ReadBefore("web", "E1", "web_0", 1_500),
            ReadBefore("web", "E2", "web_0", 1_500),
            ReadBefore("web", "E1", "web_1", 0),
        )

    run(test)


def test_what_control_could_not_take_is_told_later_with_its_age_of_then() -> None:
    async def test(bench: Bench) -> None:
        bench.guests.first_read("web_0", "web", frozenset({"E1"}))
        bench.guests.returned("web_0")
        bench.control.refusals = [Unavailable("away")]
        with pytest.raises(Unavailable):
            await bench.send()
        bench.clock.pass_ms(60_000)
        await bench.send()
        await bench.send()

        (told,) = bench.control.told
        assert told.first_reads == (ReadBefore("web", "E1", "web_0", 60_000),)
        assert told.returned == ("web_0",)

    run(test)


def test_polls_are_told_as_ages_and_kept_over_an_outage() -> None:
    async def test(bench: Bench) -> None:
        bench.polls = {"web": bench.clock.now_ms() - 2_000}
        bench.guests.gather_polls()
        bench.control.refusals = [Unavailable("away")]
        with pytest.raises(Unavailable):
            await bench.send()
        bench.clock.pass_ms(1_000)
        await bench.send()

        assert [told.polls for told in bench.control.told] == [{"web": 3_000}]

    run(test)


def test_an_age_is_never_negative_though_the_clock_of_control_was_set_back() -> None:
    async def test(bench: Bench) -> None:
        bench.polls = {"web": bench.clock.now_ms()}
        bench.guests.gather_polls()
        bench.clock.wall -= 3_600_000
        await bench.send()

        assert bench.control.told[0].polls == {"web": 0}

    run(test)


def test_queues_are_bounded_and_what_does_not_fit_is_counted() -> None:
    async def test(bench: Bench) -> None:
        some = frozenset(f"E{number}" for number in range(1_000))
        for number in range(guest_proxy.FIRST_READS_QUEUED_MAX // 1_000 + 1):
            bench.guests.first_read(f"vm{number}", "web", some)
        assert bench.guests.dropped == 1_000
        await bench.send()

        counts = [len(told.first_reads) for told in bench.control.told]
        assert sum(counts) == guest_proxy.FIRST_READS_QUEUED_MAX
        assert max(counts) == FIRST_READS_MAX

    run(test)


def test_what_happens_while_a_turn_is_under_way_is_said_in_the_next() -> None:
    async def test(bench: Bench) -> None:
        bench.guests.first_read("web_0", "web", frozenset({"E1"}))
        bench.guests.add_polls({"web": 1_000, "api": 1_000})
        said = bench.guests.gathered()
        bench.guests.first_read("web_1", "web", frozenset({"E1"}))
        bench.guests.returned("web_1")
        bench.guests.add_polls({"web": 2_000})
        bench.guests.told(said)
        assert bench.guests.waiting
        rest = bench.guests.gathered()
        assert [read.vm for read in rest.first_reads] == ["web_1"]
        assert (rest.returned, set(rest.polls)) == (("web_1",), {"web"})
        bench.guests.told(rest)
        assert bench.guests.gathered() == guest_proxy.NOTHING

    run(test)


def test_a_vm_that_returns_again_before_its_first_return_is_answered_is_told_twice() -> None:
    """Control took the first one, the VM was restarted once more, and then the answer came."""

    async def test(bench: Bench) -> None:
        for vm in ("web_0", "web_1"):
            bench.guests.returned(vm)
        said = bench.guests.gathered()
        bench.guests.returned("web_0")
        bench.guests.told(said)
        assert said.returned == ("web_0", "web_1")
        assert bench.guests.gathered().returned == ("web_0",)
        bench.guests.told(bench.guests.gathered())
        assert not bench.guests.waiting

    run(test)


def test_nobody_is_told_for_ever_who_does_not_listen() -> None:
    async def test(bench: Bench) -> None:
        bench.guests.first_read("web_0", "web", frozenset({"E1"}))
        said = 0

        async def deaf() -> None:
            nonlocal said
            said += 1

        await bench.guests.tell_all(deaf)
        assert said == 1

    run(test)


def test_an_approval_is_refused_as_control_refuses_it() -> None:
    async def test(bench: Bench) -> None:
        await bench.guests.approve("web_0", ("E1",))
        bench.control.refusals = [UnknownEventIds("no such id"), Unavailable("away")]
        with pytest.raises(UnknownEventIds):
            await bench.guests.approve("web_0", ("E1",))
        with pytest.raises(Unavailable):
            await bench.guests.approve("web_0", ("E1",))

    run(test)


def test_a_vm_that_control_knows_elsewhere_is_asked_to_try_again() -> None:
    async def test(bench: Bench) -> None:
        bench.control.refusals = [NotYours("web_0 is on h2"), NotYours("web_0 is on h2")]
        with pytest.raises(Unavailable):
            await bench.guests.approve("web_0", ("E1",))
        with pytest.raises(Unavailable):
            await bench.guests.enable("web", "web_0")

    run(test)


def test_a_turn_is_wanted_soon_after_something_happened() -> None:
    async def test(bench: Bench) -> None:
        sending = asyncio.ensure_future(bench.guests.run())
        bench.guests.returned("web_0")
        try:
            await until(lambda: bench.wanted, "a turn is wanted")
        finally:
            sending.cancel()
        assert bench.wanted == 1
        assert bench.guests.gathered().returned == ("web_0",)

    run(test)


def test_a_vm_that_others_rebooted_is_told_until_it_is_taken_and_once_a_minute() -> None:
    async def test(bench: Bench) -> None:
        bench.guests.rebooted("web_0")
        bench.guests.rebooted("web_0")  # it boots in a loop
        bench.control.refusals = [Unavailable("away")]
        with pytest.raises(Unavailable):
            await bench.send()
        await bench.send()
        bench.clock.pass_ms(59_999)
        bench.guests.rebooted("web_0")
        assert not bench.guests.waiting
        bench.clock.pass_ms(1)
        bench.guests.rebooted("web_0")
        await bench.send()
        assert [told.rebooted for told in bench.control.told] == [("web_0",), ("web_0",)]

    run(test)


def test_polls_of_vms_are_told_as_ages_and_those_that_came_since_are_kept() -> None:
    async def test(bench: Bench) -> None:
        bench.vm_polls = {"web_0": bench.clock.now_ms() - 2_000, "web_1": bench.clock.now_ms()}
        bench.guests.gather_vm_polls()
        bench.control.refusals = [Unavailable("away")]
        with pytest.raises(Unavailable):
            await bench.send()
        bench.clock.pass_ms(1_000)
        bench.vm_polls = {"web_1": bench.clock.now_ms()}
        bench.guests.gather_vm_polls()
        await bench.send()
        await bench.send()

        assert [told.vm_polls for told in bench.control.told] == [{"web_0": 3_000, "web_1": 0}]

    run(test)


def test_a_host_tells_the_polls_of_its_vms_often_enough() -> None:
    """The rest of the fifteen seconds is for the turn, and for who asks."""
    assert VM_POLLS_SENT_EVERY_S + TRACES_SENT_EVERY_S <= 11
