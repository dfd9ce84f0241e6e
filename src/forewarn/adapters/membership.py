"""The file that says who has joined the link and who is invited. One file, replaced as a whole."""

from __future__ import annotations

from pathlib import Path

import msgspec

from forewarn.adapters.data_folder import FolderUnusable, unusable
from forewarn.adapters.private_files import make_private_folder, write_private
from forewarn.core.membership import Members
from forewarn.ports import StoreFailed

MEMBERS_FILE = "members.json"
MEMBERS_FORM = 1


class _Kept(msgspec.Struct, forbid_unknown_fields=True):
    """What is in the file. `form` tells later forms from this one."""

    form: int
    members: Members


class MembersFile:
    """Keeps the members of one data folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / MEMBERS_FILE

    def load(self) -> Members:
        """Who was kept last; nobody at the first start. Raises DatabaseRefused if it is damaged.

        A damaged file is never taken for an empty one: that would shut every host out, and let
        used tokens in again.
        """
        try:
            make_private_folder(self._path.parent)
            content = self._path.read_bytes()
        except FileNotFoundError:
            return Members()
        except OSError as error:
            raise unusable(self._path.parent, error) from error
        try:
            kept = msgspec.json.decode(content, type=_Kept)
        except msgspec.DecodeError as error:
            raise self._refused(f"is damaged: {error}") from error
        if kept.form != MEMBERS_FORM:
            raise self._refused(f"was written by a newer program (form {kept.form})")
        return kept.members

    def _refused(self, why: str) -> FolderUnusable:
        return FolderUnusable(
            f"{self._path} {why}.",
            "Put it back from a copy. Without one, remove it: then every host has to be invited"
            " and to join again.",
        )

    def keep(self, members: Members) -> None:
        """Durable when it returns. Raises StoreFailed, and then the last one is still kept."""
        kept = _Kept(form=MEMBERS_FORM, members=members)
        try:
            write_private(self._path, msgspec.json.format(msgspec.json.encode(kept)) + b"\n")
        except OSError as error:
            raise StoreFailed(
                f"{self._path} cannot be written: {error.strerror or error}.", fatal=False
            ) from error
