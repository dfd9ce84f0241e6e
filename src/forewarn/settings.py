"""Everything an operator can set, as one frozen value: from a TOML file, the environment, options.

An option of the command line wins over `FOREWARN_` + the key in capitals, which wins over the
file, which wins over the default. A key nobody knows stops the start, and so does a value that
would not do what it says. Nothing here opens, listens or starts; the environment is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from forewarn.control import toml_lines
from forewarn.control.inventory_file import INVENTORY_BYTES_MAX
from forewarn.core.addresses import LISTEN_ACCEPTED, listen_text, read_listen
from forewarn.core.errors import BadInventory, Invalid
from forewarn.core.model import SECOND_MS, Policy
from forewarn.core.scheduling import EVENTS_PER_SCOPE_MAX, FREEZE_SECONDS_MAX
from forewarn.core.spelling import first_of, meant, shown
from forewarn.endpoint.routes import MetadataHeader
from forewarn.wire.instance import Place

PREFIX = "FOREWARN_"
# Ours, and read elsewhere: the command line's way to the service, and what tests are told.
OTHER_VARIABLES = frozenset(
    {"FOREWARN_URL", "FOREWARN_TOKEN", "FOREWARN_TEST_SEEDS", "FOREWARN_WRITE_GOLDEN"}
)
# The guest's: where its endpoint is, and what its steps are told. A step may call this program.
GUEST_VARIABLES = frozenset({"FOREWARN_ENDPOINT", "FOREWARN_VM", "FOREWARN_PART", "FOREWARN_STEP"})
GUEST_PREFIX = "FOREWARN_EVENT_"

# What a running service leaves in its data folder, so that the command line finds it.
OPERATOR_URL_FILE = "operator.url"
OPERATOR_TOKEN_FILE = "operator.token"  # noqa: S105 - a file name

SETTINGS_FILE_BYTES_MAX = 1_024 * 1_024

REQUESTS_PER_SECOND_MAX = 1_000_000
DOMAIN_RECOVERY_SECONDS_MAX = 86_400
# Below the deadlines of `core.notice`: a simulated impact that takes longer would fail as lost.
REBOOT_SECONDS_MAX = 1_500
REDEPLOY_SECONDS_MAX = 3_000
DELETE_SECONDS_MAX = 500

Enablement = Literal["first-poll", "always"]

# Where the emulator differs from `serve` unless it is told otherwise (design 5).
SIMULATE_DEFAULTS: Mapping[str, Any] = {
    "enablement": "always",
    "domain_recovery_seconds": 0,
    "guest_requests_per_second": 0,
}


class BadSettings(Exception):  # noqa: N818 - says what is the case
    """The service must not start with these settings. Each mistake says where, what, and what
    would be accepted."""

    def __init__(self, mistakes: Iterable[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(first_of(self.mistakes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one service, checked. docs/operations.md describes each."""

    data: Path
    inventory: Path | None = None
    guest: str = "127.0.0.1:8254"
    operator: str = "127.0.0.1:8255"
    guest_requests_per_second: int = 5
    enablement: Enablement = "first-poll"
    metadata_header: MetadataHeader = "as-documented"
    user_events_max: int = 100
    domain_recovery_seconds: int = 600
    freeze_seconds: int = 5
    reboot_seconds: int = 5
    redeploy_seconds: int = 5
    delete_seconds: int = 5
    location: str = "local"
    resource_group: str = "forewarn"
    subscription_id: str = "00000000-0000-0000-0000-000000000000"

    def policy(self) -> Policy:
        """What of the settings the rules depend on."""
        return Policy(
            freeze_s=self.freeze_seconds,
            reboot_s=self.reboot_seconds,
            redeploy_s=self.redeploy_seconds,
            delete_s=self.delete_seconds,
            domain_recovery_ms=self.domain_recovery_seconds * SECOND_MS,
            user_events_max=self.user_events_max,
            always_enabled=self.enablement == "always",
        )

    def place(self) -> Place:
        """Where `/metadata/instance` says that the fleet is."""
        return Place(
            location=self.location,
            resource_group=self.resource_group,
            subscription_id=self.subscription_id,
        )

    def inventory_text(self) -> str:
        """The inventory as it is written: the file, or the demo fleet. Raises BadInventory."""
        return demo_inventory() if self.inventory is None else read_inventory(self.inventory)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """A value somebody gave for a key. Words from the environment and options are text only."""

    where: str
    value: object
    as_text: bool
    folder: Path  # what a relative path is relative to
    home: Path


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a key takes, in words and as a function that raises ValueError for anything else."""

    accepted: str
    read: Callable[[_Given], object]


def _number(low: int, high: int, note: str = "") -> _Kind:
    def read(given: _Given) -> int:
        value = given.value
        if given.as_text and isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            raise ValueError
        return value

    return _Kind(f"a whole number from {low} to {high}{note}", read)


def _choice(*values: str) -> _Kind:
    def read(given: _Given) -> object:
        if given.value not in values:
            raise ValueError
        return given.value

    return _Kind(" or ".join(f'"{value}"' for value in values), read)


def _pattern(accepted: str, pattern: str) -> _Kind:
    def read(given: _Given) -> str:
        if not isinstance(given.value, str) or not re.fullmatch(pattern, given.value):
            raise ValueError
        return given.value

    return _Kind(accepted, read)


def _read_listen(given: _Given) -> str:
    if not isinstance(given.value, str):
        raise ValueError  # noqa: TRY004 - the caller turns it into words
    try:
        return listen_text(*read_listen(given.value))
    except Invalid:
        raise ValueError from None


def _read_path(given: _Given) -> Path:
    if not isinstance(given.value, str) or not given.value or "\0" in given.value:
        raise ValueError
    if given.value == "~" or given.value.startswith("~/"):
        return given.home / given.value[2:]
    return given.folder / given.value


_NAME = r"[A-Za-z0-9][A-Za-z0-9_.()-]{0,89}"
_NAME_ACCEPTED = "1 to 90 letters, digits and `_ . ( ) -`, beginning with a letter or digit"
_GUID = r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"

_KINDS: dict[str, _Kind] = {
    "data": _Kind("the path of a folder", _read_path),
    "inventory": _Kind("the path of a TOML file", _read_path),
    "guest": _Kind(LISTEN_ACCEPTED, _read_listen),
    "operator": _Kind(LISTEN_ACCEPTED, _read_listen),
    "guest_requests_per_second": _number(0, REQUESTS_PER_SECOND_MAX, " (0 = no limit)"),
    "enablement": _choice(*get_args(Enablement)),
    "metadata_header": _choice(*get_args(MetadataHeader)),
    "user_events_max": _number(1, EVENTS_PER_SCOPE_MAX),
    "domain_recovery_seconds": _number(0, DOMAIN_RECOVERY_SECONDS_MAX, " (0 = do not wait)"),
    "freeze_seconds": _number(0, FREEZE_SECONDS_MAX),
    "reboot_seconds": _number(0, REBOOT_SECONDS_MAX),
    "redeploy_seconds": _number(0, REDEPLOY_SECONDS_MAX),
    "delete_seconds": _number(0, DELETE_SECONDS_MAX),
    "location": _pattern(_NAME_ACCEPTED, _NAME),
    "resource_group": _pattern(_NAME_ACCEPTED, _NAME),
    "subscription_id": _pattern("a GUID, like 00000000-0000-0000-0000-000000000000", _GUID),
}


def setting_names() -> tuple[str, ...]:
    """Every key, in the order of the documentation."""
    return tuple(field.name for field in fields(Settings))


def load(
    *,
    file: Path | None,
    environment: Mapping[str, str],
    options: Mapping[str, str | None] | None = None,
    folder: Path | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings in force. Raises BadSettings with every mistake that was found.

    `options` are what the command line was given, by key; None means not given. Relative paths
    in the file are relative to the file, all others to `folder` (the current one by default).
    `defaults` replace those of Settings; they are not checked.
    """
    mistakes: list[str] = []
    home = Path(environment.get("HOME") or Path.home())
    here = folder or Path.cwd()
    given: dict[str, _Given] = {}
    if file is not None:
        given.update(_from_file(here / file, home, mistakes))
    given.update(_from_environment(environment, here, home, mistakes))
    for key, value in (options or {}).items():
        if value is not None:
            where = f"--{key.replace('_', '-')}"
            given[key] = _Given(where=where, value=value, as_text=True, folder=here, home=home)
    values: dict[str, Any] = {"data": _default_data(environment, home), **(defaults or {})}
    for key, one in given.items():
        try:
            values[key] = _KINDS[key].read(one)
        except ValueError:
            mistakes.append(_refused(key, one))
    if not mistakes:
        settings = Settings(**values)
        mistakes.extend(_clashes(settings))
        if not mistakes:
            return settings
    raise BadSettings(mistakes)


