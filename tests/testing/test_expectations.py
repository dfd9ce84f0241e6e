"""What a test can expect, in a thread and in an event loop, and what a failure says."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from forewarn.testing import Cloud, Invalid, NotFound
from support.cloud_guest import approve, ask, read, waiting_guest

LONG_S = 60.0  # longer than any test may take: who waits that long has not noticed


def failure(expect: Callable[[], None]) -> str:
    """What an expectation that is not met says."""
    with pytest.raises(AssertionError) as failed:
        expect()
    return str(failed.value)


def test_an_expectation_waits_for_the_code_under_test(cloud: Cloud) -> None:
    with waiting_guest(cloud.vm("vm0")):
        event = cloud.restart("vm0")
        cloud.expect_read("vm0", event)
        cloud.expect_approved(event, by="vm0")
        cloud.expect_started(event)
    cloud.clock.next()
    cloud.expect_gone(event)
    cloud.expect_polled("vm0", more_than=1)


def test_a_missed_approval_says_what_was_the_case(cloud: Cloud) -> None:
    event = cloud.restart("vm0")
    read(cloud.vm("vm0"))
    said = failure(lambda: cloud.expect_approved(event, within=0.01))
    assert f"Event {event.event_id} was not approved within 0.01 s." in said
    assert f"{event} is scheduled, not before" in said
    assert "Read by vm0 at" in said
    assert "approved by no VM" in said
    assert "scheduled by operator on host0" in said
    assert "vm0 has polled once and sent 0 approvals." in said


@pytest.mark.cloud(scopes=["web:2"])
def test_an_event_that_is_held_says_what_it_waits_for(cloud: Cloud) -> None:
    first, second = cloud.restart("web_0"), cloud.restart("web_1")
    cloud.approve(first)
    cloud.approve(second)
    said = failure(lambda: cloud.expect_started(second, within=0))
    assert f"It waits: update domain 0 of scope web is started (event {first.event_id})." in said


@pytest.mark.cloud(start="2026-03-03T10:00:00Z")
def test_an_event_that_is_not_over_says_what_the_clock_must_be_turned_to(cloud: Cloud) -> None:
    event = cloud.restart("vm0")
    cloud.clock.next()
    said = failure(lambda: cloud.expect_gone(event, within=0))
    now, due = "2026-03-03T10:15:00.000Z", "2026-03-03T10:15:05.000Z"
    assert f"The clock shows {now}; next: reboot-vm of vm0 ends at {due}." in said
    assert repr(cloud) == f"<Cloud at {now}>"


@pytest.mark.cloud(enablement="first-poll")
def test_an_event_that_nobody_is_told_of_says_so(cloud: Cloud) -> None:
    event = cloud.restart("vm0")
    assert event.silent
    said = failure(lambda: cloud.expect_read("vm0", event, within=0))
    assert "It is silent: no VM of scope vm0 had polled." in said


def test_what_cannot_happen_any_more_is_not_waited_for(cloud: Cloud) -> None:
    unapproved = cloud.restart("vm0")
    cloud.clock.advance(minutes=15)
    said = failure(lambda: cloud.expect_approved(unapproved, within=LONG_S))
    assert "was not approved, and nothing can change that any more." in said
    canceled = cloud.maintain("vm0", "Reboot")
    cloud.cancel(canceled)
    assert "has not started" in failure(lambda: cloud.expect_started(canceled, within=LONG_S))
    assert "was not read by vm0" in failure(
        lambda: cloud.expect_read("vm0", canceled, within=LONG_S)
    )
    once = cloud.faults.add("error", for_s=1)
    cloud.clock.advance(seconds=1)
    assert "was not met" in failure(lambda: cloud.expect_met(once, within=LONG_S))


@pytest.mark.cloud(scopes=["web:2"])
def test_an_approval_by_another_vm_is_not_the_one_that_was_expected(cloud: Cloud) -> None:
    event = cloud.restart("web_0")
    approve(cloud.vm("web_1"), event.event_id)
    cloud.expect_approved(event, by="web_1", within=0)
    said = failure(lambda: cloud.expect_approved(event, by="web_0", within=LONG_S))
    assert "was not approved by web_0" in said
    assert "approved by web_1" in said


def test_an_approval_that_should_not_be_fails_as_soon_as_it_comes(cloud: Cloud) -> None:
    event = cloud.restart("vm0")
    cloud.expect_not_approved(event)
    cloud.expect_not_approved(event, within=0.01)
    vm = cloud.vm("vm0")
    guest = threading.Thread(target=approve, args=(vm, event.event_id))
    guest.start()
    said = failure(lambda: cloud.expect_not_approved(event, within=LONG_S))
    guest.join()
    assert f"Event {event.event_id} was approved." in said


def test_polls_are_counted_whatever_they_are_answered(cloud: Cloud) -> None:
    said = failure(lambda: cloud.expect_polled("vm0", within=0))
    assert "vm0 has not polled." in said
    cloud.faults.add("unavailable", vm="vm0")
    assert ask(cloud.vm("vm0"))[0] == 503
    cloud.expect_polled("vm0", within=0)
    said = failure(lambda: cloud.expect_polled("vm0", more_than=1, within=0))
    assert "vm0 has not polled more than once." in said
    assert "f1 (unavailable of vm0) has hit once" in said


def test_a_fault_is_expected_for_its_whole_count_or_as_often_as_is_said(cloud: Cloud) -> None:
    vm = cloud.vm("vm0")
    fault = cloud.faults.add("error", vm=vm, count=2)
    ask(vm)
    cloud.expect_met(fault, times=1, within=0)
    assert "Fault f1 was not met" in failure(lambda: cloud.expect_met(fault, within=0))
    ask(vm)
    cloud.expect_met(fault, within=0)


@pytest.mark.cloud(inventory="shared_host.toml")
def test_all_events_of_an_operation_are_expected_together(cloud: Cloud) -> None:
    operation = cloud.maintain("rack1", "Freeze")
    assert len(operation.events) == 2
    approve(cloud.vm("a"), operation.events[0].event_id)
    said = failure(lambda: cloud.expect_approved(operation, within=0))
    assert "One of the events was not approved" in said
    approve(cloud.vm("b"), operation.events[1].event_id)
    cloud.expect_started(operation, within=0)
    cloud.expect_approved(operation.events, within=0)


def test_nothing_can_be_expected_of_what_is_not_there(cloud: Cloud) -> None:
    with pytest.raises(NotFound, match="There is no event"):
        cloud.expect_approved("11111111-2222-3333-4444-555555555555")
    with pytest.raises(Invalid, match="There is no event in what was given"):
        cloud.expect_approved([])
    with pytest.raises(NotFound, match="There is no VM"):
        cloud.expect_polled("vm1")
    with pytest.raises(NotFound, match=r"There is no VM vm1\. Did you mean vm0\?"):
        cloud.expect_approved(cloud.restart("vm0"), by="vm1", within=LONG_S)


def test_who_blocks_the_loop_that_the_app_runs_in_is_told_of_the_waits_that_do_not(
    cloud: Cloud,
) -> None:
    async def test() -> str:
        return failure(lambda: cloud.expect_polled("vm0", within=0.01))

    assert "use `await cloud.aio.expect_...`" in asyncio.run(test())
    assert "cloud.aio" not in failure(lambda: cloud.expect_polled("vm0", within=0.01))


async def _guest(url: str, polled: asyncio.Event) -> None:
    """A guest in the loop of the test: polls until it finds an event, approves it, and ends."""
    address, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(address, int(port))
    path = "/metadata/scheduledevents?api-version=2020-07-01"
    ids: list[str] = []
    while not ids:
        await _send(writer, f"GET {path} HTTP/1.1\r\nHost: x\r\nMetadata: true\r\n\r\n")
        ids = [event["EventId"] for event in (await _document(reader))["Events"]]
        polled.set()
    body = '{"StartRequests":[' + ",".join(f'{{"EventId":"{one}"}}' for one in ids) + "]}"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nMetadata: true\r\nContent-Length: {len(body)}"
    await _send(writer, f"{head}\r\n\r\n{body}")
    await reader.readuntil(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()


async def _send(writer: asyncio.StreamWriter, text: str) -> None:
    writer.write(text.encode())
    await writer.drain()


async def _document(reader: asyncio.StreamReader) -> dict[str, Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    document: dict[str, Any] = json.loads(await reader.readexactly(length))
    return document


def test_an_app_in_the_loop_of_an_async_test_goes_on_while_it_waits(cloud: Cloud) -> None:
    async def story() -> None:
        polled = asyncio.Event()
        app = asyncio.create_task(_guest(cloud.vm("vm0").url, polled))
        await polled.wait()
        event = cloud.restart("vm0")
        await cloud.aio.expect_read("vm0", event)
        await cloud.aio.expect_approved(event, by="vm0")
        await cloud.aio.expect_started(event)
        await app
        cloud.clock.next()
        await cloud.aio.expect_gone(event)
        await cloud.aio.expect_polled("vm0")
        fault = cloud.faults.add("error", vm="vm0")
        with pytest.raises(AssertionError, match="was not met within"):
            await cloud.aio.expect_met(fault, within=0.01)
        with pytest.raises(AssertionError, match="was approved"):
            await cloud.aio.expect_not_approved(event)

    asyncio.run(story())


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_fixture_serves_an_async_test(cloud: Cloud, anyio_backend: str) -> None:
    event = cloud.restart("vm0")
    waiting = asyncio.create_task(cloud.aio.expect_approved(event))
    cloud.approve(event)
    await waiting


def test_a_wait_that_is_canceled_leaves_nothing_behind(cloud: Cloud) -> None:
    async def story() -> None:
        event = cloud.restart("vm0")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await cloud.aio.expect_approved(event, within=LONG_S)

    asyncio.run(story())
    assert cloud.events()
