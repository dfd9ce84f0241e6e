"""TOML is read as the standard library reads it, with the line of every key."""

from __future__ import annotations

import importlib
import random
import sys
import time
from datetime import date, datetime
from datetime import time as time_of_day

import pytest

from forewarn_guest.errors import NotToml
from forewarn_guest.toml_parser import DEPTH_MAX, KEY_PARTS_MAX, TEXT_CHARS_MAX, Table, read

FUZZ_TEXTS = 6_000
FUZZ_SEED = 4

TEXTS = [
    "",
    "\n\n# only a comment",
    "a = 1",
    "a = 1 # and a comment",
    "a=1\r\nb=2\r\n",
    "a = 1\rb = 2",
    "a = 1 b = 2",
    "a",
    "a =",
    "= 1",
    "a = 1\na = 2",
    '"a b" = 1\n\'c "d"\' = 2\n"\\u00e9" = 3',
    "a.b.c = 1\na.b.d = 2",
    'a . "b.c" . d = 1',
    "a.b = 1\na = 2",
    "a = 1\na.b = 2",
    "a..b = 1",
    ".a = 1",
    "1 = 1\n2.3 = 4\n-_- = 5",
    "é = 1",
    # texts
    r'a = "\b\t\n\f\r\"\\\u0041\U0001F600"',
    r'a = "\x41"',
    r'a = "\u00"',
    r'a = "\uD800"',
    r'a = "\U00110000"',
    'a = "no end',
    'a = "no\nend"',
    "a = 'C:\\no\\escapes'",
    "a = 'no end",
    'a = "a\tb"',
    'a = "a\x01b"',
    'a = "a\x7fb"',
    "a = 'a\x01b'",
    'a = """\nfirst\nsecond"""',
    'a = """one \\\n   \n  two"""',
    'a = """one \\   \n  two"""',
    'a = """one \\ x"""',
    'a = """one \\',
    'a = """ "quotes" ""two"" """',
    'a = """x""""',
    'a = """x"""""',
    'a = """x""""""',
    'a = """',
    "a = '''\n'one' ''two'' '''",
    "a = '''x''''",
    "a = '''x'''''",
    "a = '''no end''",
    'a = """a\x02"""',
    'a = """\r\nline\r\n"""',
    "a = ''",
    'a = ""',
    'a = """"""',
    '"""a""" = 1',
    # numbers
    "a = +1\nb = -17\nc = 0\nd = 1_000\ne = +0\nf = -0",
    "a = 01",
    "a = 1__0",
    "a = _1",
    "a = 1_",
    "a = 0xDEAD_beef\nb = 0o755\nc = 0b1010",
    "a = 0x",
    "a = 0XFF",
    "a = +0x1",
    "a = 0o8",
    "a = 0x_1",
    "a = 1.5\nb = -0.01\nc = 5e+22\nd = 6.6E-3\ne = 1_0.0_1",
    "a = .5",
    "a = 5.",
    "a = 1.e5",
    "a = 1e",
    "a = inf\nb = -inf\nc = +nan",
    "a = infinity",
    "a = Inf",
    "a = 9223372036854775807\nb = -9223372036854775808",
    "a = true\nb = false",
    "a = True",
    "a = truely",
    "a = yes",
    # lists and inline tables
    "a = []\nb = [ 1, 2, ]\nc = [[1], ['x']]",
    "a = [ # why\n 1, # one\n\n 2 # two\n # end\n]",
    "a = [1 2]",
    "a = [,]",
    "a = [1,,2]",
    "a = [1",
    "a = [1,",
    "a = [1] x",
    "a = {}\nb = { x = 1, y.z = 2 }",
    "a = { x = 1, }",
    "a = { x = 1\n}",
    "a = { x = 1, x = 2 }",
    "a = { x = {y = 1}, x.z = 2 }",
    "a = { x.y = 1, x.z = 2 }",
    "a = { x.y = 1, x = 2 }",
    "a = { x = [\n1,\n2] }",
    "a = {x = 1}\na.y = 2",
    "a = {x.y = 1}\n[a.x]",
    "a = {x = 1}\n[a]",
    "a = {x = 1}\n[a.b]",
    "a = [{x = 1}]\n[[a]]",
    "a = [{x = 1}]\n[a.b]",
    "a = {",
    "a = { x = 1",
    "a = { , }",
    # tables
    "[a]\nx = 1\n[b]\nx = 2",
    "[a]\n[a]",
    "[a.b]\nx = 1\n[a]\ny = 2",
    "[a.b]\n[a]\n[a.b]",
    "[ a . 'b c' ]\nx = 1",
    "[a]]",
    "[a",
    "[]",
    "[a.]",
    "[a] x = 1",
    "[a] # fine",
    "[a]\nb.c = 1\n[a.b]",
    "[a]\nb.c = 1\n[a.b.d]\nx = 1",
    "[a]\nb.c = 1\n[a.b.c]",
    "[a.b.c]\nz = 9\n[a]\nb.c.t = 1",
    "[a.b.c]\nz = 9\n[a]\nb.t = 1",
    "a.b = 1\n[a.c]\nx = 1",
    "a.b = 1\n[a]",
    "a = 1\n[a]",
    "a = 1\n[a.b]",
    # lists of tables
    "[[a]]\nx = 1\n[[a]]\nx = 2",
    "[[a]]\n[a.b]\nx = 1\n[[a]]\n[a.b]\nx = 2",
    "[[a]]\n[[a.b]]\nx = 1\n[[a.b]]\nx = 2\n[[a]]\n[[a.b]]\nx = 3",
    "[[a]]\n[a]",
    "[a]\n[[a]]",
    "[[a.b]]\n[a]\nx = 1",
    "[[a.b]]\n[a]\nb.c = 1",
    "[[a.b]]\n[[a]]",
    "a = []\n[[a]]",
    "[[a]]\nb.c = 1\n[[a]]\nb.c = 2",
    "[[a]]\n[a.b]\n[a.b]",
    "[[a]",
    "[ [a] ]",
    "[[a]]]",
    "[[]]",
    "# a comment with a \x01 character",
    "a = [ # \x01\n]",
    "a = 1 \x01",
    "\ufeffa = 1",
    "a\u00a0= 1",
]
# fmt: off
PIECES = [
    "[", "]", "[[", "]]", "{", "}", "=", ".", ",", "#", "\n", "\r\n", " ", "\t", '"', "'", '"""',
    "'''", "\\", "\\n", "\\u00e9", "a", "b", "c", "a.b", "[a]\n", "[[a]]\n", "[a.b]\n", "x = 1",
    "\nb.c = 2\n", "1", "0x1f", "1.5", "true", "inf", "-", "_", "[1, 2]", "{x = 1}", "1e5", "é",
    "\x00", "\x7f", "\na = ", "\nb = ", "= {", "= [", '= "', "= '''", "[[a.b]]\n", "\n[b]\n",
]
# fmt: on


