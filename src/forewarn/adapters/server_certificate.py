"""A server's certificate and key in PEM files: tried before they are used, and followed.

Standard library only. A pair is tried by a whole handshake in memory, so what is used works: the
key fits, the certificate is one for servers, and OpenSSL finds both strong enough.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from forewarn.core.errors import Invalid

HANDSHAKE_TURNS_MAX = 16
ALPN = ["http/1.1"]
_ACCEPTED = (
    "Give a certificate with its chain, and its key without a pass phrase, as PEM files that this"
    " process may read."
)
# X509_V_FLAG_NO_CHECK_TIME of OpenSSL; Python has no name for it.
_NO_CHECK_TIME = 0x200000

Stamp = tuple[tuple[int, ...] | None, ...]


class BadCertificate(Invalid):
    """The certificate files cannot be used."""


class ServerPair(Struct, frozen=True):
    """What a server speaks TLS with, and until when its certificate is valid."""

    context: ssl.SSLContext
    until_s: int


class _PassPhrase(Exception):  # noqa: N818 - never leaves this module
    """OpenSSL asks for a pass phrase; at a terminal it would wait for one."""


def load_pair(certificate: Path, key: Path) -> ServerPair:
    """The pair in these files. Raises BadCertificate with what is wrong.

    A certificate that has expired is taken: TLS tells every caller, and the service runs.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(ALPN)
    for path in (certificate, key):
        _need_readable(path)
    try:
        context.load_cert_chain(certificate, key, password=_no_pass_phrase)
        shown = _handshake(context, certificate)
    except _PassPhrase:
        raise BadCertificate(f"The key {key} has a pass phrase.", _ACCEPTED) from None
    except OSError as error:  # SSLError too
        why = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
        both = f"The certificate {certificate} with the key {key} cannot be used"
        raise BadCertificate(f"{both}: {_words(why)}.", _ACCEPTED) from error
    return ServerPair(context, int(ssl.cert_time_to_seconds(str(shown["notAfter"]))))


def _need_readable(path: Path) -> None:
    """Raise BadCertificate in words where OpenSSL would only say that there is no PEM."""
    try:
        if not path.is_file():  # opening a pipe could take for ever
            path.stat()
            raise BadCertificate(f"{path} is no file.", _ACCEPTED)
        with path.open("rb") as opened:
            opened.read(1)
    except OSError as error:
        why = error.strerror or str(error)
        raise BadCertificate(f"{path} cannot be read: {why}.", _ACCEPTED) from error


def _no_pass_phrase() -> NoReturn:
    raise _PassPhrase


def _words(reason: str) -> str:
    """What OpenSSL says, as words: `KEY_VALUES_MISMATCH` is `key values mismatch`."""
    return reason.replace("_", " ").lower() if reason.isupper() else reason


def _handshake(server: ssl.SSLContext, certificate: Path) -> dict[str, object]:
    """Meet the server as a client that trusts this certificate; what the client sees of it."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    flags = _NO_CHECK_TIME | ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    trusting.verify_flags = ssl.VerifyFlags(trusting.verify_flags | flags)
    trusting.load_verify_locations(cafile=certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = trusting.wrap_bio(to_client, to_server)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(HANDSHAKE_TURNS_MAX):
        # The client last: it is done only once it has seen the certificate and liked it.
        if _turn(answering) & _turn(asking):
            break
    return dict(asking.getpeercert() or {})


def _turn(side: ssl.SSLObject) -> bool:
    """Let one side do what it can; True once it has done all."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


class FollowedPair:
    """A pair of files that may be replaced while they are in use. Not for two threads at once."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Load what is there now. Raises BadCertificate."""
        self._files = (certificate, key)
        self._seen = self._stamp()
        self.pair = load_pair(certificate, key)
        self.refused = ""  # why what is there now is not used; empty if it is

    def look(self) -> bool:
        """Whether there is another pair by now, which is then `pair`.

        One that cannot be used changes nothing but `refused`. Files that have not changed since
        are not read again.
        """
        stamp = self._stamp()  # before they are read: what changes meanwhile is seen next time
        if stamp == self._seen:
            return False
        self._seen = stamp
        try:
            self.pair = load_pair(*self._files)
        except BadCertificate as bad:
            self.refused = bad.refused
            return False
        self.refused = ""
        return True

    def _stamp(self) -> Stamp:
        return tuple(map(_stamp_of, self._files))


def _stamp_of(path: Path) -> tuple[int, ...] | None:
    """What differs once a file has another content, or other rights; None without a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
