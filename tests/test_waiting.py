"""How tests wait: what was found is returned, and a wait in vain says what it was for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from support.waiting import until, wait_until

SHORT_S = 0.01


def third_time() -> Callable[[], str]:
    """Something that is there at the third look."""
    looks = iter(["", "", "here"])
    return lambda: next(looks)


def test_what_is_found_is_returned_and_what_is_awaited_is_looked_at() -> None:
    looks = third_time()

    async def look() -> str:
        return looks()

    assert wait_until(third_time()) == "here"
    assert asyncio.run(until(third_time())) == "here"
    assert asyncio.run(until(look)) == "here"


def test_a_wait_in_vain_says_what_it_was_for() -> None:
    with pytest.raises(AssertionError, match=r"waited 0\.01 s in vain: the guest polls"):
        wait_until(lambda: False, "the guest polls", limit_s=SHORT_S)
    with pytest.raises(AssertionError, match="in vain: what the log says by then"):
        wait_until(lambda: False, lambda: "what the log says by then", limit_s=SHORT_S)
    with pytest.raises(AssertionError, match="in vain: the host is heard"):
        asyncio.run(until(lambda: False, "the host is heard", limit_s=SHORT_S))


def test_a_condition_without_words_is_named_as_it_is_written() -> None:
    found: list[int] = []
    with pytest.raises(AssertionError, match=r"in vain: .*len\(found\) == 3"):
        wait_until(lambda: len(found) == 3, limit_s=SHORT_S)
    with pytest.raises(AssertionError, match=r"in vain: .*method copy of list"):
        asyncio.run(until(found.copy, limit_s=SHORT_S))
