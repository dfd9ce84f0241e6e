"""Who may speak as a host: invitations, and the hosts that have joined.

An invitation is known by the digest of its token; a host by the digest of its public key, so a
renewed certificate is the same host and a copied name is not. Only the same key may join twice
with one token: a host can ask again for an answer that was lost, and a token that another person
has read is worth nothing once it was used.

What was revoked is kept too: a list from a backup may be older than a revocation, and `rejoined`
says who is a member when two lists are put together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from forewarn.core.errors import NameTaken, NotFound, NotInvited, NotMember
from forewarn.core.model import DAY_MS, SECOND_MS
from forewarn.core.suggestions import meant

INVITATIONS_MAX = 1_000
ENDED_KEPT_MS = 7 * DAY_MS  # so long a used or expired token is told apart from a foreign one
VALID_MS_MIN = 10 * SECOND_MS
VALID_MS_MAX = 30 * DAY_MS
# So long a revocation is kept: the certificate of a host that was shut out has expired by then, and
# no list that knows it as a member lets it in any more.
REVOKED_KEPT_MS = 400 * DAY_MS


class Member(Struct, frozen=True, kw_only=True):
    """A host that has joined. `key` is the digest of its public key."""

    name: str
    key: str
    since_ms: int


class Invitation(Struct, frozen=True, kw_only=True):
    """A token that lets one host in, once.

    Older controls made tokens without a name, for any host; they let no host in any more.
    `replaces`: the host takes over the name from the host that has it. `used_by` and `used_key` are
    the name and key of the host that it has let in.
    """

    digest: str
    name: str | None
    expires_ms: int
    replaces: bool = False
    used_by: str | None = None
    used_key: str | None = None


class Revocation(Struct, frozen=True, kw_only=True):
    """A key that was shut out, or that another has taken the place of."""

    name: str
    key: str
    at_ms: int


class Members(Struct, frozen=True, kw_only=True):
    """Every host that has joined, by name, the invitations, oldest first, and what was revoked."""

    members: Mapping[str, Member] = field(default_factory=dict)
    invitations: tuple[Invitation, ...] = ()
    revoked: tuple[Revocation, ...] = ()


def invite(
    known: Members,
    *,
    digest: str,
    name: str,
    valid_ms: int,
    now_ms: int,
    replaces: bool = False,
) -> Members:
    """With one more invitation. An unused one for the same name ends with it."""
    if name in known.members and not replaces:
        raise NameTaken(
            f"Host {name} has joined already.",
            f"If it has lost its key, or another machine takes its place, say "
            f"`forewarn host invite {name} --replace`.",
        )
    others = [
        one
        for one in known.invitations
        if now_ms - one.expires_ms < ENDED_KEPT_MS and (one.used_by is not None or one.name != name)
    ]
    made = Invitation(
        digest=digest,
        name=name,
        expires_ms=now_ms + min(valid_ms, VALID_MS_MAX),
        replaces=replaces,
    )
    return replace(known, invitations=_most_needed([*others, made], now_ms))


def _most_needed(invitations: list[Invitation], now_ms: int) -> tuple[Invitation, ...]:
    """At most INVITATIONS_MAX of them: those that have ended go first, then the oldest."""
    too_many = len(invitations) - INVITATIONS_MAX
    if too_many <= 0:
        return tuple(invitations)
    ended = [one for one in invitations if one.used_by is not None or now_ms >= one.expires_ms]
    still_open = [one for one in invitations if one not in ended]
    gone = {one.digest for one in [*ended, *still_open][:too_many]}
    return tuple(one for one in invitations if one.digest not in gone)


def join(known: Members, *, name: str, key: str, digest: str, now_ms: int) -> Members:
    """With the host as a member and its invitation used. Raises NotInvited or NameTaken."""
    found = _need_invitation(known, digest, name=name, key=key, now_ms=now_ms)
    taken = known.members.get(name)
    if taken is not None and taken.key != key and not found.replaces:
        raise NameTaken(
            f"Another host has joined as {name}.",
            f"Choose another name; or, if this machine takes its place, use the token of "
            f"`forewarn host invite {name} --replace`.",
        )
    used = replace(found, used_by=name, used_key=key)
    same = taken is not None and taken.key == key
    since_ms = taken.since_ms if taken is not None and same else now_ms
    return Members(
        members={**known.members, name: Member(name=name, key=key, since_ms=since_ms)},
        invitations=tuple(used if one is found else one for one in known.invitations),
        revoked=known.revoked if taken is None or same else _with_out(known.revoked, taken, now_ms),
    )


def _need_invitation(
    known: Members, digest: str, *, name: str, key: str, now_ms: int
) -> Invitation:
    again = f"Make a new one on the control machine: `forewarn host invite {name}`."
    if name in known.members:
        again = (
            f"If this machine takes the place of the {name} that has joined, make a new one on the"
            f" control machine: `forewarn host invite {name} --replace`."
        )
    found = next((one for one in known.invitations if one.digest == digest), None)
    if found is None or found.name is None:
        raise NotInvited("The token is not one of this control plane.", again)
    if found.used_key is not None and (found.used_key, found.used_by) != (key, name):
        raise NotInvited(f"The token was used already, by host {found.used_by}.", again)
    if now_ms >= found.expires_ms:
        raise NotInvited("The token has expired.", again)
    if found.name != name:
        raise NotInvited(f"The token is for host {found.name}, not for {name}.", again)
    return found


def revoke(known: Members, name: str, *, now_ms: int) -> Members:
    """Without the host, and without what invites it. Raises NotFound if it has not joined."""
    member = known.members.get(name)
    if member is None:
        raise NotFound(
            f"No host has joined as {name}.",
            f"{meant(name, known.members)} `forewarn host list` shows who has.",
        )
    return Members(
        members={other: member for other, member in known.members.items() if other != name},
        invitations=tuple(one for one in known.invitations if name not in (one.name, one.used_by)),
        revoked=_with_out(known.revoked, member, now_ms),
    )


def _with_out(revoked: Iterable[Revocation], member: Member, now_ms: int) -> tuple[Revocation, ...]:
    """With this member's key as revoked, and without what needs to be kept no longer."""
    recent = (one for one in revoked if now_ms - one.at_ms < REVOKED_KEPT_MS)
    # A clock may have been turned back since it joined: it is out all the same.
    at_ms = max(now_ms, member.since_ms)
    return (*recent, Revocation(name=member.name, key=member.key, at_ms=at_ms))


