"""How settings are read, whichever they are: from a TOML file, the environment, options.

An option of the command line wins over the environment, which wins over the file. An unknown key
is a mistake, and so is a value that would not do what it says; every mistake says where, what, and
what would be accepted. Nothing here opens (but the settings file), listens or starts; the
environment is an argument. What the settings are is in `settings` and `host_settings`; what both
have is here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from msgspec import Struct

from forewarn.core.suggestions import first_of, meant
from forewarn.endpoint.browsers_and_proxies import known_names
from forewarn.endpoint.routes import MetadataHeader, RequestRules
from forewarn.folders import home_of, placed
from forewarn.text import toml_lines
from forewarn.text.field_tables import Fields, Mistakes, Table
from forewarn.text.fields import Field, choice, number, pattern, ruled, several
from forewarn.wire.instance import ResourceLocation

SETTINGS_FILE_BYTES_MAX = 1_024 * 1_024
GUEST_NAMES_MAX = 64
REQUESTS_PER_SECOND_MAX = 1_000_000

S = TypeVar("S")


class BadSettings(Exception):  # noqa: N818 - says what is the case
    """The service must not start with these settings. Each mistake says where, what, and what
    would be accepted."""

    def __init__(self, mistakes: Iterable[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(first_of(self.mistakes)))


class Keys(Struct, frozen=True, kw_only=True):
    """The keys of one program, and its variables: `prefix` + the key in capitals.

    `others` are variables with that prefix that are read elsewhere, `other_prefixes` begin such.
    """

    fields: Mapping[str, Field]
    prefix: str
    others: Collection[str] = ()
    other_prefixes: tuple[str, ...] = ()


class _Source(Struct, frozen=True, kw_only=True):
    """The values that one place has for keys, and where each stands. A file alone is typed."""

    written: Mapping[str, Any]
    where: Callable[[toml_lines.Path], str]
    folder: Path  # what a relative path is relative to
    home: Path
    as_text: bool = True

    def placed(self, value: object, written: object) -> object:
        """A path where this source means it; any other value as it is."""
        if not isinstance(value, Path):
            return value
        return placed(str(written), self.folder, self.home)


# What both programs can be told of guests.


class ServesGuests:
    """What the settings of both programs say of requests and of where VMs are."""

    __slots__ = ()
    metadata_header: MetadataHeader
    guest_names: tuple[str, ...]
    location: str
    resource_group: str
    subscription_id: str

    def place(self) -> ResourceLocation:
        """Where `/metadata/instance` says that the VMs are."""
        return ResourceLocation(
            location=self.location,
            resource_group=self.resource_group,
            subscription_id=self.subscription_id,
        )

    def rules(self) -> RequestRules:
        """What the endpoint asks of requests."""
        return RequestRules(
            metadata_header=self.metadata_header, guest_names=known_names(self.guest_names)
        )


def split_names(text: str) -> list[str]:
    """Names that are divided by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError
    return Path(text)


FOLDER = ruled("the path of a folder", _path)
TOML_FILE = ruled("the path of a TOML file", _path)
FILE = ruled("the path of a file", _path)
SOCKET = ruled("the path of a Unix socket", _path)
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
HOST_NAMES = several(
    f'at most {GUEST_NAMES_MAX} host names without a port, like ["metadata.example"]',
    pattern("a host name", rf"(?=.{{1,254}}$){_LABEL}(\.{_LABEL})*\.?"),
    limit=GUEST_NAMES_MAX,
    split=split_names,
)
_PLACE = pattern(
    "1 to 90 letters, digits and `_ . ( ) -`, beginning with a letter or digit",
    r"[A-Za-z0-9][A-Za-z0-9_.()-]{0,89}",
)
_GUID = pattern(
    "a GUID, like 00000000-0000-0000-0000-000000000000",
    r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
)
OF_GUESTS: Mapping[str, Field] = {
    "guest_requests_per_second": number(0, REQUESTS_PER_SECOND_MAX, " (0 = no limit)"),
    "metadata_header": choice(get_args(MetadataHeader)),
    "guest_names": HOST_NAMES,
    "location": _PLACE,
    "resource_group": _PLACE,
    "subscription_id": _GUID,
}


# Reading.


def load(
    keys: Keys,
    make: Callable[..., S],
    clashes: Callable[[S], Iterable[str]],
    *,
    file: Path | None,
    environment: Mapping[str, str],
    options: Mapping[str, str | None] | None,
    folder: Path | None,
    defaults: Mapping[str, Any],
) -> S:
    """The settings that `make` makes of the values in force.

    `options` are what the command line was given, by key; None means not given. Relative paths
    in the file are relative to the file, all others to `folder` (the current one by default).
    `defaults` are not checked. Raises BadSettings with every mistake, those of `clashes` among
    them: how values that are each fine do not fit together.
    """
    values = dict(defaults)
    mistakes: list[str] = []
    home, here = home_of(environment), folder or Path.cwd()
    sources = [
        *([] if file is None else _from_file(here / file, home, mistakes)),
        _from_environment(keys, environment, here, home, mistakes),
        _from_options(options or {}, here, home),
    ]
    fields = Fields(fields=keys.fields, unknown="there is no setting")
    for rank, source in enumerate(sources):
        stronger = {key for other in sources[rank + 1 :] for key in other.written}
        written = {key: value for key, value in source.written.items() if key not in stronger}
        table, found = Table(written), Mistakes()
        fields.read(table, found, as_text=source.as_text)
        mistakes += [f"{source.where(one.path)}: {one.words}" for one in found.found]
        for key, value in table.values.items():
            values[key] = source.placed(value, written[key])
    if mistakes:
        raise BadSettings(mistakes)
    settings = make(**values)
    mistakes.extend(clashes(settings))
    if mistakes:
        raise BadSettings(mistakes)
    return settings


def _from_options(options: Mapping[str, str | None], folder: Path, home: Path) -> _Source:
    written = {key: value for key, value in options.items() if value is not None}

    def where(path: toml_lines.Path) -> str:
        return f"--{str(path[0]).replace('_', '-')}"

    return _Source(written=written, where=where, folder=folder, home=home)


def _from_environment(
    keys: Keys, environment: Mapping[str, str], folder: Path, home: Path, mistakes: list[str]
) -> _Source:
    variables = {f"{keys.prefix}{key.upper()}": key for key in keys.fields}
    names: dict[str, str] = {}
    for name in sorted(environment):
        if not name.startswith(keys.prefix) or name in keys.others:
            continue
        if name.startswith(keys.other_prefixes):
            continue
        if name in variables:
            names[variables[name]] = name
        else:
            known = [*variables, *sorted(keys.others)]
            mistakes.append(f"environment: {name} is not a setting. {meant(name, known)}")
    written = {key: environment[name] for key, name in names.items()}
    return _Source(
        written=written, where=lambda path: names[str(path[0])], folder=folder, home=home
    )


def _from_file(file: Path, home: Path, mistakes: list[str]) -> Iterator[_Source]:
    try:
        text = read_text(file, SETTINGS_FILE_BYTES_MAX)
        table = toml_lines.read(text)
    except Unreadable as unreadable:
        mistakes.append(f"{file}: {unreadable}. Give a TOML file in UTF-8 with --settings.")
        return
    except toml_lines.NotToml as error:
        place = f"{file}, line {error.line}" if error.line else str(file)
        mistakes.append(f"{place}: {error.words}.")
        return
    lines = toml_lines.TomlLines(text)

    def where(path: toml_lines.Path) -> str:
        return f"{file}, line {lines.line_of(*path)}"

    yield _Source(written=table, where=where, folder=file.parent, home=home, as_text=False)


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
