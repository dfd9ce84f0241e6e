"""Time in the emulator: it stands, it is turned, it runs faster, and NotBefore is kept on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial

import pytest

from forewarn.control import operator_overview
from forewarn.control.timekeeper import Timekeeper
from forewarn.core.agent_polling import Reading
from forewarn.core.errors import Invalid
from forewarn.core.model import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, EventType
from forewarn.emulator.clock import LAST_MS, SPEED_MAX, EmulatedClock
from forewarn.testing import Cloud
from forewarn.text.durations import DURATION_MS_MAX
from forewarn.wire import operator_answers
from forewarn.wire.instants import time_text
from forewarn.wiring.simulate import SEEDED_START_MS, Emulator
from support import ordered
from support.clock import MonotonicClock
from support.emulator_world import NOTICE_MS, Emulated, emulated
from support.waiting import wait_until

YEAR_MS = 365 * DAY_MS


def test_a_virtual_clock_stands_still_until_it_is_turned() -> None:
    real = MonotonicClock()
    clock = EmulatedClock(start_ms=1_000, speed=0, real=real)
    real.pass_ms(60_000)
    assert clock.now_ms() == 1_000
    clock.advance_to(1_500)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_500, 500)


def test_a_fast_clock_runs_as_many_times_as_fast_and_can_be_turned_too() -> None:
    real = MonotonicClock()
    clock = EmulatedClock(start_ms=0, speed=60, real=real)
    real.pass_ms(1_000)
    assert clock.now_ms() == 60_000
    clock.advance_to(100_000)
    real.pass_ms(1)
    assert (clock.now_ms(), clock.monotonic_ms()) == (100_060, 100_060)


def test_a_clock_is_never_turned_back() -> None:
    clock = EmulatedClock(start_ms=1_000, speed=0, real=MonotonicClock())
    clock.advance_to(10)
    assert clock.now_ms() == 1_000


def test_a_clock_is_not_turned_beyond_what_can_be_written_as_a_date() -> None:
    clock = EmulatedClock(start_ms=0, speed=0, real=MonotonicClock())
    with pytest.raises(Invalid, match="year 8999"):
        clock.advance_to(LAST_MS + 1)


@pytest.mark.parametrize("start_ms", [-1, LAST_MS + 1])
def test_a_clock_does_not_start_where_there_are_no_dates(start_ms: int) -> None:
    with pytest.raises(Invalid, match="1970-01-01T00:00:00Z to 9000-01-01T00:00:00Z"):
        EmulatedClock(start_ms=start_ms, speed=0, real=MonotonicClock())


def test_what_is_ordered_when_the_clock_ends_can_still_be_written_as_a_date() -> None:
    with emulated(start_ms=LAST_MS) as world:
        world.restart()
        assert world.guest().document()["Events"][0]["NotBefore"].startswith("Wed, 01 Jan 9000")
        with pytest.raises(Invalid, match="year 8999"):
            world.next()


def test_time_that_passes_while_a_fast_clock_is_read_is_no_step_of_it() -> None:
    class Hurried(MonotonicClock):
        """A machine on which a millisecond passes with every fifth look."""

        looks = 0

        def monotonic_ms(self) -> int:
            self.looks += 1
            return self.monotonic + self.looks // 5

    timekeeper = Timekeeper(EmulatedClock(start_ms=0, speed=SPEED_MAX, real=Hurried()))
    assert {timekeeper.read().stepped_ms for _ in range(100)} == {0}


@pytest.mark.parametrize("speed", [-1, 3_601])
def test_a_speed_that_no_clock_has_is_refused(speed: int) -> None:
    with pytest.raises(Invalid, match="0 to 3600"):
        EmulatedClock(start_ms=0, speed=speed, real=MonotonicClock())


def test_nothing_happens_while_the_clock_stands() -> None:
    with emulated() as world:
        event_id = world.restart()
        before = world.guest().get()
        assert world.advance(0) == []
        after = world.guest().get()
        assert (before.body, before.headers["date"]) == (after.body, after.headers["date"])
        assert world.event(event_id)["phase"] == "scheduled"


def test_an_event_starts_at_its_not_before_and_no_millisecond_earlier() -> None:
    with emulated() as world:
        event_id = world.restart()
        world.advance(NOTICE_MS - 1)
        assert world.guest().document()["Events"][0]["EventStatus"] == "Scheduled"
        world.advance(1)
        shown = world.guest().document()["Events"][0]
        assert (shown["EventStatus"], shown["NotBefore"]) == ("Started", "")
        event = world.event(event_id)
        assert event["started"] == event["not_before"]


def test_advancing_goes_through_every_instant_on_the_way() -> None:
    with emulated() as world:
        event_id = world.restart()
        began_ms = world.now_ms()
        passed = world.advance(DAY_MS)
        assert [(i.at_ms - began_ms, i.what) for i in passed] == [
            (NOTICE_MS, "Reboot of vm0 may start"),
            (NOTICE_MS + 5 * SECOND_MS, "reboot-vm of vm0 ends"),
        ]
        event = world.event(event_id)
        assert _ms(event["started"]) == began_ms + NOTICE_MS
        assert _ms(event["ended"]) == began_ms + NOTICE_MS + 5 * SECOND_MS
        assert world.now_ms() == began_ms + DAY_MS


def test_next_goes_to_the_next_instant_at_which_something_is_due_and_no_further() -> None:
    with emulated() as world:
        world.restart()
        began_ms = world.now_ms()
        assert [i.at_ms for i in world.next()] == [began_ms + NOTICE_MS]
        assert world.now_ms() == began_ms + NOTICE_MS
        assert [i.at_ms for i in world.next()] == [began_ms + NOTICE_MS + 5 * SECOND_MS]
        assert world.guest().document()["Events"] == []
        assert world.next() == []


def test_what_is_done_to_a_host_without_vms_has_its_instants_too() -> None:
    with Cloud() as cloud:
        cloud.maintain("spare", "Reboot")
        assert [due.what for due in cloud.clock.upcoming()] == [
            "reboot-host of spare ends",
            "Reboot of spare fails",
        ]
        cloud.clock.next()
        assert cloud.clock.upcoming() == ()


def test_the_end_of_a_recovery_is_an_instant() -> None:
    with Cloud(scopes=["web:2"], domain_recovery_seconds=600) as cloud:
        cloud.approve(cloud.maintain("web_0", "Reboot"))
        (ended,) = {due.at for due in cloud.clock.next()}
        (recovered,) = cloud.clock.upcoming()
        assert recovered.what == "domain 0 of web has recovered"
        assert recovered.at - ended == timedelta(minutes=10)


def test_the_end_of_a_fault_is_an_instant() -> None:
    with Cloud() as cloud:
        began = cloud.clock.now
        cloud.faults.add("error", for_s="70s")
        assert [due.what for due in cloud.clock.next()] == ["a fault ends"]
        assert cloud.clock.now - began == timedelta(seconds=70)
        assert cloud.faults.list() == ()


@pytest.mark.parametrize("ms", [-1, DURATION_MS_MAX + 1])
def test_a_clock_that_is_turned_back_or_too_far_is_refused_and_stays(ms: int) -> None:
    with emulated() as world:
        began_ms = world.now_ms()
        with pytest.raises(Invalid, match="ten years"):
            world.advance(ms)
        assert world.now_ms() == began_ms


def test_what_an_approval_causes_has_happened_when_it_is_answered() -> None:
    with emulated() as world:
        guest = world.guest()
        event_id = world.restart()
        guest.document()
        assert guest.approve(event_id).status == 200
        assert guest.document()["Events"][0]["EventStatus"] == "Started"


def test_the_date_of_answers_is_the_emulators() -> None:
    with emulated() as world:
        world.advance(YEAR_MS)
        date = parsedate_to_datetime(world.guest().get().headers["date"])
        assert date == datetime(2027, 1, 1, tzinfo=UTC)
        assert _ms(date.isoformat()) == SEEDED_START_MS + YEAR_MS


def test_days_that_pass_in_a_moment_cost_no_notice() -> None:
    """Neither hosts nor the process count as silent or stopped: the notice is the promised one."""
    with emulated(scopes=["web:2"]) as world:
        world.advance(10 * DAY_MS)
        event_id = world.restart("web_0")
        world.advance(NOTICE_MS)
        event = world.event(event_id)
        assert (event["phase"], event["unreadable_seconds"]) == ("started", 0)
        assert event["started"] == event["not_before"]
        assert {line["kind"] for line in world.journal()}.isdisjoint({"downtime", "clock-stepped"})


def test_on_a_fast_clock_not_before_is_true_on_that_clock() -> None:
    with emulated(speed=3_600, freeze_seconds=0, reboot_seconds=0) as world:
        event_id = world.restart()
        guest = world.guest()
        seen = guest.get()
        left = parsedate_to_datetime(seen.json()["Events"][0]["NotBefore"]) - (
            parsedate_to_datetime(seen.headers["date"])
        )
        assert 0 < left.total_seconds() <= 901
        tag = seen.headers["etag"]
        # Held on real time until the document changes: by then the event has started.
        changed = guest.get(If_None_Match=tag, Prefer="wait=20")
        assert changed.status == 200
        event = world.event(event_id)
        assert event["phase"] in ("started", "completed")
        assert _ms(event["started"]) >= _ms(event["not_before"])


def test_on_the_fastest_clock_an_event_begins_and_ends_by_itself() -> None:
    with Cloud(clock=f"x{SPEED_MAX}") as cloud:
        for _ in range(40):
            event = cloud.restart("vm0")
            cloud.approve(event)
            cloud.expect_gone(event)
            at = {str(fact.kind): fact.at for fact in cloud.journal(event)}
            # How much later is a matter of the machine: 15 minutes are a quarter of a second.
            assert at["completed"] - at["started"] >= timedelta(seconds=5)


def test_a_real_clock_can_be_turned_as_well() -> None:
    with emulated(speed=1) as world:
        world.restart()
        began_ms = world.now_ms()
        assert [i.what for i in world.next()] == ["Reboot of vm0 may start"]
        assert world.guest().document()["Events"][0]["EventStatus"] == "Started"
        assert NOTICE_MS - SECOND_MS < world.now_ms() - began_ms < NOTICE_MS + MINUTE_MS


def test_a_wait_is_counted_on_real_time_and_not_on_the_clock_that_is_turned() -> None:
    with emulated() as world:
        guest = world.guest()
        tag = guest.get().headers["etag"]
        began_s = time.monotonic()
        answer = guest.get(If_None_Match=tag, Prefer="wait=1")
        assert answer.status == 304
        assert time.monotonic() - began_s >= 0.99  # the loop counts whole milliseconds


def test_guests_may_ask_as_often_as_they_like() -> None:
    with emulated() as world:
        guest = world.guest()
        assert {guest.get().status for _ in range(100)} == {200}


def test_a_scope_that_nobody_polls_for_a_day_falls_silent_where_enablement_is_by_polls() -> None:
    with emulated(enablement="first-poll") as world:
        world.guest().document()
        first = world.order(ordered.order_vm("vm0", EventType.REBOOT, by="operator"))
        assert not first["silent"]
        world.advance(DAY_MS + 2 * MINUTE_MS)
        assert world.order(ordered.order_vm("vm0", EventType.REDEPLOY, by="operator"))["silent"]


def test_a_scope_falls_silent_a_day_after_its_poll_however_far_the_clock_is_turned() -> None:
    with emulated(enablement="first-poll") as world:
        world.guest().document()
        assert [i.what for i in world.advance(10 * DAY_MS)] == ["scope vm0 falls silent"]
        silent = [fact for fact in world.journal() if fact["kind"] == "disabled"]
        assert [_ms(fact["at"]) for fact in silent] == [SEEDED_START_MS + DAY_MS]


def test_an_appointment_that_breaks_keeps_none_of_the_others_from_happening() -> None:
    kept: list[int] = []

    async def make(emulator: Emulator) -> None:
        async def breaks() -> None:
            raise ValueError("planted")

        async def keeps() -> None:
            kept.append(emulator.clock.now_ms())

        for act in (breaks, keeps, breaks, keeps):
            emulator.pacer.at(SEEDED_START_MS + MINUTE_MS, "something", act)

    with emulated() as world:
        world.background.call(make)
        for _ in range(2):
            with pytest.raises(ValueError, match="planted"):
                world.advance(MINUTE_MS)
        world.advance(0)
        assert kept == [SEEDED_START_MS + MINUTE_MS] * 2


def test_very_many_appointments_of_one_instant_are_kept_in_their_order_and_soon() -> None:
    kept: list[int] = []

    async def make(emulator: Emulator, count: int) -> None:
        def keeping(number: int) -> Callable[[], Awaitable[None]]:
            async def act() -> None:
                kept.append(number)

            return act

        for number in range(count):
            emulator.pacer.at(SEEDED_START_MS + MINUTE_MS, "something", keeping(number))

    took_s: list[float] = []
    for count in (3_000, 30_000):
        kept.clear()
        with emulated() as world:
            world.background.call(partial(make, count=count))
            began_s = time.process_time()  # of this process: what others take does not count
            world.advance(MINUTE_MS)
            took_s.append(time.process_time() - began_s)
            assert kept == list(range(count))
    assert took_s[1] < 40 * took_s[0]  # each looked for among the others: a hundred times


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


def test_a_scope_whose_agent_keeps_polling_stays_enabled_however_far_the_clock_is_turned() -> None:
    with emulated(enablement="first-poll", vms=["alive", "dead"]) as world:
        alive, stop = world.guest("alive"), threading.Event()
        world.guest("dead").document()

        def agent() -> None:
            while not stop.wait(0.05):
                alive.document()

        thread = threading.Thread(target=agent)
        thread.start()
        try:
            wait_until(lambda: _polls(world, "alive") > 1, "the agent polls")
            passed = [instant.what for instant in world.advance(3 * DAY_MS)]
        finally:
            stop.set()
            thread.join()
        assert passed.count("scope alive stays enabled: its agent polls") in (2, 3)
        assert "scope alive falls silent" not in passed
        assert passed.count("scope dead falls silent") == 1
        assert not world.order(ordered.order_vm("alive", EventType.REBOOT, by="operator"))["silent"]
        # Its agent has ended: a turned clock finds that out.
        later = [instant.what for instant in world.advance(3 * DAY_MS)]
        assert "scope alive falls silent" in later


def test_the_last_poll_of_a_vm_is_told_in_the_time_of_the_emulator() -> None:
    with emulated(vms=["vm0"]) as world:
        world.guest().document()
        polled_ms = world.now_ms()
        world.advance(6 * HOUR_MS)
        vm = _vm(world, "vm0")
        assert (vm.polled, vm.reading) == (time_text(polled_ms), Reading.READING)
        world.guest().document()
        world.advance(MINUTE_MS)
        assert _vm(world, "vm0").polled == time_text(polled_ms + 6 * HOUR_MS)


def _vm(world: Emulated, name: str) -> operator_answers.VmItem:
    async def shown(emulator: Emulator) -> operator_answers.VmItem:
        return operator_overview.vm_item(emulator.control.fleet, name)

    return world.background.call(shown)


def _polls(world: Emulated, vm: str) -> int:
    async def polls(emulator: Emulator) -> int:
        return emulator.visits.polls(vm)

    return world.background.call(polls)
