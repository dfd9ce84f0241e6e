"""Files that are there whole or not at all, whenever a program reads them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def put(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Put a file with this content in the place of the old one, in one instant.

    OSError if it cannot be done; then the old one stays, and nothing is left beside it. It is not
    forced to the disk: what is written here can be written again.
    """
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=str(path.parent))
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def surely_missing(path: Path) -> bool:
    """True if there is no such file.

    False if it may be there and we may not see it: the caller that opens it is then told why.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
