"""What `make test-bare` stands on: the PATH of a bare Debian, and a list of what was skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HIDDEN = (
    *("nft", "ip", "virsh", "qemu-system-x86_64", "haproxy", "kubectl", "nginx", "strace"),
    *("unshare", "nsenter", "curl", "openssl", "systemctl", "node", "gcc", "pkg-config", "ps"),
)
SOME = """
import pytest

def test_runs(): pass

@pytest.mark.parametrize("what", ["a b", "x::y[z]"])
def test_misses(what): pytest.skip("there is none")

@pytest.mark.xfail
def test_fails(): assert False
"""
NONE = 'import pytest\npytest.skip("there is none", allow_module_level=True)\ndef test_it(): pass'


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="not installed: dpkg-query")
def test_the_path_of_a_bare_machine_has_what_every_debian_has_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "path"
    subprocess.run([sys.executable, str(ROOT / "tests" / "bare_path.py"), str(path)], check=True)
    for name in ("sh", "bash", "ls", "sed", "grep", "awk", "tar", "mount", "useradd", "python3"):
        assert shutil.which(name, path=str(path)), name
    assert [name for name in HIDDEN if shutil.which(name, path=str(path))] == []
    told = subprocess.run(["python3", "-c", "import venv"], env={"PATH": str(path)}, check=False)
    assert told.returncode == 0


def pytest_run(folder: Path, *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "guest" / "tests")},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.stdout


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_what_was_skipped_is_written_down_and_is_all_that_runs_again(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    (tmp_path / "test_some.py").write_text(SOME)
    (tmp_path / "test_none.py").write_text(NONE)
    listed = tmp_path / "skipped"
    writing = ("-p", "skipped_tests", f"--skipped-to={listed}")
    said = pytest_run(tmp_path, *workers, *writing)
    assert "1 passed, 3 skipped, 1 xfailed" in said
    named = set(listed.read_text().splitlines())
    a, b = (f"test_some.py::test_misses[{what}]" for what in ("a b", "x::y[z]"))
    assert named == {a, b, "test_none.py"}
    (tmp_path / "test_some.py").write_text(SOME.replace('pytest.skip("there is none")', "pass"))
    (tmp_path / "test_none.py").write_text("def test_it(): pass\ndef test_more(): pass")
    assert "4 passed in" in pytest_run(tmp_path, *workers, *writing, f"@{listed}")
    assert listed.read_text() == ""