class _TooMuchError(Exception):
    """The standard library takes it, and this reader must refuse it."""


def of_the_standard_library(text: str) -> object:
    """What tomllib makes of a text; None for a refusal. Dates and big numbers are too much."""
    if sys.version_info < (3, 11):
        pytest.skip("This Python has no TOML reader to compare with.")
    tomllib = importlib.import_module("tomllib")
    try:
        value: object = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
    check_within_limits(value)
    return value


def check_within_limits(value: object) -> None:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            check_within_limits(item)
    if isinstance(value, (date, datetime, time_of_day)):
        raise _TooMuchError
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise _TooMuchError


def of_ours(text: str) -> object:
    """What this reader makes of a text; None for a refusal, which always has a line of it."""
    try:
        return read(text).plain()
    except NotToml as error:
        refusal = error
    assert 1 <= refusal.line <= text.count("\n") + 1
    assert refusal.message
    return None


def assert_same(text: str) -> None:
    found = of_ours(text)
    try:
        expected = of_the_standard_library(text)
    except _TooMuchError:
        expected = None
    assert repr(found) == repr(expected), text  # as texts: nan is not equal to itself


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_means_what_it_means_to_the_standard_library(text: str) -> None:
    assert_same(text)


def test_random_texts_mean_the_same_or_are_refused_by_both() -> None:
    dice = random.Random(FUZZ_SEED)
    read_by_both = 0
    for _ in range(FUZZ_TEXTS):
        if dice.random() < 0.5:
            text = "".join(dice.choices(PIECES, k=dice.randrange(1, 14)))
        else:
            text = "\n".join(dice.choices(TEXTS, k=dice.randrange(1, 4)))
            cut = dice.randrange(len(text) + 1)
            text = text[:cut] + dice.choice(PIECES) + text[cut + dice.randrange(3) :]
        assert_same(text)
        read_by_both += of_ours(text) is not None
    assert read_by_both > FUZZ_TEXTS // 50


def test_every_random_text_is_a_table_or_the_named_refusal() -> None:
    dice = random.Random(FUZZ_SEED)
    for _ in range(FUZZ_TEXTS):
        text = "".join(dice.choices(PIECES, k=dice.randrange(1, 40)))
        found = of_ours(text)
        assert found is None or isinstance(found, dict)


