"""Applies a word map (`tools/word_map.toml`) to the repository: `python -m tools.rename`.

Modules are moved with git, and everything that names them follows: imports, dotted names, paths in
docs. What a module defines is renamed there and in every module that imports it. Names and words
are renamed in the files that their row names. A row that was applied before is left alone, so the
same map can be applied again to a newer tree.

Nothing is written unless every row can be applied.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).parent.parent
# Where modules are imported from; the first that fits. Short names in prose leave the package out.
SOURCES = ("src/", "guest/src/", "guest/tests/", "tests/", "examples/queue-worker/", "")
PROSE_ROOTS = ("src/forewarn/",)
# What was recorded stays as it was recorded; a changelog and a map speak of old words.
NOT_TOUCHED = ("tests/fixtures/", "CHANGELOG.md", "tools/word_map.toml", "tests/tools/")
TEXTS = (".py", ".md", ".toml", ".sql", ".yaml", ".yml", ".service", ".sh", ".txt", ".j2", "")

Files = dict[str, str]


class BadRow(Exception):  # noqa: N818 - a refusal, and no error of the program
    """A row of the map that does not fit the tree; says which and why."""


@dataclass(frozen=True, slots=True)
class Row:
    """One name or word that changes in some files."""

    old: str
    new: str
    where: tuple[str, ...]
    joins: bool = False  # the new word is there already, and means the same
    optional: bool = False  # prose that may have been written anew
    raw: bool = False  # a word that stands in code too


@dataclass(frozen=True, slots=True)
class WordMap:
    """Every row of a map, by its kind."""

    packages: Mapping[str, str]
    moves: Mapping[str, str]
    defined: Mapping[str, Mapping[str, str]]
    names: tuple[Row, ...]
    words: tuple[Row, ...]


@dataclass(slots=True)
class Work:
    """The tree as it will be, what was done to it, and which rows could not be applied."""

    files: Files
    moved: dict[str, str] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    before: int = 0  # rows that were applied earlier


def read_map(text: str) -> WordMap:
    """The map from its TOML text."""
    table = tomllib.loads(text)

    def rows(kind: str) -> tuple[Row, ...]:
        found: list[dict[str, Any]] = table.get(kind, [])
        return tuple(Row(**{**row, "where": tuple(row["where"])}) for row in found)

    return WordMap(
        packages=table.get("packages", {}),
        moves=table.get("moves", {}),
        defined=table.get("defined", {}),
        names=rows("names"),
        words=rows("words"),
    )


def apply(word_map: WordMap, files: Files) -> Work:
    """The tree after every row of the map that fits it."""
    work = Work(dict(files))
    _move(work, word_map.moves)
    for path, sentence in word_map.packages.items():
        if f"{path}/__init__.py" not in work.files:
            work.files[f"{path}/__init__.py"] = f'"""{sentence}"""\n'
            work.done.append(f"package {path}")
    for path, names in word_map.defined.items():
        for old, new in names.items():
            _attempt(work, f"{path}: {old} -> {new}", lambda: _define(work, path, old, new))  # noqa: B023
    for row in word_map.names:
        _attempt(work, f"name {row.old} -> {row.new}", lambda: _replace(work, row, _in_names))  # noqa: B023
    for row in word_map.words:
        _attempt(work, f"word {row.old} -> {row.new}", lambda: _replace(work, row, _in_words))  # noqa: B023
    return work


def _attempt(work: Work, row: str, change: Callable[[], bool]) -> None:
    try:
        changed = change()
    except BadRow as why:
        work.refused.append(f"{row}: {why}")
        return
    if changed:
        work.done.append(row)
    else:
        work.before += 1


# Tokens.


@dataclass(frozen=True, slots=True)
class Piece:
    """A name of the code, or a comment or string, with its place in the text."""

    start: int
    text: str
    name: bool
    after: str  # the token before it
    before: str  # the token after it
    owner: str  # what it is an attribute of

    @property
    def keyword(self) -> bool:
        """True for the name of an argument in a call, or of one with a default."""
        return self.before == "=" and self.after in ("(", ",", "*")


def pieces(text: str) -> Iterator[Piece]:
    """The names, comments and strings of a Python text, in their order."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    kinds = (tokenize.NAME, tokenize.OP, tokenize.COMMENT, tokenize.STRING, tokenize.NUMBER)
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type in kinds]
    for at, token in enumerate(tokens):
        if token.type not in (tokenize.OP, tokenize.NUMBER):
            yield Piece(
                starts[token.start[0] - 1] + token.start[1],
                token.string,
                token.type == tokenize.NAME,
                tokens[at - 1].string if at else "",
                tokens[at + 1].string if at + 1 < len(tokens) else "",
                tokens[at - 2].string if at > 1 and tokens[at - 1].string == "." else "",
            )


