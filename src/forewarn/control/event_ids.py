"""Ids that people type: whole, or by their beginning."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

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


class KnownIds(Protocol):
    """Who knows the ids of what is open, and of all that ever was."""

    def open_event_ids(self) -> Collection[str]: ...

    @property
    def operations(self) -> Mapping[str, object]: ...

    def kept_event_ids(self, beginning: str) -> Sequence[str]: ...

    def kept_operation_ids(self, beginning: str) -> Sequence[str]: ...


def event_id_meant(known: KnownIds, given: str) -> str:
    """The id of the event that `given` means: an open one, else one that has ended.

    A whole id is returned as it is.
    """
    return _meant(given, known.open_event_ids(), known.kept_event_ids, noun="event")


def operation_id_meant(known: KnownIds, given: str) -> str:
    """The id of the operation that `given` means, as `event_id_meant`."""
    return _meant(given, known.operations, known.kept_operation_ids, noun="operation")


def _meant(
    given: str, going_on: Iterable[str], all_kept: Callable[[str], Sequence[str]], *, noun: str
) -> str:
    wanted = given.upper()
    if len(wanted) >= ID_CHARS:
        return wanted
    long_enough = len(wanted) >= ID_PREFIX_CHARS_MIN
    if long_enough and not any(one.startswith(wanted) for one in going_on):
        return only_one(wanted, all_kept(wanted), noun=noun)
    return only_one(wanted, going_on, noun=noun)
