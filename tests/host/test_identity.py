"""Who is asking is decided by the channel, in one spelling per address."""

from __future__ import annotations

from dataclasses import replace

import pytest

from endpoint_world import WEB, a_vm
from forewarn.core.errors import Invalid
from forewarn.endpoint.limits import Bucket
from forewarn.endpoint.pages import Guest, Page
from forewarn.host.identity import Identity, plain_address


class FakeLink:
    def __init__(self) -> None:
        self.is_cut = False

    def cut(self) -> None:
        self.is_cut = True


def a_guest(name: str, address: str | None) -> Guest:
    return Guest(a_vm(name, address), Page(WEB), Bucket(0))


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
    guest.vm = replace(guest.vm, address="10.0.0.2")
    identity.learn(guest)
    assert identity.by_address("10.0.0.1") is None
    assert identity.by_address("10.0.0.2") is guest
    assert identity.by_name("a") is guest
