"""Fields and tables of them: what is read, and what every mistake says."""

from __future__ import annotations

from typing import Any

import pytest

from forewarn.core.errors import Invalid
from forewarn.core.suggestions import MISTAKES_NAMED_MAX
from forewarn.text.field_tables import Fields, Mistakes, Table, TomlFormat, table_of, tables_of
from forewarn.text.fields import (
    ADDRESS,
    LISTEN,
    SWITCH,
    Field,
    Wrong,
    choice,
    duration,
    line,
    number,
    pattern,
    ruled,
    several,
)


class BadMenu(Invalid):
    """The menu of these tests is wrong."""


SIDE = Fields(fields={"name": line("a name", 9, chars_min=1), "hot": SWITCH}, required=("name",))
MENU = Fields(
    fields={
        "title": pattern("letters", r"[a-z]+"),
        "price": number(1, 99),
        "size": choice({"small": 1, "large": 2}),
        "wait": duration("a length of time", more_than_ms=0, most_ms=60_000).then(
            lambda ms: ms // 1_000, to="wait_s"
        ),
        "side": table_of(SIDE, "a table like { name = 'rice' }"),
        "dish": tables_of("dish"),
    },
    required=("title",),
    unknown="a menu has no",
    elsewhere=("hot",),
)
FORMAT = TomlFormat(what="The menu", bytes_max=2_000, refuse=BadMenu, outcome="Nothing was cooked.")


def read(text: str) -> dict[str, Any]:
    table, mistakes = Table(FORMAT.read(text)), Mistakes()
    MENU.read(table, mistakes)
    if mistakes.found:
        raise BadMenu(*FORMAT.refusal(text, mistakes.found))
    return table.values


def refused(text: str) -> str:
    with pytest.raises(BadMenu) as wrong:
        read(text)
    assert wrong.value.accepted == "Nothing was cooked."
    return wrong.value.refused


def test_good_values_are_read_and_may_become_another_attribute() -> None:
    assert read(
        'title = "soup"\nprice = 7\nsize = "large"\nwait = "30s"\nside = { name = "rice" }\n'
        "[[dish]]\nx = 1\n"
    ) == {
        "title": "soup",
        "price": 7,
        "size": 2,
        "wait_s": 30,
        "side": {"name": "rice"},
        "dish": [{"x": 1}],
    }


MISTAKES = {
    "missing": ("price = 1\n", "line 1: title is missing. Write title = ..., letters."),
    "unknown": ('title = "a"\nprize = 1\n', 'line 2: a menu has no "prize". Did you mean price?'),
    "of another table": ('title = "a"\nhot = true\n', "line 2: it takes no hot. There are: title,"),
    "refused": (
        'title = "a"\n\nprice = 0\n',
        "line 3: price = 0 is refused. Accepted: a whole number from 1 to 99.",
    ),
    "in quotes": (
        'title = "a"\nprice = "5"\n',
        'price = "5" is refused. Accepted: a whole number from 1 to 99, without quotes.',
    ),
    "no number": ('title = "a"\nprice = true\n', "line 2: price = true is refused."),
    "no choice": ('title = "a"\nsize = "huge"\n', 'Accepted: "small" or "large".'),
    "said by the reader": (
        'title = "a"\nwait = "soon"\n',
        'line 2: wait: The duration "soon" was not understood. Accepted: a length of time.',
    ),
    "too long": ('title = "a"\nwait = "2m"\n', 'line 2: wait = "2m" is refused.'),
    "no table": ('title = "a"\nside = 1\n', "line 2: side = 1 is refused. Accepted: a table like"),
    "inside a table": (
        'title = "a"\n[side]\nname = "rice"\nhot = "yes"\n',
        'line 4: side: hot = "yes" is refused. Accepted: true or false, without quotes.',
    ),
    "no list of tables": (
        'title = "a"\n[dish]\n',
        "line 2: dish = {} is refused. Accepted: a list",
    ),
}


