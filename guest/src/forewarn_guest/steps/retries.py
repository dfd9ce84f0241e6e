"""Trying again, with growing pauses and within the time of the step."""

from __future__ import annotations

import random
import time
from typing import Callable

from forewarn_guest.errors import StepError
from forewarn_guest.steps.step_context import Deadline

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0


class Again(Exception):  # noqa: N818 - says what is the case
    """It did not work and may work later. `after_s` is how long the other side asked to wait."""

    def __init__(self, says: str, after_s: float = 0.0) -> None:
        super().__init__(says)
        self.after_s = after_s


def until_done(attempt: Callable[[], str], deadline: Deadline) -> str:
    """What the first attempt that works returns. Raises StepError if none does in time.

    The pauses double and are random between half and whole, so that many VMs that lost the same
    server do not come back at once.
    """
    pause = FIRST_PAUSE_S
    tries = 0
    while True:
        tries += 1
        try:
            return attempt()
        except Again as error:
            wait = max(pause * random.uniform(0.5, 1.0), error.after_s)  # noqa: S311 - no secret
            said = f"{error} (tried {tries} times)" if tries > 1 else str(error)
            if not deadline.has(wait):
                raise StepError(f"{said}, and no time is left to try again.") from error
            deadline.doing = said
            time.sleep(wait)
            pause = min(pause * 2, LONGEST_PAUSE_S)
