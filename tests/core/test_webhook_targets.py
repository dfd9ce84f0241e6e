"""Which places a webhook may send to: public ones with TLS, and those that are listed."""

from __future__ import annotations

import pytest

from forewarn.core.errors import Invalid
from forewarn.core.webhook_targets import (
    Place,
    WebhookTargets,
    read_target,
    read_url,
    refuse_place,
    targets_of,
    why_not,
)

NOTHING = WebhookTargets()
NEAR = (
    "127.0.0.1",
    "127.9.9.9",
    "::1",
    "169.254.169.254",
    "fe80::1",
    "fe80::1%eth0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "fd00::1",
    "224.0.0.1",
    "ff02::1",
    "0.0.0.0",
    "::",
    "255.255.255.255",
    "240.0.0.1",
    "192.0.2.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:10.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
)


def place(url: str = "https://hooks.example.com/x") -> Place:
    return read_url(url)


@pytest.mark.parametrize("address", NEAR)
def test_no_near_address_is_sent_to_unless_it_is_listed(address: str) -> None:
    assert why_not(address, place(), NOTHING, own=False)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_a_public_address_is_sent_to_unless_it_is_ours(address: str) -> None:
    assert why_not(address, place(), NOTHING, own=False) == ""
    assert "this machine" in why_not(address, place(), NOTHING, own=True)


@pytest.mark.parametrize(
    ("listed", "address"),
    [
        ("10.0.0.0/8", "10.1.2.3"),
        ("10.1.2.3", "10.1.2.3"),
        ("10.0.0.0/8", "::ffff:10.1.2.3"),
        ("127.0.0.0/8", "127.0.0.1"),
        ("fd00::/8", "fd00::1"),
        ("169.254.0.0/16", "169.254.1.1"),
    ],
)
def test_what_is_listed_by_its_address_is_sent_to(listed: str, address: str) -> None:
    assert why_not(address, place(), targets_of([listed]), own=True) == ""


@pytest.mark.parametrize("address", ["10.1.2.3", "fd00::1", "192.168.1.1"])
def test_a_name_that_is_listed_may_be_a_private_address(address: str) -> None:
    assert why_not(address, place(), targets_of(["hooks.example.com"]), own=False) == ""


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "169.254.169.254", "fe80::1", "::1", "224.0.0.1", "0.0.0.0"]
)
def test_a_name_alone_never_leads_to_this_machine_or_the_link(address: str) -> None:
    assert why_not(address, place(), targets_of(["hooks.example.com"]), own=False)


def test_plain_http_is_for_listed_hosts_alone() -> None:
    with pytest.raises(Invalid, match="not https"):
        refuse_place(read_url("http://hooks.example.com/x"), NOTHING)
    refuse_place(read_url("http://Hooks.example.com/x"), targets_of(["hooks.example.com"]))
    refuse_place(read_url("http://10.1.2.3:81/x"), targets_of(["10.0.0.0/8"]))
    refuse_place(read_url("https://hooks.example.com/x"), NOTHING)


def test_an_address_in_the_url_is_judged_before_anything_is_kept() -> None:
    with pytest.raises(Invalid, match="loopback"):
        refuse_place(read_url("https://127.0.0.1/x"), NOTHING)
    with pytest.raises(Invalid, match="link-local"):
        refuse_place(read_url("https://[::ffff:169.254.169.254]/x"), NOTHING)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example.com/x",
        "ftp://hooks.example.com/",
        "https://",
        "https:///x",
        "https://user@hooks.example.com/",
        "https://user:secret@hooks.example.com/",
        "https://hooks.example.com/#part",
        "https://hooks.example.com:0/",
        "https://hooks.example.com:99999/",
        "https://hooks.example.com/a b",
        "https://hooks.example.com/\r\nHost: other",
        "https://hooks.example.com\\@other/",
        "https://h\xfcoks.example.com/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f.0.0.1/",
        "https://0x7f000001/",
        "https://hooks..example.com/",
        "https://[fe80::1/",
        "https://hooks.example.com/" + "x" * 2_000,
    ],
)
def test_what_is_no_plain_url_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        read_url(url)


def test_a_url_is_taken_apart_as_it_is_sent() -> None:
    assert read_url("https://Hooks.example.com/a/b?c=d%20e") == Place(
        tls=True,
        host="hooks.example.com",
        port=443,
        path="/a/b?c=d%20e",
        authority="hooks.example.com",
    )
    v6 = read_url("http://[2001:db8::1]:8080")
    assert (v6.host, v6.port, v6.path) == ("2001:db8::1", 8080, "/")
    assert v6.authority == "[2001:db8::1]:8080"


@pytest.mark.parametrize("text", ["", "*", "*.example.com", "10.0.0.0/33", "10.0.0.1/8", "a b"])
def test_what_is_no_place_cannot_be_listed(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_target(text or " ")


def test_a_listed_place_has_one_spelling() -> None:
    assert read_target("Hooks.Example.com.") == "hooks.example.com"
    assert read_target("192.0.2.7") == "192.0.2.7/32"
