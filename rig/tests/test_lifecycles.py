"""Real VMs, from order to end: announced, in its time, once, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rig.domains import Guest
from rig.lifecycles import Lifecycle, Lifecycles
from rig.service import Service

GUESTS_MAX = 3
FIRST_NUMBER = 21


class Fleet:
    """Guests of both minds, each mind on a host of its own."""

    def __init__(self, lifecycles: Lifecycles, size: int) -> None:
        self._lifecycles = lifecycles
        self.minds = {
            consent: [
                Guest(
                    name=f"{'yes' if consent else 'no'}-{number}",
                    number=FIRST_NUMBER + number + (10 if consent else 0),
                    approves=consent,
                )
                for number in range(size)
            ]
            for consent in (True, False)
        }
        self.host = {True: "h1", False: "h2"}
        for consent, guests in self.minds.items():
            for guest in guests:
                lifecycles.define(guest, self.host[consent])

    def names(self, *, consent: bool) -> list[str]:
        return [guest.name for guest in self.minds[consent]]

    def round(self) -> None:
        """Everything that can happen to a VM, for every VM, with consent and without."""
        orders = self._lifecycles
        for consent in (True, False):
            self._well(orders.order("Reboot", self.names(consent=consent)))
        for consent in (True, False):
            self._well(orders.freeze(self.host[consent]))
        for consent in (True, False):
            self._well(orders.order("Redeploy", self.names(consent=consent)))
        self.host = {consent: self.host[not consent] for consent in self.host}
        for consent in (True, False):
            last = self.minds[consent][-1]
            self._well(orders.order("Terminate", [last.name]))
            orders.define(last, self.host[consent])
        # Everybody who cannot consent is at one host, and has to go back there afterwards.
        self._well(orders.fail(self.host[False]))
        self._well(orders.order("Redeploy", self.names(consent=False)))

    @staticmethod
    def _well(done: Sequence[Lifecycle]) -> None:
        """At once: what comes after something that went wrong proves nothing."""
        assert [text for one in done for text in one.complaints] == []


@pytest.mark.timeout(3600)
def test_every_lifecycle_is_announced_in_its_time_and_happens_once(
    service: Service, lifecycles: Lifecycles, wanted: int
) -> None:
    fleet = Fleet(lifecycles, size=GUESTS_MAX if wanted > 10 else 1)
    for _ in range(wanted):
        if len(lifecycles.done) >= wanted:
            break
        fleet.round()
    assert lifecycles.complaints() == []
    assert len(lifecycles.done) >= wanted
    assert service.errors() == []
