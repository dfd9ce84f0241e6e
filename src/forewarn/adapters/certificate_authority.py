"""A certificate authority of our own: made at the first start, kept in a private folder.

The one place that makes certificates. The authority of the link signs two kinds and nothing else:
that of control's own server, and those of hosts, which can be used by clients only. Hosts are told
apart by the digest of their public key; their name is the common name. The operator API can have an
authority too; that is another one, in another folder, so that what operators trust says nothing to
hosts, nor the other way round. All times here are those of the machine: the peer that checks a
certificate uses that clock too.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from forewarn.adapters.private_files import make_private_folder, write_private
from forewarn.adapters.secret_files import (
    CERTIFICATE_FILE,
    KEY_FILE,
    MEMBERS_FILE,
    SERVER_CERTIFICATE_FILE,
    SERVER_KEY_FILE,
)
from forewarn.adapters.sqlite.data_folder import FolderUnusable, unusable
from forewarn.core.errors import Invalid, NotMember
from forewarn.core.model import SECOND_MS

AUTHORITY_FOR = timedelta(days=20 * 365)
SERVER_FOR = timedelta(days=365)
HOST_FOR = timedelta(days=365)
RENEW_BEFORE = timedelta(days=122)  # what is left of a server certificate when it is made anew
# A host's clock may be wrong, and a certificate that is not valid yet lets no host in.
BACKDATED = timedelta(days=30)
REQUEST_CHARS_MAX = 16 * 1024
PEERS_REMEMBERED_MAX = 1_024

# X509_V_FLAG_NO_CHECK_TIME of OpenSSL; Python has no name for it.
_NO_CHECK_TIME = 0x200000

# What a key or a certificate with a flipped bit can bring about.
BROKEN_PEM = (
    ValueError,
    TypeError,
    InvalidSignature,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)

_REQUEST_ACCEPTED = (
    "Send a certificate signing request in PEM, with an EC P-256 key and the host's name as its"
    " only common name; `forewarn host` makes one."
)


class HostRequest(Struct, frozen=True):
    """What a certificate signing request asks for: a name, for a key that its sender has."""

    name: str
    key: str


class Peer(Struct, frozen=True):
    """Who a certificate belongs to, and until when."""

    name: str
    key: str
    until_ms: int


class Authority:
    """Signs for hosts and for control's own server. Safe to use from any thread."""

    def __init__(
        self, folder: Path, *, name: str = "forewarn authority", now: datetime | None = None
    ) -> None:
        """Open the authority in this folder, or make one of this name. Raises DatabaseRefused."""
        self._folder = folder
        try:
            make_private_folder(folder)
            found = _read_authority(folder)
            self.is_new = found is None
            self._key, self._certificate = found or _make_authority(
                folder, name, now or datetime.now(UTC)
            )
        except OSError as error:
            raise unusable(folder, error) from error
        der = self._certificate.public_bytes(serialization.Encoding.DER)
        self.fingerprint = (
            base64.urlsafe_b64encode(hashlib.sha256(der).digest()).decode().strip("=")
        )
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM).decode()
        self._server_until: datetime | None = None  # once its server has a certificate

    def sign(self, request: str, *, name: str, now: datetime | None = None) -> str:
        """The certificate of a host, in PEM. The request must be one that `read_request` takes."""
        asked = _request(request)
        return _pem(
            self._signed(
                x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
                asked.public_key(),
                now=now or datetime.now(UTC),
                valid_for=HOST_FOR,
                usage=ExtendedKeyUsageOID.CLIENT_AUTH,
            )
        )

    def server_context(
        self, names: Iterable[str], *, now: datetime | None = None
    ) -> ssl.SSLContext:
        """What control's server speaks TLS with; a client may show a certificate of ours.

        Whether a certificate is still valid is not asked here: who comes with an old one is to be
        told so in words, which TLS has none for (`Peer.until_ms`).

        The server's certificate is for these names and addresses, and made anew if it is for
        others or has not long to live. Raises DatabaseRefused.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags = ssl.VerifyFlags(context.verify_flags | _NO_CHECK_TIME)
        context.load_verify_locations(cadata=self.pem)
        self.refresh(context, names, now=now)
        return context

    def refresh(
        self, context: ssl.SSLContext, names: Iterable[str], *, now: datetime | None = None
    ) -> None:
        """Have a context use a server certificate that lives on; it may be in use meanwhile."""
        certificate, key = self.have_server(names, now=now)
        try:
            context.load_cert_chain(certificate, key)
            found = x509.load_pem_x509_certificate(certificate.read_bytes())
            self._server_until = found.not_valid_after_utc
        except ssl.SSLError as error:
            raise FolderUnusable(
                f"{certificate} and {key} do not belong together: {error}.",
                "Remove both; the next start makes new ones.",
            ) from error
        except OSError as error:
            raise unusable(self._folder, error) from error

    def have_server(
        self, names: Iterable[str], *, now: datetime | None = None
    ) -> tuple[Path, Path]:
        """The files of a server's certificate and key, for these names and with long to live.

        They are made anew if they are not so. Raises DatabaseRefused.
        """
        wanted = sorted({str(_general_name(name).value) for name in names})
        try:
            if not self._server_is_good(wanted, now or datetime.now(UTC)):
                self._make_server(wanted, now or datetime.now(UTC))
        except OSError as error:
            raise unusable(self._folder, error) from error
        return self._folder / SERVER_CERTIFICATE_FILE, self._folder / SERVER_KEY_FILE

    @property
    def certificate_file(self) -> Path:
        """Where its own certificate is, which those need who trust it."""
        return self._folder / CERTIFICATE_FILE

    def expiries_s(self) -> dict[str, int]:
        """When the certificates of control expire, in seconds since 1970; 0 of one not made yet."""
        server = self._server_until
        return {
            "authority": int(self._certificate.not_valid_after_utc.timestamp()),
            "server": 0 if server is None else int(server.timestamp()),
        }

    def _server_is_good(self, names: list[str], now: datetime) -> bool:
        try:
            content = (self._folder / SERVER_CERTIFICATE_FILE).read_bytes()
            there = (self._folder / SERVER_KEY_FILE).read_bytes()
            found = x509.load_pem_x509_certificate(content)
            key = serialization.load_pem_private_key(there, password=None)
            for_names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            return (
                found.public_key() == key.public_key()
                and found.issuer == self._certificate.subject
                and _signed_by(found, self._certificate)
                and sorted(str(name.value) for name in for_names) == names
                and found.not_valid_after_utc - now > RENEW_BEFORE
                and found.not_valid_before_utc <= now
            )
        except (FileNotFoundError, *BROKEN_PEM):
            return False

    def _make_server(self, names: list[str], now: datetime) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "forewarn control")]),
            key.public_key(),
            now=now,
            valid_for=SERVER_FOR,
            usage=ExtendedKeyUsageOID.SERVER_AUTH,
            names=names,
        )
        # A kill in between leaves a pair that does not fit; the next start makes another.
        write_private(self._folder / SERVER_KEY_FILE, _key_pem(key))
        write_private(self._folder / SERVER_CERTIFICATE_FILE, _pem(certificate).encode())

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        now: datetime,
        valid_for: timedelta,
        usage: x509.ObjectIdentifier,
        names: Iterable[str] = (),
    ) -> x509.Certificate:
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._certificate.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(min(now + valid_for, self._certificate.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
            .add_extension(_key_usage(signs_others=False), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        alternatives = [_general_name(name) for name in names]
        if alternatives:
            made = made.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return made.sign(self._key, hashes.SHA256())


def read_request(request: str) -> HostRequest:
    """What a certificate signing request asks for. Raises Invalid."""
    asked = _request(request)
    names = asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1 or len(list(asked.subject)) != 1:
        raise Invalid("The request does not name one host.", _REQUEST_ACCEPTED)
    return HostRequest(name=str(names[0].value), key=key_digest(asked.public_key()))


@lru_cache(maxsize=PEERS_REMEMBERED_MAX)
def read_peer(der: bytes) -> Peer:
    """Who a certificate, which TLS has checked already, belongs to. Raises NotMember."""
    try:
        found = x509.load_der_x509_certificate(der)
        (name,) = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        key = found.public_key()
    except ValueError:
        raise NotMember("The certificate names no host.") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise NotMember("The certificate is not that of a host.")
    until_ms = int(found.not_valid_after_utc.timestamp()) * SECOND_MS
    return Peer(name=str(name.value), key=key_digest(key), until_ms=until_ms)


def key_digest(key: ec.EllipticCurvePublicKey) -> str:
    """What a host is known by."""
    content = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(content).hexdigest()


class _Request:
    """A certificate signing request whose signature and kind of key were checked."""

    def __init__(self, request: x509.CertificateSigningRequest) -> None:
        self.subject = request.subject
        key = request.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(
            key.curve, ec.SECP256R1
        ):
            raise Invalid("The key of the request is of another kind.", _REQUEST_ACCEPTED)
        self._key = key

    def public_key(self) -> ec.EllipticCurvePublicKey:
        return self._key


def _request(text: str) -> _Request:
    if len(text) > REQUEST_CHARS_MAX:
        raise Invalid("The certificate signing request is too long.", _REQUEST_ACCEPTED)
    try:
        found = x509.load_pem_x509_csr(text.encode())
        valid = found.is_signature_valid
    except (ValueError, InvalidSignature):
        raise Invalid("The certificate signing request is broken.", _REQUEST_ACCEPTED) from None
    if not valid:
        raise Invalid("The request was not signed by its own key.", _REQUEST_ACCEPTED)
    return _Request(found)


def _read_authority(
    folder: Path,
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate] | None:
    """The authority that is there, None at the first start. A damaged one is never replaced."""
    key_file, certificate_file = folder / KEY_FILE, folder / CERTIFICATE_FILE
    if not certificate_file.exists():
        if (folder / MEMBERS_FILE).exists():
            raise _damaged(folder, f"{CERTIFICATE_FILE} is not there, but {MEMBERS_FILE} is")
        return None  # the certificate is written last: without it the authority signed nothing
    try:
        key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        ours = isinstance(key, ec.EllipticCurvePrivateKey)
        fits = ours and certificate.public_key() == key.public_key()
    except (FileNotFoundError, *BROKEN_PEM) as error:
        raise _damaged(folder, str(error)) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _damaged(folder, "the key is of another kind")
    if not fits or not _fits(key, certificate):
        raise _damaged(folder, "key and certificate do not belong together")
    return key, certificate


def _fits(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> bool:
    """Whether what the key signs is good for the certificate, and the certificate for itself."""
    public = certificate.public_key()
    if not isinstance(public, ec.EllipticCurvePublicKey):
        return False
    try:
        public.verify(key.sign(b"", ec.ECDSA(hashes.SHA256())), b"", ec.ECDSA(hashes.SHA256()))
    except BROKEN_PEM:
        return False
    return _signed_by(certificate, certificate)


def _damaged(folder: Path, why: str) -> FolderUnusable:
    return FolderUnusable(
        f"The certificate authority in {folder} is damaged: {why}.",
        "Put the folder back from a copy. Without one, remove the folder: the next start makes a"
        " new authority, and every host has to join again.",
    )


def _make_authority(
    folder: Path, called: str, now: datetime
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # A name of its own, so that a host that knows two authorities never takes one for the other.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{called} {serial:x}"[:64])])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + AUTHORITY_FOR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_others=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_private(folder / KEY_FILE, _key_pem(key))
    write_private(folder / CERTIFICATE_FILE, _pem(certificate).encode())
    return key, certificate


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except BROKEN_PEM:
        return False
    return True


def _key_usage(*, signs_others: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_others,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_others,
        crl_sign=signs_others,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
