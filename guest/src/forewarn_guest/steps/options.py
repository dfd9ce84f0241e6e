"""The shape of an option of a built-in step, and the readers that options share.

The configuration reader checks with these tables at start, the steps read with them when they run,
and the docs list them: one table for all three.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Callable

from forewarn_guest.durations import DURATION_S_MAX, read_seconds

TEXT_MAX = 4096  # characters
LIST_MAX = 100  # members
PORT_MAX = 65535

Reader = Callable[[object], Any]


@dataclass(frozen=True)
class Option:
    """One option: what it is for and what it accepts, in words, and its reader.

    The reader returns the value that the step works with, or raises ValueError with the sentence
    "must be ...". `default` is what stands for an option that is not given, as the step works
    with it.
    """

    what: str
    accepts: str
    read: Reader
    required: bool = False
    default: Any = None


Options = Mapping[str, Option]


@dataclass(frozen=True)
class Mistake:
    """What is wrong with an option, by its name, in words without the name."""

    option: str
    says: str


Agreement = Callable[[Mapping[str, Any]], "tuple[Mistake, ...]"]


def _no_agreement(_values: Mapping[str, Any]) -> tuple[Mistake, ...]:
    return ()


@dataclass(frozen=True)
class StepKind:
    """A kind of built-in step: what it does, its options, and the module that does it.

    `agreement` says what is wrong with options that are right one by one.
    """

    name: str
    what: str
    module: str
    options: Options
    agreement: Agreement = _no_agreement


def read_options(
    kind: StepKind, given: Mapping[str, object]
) -> tuple[dict[str, Any], tuple[Mistake, ...]]:
    """Every option of the kind with its value, and every mistake. With mistakes, use no value."""
    mistakes = [
        Mistake(name, f"is no option of {kind.name}, which has {', '.join(sorted(kind.options))}.")
        for name in given
        if name not in kind.options
    ]
    values: dict[str, Any] = {}
    for name, option in kind.options.items():
        if name not in given:
            values[name] = option.default
            if option.required:
                mistakes.append(Mistake(name, f"is missing: {option.what} ({option.accepts})."))
            continue
        try:
            values[name] = option.read(given[name])
        except ValueError as error:
            mistakes.append(Mistake(name, f"{error}."))
    return values, tuple(mistakes) or kind.agreement(values)


def text(value: object) -> str:
    """Text of one line that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be text")
    if len(value) > TEXT_MAX:
        raise ValueError(f"must be at most {TEXT_MAX} characters long")
    if not value.isprintable():
        raise ValueError("must be one line without control characters")
    return value


def matching(pattern: str, accepts: str) -> Reader:
    """Text that is the pattern from end to end."""
    compiled = re.compile(pattern)

    def read(value: object) -> str:
        if not isinstance(value, str) or len(value) > TEXT_MAX or not compiled.fullmatch(value):
            raise ValueError(f"must be {accepts}")
        return value

    return read


def one_of(*words: str) -> Reader:
    """One of some words."""

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return value

    return read


def yes_or_no(value: object) -> bool:
    """true or false, and nothing that merely looks like it."""
    if not isinstance(value, bool):
        raise ValueError("must be true or false")  # noqa: TRY004 - one error for every mistake
    return value


def seconds(value: object) -> float:
    """A number of seconds above zero, at most as long as any length of time may be."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("must be a number of seconds")  # noqa: TRY004 - as above
    if not 0 < value <= DURATION_S_MAX:  # not a number fails here too
        raise ValueError(f"must be above 0 and at most {DURATION_S_MAX:.0f} seconds")
    return float(value)


def whole_seconds(value: object) -> int:
    """A length of time as people write it, of whole seconds, zero included."""
    length = read_seconds(value)
    if not length.is_integer():
        raise ValueError("must be a length of time of whole seconds")
    return int(length)


def absolute_path(value: object) -> str:
    """A path from the root; whether something is there is seen when the step runs."""
    path = text(value)
    if not PurePosixPath(path).is_absolute():
        raise ValueError("must be a path that begins with /")
    return path


def list_of(read_one: Reader) -> Reader:
    """One or more of something; one may stand without a list."""

    def read(value: object) -> tuple[Any, ...]:
        members = value if isinstance(value, list) else [value]
        if not 0 < len(members) <= LIST_MAX:
            raise ValueError(f"must have 1 to {LIST_MAX} members")
        return tuple(read_one(member) for member in members)

    return read


@dataclass(frozen=True)
class SocketAddress:
    """A place to connect to: a path of a Unix socket, or a host with a port."""

    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_HOST_AND_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_.-]+)):([0-9]{1,5})")


def host_and_port(value: object) -> SocketAddress:
    """`host:port`, or `[address]:port` for IPv6."""
    found = _HOST_AND_PORT.fullmatch(text(value))
    if found is None or not 0 < int(found[3]) <= PORT_MAX:
        raise ValueError("must be host:port, or [address]:port for IPv6")
    return SocketAddress(host=found[1] or found[2], port=int(found[3]))


def socket_address(value: object) -> SocketAddress:
    """An absolute path of a Unix socket, or a host with a port."""
    place = text(value)
    if place.startswith("/"):
        return SocketAddress(path=place)
    try:
        return host_and_port(place)
    except ValueError:
        raise ValueError("must be a path that begins with /, or host:port") from None
