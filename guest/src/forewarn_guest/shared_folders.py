"""Who else may change what the agent believes: its configuration, and its journal.

An agent that runs as root does what these say with the rights of root. A user who may write to
them, or may put something else in their place, has those rights.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

ROOT = 0
LINKS_MAX = 40  # as the kernel has it


def others_than_root(path: Path) -> str:
    """What lets others than root change a file or folder, with the remedy; empty if nothing does.

    Empty, too, where the agent does not run as root: its own user may change what is its own.
    """
    return others_may_write(path, ROOT) if os.geteuid() == ROOT else ""


def others_may_write(path: Path, uid: int) -> str:
    """What lets others than root and this user change a file or folder; empty if nothing does.

    The thing itself, each folder above it, and each link and folder on the way there. In a folder
    on the way the sticky bit is enough: there others may add, and not replace. Raises OSError.
    """
    places = _on_the_way(path)
    real = places[-1]
    for place in reversed(places):
        found = place.lstat()
        link = stat.S_ISLNK(found.st_mode)
        if found.st_uid not in (ROOT, uid):
            chown = "chown -h" if link else "chown"
            return f"uid {found.st_uid} owns {place}; {chown} {uid} {place} helps"
        if link:
            continue  # its mode says nothing; who may replace it, the folder that it is in
        if found.st_mode & stat.S_ISVTX and place != real:
            continue
        if found.st_mode & stat.S_ISVTX and found.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
            return f"others may put files into {place}; a folder of its own helps"
        if found.st_mode & stat.S_IWOTH:
            return f"every user may write to {place}; chmod o-w {place} helps"
        if found.st_mode & stat.S_IWGRP and found.st_gid != ROOT:
            return f"the group {found.st_gid} may write to {place}; chmod g-w {place} helps"
    return ""


def _on_the_way(path: Path) -> list[Path]:
    """Every folder in which a name is looked up on the way to a path, and every link that is
    followed, in that order; at the end what is there. Raises OSError.
    """
    path = path.absolute()
    here = Path(path.anchor)
    names = list(reversed(path.parts[1:]))
    places, links = [here], 0
    while names:
        name = names.pop()
        if name == os.pardir:
            here = here.parent
            places.append(here)
            continue
        there = here / name
        if there.is_symlink():
            links += 1
            if links > LINKS_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            target = there.readlink()
            places.append(there)
            if target.is_absolute():
                here = Path(target.anchor)
            parts = target.parts[1:] if target.is_absolute() else target.parts
            names.extend(reversed(parts))
        else:
            here = there
        places.append(here)
    return places
