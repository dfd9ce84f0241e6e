"""Following control: what is shown, what is dropped, and what is never taken back."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from forewarn.core.errors import Unavailable
from forewarn.core.incarnation_marks import Marks
from forewarn.core.model import Recovery, Scope
from forewarn.host.feed_reader import (
    BACK_OFF_MAX_S,
    REFUSING_WAIT_S,
    WAIT_S,
    FeedReader,
    back_off_s,
)
from forewarn.host.identity import Identity
from forewarn.host.served_documents import Documents
from forewarn.wire.link import Adoption, Changes, ShownScope, Since, VmTraits
from support.clock import ManualClock
from support.core_fleet import WEB, scope
from support.shown_scopes import as_shown
from support.unasked_link import UnaskedLink
from support.waiting import until


class ScriptedControl(UnaskedLink):
    """Answers with what is in `answers`, one each; after the last one it is away."""

    def __init__(self) -> None:
        self.answers: list[Changes | Exception] = []
        self.asked: list[Since | None] = []
        self.waits: list[int] = []
        self.before: Callable[[], None] = lambda: None

    async def changes(self, since: Since | None, wait_s: int) -> Changes:
        self.asked.append(since)
        self.waits.append(wait_s)
        self.before()
        answer = self.answers.pop(0) if self.answers else Unavailable("away")
        if isinstance(answer, Exception):
            raise answer
        return answer


class Noted:
    """What the follower tells the hosts."""

    def __init__(self) -> None:
        self.shows: list[tuple[str, int]] = []
        self.rings: list[str] = []

    def shown(self, host: str, scope: ShownScope) -> None:
        assert host == "h1"
        self.shows.append((scope.name, scope.incarnation))

    def ring(self, hosts: Sequence[str]) -> None:
        self.rings.extend(hosts)


class Bench:
    """A follower of a scripted control. Made inside an event loop."""

    def __init__(self, marks: Marks | None = None) -> None:
        self.control = ScriptedControl()
        self.kept: list[Marks] = []
        self.shown_when_kept: list[int | None] = []
        self.full = False
        self.accepts = self.hurry = False
        self.clock = ManualClock()
        self.documents = Documents(Identity())
        self.hosts = Noted()
        self.adoptions: list[str] = []
        self.reconnections = 0
        self.judgments: list[tuple[str, bool]] = []
        self.feed_reader = FeedReader(
            "h1",
            link=self.control,
            documents=self.documents,
            hosts=self.hosts,
            monotonic_ms=self.clock.monotonic_ms,
            marks=marks,
            keep=self._keep,
            accepts=lambda: self.accepts,
            forget=self._forget,
            wants=lambda adoption: self.adoptions.append(adoption.adoption_id),
            reconnected=self._reconnected,
            judged=self._judge,
            hurry=lambda: self.hurry,
        )

    async def _keep(self, marks: Marks) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.shown_when_kept.append(self.documents.incarnation_shown("web"))
        self.kept.append(marks)

    async def _forget(self) -> None:
        await self._keep(Marks())
        self.accepts = False

    def _judge(self) -> None:
        self.judgments.append((self.feed_reader.epoch, bool(self.feed_reader.refuses)))

    def _reconnected(self) -> None:
        self.reconnections += 1

    async def hear(self, *scopes: Scope, **more: Any) -> bool:
        """Let control answer this next, and follow it."""
        self.control.answers.append(answer(*scopes, **more))
        return await self.feed_reader.once()

    async def lose(self, *errors: Exception) -> None:
        self.control.answers.extend(errors)
        for _ in errors:
            assert not await self.feed_reader.once()


def web(incarnation: int = 1, **more: Any) -> Scope:
    return replace(scope("web", WEB), incarnation=incarnation, **more)


def answer(*scopes: Scope, names: Sequence[str] | None = None, **more: Any) -> Changes:
    values: dict[str, Any] = {"epoch": "e1", "position": 1, "work": False, **more}
    wanted = tuple(one.name for one in scopes) if names is None else tuple(names)
    return Changes(names=wanted, scopes=tuple(map(as_shown, scopes)), **values)


def run(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await test(Bench())

    asyncio.run(main())


def test_what_control_sends_is_shown_and_asked_on_from() -> None:
    async def test(bench: Bench) -> None:
        assert await bench.hear(web(3), position=7)
        assert bench.documents.incarnation_shown("web") == 3
        assert bench.hosts.shows == [("web", 3)]

        await bench.hear(names=("web",), position=9)
        assert bench.documents.incarnation_shown("web") == 3
        assert bench.control.asked == [None, Since("e1", 7)]

    run(test)


def test_a_scope_that_is_not_named_any_more_is_dropped() -> None:
    async def test(bench: Bench) -> None:
        await bench.hear(web(3))
        await bench.hear(names=())

        assert bench.documents.page("web") is None
        assert bench.feed_reader.names == frozenset()

    run(test)


def test_a_scope_is_never_shown_with_an_older_incarnation() -> None:
    async def test(bench: Bench) -> None:
        await bench.hear(web(5))
        await bench.hear(web(4), epoch="e2")

        assert bench.documents.incarnation_shown("web") == 5
        assert bench.feed_reader.refused == {"web"}
        assert bench.hosts.shows == [("web", 5)]

        await bench.hear(web(6), epoch="e3")
        assert bench.documents.incarnation_shown("web") == 6
        assert bench.feed_reader.refused == frozenset()

    run(test)


def test_what_is_shown_is_marked_before_anybody_can_read_it() -> None:
    async def test(bench: Bench) -> None:
        await bench.hear(web(3))
        await bench.hear(web(5))
        await bench.hear(web(5, enabled=True))  # nothing that guests can see: nothing to mark

        assert bench.shown_when_kept == [None, 3]
        assert [set(marks.of_vm.values()) for marks in bench.kept] == [{3}, {5}]

    run(test)


def test_orders_at_a_refused_control_do_not_make_it_the_right_one() -> None:
    """They raise its numbers, and a number that a guest has read would mean something else."""

    async def test(bench: Bench) -> None:
        await bench.hear(web(5))
        for incarnation in (4, 5, 6):
            await bench.hear(web(incarnation), epoch="e2")
            assert bench.feed_reader.refused == {"web"}
            assert bench.documents.incarnation_shown("web") == 5
        assert "from incarnation 5 to 4" in bench.feed_reader.refuses

    run(test)


def test_another_control_than_the_refused_one_is_judged_by_all_that_it_says() -> None:
    """It knows how far the host is, and has nothing new to say of what the other was refused."""

    async def test(bench: Bench) -> None:
        await bench.hear(web(5))
        await bench.hear(web(4), epoch="e2", position=7)
        await bench.hear(names=("web",), epoch="e3", position=9)

        assert bench.feed_reader.refused == {"web"}
        assert bench.feed_reader.epoch == "", "and what it wants done is not done"
        await bench.hear(web(5), epoch="e3", position=9)
        assert bench.control.asked == [None, Since("e1", 1), Since("e2", 7), None]
        assert (bench.feed_reader.refuses, bench.feed_reader.epoch) == ("", "e3")
        assert bench.feed_reader.epochs == 3

    run(test)


def test_a_control_that_is_refused_is_not_asked_for_everything_in_a_circle() -> None:
    async def test(bench: Bench) -> None:
        await bench.hear(web(5))
        await bench.hear(web(4), epoch="e2", position=7)
        await bench.hear(names=("web",), epoch="e3", position=9)
        await bench.hear(web(4), epoch="e3", position=9)
        await bench.hear(names=("web",), epoch="e3", position=9)

        assert bench.control.asked[-1] == Since("e3", 9)
        assert bench.feed_reader.refused == {"web"}

    run(test)


def test_what_another_control_of_the_same_history_has_not_changed_stays_on_show() -> None:
    async def test(bench: Bench) -> None:
        await bench.hear(web(5), position=7)
        await bench.hear(names=("web",), epoch="e2", position=9)

        assert bench.documents.incarnation_shown("web") == 5
        assert bench.feed_reader.epoch == "e2"
        assert bench.feed_reader.since == Since("e2", 9)

    run(test)


def test_many_scopes_in_one_answer_are_marked_at_once() -> None:
    async def test(bench: Bench) -> None:
        many = [
            replace(scope(f"s{n}", {f"vm{n}": (0, "h1")}), incarnation=2 + n) for n in range(50)
        ]
        await bench.hear(*many)

        assert [len(marks.of_vm) for marks in bench.kept] == [50]

    run(test)


def test_marks_of_an_earlier_daemon_refuse_what_is_below_them() -> None:
    async def test() -> None:
        bench = Bench(Marks().raised([web(1_000_009)]))
        await bench.hear(web(11))

        assert bench.documents.page("web") is None
        assert bench.feed_reader.refused == {"web"}
        assert "from incarnation 1000009 to 11" in bench.feed_reader.refuses
        assert "forewarn host accept-control" in bench.feed_reader.refuses
        assert bench.kept == []

    asyncio.run(test())


def test_marks_outlive_a_scope_that_control_no_longer_names() -> None:
    async def test(bench: Bench) -> None:
        await bench.hear(web(57))
        await bench.hear(names=())
        await bench.hear(web(2), epoch="e2")

        assert bench.feed_reader.refused == {"web"}
        # And its guests have again what they read last.
        assert bench.documents.incarnation_shown("web") == 57

    run(test)


def test_a_vm_that_a_forgetful_control_has_in_another_scope_reads_nothing_older() -> None:
    async def test(bench: Bench) -> None:
        await bench.hear(web(57))
        alone = replace(scope("web_0", {}), vms=(web().vms[0],))
        await bench.hear(alone, epoch="e2")

        assert bench.feed_reader.refused == {"web_0"}
        guest = bench.documents.guest("web_0")
        assert guest is not None
        assert guest.page.incarnation == 57

    run(test)


def test_a_scope_of_other_vms_with_the_same_name_begins_anew() -> None:
    async def test(bench: Bench) -> None:
        await bench.hear(web(5))
        others = tuple(replace(vm, vm_id=f"other-{vm.vm_id}") for vm in web().vms)
        await bench.hear(web(1, vms=others), epoch="e2")

        assert bench.feed_reader.refused == frozenset()
        assert bench.documents.incarnation_shown("web") == 1

    run(test)


def test_a_control_that_is_refused_takes_nothing_from_guests() -> None:
    async def test(bench: Bench) -> None:
        db = replace(scope("db", {"db_0": (0, "h1")}), incarnation=7)
        await bench.hear(web(5), db)
        await bench.hear(web(4), epoch="e2")  # and db it does not know at all
        assert bench.documents.incarnation_shown("db") == 7

        await bench.hear(web(6), epoch="e3")
        assert bench.feed_reader.refuses == ""
        assert bench.documents.page("db") is None

    run(test)


def test_what_cannot_be_marked_is_not_shown_until_it_can() -> None:
    async def test(bench: Bench) -> None:
        await bench.hear(web(3), position=7)
        bench.full = True
        assert not await bench.hear(web(4), position=8)
        assert not await bench.hear(web(4), position=8)

        assert bench.documents.incarnation_shown("web") == 3
        assert bench.hosts.shows == [("web", 3)]
        assert "No space left on device" in bench.feed_reader.refuses
        assert bench.control.asked[-1] == Since("e1", 7)  # so that it is sent again

        bench.full = False
        assert await bench.hear(web(4), position=8)
        assert bench.documents.incarnation_shown("web") == 4
        assert bench.feed_reader.refuses == ""
        assert bench.feed_reader.up

    run(test)


def test_after_the_operators_word_everything_is_asked_for_and_shown_as_it_is() -> None:
    async def test(bench: Bench) -> None:
        await bench.hear(web(57))
        await bench.hear(web(2), epoch="e2")
        assert bench.feed_reader.refuses
        bench.accepts = True
        await bench.hear(web(2), epoch="e2")

        assert bench.control.asked[-1] is None
        assert not bench.accepts
        assert bench.feed_reader.refuses == ""
        assert bench.documents.incarnation_shown("web") == 2
        assert set(bench.kept[-1].of_vm.values()) == {2}

    run(test)


def test_a_word_that_cannot_be_carried_out_stands_and_nothing_older_is_shown() -> None:
    async def test(bench: Bench) -> None:
        await bench.hear(web(57))
        bench.accepts = bench.full = True
        assert not await bench.hear(web(2), epoch="e2")
        assert (bench.accepts, bench.documents.incarnation_shown("web")) == (True, 57)

        bench.full = False
        assert await bench.feed_reader.once()
        assert bench.documents.incarnation_shown("web") == 2

    run(test)


def test_damaged_marks_keep_control_from_being_obeyed_until_the_operators_word() -> None:
    async def test() -> None:
        bench = Bench(Marks(lost="marks is damaged: 1 of 2 marks could be read"))
        await bench.hear(web(2))
        assert bench.documents.incarnation_shown("web") == 2
        assert "1 of 2 marks could be read" in bench.feed_reader.refuses
        assert bench.kept[-1].lost

        bench.accepts = True
        await bench.hear(web(2))
        assert bench.feed_reader.refuses == ""
        assert not bench.kept[-1].lost

    asyncio.run(test())


def test_what_was_kept_below_a_mark_is_not_shown_again() -> None:
    async def test() -> None:
        db = replace(scope("db", {"db_0": (0, "h1")}), incarnation=7)
        bench = Bench(Marks().raised([web(5), db]))
        bench.feed_reader.resume([as_shown(web(4)), as_shown(db)], heard_ms=None)

        assert bench.documents.page("web") is None
        assert bench.documents.incarnation_shown("db") == 7
        assert bench.feed_reader.epoch == ""  # nobody was heard, so nobody is obeyed

    asyncio.run(test())


def test_after_a_restart_guests_of_a_refused_document_keep_what_was_shown_last() -> None:
    async def test() -> None:
        bench = Bench(Marks().raised([web(57)]))
        bench.feed_reader.recall([as_shown(web(57))])
        await bench.hear(web(2))

        assert bench.feed_reader.refused == {"web"}
        assert bench.documents.incarnation_shown("web") == 57
        assert bench.hosts.shows == []  # nobody confirms it to a control that does not know it

    asyncio.run(test())


def test_while_control_is_refused_the_operators_word_is_looked_for_often() -> None:
    async def test(bench: Bench) -> None:
        await bench.hear(web(5))
        await bench.hear(web(4), epoch="e2")
        await bench.hear(names=("web",), epoch="e2")

        assert bench.control.waits == [WAIT_S, WAIT_S, REFUSING_WAIT_S]

    run(test)


def test_work_rings_the_host_and_so_does_another_life_of_control() -> None:
    """That one knows nothing of this daemon, nor in which boot its host is."""

    async def test(bench: Bench) -> None:
        await bench.hear(web(1))
        assert bench.hosts.rings == ["h1"]
        await bench.hear(web(2))
        assert bench.hosts.rings == ["h1"]
        await bench.hear(names=("web",), work=True)
        assert bench.hosts.rings == ["h1", "h1"]
        await bench.hear(names=("web",), epoch="two")
        assert bench.hosts.rings == ["h1", "h1", "h1"]

    run(test)


def test_vms_that_a_recovering_domain_waits_for_are_expected_back() -> None:
    async def test(bench: Bench) -> None:
        waiting = Recovery(update_domain=0, since_ms=0, until_ms=1, waiting_for=("web_0",))
        await bench.hear(web(2, recoveries=(waiting,)))

        guests = {vm: bench.documents.guest(vm) for vm in ("web_0", "web_1")}
        assert {vm: guest and guest.expected for vm, guest in guests.items()} == {
            "web_0": True,
            "web_1": False,
        }

    run(test)


def test_while_control_is_away_documents_stay_and_grow_old() -> None:
    async def test(bench: Bench) -> None:
        assert bench.feed_reader.age_s is None
        await bench.hear(web(3))
        assert bench.feed_reader.up
        bench.clock.pass_ms(60_000)
        await bench.lose(Unavailable("no route"), Unavailable("no route"))

        assert not bench.feed_reader.up
        assert bench.feed_reader.age_s == 60.0
        assert bench.documents.incarnation_shown("web") == 3
        assert bench.feed_reader.failures == 2

        await bench.hear(names=("web",))
        assert bench.feed_reader.up
        assert bench.feed_reader.age_s == 0.0
        assert bench.reconnections == 2  # the first time, and after the outage

    run(test)


def test_after_an_outage_control_is_asked_for_an_answer_at_once() -> None:
    async def test(bench: Bench) -> None:
        await bench.hear(web(1))
        await bench.lose(Unavailable("away"))
        await bench.hear(names=("web",))
        await bench.hear(names=("web",))

        assert bench.control.waits == [WAIT_S, WAIT_S, 0, WAIT_S]

    run(test)


def test_an_answer_that_breaks_us_is_counted_and_asked_for_again() -> None:
    async def test(bench: Bench) -> None:
        await bench.lose(RuntimeError("a bug"))
        assert bench.feed_reader.failures == 1
        assert await bench.hear(web(1))
        assert bench.control.asked == [None, None]

    run(test)


def test_each_control_that_is_followed_is_counted() -> None:
    async def test(bench: Bench) -> None:
        await bench.hear(web(1))
        await bench.hear(web(1))
        await bench.hear(web(1), epoch="e2")
        assert bench.feed_reader.epochs == 2

    run(test)


def test_an_adoption_is_handed_on_once() -> None:
    async def test(bench: Bench) -> None:
        wanted = Adoption("a1", "web_0", VmTraits(scope="web"))
        await bench.hear(web(1), adoptions=(wanted,))
        await bench.hear(names=("web",), adoptions=(wanted,))
        await bench.hear(names=("web",))

        assert bench.adoptions == ["a1"]

    run(test)


def test_a_control_that_is_refused_has_nothing_written_to_a_vm() -> None:
    async def test(bench: Bench) -> None:
        wanted = Adoption("a1", "web_0", VmTraits(scope="web"))
        await bench.hear(web(5))
        await bench.hear(web(4), epoch="e2", adoptions=(wanted,))
        assert bench.adoptions == []

        await bench.hear(web(6), epoch="e3", adoptions=(wanted,))
        assert bench.adoptions == ["a1"]

    run(test)


def test_whether_control_is_obeyed_is_told_whenever_it_changes() -> None:
    async def test(bench: Bench) -> None:
        await bench.lose(Unavailable("away"))
        await bench.hear(web(5))
        await bench.hear(names=("web",))
        await bench.hear(web(4), epoch="e2")
        await bench.hear(web(4), epoch="e2")
        await bench.hear(web(6), epoch="e3")

        assert bench.judgments == [("e1", False), ("e2", True), ("e3", False)]

    run(test)


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_the_back_off_grows_to_its_limit_and_is_never_nothing(chance: float) -> None:
    waits = [back_off_s(failures, chance) for failures in range(1, 200)]

    assert waits == sorted(waits)
    assert all(0 < wait <= BACK_OFF_MAX_S for wait in waits)
    assert waits[-1] >= BACK_OFF_MAX_S / 2


def test_following_goes_on_after_an_outage_by_itself() -> None:
    async def test(bench: Bench) -> None:
        bench.control.answers = [Unavailable("away"), answer(web(2)), Unavailable("away")]
        following = asyncio.ensure_future(bench.feed_reader.run())
        try:
            await until(lambda: len(bench.control.asked) >= 3, "it has asked again")
        finally:
            following.cancel()
        assert bench.documents.incarnation_shown("web") == 2

    run(test)


class PatientControl(ScriptedControl):
    """Has nothing to say to a question that waits."""

    given_up = 0

    async def changes(self, since: Since | None, wait_s: int) -> Changes:
        answered = await super().changes(since, wait_s)
        if wait_s:
            try:
                await asyncio.Event().wait()
            finally:
                self.given_up += 1
        return answered


def test_a_question_that_waits_is_given_up_and_asked_anew_when_somebody_wants_it_now() -> None:
    async def test(bench: Bench) -> None:
        control = PatientControl()
        control.answers = [answer(web(2))] * 3
        bench.feed_reader._link = control
        following = asyncio.ensure_future(bench.feed_reader.run())
        await until(lambda: control.waits == [WAIT_S], "it asks and waits")
        bench.clock.pass_ms(1_000)
        asked_from_ms = bench.clock.monotonic_ms()
        bench.hurry = True
        bench.feed_reader.ask_now()
        await until(lambda: bench.feed_reader.answers, "it is answered")
        assert bench.feed_reader.asked_ms == asked_from_ms
        assert (control.given_up, control.waits[1]) == (1, 0)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    run(test)


def test_when_the_question_was_asked_whose_answer_is_on_show_is_known() -> None:
    async def test(bench: Bench) -> None:
        assert bench.feed_reader.asked_ms is None
        asked_ms = bench.clock.monotonic_ms()
        bench.control.before = lambda: bench.clock.pass_ms(3_000)
        await bench.hear(web(2))
        assert bench.feed_reader.asked_ms == asked_ms
        await bench.lose(Unavailable("away"))
        assert bench.feed_reader.asked_ms == asked_ms
        await bench.hear(web(1), epoch="e2")
        assert bench.feed_reader.asked_ms == asked_ms, "what control said then was refused"

    run(test)


def test_a_control_that_is_refused_is_not_asked_in_a_circle_because_a_vm_waits() -> None:
    async def test(bench: Bench) -> None:
        bench.hurry = True
        await bench.hear(web(2))
        await bench.hear(web(1), epoch="e2")
        assert bench.feed_reader.refuses
        await bench.hear(epoch="e2", names=("web",))
        assert bench.control.waits == [0, 0, REFUSING_WAIT_S]

    run(test)
