"""Everything that can be set for a host daemon, as one frozen value.

From a TOML file, the environment (`FOREWARN_HOST_` + the key in capitals) and options, read as
`setting_values` says: an option wins over the environment, which wins over the file. In the
environment and in options the names of `bridges` and `guest_names` are divided by commas, and
`reboot_command` is taken apart as a shell would. The other variables of this program are left
alone.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from forewarn import setting_values
from forewarn.core.addresses import LISTEN_ACCEPTED, listen_text, read_listen
from forewarn.core.errors import Invalid
from forewarn.core.spelling import shown
from forewarn.endpoint.browsers import known_names
from forewarn.endpoint.routes import MetadataHeader, RequestRules
from forewarn.setting_values import (
    FILE,
    FOLDER,
    GUEST_NAMES,
    BadSettings,
    Given,
    Keys,
    Kind,
    choice,
    kept_folder,
    number,
    pattern,
    split_names,
    words,
)
from forewarn.wire.instance import Place

__all__ = ["BadSettings", "HostSettings", "load"]

PREFIX = "FOREWARN_HOST_"

REQUESTS_PER_SECOND_MAX = 1_000_000
# Below the deadlines of `core.notice`: a guest that ignores the button must be reset in time.
SHUTDOWN_SECONDS_MAX = 600
BRIDGES_MAX = 256
COMMAND_WORDS_MAX = 64

Listen = Literal["bridge", "tap", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """The settings of one host daemon, checked. docs/host.md describes each.

    An empty `name` is the one in the certificate of the data folder, an empty `control` the one
    that the host has joined.
    """

    data: Path
    name: str = ""
    control: str = ""
    libvirt: str = "qemu:///system"
    migrate_uri: str = "qemu+ssh://{host}/system"
    shutdown_seconds: int = 60
    reboot_command: tuple[str, ...] = ()
    boot_id_file: Path = Path("/proc/sys/kernel/random/boot_id")
    listen: Listen = "bridge"
    bridges: tuple[str, ...] = ()
    metrics: str = "127.0.0.1:8257"
    guest_requests_per_second: int = 5
    metadata_header: MetadataHeader = "as-documented"
    guest_names: tuple[str, ...] = ()
    location: str = "local"
    resource_group: str = "forewarn"
    subscription_id: str = "00000000-0000-0000-0000-000000000000"

    def place(self) -> Place:
        """Where `/metadata/instance` says that the VMs of this host are."""
        return Place(
            location=self.location,
            resource_group=self.resource_group,
            subscription_id=self.subscription_id,
        )

    def rules(self) -> RequestRules:
        """What the endpoint asks of requests."""
        return RequestRules(
            metadata_header=self.metadata_header, guest_names=known_names(self.guest_names)
        )


def _read_control(given: Given) -> str:
    """`https://HOST:PORT` in one spelling."""
    if not isinstance(given.value, str) or not given.value.isprintable():
        raise ValueError
    parts = urlsplit(given.value)
    plain = not parts.username and not parts.query and not parts.fragment
    if parts.scheme != "https" or not parts.hostname or parts.path not in ("", "/") or not plain:
        raise ValueError
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"https://{host}" if parts.port is None else f"https://{host}:{parts.port}"


def _read_metrics(given: Given) -> str:
    if given.value == "":
        return ""
    try:
        return listen_text(*read_listen(str(given.value)))
    except Invalid:
        raise ValueError from None


def _read_migrate_uri(given: Given) -> str:
    if not isinstance(given.value, str) or "://" not in given.value:
        raise ValueError
    try:
        given.value.format(host="h1")
    except (KeyError, IndexError, AttributeError):
        raise ValueError from None
    return given.value


_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
_NAME_ACCEPTED = "1 to 64 letters, digits and `_ . -`, beginning with a letter or digit"
_PLACE = r"[A-Za-z0-9][A-Za-z0-9_.()-]{0,89}"
_PLACE_ACCEPTED = "1 to 90 letters, digits and `_ . ( ) -`, beginning with a letter or digit"
_GUID = r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_INTERFACE = r"[^\s/:%]{1,15}"  # what Linux takes for the name of an interface

_KINDS: dict[str, Kind] = {
    "data": FOLDER,
    "name": pattern(_NAME_ACCEPTED, _NAME),
    "control": Kind("the URL that `forewarn control` prints, like https://ctl:8256", _read_control),
    "libvirt": pattern("the URI of a libvirt, like qemu:///system", r"[\x21-\x7e]{1,1024}"),
    "migrate_uri": Kind(
        "the URI of the libvirt of another host, with {host} for its name,"
        " like qemu+ssh://{host}/system",
        _read_migrate_uri,
    ),
    "shutdown_seconds": number(0, SHUTDOWN_SECONDS_MAX),
    "reboot_command": words(
        'a program and its arguments, like ["systemctl", "reboot"]',
        r"[^\0]+",
        limit=COMMAND_WORDS_MAX,
        split=shlex.split,
    ),
    "boot_id_file": FILE,
    "listen": choice(*get_args(Listen)),
    "bridges": words(
        'names of bridges, like ["br0", "br1"]', _INTERFACE, limit=BRIDGES_MAX, split=split_names
    ),
    "metrics": Kind(f'{LISTEN_ACCEPTED}; or "" for none', _read_metrics),
    "guest_requests_per_second": number(0, REQUESTS_PER_SECOND_MAX, " (0 = no limit)"),
    "metadata_header": choice(*get_args(MetadataHeader)),
    "guest_names": GUEST_NAMES,
    "location": pattern(_PLACE_ACCEPTED, _PLACE),
    "resource_group": pattern(_PLACE_ACCEPTED, _PLACE),
    "subscription_id": pattern("a GUID, like 00000000-0000-0000-0000-000000000000", _GUID),
}

_KEYS = Keys(kinds=_KINDS, prefix=PREFIX)


def setting_names() -> tuple[str, ...]:
    """Every key, in the order of the documentation."""
    return tuple(field.name for field in fields(HostSettings))


def default_folder(environment: Mapping[str, str]) -> Path:
    """The data folder of a host daemon that is told nothing else."""
    return kept_folder(environment, "forewarn-host")


def joined_before(environment: Mapping[str, str]) -> bool:
    """True if the default data folder is that of a host that has joined."""
    return (default_folder(environment) / "host.pem").exists()


def load(
    *,
    file: Path | None,
    environment: Mapping[str, str],
    options: Mapping[str, str | None] | None = None,
    folder: Path | None = None,
) -> HostSettings:
    """The settings in force. Raises BadSettings with every mistake that was found."""
    given, mistakes = setting_values.read(
        _KEYS, file=file, environment=environment, options=options, folder=folder
    )
    values: dict[str, Any] = {"data": default_folder(environment), **given}
    if not mistakes:
        settings = HostSettings(**values)
        mistakes.extend(_clashes(settings))
        if not mistakes:
            return settings
    raise BadSettings(mistakes)


def _clashes(settings: HostSettings) -> Iterable[str]:
    if settings.bridges and settings.listen != "bridge":
        yield (
            f"bridges = {shown(list(settings.bridges))} has no meaning with"
            f' listen = "{settings.listen}". Leave it out, or listen on bridges.'
        )
