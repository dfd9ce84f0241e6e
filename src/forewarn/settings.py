"""Everything an operator can set, as one frozen value: from a TOML file, the environment, options.

An option of the command line wins over `FOREWARN_` + the key in capitals, which wins over the
file, which wins over the default. An unknown key stops the start, and so does a value that would
not do what it says. Nothing here opens, listens or starts; the environment is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import fields

from forewarn import settings_loader
from forewarn.control.inventory.file_reader import INVENTORY_BYTES_MAX
from forewarn.core.access import SOCKET_GROUP_ACCEPTED, SocketGroup, socket_group
from forewarn.core.addresses import is_loopback, read_listen
from forewarn.core.errors import BadInventory
from forewarn.core.model import SECOND_MS, Policy
from forewarn.core.principal import (
    OPERATOR,
    OPERATOR_NAME_ACCEPTED,
    Principal,
    operator_named,
)
from forewarn.core.retention import RETENTION_DAYS
from forewarn.core.scheduling import (
    EVENTS_PER_SCOPE_MAX,
    FREEZE_SECONDS_MAX,
    POSTPONEMENTS_MAX,
)
from forewarn.endpoint.routes import MetadataHeader
from forewarn.environment import (
    GUEST_PREFIX,
    GUEST_VARIABLES,
    HOST_PREFIX,
    OTHER_VARIABLES,
    PREFIX,
)
from forewarn.folders import (
    OPERATOR_TOKEN_FILE,
    OPERATOR_URL_FILE,
    ServiceFolder,
    default_folder,
    emulator_folder,
)
from forewarn.settings_loader import (
    FILE,
    FOLDER,
    HOST_NAMES,
    OF_GUESTS,
    SETTINGS_FILE_BYTES_MAX,
    SOCKET,
    TOML_FILE,
    BadSettings,
    Keys,
    ServesGuests,
    Unreadable,
    read_text,
    split_names,
)
from forewarn.text.fields import LISTEN, SWITCH, Field, choice, number, pattern, ruled, several
from forewarn.text.packaged import packaged_text

if TYPE_CHECKING:
    from forewarn.core.oidc_claims import IssuerRules

__all__ = [
    "SETTINGS_FILE_BYTES_MAX",
    "BadSettings",
    "Settings",
    "load",
    # Of `folders`, for those who need settings as well.
    "OPERATOR_TOKEN_FILE",
    "OPERATOR_URL_FILE",
    "emulator_folder",
]

DOMAIN_RECOVERY_SECONDS_MAX = 86_400
# Below the deadlines of `core.notice`: a simulated impact that takes longer would fail as lost.
REBOOT_SECONDS_MAX = 1_500
REDEPLOY_SECONDS_MAX = 3_000
DELETE_SECONDS_MAX = 500
RETENTION_DAYS_MAX = 36_500
POSTPONE_SECONDS_MAX = 90 * 86_400
SOCKET_GROUPS_MAX = 64
WEBHOOK_TARGETS_MAX = 256
WEBHOOK_TARGET_ACCEPTED = (
    "a host name, an address or a network, like hooks.example.com, 192.0.2.7 or 10.20.0.0/16"
)

Enablement = Literal["first-poll", "always"]
OperatorTls = Literal["off", "own"]

# Where the emulator differs from `serve` unless it is told otherwise.
SIMULATE_DEFAULTS: Mapping[str, Any] = {
    "enablement": "always",
    "domain_recovery_seconds": 0,
    "guest_requests_per_second": 0,
    # What receives webhooks in a test is on this machine.
    "webhook_targets": ("localhost", "127.0.0.0/8", "::1/128"),
    # What a container calls the machine it runs on.
    "guest_names": ("host.docker.internal", "host.containers.internal"),
}


# Where `control` differs from `serve`: what it does is looked for in the log of the machine.
CONTROL_DEFAULTS: Mapping[str, Any] = {"log_journal": True}


class Settings(Struct, ServesGuests, frozen=True, kw_only=True):
    """The settings of one service, checked. docs/settings.md describes each."""

    data: Path
    inventory: Path | None = None
    guest: str = "127.0.0.1:8254"
    operator: str = "127.0.0.1:8255"
    operator_name: str = OPERATOR.name
    operator_url: str = ""
    operator_tls: OperatorTls = "off"
    operator_certificate: Path | None = None
    operator_key: Path | None = None
    oidc: tuple[Any, ...] = ()  # see `issuers`
    behind_proxy: bool = False
    console_names: tuple[str, ...] = ()
    socket: Path | None = None
    socket_groups: tuple[SocketGroup, ...] = ()
    webhook_targets: tuple[str, ...] = ()
    hosts: str = "0.0.0.0:8256"
    hosts_url: str = ""
    guest_requests_per_second: int = 5
    enablement: Enablement = "first-poll"
    metadata_header: MetadataHeader = "as-documented"
    guest_names: tuple[str, ...] = ()
    user_events_max: int = 100
    postponements_max: int = 3
    postpone_seconds_max: int = 86_400
    retention_days: int = RETENTION_DAYS
    log_journal: bool = False
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
            postponements_max=self.postponements_max,
            postpone_ms_max=self.postpone_seconds_max * SECOND_MS,
            always_enabled=self.enablement == "always",
        )

    def by(self) -> Principal:
        """Who orders what is ordered with the operator token."""
        return operator_named(self.operator_name)

    @property
    def operator_has_tls(self) -> bool:
        """Whether the operator API speaks TLS."""
        return self.operator_tls == "own" or self.operator_certificate is not None

    @property
    def issuers(self) -> tuple[IssuerRules, ...]:
        """Whose tokens let people and programs in."""
        return self.oidc

    def folder(self) -> ServiceFolder:
        """Where it keeps its data, and where its operators find it."""
        return ServiceFolder(data=self.data, socket=self.socket)

    @property
    def operator_socket(self) -> Path:
        """Where the operator's socket really is."""
        return self.folder().operator_socket

    def inventory_text(self) -> str:
        """The inventory as it is written: the file, or the demo fleet. Raises BadInventory."""
        return demo_inventory() if self.inventory is None else read_inventory(self.inventory)


