"""Who a request is from: by a token, by a token of an issuer, or by the socket.

Nothing here answers; who is not let in is a `NotLetIn`. A secret is compared in the same time
whether its token is there or not, and is kept nowhere.
"""

from __future__ import annotations

import asyncio
import hmac
from urllib.parse import parse_qsl, unquote

from msgspec.structs import replace
from starlette.types import Scope

from forewarn.api.access import AccessFor
from forewarn.api.peer_credentials import PEER_KEY, Admission, Peer, local_name
from forewarn.api.refused_attempts import GATE, Attempt, RefusedAttempts, RefusedFor
from forewarn.api.wrong_tokens import WrongTokens
from forewarn.control.commands import NoteTokenUse
from forewarn.control.control import Control
from forewarn.core import tokens
from forewarn.core.access import Access, Role
from forewarn.core.errors import Refusal, TokenEnded, Unavailable
from forewarn.core.model import SECOND_MS
from forewarn.core.principal import Principal
from forewarn.core.tokens import Token
from forewarn.wire.problems import problem, problem_json, status_of

CHALLENGE = 'Bearer realm="forewarn"'
RETRY_AFTER_S = 5
SIGNED_DOTS = 2  # in the token of an issuer, which has three parts; ours have none
NAMES_KEPT_MAX = 1_000  # of local users
# What programs call a token in a query (RFC 6750, 2.3); every server and proxy logs such a URL.
QUERY_NAMES = frozenset({"token", "access_token"})
_NO_HASH = "0" * 64


class NotLetIn(Exception):  # noqa: N818 - an answer, not an error
    """A request is not let in: what its caller is told, and what is written down of it."""

    def __init__(
        self, attempt: Attempt, content: dict[str, object], *headers: tuple[str, str]
    ) -> None:
        super().__init__(attempt.reason.value)
        self.attempt = attempt
        self.content = content
        self.headers = headers


class Credentials:
    """Finds out who asks. Belongs to the event loop.

    `token` is the operator's, and `by` who has it. `issuers` are asked about tokens that are not
    our own; `admission` says who may come by the socket, where each is called as on this machine
    unless it is `socket_by`.
    """

    def __init__(
        self,
        control: Control,
        refused: RefusedAttempts,
        *,
        token: str,
        by: Principal,
        admission: Admission,
        socket_by: Principal | None = None,
        issuers: AccessFor | None = None,
    ) -> None:
        if not token:
            raise ValueError("the operator API needs a token")
        self._control = control
        self._refused = refused
        self._token = token.encode()
        self._bootstrap = Access(principal=by, role=Role.ADMIN)
        self._admission = admission
        self._socket_by = socket_by
        self._issuers = issuers
        self._wrong = WrongTokens()
        self._names: dict[int, str] = {}
        self._used_s: dict[str, float] = {}

    async def access(self, scope: Scope) -> Access:
        """What the caller may do. Raises NotLetIn."""
        _refuse_token_in_url(scope)
        peer: Peer | None = scope.get(PEER_KEY)
        if peer is None:
            return await self._by_token(scope)
        return await self._by_socket(peer)

    def need_still(self, access: Access) -> None:
        """Raises TokenEnded if the token that gave this access lets nothing in any more.

        By the clock that decides: that of an emulator may be far from the issuer's.
        """
        now_ms = self._control.clock.now_ms()
        tokens.refuse_ended(self._control.fleet.tokens, access.principal, now_ms)
        if access.ends_ms is not None and now_ms >= access.ends_ms:
            raise TokenEnded("The token has expired.", "Ask the issuer for a new one.")

    def stands(self, access: Access) -> bool:
        """Whether what let a person in still does."""
        try:
            self.need_still(access)
        except TokenEnded:
            return False
        return True

    async def _by_socket(self, peer: Peer) -> Access:
        access = self._admission.access(peer, await self._name_of(peer))
        if access is None:
            raise _not_admitted(peer, self._admission)
        return replace(access, principal=self._socket_by) if self._socket_by else access

    async def _name_of(self, peer: Peer) -> str:
        name = self._names.get(peer.uid)
        if name is None:
            name = await asyncio.to_thread(local_name, peer.uid)
            if len(self._names) >= NAMES_KEPT_MAX:
                self._names.clear()
            self._names[peer.uid] = name
        return name

    def shown(self, text: str, address: str) -> Access | None:
        """What the operator's token or one of ours allows that a person shows on the console."""
        if hmac.compare_digest(text.encode("utf-8", "replace"), self._token):
            return self._bootstrap
        token = self._known(text)
        try:
            if token is not None:
                return self._by_own_token(token, address)
            attempt = Attempt(reason=RefusedFor.WRONG_TOKEN, address=address)
        except NotLetIn as why:
            attempt = why.attempt
        self._refused.note(attempt)
        return None

    async def _by_token(self, scope: Scope) -> Access:
        shown, address = _bearer(scope), address_of(scope)
        if hmac.compare_digest(shown, self._token):
            return self._bootstrap
        if not shown:
            raise NotLetIn(Attempt(reason=RefusedFor.NO_TOKEN, address=address), *_no_token())
        text = shown.decode("latin-1")
        token = self._known(text)
        if token is not None:
            return self._by_own_token(token, address)
        if self._issuers is not None and text.count(".") >= SIGNED_DOTS:
            try:
                return await self._issuers(text)
            except (Refusal, Unavailable) as refused:
                raise self._of_issuer(refused, address) from None
        raise self._wrong_token(address)

    def _known(self, text: str) -> Token | None:
        """The token that this is, whole; None if it is not one of ours, or the secret is wrong."""
        token = self._control.fleet.tokens.get(tokens.id_of(text) or "")
        kept = _NO_HASH if token is None else token.secret_hash
        same = hmac.compare_digest(tokens.hash_of(text), kept)
        return token if same else None

    def _by_own_token(self, token: Token, address: str) -> Access:
        access = token.access()
        if token.ended_ms(self._control.clock.now_ms()) is not None:
            why = tokens.ended(token.token_id, token)
            attempt = Attempt(
                reason=RefusedFor.ENDED,
                address=address,
                who=access.principal,
                token=token.token_id,
            )
            status = status_of(why)
            raise NotLetIn(attempt, problem_json(why, status), _challenge("invalid_token"))
        self._note_use(token.token_id)
        return access

    def _note_use(self, token_id: str) -> None:
        """Have the use of a token kept, now and then; the request does not wait for it."""
        now_s = asyncio.get_running_loop().time()
        noted_s = self._used_s.get(token_id)
        if noted_s is not None and (now_s - noted_s) * SECOND_MS < tokens.USED_EVERY_MS:
            return
        if len(self._used_s) >= tokens.TOKENS_MAX:
            self._used_s.clear()  # of tokens that have gone
        self._used_s[token_id] = now_s
        self._refused.in_background(NoteTokenUse(by=GATE, token_id=token_id))

    def _wrong_token(self, address: str) -> NotLetIn:
        refused = NotLetIn(Attempt(reason=RefusedFor.WRONG_TOKEN, address=address), *_no_token())
        return self._too_many(address) or refused

    def _too_many(self, address: str) -> NotLetIn | None:
        """One more wrong token was shown: the answer, if that is beyond the limit."""
        wait_s = self._wrong.shown(address, asyncio.get_running_loop().time())
        if wait_s is None:
            return None
        content = problem(
            "too-many-wrong-tokens",
            429,
            "Too many wrong tokens came from this address.",
            f"Show the right one, or ask again in {wait_s} s.",
        )
        attempt = Attempt(reason=RefusedFor.TOO_MANY, address=address)
        return NotLetIn(attempt, content, ("Retry-After", str(wait_s)))

    def _of_issuer(self, refused: Refusal | Unavailable, address: str) -> NotLetIn:
        """The answer to a token of an issuer that lets its bearer in nowhere."""
        status = status_of(refused)
        if status != 401:
            reason = RefusedFor.MISSING_RIGHT
            headers = (("Retry-After", str(RETRY_AFTER_S)),) if status == 503 else ()
            return NotLetIn(
                Attempt(reason=reason, address=address), problem_json(refused, status), *headers
            )
        attempt = Attempt(reason=RefusedFor.WRONG_TOKEN, address=address)
        answer = NotLetIn(attempt, problem_json(refused, status), _challenge("invalid_token"))
        return self._too_many(address) or answer


