"""Where a connection can be, and for how long it may stay there. Nothing else lives here."""

from __future__ import annotations

import math
from typing import Final

from forewarn.endpoint.limits import Timeouts

# Where a connection is. Plain integers, because the first is compared for every request.
IDLE: Final = 0  # between requests
HEAD: Final = 1  # part of a head is here
BODY: Final = 2  # part of a body is here
BUSY: Final = 3  # an answer waits for the service
PARKED: Final = 4  # a poll waits for the document to change
LINGERING: Final = 5  # refused; what the client still sends is thrown away until it closes
CLOSING: Final = 6  # closed by us; the last answer is on its way


def patience_s(timeouts: Timeouts) -> tuple[float, ...]:
    """For how long a connection may be where it is, by where it is."""
    return (
        timeouts.idle_s,
        timeouts.head_s,
        timeouts.body_s,
        math.inf,  # the service's own time-outs end it
        math.inf,  # a parked poll knows its end
        timeouts.linger_s,
        timeouts.write_s,
    )
