"""The word map is applied whole or not at all, and a second time it changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.rename import ROOT, Files, Work, apply, load, read_map, touched

MAP = """
[packages]
"src/forewarn/core/shop" = "What is for sale."

[moves]
"src/forewarn/core/apples.py" = "src/forewarn/core/shop/fruit.py"
"src/forewarn/core/shop.py" = "src/forewarn/core/shop/counter.py"

[defined."src/forewarn/core/shop/fruit.py"]
Apple = "Fruit"

[[names]]
old = "rind"
new = "peel"
where = ["src/forewarn/core/shop/*.py", "tests/*.py"]

[[words]]
old = "not-ripe"
new = "unripe"
where = ["*.md", "src/*.py", "tests/*.py"]
"""
FRUIT = '''"""Apples; `Apple` is one."""

class Apple:
    rind = "not-ripe"

def peeled(apple: "Apple") -> str:
    return f"{apple.rind} {Apple.rind} rind"
'''
SHOP = '''"""Sells what `core.apples` and src/forewarn/core/apples.py have."""
from forewarn.core import apples, other
from forewarn.core.apples import Apple

def sell(one: Apple) -> Apple:
    print(apples.Apple, other.apples, one.rind)
    return one
'''
TEST = '''"""The counter."""
from forewarn.core.shop import Apple, sell

def test_it(fruit: int) -> None:
    from forewarn.core import apples
    sell(apples.Apple())
'''


def tree(**others: str) -> Files:
    files = {
        "src/forewarn/core/apples.py": FRUIT,
        "src/forewarn/core/shop.py": SHOP,
        "tests/test_shop.py": TEST,
        "docs/page.md": "`core/apples.py`, forewarn.core.shop.sell and not-ripe; a shop.\n",
    }
    return files | others


def applied(files: Files) -> Work:
    return apply(read_map(MAP), files)


def test_modules_move_and_whatever_names_them_follows() -> None:
    work = applied(tree())

    assert work.refused == []
    assert work.moved["src/forewarn/core/apples.py"] == "src/forewarn/core/shop/fruit.py"
    assert work.files["src/forewarn/core/shop/__init__.py"] == '"""What is for sale."""\n'
    counter = work.files["src/forewarn/core/shop/counter.py"]
    assert "`core.shop.fruit` and src/forewarn/core/shop/fruit.py have" in counter
    assert "from forewarn.core import other\nfrom forewarn.core.shop import fruit\n" in counter
    assert "from forewarn.core.shop.fruit import Fruit\n" in counter
    assert "(fruit.Fruit, other.apples, one.peel)" in counter
    page = work.files["docs/page.md"]
    assert page == "`core/shop/fruit.py`, forewarn.core.shop.counter.sell and unripe; a shop.\n"


def test_a_path_from_the_sources_with_what_is_in_the_file_follows() -> None:
    files = tree(**{"docs/map.py": 'ROW = "forewarn/core/apples.py: Apple"\n'})

    assert applied(files).files["docs/map.py"] == 'ROW = "forewarn/core/shop/fruit.py: Fruit"\n'


def test_a_module_keeps_its_local_name_where_a_file_has_another_thing_of_the_new_name() -> None:
    test = applied(tree()).files["tests/test_shop.py"]

    assert "from forewarn.core.shop.counter import Fruit, sell\n" in test
    assert "    from forewarn.core.shop import fruit as apples\n" in test
    assert "sell(apples.Fruit())" in test


def test_an_import_in_the_text_of_another_program_follows_and_keeps_its_local_name() -> None:
    files = tree(
        **{"tests/child.py": 'CODE = "from forewarn.core import apples\\napples.Apple()"\n'}
    )
    child = applied(files).files["tests/child.py"]

    assert "from forewarn.core.shop import fruit as apples\\napples.Apple()" in child


def test_names_change_in_code_and_words_in_prose_and_strings() -> None:
    fruit = applied(tree()).files["src/forewarn/core/shop/fruit.py"]

    assert '"""Apples; `Fruit` is one."""' in fruit
    assert 'peel = "unripe"' in fruit
    assert 'f"{apple.peel} {Fruit.peel} rind"' in fruit


def test_a_second_run_changes_nothing() -> None:
    once = applied(tree())
    twice = applied(once.files)

    assert (twice.done, twice.refused, twice.moved) == ([], [], {})
    assert twice.files == once.files
    assert twice.before == 5


def test_a_row_whose_old_word_is_missing_or_whose_new_word_is_taken_is_refused() -> None:
    gone = tree()
    del gone["src/forewarn/core/apples.py"]
    both = tree(**{"src/forewarn/core/shop/fruit.py": FRUIT})
    taken = tree(**{"src/forewarn/core/apples.py": FRUIT + "\nclass Fruit: ...\n"})
    joins = tree(**{"docs/other.md": "unripe\n"})

    assert "neither is" in applied(gone).refused[0]
    assert "both are there" in applied(both).refused[0]
    assert "fruit.py has a Fruit already" in applied(taken).refused[0]
    assert "joins = true" in applied(joins).refused[0]


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.rename", "--root", str(folder)]
    return subprocess.run(
        [*command, "--map", str(folder / "map.toml"), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_repository_is_changed_whole_or_not_at_all(tmp_path: Path) -> None:
    for path, text in tree().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    before = load(tmp_path)
    (tmp_path / "map.toml").write_text(MAP + '[defined."src/none.py"]\nA = "B"\n')

    refused = run(tmp_path)
    assert (refused.returncode, load(tmp_path)) == (1, before)
    assert "refused: src/none.py: A -> B: there is no such file" in refused.stderr

    (tmp_path / "map.toml").write_text(MAP)
    looked = run(tmp_path, "--check")
    assert (looked.returncode, load(tmp_path)) == (0, before)

    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "src/forewarn/core/apples.py").exists()
    assert (tmp_path / "src/forewarn/core/shop/fruit.py").is_file()
    assert "0 rows to apply, 5 were before, 0 refused" in run(tmp_path).stdout


def test_recordings_stay_as_they_were() -> None:
    assert not touched("tests/fixtures/link/1.0/conversation.json")
    assert not touched("CHANGELOG.md")
    assert touched("tests/fixtures/data_folders/make.py")


def test_the_committed_map_has_nothing_left_to_do() -> None:
    word_map = read_map((ROOT / "tools/word_map.toml").read_text(encoding="utf-8"))
    work = apply(word_map, load(ROOT))
    assert (work.done, work.refused) == ([], [])
    assert work.before > 400
