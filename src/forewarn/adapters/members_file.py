"""The file that says who has joined the link and who is invited. One file, replaced as a whole."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from pathlib import Path

import msgspec

from forewarn.adapters.private_files import make_private_folder, write_private
from forewarn.adapters.sqlite.data_folder import FolderUnusable, unusable
from forewarn.core.membership import Members
from forewarn.ports import StoreFailed

MEMBERS_FILE = "members.json"
MEMBERS_FORM = 2
FORM_WITHOUT_CHECK = 1


class _Kept(msgspec.Struct, forbid_unknown_fields=True):
    """What is in the file. `form` tells other forms from this one, `check` sums up the members."""

    form: int
    members: Members
    check: int | None = None


class MembersFile:
    """Keeps the members of one data folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / MEMBERS_FILE

    def load(self, *, joined: Collection[str] = ()) -> Members:
        """The members that were kept last; none at the first start. DatabaseRefused if damaged.

        A damaged file is never taken for an empty one: that would shut every host out, and let
        used tokens in again. For the same reason it must be there if hosts have `joined`.
        """
        try:
            make_private_folder(self._path.parent)
            content = self._path.read_bytes()
        except FileNotFoundError:
            if joined:
                raise self._refused(f"is not there, and host {min(joined)} has joined") from None
            return Members()
        except OSError as error:
            raise unusable(self._path.parent, error) from error
        try:
            kept = msgspec.json.decode(content, type=_Kept)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._refused(f"is damaged: {error}") from error
        if kept.form not in (FORM_WITHOUT_CHECK, MEMBERS_FORM):
            raise self._refused(f"was written by a newer program (form {kept.form})")
        if kept.form == MEMBERS_FORM and kept.check != _check(kept.members):
            raise self._refused("is damaged: it is not what was written")
        return kept.members

    def _refused(self, why: str) -> FolderUnusable:
        return FolderUnusable(
            f"{self._path} {why}.",
            f"Put it back from a copy. Without one, move {self._path.parent} away: then every host"
            " has to be invited and to join again.",
        )

    def keep(self, members: Members) -> None:
        """Durable when it returns. Raises StoreFailed, and then the last one is still kept."""
        kept = _Kept(form=MEMBERS_FORM, members=members, check=_check(members))
        try:
            write_private(self._path, msgspec.json.format(msgspec.json.encode(kept)) + b"\n")
        except OSError as error:
            raise StoreFailed(
                f"{self._path} cannot be written: {error.strerror or error}.", fatal=False
            ) from error


def _check(members: Members) -> int:
    return zlib.crc32(msgspec.json.encode(members))
