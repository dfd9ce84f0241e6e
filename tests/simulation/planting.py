"""How bugs are planted on purpose, to see that the simulation finds them.

A planted bug is a textual edit of a copy of the sources; nothing of the running product is
patched. `edits` name a file, the text that must be there exactly once, and what replaces it.
Where the check before every save (`core.invariants`) would speak first, it is silenced in the
copy, so that it is the world that has to notice.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

SILENCED_CHECK = (
    "core/invariants.py",
    "    if before is None:\n        return\n    _check_counting(before, after)\n",
    (
        "    if before is None or after is not None:\n        return\n"
        "    _check_counting(before, after)\n"
    ),
)

Edit = tuple[str, str, str]


@dataclass(frozen=True)
class Planted:
    """One bug and the invariant whose breach must be found; ` or ` where either shows it.

    `first` is the first of the fixed seeds in which it is looked for: a world that shows it, or
    one shortly before. `simulation.find_planted` says which do.
    """

    invariant: str
    what: str
    edits: tuple[Edit, ...]
    first: int = 0

    def shown_by(self, breach: str) -> bool:
        """Whether what a world says of its breach is that of this bug's invariant."""
        return any(f": {one}: " in breach for one in self.invariant.split(" or "))


def plant(bug: Planted, source: Path, target: Path) -> None:
    """Copy the sources to `target` with the bug in them. Fails if the text is not there once."""
    shutil.copytree(source, target)
    for name, right, wrong in bug.edits:
        path = target / name
        text = path.read_text(encoding="utf-8")
        if text.count(right) != 1:
            raise AssertionError(
                f"{bug.what}: {name} holds the text {text.count(right)} times, not once:\n{right}"
            )
        path.write_text(text.replace(right, wrong), encoding="utf-8")
