"""How hosts come to belong to this control plane: invited, joined, renewed, revoked.

`core.membership` says what is allowed; `sign` and `read` know keys and certificates.
Every change is kept before any caller is told of it, one after the other.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, Protocol, TypeVar

from msgspec import Struct

from forewarn.control.commands import HostJoined, HostsLeft
from forewarn.control.control import Control
from forewarn.control.inventory.file_fields import need_host_name
from forewarn.control.inventory.file_reader import ReadFiles, digest_of
from forewarn.core import membership
from forewarn.core.errors import BadInventory, Conflict, Invalid, NotMember, Unavailable
from forewarn.core.membership import Member, Members
from forewarn.core.model import HOUR_MS
from forewarn.core.principal import OPERATOR, Principal, the_host
from forewarn.logs import Log
from forewarn.ports import Clock

TOKEN_FORM = "fw1"  # noqa: S105 - the beginning of every token
SECRET_BYTES = 24
TOKEN_VALID_MS = HOUR_MS
PLACES_AGAIN_S = 2.0  # of hosts that left, after they could not be taken
PLACES_AGAIN_S_MAX = 600.0  # after something broke
PLACES_REMEDY = (
    "it is tried again; `forewarn host list` still shows these hosts, and nothing else waits for"
    " it; this is a fault of Forewarn: report it with this line"
)

log = Log(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Aside(Protocol):
    """Runs what takes a while (files, keys) off the event loop: `asyncio.to_thread`."""

    async def __call__(self, work: Callable[P, T], /, *given: P.args, **named: P.kwargs) -> T: ...


class CertificateSubject(Protocol):
    """Who a certificate, or the request for one, is for. `key` is what a host is known by."""

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> str: ...


class CertificateTerm(CertificateSubject, Protocol):
    """Who a certificate is for, and until when."""

    @property
    def until_ms(self) -> int: ...


class Signing(Struct, frozen=True, kw_only=True):
    """What the certificate authority can do. `sign` raises Invalid for a request it does not take.

    `fingerprint` is that of the authority's own certificate; `pem` is the certificate.
    """

    fingerprint: str
    pem: str
    read_request: Callable[[str], CertificateSubject]
    read_peer: Callable[[bytes], CertificateTerm]
    sign: Callable[[str, str], str]


class Membership:
    """The members of the link. Belongs to the event loop.

    `clock` is that of the machine, by which certificates are checked too. `shut_out` is told of a
    host that may not speak any more, `files` has the inventory files that were read already. `keep`
    and what `signing` does are run `aside`.
    """

    def __init__(
        self,
        members: Members,
        *,
        keep: Callable[[Members], None],
        signing: Signing,
        control: Control,
        clock: Clock,
        shut_out: Callable[[str], None] = lambda _: None,
        files: ReadFiles | None = None,
        aside: Aside = asyncio.to_thread,
        by: Principal = OPERATOR,
    ) -> None:
        self._by = by  # who revokes, where no principal does
        self._files = files or ReadFiles()
        self._members = members
        self._keep = keep
        self._signing = signing
        self._control = control
        self._clock = clock
        self._shut_out = shut_out
        self._aside = aside
        self._one_at_a_time = asyncio.Lock()
        self._until_ms: dict[str, int] = {}  # of the certificates that hosts have shown
        self._leaving: set[str] = set()  # found at the start, with their places still to be taken
        self.failures = 0  # how often taking their places broke

    @property
    def authority_pem(self) -> str:
        return self._signing.pem

    def members(self) -> Sequence[Member]:
        """Every host that has joined, by name."""
        return sorted(self._members.members.values(), key=lambda member: member.name)

    async def invite(
        self, name: str, *, valid_ms: int = TOKEN_VALID_MS, replaces: bool = False
    ) -> str:
        """A new one-time token for this host. Raises Refusal."""
        need_host_name(name)
        secret = secrets.token_urlsafe(SECRET_BYTES)
        async with self._one_at_a_time:
            await self._change(
                membership.invite(
                    self._members,
                    digest=_digest(secret),
                    name=name,
                    valid_ms=valid_ms,
                    now_ms=self._clock.now_ms(),
                    replaces=replaces,
                )
            )
        return f"{TOKEN_FORM}.{secret}.{self._signing.fingerprint}"

    async def join(self, name: str, token: str, request: str) -> str:
        """The certificate of a host that shows a token, once. Raises Refusal or Unavailable.

        The same token with the same key is answered again: an answer may have been lost.
        """
        need_host_name(name)
        asked = await self._aside(self._signing.read_request, request)
        if asked.name != name:
            raise Invalid(
                f"The certificate signing request is for {asked.name}, not for {name}.",
                "Ask for the name that the host joins with.",
            )
        async with self._one_at_a_time:
            after = membership.join(
                self._members,
                name=name,
                key=asked.key,
                digest=_digest(_secret(token)),
                now_ms=self._clock.now_ms(),
            )
            certificate = await self._aside(self._signing.sign, request, name)
            # The host's place comes first: kept without it, a member could not even be heard.
            await self._control.submit(HostJoined(by=the_host(name), host=name))
            await self._change(after)
        return certificate

    async def renew(self, member: Member, request: str) -> str:
        """A new certificate for a member, for the same name and key. Raises Refusal."""
        asked = await self._aside(self._signing.read_request, request)
        if (asked.name, asked.key) != (member.name, member.key):
            raise Invalid(
                "A certificate is renewed for the same name and key only.",
                f"To change them say `forewarn host invite {member.name} --replace`.",
            )
        return await self._aside(self._signing.sign, request, member.name)

    async def revoke(self, name: str, *, by: Principal | None = None) -> None:
        """Shut a host out, now. Raises NotFound if it has not joined, or Unavailable.

        It is out when this is kept; its place in the fleet follows, at the next start if need be.
        A host that kept its place because of its VMs loses it when this is said again without them.
        """
        async with self._one_at_a_time:
            if not await self._is_out_already(name):
                now_ms = self._clock.now_ms()
                await self._change(membership.revoke(self._members, name, now_ms=now_ms))
        self._shut_out(name)
        await self._files.read_by_now()  # else the writer would read it, and all callers wait
        await self._take_from([name], by=by)

    async def _is_out_already(self, name: str) -> bool:
        if any(member.name == name for member in self.members()):
            return False
        host = self._control.fleet.host(name)
        return host is not None and not host.joined and not host.listed

    async def settle(self) -> None:
        """Have exactly the members as hosts with a daemon of their own; call it at the start.

        A kill between two writes, and a restored backup, leave one without the other; only the
        members say which hosts have joined. Whether a host that left keeps its place depends on
        the inventory file: while a large one is being read, that is left to `run`.
        """
        members = {member.name for member in self.members()}
        joined = {host.name for host in self._control.fleet.hosts() if host.joined}
        for name in sorted(members - joined):
            await self._control.submit(HostJoined(by=the_host(name), host=name))
        self._leaving = joined - members
        if not self._files.reading:
            await self._take_places()

    async def run(self) -> None:
        """Take the places that `settle` could not take yet; then nothing, until canceled.

        What breaks is logged once and tried again, later each time: it must not end the process.
        """
        await self._files.read_by_now()
        told, again_s = "", PLACES_AGAIN_S
        while self._leaving:
            try:
                await self._take_places()
            except Unavailable as why:
                log.warning("host_places_put_off", why=str(why), hosts=sorted(self._leaving))
                await asyncio.sleep(PLACES_AGAIN_S)
            except Exception as error:
                self.failures += 1
                if repr(error) != told:
                    told, hosts = repr(error), sorted(self._leaving)
                    log.exception("host_places_broke", hosts=hosts, remedy=PLACES_REMEDY)
                await asyncio.sleep(again_s)
                again_s = min(2 * again_s, PLACES_AGAIN_S_MAX)
        await asyncio.Event().wait()

    async def _take_places(self) -> None:
        async with self._one_at_a_time:  # one of them may be joining again
            self._leaving -= {member.name for member in self.members()}
            if self._leaving:
                await self._take_from(self._leaving)
            self._leaving = set()

    def need_member(self, certificate: bytes) -> Member:
        """The member that a certificate, already checked by TLS, belongs to. Raises NotMember."""
        shown = self._signing.read_peer(certificate)
        member = membership.need_member(self._members, name=shown.name, key=shown.key)
        self._until_ms[member.name] = shown.until_ms
        if self._clock.now_ms() >= shown.until_ms:
            raise NotMember(
                f"The certificate of host {shown.name} has expired.",
                f"Say `forewarn host invite {shown.name} --replace` on the control machine and "
                "start the host with the token it prints; if it expired too early, see what time "
                "it is on the control machine.",
            )
        return member

    def first_expiry_ms(self) -> int:
        """When the first certificate of a member expires, of those that were shown; 0 if none."""
        members = self._members.members
        return min((ms for name, ms in self._until_ms.items() if name in members), default=0)

    def need_still(self, member: Member) -> None:
        """Raises NotMember if the member was revoked or replaced meanwhile."""
        membership.need_member(self._members, name=member.name, key=member.key)

    async def _take_from(self, names: Iterable[str], *, by: Principal | None = None) -> None:
        """Take the places of hosts, unless an inventory file gives them one too."""
        while True:
            text = self._control.fleet.inventory
            command = HostsLeft(
                by=by or self._by,
                hosts=tuple(sorted(names)),
                listed_by_file=await self._aside(self._listed, text),
                inventory=None if text is None else digest_of(text),
            )
            try:
                return await self._control.submit(command)
            except Conflict:
                log.info("inventory_changed_meanwhile")  # looked at again

    def _listed(self, text: str | None) -> tuple[str, ...]:
        """The hosts that the inventory file lists."""
        if text is None:
            return ()
        try:
            return tuple(sorted(host.name for host in self._files.read(text).hosts))
        except BadInventory:
            return ()  # written under older rules; what it meant then is in the fleet

    async def _change(self, after: Members) -> None:
        await self._aside(self._keep, after)
        self._members = after


def _secret(token: str) -> str:
    """The secret part of a token. Raises Invalid."""
    form, _, rest = token.strip().partition(".")
    secret, _, fingerprint = rest.partition(".")
    if form != TOKEN_FORM or not secret or not fingerprint:
        raise Invalid(
            "The token is not one that `forewarn host invite` prints.",
            f"Give it whole; it begins with {TOKEN_FORM}. and has three parts.",
        )
    return secret


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
