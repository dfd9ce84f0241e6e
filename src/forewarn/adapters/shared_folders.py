"""Whether other users of the machine may change what is in a folder, before it is believed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from forewarn.adapters.sqlite.data_folder import FolderUnusable, unusable

ROOT = 0


def refuse_shared_folder(folder: Path) -> None:
    """Raise FolderUnusable if other users may write to the folder. One that is missing is fine.

    Who may write to a folder may put another token, socket or database there.
    """
    try:
        found = folder.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise unusable(folder, error) from error
    if found.st_uid not in (ROOT, os.geteuid()):
        raise FolderUnusable(
            f"{folder} belongs to another user (uid {found.st_uid}), who may change what is in it.",
            f"Run this as that user, or give the folder to the user of this process:"
            f" chown {os.geteuid()} {folder}",
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise FolderUnusable(
            f"Other users may write to {folder} ({stat.filemode(found.st_mode)}), and so change"
            " what is believed here.",
            f"Take that right away: chmod go-w {folder}",
        )
