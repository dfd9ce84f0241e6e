"""The page on adding things: its patch applies, what it adds works, and it is small."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.adapters.sqlite.data_folder import SCHEMA_VERSION

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "how-to-add.md"
SOURCE_FILES_MAX = 7  # an attribute needed 17 once
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
    """The blocks of the page, in their order; its migration has the next number, whatever it is."""
    page = PAGE.read_text(encoding="utf-8")
    blocks = "".join(re.findall(r"^```diff\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    return re.sub(r"\b[0-9]{4}(?=_vm_size\.sql)", f"{SCHEMA_VERSION + 1:04}", blocks)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


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
    before = contents(copy / "tests/fixtures")
    run([sys.executable, "-m", "link_recording"], copy)
    after = contents(copy / "tests/fixtures")
    recorded = [name for name in {*before, *after} if before.get(name) != after.get(name)]
    # Tests of pages say which pages need a row: those are for the one who adds it.
    quiet = ["-q", "-p", "no:cacheprovider", "-k", "not page"]
    run([sys.executable, "-m", "pytest", *quiet, *TOUCHED], copy)

    files = re.findall(r"^diff --git a/(\S+)", patch(), re.MULTILINE)
    source = [name for name in files if name.startswith("src/")]
    with capsys.disabled():
        rest = len(files) - len(source)
        counts = f"{len(source)} of the source, {rest} of tests, and {len(recorded)} that the last"
        print(f"\nA VM attribute, in files: {counts} command records.")  # noqa: T201
    assert 1 < len(source) <= SOURCE_FILES_MAX
    assert counts in " ".join(PAGE.read_text("utf-8").split())


def test_the_heading_of_a_hunk_is_a_line_of_its_file() -> None:
    headings = []
    for block in re.split(r"^diff --git ", patch(), flags=re.MULTILINE)[1:]:
        path = block.split()[0].removeprefix("a/")
        headings += [(path, said) for said in re.findall(r"^@@ .* @@ (.+)$", block, re.MULTILINE)]
    assert len(headings) > 10
    stale = [one for one in headings if one[1] not in (ROOT / one[0]).read_text("utf-8")]
    assert stale == []


def test_every_file_that_the_page_names_is_there() -> None:
    prose = re.sub(r"^```.*?^```$", "", PAGE.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`([\w./-]+(?:\.py|\.md|/))`", prose))
    assert len(named) > 20
    missing = [n for n in sorted(named) if not any((root / n).exists() for root in ROOTS)]
    assert missing == []