def _refused(key: str, given: _Given) -> str:
    accepted = _KINDS[key].accepted
    quoted = not given.as_text and isinstance(given.value, str)
    if quoted and "whole number" in accepted:
        accepted += ", without quotes"
    return f"{given.where}: {key} = {shown(given.value)} is refused. Accepted: {accepted}."


def _clashes(settings: Settings) -> Iterable[str]:
    if settings.guest == settings.operator and not settings.guest.endswith(":0"):
        yield (
            f"guest and operator are both {settings.guest}. "
            "Give each an address or port of its own."
        )


def emulator_folder(environment: Mapping[str, str]) -> Path:
    """Where an emulator leaves its URL and token unless it is told otherwise."""
    home = Path(environment.get("HOME") or Path.home())
    return _default_data(environment, home).with_name("forewarn-simulate")


def default_folder(environment: Mapping[str, str]) -> Path:
    """The data folder of a service that is told nothing else."""
    return _default_data(environment, Path(environment.get("HOME") or Path.home()))


def _default_data(environment: Mapping[str, str], home: Path) -> Path:
    base = Path(environment.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():  # the specification of that variable says to ignore such a value
        base = home / ".local" / "state"
    return base / "forewarn"


def _from_environment(
    environment: Mapping[str, str], folder: Path, home: Path, mistakes: list[str]
) -> Iterable[tuple[str, _Given]]:
    variables = {f"{PREFIX}{key.upper()}": key for key in _KINDS}
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in OTHER_VARIABLES | GUEST_VARIABLES:
            continue
        if name.startswith(GUEST_PREFIX):
            continue
        key = variables.get(name)
        if key is None:
            mistakes.append(
                f"environment: {name} is no setting. "
                + meant(name, [*variables, *sorted(OTHER_VARIABLES)])
            )
            continue
        value = environment[name]
        yield key, _Given(where=name, value=value, as_text=True, folder=folder, home=home)


def _from_file(file: Path, home: Path, mistakes: list[str]) -> Iterable[tuple[str, _Given]]:
    try:
        text = _read_text(file, SETTINGS_FILE_BYTES_MAX)
        table = toml_lines.read(text)
    except _Unreadable as unreadable:
        mistakes.append(f"{file}: {unreadable}. Give a TOML file in UTF-8 with --settings.")
        return
    except toml_lines.NotToml as error:
        where = f"{file}, line {error.line}" if error.line else str(file)
        mistakes.append(f"{where}: {error.words}.")
        return
    lines = toml_lines.TomlLines(text)
    for key, value in table.items():
        where = f"{file}, line {lines.line_of(key)}"
        if key not in _KINDS:
            mistakes.append(f"{where}: there is no setting {shown(key)}. {meant(key, _KINDS)}")
            continue
        yield (
            key,
            _Given(where=where, value=value, as_text=False, folder=file.parent, home=home),
        )


class _Unreadable(Exception):  # noqa: N818 - never leaves this module
    """Why a file could not be read, in words."""


def _read_text(file: Path, bytes_max: int) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(bytes_max + 1)
    except OSError as error:
        raise _Unreadable(f"cannot be read: {error.strerror or error}") from error
    if len(content) > bytes_max:
        raise _Unreadable(f"is larger than {bytes_max} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _Unreadable(f"line {line} is not UTF-8") from error


def read_inventory(file: Path) -> str:
    """The text of an inventory file. Raises BadInventory if it cannot be read."""
    try:
        return _read_text(file, INVENTORY_BYTES_MAX)
    except _Unreadable as unreadable:
        raise BadInventory(
            f"The inventory {file} {unreadable}.", "Give the path of a TOML file in UTF-8."
        ) from None


def demo_inventory() -> str:
    """The inventory of the demo fleet, which comes with the program."""
    return resources.files("forewarn").joinpath("demo.toml").read_text(encoding="utf-8")
