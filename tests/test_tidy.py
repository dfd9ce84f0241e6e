"""The house rules that a program can check, over every file that belongs to the repository."""

from __future__ import annotations

import ast
import gzip
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
FUNCTION_LINES_MAX = 60
# 500 is a hint; one idea is not cut in two for a line count.
FILE_LINES_MAX = 800
COLUMNS_MAX = 100

# Words that the glossary replaces, and names that say nothing; checked in names, not in prose.
WORDS_NOT_USED = frozenset(
    {"notification", "payload", "state", "job", "rollout", "cron", "node", "cluster"}
    | {"subscribed", "muted", "cooling", "util", "utils", "helper", "helpers", "manager"}
)
# In pieces, so that this file does not hold what it looks for.
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b")
MACHINE_PATHS = re.compile(r"(?<![\w.}])/(?:wo" + r"rk|ro" + r"ot)/|py" + "env")
REGISTRIES = re.compile(
    "|".join(("py" + r"pi\.org", "python" + "hosted", "index" + "-url", "npm" + "js"))
)

PRAGMA = re.compile(r"  # (noqa|type: ignore).*$")

# Where everything may be caught and kept, and how often at most: the top of a loop or of one piece
# of work.
CATCHES_EVERYTHING = {
    "src/forewarn/adapters/libvirt/connection.py": 1,  # a thread's failure is its waiter's
    "src/forewarn/adapters/libvirt/hypervisor.py": 1,  # the top of a loop that mends
    "src/forewarn/api/console/live_updates.py": 1,  # the loop that draws: logged, counted
    "src/forewarn/api/link/at_once.py": 2,  # read, answered: it goes the ordinary way, logged once
    "src/forewarn/control/inventory/apply_runner.py": 2,  # a slice, what is left: logged once
    "src/forewarn/control/loops.py": 2,  # the top of a tick and of a save: logged once, counted
    "src/forewarn/control/hosts/membership.py": 1,  # places of hosts that left: logged once
    "src/forewarn/control/hosts/turns.py": 1,  # one part of a turn: the host is heard all the same
    "src/forewarn/control/webhook_sender.py": 1,  # one webhook's step: the others go on
    "src/forewarn/control/writer.py": 2,  # one command, and one batch, must not cost the others
    "src/forewarn/endpoint/endpoint.py": 1,  # the top of a guest's request
    "src/forewarn/endpoint/protocol.py": 1,  # the top of a guest's request
    "src/forewarn/endpoint/fair_turns.py": 1,  # one connection's turn: the others go on
    "src/forewarn/host/daemon.py": 2,  # a host's step, heartbeat: the others go on
    "src/forewarn/host/feed_reader.py": 1,  # one answer of control
    "src/forewarn/host/in_process_hosts.py": 1,  # one host of a process: the others go on
    "src/forewarn/testing/attached.py": 1,  # the caller's own restart: the test is told
    "src/forewarn/host/vm_watcher.py": 4,  # one look, arrangement, sighting, adoption
}
# Where tests may pause, and how often at most: between two looks at a condition with a deadline.
PAUSES = {
    "tests/support/libvirt_world.py": 1,
    "tests/support/waiting.py": 2,
}
# Where tests compare a wall time with a limit, and how often at most: it only ends a hang.
WALL_TIMES = {
    "guest/tests/test_discovery.py": 1,
    "tests/testing/test_cloud_misuse.py": 1,
    "tests/verify/test_hostile_endpoints.py": 3,
}
# What the product defines and does not use itself, and why it is there. All else that only tests
# use belongs to them.
USED_FROM_OUTSIDE = {
    # By the frameworks that call them.
    *("makefile", "main_loop", "wait_closed"),
    *("pytest_addoption", "pytest_configure", "pytest_runtest_makereport"),
    # By people who test with it: a part of `forewarn.testing`.
    "document_url",
    # By the runner of checks, which finds them by their table.
    *("get_content_type", "forwarded_otherwise"),
    # The simulated hypervisor as a machine that tests look at and break.
    *("fail_next", "slow_next", "disks_lost"),
    # The command log in its written form, by which a world is decided anew.
    *("entry_written", "entry_read", "answer_written", "refusal_written", "refusal_read"),
    # The election among several controls: its rules are proved first, and no control bids yet.
    "next_step",
    # Looked at by tests of what counts by size, address and type.
    *("size_b", "shared_address", "type_of"),
}
WALL_TIME = re.compile(r"\b(?:monotonic|perf_counter|time\.time)\(\) - \w+ <")


