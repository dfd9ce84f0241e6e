"""Texts that come with the program: its SQL, the demo inventory."""

from __future__ import annotations

import pkgutil


def packaged_text(package: str, name: str) -> str:
    """A file of a package, installed in a folder or in one zipped file.

    `importlib.resources` would do it too, and loads a dozen modules more at every start.
    """
    data = pkgutil.get_data(package, name)
    if data is None:
        raise FileNotFoundError(f"{name} of {package}")
    return data.decode("utf-8")
