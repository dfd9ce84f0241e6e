"""What questions and answers take of memory at once."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from forewarn.api.memory_budget import MemoryBudget
from forewarn.core.errors import Unavailable


def test_one_caller_has_a_share_and_leaves_the_rest_to_others() -> None:
    room = MemoryBudget(bytes_max=100, of_one_max=40)
    with room.taking("a", 30):
        with pytest.raises(Unavailable, match="a sends"), room.taking("a", 11):
            pass
        with room.taking("a", 10), room.taking("b", 40):
            pass


def test_all_callers_together_have_a_limit() -> None:
    room = MemoryBudget(bytes_max=100, of_one_max=40)
    with ExitStack() as stack:
        for caller in ("a", "b"):
            stack.enter_context(room.taking(caller, 40))
        with pytest.raises(Unavailable, match="Too much"), room.taking("c", 21):
            pass
        with room.taking("c", 20):
            pass


def test_what_was_taken_is_given_back_also_after_a_failure() -> None:
    room = MemoryBudget(bytes_max=10, of_one_max=10)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), room.taking("a", 10):
            raise ZeroDivisionError
    with room.taking("a", 10):
        pass


def test_what_is_larger_than_a_share_is_let_in_alone() -> None:
    room = MemoryBudget(bytes_max=100, of_one_max=40)
    with (
        room.taking("a", 60),
        pytest.raises(Unavailable),
        room.taking("a", 1),
    ):
        pass
    with room.taking("b", 1), pytest.raises(Unavailable), room.taking("b", 60):
        pass
