"""The package map, drawn from the import contracts in pyproject.toml and from nothing else.

A layer may import what is below it. What a contract forbids beyond that stands in the box, in red.
"""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pictures.svg import LINE, RED, SOFT, Drawing, text_width, wrapped

ROOT = Path(__file__).parent.parent
WIDTH = 960.0
LEFT = 64.0
GAP = 12.0
COLORS = ("#e8f1fb", "#e6f6ec", "#fff4dc", "#fbe9dc", "#eeeaf7", "#f0f2f4")
FORBIDDEN_NAMED_MAX = 4


@dataclass(slots=True)
class Package:
    """A package or module of `forewarn`: what it is, and what it must not import."""

    name: str
    about: str
    never: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Contracts:
    """What pyproject.toml says: the layers from top to bottom, and contracts by their names."""

    layers: tuple[tuple[Package, ...], ...]
    others: tuple[str, ...]


def about(name: str) -> str:
    """The first sentence of a package, as its docstring has it."""
    folder = ROOT / "src" / "forewarn" / name
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return re.split(r"(?<=\.)\s", " ".join(said.replace("`", "").split()), maxsplit=1)[0]


def contracts(text: str) -> Contracts:
    """Read them from the text of a pyproject.toml. KeyError or StopIteration if it has none."""
    tables = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    layered = next(table for table in tables if table["type"] == "layers")
    layers = tuple(
        tuple(Package(name, about(name)) for name in re.findall(r"\w+", layer))
        for layer in layered["layers"]
    )
    known = {one.name: one for layer in layers for one in layer}
    depth = {one.name: number for number, layer in enumerate(layers) for one in layer}
    others = []
    for table in tables:
        if table is layered:
            continue
        others.append(str(table["name"]))
        for source, forbidden in _forbidden(table):
            never = [one for one in forbidden if depth.get(one, len(layers)) >= depth[source]]
            known[source].never += [one for one in never if one not in known[source].never]
    return Contracts(layers, tuple(others))


def _forbidden(table: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Which package of ours must not import what: only whole packages of `forewarn` as a source."""
    if table["type"] != "forbidden":
        return []
    sources = [one.removeprefix("forewarn.") for one in table["source_modules"]]
    forbidden = [one.removeprefix("forewarn.") for one in table["forbidden_modules"]]
    whole = [one for one in sources if "." not in one and one != "forewarn" and "_guest" not in one]
    return [(source, forbidden) for source in whole]


def never_line(package: Package) -> str:
    """What a package must not import, in a line; many are counted."""
    named = package.never[:FORBIDDEN_NAMED_MAX]
    more = len(package.never) - len(named)
    return "never " + ", ".join(named) + (f" and {more} more" if more else "")


def rows_of(package: Package, width: float) -> tuple[list[str], list[str]]:
    said = wrapped(package.about, width - 24, 12)
    never = wrapped(never_line(package), width - 24, 11) if package.never else []
    return said, never


def box_width(layer: tuple[Package, ...]) -> float:
    room = WIDTH - LEFT - 16
    return (room - GAP * (len(layer) - 1)) / len(layer)


def layer_height(layer: tuple[Package, ...]) -> float:
    width = box_width(layer)
    tallest = max(sum(map(len, rows_of(package, width))) for package in layer)
    return 34 + 15 * tallest


def picture(read: Contracts) -> Drawing:
    """Layers as rows, packages as boxes."""
    height = sum(layer_height(layer) + GAP for layer in read.layers) + 70
    height += 17 * len(read.others) + 34
    drawing = Drawing(WIDTH, height, "Which package may import which")
    drawing.text((LEFT, 32), "A package may import what is below it", bold=True, size=15)
    start = LEFT + text_width("A package may import what is below it", 15) + 36
    drawing.text((start, 32), "not above it, and not beside it in its row", size=13, fill=SOFT)
    y = 50.0
    for number, layer in enumerate(read.layers):
        x, width = LEFT, box_width(layer)
        for package in layer:
            draw(drawing, package, (x, y), (width, layer_height(layer)), COLORS[number % 6])
            x += width + GAP
        y += layer_height(layer) + GAP
    drawing.line([(34, 52), (34, y - GAP)], arrow=True, color=LINE)
    drawing.text((22, 44), "top", size=12, fill=SOFT)
    drawing.text((LEFT, y + 16), "All contracts beside the layers", bold=True, size=13)
    drawing.lines((LEFT, y + 36), [f"- {one}" for one in read.others], step=17, size=12)
    return drawing


def draw(
    drawing: Drawing,
    package: Package,
    at: tuple[float, float],
    size: tuple[float, float],
    color: str,
) -> None:
    """One package: its name, what it is, what it must not import."""
    x, y = at
    drawing.box(at, size, color)
    drawing.text((x + 12, y + 20), package.name, bold=True, size=14, mono=True)
    said, never = rows_of(package, size[0])
    below = drawing.lines((x + 12, y + 37), said, step=15, size=12)
    for words in never:
        drawing.text((x + 12, below), words, size=11, fill=RED)
        below += 15
