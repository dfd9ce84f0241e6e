"""What a step is told: the event as JSON on standard input, and as environment variables.

Nothing of it is ever part of a command line. What stands in the environment is made plain text.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from forewarn_guest.configuration import Part, Step
from forewarn_guest.document import Event

VARIABLE_CHARS_MAX = 4_096


@dataclass(frozen=True)
class StepInput:
    """Why a step runs, and for which event. `left_s` is None if the start is not known."""

    event: Event
    vm: str
    part: Part
    step: Step
    first_named: bool
    left_s: float | None

    def given(self, limit_s: float) -> bytes:
        """What is on standard input: one JSON object, on one line."""
        shown = {
            "event": dict(self.event.raw),
            "step": {**self.step.options},
            "vm": self.vm,
            "part": self.part.value,
            "first_named": self.first_named,
            "seconds_left": self.left_s,
            "limit_seconds": limit_s,
        }
        return json.dumps(shown).encode() + b"\n"

    def environment(self) -> dict[str, str]:
        """The agent's own environment, and the event in variables."""
        event = self.event
        not_before = "" if event.not_before is None else event.not_before.isoformat()
        variables = {
            "FOREWARN_EVENT_TYPE": event.event_type,
            "FOREWARN_EVENT_ID": event.event_id,
            "FOREWARN_EVENT_STATUS": event.status,
            "FOREWARN_EVENT_NOT_BEFORE": not_before,
            "FOREWARN_EVENT_SECONDS_LEFT": "" if self.left_s is None else f"{self.left_s:.1f}",
            "FOREWARN_EVENT_RESOURCES": " ".join(event.resources),
            "FOREWARN_EVENT_SOURCE": event.source,
            "FOREWARN_EVENT_DURATION": "" if event.duration_s is None else str(event.duration_s),
            "FOREWARN_EVENT_DESCRIPTION": event.description,
            "FOREWARN_EVENT_FIRST_NAMED": "yes" if self.first_named else "no",
            "FOREWARN_VM": self.vm,
            "FOREWARN_PART": self.part.value,
            "FOREWARN_STEP": self.step.name,
        }
        return {**os.environ, **{name: _plain(value) for name, value in variables.items()}}


def _plain(text: str) -> str:
    """The text without anything that is not printed: no line breaks, no zero bytes, no escapes."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:VARIABLE_CHARS_MAX]
