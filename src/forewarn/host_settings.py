"""Everything that can be set for a host daemon, as one frozen value.

From a TOML file, the environment (`FOREWARN_HOST_` + the key in capitals) and options, read as
`settings_loader` says: an option wins over the environment, which wins over the file. In the
environment and in options the names of `bridges` and `guest_names` are divided by commas, and
`reboot_command` is taken apart as a shell would. The other variables of this program are left
alone.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import fields

from forewarn import settings_loader
from forewarn.core.addresses import LISTEN_ACCEPTED, listen_text, read_listen
from forewarn.core.suggestions import shown
from forewarn.endpoint.routes import MetadataHeader
from forewarn.folders import kept_folder
from forewarn.settings_loader import (
    FILE,
    FOLDER,
    OF_GUESTS,
    BadSettings,
    Keys,
    ServesGuests,
    split_names,
)
from forewarn.text.attributes import NAME
from forewarn.text.fields import choice, number, pattern, ruled, several

__all__ = ["BadSettings", "HostSettings", "load"]

PREFIX = "FOREWARN_HOST_"

# Below the deadlines of `core.notice`: a guest that ignores the button must be reset in time.
SHUTDOWN_SECONDS_MAX = 600
BRIDGES_MAX = 256
COMMAND_WORDS_MAX = 64

Listen = Literal["bridge", "tap", "none"]


class HostSettings(Struct, ServesGuests, frozen=True, kw_only=True):
    """The settings of one host daemon, checked. docs/host/reference.md describes each.

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


def _control(text: str) -> str:
    """`https://HOST:PORT` in one spelling. Raises ValueError."""
    parts = urlsplit(text)
    plain = not parts.username and not parts.query and not parts.fragment and text.isprintable()
    if parts.scheme != "https" or not parts.hostname or parts.path not in ("", "/") or not plain:
        raise ValueError
    name = parts.hostname.encode("idna").decode()
    host = f"[{name}]" if ":" in name else name
    return f"https://{host}" if parts.port is None else f"https://{host}:{parts.port}"


def _metrics(text: str) -> str:
    return listen_text(*read_listen(text)) if text else ""


def _migrate_uri(text: str) -> str:
    try:
        text.format(host="h1")
    except (KeyError, IndexError, AttributeError):
        raise ValueError from None
    if "://" not in text:
        raise ValueError
    return text


_INTERFACE = r"[^\s/:%]{1,15}"  # what Linux takes for the name of an interface

_KEYS = Keys(
    fields={
        "data": FOLDER,
        "name": NAME,
        "control": ruled("the URL that `forewarn control` prints, like https://ctl:8256", _control),
        "libvirt": pattern("the URI of a libvirt, like qemu:///system", r"[\x21-\x7e]{1,1024}"),
        "migrate_uri": ruled(
            "the URI of the libvirt of another host, with {host} for its name,"
            " like qemu+ssh://{host}/system",
            _migrate_uri,
        ),
        "shutdown_seconds": number(0, SHUTDOWN_SECONDS_MAX),
        "reboot_command": several(
            'a program and its arguments, like ["systemctl", "reboot"]',
            pattern("a word", r"[^\0]+"),
            limit=COMMAND_WORDS_MAX,
            split=shlex.split,
        ),
        "boot_id_file": FILE,
        "listen": choice(get_args(Listen)),
        "bridges": several(
            'names of bridges, like ["br0", "br1"]',
            pattern("the name of a bridge", _INTERFACE),
            limit=BRIDGES_MAX,
            split=split_names,
        ),
        "metrics": ruled(f'{LISTEN_ACCEPTED}; or "" for none', _metrics),
        **OF_GUESTS,
    },
    prefix=PREFIX,
)


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
    return settings_loader.load(
        _KEYS,
        HostSettings,
        _clashes,
        file=file,
        environment=environment,
        options=options,
        folder=folder,
        defaults={"data": default_folder(environment)},
    )


def _clashes(settings: HostSettings) -> Iterable[str]:
    if settings.bridges and settings.listen != "bridge":
        yield (
            f"bridges = {shown(list(settings.bridges))} has no meaning with"
            f' listen = "{settings.listen}". Leave it out, or listen on bridges.'
        )
