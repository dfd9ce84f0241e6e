"""The page on adding things: its patch applies, what it adds works, and it is small."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "how-to-add.md"
SOURCE_FILES_MAX = 8  # an attribute needed 17 once
COPIED = ("src", "tests", "docs", "examples", "guest", "pyproject.toml")
# Where paths on the page may begin, so that they stay short.
ROOTS = (ROOT, ROOT / "src" / "forewarn", ROOT / "docs")
LIMIT_S = 900  # only ends a hang
TOUCHED = (
    "tests/control/test_vm_size.py",
    "tests/control/test_inventory_file.py",
    "tests/wire/test_instance.py",
    "tests/wire/test_operator_json.py",
    "tests/adapters/test_store_columns.py",
    "tests/adapters/test_libvirt_domain_xml.py",
    "tests/api/test_adopt.py",
    "tests/api/test_link_recordings.py",
)


def patch() -> str:
    """The blocks of the page, in their order."""
    page = PAGE.read_text(encoding="utf-8")
    return "".join(re.findall(r"^```diff\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))


def run(words: list[str], at: Path, *, content: str | None = None) -> None:
    """Run a program in the copy of the tree, with the sources of that copy."""
    paths = os.pathsep.join(str(at / part) for part in ("src", "tests", "guest/src"))
    inner = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    done = subprocess.run(
        words,
        cwd=at,
        env={**inner, "PYTHONPATH": paths, "GIT_CEILING_DIRECTORIES": str(at.parent)},
        input=content,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-4_000:]}{done.stderr[-4_000:]}"


def test_the_patch_adds_an_attribute_of_a_vm_in_few_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy / name)
    run(["git", "apply", "-C1", "-"], copy, content=patch())
    run([sys.executable, "-m", "link_recording"], copy)
    # Tests of pages say which pages need a row: those are for the one who adds it.
    quiet = ["-q", "-p", "no:cacheprovider", "-k", "not page"]
    run([sys.executable, "-m", "pytest", *quiet, *TOUCHED], copy)

    files = re.findall(r"^diff --git a/(\S+)", patch(), re.MULTILINE)
    source = [name for name in files if name.startswith("src/")]
    with capsys.disabled():
        rest = len(files) - len(source)
        print(f"\nA VM attribute: {len(source)} source files, {rest} of tests.")  # noqa: T201
    assert 1 < len(source) <= SOURCE_FILES_MAX


def test_every_file_that_the_page_names_is_there() -> None:
    prose = re.sub(r"^```.*?^```$", "", PAGE.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`([\w./-]+(?:\.py|\.md|/))`", prose))
    assert len(named) > 20
    missing = [n for n in sorted(named) if not any((root / n).exists() for root in ROOTS)]
    assert missing == []
