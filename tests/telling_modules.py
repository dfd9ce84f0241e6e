"""Runs `forewarn` (the arguments), which says at SIGUSR1 what modules it has loaded by then.

They are the lines of the file that MODULES_TO names. Everything else is the product.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from forewarn.cli.main import main


def tell(*_: object) -> None:
    target = Path(os.environ["MODULES_TO"])
    written = target.with_suffix(".new")
    written.write_text("\n".join(sorted(sys.modules)), encoding="utf-8")
    written.rename(target)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, tell)
    del sys.argv[1]
    main()
