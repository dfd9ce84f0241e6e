"""What a host keeps to prove who it is: its key, its certificate, and the authority it trusts.

    host.pem     the key, the certificate and that of the authority, in one file so that they always
                 fit each other; lines above them say the form of the file and who wrote it, which
                 control was joined, and with which token
    joining.pem  the key while the host joins: a join that was cut off is asked for again with it

Both are for their owner only, replaced whole or not at all, and on the disk before anything
is built on them. The key is made here and never leaves the machine.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from contextlib import suppress
from datetime import UTC
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec import Struct

from forewarn.adapters.certificate_authority import BROKEN_PEM
from forewarn.adapters.file_format_versions import Form, this_program
from forewarn.adapters.private_files import make_private_folder, write_private
from forewarn.adapters.sqlite.data_folder import unusable
from forewarn.core.errors import Conflict
from forewarn.core.model import SECOND_MS

HOST_FILE = "host.pem"
JOINING_FILE = "joining.pem"
CREDENTIALS_BYTES_MAX = 256 * 1_024
RENEW_AFTER_SHARE = 2 / 3  # of the life of a certificate

# X509_V_FLAG_NO_CHECK_TIME of OpenSSL; Python has no name for it. The clock of a host may be wrong
# by any amount, at boot or after a step, and must not cost its guests their notice. Control minds
# the dates with its own clock; what a host must be sure of is the authority, and that is pinned.
_NO_CHECK_TIME = 0x200000

FORM = 1  # of host.pem; form 0 did not say so, and was otherwise the same
_FORM_LINE = re.compile(r"^form: ([0-9]{1,9})(?: by (.{1,100}))?$", re.MULTILINE)
_CONTROL_LINE = re.compile(r"^control: (\S+)$", re.MULTILINE)
_TOKEN_LINE = re.compile(r"^token: ([0-9a-f]{64})$", re.MULTILINE)
_REMEDY = (
    "Remove host.pem there and join again: `forewarn host invite NAME --replace` on the control"
    " machine prints the command."
)


class Credentials(Struct, frozen=True, kw_only=True):
    """Who a host is, checked: the certificate fits the key and the authority has signed it."""

    folder: Path
    name: str
    control: str
    token_digest: str
    key_pem: str
    authority_pem: str
    not_before_ms: int
    not_after_ms: int

    def renewal_due(self, now_ms: int) -> bool:
        """True when the certificate should be renewed, by the wall clock of control."""
        life_ms = self.not_after_ms - self.not_before_ms
        return now_ms >= self.not_before_ms + life_ms * RENEW_AFTER_SHARE

    def context(self) -> ssl.SSLContext:
        """For connections to control as this host."""
        context = trusting(self.authority_pem)
        context.load_cert_chain(self.folder / HOST_FILE)
        return context

    def request(self) -> str:
        """A signing request for the same name and key, to renew the certificate with."""
        return signing_request(self.key_pem, self.name)


def trusting(authority_pem: str) -> ssl.SSLContext:
    """TLS that believes this authority only. Raises ValueError for what is no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags = ssl.VerifyFlags(context.verify_flags | _NO_CHECK_TIME)
    try:
        context.load_verify_locations(cadata=authority_pem)
    except ssl.SSLError as error:
        raise ValueError(str(error)) from error
    return context


def digest_of(token: str) -> str:
    """What is kept of a token, to know it again."""
    return hashlib.sha256(token.encode()).hexdigest()


def load(folder: Path) -> Credentials | None:
    """What the host has joined with; None if it has not.

    Raises Conflict if it is damaged, and UnreadForm if another program has to read it.
    """
    text = _read(folder / HOST_FILE)
    if text is None:
        return None
    _refuse_form(folder / HOST_FILE, text)
    found = _checked(folder, text)
    try:
        found.context()  # TLS reads the file by itself, and less forgivingly
    except (ssl.SSLError, ValueError) as error:
        raise Conflict(f"The credentials in {folder} are damaged: {error}.", _REMEDY) from error
    return found


def _refuse_form(path: Path, text: str) -> None:
    said = _FORM_LINE.search(text)
    form = Form(0) if said is None else Form(int(said[1]), said[2] or "")
    form.refuse(
        path,
        newest=FORM,
        price="move the file away and join again: `forewarn host invite NAME --replace` on the"
        " control machine prints the command.",
    )


def _checked(folder: Path, text: str) -> Credentials:
    try:
        key = serialization.load_pem_private_key(text.encode(), None)
        certificate, authority = x509.load_pem_x509_certificates(text.encode())
        ours = certificate.public_key() == key.public_key()
        certificate.verify_directly_issued_by(authority)
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        name = str(names[0].value)
    except (IndexError, *BROKEN_PEM) as error:
        raise Conflict(f"The credentials in {folder} are damaged: {error}.", _REMEDY) from error
    if not ours:
        raise Conflict(f"Key and certificate in {folder / HOST_FILE} do not fit.", _REMEDY)
    control = _CONTROL_LINE.search(text)
    token = _TOKEN_LINE.search(text)
    return Credentials(
        folder=folder,
        name=name,
        control=control[1] if control else "",
        token_digest=token[1] if token else "",
        key_pem=_pem_of(key),
        authority_pem=authority.public_bytes(serialization.Encoding.PEM).decode(),
        not_before_ms=_ms(certificate.not_valid_before_utc.astimezone(UTC).timestamp()),
        not_after_ms=_ms(certificate.not_valid_after_utc.astimezone(UTC).timestamp()),
    )


def _ms(seconds: float) -> int:
    return int(seconds) * SECOND_MS


def joining_key(folder: Path) -> str:
    """The key to join with, kept before it is used: the same one until the join is done."""
    path = folder / JOINING_FILE
    text = _read(path)
    if text is not None:
        with suppress(*BROKEN_PEM):  # half a key is no loss: nothing was signed with it
            return _pem_of(serialization.load_pem_private_key(text.encode(), None))
    made = _pem_of(ec.generate_private_key(ec.SECP256R1()))
    _write(path, made)
    return made


def signing_request(key_pem: str, name: str) -> str:
    """A certificate signing request in PEM for the name of a host."""
    key = serialization.load_pem_private_key(key_pem.encode(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise Conflict("The key of this host is of a kind that hosts do not have.", _REMEDY)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    return request.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def keep(
    folder: Path,
    *,
    key_pem: str,
    certificate_pem: str,
    authority_pem: str,
    control: str,
    token_digest: str,
) -> Credentials:
    """Make these the credentials of the host, durably. Raises Conflict if they do not fit."""
    form = f"form: {FORM} by {this_program()}"
    lines = (form, f"control: {control}", f"token: {token_digest}", key_pem, certificate_pem)
    text = "\n".join(line.strip() for line in (*lines, authority_pem)) + "\n"
    checked = _checked(folder, text)
    _write(folder / HOST_FILE, text)
    with suppress(OSError):
        (folder / JOINING_FILE).unlink()
    return checked


def _pem_of(key: object) -> str:
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is not one of an elliptic curve")  # noqa: TRY004 - a file's fault
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            content = file.read(CREDENTIALS_BYTES_MAX)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(path.parent, error) from error
    return content.decode("utf-8", "replace")


def _write(path: Path, text: str) -> None:
    try:
        make_private_folder(path.parent)
        write_private(path, text.encode())
    except OSError as error:
        raise unusable(path.parent, error) from error