def rewritten(text: str, change: Callable[[Piece], str]) -> str:
    """The text with every piece as `change` wants it."""
    parts: list[str] = []
    end = 0
    for piece in pieces(text):
        new = change(piece)
        if new != piece.text:
            parts += [text[end : piece.start], new]
            end = piece.start + len(piece.text)
    return "".join([*parts, text[end:]])


def in_braces(string: str, change: Callable[[str], str]) -> str:
    """A formatted string, with the code in its braces changed."""
    return re.sub(r"\{[^{}]*\}", lambda found: change(found[0]), string)


def _word(word: str) -> str:
    """A pattern of a word by itself, not within another."""
    begin = r"(?<![\w-])" if word[0].isalnum() else ""
    end = r"(?![\w-])" if word[-1].isalnum() else ""
    return f"{begin}{re.escape(word)}{end}"


def _reworded(text: str, old: str, new: str) -> str:
    """The text with the new word for the old one. A new word that holds the old one stays."""
    if old not in text:
        return text
    return re.sub(f"{_word(new)}|{_word(old)}", lambda _: new, text)


def _bare(old: str) -> re.Pattern[str]:
    """A name by itself, not one of something."""
    return re.compile(rf"(?<![\w.]){re.escape(old)}(?!\w)")


# Modules that move.


def dotted(path: str) -> str:
    """The name under which a module is imported."""
    root = next(source for source in SOURCES if path.startswith(source))
    parts = PurePosixPath(path.removeprefix(root)).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _move(work: Work, moves: Mapping[str, str]) -> None:
    now: dict[str, str] = {}
    for old, new in moves.items():
        is_old, is_new = (bool(_fitting(work.files, path)) for path in (old, new))
        if is_old and not is_new:
            now[old] = new
        elif is_new and not is_old:
            work.before += 1
        else:
            work.refused.append(f"{old} -> {new}: {'both are there' if is_old else 'neither is'}")
    for old, new in now.items():
        for path in _fitting(work.files, old):
            there = f"{new.rpartition('/')[0]}/{path.rpartition('/')[2]}" if "*" in old else new
            work.files[there] = work.files.pop(path)
            work.moved[path] = there
        work.done.append(f"{old} -> {new}")
    modules = {dotted(old): dotted(new) for old, new in now.items() if old.endswith(".py")}
    if not now:
        return
    in_prose, dots = _replacing(_prose_names(now)), _replacing(modules)
    for path, text in work.files.items():
        text = _in_prose(path, dots(text), in_prose)  # noqa: PLW2901 - one step after the other
        work.files[path] = _imports_moved(text, modules) if path.endswith(".py") else text


def _fitting(files: Files, path: str) -> list[str]:
    """The file of that path; with a star in its name, every such file of its folder."""
    folder, _, pattern = path.rpartition("/")
    names = (name for name in files if name.rpartition("/")[0] == folder)
    return [name for name in names if fnmatchcase(name.rpartition("/")[2], pattern)]


def _replacing(names: Mapping[str, str]) -> Callable[[str], str]:
    """What replaces every name that stands for itself, longest first and each once."""
    if not names:
        return lambda text: text
    any_of = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![\w./-])(?:{any_of})(?![\w-])")
    return lambda text: pattern.sub(lambda found: names[found[0]], text)