def rejoined(saved: Members, own: Members | None, revoked: Iterable[Revocation]) -> Members:
    """Who is a member when a saved list is put beside the `own` list of a machine, if it has one.

    Of two members of one name the later one stays. A host whose key was revoked after it had joined
    is no member, whichever list says so; `revoked` are revocations from elsewhere. An invitation
    counts only if it is the machine's own, or was used: one that was open when the list was saved
    may have been used by another host since.
    """
    here = own or Members()
    out = _all_revoked((*saved.revoked, *here.revoked, *revoked))
    members: dict[str, Member] = {}
    for member in (*saved.members.values(), *here.members.values()):
        there = members.get(member.name)
        if not is_revoked(member, out) and (there is None or member.since_ms >= there.since_ms):
            members[member.name] = member
    invitations = {one.digest: one for one in saved.invitations if one.used_by is not None}
    for one in here.invitations:
        if one.used_by is not None or one.digest not in invitations:
            invitations[one.digest] = one
    out_keys = {one.key for one in out}
    return Members(
        members={name: members[name] for name in sorted(members)},
        invitations=tuple(one for one in invitations.values() if one.used_key not in out_keys),
        revoked=out,
    )


def is_revoked(member: Member, revoked: Iterable[Revocation]) -> bool:
    """True if its key was shut out since it joined."""
    return any(one.key == member.key and one.at_ms >= member.since_ms for one in revoked)


def _all_revoked(revoked: Iterable[Revocation]) -> tuple[Revocation, ...]:
    """Each key once, with its last revocation, oldest first."""
    last: dict[str, Revocation] = {}
    for one in sorted(revoked, key=lambda found: found.at_ms):
        last[one.key] = one
    return tuple(sorted(last.values(), key=lambda found: (found.at_ms, found.name)))


def need_member(known: Members, *, name: str, key: str) -> Member:
    """The member that has this name and key. Raises NotMember."""
    member = known.members.get(name)
    if member is None:
        raise NotMember(
            f"Host {name} has not joined, or was revoked.",
            f"Say `forewarn host invite {name}` on the control machine and start the host with "
            "the token it prints.",
        )
    if member.key != key:
        raise NotMember(
            f"Another machine has taken the place of this one as host {name}.",
            f"Stop this daemon; or, to take the place back, say "
            f"`forewarn host invite {name} --replace` on the control machine.",
        )
    return member
