"""The forms of the files that a host keeps: which one a file has, who wrote it, who can read it.

Each file says its form, a number that grows when an older program could misread it, and the version
that wrote it. A program reads the form that it writes and the one before, so that a host can be
upgraded, and taken back by one version. It deletes nothing that it cannot read. A file that does
not say a form has form 0.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from msgspec import Struct

from forewarn.adapters.sqlite.data_folder import DatabaseRefused

UNKNOWN_WRITER = "an unknown version"


class UnreadForm(DatabaseRefused):
    """A file has a form that this program does not read. It is left as it is."""


@cache
def this_program() -> str:
    """The version that writes now."""
    # With the first file that is written: it loads zip files and e-mail.
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - see above

    try:
        return f"forewarn {version('forewarn')}"
    except PackageNotFoundError:  # run from its sources
        return "forewarn"


class Form(Struct, frozen=True):
    """What a file says of itself."""

    number: int
    written_by: str = ""

    def refuse(self, path: Path, *, newest: int, price: str) -> None:
        """Raise UnreadForm unless the form is the newest one or the one before.

        `price` says what can be done without the program that wrote it, and what that costs.
        """
        oldest = max(0, newest - 1)
        if oldest <= self.number <= newest:
            return
        reads = f"form {newest}" if oldest == newest else f"forms {oldest} and {newest}"
        writer = self.written_by or UNKNOWN_WRITER
        newer = self.number > newest
        way = "Run that version, or a newer one" if newer else "Start a version in between once"
        raise UnreadForm(
            f"{path} was written in form {self.number} by {writer}; this program,"
            f" {this_program()}, reads {reads}.",
            f"{way}; or {price}",
        )
