"""Who else may change what the agent believes: its configuration, and its journal.

An agent that runs as root does what these say with the rights of root. Whoever may write to them,
or may put something else in their place, has those rights.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

ROOT = 0


def others_than_root(path: Path) -> str:
    """What lets others than root change a file or folder, with the remedy; empty if nothing does.

    Empty, too, where the agent does not run as root: its own user may change what is its own.
    """
    return others_may_write(path, ROOT) if os.geteuid() == ROOT else ""


def others_may_write(path: Path, uid: int) -> str:
    """What lets others than root and this user change a file or folder; empty if nothing does.

    The thing itself and each folder above it, behind links too. In a folder above, the sticky bit
    is enough: there others may add, and not replace.
    """
    real = Path(os.path.realpath(path))
    for place in (real, *real.parents, path.absolute().parent):
        found = place.stat()
        if found.st_uid not in (ROOT, uid):
            return f"uid {found.st_uid} owns {place}; chown {uid} {place} helps"
        if found.st_mode & stat.S_ISVTX and place != real:
            continue
        if found.st_mode & stat.S_ISVTX and found.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
            return f"others may put files into {place}; a folder of its own helps"
        if found.st_mode & stat.S_IWOTH:
            return f"everybody may write to {place}; chmod o-w {place} helps"
        if found.st_mode & stat.S_IWGRP and found.st_gid != ROOT:
            return f"the group {found.st_gid} may write to {place}; chmod g-w {place} helps"
    return ""
