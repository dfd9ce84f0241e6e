"""`python -m rig`: bring the rig up and stay until Ctrl-C; `python -m rig down`: clear away."""

from __future__ import annotations

import signal
import sys
from functools import partial
from pathlib import Path
from types import FrameType

from rig import leftovers, needs
from rig.building import Rig
from rig.cells import CommandFailed
from rig.domains import Guest
from rig.waiting import NotInTime, wait_for

BOOT_LIMIT_S = 60.0
GUESTS = (
    (
        Guest(
            name="web-0", number=21, approves=True, traits={"scope": "web", "update-domain": "0"}
        ),
        "h1",
    ),
    (
        Guest(
            name="web-1", number=22, approves=True, traits={"scope": "web", "update-domain": "1"}
        ),
        "h2",
    ),
    (Guest(name="db-0", number=23), "h1"),
)


def main(words: list[str]) -> int:
    if words == ["down"]:
        for folder in leftovers.remove_leftovers():
            print(f"Removed {folder}.")
        return 0
    if words:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        return _stay()
    except (needs.CannotBuild, NotInTime, CommandFailed) as why:
        print(why, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nEverything is taken down.")
        return 0


def _stay() -> int:
    signal.signal(signal.SIGTERM, _interrupt)
    with Rig() as rig:
        for guest, on in GUESTS:
            rig.define(guest, on)
        for guest, _ in GUESTS:
            wait_for(
                f"{guest.name} boots",
                partial(rig.consoles.lines, guest.name),
                within_s=BOOT_LIMIT_S,
            )
        print(_picture(rig.folder))
        while True:
            signal.pause()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _picture(folder: Path) -> str:
    return f"the rig is up in {folder}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
