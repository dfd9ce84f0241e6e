"""Who is asking is decided by the channel, in one spelling per address."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from forewarn.control.hosts.own_vms import vm_as_shown
from forewarn.core.errors import Invalid
from forewarn.core.inventory.host_report import Power, SeenVm, Traits
from forewarn.endpoint.limits import Bucket
from forewarn.endpoint.registry import Guest, NotYet, Page
from forewarn.host.identity import Identity, WitnessedIdentity, plain_address
from support.endpoint_world import WEB, a_vm
from support.shown_scopes import as_shown


class FakeLink:
    def __init__(self) -> None:
        self.is_cut = False

    def cut(self) -> None:
        self.is_cut = True


def a_guest(name: str, address: str | None) -> Guest:
    return Guest(vm_as_shown(a_vm(name, address)), Page(as_shown(WEB)), Bucket(0))


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:0a00:0001", "10.0.0.1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
    ],
)
def test_every_address_has_one_spelling(address: str, plain: str) -> None:
    assert plain_address(address) == plain


@pytest.mark.parametrize("address", ["", "web_0", "10.0.0", "10.0.0.256", "::g"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(Invalid, match="not an IP address"):
        plain_address(address)


def test_a_guest_is_found_by_its_address_however_it_is_written() -> None:
    identity = Identity()
    four, six = a_guest("a", "10.0.0.1"), a_guest("b", "2001:DB8::1")
    identity.learn(four)
    identity.learn(six)
    assert identity.by_address("10.0.0.1") is four
    assert identity.by_address("::ffff:10.0.0.1") is four
    assert identity.by_address("2001:db8:0::1") is six
    assert identity.by_address("10.0.0.2") is None
    assert identity.by_address("::1") is None


def test_a_guest_without_an_address_is_known_by_its_listener_alone() -> None:
    identity = Identity()
    guest = a_guest("a", None)
    identity.learn(guest)
    assert identity.by_name("a") is guest
    assert identity.by_name("b") is None
    identity.forget(guest)
    assert identity.by_name("a") is None


def test_an_address_that_changes_hands_cuts_off_who_had_it() -> None:
    identity = Identity()
    before, after = a_guest("a", "10.0.0.1"), a_guest("b", "::ffff:10.0.0.1")
    link = FakeLink()
    before.connections.add(link)
    identity.learn(before)
    identity.learn(after)
    assert link.is_cut
    assert identity.by_address("10.0.0.1") is after
    identity.forget(before)
    assert identity.by_address("10.0.0.1") is after, "what became another's stays so"


def test_forgetting_an_address_keeps_the_name() -> None:
    identity = Identity()
    guest = a_guest("a", "10.0.0.1")
    identity.learn(guest)
    identity.forget_address(guest)
    guest.vm = msgspec.structs.replace(guest.vm, address="10.0.0.2")
    identity.learn(guest)
    assert identity.by_address("10.0.0.1") is None
    assert identity.by_address("10.0.0.2") is guest
    assert identity.by_name("a") is guest


class Here:
    """Host h1, whose control answers when a test says so, at a time that the test turns."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.asked_ms: int | None = None
        self.questions = 0
        self.identity = WitnessedIdentity(
            "h1", feed_reader=lambda: self, monotonic_ms=lambda: self.now_ms
        )

    def ask_now(self) -> None:
        self.questions += 1

    def answer(self, *, asked_ms: int) -> None:
        """Control answers now what was asked then."""
        self.now_ms += 100
        self.asked_ms = asked_ms

    def look(self, power: Power | None = Power.RUNNING) -> int:
        """The VM is seen like this, or not at all; when."""
        self.now_ms += 100
        vm = self.guest.vm
        seen = SeenVm(name=vm.name, vm_id=vm.vm_id, power=power or Power.OFF, traits=Traits())
        self.identity.witness([] if power is None else [seen])
        return self.now_ms

    def show(self, *, on: str) -> None:
        """There is a document for the VM that has it on this host."""
        self.guest = Guest(
            vm_as_shown(replace(a_vm("a", None), host=on)), Page(as_shown(WEB)), Bucket(0)
        )
        self.identity.learn(self.guest)

    @property
    def answers(self) -> bool:
        """Whether the VM is answered; if not, it is told to ask again."""
        assert (self.identity.by_name("a") is not None) is not self.waits()
        return not self.waits()

    def waits(self) -> bool:
        try:
            assert self.identity.by_channel("a") is self.guest
        except NotYet as early:
            return early.guest is self.guest
        return False


