"""The bench can be started; its figures are no matter of tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_S = 120  # only ends a hang


def test_the_bench_names_its_measurements() -> None:
    command = [sys.executable, "-m", "bench", "--help"]
    said = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert said.returncode == 0, said.stderr
    assert "emulator, commands" in said.stdout
