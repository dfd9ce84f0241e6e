"""Long texts as they are kept: packed to a tenth, so that keeping them takes little time."""

from __future__ import annotations

import base64
import zlib

PACKED_CHARS_MIN = 64 * 1_024
_MARK = "zlib;"  # no inventory begins like that: it is no TOML


def pack(text: str) -> str:
    """A text as it is kept; a short one as it is. Takes a while for a long one."""
    if len(text) < PACKED_CHARS_MIN:
        return text
    return _MARK + base64.b64encode(zlib.compress(text.encode(), 1)).decode("ascii")


def unpack(kept: str) -> str:
    """The text that was packed. Raises ValueError if it cannot be."""
    if not kept.startswith(_MARK):
        return kept
    try:
        packed = base64.b64decode(kept.removeprefix(_MARK), validate=True)
        return zlib.decompress(packed).decode()
    except zlib.error as error:
        raise ValueError(f"a packed text cannot be read: {error}") from error
