"""Waiting for a condition, with a deadline and words for when it does not come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

LOOK_EVERY_S = 0.05

T = TypeVar("T")


class NotInTime(Exception):  # noqa: N818 - says what is the case
    """What was waited for did not come."""


def wait_for(what: str, look: Callable[[], T | None], *, within_s: float) -> T:
    """The first thing `look` finds that counts as true. NotInTime names `what`."""
    until = time.monotonic() + within_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > until:
            raise NotInTime(f"Not within {within_s:g} s: {what}.")
        time.sleep(LOOK_EVERY_S)
