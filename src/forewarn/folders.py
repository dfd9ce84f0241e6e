"""Where programs keep what they must find again, and how the command line finds a service there.

Only paths: nothing is opened or created, and the environment is an argument. The command line
imports this for every command, so that it imports next to nothing itself; what the other settings
are, and what is wrong with them, is in `settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from forewarn.environment import DATA, SOCKET, is_another_setting

# What a running service leaves in its data folder, so that the command line finds it.
OPERATOR_URL_FILE = "operator.url"
OPERATOR_TOKEN_FILE = "operator.token"  # noqa: S105 - a file name
OPERATOR_SOCKET = Path("run") / "operator.sock"
# Where the unit of `forewarn control` has its socket, for operators who may not see its data.
SYSTEM_SOCKET = Path("/run/forewarn/operator.sock")


class ServiceFolder(Struct, frozen=True, kw_only=True):
    """The data folder of one service, and its operator's socket if that was put elsewhere."""

    data: Path
    socket: Path | None = None

    @property
    def usual_socket(self) -> Path:
        """Where the command line looks that is told the data folder."""
        return self.data / OPERATOR_SOCKET

    @property
    def operator_socket(self) -> Path:
        """Where the operator's socket really is."""
        return self.usual_socket if self.socket is None else self.socket


def told_plainly(data: Path | None, environment: Mapping[str, str]) -> ServiceFolder | None:
    """The folder that the option and the environment mean; None if `settings` must be asked: a
    variable with another setting is there, which may be wrong, or a path that is empty.
    """
    if any(map(is_another_setting, environment)):
        return None
    named = environment.get(DATA) if data is None else str(data)
    socket = environment.get(SOCKET)
    if any(text is not None and (not text or "\0" in text) for text in (named, socket)):
        return None
    here, home = Path.cwd(), home_of(environment)
    return ServiceFolder(
        data=default_folder(environment) if named is None else placed(named, here, home),
        socket=None if socket is None else placed(socket, here, home),
    )


def placed(text: str, folder: Path, home: Path) -> Path:
    """A path where its writer means it: below the home folder, absolute, or below `folder`."""
    if text == "~" or text.startswith("~/"):
        return home / text[2:]
    return folder / text


def home_of(environment: Mapping[str, str]) -> Path:
    """The home folder of the user who started the program."""
    return Path(environment.get("HOME") or Path.home())


def kept_folder(environment: Mapping[str, str], name: str) -> Path:
    """Where a program that is told nothing else keeps what it must find again."""
    base = Path(environment.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():  # the specification of that variable says to ignore such a value
        base = home_of(environment) / ".local" / "state"
    return base / name


def emulator_folder(environment: Mapping[str, str]) -> Path:
    """Where an emulator leaves its URL and token unless it is told otherwise."""
    return kept_folder(environment, "forewarn-simulate")


def default_folder(environment: Mapping[str, str]) -> Path:
    """The data folder of a service that is told nothing else."""
    return kept_folder(environment, "forewarn")


def usual_sockets(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Where a service or an emulator has its socket that was told nothing else."""
    folders = (default_folder(environment), emulator_folder(environment))
    return (*(folder / OPERATOR_SOCKET for folder in folders), SYSTEM_SOCKET)
