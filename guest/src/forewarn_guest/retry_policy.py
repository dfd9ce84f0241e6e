"""For how long, and how often, an endpoint is asked again. Only numbers, and one rule."""

from __future__ import annotations

import random

from forewarn_guest.errors import Busy, EndpointError

POLL_S = 1.0  # from the beginning of one poll to that of the next, unless there was news
NEWS_S = 0.2  # the same after news: an endpoint has five requests a second for a VM (R1)
GONE_S = 70.0  # for how long 410 is retried (E13)
BUSY_S = 30.0  # for how long 429, 5xx and an empty 200 are, in a single call
RETRY_AFTER_MAX_S = 10.0  # more is not waited at a time: a Preempt gives 30 s (3.3)
BACKOFF_MAX_S = 8.0
LOST_S = 60.0  # an endpoint that was found and is unreachable for so long is looked for again
LOOK_AGAIN_S = 10.0  # from one look for an endpoint to the next, where none was found


def patience_with(busy: Busy) -> float:
    """For how many seconds a single call goes on asking."""
    return GONE_S if busy.status == 410 else BUSY_S


def delay_after(error: EndpointError, attempt: int) -> float:
    """Seconds to wait after the n-th failure in a row: at least one, longer each time, jittered.

    What Retry-After says is obeyed up to RETRY_AFTER_MAX_S. A 410 ends by itself soon, so it is
    not backed off (E13).
    """
    if isinstance(error, Busy) and error.retry_after_s is not None:
        return min(max(error.retry_after_s, POLL_S), RETRY_AFTER_MAX_S)
    gone = isinstance(error, Busy) and error.status == 410
    most_s = 2.0 if gone else min(2.0 ** min(attempt, 10), BACKOFF_MAX_S)
    return most_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads VMs, hides nothing
