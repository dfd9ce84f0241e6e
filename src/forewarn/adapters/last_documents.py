"""What a host showed last, in a file: so that a daemon started while control is away can show it.

Nothing depends on it being there or being new: whatever control says later replaces it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from forewarn.adapters.private_files import write_private
from forewarn.logs import Log
from forewarn.wire.link import LastShown

log = Log(__name__)

FILE = "documents.json"
BYTES_MAX = 256 * 1024 * 1024


def keep(folder: Path, shown: LastShown) -> None:
    """Replace what was kept. Raises OSError."""
    write_private(folder / FILE, msgspec.json.encode(shown))


def forget(folder: Path) -> None:
    """Have nothing kept. Raises OSError."""
    (folder / FILE).unlink(missing_ok=True)


def load(folder: Path) -> LastShown | None:
    """What was kept; None if there is nothing that can be used."""
    path = folder / FILE
    try:
        if path.stat().st_size > BYTES_MAX:
            log.warning("last_documents_not_used", file=str(path), why="it is too large")
            return None
        return msgspec.json.decode(path.read_bytes(), type=LastShown)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        log.warning("last_documents_not_used", file=str(path), why=str(error))
        return None
