"""`forewarn host` with a wall clock that the rig can step, for this process alone.

Linux has no wall clock per namespace. So the functions through which Python asks for it are
replaced before anything of the product is imported; what is asked in C (certificates) is not.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

_real_ns = time.time_ns


def step_with(offset: Path) -> None:
    """From now on the wall clock is off by the seconds that the file holds."""

    def time_ns() -> int:
        return _real_ns() + int(offset.read_text(encoding="ascii")) * 1_000_000_000

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1_000_000_000


if __name__ == "__main__":
    step_with(Path(sys.argv.pop(1)))
    from forewarn.cli.main import main

    main()