def _prose_names(moves: Mapping[str, str]) -> dict[str, str]:
    """How prose names what moves: by its path, from the root or from the package, or with dots."""
    names: dict[str, str] = {}
    for old, new in moves.items():
        names[old] = new
        if old.startswith("src/") and new.startswith("src/"):
            names[old.removeprefix("src/")] = new.removeprefix("src/")
        root = next((root for root in PROSE_ROOTS if old.startswith(root)), None)
        if root is None or not new.startswith(root):
            continue
        short_old, short_new = (path.removeprefix(root) for path in (old, new))
        if "/" not in short_old:
            continue
        names[short_old] = short_new
        if old.endswith(".py"):
            plain_old, plain_new = (path.removesuffix(".py") for path in (short_old, short_new))
            names[plain_old] = plain_new
            names[plain_old.replace("/", ".")] = plain_new.replace("/", ".")
            names.update(_imported_in_text(dotted(old), dotted(new)))
    return names


def _imported_in_text(old: str, new: str) -> dict[str, str]:
    """`from package import module` in a program that is a text of another; its name there stays."""
    (package, _, name), (there, _, new_name) = old.rpartition("."), new.rpartition(".")
    as_name = "" if new_name == name else f" as {name}"
    return {f"from {package} import {name}": f"from {there} import {new_name}{as_name}"}


def _in_prose(path: str, text: str, change: Callable[[str], str]) -> str:
    """A text with its prose changed; the prose of a program are its comments and strings."""
    if not path.endswith(".py") or change(text) == text:
        return change(text)
    return rewritten(text, lambda piece: piece.text if piece.name else change(piece.text))


def _imports_moved(text: str, modules: Mapping[str, str]) -> str:
    """`from package import module`, where the module has moved; its name in the file follows."""
    found = [
        node
        for node in _imports(text)
        if isinstance(node, ast.ImportFrom)
        and any(f"{node.module}.{alias.name}" in modules for alias in node.names)
    ]
    follows: dict[str, str] = {}
    lines = text.splitlines(keepends=True)
    for node in found:
        kept = [alias for alias in node.names if f"{node.module}.{alias.name}" not in modules]
        imports = [f"from {node.module} import {_listed(kept)}"] if kept else []
        for alias in node.names:
            new = modules.get(f"{node.module}.{alias.name}")
            if new is None:
                continue
            package, _, name = new.rpartition(".")
            local = alias.asname or _local(text, alias.name, name)
            follows.update({alias.name: name} if local == name else {})
            as_name = "" if local == name else f" as {local}"
            begin = f"from {package} import" if package else "import"
            imports.append(f"{begin} {name}{as_name}")
        first, end = node.lineno - 1, node.end_lineno or node.lineno
        indent = " " * node.col_offset
        comment = re.search(r"  #.*", "".join(lines[first:end]))
        tail = comment[0] if comment else ""
        lines[first:end] = [""] * (end - first)
        lines[first] = "".join(f"{indent}{line}{tail}\n" for line in imports)
    renamed = "".join(lines)
    for old, new in follows.items():
        renamed = _name_follows(renamed, old, new)
    return renamed


def _listed(names: list[ast.alias]) -> str:
    return ", ".join(f"{n.name} as {n.asname}" if n.asname else n.name for n in names)


def _local(text: str, old: str, new: str) -> str:
    """The new name of a module in a file, unless something else there has it or the old one."""
    if old == new:
        return new
    bound = _bound(_tree(text))
    taken = any(piece.name and piece.text == new and piece.after != "." for piece in pieces(text))
    return old if taken or old in bound else new


