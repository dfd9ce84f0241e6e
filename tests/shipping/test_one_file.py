"""`make dist`: one file that runs with nothing but a Python, from an empty folder."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from support.shipping_world import ROOT, RUN_LIMIT_S, Place, empty_place

# The interpreter of which the one that runs the tests is a virtual environment. It is given no
# packages (-S) and no user's settings (-I), so that what runs comes from the file.
PLAIN = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
PYTHON = (str(PLAIN), "-I", "-S")
LINES_MAX = 40  # that an emulator prints when it starts
PORTS = ("--guest", "127.0.0.1:0", "--operator", "127.0.0.1:0")


def build(folder: Path) -> Path:
    built = subprocess.run(
        [sys.executable, "-m", "bundle", "--out", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_LIMIT_S,
    )
    assert built.returncode == 0, built.stderr
    (file,) = folder.glob("*.pyz")
    return file


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return empty_place(tmp_path)


def cache_of(place: Place) -> Path:
    return Path(place.environment["HOME"]) / ".cache" / "forewarn"


def rewritten(file: Path, target: Path, name: str, change: Callable[[bytes], bytes]) -> Path:
    """A copy of the file with one of its members changed."""
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(target, "w") as new:
        for one in old.namelist():
            data = old.read(one)
            new.writestr(one, change(data) if one == name else data)
    return target


def test_its_name_says_which_python_and_machine_it_is_for(file: Path) -> None:
    assert file.name.startswith("forewarn-")
    assert str(sysconfig.get_config_var("SOABI")) in file.name
    assert platform.machine() in file.name


def test_every_module_comes_compiled_and_python_takes_it_as_it_is(file: Path, place: Place) -> None:
    with zipfile.ZipFile(file) as opened:
        names = set(opened.namelist())
    modules = {name for name in names if re.fullmatch(r"site/(forewarn|uvloop|typer)/.*\.py", name)}
    assert {importlib.util.cache_from_source(name) for name in modules} <= names
    shutil.copy(file, place.folder / "forewarn.pyz")
    ran = place.run([str(PLAIN), "-I", "-S", "-v", "forewarn.pyz", "verify", "--list"])
    (main,) = cache_of(place).glob("*/site/forewarn/cli/main.py")
    cached = importlib.util.cache_from_source(str(main))
    assert f"matches {main}" in ran.stderr
    assert f"# code object from '{cached}'" in ran.stderr
    assert "could not create" not in ran.stderr
    assert not [line for line in ran.stderr.splitlines() if line.startswith("# wrote '")]


def test_it_emulates_and_verifies_from_an_empty_folder_with_a_plain_python(
    file: Path, place: Place
) -> None:
    shutil.copy(file, place.folder / "forewarn.pyz")
    forewarn = (*PYTHON, "forewarn.pyz")

    with place.running([*forewarn, "simulate", *PORTS, "--spot", "vm0", "--json"]) as emulator:
        assert list(emulator.vm_urls) == ["vm0"]
        assert place.run([*forewarn, "vm", "restart", "vm0"]).returncode == 0
        advanced = place.run([*forewarn, "clock", "advance", "15m"])
        assert "Reboot of vm0 may start" in advanced.stdout
        assert place.run([*forewarn, "scenario", "run", "preempt"]).returncode == 0
        url = emulator.vm_urls["vm0"]
        checked = place.run([*forewarn, "verify", url, "--only", "get-200", "--format", "json"])
        assert checked.returncode == 0, checked.stdout
        assert json.loads(checked.stdout)["good"] is True
    listed = place.run([*forewarn, "verify", "--list"])
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "get-200" in listed.stdout
    assert [one.name for one in place.folder.iterdir()] == ["forewarn.pyz"]


def test_the_lines_that_it_prints_to_go_on_work_from_any_folder(file: Path, place: Place) -> None:
    shutil.copy(file, place.folder / "forewarn.pyz")
    process = subprocess.Popen(
        [*PYTHON, "forewarn.pyz", "simulate", *PORTS],
        cwd=place.folder,
        env=dict(place.environment),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or not lines[-1].endswith("clock next"):
            lines.append(process.stdout.readline().rstrip("\n"))
            assert lines[-1] or len(lines) < LINES_MAX, lines
        for line in lines[-2:]:
            ran = place.run(["sh", "-c", f"cd / && {line}"])
            assert ran.returncode == 0, ran
    finally:
        process.terminate()
        process.communicate(timeout=RUN_LIMIT_S)


def test_it_can_be_executed_as_it_is(file: Path, place: Place) -> None:
    programs = Path(place.environment["HOME"]) / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(PLAIN)
    ran = place.run([str(file), "--version"], PATH=f"{programs}{os.pathsep}{os.defpath}")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("forewarn ")


def test_it_unpacks_itself_once_into_a_folder_of_the_user_alone(file: Path, place: Place) -> None:
    folders = []
    for _ in range(2):
        ran = place.run([*PYTHON, str(file), "--version"])
        assert (ran.returncode, ran.stderr) == (0, "")
        (unpacked,) = cache_of(place).iterdir()
        folders.append((unpacked.stat().st_ino, unpacked.stat().st_mtime_ns))
    assert folders[0] == folders[1]
    assert stat.S_IMODE(cache_of(place).stat().st_mode) == 0o700
    assert stat.S_IMODE(unpacked.stat().st_mode) == 0o700


def test_several_that_start_at_once_share_one_folder(file: Path, place: Place) -> None:
    started = [
        subprocess.Popen(
            [*PYTHON, str(file), "--version"],
            env=dict(place.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    ended = [(*one.communicate(timeout=RUN_LIMIT_S), one.returncode) for one in started]
    assert [(complaints, code) for _, complaints, code in ended] == [(b"", 0)] * 4
    assert len(list(cache_of(place).iterdir())) == 1


def test_what_was_begun_and_never_finished_is_cleared_away(file: Path, place: Place) -> None:
    cache_of(place).mkdir(parents=True, mode=0o700)
    old, fresh = cache_of(place) / ".unpacking-old", cache_of(place) / ".unpacking-fresh"
    for one in (old, fresh):
        one.mkdir()
    os.utime(old, (0, 0))
    assert place.run([*PYTHON, str(file), "--version"]).returncode == 0
    assert not old.exists()
    assert fresh.exists()  # somebody may be at it


def test_a_folder_that_others_can_write_to_is_not_used(file: Path, place: Place) -> None:
    cache_of(place).mkdir(parents=True)
    cache_of(place).chmod(0o777)
    ran = place.run([*PYTHON, str(file), "--version"])
    assert (ran.returncode, ran.stderr) == (0, "")
    assert list(cache_of(place).iterdir()) == []
    instead = Path(place.environment["TMPDIR"]) / f"forewarn-{os.geteuid()}"
    assert len(list(instead.iterdir())) == 1

    instead.chmod(0o777)
    refused = place.run([*PYTHON, str(file), "--version"])
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "XDG_CACHE_HOME" in refused.stderr


def test_a_damaged_folder_is_named_in_one_sentence(file: Path, place: Place) -> None:
    assert place.run([*PYTHON, str(file), "--version"]).returncode == 0
    (unpacked,) = cache_of(place).iterdir()
    shutil.rmtree(unpacked / "site" / "typer")
    refused = place.run([*PYTHON, str(file), "--version"])
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert str(unpacked) in refused.stderr


def test_another_python_is_told_in_one_sentence(file: Path, place: Place) -> None:
    def for_another(data: bytes) -> bytes:
        return json.dumps(
            {**json.loads(data), "abi": "cpython-399-none", "python": "3.99"}
        ).encode()

    other = rewritten(file, place.folder / "other.pyz", "build.json", for_another)
    refused = place.run([*PYTHON, str(other), "simulate"])
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("forewarn: this file was built for Python 3.99 (cpython-399-")
    assert refused.stderr.count("\n") == 1
    assert not cache_of(place).exists()


def test_any_python_can_read_what_tells_it_that_it_is_the_wrong_one() -> None:
    tree = ast.parse((ROOT / "bundle" / "start" / "__main__.py").read_text("utf-8"))
    for node in ast.walk(tree):
        assert not isinstance(node, ast.JoinedStr | ast.AnnAssign | ast.NamedExpr | ast.Match)
        if isinstance(node, ast.FunctionDef):
            every = [*node.args.args, *node.args.kwonlyargs]
            assert node.returns is None
            assert not node.args.kwonlyargs
            assert all(one.annotation is None for one in every)


def test_the_same_sources_and_packages_give_the_same_file(file: Path, tmp_path: Path) -> None:
    assert build(tmp_path).read_bytes() == file.read_bytes()


def test_no_part_of_it_names_where_it_was_built(file: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        named = [
            name
            for name in archive.namelist()
            if name.startswith(("site/forewarn", "build.json"))
            and str(ROOT).encode() in archive.read(name)
        ]
    assert named == []
