"""The words of the repository: one public class for each name, and plain sentences."""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGES = {"forewarn": ROOT / "src/forewarn", "forewarn_guest": ROOT / "guest/src/forewarn_guest"}

# Phrases that slow a reader down; an actor has a name: the caller, the host, the writer.
PHRASES = re.compile(
    r"\bdifference in case is none\b|\bthat (?:is|are) none\b|(?<!there )\bis none(?:[.;,]| that\b)"
    r"|\bgone on with\b|\bother hands\b|\b(?:nobody|somebody|whoever|anybody|everybody)\b"
    r"|\b(?:no one|someone|anyone|everyone)\b",
    re.IGNORECASE,
)
# From Python 3.12 on the text of an f-string comes in pieces of a type of its own.
PROSE = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
# Where people read beside the sources.
ALSO_READ = ("guest/src", "docs", "README.md", "CONTRIBUTING.md", "examples", "packaging", "bundle")
READ = (".py", ".md", ".toml", ".sql", ".yml", ".yaml", ".sh", ".service", ".html", ".js", ".css")

PARTICIPLE = re.compile(
    r"_?(?:[A-Z][a-z]*[^e\W]ed|Begun|Found|Given|Gone|Grown|Heard|Held|Kept|Known|Left|Lost|Made"
    r"|Read|Said|Seen|Sent|Shown|Taken|Told|Unknown|Written)"
)
# Their names are on the wire.
LINK_MESSAGES = {"Adopted", "Claimed", "Ended", "Held", "Joined", "Sighted"}
# Classes that are still called so. The list may only become shorter.
PARTICIPLES: set[str] = {
    "Applied",
    "Failed",
    "Gone",
    "Kept",
    "Keyed",
    "Misused",
    "Observed",
    "Read",
    "Refused",
    "Renewed",
    "Skipped",
    "Stalled",
    "Stopped",
    "Unfinished",
    "Unknown",
    "_Answered",
    "_Begun",
    "_Grown",
    "_Held",
    "_Known",
    "_Lost",
    "_Prepared",
    "_Read",
    "_Refused",
    "_Replaced",
    "_Shown",
    "_Told",
}


@cache
def contracts() -> list[dict[str, Any]]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    return found


@cache
def layers() -> dict[str, int]:
    """The parts of `forewarn`, and how high in its layers each stands."""
    (listed,) = (one["layers"] for one in contracts() if one["type"] == "layers")
    return {
        part.strip().strip("()"): -depth
        for depth, layer in enumerate(listed)
        for part in layer.split("|")
    }


@cache
def forbidden() -> frozenset[tuple[str, str]]:
    """Which part of `forewarn` must not import which, beyond the layers."""
    return frozenset(
        (source.removeprefix("forewarn."), target.removeprefix("forewarn."))
        for one in contracts()
        if one["type"] == "forbidden"
        for source, target in itertools.product(one["source_modules"], one["forbidden_modules"])
    )


def meet(one: str, other: str) -> bool:
    """True if one part may import the other, so that a reader can meet names of both."""
    if one == other:
        return True
    if one not in layers() or other not in layers() or layers()[one] == layers()[other]:
        return False
    upper, lower = sorted((one, other), key=layers().__getitem__, reverse=True)
    return (upper, lower) not in forbidden()


def public_classes() -> Iterator[tuple[str, str, str]]:
    """The public classes: name, part, and where it is."""
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            inside = path.relative_to(folder)
            part = inside.parts[0].removesuffix(".py") if package == "forewarn" else package
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield node.name, part, f"{package}/{inside.as_posix()}"


def test_no_two_public_classes_that_can_meet_share_a_name() -> None:
    places: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, part, where in public_classes():
        places[name].append((part, where))
    shared = [
        f"{name}: {first[1]} and {second[1]}"
        for name, found in places.items()
        for first, second in itertools.combinations(found, 2)
        if meet(first[0], second[0])
    ]
    assert not shared, "\n".join(shared)


def test_what_can_meet_is_what_the_layers_say() -> None:
    assert meet("core", "control")
    assert meet("cli", "verify")
    assert meet("forewarn_guest", "forewarn_guest")
    assert not meet("control", "endpoint")  # side by side
    assert not meet("verify", "core")  # by a contract of its own
    assert not meet("core", "forewarn_guest")


def test_the_glossary_has_at_most_40_rows() -> None:
    page = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")][2:]
    assert 0 < len(rows) <= 40
    assert [row for row in rows if row.count("|") != 4] == []


def test_the_glossary_has_only_words_that_the_code_has() -> None:
    page = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")][2:]
    said = [word.strip(" ()") for row in rows for word in row.split("|")[1].split(",")]
    paths = [path for folder in PACKAGES.values() for path in folder.rglob("*.py")]
    code = re.sub(r"[\W_]+", " ", "\n".join(path.read_text(encoding="utf-8") for path in paths))
    words = set(code.lower().split())
    assert len(said) > 40
    assert [one for one in said if not set(re.findall(r"[a-z]+", one.lower())) <= words] == []


def prose_of(path: Path) -> str:
    """What people read in a file: of a program its comments and strings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join(token.string for token in tokens if token.type in PROSE)


def phrases() -> list[str]:
    """Where the phrases stand, and what they say."""
    found: list[str] = []
    for folder in ("src/forewarn", *ALSO_READ):
        root = ROOT / folder
        for path in sorted(root.rglob("*")) if root.is_dir() else (root,):
            if path.suffix in READ and "node_modules" not in path.parts:
                place = path.relative_to(ROOT).as_posix()
                found += [f"{place}: {one[0]}" for one in PHRASES.finditer(prose_of(path))]
    return found


def test_plain_sentences_name_the_actor() -> None:
    assert phrases() == []


def test_a_phrase_is_found_in_prose_and_not_in_names() -> None:
    assert PHRASES.search("A token that is none.")
    assert PHRASES.search("Nobody waits.")
    assert PHRASES.search("Fact 7 is none that this agent knows.")
    assert not PHRASES.search("There is none here")
    assert not PHRASES.search("nobody_left = 1")


def participles() -> set[str]:
    """The classes whose whole name is a participle: what was done to a thing, not what it is."""
    found: set[str] = set()
    for folder in PACKAGES.values():
        for path in folder.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and PARTICIPLE.fullmatch(node.name):
                    found.add(node.name)
    return found


def test_a_class_is_called_what_it_is_and_not_what_was_done_to_it() -> None:
    found = participles() - LINK_MESSAGES
    assert sorted(found - PARTICIPLES) == [], "name the thing, like CheckResult for Checked"
    assert sorted(PARTICIPLES - found) == [], "it is gone: take it out of the list"


def test_a_participle_is_a_whole_name() -> None:
    assert all(map(PARTICIPLE.fullmatch, ("Asked", "_Kept", "Shown", "_Told")))
    assert not any(map(PARTICIPLE.fullmatch, ("CheckResult", "TrackedEvent", "Feed", "Need")))
