"""A certificate in files: what cannot be used is found out before, and what changes is followed."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from forewarn.adapters.server_certificate import BadCertificate, FollowedPair, load_pair
from support.certificates import TestAuthority, key_pem

DAY_S = 86_400


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path / "pki")


def refused(certificate: Path, key: Path) -> str:
    with pytest.raises(BadCertificate) as raised:
        load_pair(certificate, key)
    assert raised.value.accepted
    return raised.value.refused


def now_s() -> float:
    return datetime.now(UTC).timestamp()


def test_a_pair_says_until_when_it_is_valid(authority: TestAuthority) -> None:
    until_s = load_pair(*authority.pair(days=30)).until_s

    assert abs(until_s - now_s() - 30 * DAY_S) < DAY_S


def test_one_file_may_hold_both_and_the_chain(authority: TestAuthority, tmp_path: Path) -> None:
    certificate, key = authority.pair()
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes() + authority.file.read_bytes())

    assert load_pair(both, both).until_s == load_pair(certificate, key).until_s


def test_a_certificate_that_has_expired_is_served_all_the_same(authority: TestAuthority) -> None:
    assert load_pair(*authority.pair(days=-1)).until_s < now_s()


def test_a_key_of_another_certificate_is_refused(authority: TestAuthority, tmp_path: Path) -> None:
    certificate, _ = authority.pair()
    _, other = authority.pair(into=tmp_path / "other")

    assert "key values mismatch" in refused(certificate, other)


def test_a_certificate_for_clients_is_refused(authority: TestAuthority, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    usage = ExtendedKeyUsageOID.CLIENT_AUTH
    (tmp_path / "c").write_bytes(authority.certificate(key, "h1", usage=usage))
    (tmp_path / "k").write_bytes(key_pem(key))

    assert "purpose" in refused(tmp_path / "c", tmp_path / "k")


def test_a_weak_key_is_refused(authority: TestAuthority) -> None:
    weak = rsa.generate_private_key(65_537, 1_024)

    assert "too small" in refused(*authority.pair(key=weak))


def test_a_pass_phrase_is_not_waited_for(authority: TestAuthority) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate, path = authority.pair(key=key)
    path.write_bytes(key_pem(key, pass_phrase=b"secret"))

    assert "has a pass phrase" in refused(certificate, path)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("content", [b"", b"null", b"\0" * 100, b"-----BEGIN CERTIFICATE-----\n"])
def test_what_is_no_pem_is_refused(authority: TestAuthority, which: int, content: bytes) -> None:
    files = authority.pair()
    files[which].write_bytes(content)

    assert "cannot be used" in refused(*files)


def test_a_missing_file_a_folder_and_a_pipe_are_named(
    authority: TestAuthority, tmp_path: Path
) -> None:
    certificate, key = authority.pair()
    os.mkfifo(tmp_path / "pipe")

    assert "none cannot be read: No such file" in refused(tmp_path / "none", key)
    assert "is no file" in refused(certificate, tmp_path)
    assert "is no file" in refused(certificate, tmp_path / "pipe")  # and is not waited for


def _broken(files: tuple[Path, Path]) -> None:
    files[0].write_bytes(b"half of a certi")


def _other_key(files: tuple[Path, Path]) -> None:
    files[1].write_bytes(key_pem(ec.generate_private_key(ec.SECP256R1())))


def _gone(files: tuple[Path, Path]) -> None:
    files[0].unlink()


@pytest.mark.parametrize("harm", [_broken, _other_key, _gone])
def test_a_broken_new_pair_leaves_the_old_one_and_a_good_one_ends_that(
    authority: TestAuthority, harm: Callable[[tuple[Path, Path]], None]
) -> None:
    files = authority.pair()
    followed = FollowedPair(*files)
    first = followed.pair
    assert not followed.look()

    harm(files)
    assert not followed.look()
    assert followed.pair is first
    assert followed.refused
    assert not followed.look()
    assert followed.refused

    authority.pair()
    assert followed.look()
    assert followed.pair is not first
    assert followed.refused == ""
    assert not followed.look()


def test_files_that_have_not_changed_are_not_read_again(authority: TestAuthority) -> None:
    files = authority.pair()
    followed = FollowedPair(*files)
    first = followed.pair

    for _ in range(3):
        assert not followed.look()
    assert followed.pair is first


def test_a_link_that_leads_to_other_files_is_followed(
    authority: TestAuthority, tmp_path: Path
) -> None:
    """As Kubernetes and certbot replace them: a link to a folder, or to a file, changes."""
    authority.pair(into=tmp_path / "one", days=10)
    authority.pair(into=tmp_path / "two", days=20)
    (tmp_path / "live").symlink_to("one")
    followed = FollowedPair(tmp_path / "live" / "server.pem", tmp_path / "live" / "server.key")
    before_s = followed.pair.until_s

    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").replace(tmp_path / "live")

    assert followed.look()
    assert followed.pair.until_s > before_s


def test_a_right_that_is_given_later_is_noticed(authority: TestAuthority) -> None:
    files = authority.pair()
    followed = FollowedPair(*files)
    files[1].chmod(0o640)

    assert followed.look()
