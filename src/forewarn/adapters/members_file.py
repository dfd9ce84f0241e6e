"""The file that says who has joined the link and who is invited. One file, replaced as a whole."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from forewarn.adapters.private_files import make_private_folder, write_private
from forewarn.adapters.secret_files import MEMBERS_FILE
from forewarn.adapters.sqlite.data_folder import FolderUnusable, unusable
from forewarn.core.membership import Invitation, Member, Members
from forewarn.ports import StoreFailed

MEMBERS_FORM = 3
FORM_WITHOUT_REVOKED = 2
FORM_WITHOUT_CHECK = 1


class _MembersForm(msgspec.Struct, forbid_unknown_fields=True):
    """What is in the file. `form` tells other forms from this one, `check` sums up the members."""

    form: int
    members: Members
    check: int | None = None


class _WithoutRevoked(msgspec.Struct):
    """What form 2 sums up: revocations were not kept yet."""

    members: Mapping[str, Member]
    invitations: tuple[Invitation, ...]


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
            return read_members(content)
        except ValueError as error:
            raise self._refused(str(error)) from error

    def _refused(self, why: str) -> FolderUnusable:
        return FolderUnusable(
            f"{self._path} {why}.",
            f"Put it back from a copy. Without one, move {self._path.parent} away: then every host"
            " has to be invited and to join again.",
        )

    def keep(self, members: Members) -> None:
        """Durable when it returns. Raises StoreFailed, and then the last one is still kept."""
        try:
            write_private(self._path, written_members(members))
        except OSError as error:
            raise StoreFailed(
                f"{self._path} cannot be written: {error.strerror or error}.", fatal=False
            ) from error


def read_members(content: bytes) -> Members:
    """The members in what such a file holds. Raises ValueError, which says what is wrong."""
    try:
        kept = msgspec.json.decode(content, type=_MembersForm)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"is damaged: {error}") from error
    if kept.form not in (FORM_WITHOUT_CHECK, FORM_WITHOUT_REVOKED, MEMBERS_FORM):
        raise ValueError(f"was written by a newer program (form {kept.form})")
    if kept.form != FORM_WITHOUT_CHECK and kept.check != _check(kept.members, kept.form):
        raise ValueError("is damaged: it is not what was written")
    return kept.members


def written_members(members: Members) -> bytes:
    """What such a file holds."""
    kept = _MembersForm(form=MEMBERS_FORM, members=members, check=_check(members, MEMBERS_FORM))
    return msgspec.json.format(msgspec.json.encode(kept)) + b"\n"


def _check(members: Members, form: int) -> int:
    summed: object = members
    if form == FORM_WITHOUT_REVOKED:
        summed = _WithoutRevoked(members.members, members.invitations)
    return zlib.crc32(msgspec.json.encode(summed))
