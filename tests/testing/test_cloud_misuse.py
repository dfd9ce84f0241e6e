"""A cloud that is used from the wrong place, at the wrong time, or with times that are none."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.testing import Cloud, Conflict, Invalid, Refusal
from support.cloud_guest import PATIENCE_S, read
from support.waiting import wait_until

LONG_S = 60.0


def in_a_fork(act: Callable[[], object]) -> str:
    """What a process that is forked off says about the act, within PATIENCE_S."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = repr(act())
        except Refusal as refusal:
            said = str(refusal)
        finally:
            os.write(writer, said.encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_is_forked_off_is_told_whose_the_cloud_is(cloud: Cloud) -> None:
    began_s = time.monotonic()
    assert "belongs to the process that started it" in in_a_fork(lambda: cloud.vm("vm0"))
    assert in_a_fork(cloud.close) == "None"
    assert in_a_fork(cloud._background.abandon) == "None"
    assert time.monotonic() - began_s < PATIENCE_S
    assert read(cloud.vm("vm0"))["Events"] == []


def test_who_waits_while_another_thread_closes_the_cloud_is_told_so() -> None:
    cloud = Cloud()
    said: list[BaseException] = []

    def wait() -> None:
        try:
            cloud.expect_polled("vm0", within=LONG_S)
        except Conflict as closed:
            said.append(closed)

    thread = threading.Thread(target=wait)
    thread.start()
    _until_somebody_waits(cloud)
    cloud.close()
    thread.join(PATIENCE_S)
    assert [str(error) for error in said] == [
        "The cloud is closed. Use it inside its `with` block, or inside the test."
    ]


def test_a_coroutine_that_waits_while_the_cloud_is_closed_is_told_so() -> None:
    cloud = Cloud()

    async def wait() -> None:
        waiting = asyncio.ensure_future(cloud.aio.expect_polled("vm0", within=LONG_S))
        await asyncio.to_thread(_until_somebody_waits, cloud)
        await asyncio.to_thread(cloud.close)
        with pytest.raises(Conflict, match="The cloud is closed"):
            await waiting

    asyncio.run(wait())


def test_a_wait_that_its_own_loop_cancels_is_canceled(cloud: Cloud) -> None:
    async def wait() -> None:
        waiting = asyncio.ensure_future(cloud.aio.expect_polled("vm0", within=LONG_S))
        await asyncio.to_thread(_until_somebody_waits, cloud)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(wait())


@pytest.mark.parametrize(
    "not_before",
    [
        timedelta(days=3_000_000),
        timedelta(days=-30_000),
        datetime(1969, 12, 31, tzinfo=UTC),
    ],
)
def test_a_time_that_is_no_date_is_refused_and_orders_nothing(
    cloud: Cloud, not_before: datetime | timedelta
) -> None:
    with pytest.raises(Invalid, match=r"1970-01-01T00:00:00.000Z and 9999-12-31T23:59:59.000Z"):
        cloud.maintain("vm0", "Freeze", not_before=not_before)
    assert cloud.events() == ()


@pytest.mark.parametrize("days", [math.nan, math.inf, 1e12, 4_000])
def test_a_clock_is_not_turned_by_what_is_no_time(cloud: Cloud, days: float) -> None:
    before = cloud.clock.now
    with pytest.raises(Invalid, match="ten years"):
        cloud.clock.advance(days=days)
    assert cloud.clock.now == before


@pytest.mark.parametrize("within", [math.nan, math.inf, 1e12])
def test_a_wait_without_an_end_is_refused(cloud: Cloud, within: float) -> None:
    with pytest.raises(Invalid, match="at most 86400"):
        cloud.expect_polled("vm0", within=within)


def _until_somebody_waits(cloud: Cloud) -> None:
    """Return when a coroutine of a caller is under way on the emulator's loop."""
    loop = cloud._background._loop
    wait_until(lambda: any("_working" in repr(task) for task in asyncio.all_tasks(loop)))
