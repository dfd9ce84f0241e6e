"""The host's side of the link: questions to control over HTTPS, each with a time limit.

`ControlLink` is `ports.HostLink` for one host. Whatever keeps an answer from
coming (no route, TLS, time, a control that is starting or does not admit this host) is Unavailable,
in words; refusals of rules come as the refusals of `core.errors` that they are at control.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from types import TracebackType
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import httpcore
import msgspec

from forewarn.adapters.one_tls_record import WholeQuestions
from forewarn.core import errors
from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.inventory.host_report import SeenVm
from forewarn.wire import link as wire
from forewarn.wire.link_values import vm_seen

CONNECT_LIMIT_S = 3.0  # and as long again for the TLS handshake
ANSWER_LIMIT_S = 8.0
SIGHT_LIMIT_S = 30.0  # many definitions in one question
CHANGES_EXTRA_S = 8.0
KEPT_OPEN_S = 30.0
CONNECTIONS_PER_LANE = 8
PROBLEM_CHARS_MAX = 500

T = TypeVar("T")
Heard = Callable[[int, int, int], None]


class NotAdmitted(Unavailable):
    """Control answers, but does not take this host for one of its own, or cannot speak with it."""


def _kinds(kind: type[Refusal]) -> Iterator[type[Refusal]]:
    for one in kind.__subclasses__():
        yield one
        yield from _kinds(one)


def refusals_by_code() -> dict[str, type[Refusal]]:
    """The refusals that control can answer with, by their stable name."""
    known = (k for k in _kinds(Refusal) if k.__module__ == errors.__name__)
    return {kind("").code: kind for kind in known}


_REFUSALS = refusals_by_code()
# Said to a host that control does not take for one of its own, or does not understand: nothing of
# what it was asked is refused for good.
_NO_ANSWERS = (errors.NotMember, errors.Forbidden, errors.Invalid, errors.UnknownQuestion)
_LIBRARY_ERRORS = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)


class Answer(NamedTuple):
    """What was answered to one request."""

    status: int
    body: bytes


class Lane:
    """Connections for one kind of question, so that no kind keeps another waiting."""

    def __init__(
        self,
        url: str,
        context: ssl.SSLContext,
        *,
        monotonic_ms: Callable[[], int],
        heard: Heard,
        answer_bytes_max: int = wire.BODY_BYTES_MAX,
    ) -> None:
        self._url = url
        self._answer_bytes_max = answer_bytes_max
        self._monotonic_ms = monotonic_ms
        self._heard = heard
        self._named = (b"host", urlsplit(url).netloc.encode())
        # No proxy stands between a host and its control, and none redirects it.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=CONNECTIONS_PER_LANE,
            max_keepalive_connections=CONNECTIONS_PER_LANE,
            keepalive_expiry=KEPT_OPEN_S,
            network_backend=WholeQuestions(),
        )

    async def close(self) -> None:
        await self._pool.aclose()

    async def ask(
        self, name: str, question: msgspec.Struct, answer: type[T], *, limit_s: float
    ) -> T:
        """The answer to one question. Raises Refusal or Unavailable."""
        content = msgspec.json.encode(question)
        status, body = await self.send("POST", f"/link/{name}", content, limit_s=limit_s)
        if status != HTTPStatus.OK:
            raise problem(status, body)
        try:
            return msgspec.json.decode(body, type=answer)
        except msgspec.DecodeError as error:
            raise NotAdmitted(
                f"Control at {self._url} sent a response to {name} that this host cannot read"
                f" ({error}). Upgrade control first, then its hosts."
            ) from error

    async def send(self, method: str, path: str, content: bytes = b"", *, limit_s: float) -> Answer:
        """One request, sent again once if a connection was closed under it: all may be repeated."""
        try:
            async with asyncio.timeout(limit_s):
                try:
                    return await self._send(method, path, content, limit_s)
                except (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError):
                    return await self._send(method, path, content, limit_s)
        except TimeoutError:
            raise Unavailable(
                f"Control at {self._url} did not answer within {limit_s:g} s."
            ) from None
        except (*_LIBRARY_ERRORS, ssl.SSLError, OSError) as error:
            raise Unavailable(
                f"Control at {self._url} cannot be reached: {_reason(error)}."
            ) from error

    async def _send(self, method: str, path: str, content: bytes, limit_s: float) -> Answer:
        asked_ms = self._monotonic_ms()
        headers = [
            self._named,
            (wire.VERSION_HEADER.encode(), wire.LINK_VERSION.encode()),
            (b"content-type", b"application/json"),
        ]
        limits_s = dict.fromkeys(("read", "write", "pool"), limit_s)
        limits_s["connect"] = min(limit_s, CONNECT_LIMIT_S)
        async with self._pool.stream(
            method,
            f"{self._url}{path}",
            headers=headers,
            content=content or None,
            extensions={"timeout": limits_s},
        ) as response:
            told = {name.lower(): value for name, value in response.headers}
            now = told.get(wire.NOW_HEADER.encode(), b"")
            if not (now.isdigit() and len(now) < 18):
                raise NotAdmitted(
                    f"{self._url} does not answer as a control that hosts can join. Give the URL"
                    " that `forewarn control` prints for hosts."
                )
            self._heard(int(now), asked_ms, self._monotonic_ms())
            length = told.get(b"content-length", b"")
            size = int(length) if length.isdigit() else 0
            return Answer(response.status, await self._body(response, size))

    async def _body(self, response: httpcore.Response, size: int) -> bytes:
        """The whole body. One that says that it is too large is not read at all."""
        body = bytearray()
        if size <= self._answer_bytes_max:
            async for some in response.aiter_stream():
                body += some
                size = len(body)
                if size > self._answer_bytes_max:
                    break
        if size > self._answer_bytes_max:
            raise NotAdmitted(f"An answer of {self._url} is larger than any may be.")
        return bytes(body)


def _reason(error: BaseException) -> str:
    """What went wrong, and what to do about what people meet most."""
    if isinstance(error, httpcore.TimeoutException):
        return "it does not answer in time"
    causes = list(_causes(error))
    wrong = next((c for c in causes if isinstance(c, ssl.SSLCertVerificationError)), None)
    if wrong is not None:
        if "mismatch" in wrong.verify_message.lower():
            return (
                f"its certificate does not name that address ({wrong.verify_message}); use the"
                " address that control was given as hosts_url, or set hosts_url there"
            )
        return (
            f"its certificate is not by the authority that this host has joined"
            f" ({wrong.verify_message}); join again with a new token if control was made anew"
        )
    # The deepest has the system's own words; those above say that something did not work.
    numbers = [c.errno for c in causes if isinstance(c, OSError) and c.errno and c.errno > 0]
    if numbers and not any(isinstance(c, ssl.SSLError) for c in causes):
        return os.strerror(numbers[-1])
    if any(isinstance(c, ssl.SSLEOFError) for c in causes):
        return "it closed the connection before it said who it is"
    return str(error).strip().rstrip(".") or type(error).__name__


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        group = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else None
        error = group or error.__cause__ or error.__context__


def problem(status: int, body: bytes) -> Exception:
    """What an answer that is no answer means: Refusal, NotAdmitted or Unavailable."""
    try:
        told = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        told = {}
    detail = str(told.get("detail") or f"Control answered {status}.")[:PROBLEM_CHARS_MAX]
    remedy = str(told.get("remedy") or "")[:PROBLEM_CHARS_MAX]
    kind = _REFUSALS.get(str(told.get("code")))
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
        return Unavailable(f"{detail} {remedy}".strip())
    if kind is not None and kind not in _NO_ANSWERS:
        return kind(detail, remedy)
    return NotAdmitted(f"{detail} {remedy}".strip())


class ControlLink:
    """Everything one host says to control. Made and used inside one event loop."""

    def __init__(
        self,
        url: str,
        context: ssl.SSLContext,
        *,
        monotonic_ms: Callable[[], int],
        heard: Heard = lambda _now_ms, _asked_ms, _heard_ms: None,
    ) -> None:
        self.daemon = secrets.token_urlsafe(9)  # one life of this host's daemon
        # The epoch of control whose changes this host took over; None if it follows none.
        self.followed: Callable[[], str | None] = lambda: None
        self._url = url
        self._monotonic_ms = monotonic_ms
        self._heard = heard
        self._lanes = self._new_lanes(context)
        self._used: list[Lane] = []

    def _new_lanes(self, context: ssl.SSLContext) -> tuple[Lane, Lane, Lane]:
        def lane() -> Lane:
            return Lane(self._url, context, monotonic_ms=self._monotonic_ms, heard=self._heard)

        return lane(), lane(), lane()

    def use(self, context: ssl.SSLContext) -> None:
        """Speak with another certificate from now on; what is under way is answered still."""
        self._used.extend(self._lanes)
        self._lanes = self._new_lanes(context)

    async def close_used(self) -> None:
        """Close the connections of certificates that are no longer used."""
        while self._used:
            await self._used.pop().close()

    async def close(self) -> None:
        await self.close_used()
        for lane in self._lanes:
            await lane.close()

    async def __aenter__(self) -> ControlLink:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _host(
        self, name: str, question: msgspec.Struct, answer: type[T], limit_s: float = ANSWER_LIMIT_S
    ) -> T:
        return await self._lanes[0].ask(name, question, answer, limit_s=limit_s)

    async def _guest(self, name: str, question: msgspec.Struct) -> None:
        await self._lanes[1].ask(name, question, wire.Done, limit_s=ANSWER_LIMIT_S)

    # ports.HostLink. Who asks is in the certificate.

    async def turn(self, said: wire.Turn) -> wire.TurnTaken:
        question = msgspec.structs.replace(said, epoch=self.followed(), daemon=self.daemon)
        return await self._host("turn", question, wire.TurnTaken)

    async def claim(self, boot_id: str) -> Sequence[wire.Work]:
        question = wire.Claim(boot_id, self.daemon, self.followed())
        return (await self._host("claim", question, wire.Claimed)).work

    async def holds(self, action_id: str, epoch: int) -> bool:
        return (await self._host("holds", wire.Holds(action_id, epoch), wire.Held)).holds

    async def targets(self, vms: Sequence[str]) -> Mapping[str, str | None]:
        return (await self._host("targets", wire.AskTargets(tuple(vms)), wire.Targets)).targets

    async def definition(self, vm: str) -> str | None:
        return (await self._host("definition", wire.AskDefinition(vm), wire.Definition)).definition

    # What the host follows and tells.

    async def changes(self, since: wire.Since | None, wait_s: int) -> wire.Changes:
        """What is new since then; waits for it, up to `wait_s`."""
        return await self._lanes[2].ask(
            "changes",
            wire.AskChanges(since, wait_s),
            wire.Changes,
            limit_s=wait_s + CHANGES_EXTRA_S,
        )

    async def sight(self, vms: Sequence[SeenVm], boot_id: str = "") -> Mapping[str, str]:
        """These are my VMs in this boot; the answer says what of them cannot be used, by name."""
        question = wire.Sighting(tuple(map(vm_seen, vms)), boot_id)
        return (await self._host("sight", question, wire.Sighted, SIGHT_LIMIT_S)).problems

    async def blind(self, why: str) -> None:
        """My hypervisor does not answer; so it is until the next sight."""
        await self._host("blind", wire.Blind(why), wire.Done)

    async def adopted(self, adoption_id: str, problem: str) -> None:
        """An adoption is written, or `problem` says why not."""
        await self._host("adopted", wire.Adopted(adoption_id, problem), wire.Done)

    async def renew(self, request: str) -> wire.Joined:
        """A new certificate for this host."""
        return await self._host("renew", wire.Renew(request), wire.Joined)

    # What guests do.

    async def approve(self, vm: str, event_ids: tuple[str, ...]) -> None:
        """Durable when it returns."""
        await self._guest("approve", wire.Approve(vm, event_ids))

    async def enable(self, scope: str, vm: str) -> None:
        await self._guest("enable", wire.Enable(scope, vm))
