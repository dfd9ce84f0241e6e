"""Pages that are followed: drawn once for all who see the same, and complete for each of them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest

from forewarn.api.console import live_updates
from forewarn.api.console.live_updates import Hub, Position
from forewarn.control.control import Control
from forewarn.core.access import Role
from forewarn.core.model import DAY_MS, EventType, Host
from forewarn.ports import Store
from support import ordered
from support.console_desk import (
    OPERATOR,
    VIEWER,
    Console,
    access,
    on_turned_loop,
    pass_s,
    said,
    turns,
)
from support.core_fleet import WEB, Cloud, scope

T = TypeVar("T")

MANY = tuple(Host(name=f"n{number}") for number in range(3_000))


def a_cloud(*more: Host) -> Cloud:
    hosts = [Host(name=name) for name in ("h1", "h2", "h3")]
    return Cloud(scope("web", WEB), scope("db", {"db_0": (0, "h3")}), hosts=[*hosts, *more])


def close(cloud: Cloud, host: str) -> None:
    cloud.run(ordered.close_host(host, by="operator"))


def reopen(cloud: Cloud, host: str) -> None:
    cloud.run(ordered.open_host(host, by="operator"))


async def drained(tab: AsyncIterator[bytes]) -> list[tuple[str, str]]:
    """The blocks of all messages that wait for a tab, which is closed by that."""
    found: list[tuple[str, str]] = []
    while True:
        waiting = asyncio.ensure_future(_next(tab))
        await turns()
        if not waiting.done():
            waiting.cancel()
            return found
        found += said(waiting.result())["blocks"].items()


def unzipped(blocks: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [name for name, _ in blocks], [text for _, text in blocks]


def test_a_change_is_drawn_once_for_all_tabs_and_each_is_sent_the_same_bytes() -> None:
    async def play() -> None:
        console = await Console(cloud := a_cloud()).begin()
        await console.page()
        tabs = [console.tab() for _ in range(50)]
        for tab in tabs:
            await anext(tab)
        waiting = [asyncio.ensure_future(anext(tab)) for tab in tabs]
        await turns()
        drawn = console.hub.drawings
        close(cloud, "h2")
        await console.draw()
        messages = {await one for one in waiting}
        assert len(messages) == 1
        content = said(messages.pop())
        assert content["cells"] == [[1, "c"]]
        assert "grid" not in content["blocks"]
        assert console.hub.drawings - drawn == len(content["blocks"]) > 0
        assert "host-closed" in content["blocks"]["tail"]

    on_turned_loop(play)


def test_what_is_drawn_for_one_right_is_not_sent_to_another() -> None:
    async def play() -> None:
        console = await Console(cloud := a_cloud()).begin()
        people = [OPERATOR, VIEWER, access(Role.OWNER, "web"), access(Role.OWNER, "db")]
        for one in people:
            await console.page(one)
        tabs = [console.tab(one) for one in people]
        for tab in tabs:
            await anext(tab)
        drawn = console.hub.drawings
        event = cloud.order("web_0", EventType.REBOOT)
        await console.draw()
        blocks = [await drained(tab) for tab in tabs]
        assert [bool(one) for one in blocks] == [True, True, True, False]
        assert all(event.event_id in "".join(texts) for _, texts in map(unzipped, blocks[:3]))
        assert console.hub.drawings - drawn == sum(map(len, blocks))
        names = [set(found) for found, _ in map(unzipped, blocks)]
        assert ["legend" in one for one in names] == [True, True, False, False]

    on_turned_loop(play)


def test_scopes_are_told_apart_whatever_their_names_are() -> None:
    one, other = access(Role.OWNER, "a,b"), access(Role.OWNER, "a", "b")
    assert live_updates.seen_by(one) != live_updates.seen_by(other)


def test_what_changes_while_a_tab_is_sent_its_first_message_is_not_lost() -> None:
    async def play() -> None:
        console = await Console(cloud := a_cloud()).begin()
        await console.page()
        tab = console.tab()
        await anext(tab)  # and it is not read on for a while
        close(cloud, "h1")
        await console.draw()
        assert said(await anext(tab))["cells"] == [[0, "c"]]

    on_turned_loop(play)


def test_a_tab_that_reads_nothing_has_nothing_kept_for_it_and_is_then_told_what_is_so() -> None:
    async def play() -> None:
        console = await Console(cloud := a_cloud()).begin()
        await console.page()
        slow, quick = console.tab(), console.tab()
        await anext(slow)
        await anext(quick)
        messages = 0
        for turn in range(live_updates.MOVES_KEPT + 6):
            (reopen if turn % 2 else close)(cloud, "h2")
            await console.draw()
            await anext(quick)
            messages += 1
        gc.collect()  # what earlier tests have left
        kept = [one for one in gc.get_objects() if isinstance(one, live_updates._Move)]
        assert len(kept) <= live_updates.MOVES_KEPT < messages
        content = said(await anext(slow))
        assert "grid" in content["blocks"]  # whole: it was away for longer than moves are kept
        close(cloud, "h2")
        await console.draw()
        assert said(await anext(slow))["cells"] == [[1, "c"]]

    on_turned_loop(play)


def test_a_tab_that_was_away_is_sent_the_cells_that_moved_and_no_grid() -> None:
    async def play() -> None:
        console = await Console(cloud := a_cloud()).begin()
        await console.page()
        left = console.hub.position
        other = console.tab()
        await anext(other)
        for host in ("h1", "h3"):
            close(cloud, host)
            await console.draw()
        content = said(await anext(console.tab(after=left)))
        assert sorted(content["cells"]) == [[0, "c"], [2, "c"]]
        assert "grid" not in content["blocks"]
        foreign = said(await anext(console.tab(after=Position(1, 10**9, "other"))))
        assert set(foreign["blocks"]) == set(console.now().blocks)

    on_turned_loop(play)


def test_what_a_page_has_made_is_told_to_others_also_if_its_reader_is_gone() -> None:
    async def play() -> None:
        gate = asyncio.Event()
        cloud = a_cloud()
        console = await Console(cloud, _Held(cloud, gate)).begin()
        gate.set()
        await console.page()
        tab = console.tab()
        await anext(tab)
        waiting = asyncio.ensure_future(anext(tab))
        await turns()
        gate.clear()  # the store does not answer from now on
        close(cloud, "h2")
        gone = asyncio.ensure_future(console.page())
        await turns()
        gone.cancel()
        await console.draw()
        assert said(await waiting)["cells"] == [[1, "c"]]

    on_turned_loop(play)


def test_a_store_that_does_not_answer_holds_up_no_change_of_the_now_page() -> None:
    async def play() -> None:
        gate = asyncio.Event()
        cloud = a_cloud()
        control = _Held(cloud, gate)
        console = await Console(cloud, control).begin()
        gate.set()
        await console.page()
        tab = console.tab()
        await anext(tab)
        gate.clear()
        asked = control.asked
        for turn in range(20):
            event = cloud.order("web_0", EventType.REBOOT)
            cloud.cancel(event)
            (reopen if turn % 2 else close)(cloud, "h2")
            for _ in range(20):  # it waits a moment for what has ended
                await pass_s(0.1)
            while "tail" not in (message := said(await _next(tab)))["blocks"]:
                pass
            assert message["cells"] == [[1, "o" if turn % 2 else "c"]]
        assert control.asked - asked <= 2  # what has ended, and no second question beside it

    on_turned_loop(play)


async def _next(tab: Any) -> bytes:
    message: bytes = await anext(tab)
    assert b"event: beat" not in message
    return message


class _Held(Control):
    """Reads of the store wait for a gate."""

    def __init__(self, cloud: Cloud, gate: asyncio.Event) -> None:
        parts = cloud.control
        self.__dict__.update(parts.__dict__)
        self.gate = gate
        self.asked = 0

    async def read(self, query: Callable[[Store], T]) -> T:
        self.asked += 1
        await self.gate.wait()
        return query(self.store)


# What a page of a large fleet looks at.


def test_a_page_after_a_change_looks_at_the_host_that_changed_and_at_no_other() -> None:
    async def play() -> None:
        console = await Console(cloud := a_cloud(*MANY)).begin()
        await console.page()
        before, made = console.desk.summary.looked_at, console.hub.made
        assert before >= len(MANY)
        close(cloud, "n7")
        text = await console.page()
        assert "1 closed" in text["legend"]
        assert console.desk.summary.looked_at - before == 1
        # Capacity and the like are made every so often, and everything else for each page.
        assert console.hub.made - made < len(console.now().blocks)

    on_turned_loop(play)


def test_a_page_on_which_nothing_has_changed_is_not_made_and_not_drawn_again() -> None:
    async def play() -> None:
        console = await Console(a_cloud(*MANY)).begin()
        await console.page()
        await turns()  # the notice of the week is read beside it
        first = await console.page()
        counts = console.hub.made, console.hub.drawings, console.desk.summary.looked_at
        for _ in range(50):  # one who comes again and again, as page and as stream
            assert await console.page() == first
            tab = console.tab()
            await anext(tab)
            await tab.aclose()  # type: ignore[attr-defined] # a generator
        assert counts == (
            console.hub.made,
            console.hub.drawings,
            console.desk.summary.looked_at,
        )
        assert console.hub.streams == 0

    on_turned_loop(play)


def test_each_host_of_a_large_fleet_is_looked_at_once_in_a_second_while_tabs_are_open() -> None:
    async def play() -> None:
        console = await Console(cloud := a_cloud(*MANY)).begin()
        await console.page()
        tab = console.tab()
        await anext(tab)
        waiting = asyncio.ensure_future(anext(tab))
        cloud.hearing.falls_silent("n1000")
        before = console.desk.summary.looked_at
        for _ in range(40):
            await pass_s(0.1)
        assert console.desk.summary.looked_at - before <= 5 * (len(MANY) + 3)
        content = said(await waiting)
        while not content["cells"]:
            content = said(await _next(tab))
        assert content["cells"] == [[3 + 1_000, "s"]]

    on_turned_loop(play)


def test_the_text_of_a_page_tells_the_time_anew_though_nothing_has_changed() -> None:
    async def play() -> None:
        console = await Console(cloud := a_cloud()).begin()
        event = cloud.order("web_0", EventType.REBOOT)
        assert event.event_id in (first := await console.page())["consent"]
        cloud.clock.pass_ms(1_500)
        second = await console.page()
        assert first["consent"] != second["consent"]
        assert first["grid"] == second["grid"]

    on_turned_loop(play)


def test_a_second_change_soon_after_the_first_is_not_left_until_a_third_comes() -> None:
    async def play() -> None:
        console = await Console(cloud := a_cloud()).begin()
        await console.page()
        tab = console.tab()
        await anext(tab)
        cloud.order("web_0", EventType.REBOOT)
        await console.draw()
        await anext(tab)
        second = cloud.order("db_0", EventType.REBOOT)
        for _ in range(4):  # less than a second, in which the page would look by itself
            await pass_s(0.1)
        blocks: dict[str, Any] = {}
        while "work" not in blocks:
            blocks |= said(await _next(tab))["blocks"]
        assert second.event_id in blocks["work"]

    on_turned_loop(play)


def test_what_commits_touch_is_forgotten_while_nobody_looks() -> None:
    async def play() -> None:
        console = await Console(cloud := a_cloud()).begin()
        await console.page()
        for _ in range(100):
            cloud.cancel(cloud.order("web_0", EventType.REBOOT))
        assert _texts_of(console.hub) < 50

    on_turned_loop(play)


def _texts_of(hub: Hub) -> int:
    """How many names and ids the hub keeps beside what it has drawn."""
    kept = [value for value in vars(hub).values() if isinstance(value, set | list | dict)]
    return sum(map(len, kept))


def test_the_notice_of_the_week_is_shown_once_it_is_known_without_a_commit() -> None:
    async def play() -> None:
        console = await Console(cloud := a_cloud()).begin()
        cloud.start(cloud.order("web_0", EventType.REBOOT))
        assert "being counted" in (await console.page())["notice"]
        await turns()
        assert "being counted" not in (await console.page())["notice"]
        cloud.clock.pass_ms(8 * DAY_MS)

    on_turned_loop(play)


@pytest.mark.parametrize("hosts", [10, 3_000])
def test_many_silent_hosts_are_counted_and_only_the_first_are_named(hosts: int) -> None:
    async def play() -> None:
        names = [f"n{number}" for number in range(hosts)]
        cloud = Cloud(hosts=[Host(name=name) for name in names])
        for name in names:
            cloud.hearing.falls_silent(name)
        console = await Console(cloud).begin()
        text = (await console.page())["broken"]
        assert f"{hosts} things are broken" in text
        assert text.count("No heartbeat") == min(hosts, 12)

    on_turned_loop(play)
