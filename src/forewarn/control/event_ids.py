"""Ids that people type: whole, or by their beginning."""

from __future__ import annotations

from collections.abc import Iterable

from forewarn.control.fleet_reader import FleetReader
from forewarn.core.errors import Invalid, NotFound

# An id may be given by its beginning, however long ago what it names has ended.
ID_CHARS = 36
ID_PREFIX_CHARS_MIN = 6
IDS_COUNTED_MAX = 1_000  # of those that begin alike, for saying how many do
IDS_NAMED_MAX = 3


def only_one(given: str, found: Iterable[str], *, noun: str) -> str:
    """The one id among `found` that begins with `given`, or a refusal that says why not.

    `given` is upper case. Ids that are given whole are not looked for here.
    """
    if len(given) < ID_PREFIX_CHARS_MIN:
        raise Invalid(
            f"{given} is too short to name an {noun}.",
            f"The id, or at least its first {ID_PREFIX_CHARS_MIN} characters, would be accepted.",
        )
    matching = sorted({one for one in found if one.startswith(given)})
    if not matching:
        raise NotFound(
            f"There is no {noun} {given}.", f"`forewarn {noun} list` shows the open ones."
        )
    if len(matching) > 1:
        named = ", ".join(matching[:IDS_NAMED_MAX])
        raise Invalid(f"{len(matching)} {noun}s begin with {given}: {named}.", "Give more of it.")
    return matching[0]


def open_event_id(fleet: FleetReader, given: str) -> str:
    """The id of the open event that `given` means. A whole id is returned as it is."""
    wanted = given.upper()
    if len(wanted) >= ID_CHARS:
        return wanted
    return only_one(wanted, fleet.open_event_ids(), noun="event")