def _bound(tree: ast.Module) -> set[str]:
    """Names that a file gives to something of its own: arguments, variables, functions, classes."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
    return names


def _name_follows(text: str, old: str, new: str) -> str:
    """A name of the file itself, wherever the file uses it; `old` in backticks is prose for it."""

    def change(piece: Piece) -> str:
        if piece.name:
            own = piece.text == old and piece.after != "." and not piece.keyword
            return new if own else piece.text
        prose = re.sub(rf"`{re.escape(old)}(?=[`.(])", f"`{new}", piece.text)
        if not piece.text.lower().startswith(("f'", 'f"', "rf", "fr")):
            return prose
        return in_braces(prose, lambda code: _bare(old).sub(new, code))

    return rewritten(text, change)


# What modules define.


def _define(work: Work, path: str, old: str, new: str) -> bool:
    """Rename what a module defines, there and in every module that imports it."""
    if path not in work.files:
        raise BadRow("there is no such file")
    names = _top_names(_tree(work.files[path]))
    if old not in names and new in names:
        return False
    if old not in names:
        raise BadRow("the file defines no such name")
    importers, through = _importers(work.files, path, old)
    for file in importers:
        tree = _tree(work.files[file])
        if new in _bound(tree) or new in _top_names(tree):
            raise BadRow(f"{file} has a {new} already")
        if file != path and old in _bound(tree):
            raise BadRow(f"{file} has a {old} of its own")
    for file in importers:
        work.files[file] = _exported(_name_follows(work.files[file], old, new), old, new)
    for file, module in through:
        work.files[file] = _attribute_follows(work.files[file], module, old, new)
    full, short = dotted(path), dotted(path).removeprefix("forewarn.")
    owners = (f"{full}.", f"{short}.", f"{path.removeprefix('src/')}: ")
    change = _replacing({owner + old: owner + new for owner in owners})
    for file, text in work.files.items():
        work.files[file] = _in_prose(file, text, change) if old in text else text
    return True


def _importers(files: Files, path: str, name: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Files that have a name of a module as their own, and those that have it through a module.

    A module that imports the name is one from which others may import it in turn.
    """
    importers = [path]
    through: list[tuple[str, str]] = []
    texts = {file: text for file, text in files.items() if file.endswith(".py") and name in text}
    for importer in importers:  # grows
        for file, text in texts.items():
            direct, modules = _imports_of(text, dotted(importer), name)
            if direct and file not in importers:
                importers.append(file)
            through += [(file, module) for module in modules]
    return importers, through


@cache
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def _imports(text: str) -> tuple[ast.Import | ast.ImportFrom, ...]:
    nodes = ast.walk(_tree(text))
    return tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))