@pytest.mark.parametrize(("text", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_with_its_line_and_what_would_be_accepted(text: str, words: str) -> None:
    said = refused(text)
    assert said.startswith("The menu was refused: line ")
    assert words in said


def test_all_mistakes_are_named_at_once_in_the_order_of_their_lines() -> None:
    first, *said = refused("price = 0\n[side]\nhto = 1\nhot = 1\n[menu]\nx = 1\n").splitlines()
    assert first == "The menu was refused:"
    assert [words.partition(":")[0] for words in said] == [
        "line 1",
        "line 1",
        "line 2",
        "line 3",
        "line 4",
        "line 5",
    ]


def test_more_mistakes_than_anybody_reads_are_counted() -> None:
    many = "".join(f"x{n} = 1\n" for n in range(MISTAKES_NAMED_MAX + 5))
    assert refused(f'title = "a"\n{many}').endswith("... and 5 more mistakes.")


@pytest.mark.parametrize(
    ("text", "refusal", "accepted"),
    [
        ("#" * 2_001, "The menu has 2001 bytes.", "Up to 2000 are accepted."),
        ("\n# \ud800", "The menu was refused: line 2: a character is half", "Write it in UTF-8."),
        ("\nx =", "The menu was refused: line 2: this is not TOML", "Nothing was cooked."),
    ],
)
def test_a_text_that_cannot_be_read_is_refused_as_a_whole(
    text: str, refusal: str, accepted: str
) -> None:
    with pytest.raises(BadMenu) as wrong:
        FORMAT.read(text)
    assert wrong.value.refused.startswith(refusal)
    assert wrong.value.accepted == accepted


def test_a_later_mistake_names_the_line_of_an_earlier_one() -> None:
    mistakes = Mistakes()
    table = Table({}, label="dish two", at=("dish", 1))
    mistakes.of(table, "name", "the name is taken, on {line}.", earlier=("dish", 0, "name"))
    said, _ = FORMAT.refusal('[[dish]]\nname = "a"\n[[dish]]\nname = "a"\n', mistakes.found)
    assert said == "The menu was refused: line 4: dish two: the name is taken, on line 2."


# Text of variables, options and attributes.


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        (number(0, 99), "07", 7),
        (SWITCH, "true", True),
        (choice(("a", "b")), "b", "b"),
        (several("names", pattern("a name", "[a-z]+"), split=str.split), "a b", ("a", "b")),
        (ADDRESS, "::ffff:192.0.2.7", "192.0.2.7"),
        (LISTEN, "[::1]:080", "[::1]:80"),
        (ruled("a number", float), "1.5", 1.5),
    ],
)
def test_text_is_read_as_the_value_that_a_file_would_have(
    field: Field, text: str, value: object
) -> None:
    assert field.read_text(text) == value


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (number(0, 99), "7.0"),
        (number(0, 99), "+7"),
        (number(0, 99), "\u0667"),
        (number(0, 10**30), "9" * 19),
        (SWITCH, "True"),
        (choice(("a", "b")), "c"),
        (several("names", pattern("a name", "[a-z]+"), split=str.split), "a B"),
        (several("names", pattern("a name", "[a-z]+"), limit=1, split=str.split), "a b"),
        (ADDRESS, "0.0.0.0"),
        (LISTEN, "80"),
        (ruled("a number", float), "x"),
        (Field("a number", lambda value: value, int), "x"),
        (line("a line", 3), "a\tb"),
        (line("a line", 3), "abcd"),
    ],
)
def test_text_that_is_not_accepted_is_wrong(field: Field, text: str) -> None:
    with pytest.raises(Wrong):
        field.read_text(text)


def test_text_is_not_told_to_leave_out_quotes() -> None:
    table, mistakes = Table({"price": "x", "title": "a"}), Mistakes()
    MENU.read(table, mistakes, as_text=True)
    assert [mistake.words for mistake in mistakes.found] == [
        'price = "x" is refused. Accepted: a whole number from 1 to 99.'
    ]
    assert table.values == {"title": "a"}


@pytest.mark.parametrize("value", [1, True, None, [], {}, 1.5])
@pytest.mark.parametrize("field", [ADDRESS, LISTEN, line("", 3), pattern("", "a"), choice(("a",))])
def test_what_is_no_text_is_wrong_where_text_is_wanted(field: Field, value: object) -> None:
    with pytest.raises(Wrong):
        field.read(value)
