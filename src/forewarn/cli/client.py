"""The command line's way to the service: where it is, one request, one answer.

Standard library only, with timeouts, and never through a proxy. Everything that goes wrong is a
Stop: one sentence, what would help, and the exit code.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Struct

from forewarn import folders, unix_sockets

EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 60.0
COPY_CHUNK_BYTES = 1_024 * 1_024

# What a data folder has, by which the command that runs on it is known.
LINK_FOLDER = "link"
DATABASE_FILE = "forewarn.db"
_ANY_COMMAND = "`forewarn serve`, `forewarn control` or `forewarn simulate`"

Body = Mapping[str, object] | bytes | None


class Stop(Exception):  # noqa: N818 - an answer, not an error
    """The command ends here: `sentence` says why, `remedy` what would help.

    `problem` is the service's own answer, for programs, where the service refused.
    """

    def __init__(
        self, exit_code: int, sentence: str, remedy: str = "", *, problem: object = None
    ) -> None:
        super().__init__(sentence)
        self.problem = problem
        self.exit_code = exit_code
        self.sentence = sentence
        self.remedy = remedy


class Reply(Struct, frozen=True):
    """An answer of the service, and what time it was there."""

    content: Any
    now: datetime


class ServiceAddress(Struct, frozen=True, kw_only=True):
    """Where the service is: a socket of this machine, or a URL with the token that opens it.

    A token is never sent but to the URL that a person named with it: what a data folder says may
    be out of date, and its port another program's.
    """

    url: str = ""
    token: str = ""
    socket: Path | None = None
    trusted: Path | None = None  # the authority of its certificate; None: those of the system

    def __str__(self) -> str:
        return self.url or str(self.socket)


def data_folder(data: Path | None, settings_file: Path | None) -> Path:
    """The data folder that the options, the environment and the settings file mean."""
    return _service_folder(data, settings_file).data


def _service_folder(data: Path | None, settings_file: Path | None) -> folders.ServiceFolder:
    plain = None if settings_file is not None else folders.told_plainly(data, os.environ)
    if plain is not None:
        return plain
    from forewarn import settings  # noqa: PLC0415 - it imports half of the service

    try:
        return settings.load(
            file=settings_file,
            environment=os.environ,
            options={"data": None if data is None else str(data)},
        ).folder()
    except settings.BadSettings as bad:
        raise Stop(EXIT_USAGE, str(bad)) from None


def find_service(data: Path | None, settings_file: Path | None) -> ServiceAddress:
    """FOREWARN_URL and FOREWARN_TOKEN, else the socket of a service on this machine."""
    url = os.environ.get("FOREWARN_URL", "")
    token = os.environ.get("FOREWARN_TOKEN", "")
    if not url:
        return ServiceAddress(socket=_socket(data, settings_file))
    if not token:
        raise Stop(
            EXIT_USAGE,
            "FOREWARN_URL is set and FOREWARN_TOKEN is not.",
            f"Set it to what {folders.OPERATOR_TOKEN_FILE} in that service's data folder says.",
        )
    if not _is_address(url):
        raise Stop(EXIT_USAGE, f"{url!r} is not the URL of a service.", "Give https://HOST:PORT.")
    if not token.isascii() or not token.isprintable():
        raise Stop(
            EXIT_USAGE,
            "The operator's token has characters that no token has.",
            f"Give what {folders.OPERATOR_TOKEN_FILE} in the service's data folder says.",
        )
    trusted = os.environ.get("FOREWARN_CA_FILE", "")
    return ServiceAddress(
        url=url.rstrip("/"), token=token, trusted=Path(trusted) if trusted else None
    )


def _socket(data: Path | None, settings_file: Path | None) -> Path:
    """The socket that is meant; if none was named, that of the one service that runs here.

    Several at once are never guessed between: an order meant for an emulator must not hit VMs.
    """
    chosen = _service_folder(data, settings_file)
    if data is not None:
        return chosen.usual_socket
    if chosen.socket is not None or chosen.data != folders.default_folder(os.environ):
        return chosen.operator_socket
    usual = {socket: unix_sockets.why_not(socket) for socket in folders.usual_sockets(os.environ)}
    running = [socket for socket, error in usual.items() if error is None]
    if len(running) > 1:
        named = " or ".join(f"FOREWARN_SOCKET={socket}" for socket in running)
        raise Stop(
            EXIT_USAGE,
            "More than one service or emulator is running here.",
            f"Say which one is meant: --data DIR, or {named}.",
        )
    there = [s for s, error in usual.items() if not isinstance(error, FileNotFoundError)]
    return next(iter([*running, *there, *usual]))


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # not a port or not an IPv6 address
        return False


class _SocketConnection(http.client.HTTPConnection):
    """HTTP by a Unix socket. Who asks is told by the kernel, so nothing secret is sent."""

    def __init__(self, path: Path, *, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = unix_sockets.connect(self._path, timeout_s=self.timeout)


class _Lost(Exception):  # noqa: N818 - never leaves this module
    """The connection was lost after the request may have arrived.

    `waited_s` is for how long nothing came, if that is why.
    """

    waited_s: float | None = None

    @classmethod
    def by(cls, error: Exception, timeout_s: float) -> _Lost:
        lost = cls(str(error) or type(error).__name__)
        lost.waited_s = timeout_s if isinstance(error, TimeoutError) else None
        return lost


class Client:
    """Asks one service. Every method raises Stop if there is no good answer."""

    def __init__(
        self, place: ServiceAddress, *, answer_timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self._place = place
        self._answer_timeout_s = answer_timeout_s

    def get(
        self, *path: str, query: Mapping[str, str | int] | None = None, wait_s: float = 0
    ) -> Reply:
        """What is at `path` (its parts, unquoted). `wait_s` is how long the answer may wait.

        What is empty in the query is left out.
        """
        asked = {name: value for name, value in (query or {}).items() if value != ""}
        target = _target(path) + (f"?{urlencode(asked)}" if asked else "")
        try:
            return self._ask("GET", target, None, {}, timeout_s=self._answer_timeout_s + wait_s)
        except _Lost as lost:
            self._unreachable(lost)

    def order(self, *path: str, body: Body = None, timeout_s: float | None = None) -> Reply:
        """Give an order. It is sent again once, under the same key, if the connection is lost."""
        target = _target(path)
        content = body if isinstance(body, bytes) else json.dumps(dict(body or {})).encode()
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        try:
            return self._ask("POST", target, content, headers, timeout_s=timeout_s)
        except _Lost:
            pass
        try:
            return self._ask("POST", target, content, headers, timeout_s=timeout_s)
        except _Lost as lost:
            self._unreachable(lost)

    def delete(self, *path: str) -> Reply:
        """End what is at `path`. It is sent again once if the connection is lost."""
        try:
            return self._ask("DELETE", _target(path), None, {})
        except _Lost:
            pass
        try:
            return self._ask("DELETE", _target(path), None, {})
        except _Lost as lost:
            self._unreachable(lost)

    def download(self, *path: str, to: Path) -> int:
        """Save what is at `path` in a file, durably, and say how many bytes. Whole or not at all.

        Raises OSError if the file cannot be written.
        """
        try:
            timeout_s = self._answer_timeout_s
            with self._answer("GET", _target(path), None, {}, timeout_s) as answer:
                if answer.status != 200:
                    _refused(answer.status, _read(answer, timeout_s=timeout_s))
                return _save(answer, to, timeout_s=timeout_s)
        except _Lost as lost:
            self._unreachable(lost)

    def _ask(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        timeout_s: float | None = None,
    ) -> Reply:
        limit_s = self._answer_timeout_s if timeout_s is None else timeout_s
        with self._answer(method, target, body, headers, limit_s) as answer:
            content = _read(answer, timeout_s=limit_s)
            if answer.status != 200:
                _refused(answer.status, content)
            return Reply(_understood(content), _now(answer))

    @contextmanager
    def _answer(
        self,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> Iterator[http.client.HTTPResponse]:
        place = self._place
        connection = _connection_to(place)
        try:
            try:
                connection.connect()
            except OSError as error:
                self._unreachable(error)
            connection.sock.settimeout(timeout_s)
            shown = {"Authorization": f"Bearer {place.token}"} if place.url else {}
            path = urlsplit(place.url).path
            try:
                connection.request(method, path + target, body=body, headers={**shown, **headers})
                answer = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                raise _Lost.by(error, timeout_s) from error
            yield answer
        finally:
            connection.close()

    def _unreachable(self, error: Exception) -> NoReturn:
        if isinstance(error, _Lost) and error.waited_s is not None:
            raise Stop(
                EXIT_UNREACHABLE,
                f"The service at {self._place} did not answer within {error.waited_s:g} seconds.",
                "An order may have been carried out all the same: look before you give it again."
                " `forewarn watch` shows when the service answers; its log says what it does.",
            ) from None
        if isinstance(error, ssl.SSLError):
            from forewarn.cli.trust import no_tls  # noqa: PLC0415 - for those who need it

            raise no_tls(self._place, error) from None
        if isinstance(error, TimeoutError):
            error = OSError(f"it let no caller in within {CONNECT_TIMEOUT_S:g} seconds")
        if self._place.socket is not None:
            raise _no_service(self._place.socket, error) from None
        raise Stop(
            EXIT_UNREACHABLE,
            f"The service at {self._place} cannot be reached: {error}.",
            f"See whether {_ANY_COMMAND} runs there, and whether FOREWARN_URL names the right one.",
        ) from None


def _connection_to(place: ServiceAddress) -> http.client.HTTPConnection:
    if place.socket is not None:
        return _SocketConnection(place.socket, timeout=CONNECT_TIMEOUT_S)
    parts = urlsplit(place.url)
    host, timeout_s = parts.hostname or "", CONNECT_TIMEOUT_S
    if parts.scheme != "https":
        return http.client.HTTPConnection(host, parts.port, timeout=timeout_s)
    from forewarn.cli.trust import trusting  # noqa: PLC0415 - for those who need it

    context = trusting(place.trusted)
    return http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)


def _no_service(socket: Path, error: Exception) -> Stop:
    """Why a socket of this machine does not lead to a service, and what would."""
    elsewhere = "name its data folder with `forewarn --data DIR ...` (of the unit:"
    elsewhere += " /var/lib/forewarn), or set FOREWARN_URL and FOREWARN_TOKEN."
    if isinstance(error, FileNotFoundError):
        return Stop(
            EXIT_UNREACHABLE,
            f"No service was found: there is no {socket}.",
            f"Start one with {_command_of(socket)}, {elsewhere}",
        )
    if isinstance(error, PermissionError):
        return Stop(
            EXIT_UNREACHABLE,
            f"This user may not use {socket}.",
            "Ask as root, as the user who runs the service, or as a member of its group if no"
            " folder above the socket keeps the group out (a data folder does; the setting"
            f" `socket` names a place outside of it); {elsewhere}",
        )
    if isinstance(error, ConnectionRefusedError):
        return Stop(
            EXIT_UNREACHABLE,
            f"No service listens on {socket}: it was killed, or has not come up yet.",
            f"Start it again with {_command_of(socket)}, {elsewhere}",
        )
    return Stop(
        EXIT_UNREACHABLE,
        f"The service at {socket} cannot be reached: {error}.",
        f"See whether {_command_of(socket)} runs, {elsewhere}",
    )


def _command_of(socket: Path) -> str:
    """The command that runs, or ran, on the data folder of a socket, as far as that can be seen."""
    folder = socket.parent.parent
    try:
        if (folder / LINK_FOLDER).is_dir():
            return "`forewarn control`"
        return "`forewarn serve`" if (folder / DATABASE_FILE).is_file() else _ANY_COMMAND
    except OSError:  # a data folder is its user's alone
        return _ANY_COMMAND


def _target(path: tuple[str, ...]) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in path)


def _refused(status: int, content: bytes) -> NoReturn:
    """Turn a problem into a Stop; whatever is no problem of ours is quoted."""
    try:
        problem = json.loads(content)
        sentence, remedy = str(problem["detail"]), str(problem["remedy"])
    except (ValueError, KeyError, TypeError):
        shown = content[:200].decode("utf-8", "replace")
        raise Stop(EXIT_REFUSED, f"The answer was {status}: {shown!r}.") from None
    raise Stop(EXIT_REFUSED, sentence, remedy, problem=problem)


def _understood(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        shown = content[:200].decode("utf-8", "replace")
        raise Stop(
            EXIT_REFUSED,
            f"The answer is no JSON: {shown!r}.",
            "See whether FOREWARN_URL names the operator API of a service.",
        ) from None


def _now(answer: http.client.HTTPResponse) -> datetime:
    try:
        return datetime.fromisoformat(answer.headers.get("forewarn-now", ""))
    except ValueError:
        return datetime.now(UTC)


def _read(answer: http.client.HTTPResponse, size: int | None = None, *, timeout_s: float) -> bytes:
    """What there is of the answer. Raises _Lost if it does not come."""
    try:
        return answer.read(size)
    except (OSError, http.client.HTTPException) as error:
        raise _Lost.by(error, timeout_s) from error


def _save(answer: http.client.HTTPResponse, to: Path, *, timeout_s: float) -> int:
    _remove_leftovers(to)
    partial = to.with_name(f"{to.name}.partial-{uuid.uuid4().hex[:8]}")
    size = 0
    try:
        with open(partial, "xb", opener=_private) as file:
            _is_ours(file.fileno())
            while chunk := _read(answer, COPY_CHUNK_BYTES, timeout_s=timeout_s):
                size += file.write(chunk)
            if answer.length:  # read(n) ends quietly when the connection is cut
                raise _Lost("the connection was cut")
            file.flush()
            os.fsync(file.fileno())
        partial.rename(to)
    finally:
        partial.unlink(missing_ok=True)
    return size


def _remove_leftovers(to: Path) -> None:
    """Remove what was saved of the same file when a command before this one was killed."""
    name = re.compile(re.escape(to.name) + r"\.partial-[0-9a-f]{8}")
    for path in to.absolute().parent.iterdir():
        if not name.fullmatch(path.name):
            continue
        with suppress(OSError):  # gone meanwhile, or not ours to remove
            file = os.open(path, os.O_RDONLY)
            try:
                if _is_ours(file):
                    path.unlink()
            finally:
                os.close(file)


def _is_ours(file: int) -> bool:
    """Hold an open file for as long as it is open. False if another command holds it."""
    if sys.platform == "win32":
        return True  # a file that is open elsewhere cannot be removed there
    import fcntl  # noqa: PLC0415 - there is none on Windows

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)
