"""What a host says in one turn, and what it makes of the answer."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from forewarn.adapters.simulated.hypervisor import SimulatedHypervisor
from forewarn.core.errors import Conflict, Unavailable
from forewarn.core.model import ActionKind
from forewarn.host.confirmations import Confirmations
from forewarn.host.executor import Executor
from forewarn.host.guest_proxy import GuestProxy
from forewarn.host.identity import Identity
from forewarn.host.served_documents import Documents
from forewarn.host.turns import Turns
from forewarn.wire.link import CONFIRMS_MAX, ShownScope, Turn, TurnTaken, Work
from support.clock import ManualClock
from support.core_fleet import WEB, scope
from support.scripted_link import ScriptedLink
from support.shown_scopes import as_shown

ACTION = Work(action_id="E1/web_0", kind=ActionKind.REBOOT_VM.value, host="h1", vm="web_0", epoch=3)


class Speaking:
    """Host h1 with a scripted control plane that keeps every turn."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.script = ScriptedLink()
        self.documents = Documents(Identity())
        self.hypervisor = SimulatedHypervisor(self.clock)
        self.hypervisor.place("web_0", "h1")
        self.refuses = ""
        self.unreadable: set[str] = set()
        self.said: list[Turn] = []
        link = self.script.of("h1")
        taking = link.turn

        async def turn(said: Turn) -> TurnTaken:
            self.said.append(said)
            return await taking(said)

        link.turn = turn  # type: ignore[method-assign]
        self.confirming = Confirmations(
            self.documents, readable=lambda shown: shown.name not in self.unreadable
        )
        self.guests = GuestProxy(
            link, polled=dict, now_ms=self.clock.now_ms, monotonic_ms=self.clock.monotonic_ms
        )
        self.executor = Executor(
            "h1",
            link=link,
            hypervisor=self.hypervisor,
            now_ms=self.clock.monotonic_ms,
            obeys=lambda: not self.refuses,
        )
        self.turns = Turns(
            "h1",
            link=link,
            confirming=self.confirming,
            guests=lambda: self.guests,
            refuses=lambda: self.refuses,
        )

    def show(self, name: str, incarnation: int, *, to_confirm: bool = True) -> ShownScope:
        shown = as_shown(replace(scope(name, WEB), incarnation=incarnation), to_confirm=to_confirm)
        self.documents.show(shown)
        self.confirming.shown("h1", shown)
        return shown

    def say(self) -> bool:
        return asyncio.run(self.turns.once(self.executor))

    @property
    def waiting(self) -> bool:
        return self.turns.waiting(self.executor)


@pytest.fixture
def host() -> Speaking:
    return Speaking()


def test_a_host_with_nothing_to_say_says_that_it_is_there(host: Speaking) -> None:
    assert not host.waiting
    assert host.say()
    assert host.said == [Turn()]


def test_everything_there_is_to_say_is_one_turn(host: Speaking) -> None:
    host.script.to_do["h1"] = [ACTION]
    asyncio.run(host.executor.step())
    host.clock.pass_ms(5_000)
    asyncio.run(host.executor.step())
    host.show("web", 4)
    host.guests.first_read("web_0", "web", frozenset({"E1"}))
    host.guests.returned("web_1")
    host.guests.add_polls({"web": host.clock.now_ms() - 40})
    assert host.waiting
    assert host.say()

    [said] = host.said
    assert said.holding == {"E1/web_0": 3}
    assert [(one.action_id, one.epoch, one.outcome) for one in said.ended] == [
        ("E1/web_0", 3, "done")
    ]
    assert (said.confirms, said.polls, said.returned) == ({"web": 4}, {"web": 40}, ("web_1",))
    assert [(read.vm, read.event_id) for read in said.first_reads] == [("web_0", "E1")]
    assert not host.waiting
    host.say()
    assert host.said[1] == Turn()


def test_what_control_could_not_take_is_all_said_again(host: Speaking) -> None:
    host.show("web", 4)
    host.guests.returned("web_1")
    host.script.refuse("turn", Unavailable("disk full"))
    with pytest.raises(Unavailable):
        host.say()
    assert host.waiting
    host.say()
    assert host.said[0] == host.said[1]
    assert not host.waiting


