"""Long texts as they are kept."""

from __future__ import annotations

import pytest

from forewarn.wire.packed import PACKED_CHARS_MIN, pack, unpack


@pytest.mark.parametrize("text", ["", "short", "zlib", "\u20ac" * PACKED_CHARS_MIN])
def test_what_is_packed_is_unpacked(text: str) -> None:
    assert unpack(pack(text)) == text


def test_a_long_text_is_kept_in_less_and_a_short_one_as_it_is() -> None:
    text = '[[vm]]\nname = "vm-1"\n' * PACKED_CHARS_MIN
    assert len(pack(text)) < len(text) / 10
    assert pack("short") == "short"


@pytest.mark.parametrize(
    ("damage", "why"), [("zlib;!!", "base64"), ("zlib;AAAA", "cannot be read"), ("zlib;", "read")]
)
def test_a_damaged_text_is_no_text(damage: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        unpack(damage)
