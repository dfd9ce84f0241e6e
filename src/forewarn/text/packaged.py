"""Texts that come with the program: its SQL, the demo inventory."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module
from pathlib import Path


def packaged_text(package: str, name: str) -> str:
    """A file of a package, installed in a folder or in one zipped file.

    `importlib.resources` would do it too, and loads a dozen modules more at every start.
    """
    return packaged_bytes(package, name).decode("utf-8")


def packaged_bytes(package: str, name: str) -> bytes:
    """As `packaged_text`, of a file that is no text."""
    data = pkgutil.get_data(package, name)
    if data is None:
        raise FileNotFoundError(f"{name} of {package}")
    return data


def packaged_names(package: str, folder: str) -> list[str]:
    """The names of the files in a folder of an imported package, sorted."""
    path = Path(sys.modules[package].__path__[0]) / folder
    if path.is_dir():
        return sorted(one.name for one in path.iterdir())
    resources = import_module("importlib.resources")  # only for a zipped file: see above
    return sorted(one.name for one in resources.files(package).joinpath(folder).iterdir())
