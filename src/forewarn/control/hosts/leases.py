"""Which claims hosts still hold, and which daemons speak for hosts, on monotonic time.

Epochs are durable, so two holders of one action cannot both report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LEASE_MS = 30_000
# A daemon speaks every five seconds; one that has not for so long is taken to be gone.
TWO_DAEMONS_MS = 30_000
DAEMONS_MAX = 8  # of one host that are remembered


class Lease(NamedTuple):
    """Until when a claim is held."""

    epoch: int
    until_ms: int


class Daemon(NamedTuple):
    """One life of a host's daemon: when it first and last spoke."""

    name: str
    first_ms: int
    last_ms: int


def with_daemon(known: Sequence[Daemon], name: str, at_ms: int) -> tuple[Daemon, ...]:
    """The daemons of a host, after this one has spoken. Those that are gone are left out."""
    if len(known) == 1 and known[0].name == name:  # as it is all day
        return (Daemon(name, known[0].first_ms, at_ms),)
    first_ms = next((one.first_ms for one in known if one.name == name), at_ms)
    others = [one for one in known if one.name != name and at_ms - one.last_ms < TWO_DAEMONS_MS]
    return (*others[1 - DAEMONS_MAX :], Daemon(name, first_ms, at_ms))


def two_speak(known: Sequence[Daemon], now_ms: int) -> bool:
    """Whether two daemons speak for one host: who speaks after another began did not die before."""
    if len(known) < 2:
        return False
    here = [one for one in known if now_ms - one.last_ms < TWO_DAEMONS_MS]
    newest = max(here, key=lambda one: one.first_ms, default=None)
    return any(newest and one is not newest and one.last_ms > newest.first_ms for one in here)
