"""What a restore does with members, authority and token: they are secrets, and a list may be old.

The machine's own files count as the later ones. A revocation counts wherever one is found: in the
backup, in the folder `link`, and in every folder that a restore has kept aside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from pathlib import Path

from msgspec import Struct, field

from forewarn.adapters.members_file import read_members, written_members
from forewarn.adapters.private_files import leave_to_owner, make_private_folder, write_private
from forewarn.adapters.secret_files import (
    CERTIFICATE_FILE,
    KEY_FILE,
    LINK_FOLDER,
    MEMBERS_FILE,
    OPERATOR_TLS_FOLDER,
    OPERATOR_TOKEN_FILE,
)
from forewarn.adapters.sqlite.backup_file import KeptFiles
from forewarn.adapters.sqlite.data_folder import DatabaseRefused, damaged
from forewarn.core import membership
from forewarn.core.errors import NotFound
from forewarn.core.membership import Members, Revocation

_KEY = f"{LINK_FOLDER}/{KEY_FILE}"
_CERTIFICATE = f"{LINK_FOLDER}/{CERTIFICATE_FILE}"
_MEMBERS = f"{LINK_FOLDER}/{MEMBERS_FILE}"
# What operators trust, where the operator API has an authority of its own.
_OPERATOR_KEY = f"{OPERATOR_TLS_FOLDER}/{KEY_FILE}"
_OPERATOR_CERTIFICATE = f"{OPERATOR_TLS_FOLDER}/{CERTIFICATE_FILE}"
_OPERATOR_PAIR = (_OPERATOR_KEY, _OPERATOR_CERTIFICATE)
KEPT_NAMES = (_KEY, _CERTIFICATE, _MEMBERS, OPERATOR_TOKEN_FILE, *_OPERATOR_PAIR)
_ASIDE = f"before-*/{LINK_FOLDER}/{MEMBERS_FILE}"


class NoSuchMember(DatabaseRefused):
    """A restore is to revoke a host that is no member."""


class MembersFrom(StrEnum):
    """Where the members of a restored data folder come from."""

    BACKUP = "backup"  # the machine had no list, or none that could be read
    BOTH = "backup-and-machine"
    MACHINE = "machine"  # it has an authority of its own, which hosts have joined
    NOWHERE = "nowhere"  # neither has any


class LinkPlan(Struct, frozen=True, kw_only=True):
    """What becomes of the members. `until_ms` is when the list of the backup was written.

    `files` are written to the data folder, `aside` says that its `link` is kept aside first.
    `unread` says why the machine's own list could not be read; empty if it was.
    `left_out`: the authority of the backup was not taken, because hosts have joined another here.
    """

    members_from: MembersFrom
    members: Members
    until_ms: int | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    aside: bool = False
    unread: str = ""
    left_out: bool = False


def files_to_keep(data_dir: Path) -> dict[str, bytes]:
    """What a backup of this data folder holds beside the database. Raises OSError."""
    found = {}
    for name in KEPT_NAMES:
        path = data_dir / name
        if path.is_file():
            found[name] = path.read_bytes()
    return found


def plan_link(
    data_dir: Path, kept: KeptFiles, *, source: Path, revoke: Collection[str], now_ms: int
) -> LinkPlan:
    """What a restore is to do; changes nothing. Raises DatabaseRefused or OSError."""
    own = _own_link(data_dir / LINK_FOLDER)
    saved = _saved_members(kept, source)
    elsewhere = tuple(_kept_aside(data_dir))
    until_ms = None if kept.note is None else kept.note.made_ms
    operators = _of_operators(data_dir, kept)
    if saved is None or (own.was_joined() and not own.same(kept)):
        known = own.members or Members()
        members = _without(known, revoke, now_ms)
        where = MembersFrom.MACHINE if own.members is not None else MembersFrom.NOWHERE
        changed = own.members is not None and bool(revoke)
        files = {_MEMBERS: written_members(members)} if changed else {}
        plan = LinkPlan(
            members_from=where,
            members=members,
            files={**files, **operators},
            unread=own.unread,
            left_out=saved is not None,
        )
    else:
        beside = own.members if own.same(kept) else None
        members = membership.rejoined(saved, beside, (*own.revoked(), *elsewhere))
        members = _without(members, revoke, now_ms)
        plan = LinkPlan(
            members_from=MembersFrom.BACKUP if beside is None else MembersFrom.BOTH,
            members=members,
            until_ms=until_ms,
            files={
                _KEY: kept.files[_KEY],
                _MEMBERS: written_members(members),
                _CERTIFICATE: kept.files[_CERTIFICATE],  # last: without it there is no authority
                **operators,
            },
            aside=own.exists and (bool(own.unread) or not own.same(kept)),
            unread=own.unread,
        )
    return plan


def carry_out(data_dir: Path, plan: LinkPlan) -> None:
    """Write what the plan says; `link` was put aside already where the plan wants that."""
    for name in (LINK_FOLDER, OPERATOR_TLS_FOLDER):
        if any(file.startswith(f"{name}/") for file in plan.files):
            make_private_folder(data_dir / name)
            leave_to_owner(data_dir / name)
    for name, content in plan.files.items():
        write_private(data_dir / name, content)


class _OwnLink(Struct, frozen=True, kw_only=True):
    """The folder `link` as the machine has it."""

    exists: bool
    certificate: bytes | None = None
    members: Members | None = None
    unread: str = ""

    def same(self, kept: KeptFiles) -> bool:
        return self.certificate is not None and self.certificate == kept.files.get(_CERTIFICATE)

    def was_joined(self) -> bool:
        """True for a whole authority with members. A restore that was killed leaves half of one."""
        return self.certificate is not None and bool(self.members and self.members.members)

    def revoked(self) -> tuple[Revocation, ...]:
        return () if self.members is None else self.members.revoked


def _own_link(folder: Path) -> _OwnLink:
    certificate, members = folder / CERTIFICATE_FILE, folder / MEMBERS_FILE
    shown = certificate.read_bytes() if certificate.is_file() else None
    if not members.is_file():
        return _OwnLink(exists=folder.exists(), certificate=shown)
    try:
        found = read_members(members.read_bytes())
    except ValueError as error:
        return _OwnLink(exists=True, certificate=shown, unread=f"{members} {error}")
    return _OwnLink(exists=True, certificate=shown, members=found)


def _saved_members(kept: KeptFiles, source: Path) -> Members | None:
    """The list of a backup; None if no control made it, or a version that kept none in it."""
    if _KEY not in kept.files or _CERTIFICATE not in kept.files:
        return None
    if _MEMBERS not in kept.files:
        return Members()  # an authority that no host was invited by
    try:
        return read_members(kept.files[_MEMBERS])
    except ValueError as error:
        raise damaged(source, f"{MEMBERS_FILE} in it {error}") from error


def _kept_aside(data_dir: Path) -> Iterator[Revocation]:
    """What was revoked, as folders say that were kept aside; what cannot be read says nothing."""
    for path in sorted(data_dir.glob(_ASIDE)):
        try:
            yield from read_members(path.read_bytes()).revoked
        except (ValueError, OSError):
            continue


def _of_operators(data_dir: Path, kept: KeptFiles) -> dict[str, bytes]:
    """The token of the backup and the authority that operators trust, each unless the machine has
    one: it may have been changed since.
    """
    found = {}
    for names in ((OPERATOR_TOKEN_FILE,), _OPERATOR_PAIR):
        if (data_dir / names[-1]).exists() or not all(name in kept.files for name in names):
            continue
        found.update({name: kept.files[name] for name in names})  # the certificate last
    return found


def _without(members: Members, revoke: Collection[str], now_ms: int) -> Members:
    for name in sorted(set(revoke)):
        try:
            members = membership.revoke(members, name, now_ms=now_ms)
        except NotFound:
            there = ", ".join(members.members) or "none"
            raise NoSuchMember(
                f"{name} is no member, so it cannot be revoked.", f"The members are: {there}."
            ) from None
    return members
