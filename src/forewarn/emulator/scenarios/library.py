"""The shipped scenarios, by name. Their scripts lie in `scripts/` beside this module."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable

from forewarn.core.errors import NotFound
from forewarn.core.suggestions import meant, shown
from forewarn.emulator.scenarios.file import parse
from forewarn.emulator.scenarios.values import Scenario

_SUFFIX = ".toml"


def names() -> tuple[str, ...]:
    """The names of all shipped scenarios, in the order of the alphabet."""
    files = (file.name for file in _folder().iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX)))


def load(name: str) -> Scenario:
    """The shipped scenario of that name. Raises NotFound with the closest name there is."""
    known = names()
    if name not in known:
        raise NotFound(f"There is no scenario {shown(name)}.", meant(name, known))
    return parse((_folder() / f"{name}{_SUFFIX}").read_text("utf-8"), name=name)


def _folder() -> Traversable:
    return resources.files("forewarn.emulator.scenarios").joinpath("scripts")
