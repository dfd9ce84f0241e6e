"""Addresses that people write are read one way, or refused."""

from __future__ import annotations

import pytest

from forewarn.core.addresses import read_listen
from forewarn.core.errors import Invalid


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:8080", ("localhost", 8080)),
    ],
)
def test_addresses_to_listen_on_are_understood(text: str, parsed: tuple[str, int]) -> None:
    assert read_listen(text) == parsed


@pytest.mark.parametrize("text", ["", "80", ":80", "127.0.0.1", "127.0.0.1:x", "a:65536", "a:-1"])
def test_what_is_no_address_to_listen_on_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        read_listen(text)
