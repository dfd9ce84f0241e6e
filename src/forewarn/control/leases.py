"""Which claims hosts still hold, and which daemons speak for hosts, on monotonic time.

In memory only: after a restart every claim gets one more lease. Epochs are durable, so two holders
of one action cannot both report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LEASE_MS = 30_000
# A daemon asks every ten seconds; one that has not for so long is taken to be gone.
TWO_DAEMONS_MS = 30_000


@dataclass(frozen=True, slots=True)
class Lease:
    epoch: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Daemon:
    """One life of a host's daemon: when it first and last asked for work."""

    first_ms: int
    last_ms: int


@dataclass(slots=True)
class Leases:
    """Belongs to the writer. Only a transaction changes it, and can take that back."""

    began_ms: int
    of_action: dict[str, Lease] = field(default_factory=dict)
    daemons: dict[str, Mapping[str, Daemon]] = field(default_factory=dict)  # by host, then by name
