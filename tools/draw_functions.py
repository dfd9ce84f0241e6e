"""Draws functions at random: do the names of folders and files lead to them?

`python -m tools.draw_functions` prints what each function does and neither its name nor its place.
A reader who has seen nothing but a listing of the tree names the file where it would look first;
`--key` then prints the places of the same draw. The commit is the seed, so each commit draws anew,
and a draw can be repeated (`--seed COMMIT`, with that commit checked out).
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ("src/forewarn", "guest/src/forewarn_guest")
COUNT = 24
# Shorter ones are found with what they belong to.
LINES_MIN = 6
HIDDEN = "___"

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Drawn:
    """A function: where it is, and what it does in its own words."""

    path: str
    line: int
    name: str
    does: str


def functions(root: Path) -> list[Drawn]:
    """Every function and method of the products with lines enough, in the order of their places."""
    found = []
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            place = path.relative_to(root).as_posix()
            found += [
                Drawn(place, node.lineno, node.name, of + described(text, node))
                for node, of in _defined(ast.parse(text))
                if node.end_lineno is not None and node.end_lineno - node.lineno + 1 >= LINES_MIN
            ]
    return found


def _defined(tree: ast.Module) -> Iterator[tuple[_Function, str]]:
    """Functions and methods; of a method also what its class says of itself."""
    for node in tree.body:
        inside, of = [node], ""
        if isinstance(node, ast.ClassDef):
            inside, of = node.body, f"[{_first_sentence(ast.get_docstring(node) or node.name)}] "
        for one in inside:
            if isinstance(one, _Function) and not one.name.startswith("__"):
                yield one, of


def _first_sentence(docstring: str) -> str:
    return " ".join(docstring.split("\n\n", maxsplit=1)[0].split())


def described(text: str, node: _Function) -> str:
    """The first sentence of its docstring; without one its body, with its name hidden."""
    docstring = ast.get_docstring(node)
    if docstring is not None:
        return _first_sentence(docstring)
    lines = text.splitlines()[node.body[0].lineno - 1 : node.end_lineno]
    body = "\n".join(f"    {line.strip()}" for line in lines)
    return "(it says nothing of itself)\n" + re.sub(rf"\b{re.escape(node.name)}\b", HIDDEN, body)


def draw(of: list[Drawn], seed: str, count: int) -> list[Drawn]:
    """As many of them as are asked for, in no order; the same for the same seed."""
    return random.Random(seed).sample(of, count)


def commit(root: Path) -> str:
    """The commit that is checked out."""
    asked = ["git", "-C", str(root), "rev-parse", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Print what the drawn functions do; with `--key`, where they are."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", help="the commit that is checked out, unless said")
    parser.add_argument("--key", action="store_true", help="where they are")
    options = parser.parse_args()
    seed = options.seed or commit(ROOT)
    print(f"seed {seed}")
    for number, one in enumerate(draw(functions(ROOT), seed, options.count), 1):
        print(f"{number}. " + (f"{one.path}:{one.line} {one.name}" if options.key else one.does))
    return 0


if __name__ == "__main__":
    sys.exit(main())
