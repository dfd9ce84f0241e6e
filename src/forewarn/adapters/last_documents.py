"""What a host showed last, in a file: so that a daemon started while control is away can show it.

Nothing depends on it being there or being new: whatever control says later replaces it. A file that
cannot be used is not used, and is put aside before another one takes its place.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from forewarn.adapters.file_format_versions import Form, UnreadForm, this_program
from forewarn.adapters.private_files import write_private
from forewarn.adapters.sqlite.data_folder import keep_aside
from forewarn.adapters.system import SystemClock
from forewarn.logs import Log
from forewarn.wire.link import ShownScope

log = Log(__name__)

FILE = "documents.json"
FORM = 1  # of the file; form 0 did not say so, and was otherwise the same
BYTES_MAX = 256 * 1024 * 1024
UNREAD_PREFIX = "unread-"  # of the folder to which a file is moved that could not be used


class LastShown(msgspec.Struct, frozen=True, kw_only=True):
    """What a host showed, for its own next start: the scopes, and when control had which time.

    `monotonic_ms` is that of the host in the boot that `boot_id` names; another boot counts anew.
    """

    form: int = FORM
    written_by: str = ""
    now_ms: int
    monotonic_ms: int
    boot_id: str
    scopes: tuple[ShownScope, ...]


class _Form(msgspec.Struct, frozen=True):
    """What every form has, so that another one is told from a damaged file."""

    form: int = 0
    written_by: str = ""


def keep(folder: Path, shown: LastShown) -> None:
    """Replace what was kept. Raises OSError."""
    write_private(folder / FILE, encode(shown))


def encode(shown: LastShown) -> bytes:
    """What is written: in the newest form, by this program."""
    return msgspec.json.encode(msgspec.structs.replace(shown, form=FORM, written_by=this_program()))


def forget(folder: Path) -> None:
    """Have nothing kept. Raises OSError."""
    (folder / FILE).unlink(missing_ok=True)


def load(folder: Path) -> LastShown | None:
    """What was kept; None if there is nothing that can be used, and why is logged."""
    path = folder / FILE
    try:
        return _read(path)
    except FileNotFoundError:
        return None
    except UnreadForm as refused:
        log.warning("last_documents_not_used", why=refused.refused, remedy=refused.accepted)
        return None
    except (OSError, ValueError) as error:
        log.warning("last_documents_not_used", file=str(path), why=str(error))
        return None


def put_unread_aside(folder: Path) -> None:
    """Make room for a new file, if the one that is there cannot be used. Raises OSError."""
    path = folder / FILE
    try:
        _read(path)
    except FileNotFoundError:
        return
    except (UnreadForm, OSError, ValueError) as why:
        aside = keep_aside(folder, f"{UNREAD_PREFIX}{SystemClock().now_ms()}", (FILE,))
        log.warning("last_documents_put_aside", folder=str(aside), why=str(why))


def _read(path: Path) -> LastShown:
    """What is in the file. Raises UnreadForm, OSError, or ValueError for what is damaged."""
    if path.stat().st_size > BYTES_MAX:
        raise ValueError(f"it has more than {BYTES_MAX} bytes")
    return decode(path.read_bytes(), path)


def decode(content: bytes, path: Path) -> LastShown:
    """What was kept, in this form or the one before. Raises UnreadForm or ValueError."""
    said = msgspec.json.decode(content, type=_Form)
    Form(said.form, said.written_by).refuse(
        path,
        newest=FORM,
        price="go on: guests read nothing while control is away, until it has answered once. The"
        " file is put aside then, not removed.",
    )
    return msgspec.json.decode(content, type=LastShown)