def test_a_vm_that_was_here_at_the_first_look_is_answered_though_control_is_away() -> None:
    here = Here()
    here.show(on="h1")
    here.look()
    assert here.answers
    here.look(Power.OFF)
    here.look()
    assert here.answers, "it was switched off and on, here"
    assert here.questions == 0


def test_a_vm_that_comes_later_is_answered_once_control_has_spoken_since_then() -> None:
    here = Here()
    here.show(on="h1")
    here.look(None)
    here.answer(asked_ms=here.now_ms)
    came_ms = here.look()
    assert not here.answers, "it may have read something newer elsewhere"
    assert here.questions == 1, "control is asked at once"
    here.answer(asked_ms=came_ms - 50)
    assert not here.answers, "what was asked before it came may be answered from before as well"
    here.answer(asked_ms=came_ms + 1)
    assert here.answers
    here.look()
    assert here.questions == 1


def test_a_vm_on_its_way_is_answered_once_a_question_asked_since_it_runs_here_was_answered() -> (
    None
):
    here = Here()
    here.show(on="h2")
    here.look(None)
    here.look(Power.PAUSED)
    here.answer(asked_ms=here.now_ms)
    runs_ms = here.look()
    assert not here.answers, "it ran, and read, on h2 after that question"
    here.answer(asked_ms=runs_ms)
    assert not here.answers, "within one millisecond nobody knows which was first"
    here.answer(asked_ms=runs_ms + 1)
    assert here.answers
    here.look()
    assert here.answers


def test_after_a_restart_a_vm_that_was_on_its_way_waits_for_control() -> None:
    here = Here()
    here.show(on="h2")
    here.answer(asked_ms=here.now_ms)
    runs_ms = here.look()
    assert not here.answers
    here.answer(asked_ms=runs_ms + 1)
    assert here.answers


def test_a_question_asked_while_a_vm_was_still_on_its_way_does_not_count() -> None:
    here = Here()
    here.show(on="h1")
    here.look(None)
    came_ms = here.look(Power.PAUSED)
    here.answer(asked_ms=came_ms + 1)
    runs_ms = here.look()
    assert not here.answers, "it ran, and read, elsewhere after that question"
    here.answer(asked_ms=runs_ms + 1)
    assert here.answers
    here.look(Power.PAUSED)
    here.look()
    assert here.answers, "it was frozen, here"
    assert here.questions == 1


def test_only_a_vm_that_runs_here_and_is_the_one_that_is_meant_is_asked_for() -> None:
    here = Here()
    here.show(on="h2")
    here.look(None)
    here.look(Power.PAUSED)
    assert (here.identity.waiting, here.questions) == (0, 0), "it is on its way"
    here.look()
    assert (here.identity.waiting, here.questions) == (1, 1)
    here.guest.vm = msgspec.structs.replace(
        here.guest.vm, vm_id="11111111-2222-4333-8444-555555555555"
    )
    assert here.identity.waiting == 0, "another VM has its name"
    here.look()
    assert here.identity.waiting == 1
    here.answer(asked_ms=here.now_ms)
    assert here.identity.waiting == 1, "it has just come"


def test_a_vm_that_left_and_came_back_has_to_be_spoken_of_anew() -> None:
    here = Here()
    here.show(on="h1")
    here.look()
    here.answer(asked_ms=here.now_ms)
    here.look(None)
    assert here.identity.by_channel("a") is None, "it is not here: nobody's, not to ask again"
    here.look()
    assert not here.answers
