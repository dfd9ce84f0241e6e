"""Guests reach the endpoint by their own way, on bridges and taps of a real kernel."""

from __future__ import annotations

from network_world import a_host, needs_namespaces, who

pytestmark = needs_namespaces


def test_each_vm_of_a_bridge_is_known_by_its_tap() -> None:
    with a_host() as host:
        alpha = host.guest("alpha", number=1)
        beta = host.guest("beta", number=2)
        assert host.arrange() == ()
        assert (alpha.who(), beta.who()) == ("alpha", "beta")
        assert who(alpha.ns, v6="eth0") == "alpha"
        assert who(beta.ns, v6="eth0") == "beta"