def test_what_was_answered_after_the_host_had_left_is_all_said_again(host: Speaking) -> None:
    """Whatever control has taken of it: the host gave up waiting, and nobody heard the answer."""
    host.show("web", 4)
    host.guests.returned("web_1")
    host.guests.first_read("web_0", "web", frozenset({"E1"}))

    async def leave() -> None:
        host.script.kept_waiting["h1"] = asyncio.Event()
        async with asyncio.timeout(0):
            await host.turns.once(host.executor)

    with pytest.raises(TimeoutError):
        asyncio.run(leave())
    assert len(host.said) == 1
    assert host.waiting
    host.script.kept_waiting.clear()
    assert host.say()
    assert host.said[0] == host.said[1]
    assert not host.waiting


def test_an_end_that_broke_at_control_is_said_anew_when_its_work_is_handed_out_again(
    host: Speaking,
) -> None:
    """The host looks at what has happened, and does nothing a second time."""
    host.script.to_do["h1"] = [ACTION]
    asyncio.run(host.executor.step())
    host.clock.pass_ms(5_000)
    asyncio.run(host.executor.step())
    host.script.refuse("report", Conflict("It broke on control's side."))
    host.say()
    assert not host.waiting
    host.script.to_do["h1"] = [msgspec.structs.replace(ACTION, epoch=4)]
    asyncio.run(host.executor.step())  # no time passes: what began anew would be under way now
    host.say()
    ends = [(one.epoch, one.outcome) for said in host.said for one in said.ended]
    assert ends == [(3, "done"), (4, "done")]


def test_a_host_that_does_not_obey_says_why_in_every_turn(host: Speaking) -> None:
    host.refuses = "the document would go back"
    host.script.to_do["h1"] = [ACTION]
    asyncio.run(host.executor.step())
    host.say()
    host.say()
    assert host.script.claims == []
    assert [said.refuses for said in host.said] == ["the document would go back"] * 2
    host.refuses = ""
    host.say()
    assert host.said[-1].refuses == ""


def test_a_host_that_does_not_obey_confirms_nothing(host: Speaking) -> None:
    host.show("web", 4)
    host.refuses = "the document would go back"
    assert not host.waiting
    host.say()
    assert host.said[-1].confirms == {}
    host.refuses = ""
    assert host.waiting
    host.say()
    assert host.said[-1].confirms == {"web": 4}


def test_what_is_refused_keeps_nothing_behind_it_from_being_said(host: Speaking) -> None:
    for number in range(CONFIRMS_MAX):
        host.show(f"refused{number}", 2)
    host.script.refuse("confirm", *(Conflict("no") for _ in range(CONFIRMS_MAX)))
    host.show("web", 4)
    host.say()
    host.say()
    assert host.said[1].confirms["web"] == 4


def test_a_confirmation_that_is_refused_is_said_again_and_not_at_once(host: Speaking) -> None:
    host.show("web", 4)
    host.show("api", 2)
    host.script.refuse("confirm", Conflict("no such incarnation"))
    assert not host.say()
    assert host.confirming.ready("h1") == {"web": 4}
    assert host.say()
    assert not host.waiting


def test_what_guests_cannot_read_is_not_confirmed(host: Speaking) -> None:
    host.unreadable.add("web")
    host.show("web", 4)
    host.show("api", 2)
    assert host.say()
    assert host.said[0].confirms == {"api": 2}
    assert not host.waiting  # nothing that could be said
    host.unreadable.clear()
    assert host.waiting
    host.say()
    assert host.said[1].confirms == {"web": 4}


def test_a_turn_confirms_what_fits_and_the_next_one_the_rest(host: Speaking) -> None:
    for number in range(CONFIRMS_MAX + 1):
        host.show(f"s{number}", 2)
    host.say()
    assert host.waiting
    host.say()
    assert [len(said.confirms) for said in host.said] == [CONFIRMS_MAX, 1]


def test_what_is_to_be_confirmed_again_while_a_turn_is_under_way_is_said_again(
    host: Speaking,
) -> None:
    """Control took the word of this host, lost it again because the host was silent, and says so
    before the answer is there.
    """
    host.show("web", 4)
    confirms = host.confirming.ready("h1")
    host.confirming.said("h1", confirms)
    host.show("web", 4)
    host.confirming.told("h1", confirms, {})
    assert host.confirming.ready("h1") == {"web": 4}


def test_what_control_wants_no_word_of_any_more_is_not_said(host: Speaking) -> None:
    host.show("web", 4)
    host.show("web", 4, to_confirm=False)
    host.show("api", 2)
    host.documents.drop("api")
    assert not host.waiting
