"""What the package gives to programs, and what it must not load for steps."""

from __future__ import annotations

import subprocess
import sys

import pytest

import forewarn_guest


def test_everything_that_is_promised_can_be_imported() -> None:
    for name in forewarn_guest.__all__:
        assert getattr(forewarn_guest, name).__name__ == name


def test_what_is_not_there_is_said_as_of_any_module() -> None:
    with pytest.raises(AttributeError, match=r"forewarn_guest.*no attribute 'Nothing'"):
        _ = forewarn_guest.Nothing


def test_the_package_alone_loads_no_http() -> None:
    code = "import sys, forewarn_guest; sys.exit('http.client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
