"""What is said of an event to people and to other programs. Nothing is sent here."""

from __future__ import annotations

import hashlib
import json

from forewarn_guest.steps.step_context import StepContext, one_line

# The names on the wire, what people call them, and what they are called in journald's fields.
_FACTS = (
    ("EventType", "Event type", "FOREWARN_EVENT_TYPE"),
    ("EventId", "Event id", "FOREWARN_EVENT_ID"),
    ("EventStatus", "Event status", "FOREWARN_EVENT_STATUS"),
    ("NotBefore", "Not before", "FOREWARN_EVENT_NOT_BEFORE"),
    ("EventSource", "Source", "FOREWARN_EVENT_SOURCE"),
    ("DurationInSeconds", "Duration in seconds", "FOREWARN_EVENT_DURATION"),
    ("Description", "Description", "FOREWARN_EVENT_DESCRIPTION"),
)
RESOURCES_SHOWN = 20
ID_SHOWN = 40  # characters of an event's id


def sentence(occasion: StepContext) -> str:
    """The event in one line, for a person who knows nothing else."""
    kind = occasion.field("EventType") or "An event without a type"
    source = occasion.field("EventSource")
    said = f"{kind} of {resources(occasion) or 'nothing'}"
    said += f" ({source})" if source else ""
    told = {"prepare": "is scheduled", "started": "has started", "recover": "is over"}
    said += f" {told.get(occasion.part, 'was withdrawn')}"
    not_before = occasion.field("NotBefore")
    if occasion.part == "prepare" and not_before:
        said += f", not before {not_before}"
    description = occasion.field("Description")
    return f"{said}: {description}" if description else f"{said}."


def resources(occasion: StepContext) -> str:
    """The names in the event, so many as a line bears."""
    names = occasion.resources
    more = len(names) - RESOURCES_SHOWN
    shown = one_line(" ".join(names[:RESOURCES_SHOWN]))
    return f"{shown} and {more} more" if more > 0 else shown


def facts(occasion: StepContext) -> list[tuple[str, str, str]]:
    """What is known of the event: for people, as a field's name, and the value; all of one line."""
    found = [
        (label, name, occasion.field(key))
        for key, label, name in _FACTS
        if occasion.field(key) != ""
    ]
    found.append(("Resources", "FOREWARN_EVENT_RESOURCES", resources(occasion)))
    found.append(("This VM", "FOREWARN_VM", occasion.vm))
    found.append(("Part", "FOREWARN_PART", occasion.part))
    found.append(
        (
            "Names this VM first",
            "FOREWARN_EVENT_FIRST_NAMED",
            "yes" if occasion.first_named else "no",
        )
    )
    if occasion.seconds_left is not None:
        found.append(
            ("Seconds left", "FOREWARN_EVENT_SECONDS_LEFT", f"{occasion.seconds_left:.1f}")
        )
    return found


def same_each_time(occasion: StepContext) -> str:
    """A name of this occasion for who must tell it from others.

    It is the same if the step is repeated, and another for each event, VM, part and step.
    """
    event_id = occasion.field("EventId").upper()
    whole = json.dumps([event_id, occasion.vm, occasion.part, occasion.step])
    plain = "".join(char for char in event_id if char.isascii() and (char.isalnum() or char == "-"))
    return f"{plain[:ID_SHOWN]}.{hashlib.sha256(whole.encode()).hexdigest()[:24]}"
