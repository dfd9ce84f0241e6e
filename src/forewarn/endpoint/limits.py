"""Every limit of the endpoint, by name and with its unit, and the rate limit of one VM.

Only numbers and the bucket live here. All times are seconds of the event loop's monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass

# R1: five requests per second and VM. Zero turns the rate limit off.
DEFAULT_REQUESTS_PER_S = 5.0
# A guest that was quiet may ask for one second's worth of requests at once, and no more: the limit
# is so many requests in a second, not on average.
BURST_S = 1.0
# Requests that are always possible at once, however low the rate.
BURST_REQUESTS_MIN = 5
# Sums of fractions of a second are a little off; the last token of a burst is still a token.
_ROUNDING_S = 1e-6

# Heads up to this size are kept with their parsed form: polls repeat byte for byte.
CACHED_HEAD_BYTES = 1_024
CACHED_HEADS = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one guest may take. Beyond a limit it is refused, and others do not feel it."""

    head_bytes: int = 16 * 1_024
    headers: int = 100
    body_bytes: int = 64 * 1_024
    # A chunked body of one-byte chunks is six times as long on the wire.
    chunked_bytes: int = 512 * 1_024
    pipelined_bytes: int = 64 * 1_024
    connections_per_guest: int = 128
    connections_of_strangers: int = 64
    parked_per_guest: int = 32
    discarded_bytes: int = 1_024 * 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long the endpoint waits for a guest, and how long a guest may make it wait.

    They are enforced by a sweep, so an end may come late by `sweep_s`, never early.
    """

    head_s: float = 10.0
    body_s: float = 20.0
    idle_s: float = 120.0
    write_s: float = 30.0
    linger_s: float = 2.0
    approval_s: float = 30.0
    wait_s: float = 300.0  # the most that `Prefer: wait` can ask for
    sweep_s: float = 0.25


class Bucket:
    """The rate limit of one VM: tokens that come back steadily, up to a burst.

    Kept as one number, the instant at which the bucket would be full again. With a rate of zero
    nothing is ever refused.
    """

    __slots__ = ("_burst_s", "_every_s", "_full_at_s")

    def __init__(self, requests_per_s: float) -> None:
        self._every_s = 1.0 / requests_per_s if requests_per_s > 0 else 0.0
        burst = max(BURST_REQUESTS_MIN, requests_per_s * BURST_S)
        self._burst_s = (burst - 1) * self._every_s + _ROUNDING_S
        self._full_at_s = 0.0

    def take(self, now_s: float) -> float:
        """Take one token: 0.0 if there was one, else the seconds until there will be."""
        full_at_s = self._full_at_s
        if full_at_s <= now_s:
            self._full_at_s = now_s + self._every_s
            return 0.0
        ahead_s = full_at_s - now_s
        if ahead_s > self._burst_s:
            return ahead_s - self._burst_s
        self._full_at_s = full_at_s + self._every_s
        return 0.0
