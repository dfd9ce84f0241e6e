"""What wiring does beyond calls: a fleet kept arranged, room for descriptors, private files."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.adapters.operator_token import operator_token
from forewarn.core.errors import Unavailable
from forewarn.host.listeners import ListenFailed
from forewarn.settings import OPERATOR_TOKEN_FILE
from forewarn.wiring.process import DESCRIPTORS_MAX, raise_descriptor_limit, settle_memory
from forewarn.wiring.serve import keep_arranged

WAIT_S = 60
AGAIN_S = 0.01


class Arranging:
    """Fails as told, then works; the two bells say which of it has happened."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0
        self.failed = asyncio.Event()
        self.worked = asyncio.Event()

    async def __call__(self) -> None:
        self.calls += 1
        if self.failures:
            self.failed.set()
            raise self.failures.pop(0)
        self.worked.set()


@pytest.mark.parametrize("failure", [ListenFailed("no socket"), Unavailable("disk full")])
def test_what_could_not_be_arranged_is_arranged_again_without_another_change(
    failure: Exception,
) -> None:
    async def main() -> int:
        changed, arrange = asyncio.Event(), Arranging(failure, failure)
        keeping = asyncio.ensure_future(keep_arranged(changed, arrange, again_s=AGAIN_S))
        try:
            async with asyncio.timeout(WAIT_S):
                changed.set()
                await arrange.worked.wait()
                calls = arrange.calls
                arrange.worked.clear()
                changed.set()
                await arrange.worked.wait()
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        assert arrange.calls == calls + 1  # once it works, only a change arranges again
        return calls

    assert asyncio.run(main()) == 3


def test_a_change_does_not_wait_for_the_pause_after_a_failure() -> None:
    async def main() -> bool:
        changed, arrange = asyncio.Event(), Arranging(ListenFailed("no socket"))
        keeping = asyncio.ensure_future(keep_arranged(changed, arrange, again_s=10 * WAIT_S))
        try:
            async with asyncio.timeout(WAIT_S):
                changed.set()
                await arrange.failed.wait()
                changed.set()
                await arrange.worked.wait()
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        return arrange.worked.is_set()

    assert asyncio.run(main())


@pytest.fixture
def hard_limit() -> Iterator[int]:
    """The most files that this process may open, with far fewer allowed for now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    yield DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_limit_of_open_files_is_raised_as_far_as_allowed(hard_limit: int) -> None:
    raise_descriptor_limit()
    raised = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert raised == min(hard_limit, DESCRIPTORS_MAX)
    raise_descriptor_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == raised


@pytest.mark.parametrize("by_link", [True, False])
def test_a_token_is_written_to_no_file_that_somebody_has_put_in_its_way(
    tmp_path: Path, *, by_link: bool
) -> None:
    data, theirs = tmp_path / "data", tmp_path / "theirs"
    data.mkdir()
    theirs.touch(mode=0o666)
    scratch = data / f".{OPERATOR_TOKEN_FILE}.{os.getpid()}"
    if by_link:
        scratch.symlink_to(theirs)
    else:
        scratch.hardlink_to(theirs)
    token = operator_token(data / OPERATOR_TOKEN_FILE)
    kept = data / OPERATOR_TOKEN_FILE
    assert kept.read_text() == f"{token}\n"
    assert (kept.stat().st_mode & 0o777, kept.is_symlink()) == (0o600, False)
    assert theirs.read_text() == ""


def test_later_collections_do_not_look_at_what_was_loaded_at_the_start() -> None:
    try:
        settle_memory()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