def test_values_have_their_types() -> None:
    table = read('a = 1\nb = 1.0\nc = true\nd = "x"\ne = [1, "y"]\nf = {g = 2}')
    assert [type(value) for value in list(table.values.values())[:5]] == [
        int,
        float,
        bool,
        str,
        list,
    ]
    assert isinstance(table.values["f"], Table)


def test_every_key_and_table_has_its_line() -> None:
    table = read(
        "top = 1\n"
        "\n"
        "[agent]\n"
        "many = [\n"
        "  1,\n"
        "]\n"
        "after = '''\n"
        "text'''\n"
        "dotted.key = 1\n"
        "[[rule]]\n"
        "x = 1\n"
        "[[rule]]\n"
        "[[rule.prepare]]\n"
        "options = { a = 1 }\n"
    )
    agent = table.values["agent"]
    assert table.lines == {"top": 1, "agent": 3, "rule": 10}
    assert isinstance(agent, Table)
    assert (agent.line, agent.lines) == (3, {"many": 4, "after": 7, "dotted": 9})
    rules = table.values["rule"]
    assert isinstance(rules, list)
    assert [rule.line for rule in rules] == [10, 12]
    step = rules[1].values["prepare"][0]
    assert (step.line, step.lines) == (13, {"options": 14})
    assert step.values["options"].lines == {"a": 14}


def test_a_table_that_was_implied_has_the_line_of_its_header() -> None:
    table = read("[a.b]\n\n[a]\nx = 1")
    outer = table.values["a"]
    assert isinstance(outer, Table)
    assert outer.line == 3


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a = 1\nb = \n", 2, "A value is expected here, not the end of the line."),
        ("a = 1\n\nb = yes\n", 3, "not 'yes'"),
        ("a = [\n1,\n2\nb = 3", 4, "the list began on line 1"),
        ('x = 1\na = "abc\nb = 2', 2, "is not closed"),
        ("x = 1\na = '''abc\nb = 2", 2, "is not closed"),
        ("a = 1\nb = 2\na = 3", 3, "since line 1"),
        ("[a]\n[b]\n[a]", 3, "since line 1"),
        ("a = 1979-05-27", 1, "dates"),
        ("a = 07:32:00", 1, "dates"),
        ("a = 9223372036854775808", 1, "64 bits"),
        (f"a = {'9' * 5_000}", 1, "64 bits"),
        (f"a = 0x{'f' * 399}_{'f' * 100}", 1, "64 bits"),
        ("\na b = 1", 2, "A = is expected"),
        ('a = "C:\\path"', 1, "single quotes"),
        ("a = {x = 1,\ny = 2}", 1, "A key is expected here, not the end of the line."),
    ],
)
def test_a_refusal_says_the_line_and_what_is_wrong(text: str, line: int, says: str) -> None:
    with pytest.raises(NotToml) as refusal:
        read(text)
    assert refusal.value.line == line
    assert says in str(refusal.value)


@pytest.mark.parametrize(
    ("begin", "end"),
    [("[", "]"), ("{a = ", "}"), ("[{a = ", "}]")],
)
def test_depth_is_bounded(begin: str, end: str) -> None:
    each = begin.count("[") + begin.count("{")
    most = DEPTH_MAX // each
    assert read(f"a = {begin * most}1{end * most}").values
    for depth in (most + 1, 50_000):
        with pytest.raises(NotToml, match="within each other"):
            read(f"a = {begin * depth}"[:TEXT_CHARS_MAX])


def test_a_key_has_a_bounded_number_of_parts() -> None:
    assert read(".".join("a" * KEY_PARTS_MAX) + " = 1").values
    for text in (".".join("a" * (KEY_PARTS_MAX + 1)) + " = 1", f"[{'a.' * 100_000}a]"):
        with pytest.raises(NotToml, match="parts"):
            read(text)


def test_a_text_that_is_too_long_is_refused() -> None:
    assert read("#" * TEXT_CHARS_MAX).values == {}
    with pytest.raises(NotToml, match="characters long"):
        read("#" * (TEXT_CHARS_MAX + 1))


@pytest.mark.parametrize(
    "piece",
    [
        '"',
        "'",
        "\n",
        "a = 1\n",
        "[a]\n",
        "[[a]]\n",
        "a.",
        "[",
        " ",
        "1_",
        '"""',
        "\\",
        "a={",
        "#\n",
    ],
)
def test_the_longest_text_is_read_in_bounded_time(piece: str) -> None:
    for begin in ("", "a = ", 'a = """', "a = ["):
        text = (begin + piece * TEXT_CHARS_MAX)[:TEXT_CHARS_MAX]
        began = time.process_time()
        of_ours(text)
        assert time.process_time() - began < 10
