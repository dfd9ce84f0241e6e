"""Names for new things that are the same in every run with the same seed."""

from __future__ import annotations

import random
import uuid


class SeededIds:
    """`ports.Ids` from a seed. Not for anything that must not be guessed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose

    def event_id(self) -> str:
        """A new version 4 GUID, 8-4-4-4-12, in upper case (contract 1.5)."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4)).upper()
