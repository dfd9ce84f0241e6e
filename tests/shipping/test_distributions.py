"""Both distributions as they would be published: what is in them, and that they install alone."""

from __future__ import annotations

import email
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from trove_classifiers import classifiers as known_classifiers

from support import distributions
from support.shipping_world import ROOT, Place, empty_place

SDIST_BYTES_MAX = 1_500_000


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return distributions.build(tmp_path_factory.mktemp("dist"))


def only(built: list[Path], begins: str, ends: str) -> Path:
    (found,) = [one for one in built if one.name.startswith(begins) and one.name.endswith(ends)]
    return found


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


@pytest.mark.parametrize("name", ["forewarn", "forewarn_guest"])
def test_the_metadata_says_what_a_published_page_needs(built: list[Path], name: str) -> None:
    about = metadata_of(only(built, f"{name}-", ".whl"))
    assert about["License-Expression"] == "Apache-2.0"
    assert about["License-File"] == "LICENSE"
    assert about["Summary"]
    assert about["Author"]
    assert about["Keywords"]
    assert about["Description-Content-Type"] == "text/markdown"
    labels = {one.split(",")[0] for one in about.get_all("Project-URL", [])}
    assert labels == {"Homepage", "Documentation", "Source", "Changelog", "Issues"}
    found = about.get_all("Classifier", [])
    assert found
    assert [one for one in found if one not in known_classifiers] == []


@pytest.mark.parametrize("project", distributions.PROJECTS, ids=lambda path: path.name)
def test_the_oldest_python_of_the_classifiers_is_the_oldest_that_is_accepted(project: Path) -> None:
    table = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]
    start = "Programming Language :: Python :: 3."
    minors = [int(one.removeprefix(start)) for one in table["classifiers"] if one.startswith(start)]
    assert table["requires-python"] == f">=3.{min(minors)}"
    assert sorted(minors) == list(range(min(minors), max(minors) + 1))


@pytest.mark.parametrize(("name", "folder"), [("forewarn", "src"), ("forewarn_guest", "guest/src")])
def test_an_sdist_has_the_sources_and_is_small(built: list[Path], name: str, folder: str) -> None:
    file = only(built, f"{name}-", ".tar.gz")
    assert file.stat().st_size < SDIST_BYTES_MAX
    with tarfile.open(file) as archive:
        paths = {one.name.split("/", 1)[1] for one in archive.getmembers()}
    tops = {path.split("/")[0] for path in paths}
    plain = {"LICENSE", "README.md", "CHANGELOG.md", "PKG-INFO", "pyproject.toml", ".gitignore"}
    assert tops - plain <= {"src", "guest"}
    assert "LICENSE" in tops
    sources = {
        path.relative_to(ROOT / folder).as_posix()
        for path in (ROOT / folder / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {f"src/{one}" for one in sources} <= paths


def test_both_have_the_same_licence() -> None:
    assert (ROOT / "guest" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


TEST = """
def test_a_reboot_is_announced(cloud):
    reboot = cloud.restart("vm0")
    assert cloud.document("vm0")["Events"][0]["EventId"] == str(reboot.event_id)
"""


def test_both_install_from_what_was_built_where_nothing_else_is(
    built: list[Path], tmp_path: Path
) -> None:
    """The server by its wheel, the guest by its sdist; then each is used."""
    wheels = built[0].parent
    distributions.pack(["hatchling"], wheels)
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    distributions.pack([*table["dependencies"], "pytest"], wheels)
    programs = distributions.clean_environment(tmp_path / "venv")
    guest = only(built, "forewarn_guest-", ".tar.gz")

    install = [str(programs / "python"), "-m", "pip", "install", "--quiet", "forewarn[pytest]"]
    more = distributions.offline(wheels)
    distributions.ran([*install, str(guest)], folder=tmp_path, **more)

    place = empty_place(tmp_path / "place")
    version = place.run([str(programs / "forewarn"), "--version"]).stdout.split()[1]
    assert version == metadata_of(only(built, "forewarn-", ".whl"))["Version"]
    assert_it_emulates(place, programs)
    (place.folder / "test_reboot.py").write_text(TEST, "utf-8")
    tested = place.run([str(programs / "python"), "-m", "pytest", "-q"])
    assert tested.returncode == 0, tested.stdout
    assert "1 passed" in tested.stdout


def test_the_guest_installs_from_its_wheel_where_nothing_else_is(
    built: list[Path], tmp_path: Path
) -> None:
    """Alone: no index, no other wheel, and nothing of the server."""
    programs = distributions.clean_environment(tmp_path / "venv")
    wheel = only(built, "forewarn_guest-", ".whl")
    python = str(programs / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", str(wheel)]
    distributions.ran(install, folder=tmp_path)

    place = empty_place(tmp_path / "place")
    said = place.run([str(programs / "forewarn-guest"), "--version"])
    assert metadata_of(wheel)["Version"] in said.stdout, said.stderr
    used = place.run([python, "-c", "import forewarn_guest; forewarn_guest.Client"])
    assert used.returncode == 0, used.stderr
    assert place.run([python, "-c", "import forewarn"]).returncode != 0


def assert_it_emulates(place: Place, programs: Path) -> None:
    """The emulator and the agent's client, each from its own distribution, speak to each other."""
    simulate = [str(programs / "forewarn"), "simulate", "--json"]
    with place.running([*simulate, "--guest", "127.0.0.1:0", "--operator", "127.0.0.1:0"]) as one:
        url = one.vm_urls["vm0"]
        assert place.run([str(programs / "forewarn"), "vm", "restart", "vm0"]).returncode == 0
        read = place.run([str(programs / "forewarn-guest"), "list", "--endpoint", url])
    assert read.returncode == 0, read.stderr
    assert "Reboot" in read.stdout
