"""The folder of a rig, and what is left of one that was killed.

All processes of a rig end with the one that built it, by the kernel's doing; what stays is its
folder. Each folder says whose it is, so that the next rig can tell the dead from the living.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from rig.cells import start_time

PREFIX = "forewarn-rig-"
RECORD = "record.json"
# A folder without a record is of a rig that begins right now, or of one that died in that moment.
BEGINNING_S = 60.0


def make_folder() -> Path:
    """A new folder that says which process it belongs to."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    note(folder, {})
    return folder


def note(folder: Path, processes: dict[str, int]) -> None:
    """Write down the builder of the rig and the first processes of its cells, with start times."""
    everyone = {"rig": os.getpid(), **processes}
    record = {name: [pid, start_time(pid)] for name, pid in everyone.items()}
    beside = folder / f"{RECORD}.new"
    beside.write_text(json.dumps(record), encoding="utf-8")
    beside.replace(folder / RECORD)


def living(script: str) -> Path | None:
    """The folder of the newest rig that is up and has the script: those of tests have none."""
    folders = Path(tempfile.gettempdir()).glob(f"{PREFIX}*")
    records = [(folder, _record(folder)) for folder in folders if folder.is_dir()]
    alive = [
        folder
        for folder, record in records
        if record and _alive(*record["rig"]) and (folder / script).exists()
    ]
    return max(alive, key=lambda folder: folder.stat().st_ctime, default=None)


def remove_leftovers() -> list[Path]:
    """End what is left of rigs whose builder is gone, and remove their folders. Those it lists."""
    removed = []
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        if folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid != os.geteuid():
            continue
        record = _record(folder)
        if record is None:
            if time.time() - folder.stat().st_mtime < BEGINNING_S:
                continue
        elif _alive(*record["rig"]):
            continue
        for pid, started in (record or {}).values():
            if _alive(pid, started):  # the very process that was written down, never a namesake
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
        removed.append(folder)
    return removed


def _record(folder: Path) -> dict[str, tuple[int, str | None]] | None:
    try:
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return {str(name): (int(pid), started) for name, (pid, started) in found.items()}
    except (OSError, ValueError, TypeError):
        return None


def _alive(pid: int, started: str | None) -> bool:
    return started is not None and start_time(pid) == started
