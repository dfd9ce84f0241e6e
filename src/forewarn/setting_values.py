"""How settings are read, whichever they are: from a TOML file, the environment, options.

An option of the command line wins over the environment, which wins over the file. A key nobody
knows is a mistake, and so is a value that would not do what it says; every mistake says where,
what, and what would be accepted. Nothing here opens (but the settings file), listens or starts;
the environment is an argument. What the settings are is in `settings` and `host_settings`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from forewarn.control import toml_lines
from forewarn.core.addresses import LISTEN_ACCEPTED, listen_text, read_listen
from forewarn.core.errors import Invalid
from forewarn.core.spelling import first_of, meant, shown

SETTINGS_FILE_BYTES_MAX = 1_024 * 1_024
GUEST_NAMES_MAX = 64


class BadSettings(Exception):  # noqa: N818 - says what is the case
    """The service must not start with these settings. Each mistake says where, what, and what
    would be accepted."""

    def __init__(self, mistakes: Iterable[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(first_of(self.mistakes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A value somebody gave for a key. Words from the environment and options are text only."""

    where: str
    value: object
    as_text: bool
    folder: Path  # what a relative path is relative to
    home: Path


@dataclass(frozen=True, slots=True)
class Kind:
    """What a key takes, in words and as a function that raises ValueError for anything else."""

    accepted: str
    read: Callable[[Given], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The keys of one program, and its variables: `prefix` + the key in capitals.

    `others` are variables with that prefix that are read elsewhere, `other_prefixes` begin such.
    """

    kinds: Mapping[str, Kind]
    prefix: str
    others: Collection[str] = ()
    other_prefixes: tuple[str, ...] = ()


def number(low: int, high: int, note: str = "") -> Kind:
    """A whole number."""

    def read(given: Given) -> int:
        value = given.value
        if given.as_text and isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            raise ValueError
        return value

    return Kind(f"a whole number from {low} to {high}{note}", read)


def choice(*values: str) -> Kind:
    """One of these words."""

    def read(given: Given) -> object:
        if given.value not in values:
            raise ValueError
        return given.value

    return Kind(" or ".join(f'"{value}"' for value in values), read)


def pattern(accepted: str, regex: str) -> Kind:
    """Text of this shape."""

    def read(given: Given) -> str:
        if not isinstance(given.value, str) or not re.fullmatch(regex, given.value):
            raise ValueError
        return given.value

    return Kind(accepted, read)


def words(accepted: str, regex: str, *, limit: int, split: Callable[[str], list[str]]) -> Kind:
    """A list of such texts; `split` takes the text of the environment or an option apart."""

    def read(given: Given) -> tuple[str, ...]:
        value = given.value
        if given.as_text and isinstance(value, str):
            value = split(value)
        if not isinstance(value, list) or len(value) > limit:
            raise ValueError
        if not all(isinstance(word, str) and re.fullmatch(regex, word) for word in value):
            raise ValueError
        return tuple(value)

    return Kind(accepted, read)


def split_names(text: str) -> list[str]:
    """Names that are divided by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _read_listen(given: Given) -> str:
    if not isinstance(given.value, str):
        raise ValueError  # noqa: TRY004 - the caller turns it into words
    try:
        return listen_text(*read_listen(given.value))
    except Invalid:
        raise ValueError from None


def _read_path(given: Given) -> Path:
    if not isinstance(given.value, str) or not given.value or "\0" in given.value:
        raise ValueError
    if given.value == "~" or given.value.startswith("~/"):
        return given.home / given.value[2:]
    return given.folder / given.value


def _read_switch(given: Given) -> bool:
    value = given.value
    if given.as_text and value in ("true", "false"):
        return value == "true"
    if not isinstance(value, bool):
        raise ValueError  # noqa: TRY004 - the caller turns it into words
    return value


SWITCH = Kind("true or false", _read_switch)
LISTEN = Kind(LISTEN_ACCEPTED, _read_listen)
FOLDER = Kind("the path of a folder", _read_path)
TOML_FILE = Kind("the path of a TOML file", _read_path)
FILE = Kind("the path of a file", _read_path)
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
GUEST_NAMES = words(
    f'at most {GUEST_NAMES_MAX} host names without a port, like ["metadata.example"]',
    rf"(?=.{{1,254}}$){_LABEL}(\.{_LABEL})*\.?",
    limit=GUEST_NAMES_MAX,
    split=split_names,
)
SOCKET = Kind("the path of a Unix socket", _read_path)


def read(
    keys: Keys,
    *,
    file: Path | None,
    environment: Mapping[str, str],
    options: Mapping[str, str | None] | None,
    folder: Path | None,
) -> tuple[dict[str, object], list[str]]:
    """The values that were given and can be used, by key, and every mistake that was found.

    `options` are what the command line was given, by key; None means not given. Relative paths
    in the file are relative to the file, all others to `folder` (the current one by default).
    """
    mistakes: list[str] = []
    home = home_of(environment)
    here = folder or Path.cwd()
    given: dict[str, Given] = {}
    if file is not None:
        given.update(_from_file(keys, here / file, home, mistakes))
    given.update(_from_environment(keys, environment, here, home, mistakes))
    for key, value in (options or {}).items():
        if value is not None:
            where = f"--{key.replace('_', '-')}"
            given[key] = Given(where=where, value=value, as_text=True, folder=here, home=home)
    values: dict[str, object] = {}
    for key, one in given.items():
        try:
            values[key] = keys.kinds[key].read(one)
        except ValueError:
            mistakes.append(_refused(keys.kinds[key], key, one))
    return values, mistakes


def home_of(environment: Mapping[str, str]) -> Path:
    """The home folder of whoever started the program."""
    return Path(environment.get("HOME") or Path.home())


def kept_folder(environment: Mapping[str, str], name: str) -> Path:
    """Where a program that is told nothing else keeps what it must find again."""
    base = Path(environment.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():  # the specification of that variable says to ignore such a value
        base = home_of(environment) / ".local" / "state"
    return base / name


def _refused(kind: Kind, key: str, given: Given) -> str:
    accepted = kind.accepted
    quoted = not given.as_text and isinstance(given.value, str)
    if quoted and "whole number" in accepted:
        accepted += ", without quotes"
    return f"{given.where}: {key} = {shown(given.value)} is refused. Accepted: {accepted}."


def _from_environment(
    keys: Keys, environment: Mapping[str, str], folder: Path, home: Path, mistakes: list[str]
) -> Iterable[tuple[str, Given]]:
    variables = {f"{keys.prefix}{key.upper()}": key for key in keys.kinds}
    for name in sorted(environment):
        if not name.startswith(keys.prefix) or name in keys.others:
            continue
        if name.startswith(keys.other_prefixes):
            continue
        key = variables.get(name)
        if key is None:
            mistakes.append(
                f"environment: {name} is no setting. "
                + meant(name, [*variables, *sorted(keys.others)])
            )
            continue
        value = environment[name]
        yield key, Given(where=name, value=value, as_text=True, folder=folder, home=home)


def _from_file(
    keys: Keys, file: Path, home: Path, mistakes: list[str]
) -> Iterable[tuple[str, Given]]:
    try:
        text = read_text(file, SETTINGS_FILE_BYTES_MAX)
        table = toml_lines.read(text)
    except Unreadable as unreadable:
        mistakes.append(f"{file}: {unreadable}. Give a TOML file in UTF-8 with --settings.")
        return
    except toml_lines.NotToml as error:
        where = f"{file}, line {error.line}" if error.line else str(file)
        mistakes.append(f"{where}: {error.words}.")
        return
    lines = toml_lines.TomlLines(text)
    for key, value in table.items():
        where = f"{file}, line {lines.line_of(key)}"
        if key not in keys.kinds:
            mistakes.append(f"{where}: there is no setting {shown(key)}. {meant(key, keys.kinds)}")
            continue
        yield key, Given(where=where, value=value, as_text=False, folder=file.parent, home=home)


class Unreadable(Exception):  # noqa: N818 - says what is the case
    """Why a file could not be read, in words."""


def read_text(file: Path, bytes_max: int) -> str:
    """The text of a file. Raises Unreadable."""
    try:
        with file.open("rb") as stream:
            content = stream.read(bytes_max + 1)
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror or error}") from error
    if len(content) > bytes_max:
        raise Unreadable(f"is larger than {bytes_max} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Unreadable(f"line {line} is not UTF-8") from error
