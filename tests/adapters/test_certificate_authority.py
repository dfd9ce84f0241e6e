"""The certificate authority: made once, private, never silently replaced; it signs two kinds."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from forewarn.adapters.certificate_authority import (
    AUTHORITY_FOR,
    BACKDATED,
    HOST_FOR,
    RENEW_BEFORE,
    SERVER_FOR,
    Authority,
    read_peer,
    read_request,
)
from forewarn.adapters.sqlite.data_folder import DatabaseRefused
from forewarn.core.errors import Invalid, NotMember

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def request(
    *names: str, signer: PrivateKey | None = None, more: tuple[x509.NameAttribute[str], ...] = ()
) -> str:
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names]
    built = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([*subject, *more]))
    made = built.sign(signer or key(), hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def certificate(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def server(folder: Path) -> x509.Certificate:
    return certificate((folder / "server.crt").read_text())


def test_it_is_made_once_and_is_the_same_ever_after(tmp_path: Path) -> None:
    first = Authority(tmp_path / "link", now=NOW)
    second = Authority(tmp_path / "link", now=NOW + timedelta(days=400))
    assert (second.pem, second.fingerprint) == (first.pem, first.fingerprint)
    assert Authority(tmp_path / "other").fingerprint != first.fingerprint
    made = certificate(first.pem)
    assert made.not_valid_after_utc == NOW + AUTHORITY_FOR
    assert made.not_valid_before_utc == NOW - BACKDATED


def test_only_its_owner_can_read_what_it_keeps(tmp_path: Path) -> None:
    Authority(tmp_path / "link").server_context(["localhost"])
    assert stat.S_IMODE((tmp_path / "link").stat().st_mode) == 0o700
    for file in (tmp_path / "link").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_hosts_certificate_is_for_its_name_and_key_and_for_clients_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine = key()
    made = certificate(authority.sign(request("h1", signer=mine), name="h1", now=NOW))

    made.verify_directly_issued_by(certificate(authority.pem))
    assert made.public_key() == mine.public_key()
    assert made.not_valid_after_utc == NOW + HOST_FOR
    assert made.not_valid_before_utc == NOW - BACKDATED  # clocks of hosts may be off
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    with pytest.raises(x509.ExtensionNotFound):
        made.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    shown = read_peer(made.public_bytes(serialization.Encoding.DER))
    asked = read_request(request("h1", signer=mine))
    assert (shown.name, shown.key) == (asked.name, asked.key)
    assert shown.until_ms == int((NOW + HOST_FOR).timestamp()) * 1_000


def test_what_a_request_asks_for_beyond_its_name_is_not_given(tmp_path: Path) -> None:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "h1")])
    greedy = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("control.example")]), critical=False
        )
        .sign(key(), hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
        .decode()
    )
    made = certificate(Authority(tmp_path).sign(greedy, name="h1"))
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    with pytest.raises(x509.ExtensionNotFound):
        made.extensions.get_extension_for_class(x509.SubjectAlternativeName)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "broken"),
        ("null", "broken"),
        ("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----", "broken"),
        ("x" * 20_000, "too long"),
        ("\ud800", "broken"),
    ],
)
def test_a_broken_request_is_refused_in_words(text: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        read_request(text)


def test_a_request_names_one_host_and_nothing_else() -> None:
    organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "example")
    for wrong in (request(), request("h1", "h2"), request("h1", more=(organization,))):
        with pytest.raises(Invalid, match="does not name one host"):
            read_request(wrong)


def test_keys_of_other_kinds_are_refused() -> None:
    others: list[PrivateKey] = [
        rsa.generate_private_key(65_537, 2_048),
        ec.generate_private_key(ec.SECP384R1()),
    ]
    for other in others:
        with pytest.raises(Invalid, match="of another kind"):
            read_request(request("h1", signer=other))


def test_a_request_that_somebody_else_signed_is_refused() -> None:
    der = bytearray(
        x509.load_pem_x509_csr(request("h1").encode()).public_bytes(serialization.Encoding.DER)
    )
    der[-1] ^= 1
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM).decode()
    with pytest.raises(Invalid):
        read_request(forged)


def test_a_certificate_that_names_no_host_belongs_to_nobody() -> None:
    with pytest.raises(NotMember):
        read_peer(b"nothing of the kind")


def test_the_servers_certificate_is_for_the_names_it_is_told(tmp_path: Path) -> None:
    Authority(tmp_path).server_context(["ctl.example", "192.0.2.7", "2001:db8::7"], now=NOW)
    found = server(tmp_path).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert sorted(str(name.value) for name in found) == ["192.0.2.7", "2001:db8::7", "ctl.example"]
    usage = server(tmp_path).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_the_servers_certificate_is_made_anew_before_it_ends_or_for_other_names(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path, now=NOW)

    def serial(now: datetime, *names: str) -> int:
        authority.server_context(names, now=now)
        return server(tmp_path).serial_number

    first = serial(NOW, "a.example", "b.example")
    assert serial(NOW + timedelta(days=30), "b.example", "a.example") == first
    other = serial(NOW, "a.example")
    assert other != first
    assert serial(NOW + SERVER_FOR - RENEW_BEFORE - timedelta(days=1), "a.example") == other
    assert serial(NOW + SERVER_FOR - RENEW_BEFORE, "a.example") != other


@pytest.mark.parametrize("file", ["server.key", "server.crt"])
@pytest.mark.parametrize("content", [None, b"", b"half a key"])
def test_what_a_kill_has_left_of_the_servers_certificate_is_made_anew(
    tmp_path: Path, file: str, content: bytes | None
) -> None:
    authority = Authority(tmp_path)
    authority.server_context(["localhost"])
    before = server(tmp_path).serial_number
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(content)
    authority.server_context(["localhost"])
    assert server(tmp_path).serial_number != before


def test_a_servers_certificate_of_another_authority_is_not_used(tmp_path: Path) -> None:
    Authority(tmp_path / "theirs").server_context(["localhost"])
    ours = Authority(tmp_path / "ours")
    for name in ("server.key", "server.crt"):
        (tmp_path / "ours" / name).write_bytes((tmp_path / "theirs" / name).read_bytes())
    ours.server_context(["localhost"])
    server(tmp_path / "ours").verify_directly_issued_by(certificate(ours.pem))


def test_a_kill_before_the_certificate_was_written_leaves_a_first_start(tmp_path: Path) -> None:
    Authority(tmp_path)
    (tmp_path / "authority.crt").unlink()
    assert Authority(tmp_path).pem


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("authority.key", b""),
        ("authority.key", None),
        ("authority.crt", b"half"),
        ("authority.crt", b""),
    ],
)
def test_a_damaged_authority_is_never_replaced_but_said(
    tmp_path: Path, file: str, content: bytes | None
) -> None:
    Authority(tmp_path)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(DatabaseRefused, match=r"is damaged.*every host has to join again"):
        Authority(tmp_path)


def test_a_key_of_another_authority_is_damage(tmp_path: Path) -> None:
    Authority(tmp_path / "a")
    Authority(tmp_path / "b")
    (tmp_path / "a" / "authority.key").write_bytes((tmp_path / "b" / "authority.key").read_bytes())
    with pytest.raises(DatabaseRefused, match="do not belong together"):
        Authority(tmp_path / "a")


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "link").write_text("a file")
    with pytest.raises(DatabaseRefused, match="link cannot be used"):
        Authority(tmp_path / "link")


def test_a_private_file_is_written_over_no_link_of_somebody_else(tmp_path: Path) -> None:
    folder = tmp_path / "link"
    folder.mkdir(mode=0o700)
    theirs = tmp_path / "theirs"
    theirs.touch(mode=0o666)
    (folder / f".authority.key.{os.getpid()}").symlink_to(theirs)
    Authority(folder)
    assert theirs.read_text() == ""
    assert not (folder / "authority.key").is_symlink()
