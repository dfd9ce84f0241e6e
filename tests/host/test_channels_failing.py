"""What becomes of guests when the host's network cannot be read or changed as it should be."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from forewarn.adapters.iproute2 import LinkAddresses
from forewarn.adapters.nftables import NftRules
from forewarn.ports import NetworkFailed
from support.channels_world import (
    NOBODY,
    SILENCE,
    a_host,
    answered,
    connected,
    needs_namespaces,
    request,
)

pytestmark = needs_namespaces


class SometimesRules(NftRules):
    """nft, except while `fails` counts down; `held` makes it wait for ever."""

    def __init__(self) -> None:
        self.fails = 0
        self.held = False
        self.applied = 0

    async def apply(self, text: str) -> None:
        if self.held:
            await asyncio.Event().wait()
        if self.fails:
            self.fails -= 1
            raise NetworkFailed("There is no program 'nft'.", "Install it.")
        self.applied += 1
        await super().apply(text)


class LockedMarks(LinkAddresses):
    """A kernel whose setting may not be changed by policy."""

    locked = True

    def inherit_marks(self, *, on: bool) -> None:
        if self.locked:
            raise NetworkFailed("net.ipv4.tcp_fwmark_accept cannot be set.", "Set it yourself.")
        super().inherit_marks(on=on)


def test_without_rules_nothing_is_opened_and_with_them_everything_is() -> None:
    rules = SometimesRules()
    rules.fails = 100
    with a_host(rules=rules) as host:
        alpha = host.guest("alpha", number=1)
        problems = host.arrange()
        assert [str(problem) for problem in problems] == [
            "network: There is no program 'nft'. Install it."
        ]
        assert (alpha.who_at_once(), host.left_behind()) == (SILENCE, [])
        rules.fails = 0
        assert host.arrange() == ()
        assert alpha.who() == "alpha"


def test_an_interface_that_vanishes_between_two_looks_is_tried_again_at_once() -> None:
    rules = SometimesRules()
    with a_host(rules=rules) as host:
        alpha = host.guest("alpha", number=1)
        rules.fails = 2
        assert host.arrange() == ()
        assert alpha.who() == "alpha"


def test_when_rules_cannot_be_changed_those_of_before_go_on_and_who_left_is_cut() -> None:
    rules = SometimesRules()
    with a_host(rules=rules) as host:
        alpha, beta = host.guest("alpha", number=1), host.guest("beta", number=2)
        host.arrange()
        with connected(beta.ns, wait_s=5) as kept:
            assert answered(kept, request())[1] == b"beta"
            rules.fails = 100
            assert len(host.arrange([alpha.vm])) == 1
            assert answered(kept, request()) == (0, b"")
        assert (alpha.who(), beta.who()) == ("alpha", NOBODY)
        rules.fails = 0
        host.arrange()
        assert beta.who() == "beta"


def test_a_setting_of_the_kernel_that_may_not_be_changed_is_named() -> None:
    interfaces = LockedMarks()
    with a_host(interfaces=interfaces) as host:
        alpha = host.guest("alpha", number=1)
        assert "network: net.ipv4.tcp_fwmark_accept cannot be set." in str(host.arrange()[0])
        assert alpha.who_at_once() == SILENCE
        interfaces.locked = False
        assert host.arrange() == ()
        assert alpha.who() == "alpha"


def test_an_arrangement_that_was_given_up_in_the_middle_costs_nothing() -> None:
    rules = SometimesRules()
    with a_host(rules=rules) as host:
        alpha = host.guest("alpha", number=1)
        host.arrange()
        beta = host.guest("beta", number=2)
        rules.held = True

        async def given_up() -> bool:
            try:
                async with asyncio.timeout(0.1):
                    await host.channels.arrange([alpha.vm, beta.vm])
            except TimeoutError:
                return True
            return False

        assert host.wait_for(given_up())
        assert alpha.who() == "alpha"
        rules.held = False
        host.arrange()
        assert (alpha.who(), beta.who()) == ("alpha", "beta")


def test_two_arrangements_at_once_come_one_after_the_other() -> None:
    with a_host() as host:
        alpha, beta = host.guest("alpha", number=1), host.guest("beta", number=2)

        async def both() -> None:
            await asyncio.gather(
                host.channels.arrange([alpha.vm]), host.channels.arrange([alpha.vm, beta.vm])
            )

        host.wait_for(both())
        assert (alpha.who(), beta.who()) == ("alpha", "beta")


def test_a_vm_whose_name_changes_is_cut_and_known_by_its_new_one() -> None:
    with a_host() as host:
        alpha = host.guest("alpha", number=1)
        host.guest("beta", number=2)
        host.arrange()
        with connected(alpha.ns, wait_s=5) as kept:
            assert answered(kept, request())[1] == b"alpha"
            host.arrange([replace(alpha.vm, name="beta")])
            assert answered(kept, request()) == (0, b"")
        assert alpha.who() == "beta"
