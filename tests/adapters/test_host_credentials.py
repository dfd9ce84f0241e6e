"""What a host keeps to prove who it is: private, whole, and checked whenever it is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from forewarn.adapters import host_credentials, joining
from forewarn.adapters.certificate_authority import Authority, read_request
from forewarn.adapters.host_credentials import HOST_FILE, JOINING_FILE, Credentials
from forewarn.adapters.sqlite.data_folder import FolderUnusable
from forewarn.core.errors import Conflict, Invalid
from forewarn.core.model import DAY_MS

CONTROL = "https://ctl.example:8256"


def joined(folder: Path, authority: Authority, name: str = "h1") -> Credentials:
    """A host that has joined, without asking anybody."""
    key = host_credentials.joining_key(folder)
    request = host_credentials.signing_request(key, name)
    return host_credentials.keep(
        folder,
        key_pem=key,
        certificate_pem=authority.sign(request, name=name),
        authority_pem=authority.pem,
        control=CONTROL,
        token_digest=host_credentials.digest_of("fw1.a.b"),
    )


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


def test_what_is_kept_is_read_again(tmp_path: Path, authority: Authority) -> None:
    kept = joined(tmp_path / "h1", authority)
    read = host_credentials.load(tmp_path / "h1")

    assert read == kept
    assert (kept.name, kept.control) == ("h1", CONTROL)
    assert kept.token_digest == host_credentials.digest_of("fw1.a.b")
    assert kept.authority_pem == authority.pem
    kept.context()  # OpenSSL takes the same file


def test_only_the_owner_may_read_the_key(tmp_path: Path, authority: Authority) -> None:
    host_credentials.joining_key(tmp_path / "h2")
    joined(tmp_path / "h1", authority)

    for file in (tmp_path / "h1" / HOST_FILE, tmp_path / "h2" / JOINING_FILE):
        assert file.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "h1").stat().st_mode & 0o077 == 0


def test_a_host_that_never_joined_has_nothing(tmp_path: Path) -> None:
    assert host_credentials.load(tmp_path / "nowhere") is None


def test_joining_uses_the_same_key_until_it_is_done(tmp_path: Path, authority: Authority) -> None:
    first = host_credentials.joining_key(tmp_path)
    assert host_credentials.joining_key(tmp_path) == first

    joined(tmp_path, authority)
    assert not (tmp_path / JOINING_FILE).exists()
    assert host_credentials.joining_key(tmp_path) != first


def test_half_a_key_is_made_anew(tmp_path: Path) -> None:
    first = host_credentials.joining_key(tmp_path)
    (tmp_path / JOINING_FILE).write_text(first[:50])

    assert host_credentials.joining_key(tmp_path) != first


def test_the_request_names_the_host_and_is_what_the_authority_takes(tmp_path: Path) -> None:
    key = host_credentials.joining_key(tmp_path)

    assert read_request(host_credentials.signing_request(key, "h1")).name == "h1"


@pytest.mark.parametrize("damage", ["", "nonsense", "control: x\n", "cut"])
def test_damaged_credentials_are_refused_with_the_remedy(
    tmp_path: Path, authority: Authority, damage: str
) -> None:
    joined(tmp_path, authority)
    file = tmp_path / HOST_FILE
    file.write_text(file.read_text()[:700] if damage == "cut" else damage)

    with pytest.raises(Conflict) as refused:
        host_credentials.load(tmp_path)
    assert "forewarn host invite NAME --replace" in str(refused.value)


def test_a_certificate_that_another_authority_signed_is_refused(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    key = host_credentials.joining_key(tmp_path / "h1")
    request = host_credentials.signing_request(key, "h1")

    with pytest.raises(Conflict):
        host_credentials.keep(
            tmp_path / "h1",
            key_pem=key,
            certificate_pem=theirs.sign(request, name="h1"),
            authority_pem=ours.pem,
            control=CONTROL,
            token_digest="",
        )
    assert host_credentials.load(tmp_path / "h1") is None


def test_a_certificate_for_another_key_is_refused(tmp_path: Path, authority: Authority) -> None:
    mine = host_credentials.joining_key(tmp_path / "h1")
    other = host_credentials.joining_key(tmp_path / "h2")
    request = host_credentials.signing_request(other, "h1")

    with pytest.raises(Conflict):
        host_credentials.keep(
            tmp_path / "h1",
            key_pem=mine,
            certificate_pem=authority.sign(request, name="h1"),
            authority_pem=authority.pem,
            control=CONTROL,
            token_digest="",
        )


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(FolderUnusable):
        host_credentials.joining_key(tmp_path / "file" / "h1")


def test_a_certificate_is_due_for_renewal_after_two_thirds_of_its_life(
    tmp_path: Path, authority: Authority
) -> None:
    kept = joined(tmp_path, authority)
    life_ms = kept.not_after_ms - kept.not_before_ms

    assert not kept.renewal_due(kept.not_before_ms + life_ms * 2 // 3 - DAY_MS)
    assert kept.renewal_due(kept.not_before_ms + life_ms * 2 // 3 + DAY_MS)
    assert not kept.renewal_due(int((datetime.now(UTC) + timedelta(days=1)).timestamp() * 1_000))


@pytest.mark.parametrize("token", ["", "x", "fw1.a", "fw2.a.b", "fw1..b", "fw1.a.b.c"])
def test_what_is_no_token_is_refused_before_anything_is_asked(token: str) -> None:
    with pytest.raises(Invalid) as refused:
        joining.fingerprint_in(token)
    assert "fw1.SECRET.FINGERPRINT" in str(refused.value)


def test_the_fingerprint_is_the_one_that_control_puts_into_its_tokens(authority: Authority) -> None:
    assert joining.fingerprint_of(authority.pem.encode()) == authority.fingerprint
