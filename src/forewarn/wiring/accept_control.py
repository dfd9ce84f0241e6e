"""`forewarn host accept-control`: the operator's word that a control's numbers count as they are.

This command writes nothing but that word; the daemon of the folder carries it out, now if it runs,
else when it is started. So its files stay its own, whichever user gives the word.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from forewarn.adapters import host_credentials, marks_file
from forewarn.adapters.sqlite.data_folder import lock_holder, unusable
from forewarn.core.errors import Invalid
from forewarn.core.incarnation_marks import Marks

# A daemon looks for it before each question for changes. One that refuses its control asks every
# second; else such a question waits up to 25 s.
TAKEN_LIMIT_S = 45.0
LOOK_EVERY_S = 0.1


class Standing(Struct, frozen=True, kw_only=True):
    """What a host's data folder says before anything is forgotten.

    `vms` have marks, the highest of which is `highest`; `lost` as in `Marks`. `daemon` is the
    process that runs on the folder, None if none does.
    """

    name: str
    control: str
    vms: int
    highest: int
    lost: str
    daemon: int | None


def standing(folder: Path, *, control: str = "") -> Standing:
    """How a host stands. Raises Invalid where no host has joined, Conflict or DatabaseRefused.

    `control` is the URL in its settings, if they have one: the daemon asks there, and not where it
    joined.
    """
    try:
        known = host_credentials.load(folder)
    except OSError as error:
        raise unusable(folder, error) from error
    if known is None:
        raise Invalid(
            f"{folder} is not the data folder of a host: there is no certificate in it.",
            "Name the folder of the daemon with --data DIR (of the unit: /var/lib/forewarn-host),"
            " on the machine where it runs.",
        )
    marks = marks_file.load(folder) or Marks()
    return Standing(
        name=known.name,
        control=control or known.control,
        vms=len(marks.of_vm),
        highest=max(marks.of_vm.values(), default=1),
        lost=marks.lost,
        daemon=lock_holder(folder),
    )


def accept_control(
    folder: Path,
    *,
    limit_s: float = TAKEN_LIMIT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Give the word. True if a daemon that runs has carried it out. Raises DatabaseRefused."""
    try:
        marks_file.ask_to_accept(folder)
    except OSError as error:
        raise unusable(folder, error) from error
    waited_s = 0.0
    while marks_file.accepting(folder):
        if waited_s >= limit_s or lock_holder(folder) is None:
            return False
        sleep(LOOK_EVERY_S)
        waited_s += LOOK_EVERY_S
    return True
