"""As root the agent goes by nothing that others may write: neither configuration nor journal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forewarn_guest import config_file
from forewarn_guest.errors import ConfigError, JournalError
from forewarn_guest.journal import Journal
from forewarn_guest.shared_folders import others_may_write

ME = os.geteuid()
NOBODY = 65_534
CONFIG = "[[rule]]\nignore = true\n"
needs_root = pytest.mark.skipif(ME != 0, reason="only root is refused what others may write")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir(mode=0o755)
    made.chmod(0o755)
    return made


def shared(folder: Path, mode: int, gid: int = NOBODY) -> None:
    if ME == 0:
        os.chown(folder, 0, gid)
    folder.chmod(mode)


def test_what_is_its_owners_alone_may_be_written_by_nobody_else(folder: Path) -> None:
    assert others_may_write(folder, ME) == ""
    file = folder / "agent.toml"
    file.touch(0o644)
    assert others_may_write(file, ME) == ""


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        (0o757, "every user may write to {0}; chmod o-w {0} helps"),
        (0o1777, "others may put files into {0}; a folder of its own helps"),
    ],
)
def test_a_folder_that_everybody_may_write_is_named_with_the_remedy(
    folder: Path, mode: int, says: str
) -> None:
    folder.chmod(mode)
    assert others_may_write(folder, ME) == says.format(folder)


def test_a_folder_above_is_looked_at_too_and_may_be_sticky(folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir(mode=0o700)
    folder.chmod(0o777)
    assert f"chmod o-w {folder}" in others_may_write(inner, ME)
    folder.chmod(0o1777)
    assert others_may_write(inner, ME) == ""


@pytest.mark.parametrize("relative", [False, True])
def test_every_folder_of_a_chain_of_links_is_looked_at(tmp_path: Path, *, relative: bool) -> None:
    """Who may replace a link in the middle chooses what is at its end."""
    folders = [tmp_path / name for name in ("first", "second", "third", "last")]
    for made in folders:
        made.mkdir()
        made.chmod(0o755)
    (folders[-1] / "agent.toml").touch(0o644)
    for here, there in zip(folders, folders[1:]):
        target = there / "agent.toml"
        (here / "agent.toml").symlink_to(os.path.relpath(target, here) if relative else target)
    path = folders[0] / "agent.toml"
    assert others_may_write(path, ME) == ""
    for shared_one in folders:
        shared_one.chmod(0o777)
        assert f"chmod o-w {shared_one}" in others_may_write(path, ME), shared_one
        shared_one.chmod(0o755)


def test_a_folder_above_a_link_is_looked_at(tmp_path: Path) -> None:
    above = tmp_path / "above"
    (above / "links").mkdir(parents=True)
    (tmp_path / "agent.toml").touch(0o644)
    (above / "links" / "agent.toml").symlink_to(tmp_path / "agent.toml")
    above.chmod(0o777)
    assert f"chmod o-w {above}" in others_may_write(above / "links" / "agent.toml", ME)


def test_a_folder_that_is_itself_behind_a_link_is_looked_at(tmp_path: Path) -> None:
    """As /etc/forewarn -> ../srv/shared/forewarn."""
    real = tmp_path / "srv" / "shared" / "forewarn"
    real.mkdir(parents=True)
    (real / "agent.toml").touch(0o644)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "forewarn").symlink_to("../srv/shared/forewarn")
    path = tmp_path / "etc" / "forewarn" / "agent.toml"
    assert others_may_write(path, ME) == ""
    (tmp_path / "srv").chmod(0o777)
    assert f"chmod o-w {tmp_path / 'srv'}" in others_may_write(path, ME)


def test_links_that_lead_in_a_circle_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        others_may_write(tmp_path / "a", ME)


@needs_root
def test_a_link_of_another_user_in_a_sticky_folder_may_be_replaced_by_that_user(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "agent.toml").touch(0o644)
    link = folder / "agent.toml"
    link.symlink_to(tmp_path / "agent.toml")
    folder.chmod(0o1777)
    assert others_may_write(link, ME) == ""
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    assert f"uid {NOBODY} owns {link}; chown -h 0 {link} helps" in others_may_write(link, ME)


def test_what_another_user_owns_may_be_written_by_that_user(folder: Path) -> None:
    owner = folder.stat().st_uid
    assert others_may_write(folder, owner) == ""
    if owner != 0:
        assert f"uid {owner} owns {folder}" in others_may_write(folder, owner + 1)


@needs_root
@pytest.mark.parametrize("mode", [0o757, 0o775, 0o1777])
def test_root_refuses_a_configuration_in_a_folder_that_others_may_write(
    folder: Path, mode: int
) -> None:
    path = folder / "agent.toml"
    path.write_text(CONFIG)
    assert config_file.read(path).rules
    shared(folder, mode)
    with pytest.raises(ConfigError) as refused:
        config_file.read(path)
    (mistake,) = refused.value.mistakes
    assert mistake.startswith(f"{path}: A user who can change it can run anything")
    assert str(folder) in mistake


@needs_root
def test_root_refuses_a_configuration_of_another_user(folder: Path) -> None:
    path = folder / "agent.toml"
    path.write_text(CONFIG)
    os.chown(path, NOBODY, 0)
    with pytest.raises(ConfigError, match=f"uid {NOBODY} owns {path}; chown 0 {path} helps"):
        config_file.read(path)
    os.chown(path, 0, 0)
    os.chown(folder, NOBODY, 0)
    with pytest.raises(ConfigError, match=f"uid {NOBODY} owns {folder}"):
        config_file.read(path)


@needs_root
@pytest.mark.parametrize("mode", [0o757, 0o775, 0o1777])
def test_root_refuses_a_journal_in_a_folder_that_others_may_write(folder: Path, mode: int) -> None:
    shared(folder, mode)
    with pytest.raises(JournalError, match=r"runs as root, and others may change its journal"):
        Journal(folder / "journal")
    assert list(folder.iterdir()) == []


@needs_root
def test_root_refuses_a_journal_in_a_folder_of_another_user(folder: Path) -> None:
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(JournalError, match=f"uid {NOBODY} owns {folder}"):
        Journal(folder / "journal")
    os.chown(folder, 0, NOBODY)
    Journal(folder / "journal").close()