@cache
def files() -> tuple[Path, ...]:
    """Every file of the repository; without git, of the folders that belong to it."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        folders = ("src", "tests", "bench", "docs")
        paths = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    return tuple(path for path in paths if path.is_file() and "__pycache__" not in path.parts)


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def text_of(path: Path) -> str:
    if path.suffix == ".gz":  # data folders: what is packed in them is looked at too
        return gzip.decompress(path.read_bytes()).decode("latin-1")
    if path.suffix == ".png":
        return ""  # pixels
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


def python(*folders: str) -> Iterator[Path]:
    for path in files():
        if path.suffix == ".py" and (not folders or shown(path).startswith(folders)):
            yield path


def found(pattern: re.Pattern[str]) -> list[str]:
    """Where a pattern occurs: `file:line: text`."""
    return [
        f"{shown(path)}:{number}: {line.strip()}"
        for path in files()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if pattern.search(line)
    ]


def test_functions_have_at_most_60_lines() -> None:
    too_long = [
        f"{shown(path)}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1}"
        for path in python()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert too_long == []


def test_files_have_at_most_800_lines_of_100_columns() -> None:
    lengths = {shown(path): text_of(path).splitlines() for path in python()}
    assert [name for name, lines in lengths.items() if len(lines) > FILE_LINES_MAX] == []
    wide = [
        f"{name}:{number}"
        for name, lines in lengths.items()
        for number, line in enumerate(lines, 1)
        if len(PRAGMA.sub("", line)) > COLUMNS_MAX
    ]
    assert wide == []


def test_every_module_says_what_lives_in_it() -> None:
    silent = [shown(path) for path in python() if not ast.get_docstring(tree_of(path))]
    assert silent == []


def names_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The names that a module gives: functions, classes, arguments, variables, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def words_of(name: str) -> set[str]:
    """`EventKind` and `event_kind` are both event and kind."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def test_names_use_the_words_of_the_glossary() -> None:
    wrong = [
        f"{shown(path)}:{line} {name}"
        for path in python("src/")
        for line, name in names_in(tree_of(path))
        if words_of(name) & WORDS_NOT_USED
    ]
    wrong += [shown(path) for path in python("src/") if words_of(path.stem) & WORDS_NOT_USED]
    assert wrong == []


def test_nothing_is_left_unfinished() -> None:
    assert found(UNFINISHED) == []


def test_no_file_names_a_path_of_somebodys_machine_or_a_package_registry() -> None:
    assert found(MACHINE_PATHS) == []
    assert found(REGISTRIES) == []


def catches_everything(node: ast.AST) -> bool:
    """True for a handler that keeps whatever comes; one that undoes and raises again does not."""
    if not isinstance(node, ast.ExceptHandler):
        return False
    kind = node.type.id if isinstance(node.type, ast.Name) else None
    if node.type is not None and kind not in ("Exception", "BaseException"):
        return False
    return not any(isinstance(n, ast.Raise) and n.exc is None for n in ast.walk(node))


def pauses(node: ast.AST) -> bool:
    """True for a call of sleep; `sleep(0)` is a turn of the event loop and no pause."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    nothing = [isinstance(arg, ast.Constant) and arg.value == 0 for arg in node.args]
    return node.func.attr == "sleep" and nothing != [True]


def too_many(
    folder: str, wanted: Callable[[ast.AST], bool], allowed: Mapping[str, int]
) -> dict[str, int]:
    """Files of a folder that have more such nodes than they may, with their number."""
    counts = {shown(path): sum(map(wanted, ast.walk(tree_of(path)))) for path in python(folder)}
    return {name: count for name, count in counts.items() if count > allowed.get(name, 0)}


def test_everything_is_caught_only_at_the_top_of_a_loop_or_a_piece_of_work() -> None:
    assert too_many("src/", catches_everything, CATCHES_EVERYTHING) == {}


def test_tests_wait_for_conditions_and_not_for_time() -> None:
    assert too_many("tests/", pauses, PAUSES) == {}


def test_no_test_asserts_a_wall_time_that_a_busy_machine_can_exceed() -> None:
    places = [found_at.partition(":")[0] for found_at in found(WALL_TIME)]
    assert Counter(p for p in places if "tests/" in p) == Counter(WALL_TIMES)


def test_every_named_query_is_used() -> None:
    sql = text_of(ROOT / "src/forewarn/tables/sql/queries.sql")
    named = set(re.findall(r"^-- name: (\w+)$", sql, re.MULTILINE))
    code = "\n".join(
        text_of(path)
        for path in (*python("src/forewarn/adapters/"), *python("src/forewarn/tables/"))
    )
    assert len(named) > 1
    assert {name for name in named if f'"{name}"' not in code} == set()


def defined(tree: ast.Module) -> Iterator[str]:
    """The functions, methods and classes of a module that no framework was given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            given = any("." in ast.unparse(one) for one in node.decorator_list)
            if not given and not node.name.startswith("__"):
                yield node.name


def test_the_product_has_nothing_that_only_tests_use() -> None:
    product = ("src/", "guest/src/")
    read = (".py", ".html", ".toml")
    texts = [text_of(p) for p in files() if shown(p).startswith(product) and p.suffix in read]
    used = Counter(word for text in texts for word in re.findall(r"\w+", text))
    tested = {
        word for p in python("tests/", "guest/tests/") for word in re.findall(r"\w+", text_of(p))
    }
    only_tested = {
        f"{shown(path)}: {name}"
        for path in python(*product)
        for name in defined(tree_of(path))
        if used[name] == 1 and name in tested and name not in USED_FROM_OUTSIDE
    }
    assert sorted(only_tested) == [], "move it to tests/support, or say who uses it"
