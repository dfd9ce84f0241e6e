"""`python -m pictures` draws docs/pictures anew; `terminal` and `console` record what runs."""

from __future__ import annotations

import sys
from pathlib import Path

from pictures import approval, ownership, packages

FOLDER = packages.ROOT / "docs" / "pictures"


def drawn() -> dict[Path, str]:
    """Every picture that follows from the code alone, by its file."""
    read = packages.contracts((packages.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {
        FOLDER / "approval.svg": approval.picture().svg(),
        FOLDER / "ownership.svg": ownership.picture().svg(),
        FOLDER / "packages.svg": packages.picture(read).svg(),
    }


def main() -> None:
    if sys.argv[1:] == ["terminal"]:
        from pictures import terminal  # noqa: PLC0415 - it starts a service and needs more

        terminal.record(FOLDER / "terminal.svg")
        return
    if sys.argv[1:] == ["console"]:
        from pictures import console  # noqa: PLC0415 - it starts a browser

        console.record(FOLDER)
        return
    for file, text in drawn().items():
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
