"""Who wants a change: what an operator may be called."""

from __future__ import annotations

import pytest

from forewarn.core.errors import Invalid
from forewarn.core.principal import (
    OPERATOR,
    OPERATOR_NAME_CHARS_MAX,
    Principal,
    PrincipalKind,
    operator_named,
)


@pytest.mark.parametrize(
    "name", ["operator", "x", "Ada Lovelace", "ops@example.com", "Zoë", "運用", "a" * 64]
)
def test_an_operator_has_the_name_that_was_chosen_and_stays_the_same_operator(name: str) -> None:
    assert operator_named(name) == Principal(kind=PrincipalKind.OPERATOR, id=OPERATOR.id, name=name)
    assert str(operator_named(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        " ada",
        "ada ",
        "a" * (OPERATOR_NAME_CHARS_MAX + 1),
        "ada\n",
        "ada\tlovelace",
        "ada\0",
        "\x1b[31mada",
        "ada\x7f",
        "ada\x9f",
        "ada\u2028lovelace",
        "\u202eada",  # turns the direction of what follows
        "ada\udc80",  # half a character, as a broken environment gives it
        "policy",
        "Ticker",
        "CLOCK",
        "inventory",
    ],
)
def test_a_name_that_a_line_of_the_journal_cannot_bear_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="1 to 64 printable characters, no space at either end"):
        operator_named(name)
