"""The operator's token of a data folder: made once, and believed only if it is the owner's own.

It opens the operator API over TCP. A token that other users could have written or read opens the
service to them, so it stops the start.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from forewarn.adapters.private_files import write_private
from forewarn.adapters.shared_folders import ROOT, refuse_shared_folder
from forewarn.adapters.sqlite.data_folder import FolderUnusable, unusable
from forewarn.core.errors import Invalid

TOKEN_BYTES = 32
TOKEN_CHARS_MIN = 20
TOKEN_CHARS_MAX = 1_024
_ACCEPTED = (
    f"A token has {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} characters of ASCII, without spaces"
)
_NEW_ONE = "Remove it; the next start makes a new one."


def operator_token(path: Path) -> str:
    """The operator's token in this file of a data folder, made at the first start.

    Raises FolderUnusable if other users may have written or read it, or it could be guessed.
    """
    refuse_shared_folder(path.parent)
    try:
        token = _read(path)
    except FileNotFoundError:
        token = ""
    except OSError as error:
        raise unusable(path.parent, error) from error
    if not token:
        return _keep(path, secrets.token_urlsafe(TOKEN_BYTES))
    if not is_token(token):
        raise FolderUnusable(f"{path} holds no token. {_ACCEPTED}.", _NEW_ONE)
    return token


def given_token(path: Path, token: str) -> str:
    """Make a token from outside the operator's token in this file. Raises Invalid."""
    refuse_shared_folder(path.parent)
    if not is_token(token):
        raise Invalid(
            f"The operator's token has {len(token)} characters, or some that no token has.",
            f"{_ACCEPTED}; `head -c 24 /dev/urandom | base64` makes one.",
        )
    return _keep(path, token)


def is_token(text: str) -> bool:
    """True if it is too long to guess and an HTTP header can carry it."""
    fits = TOKEN_CHARS_MIN <= len(text) <= TOKEN_CHARS_MAX
    return fits and text.isascii() and text.isprintable() and " " not in text


def _read(path: Path) -> str:
    """What the file holds, once it is known to be the owner's alone. Raises OSError."""
    with open(path, "rb", opener=_at_once) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise FolderUnusable(f"{path} is no file.", _NEW_ONE)
        if found.st_uid not in (ROOT, os.geteuid()):
            raise FolderUnusable(
                f"{path} belongs to another user (uid {found.st_uid}), who knows it.", _NEW_ONE
            )
        if stat.S_IMODE(found.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            raise FolderUnusable(
                f"Other users may read or write {path} ({stat.filemode(found.st_mode)}).",
                f"{_NEW_ONE} If surely no other user has read it: chmod 600 {path}",
            )
        content = file.read(TOKEN_CHARS_MAX + 2)
    return content.decode("utf-8", "replace").strip()


def _at_once(path: str, flags: int) -> int:
    """Open without waiting: a pipe in the place of a file must not hold up the start."""
    return os.open(path, flags | os.O_NONBLOCK)


def _keep(path: Path, token: str) -> str:
    try:
        write_private(path, f"{token}\n".encode())
    except OSError as error:
        raise unusable(path.parent, error) from error
    return token
