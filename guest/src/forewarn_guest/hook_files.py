"""Whether a program that a configuration names can be run, and who could change it.

What is found wrong is said at start, before anything depends on it.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

_HEAD_BYTES = 512  # what tells a script from a program; the kernel looks at half as much
_ELF = b"\x7fELF"


def find_program(name: str) -> str:
    """The absolute path of a program that can be run as it is.

    A name without a slash is looked up on PATH. Raises ValueError with what is wrong, as words to
    follow the key that named it.
    """
    if "/" in name:
        if not name.startswith("/"):
            raise ValueError(f"names {name}: a path must begin with /")
        path = name
    else:
        path = _on_path(name)
    _check_runs(path)
    why = who_may_change(Path(path))
    if why:
        raise ValueError(f"names {path}, which would run with the agent's rights: {why}")
    return path


def who_may_change(path: Path) -> str:
    """What lets every user of the machine change a file, with the remedy; empty if nothing does.

    The file itself and each folder above it, behind links too.
    """
    real = Path(os.path.realpath(path))
    for place in (real, *real.parents, path.parent):
        mode = place.stat().st_mode
        sticky_folder = stat.S_ISDIR(mode) and mode & stat.S_ISVTX
        if mode & stat.S_IWOTH and not sticky_folder:
            return f"every user may write to {place}; chmod o-w {place} helps"
    return ""


def _on_path(name: str) -> str:
    path = os.environ.get("PATH", os.defpath)
    found = shutil.which(name, path=path)
    if found is None:
        raise ValueError(f"names {name}, which is not on the PATH of the agent, {path}")
    return os.path.abspath(found)  # noqa: PTH100 - a link keeps its name, which some programs read


def _check_runs(path: str) -> None:
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        raise ValueError(f"names {path}: {_in_words(error)}") from None
    if not stat.S_ISREG(mode):
        raise ValueError(f"names {path}, which is no file")
    if not os.access(path, os.X_OK):
        raise ValueError(f"names {path}, which is not executable; chmod +x {path} helps")
    try:
        with Path(path).open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except PermissionError:
        return  # a program may be run by those who may not read it
    except OSError as error:
        raise ValueError(f"names {path}: {_in_words(error)}") from None
    _check_head(path, head)


def _check_head(path: str, head: bytes) -> None:
    """Refuse a script that the kernel would refuse: without #!, or for what is not there."""
    if head.startswith(b"#!"):
        words = head[2:].split(b"\n")[0].strip(b" \t").split()
        interpreter = os.fsdecode(words[0]) if words else ""
        if b"\r" in head.split(b"\n")[0]:
            raise ValueError(f"names {path}, whose first line ends with a carriage return")
        if not interpreter or not Path(interpreter).exists():
            raise ValueError(
                f"names {path}, a script for {interpreter or 'nothing'}: there is none"
            )
    elif not head.startswith(_ELF) and b"\0" not in head:
        raise ValueError(f"names {path}, a script whose first line does not begin with #!")


def _in_words(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
