"""Certificates for tests, of an authority of their own, in files as an operator would have them."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _signs_others() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def strict(authority: Path | None) -> ssl.SSLContext:
    """A client that trusts this authority, as strict as those of Python 3.13 are by themselves."""
    context = ssl.create_default_context(cafile=authority)
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    return context


def key_pem(key: PrivateKey, *, pass_phrase: bytes | None = None) -> bytes:
    hidden: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if pass_phrase is not None:
        hidden = serialization.BestAvailableEncryption(pass_phrase)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)


class TestAuthority:
    """An authority that operators trust, and what it has signed."""

    __test__ = False

    def __init__(self, folder: Path, name: str = "an authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.file = folder / f"{name.replace(' ', '-')}.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name(name))
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 1_000 * DAY)
            .not_valid_after(now + 1_000 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_signs_others(), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def trusting(self) -> ssl.SSLContext:
        return strict(self.file)

    def certificate(
        self,
        key: PrivateKey,
        *names: str,
        days: int = 90,
        usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
    ) -> bytes:
        """A certificate in PEM that ends in so many days; with a negative number it has expired."""
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(_name(names[0] if names else "nothing"))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 500 * DAY)
            .not_valid_after(now + days * DAY)
            .add_extension(
                x509.SubjectAlternativeName([_general(one) for one in names]), critical=False
            )
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

    def pair(
        self, *names: str, days: int = 90, into: Path | None = None, key: PrivateKey | None = None
    ) -> tuple[Path, Path]:
        """A new certificate and its key in two files of a folder, in the place of those there."""
        folder = into or self.folder
        folder.mkdir(exist_ok=True)
        mine = key or ec.generate_private_key(ec.SECP256R1())
        written = {
            "server.pem": self.certificate(mine, *(names or ("127.0.0.1",)), days=days),
            "server.key": key_pem(mine),
        }
        for name, content in written.items():
            scratch = folder / f".{name}"
            scratch.write_bytes(content)
            scratch.replace(folder / name)
        return folder / "server.pem", folder / "server.key"


def serial_of(pem: bytes) -> int:
    return x509.load_pem_x509_certificate(pem).serial_number


def shown_serial(connected: ssl.SSLSocket | ssl.SSLObject) -> int:
    """Which certificate a server has shown."""
    der = connected.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number