def _read_issuers(value: object) -> tuple[IssuerRules, ...]:
    # Few services have any, and every module costs the start of the emulator.
    from forewarn.text.issuers import read_issuers  # noqa: PLC0415 - see above

    return read_issuers(value) if value else ()


def _read_target(text: str) -> str:
    # As above; an emulator lists what it always does.
    from forewarn.core.webhook_targets import read_target  # noqa: PLC0415 - see above

    return read_target(text)


_ISSUERS = Field(
    "a list of tables in the settings file. Write each as [[oidc]]", _read_issuers, list
)
_HTTPS = r"|https://([A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?/?"

_KEYS = Keys(
    fields={
        "data": FOLDER,
        "inventory": TOML_FILE,
        "guest": LISTEN,
        "operator": LISTEN,
        "operator_name": ruled(OPERATOR_NAME_ACCEPTED, lambda name: operator_named(name).name),
        "operator_url": pattern(
            "https://NAME:PORT as operators reach this service, like https://ctl.example:8255",
            _HTTPS,
        ),
        "operator_tls": choice(get_args(OperatorTls)),
        "operator_certificate": FILE,
        "operator_key": FILE,
        "oidc": _ISSUERS,
        "behind_proxy": SWITCH,
        "console_names": HOST_NAMES,
        "socket": SOCKET,
        "socket_groups": several(
            f"at most {SOCKET_GROUPS_MAX} texts GROUP=ROLE; {SOCKET_GROUP_ACCEPTED}",
            ruled(SOCKET_GROUP_ACCEPTED, socket_group),
            limit=SOCKET_GROUPS_MAX,
            split=split_names,
        ),
        "webhook_targets": several(
            f"at most {WEBHOOK_TARGETS_MAX} texts, each {WEBHOOK_TARGET_ACCEPTED}",
            ruled(WEBHOOK_TARGET_ACCEPTED, _read_target),
            limit=WEBHOOK_TARGETS_MAX,
            split=split_names,
        ),
        "hosts": LISTEN,
        "hosts_url": pattern(
            "https://NAME:PORT as hosts reach control, like https://ctl.example:8256", _HTTPS
        ),
        "enablement": choice(get_args(Enablement)),
        "user_events_max": number(1, EVENTS_PER_SCOPE_MAX),
        "postponements_max": number(0, POSTPONEMENTS_MAX, " (0 = owners may not postpone)"),
        "postpone_seconds_max": number(0, POSTPONE_SECONDS_MAX, " (0 = owners may not postpone)"),
        "retention_days": number(0, RETENTION_DAYS_MAX, " (0 = keep everything)"),
        "log_journal": SWITCH,
        "domain_recovery_seconds": number(0, DOMAIN_RECOVERY_SECONDS_MAX, " (0 = do not wait)"),
        "freeze_seconds": number(0, FREEZE_SECONDS_MAX),
        "reboot_seconds": number(0, REBOOT_SECONDS_MAX),
        "redeploy_seconds": number(0, REDEPLOY_SECONDS_MAX),
        "delete_seconds": number(0, DELETE_SECONDS_MAX),
        **OF_GUESTS,
    },
    prefix=PREFIX,
    others=OTHER_VARIABLES | GUEST_VARIABLES,
    other_prefixes=(GUEST_PREFIX, HOST_PREFIX),
)


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

    The arguments are those of `settings_loader.load`; `defaults` replace those of Settings.
    """
    return settings_loader.load(
        _KEYS,
        Settings,
        _clashes,
        file=file,
        environment=environment,
        options=options,
        folder=folder,
        defaults={"data": default_folder(environment), **(defaults or {})},
    )


def _clashes(settings: Settings) -> Iterable[str]:
    for one, other in (("guest", "operator"), ("guest", "hosts"), ("operator", "hosts")):
        where = getattr(settings, one)
        if where == getattr(settings, other) and not where.endswith(":0"):
            yield f"{one} and {other} are both {where}. Give each an address or port of its own."
    files = (settings.operator_certificate, settings.operator_key)
    if (files[0] is None) != (files[1] is None):
        yield (
            "operator_certificate and operator_key belong together, and only one is there."
            " Give both; one file may hold both."
        )
    elif files[0] is not None and settings.operator_tls == "own":
        yield (
            'operator_tls = "own" makes a certificate, and operator_certificate names one.'
            " Leave out one of the two."
        )


def need_shelter(settings: Settings) -> None:
    """Raise BadSettings if the operator API would send its token over a network in the clear."""
    if settings.operator_has_tls or settings.behind_proxy:
        return
    if is_loopback(read_listen(settings.operator)[0]):
        return
    refused = (
        f"operator = {settings.operator} is refused: the operator API is plain HTTP, and its token"
        " would cross the network in the clear. Accepted: a loopback address, like 127.0.0.1:8255;"
        ' any with TLS (operator_certificate and operator_key, or operator_tls = "own"); or any'
        " with --behind-proxy (behind_proxy = true), where a proxy with TLS stands in front"
        " and no other program reaches this port."
    )
    raise BadSettings([refused])


def need_given_token(settings: Settings, token: str | None) -> None:
    """Raise BadSettings if an emulator would listen beyond this machine with a token of its own."""
    if token or is_loopback(read_listen(settings.operator)[0]):
        return
    refused = (
        f"operator = {settings.operator} is refused without a token: who comes from another machine"
        " needs one that you chose. Set FOREWARN_TOKEN to a secret of 20 characters or more, here"
        " and there; or listen on 127.0.0.1."
    )
    raise BadSettings([refused])


def read_inventory(file: Path) -> str:
    """The text of an inventory file. Raises BadInventory if it cannot be read."""
    try:
        return read_text(file, INVENTORY_BYTES_MAX)
    except Unreadable as unreadable:
        raise BadInventory(
            f"The inventory {file} {unreadable}.", "Give the path of a TOML file in UTF-8."
        ) from None


def demo_inventory() -> str:
    """The inventory of the demo fleet, which comes with the program."""
    return packaged_text("forewarn", "demo.toml")
