"""Which claims hosts still hold, and which daemons speak for hosts, on monotonic time.

Epochs are durable, so two holders of one action cannot both report.
"""

from __future__ import annotations

from typing import NamedTuple

LEASE_MS = 30_000
# A daemon asks every ten seconds; one that has not for so long is taken to be gone.
TWO_DAEMONS_MS = 30_000


class Lease(NamedTuple):
    """Until when a claim is held."""

    epoch: int
    until_ms: int


class Daemon(NamedTuple):
    """One life of a host's daemon: when it first and last asked for work."""

    first_ms: int
    last_ms: int
