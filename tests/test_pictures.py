"""The pictures of the documentation: none is stale, none names what is not in the code."""

from __future__ import annotations

import ast
import re
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path

import pytest
from pictures import approval, console, ownership, packages, terminal
from pictures.__main__ import FOLDER, drawn
from pictures.svg import text_width

from programs import needs

ROOT = Path(__file__).parent.parent
SOURCES = (ROOT / "src", ROOT / "guest" / "src")
PLACES = sorted(
    {place for part in approval.PARTS for step in part.steps for place in step.code}
    | {place for _, _, owners in ownership.TITLES for owner in owners for place in owner.owns}
)


@pytest.mark.parametrize("file", drawn(), ids=lambda file: file.name)
def test_a_picture_is_as_the_program_draws_it(file: Path) -> None:
    assert file.read_text(encoding="utf-8") == drawn()[file], (
        f"docs/pictures/{file.name} is stale; run `make pictures`."
    )


@needs("curl")
def test_the_terminal_of_the_readme_shows_what_the_commands_print_today() -> None:
    assert (FOLDER / "terminal.svg").read_text(encoding="utf-8") == terminal.picture(), (
        "docs/pictures/terminal.svg is stale; run `make readme-picture`."
    )


def test_the_pictures_of_the_console_are_there_and_small() -> None:
    for name in console.SHOTS:
        file = FOLDER / f"{name}.png"
        assert file.is_file(), f"docs/pictures/{name}.png is missing; run `make screenshots`."
        assert file.stat().st_size <= console.BYTES_MAX
    assert {f"{name}.png" for name in console.SHOTS} == {one.name for one in FOLDER.glob("*.png")}
    guide = (ROOT / "docs" / "console.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[[^\]]+\]\(pictures/([\w-]+)\.png\)", guide)
    assert sorted(shown) == sorted(console.SHOTS), "each has its place in the guide"


@cache
def names_in(file: Path) -> frozenset[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


@pytest.mark.parametrize("place", PLACES)
def test_what_a_picture_names_is_in_the_code(place: str) -> None:
    module, _, name = place.partition(": ")
    found = [folder / module for folder in SOURCES if (folder / module).is_file()]
    assert found, f"There is no {module}."
    assert not name or name in names_in(found[0])


def words(file: Path) -> list[str]:
    return [
        "".join(text.itertext()) for text in ET.parse(file).iter("{http://www.w3.org/2000/svg}text")
    ]


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.svg")), ids=lambda file: file.name)
def test_a_picture_is_xml_without_anything_from_elsewhere(file: Path) -> None:
    assert len(words(file)) > 20
    text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"(?:href|src)=|url\((?!#)|@import|<script", text) == []


def test_the_package_map_has_every_package_once_and_every_contract() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    read = packages.contracts(text)
    shown = words(FOLDER / "packages.svg")

    named = [package.name for layer in read.layers for package in layer]
    folders = {path.parent.name for path in (ROOT / "src" / "forewarn").glob("*/__init__.py")}
    assert folders <= set(named)
    assert [name for name in named if shown.count(name) != 1] == []
    assert [one for one in read.others if f"- {one}" not in shown] == []


CONTRACTS = """
[[tool.importlinter.contracts]]
name = "Layers"
type = "layers"
layers = ["(wiring)", "host | control", "core"]

[[tool.importlinter.contracts]]
name = "pure"
type = "forbidden"
source_modules = ["forewarn.core"]
forbidden_modules = ["time", "forewarn.host"]

[[tool.importlinter.contracts]]
name = "apart"
type = "forbidden"
source_modules = ["forewarn.host"]
forbidden_modules = ["forewarn.control"]
"""


def test_a_contract_that_changes_changes_the_map() -> None:
    read = packages.contracts(CONTRACTS)

    assert [[one.name for one in layer] for layer in read.layers] == [
        ["wiring"],
        ["host", "control"],
        ["core"],
    ]
    never = {one.name: one.never for layer in read.layers for one in layer}
    # That core imports no host follows from the layers already.
    assert never == {"wiring": [], "host": ["control"], "control": [], "core": ["time"]}
    assert read.others == ("pure", "apart")


def test_no_words_of_a_picture_leave_it() -> None:
    for file, text in drawn().items():
        root = ET.fromstring(text)
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        for one in root.iter("{http://www.w3.org/2000/svg}text"):
            size = float(one.attrib["font-size"])
            mono = "font-family" in one.attrib
            length = text_width(one.text or "", size, mono=mono)
            middle = one.attrib.get("text-anchor") == "middle"
            left = float(one.attrib["x"]) - (length / 2 if middle else 0)
            assert left >= 0, (file.name, one.text)
            assert left + length <= width, (file.name, one.text)
            assert size <= float(one.attrib["y"]) <= height, (file.name, one.text)


def test_the_boxes_that_are_drawn_with_letters_are_in_line() -> None:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        fenced = re.findall(r"^```\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
        for block in fenced:
            edges = [line for line in block.splitlines() if re.fullmatch(r" *\+[-+ ]*-\+ *", line)]
            inside = [line for line in block.splitlines() if re.fullmatch(r" *\|.*\|", line)]
            if len(edges) > 1 and len({len(line) for line in edges}) == 1:
                wrong = [line for line in inside if len(line) != len(edges[0])]
                assert wrong == [], f"{page.name}: {wrong}"
