"""The first names of a set are those that sorting all of it would find."""

from __future__ import annotations

import random

from forewarn.control.first_names import FirstNames


def test_whatever_comes_and_goes_the_first_names_are_the_first() -> None:
    drawn = random.Random(7)
    names = FirstNames(known := {f"s{number}" for number in range(50)})
    for _ in range(3_000):
        name = f"s{drawn.randrange(200)}"
        if drawn.random() < 0.5:
            names.add(name)
            known.add(name)
        else:
            names.discard(name)
            known.discard(name)
        count = drawn.randrange(12)
        assert names.first(count) == sorted(known)[:count]
        assert (len(names), set(names)) == (len(known), known)
        assert (name in names) is (name in known)


def test_names_that_come_and_go_leave_nothing_behind() -> None:
    names = FirstNames()
    for _ in range(1_000):
        names.add("a")
        names.discard("a")
    kept = [value for value in vars(names).values() if isinstance(value, list | set)]
    assert sum(map(len, kept)) < 100
