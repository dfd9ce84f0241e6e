"""Every limit of the endpoint, by name and with its unit, and the rate limit of one VM.

Only numbers, the bucket and the count of refusals live here. All times are seconds of the event
loop's monotonic clock.
"""

from __future__ import annotations

from msgspec import Struct

# R1: five requests per second and VM. Zero turns the rate limit off.
DEFAULT_REQUESTS_PER_S = 5.0
# A guest that was quiet may ask for one second's worth of requests at once, and no more: the limit
# is so many requests in a second, not on average.
BURST_S = 1.0
# Requests that are always possible at once, however low the rate.
BURST_REQUESTS_MIN = 5
# Sums of fractions of a second are a little off; the last token of a burst is still a token.
_ROUNDING_S = 1e-6

# A VM over its rate: the first so many 429 of a second are written at once. After them a 429 waits,
# and its connection is not read meanwhile; then it and what was sent behind it are answered, up to
# so many in a second. Beyond that the rest waits again.
REFUSALS_AT_ONCE = 10
REFUSALS_PER_S = 4_096
REFUSALS_WINDOW_S = 1.0
REFUSAL_WAITS_S = 1.0

# New connections of one VM in a second, and of all strangers together. A VM that may ask more often
# may connect more often; one without a rate limit has none here either.
CONNECTS_PER_S = 200.0

# A turn of the event loop handles so many requests of all guests, and of one connection so many.
# A piece of a chunked body counts as a request.
REQUESTS_PER_TURN = 16
REQUESTS_PER_TURN_OF_CONNECTION = 8
CHUNKED_BYTES_AT_ONCE = 1_024

# What the kernel keeps of a connection that is not read: a read brings no more than about this.
RECEIVE_BUFFER_BYTES = 64 * 1_024

# Heads up to this size are kept with their parsed form: polls repeat byte for byte.
CACHED_HEAD_BYTES = 1_024
CACHED_HEADS = 1_024


class Limits(Struct, frozen=True, kw_only=True):
    """What one guest may take. Beyond a limit it is refused, and others do not feel it."""

    head_bytes: int = 16 * 1_024
    headers: int = 100
    body_bytes: int = 64 * 1_024
    # A chunked body is longer on the wire, and each chunk is a call of the parser.
    chunked_bytes: int = 512 * 1_024
    chunks: int = 1_024
    pipelined_bytes: int = 64 * 1_024
    # Empty lines between two requests. RFC 9112 (2.2) asks to ignore one; old clients send one.
    blank_bytes: int = 256
    connections_per_guest: int = 128
    connections_of_strangers: int = 64
    parked_per_guest: int = 32
    discarded_bytes: int = 1_024 * 1_024


class Timeouts(Struct, frozen=True, kw_only=True):
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

    def retry_s(self, now_s: float) -> float:
        """What `take` would return. Takes nothing."""
        ahead_s = self._full_at_s - now_s
        return ahead_s - self._burst_s if ahead_s > self._burst_s else 0.0

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


class Refusals:
    """How many 429 one VM was given in this second. Only who is over its rate is counted."""

    __slots__ = ("_count", "_until_s")

    def __init__(self) -> None:
        self._count = 0
        self._until_s = 0.0

    def may_write(self, now_s: float, most: int) -> bool:
        """Count one more and return True, or False if there were so many already."""
        if now_s >= self._until_s:
            self._until_s = now_s + REFUSALS_WINDOW_S
            self._count = 0
        if self._count >= most:
            return False
        self._count += 1
        return True


def connects(requests_per_s: float) -> Bucket:
    """The limit on new connections of a VM with this rate limit."""
    return Bucket(max(CONNECTS_PER_S, requests_per_s) if requests_per_s > 0 else 0.0)
