"""What the types of values are made of. No test lives here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec


def types_in(kind: Any) -> Iterator[type]:
    """Every class that a type is made of; where anything may stand, that is `object`."""
    return _in(msgspec.inspect.type_info(kind))


def _in(of: msgspec.inspect.Type) -> Iterator[type]:
    if isinstance(of, msgspec.inspect.AnyType | msgspec.inspect.RawType):
        yield object
    if hasattr(of, "cls"):
        yield of.cls
    for field in getattr(of, "fields", ()):
        yield from _in(field.type)
    for name in ("item_type", "key_type", "value_type"):
        inner = getattr(of, name, None)
        if isinstance(inner, msgspec.inspect.Type):
            yield from _in(inner)
    for inner in (*getattr(of, "item_types", ()), *getattr(of, "types", ())):
        yield from _in(inner)