def _top_names(tree: ast.Module) -> set[str]:
    names = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def _imports_of(text: str, module: str, name: str) -> tuple[bool, set[str]]:
    """Whether a file imports a name from a module, and the names that the module has in it."""
    direct, through = False, set()
    package, _, last = module.rpartition(".")
    for node in _imports(text):
        if isinstance(node, ast.ImportFrom) and node.module == module:
            direct = direct or any(a.name == name for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == package:
            through |= {a.asname or a.name for a in node.names if a.name == last}
        elif isinstance(node, ast.Import):
            through |= {a.asname or a.name for a in node.names if a.name == module}
    return direct, through


def _attribute_follows(text: str, module: str, old: str, new: str) -> str:
    """`module.old` in code, and in prose."""
    pattern = re.compile(rf"(?<![\w.]){re.escape(module)}\.{re.escape(old)}(?!\w)")
    return pattern.sub(f"{module}.{new}", text)


def _exported(text: str, old: str, new: str) -> str:
    """The same name in `__all__`."""
    listed = re.search(r"^__all__ = [\[(].*?[\])]", text, re.MULTILINE | re.DOTALL)
    if listed is None:
        return text
    return text.replace(listed[0], listed[0].replace(f'"{old}"', f'"{new}"'))


# Names and words in some files.


def _replace(work: Work, row: Row, change: Callable[[str, str, Row], str]) -> bool:
    files = [p for p in work.files if any(fnmatchcase(p, where) for where in row.where)]
    texts = {path: change(path, work.files[path], row) for path in files}
    changed = [path for path in files if texts[path] != work.files[path]]
    there = any(re.search(_word(row.new), work.files[path]) for path in files)
    if not changed and not there and not row.optional:
        raise BadRow("neither word is in the files of the row")
    if changed and there and not row.joins:
        raise BadRow("the new word is in these files already (joins = true, if it means the same)")
    work.files.update(texts)
    return bool(changed)


def _in_names(path: str, text: str, row: Row) -> str:
    """Every name of the code that is the old one: variables, attributes, arguments.

    `owner.name` is the name as an attribute of that owner alone.
    """
    owner, _, old = row.old.rpartition(".")
    if not path.endswith(".py") or old not in text:
        return text
    new = row.new.rpartition(".")[2]

    def change(piece: Piece) -> str:
        if piece.name:
            return new if piece.text == old and piece.owner.endswith(owner) else piece.text
        if not piece.text.lower().startswith(("f'", 'f"', "rf", "fr")):
            return piece.text
        name = re.compile(rf"\b{re.escape(row.old)}\b")
        return in_braces(piece.text, lambda code: name.sub(row.new, code))

    return rewritten(text, change)


def _in_words(path: str, text: str, row: Row) -> str:
    """The old word in comments and strings; in a file that is no program, everywhere."""
    if row.raw:
        return _reworded(text, row.old, row.new)
    return _in_prose(path, text, lambda prose: _reworded(prose, row.old, row.new))


# The repository.


def touched(path: str) -> bool:
    """True for a file that the map may change. Programs among the fixtures follow the modules."""
    name = PurePosixPath(path)
    if path.startswith(NOT_TOUCHED) and (name.suffix != ".py" or path.startswith("tests/tools/")):
        return False
    return name.suffix in TEXTS


def load(root: Path) -> Files:
    """The files of the repository that have words in them."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z"], capture_output=True, text=True, check=True
    )
    paths = [path for path in listed.stdout.split("\0") if path and (root / path).is_file()]
    return {path: (root / path).read_text(encoding="utf-8") for path in paths if touched(path)}


def write(root: Path, before: Files, work: Work) -> list[str]:
    """Move with git, write what differs; the paths of what was written."""
    for old, new in work.moved.items():
        (root / new).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "-C", str(root), "mv", old, new], check=True)
    came_from = {new: old for old, new in work.moved.items()}
    changed = [
        path
        for path, text in work.files.items()
        if before.get(came_from.get(path, path)) != text or path in came_from
    ]
    for path in changed:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(work.files[path], encoding="utf-8")
    subprocess.run(["git", "-C", str(root), "add", "--", *changed], check=True)
    return changed


def tidy(root: Path, changed: list[str]) -> None:
    """Sort imports and break lines anew where names have another length."""
    programs = [path for path in changed if path.endswith(".py")]
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--quiet", "--select", "I", "--fix-only"], ["format", "--quiet"]):
        if programs:
            subprocess.run([*ruff, *command, "--", *programs], cwd=root, check=True)
    if programs:
        subprocess.run(["git", "-C", str(root), "add", "--", *programs], check=True)


def main() -> int:
    """Apply the map, or say why not. With `--partly`, rows that do not fit are left out."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--map", type=Path, default=ROOT / "tools/word_map.toml")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--check", action="store_true", help="say what would be done, and stop")
    parser.add_argument("--partly", action="store_true", help="leave out the rows that do not fit")
    options = parser.parse_args()
    files = load(options.root)
    work = apply(read_map(options.map.read_text(encoding="utf-8")), files)
    for line in work.done:
        print(line)
    for line in work.refused:
        print(f"refused: {line}", file=sys.stderr)
    print(f"{len(work.done)} rows to apply, {work.before} were before, {len(work.refused)} refused")
    if work.refused and not options.partly:
        return 1
    if not options.check:
        tidy(options.root, write(options.root, files, work))
    return 0


if __name__ == "__main__":
    sys.exit(main())
