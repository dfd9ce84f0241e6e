"""`install` and `uninstall`: the files that make the agent a service of a machine, and its user.

Nothing is started, enabled or asked of a network. With a root other than / only files are written:
the user is made when that system boots, by systemd-sysusers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from forewarn_guest import atomic_files, config_file, polkit
from forewarn_guest.configuration import Configuration
from forewarn_guest.errors import GuestError
from forewarn_guest.terminal import say

USER = "forewarn-guest"
UNIT = Path("etc/systemd/system/forewarn-guest.service")
SYSUSERS = Path("etc/sysusers.d/forewarn-guest.conf")
POLKIT = Path("etc/polkit-1/rules.d/50-forewarn-guest.rules")
CONFIG = Path("etc/forewarn-guest/agent.toml")
DATA_FOLDER = Path("/var/lib/forewarn-guest")
TEMPLATES = Path(__file__).with_name("units")
# What a file must hold to be taken for one of ours; others are left alone.
MARK = "Written by forewarn-guest install"
COMMAND_LIMIT_S = 60


@dataclass(frozen=True)
class InstallOptions:
    """A file that is to be there. `keep` leaves one alone that is there already."""

    path: Path
    content: str
    keep: bool = False


def install(options: argparse.Namespace) -> int:
    """Write what is missing or different, and say so. Doing it again changes nothing."""
    root: Path = options.root
    if not root.is_dir():
        raise GuestError(f"{root} is no folder.", "Give the root of an image, or leave it out.")
    config_path: Path = options.config or Path("/") / CONFIG
    if not config_path.is_absolute():
        raise GuestError(f"{config_path} is no absolute path.", "The service needs one.")
    configuration = _configuration(root, config_path, named=options.config is not None)
    files = list(_wanted(config_path, configuration))
    for wanted in files:
        _check_ours(_in(root, wanted.path), keep=wanted.keep)
    for wanted in files:
        _put(root, wanted, dry=options.dry_run)
    if not polkit.units_of(configuration):
        _remove(root, POLKIT, dry=options.dry_run)
    if root == Path("/"):
        _make_user(dry=options.dry_run)
        _warn_of_closed_folders()
        say("To start it: systemctl daemon-reload && systemctl enable --now forewarn-guest")
    else:
        say(f"The user {USER} is made when that system boots.")
        say("To have it started then: systemctl --root=DIR enable forewarn-guest")
    return 0


def uninstall(options: argparse.Namespace) -> int:
    """Remove what `install` has written. The journal, your configuration and the user stay."""
    root: Path = options.root
    if root == Path("/") and _in(root, UNIT).exists() and Path("/run/systemd/system").is_dir():
        _call(["systemctl", "disable", "--now", UNIT.name], dry=options.dry_run)
    for path in (UNIT, SYSUSERS, POLKIT):
        _remove(root, path, dry=options.dry_run)
    example = _in(root, CONFIG)
    if example.is_file() and example.read_bytes() == _template("agent.toml").encode():
        _unlink(example, dry=options.dry_run)
        if not options.dry_run:
            with contextlib.suppress(OSError):  # something else is in it
                example.parent.rmdir()
    elif example.exists():
        say(f"left    {example}: it is yours")
    journal = _in(root, DATA_FOLDER)
    if journal.exists():
        say(f"left    {journal}: what the agent has done is kept there")
    if root == Path("/") and _user_exists():
        say(f"left    the user {USER}; `userdel {USER}` removes it")
    return 0


def _configuration(root: Path, path: Path, *, named: bool) -> Configuration:
    """What the service will be told; a file that is missing is refused only if it was named."""
    inside = _in(root, path)
    if inside.exists():
        # Programs of an image are looked for in the image, when its agent starts.
        if root == Path("/"):
            return config_file.read(inside)
        return config_file.parse(inside.read_text("utf-8"), str(inside), look=lambda name: name)
    if named:
        raise GuestError(f"There is no configuration at {inside}.", "Write one first.")
    return config_file.parse(_template("agent.toml"), str(path))


def _wanted(config_path: Path, configuration: Configuration) -> Iterator[InstallOptions]:
    if config_path == Path("/") / CONFIG:
        yield InstallOptions(CONFIG, _template("agent.toml"), keep=True)
    yield InstallOptions(SYSUSERS, _template("sysusers.conf"))
    yield InstallOptions(UNIT, unit_text(config_path, configuration))
    units = polkit.units_of(configuration)
    if units:
        yield InstallOptions(
            POLKIT, f"// {MARK}, for the units in {config_path}.\n" + polkit.rules(units)
        )


def unit_text(config_path: Path, configuration: Configuration) -> str:
    """The unit for this Python, this configuration and the folders that it writes to."""
    # -I: nothing of the environment or the working folder decides what is imported.
    command = [sys.executable, "-I", "-m", "forewarn_guest", "run", "--config", str(config_path)]
    files = (configuration.status_file, configuration.metrics_file)
    folders = {path.parent for path in files if path is not None} | {configuration.folder}
    usual = (DATA_FOLDER, Path("/run/forewarn-guest"))
    others = sorted(str(folder) for folder in folders if folder not in usual)
    writable = [f"ReadWritePaths=-{_quoted(folder)}" for folder in others]
    if others:
        writable.insert(0, "# Where the configuration keeps files; they must belong to the user.")
    text = _template("forewarn-guest.service")
    text = text.replace("@COMMAND@", " ".join(_quoted(word) for word in command))
    return text.replace("@WRITABLE@", "\n".join(writable))


def _quoted(word: str) -> str:
    """A word of a unit file. % and $ mean something there, and what is no plain word is quoted."""
    if any(not letter.isprintable() for letter in word):
        raise GuestError(f"{word!r} cannot stand in a unit.", "Use a path of printable characters.")
    word = word.replace("%", "%%").replace("$", "$$")
    if all(letter.isalnum() or letter in "/._-%$@:+," for letter in word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _template(name: str) -> str:
    return (TEMPLATES / name).read_text("utf-8")


def _in(root: Path, path: Path) -> Path:
    return root / path.relative_to("/") if path.is_absolute() else root / path


def _check_ours(path: Path, *, keep: bool) -> None:
    if keep or not path.exists():
        return
    if MARK not in path.read_text("utf-8", "replace"):
        raise GuestError(
            f"{path} is there and was not written by install.",
            f"Move it away; what you want to change belongs into a drop-in, {path}.d/own.conf.",
        )


def _put(root: Path, wanted: InstallOptions, *, dry: bool) -> None:
    path = _in(root, wanted.path)
    data = wanted.content.encode()
    if path.exists() and (wanted.keep or path.read_bytes() == data):
        say(f"there   {path}")
        return
    if dry:
        say(f"would write {path}")
        return
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        atomic_files.put(path, data)
    except OSError as error:
        raise GuestError(
            f"{path} cannot be written: {error.strerror}.", "Run it as root, or with --root."
        ) from None
    say(f"written {path}")


def _remove(root: Path, name: Path, *, dry: bool) -> None:
    path = _in(root, name)
    if not path.exists():
        return
    if MARK in path.read_text("utf-8", "replace"):
        _unlink(path, dry=dry)
    else:
        say(f"left    {path}: it was not written by install")


def _unlink(path: Path, *, dry: bool) -> None:
    if dry:
        say(f"would remove {path}")
        return
    try:
        path.unlink()
    except OSError as error:
        raise GuestError(
            f"{path} cannot be removed: {error.strerror}.", "Run it as root."
        ) from None
    say(f"removed {path}")


def _user_exists() -> bool:
    import pwd  # noqa: PLC0415 - not on every system

    try:
        pwd.getpwnam(USER)
    except KeyError:
        return False
    return True


def _make_user(*, dry: bool) -> None:
    if _user_exists():
        say(f"there   the user {USER}")
        return
    sysusers, useradd = shutil.which("systemd-sysusers"), _admin_program("useradd")
    if sysusers is not None:
        _call([sysusers, str(Path("/") / SYSUSERS)], dry=dry)
    elif useradd is not None:
        home = str(DATA_FOLDER)
        made = ["--system", "--user-group", "--home-dir", home, "--no-create-home"]
        _call([useradd, *made, "--shell", "/usr/sbin/nologin", USER], dry=dry)
    else:
        raise GuestError(f"Nothing here can make the user {USER}.", "Make it and run this again.")


def _warn_of_closed_folders() -> None:
    """Say if the service's user cannot reach this program, for example below a home folder."""
    for place in (Path(sys.executable), Path(__file__)):
        for folder in place.parents:
            if not folder.stat().st_mode & stat.S_IXOTH:
                say(f"warning: {USER} may not enter {folder}, so it cannot run {place}")
                break


def _admin_program(name: str) -> str | None:
    folders = (os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin")
    return shutil.which(name, path=os.pathsep.join(folders))


def _call(command: list[str], *, dry: bool) -> None:
    say(f"{'would run' if dry else 'running'} {' '.join(command)}")
    if dry:
        return
    try:
        subprocess.run(command, check=True, timeout=COMMAND_LIMIT_S)  # noqa: S603 - our own words
    except (OSError, subprocess.SubprocessError) as error:
        raise GuestError(f"{command[0]} failed: {error}.") from None