def address_of(scope: Scope) -> str:
    """Where a request came from: the address of the peer, empty by the socket."""
    client = scope.get("client")
    return str(client[0]) if client and PEER_KEY not in scope else ""


def _bearer(scope: Scope) -> bytes:
    """The token that a request carries; empty if it carries none, or more than one."""
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
    return bytes(token.strip()) if scheme.lower() == b"bearer" else b""


def _refuse_token_in_url(scope: Scope) -> None:
    """Raises NotLetIn for a URL with a token in it, whether it is a right one or not."""
    query = scope.get("query_string", b"").decode("latin-1")
    path = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
    words = f"{unquote(path.decode('latin-1'))} {unquote(query)}"
    found = tokens.TOKEN.search(words)
    named = query and any(
        name.lower() in QUERY_NAMES for name, _ in parse_qsl(query, keep_blank_values=True)
    )
    if found is None and not named:
        return
    token_id = found[1] if found else ""
    which = f"The token fwt_{token_id}" if token_id else "A token"
    content = problem(
        "token-in-url",
        400,
        f"{which} is in the URL, where logs and proxies can read it: it is no secret any more.",
        "Have it revoked (`forewarn token revoke ID`), and send another one as"
        " `Authorization: Bearer TOKEN`.",
    )
    attempt = Attempt(reason=RefusedFor.IN_URL, address=address_of(scope), token=token_id)
    raise NotLetIn(attempt, content)


def _challenge(error: str) -> tuple[str, str]:
    return "WWW-Authenticate", f'{CHALLENGE}, error="{error}"'


def _no_token() -> tuple[dict[str, object], tuple[str, str]]:
    content = problem(
        "no-token",
        401,
        "The token is missing or wrong.",
        "Send `Authorization: Bearer TOKEN`, with a token that `forewarn token make` has shown, or"
        " the one in the file operator.token of the service's data folder. On the same machine its"
        " Unix socket needs none.",
    )
    return content, ("WWW-Authenticate", CHALLENGE)


def _not_admitted(peer: Peer, admission: Admission) -> NotLetIn:
    content = problem(
        "not-admitted",
        403,
        f"The user with uid {peer.uid} may not use the operator's socket.",
        f"Ask as root, as the user who runs the service (uid {admission.uid}), as a member of"
        f" its group (gid {admission.gid}), or of one that the setting socket_groups names.",
    )
    return NotLetIn(Attempt(reason=RefusedFor.NOT_ADMITTED, what=f"uid {peer.uid}"), content)
