"""What a step is told on standard input, and the time it has. Nothing is done here."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable

from forewarn_guest.errors import StepError
from forewarn_guest.steps.options import StepKind, read_options

INPUT_MAX = 8 * 1024 * 1024  # bytes on standard input: a document of 1 MiB, with escapes
LIMIT_DEFAULT_S = 300.0  # for a step without a limit of its own and without a time in its event
TELLING_S = 0.5  # kept from the time left, at most a quarter of it, to say what was not done
FIELD_MAX = 2000  # characters of one field of an event that are told to others

Clock = Callable[[], float]


class Misused(Exception):  # noqa: N818 - says what is the case
    """The step was not started as steps are started: no JSON, or options that cannot be read."""


class Deadline:
    """When the step must be over, on the monotonic clock, and what it is doing until then.

    `doing` is what is said if time runs out, so a step writes there what it is waiting for.
    """

    def __init__(self, seconds: float, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self.seconds = seconds
        self._end = clock() + seconds
        self.doing = "The step had not begun"

    def left(self, at_most: float | None = None) -> float:
        """Seconds left, above zero, and at most so many. Raises StepError when time is up."""
        left = self._end - self._clock()
        if left <= 0:
            raise StepError(self.time_is_up())
        return left if at_most is None else min(left, at_most)

    def has(self, seconds: float) -> bool:
        """True if so many seconds are left."""
        return self._end - self._clock() > seconds

    def time_is_up(self) -> str:
        """The one line for a step that ran out of time."""
        return f"{self.doing} when its {self.seconds:.1f} s were over."


@dataclass(frozen=True)
class StepContext:
    """Why a step runs: the event as it was sent, for whom, in which part, with which options."""

    event: Mapping[str, Any]
    vm: str
    part: str
    first_named: bool
    seconds_left: float | None
    step: str
    options: Mapping[str, Any]
    deadline: Deadline

    def field(self, name: str) -> str:
        """A field of the event as text of one line; empty if the event has none."""
        value = self.event.get(name)
        return "" if value is None else one_line(str(value))

    @property
    def resources(self) -> tuple[str, ...]:
        """The names in the event; none if it holds no list."""
        names = self.event.get("Resources")
        return tuple(one_line(str(name)) for name in names) if isinstance(names, list) else ()


def one_line(value: str, at_most: int = FIELD_MAX) -> str:
    """The text with every character that could break a line or a header as a blank, and bounded."""
    shown = "".join(char if char.isprintable() else " " for char in value[: at_most + 1])
    return shown if len(shown) <= at_most else shown[: at_most - 3] + "..."


def read_occasion(
    kind: StepKind, given: bytes, step: str, clock: Clock = time.monotonic
) -> StepContext:
    """The occasion of the step of that name. Raises Misused with a sentence for every mistake."""
    if len(given) > INPUT_MAX:
        raise Misused(f"Standard input has more than {INPUT_MAX} bytes.")
    try:
        told = json.loads(given)
    except (ValueError, RecursionError) as error:
        raise Misused(f"Standard input is not JSON ({error}).") from None
    event, options = (told.get("event"), told.get("step")) if isinstance(told, dict) else (0, 0)
    if not isinstance(event, dict) or not isinstance(options, dict):
        raise Misused("Standard input is not an object with the objects event and step.")
    values, mistakes = read_options(kind, options)
    if mistakes:
        raise Misused(" ".join(f"{mistake.option} {mistake.says}" for mistake in mistakes))
    left, part = _seconds(told.get("seconds_left")), one_line(str(told.get("part") or ""))
    # Once the event has started or is gone, the time to its start is over and limits no step.
    before_start = left if part == "prepare" else None
    bounds = (before_start, _seconds(told.get("limit_seconds")), values["limit"])
    return StepContext(
        event=event,
        vm=one_line(str(told.get("vm") or "")),
        part=part,
        first_named=told.get("first_named") is True,
        seconds_left=left,
        step=step,
        options=values,
        deadline=Deadline(allowed(*bounds), clock),
    )


def allowed(*bounds: float | None) -> float:
    """The seconds a step may use: the least of what binds it, less the time to say how it ended."""
    known = [bound for bound in bounds if bound is not None]
    binding = max(0.0, min(known)) if known else LIMIT_DEFAULT_S
    return binding - min(TELLING_S, binding / 4)


def _seconds(value: object) -> float | None:
    """The time left, if it is a number at all; a broken one binds nothing, the limit still does."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        return None
    return float(value)
