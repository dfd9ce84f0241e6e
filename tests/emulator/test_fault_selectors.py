"""Which requests a fault hits: by VM, method, count, share and time, alone and together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emulator.faulty_world import FaultyWorld, faulty
from support.endpoint_world import APPROVAL, POLL, URL, get, post

APPROVE = post(APPROVAL)
SOURCES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


@pytest.fixture
def world() -> Iterator[FaultyWorld]:
    with faulty() as world:
        yield world


def seen(world: FaultyWorld, source: str = SOURCES[0], count: int = 200) -> list[int]:
    return world.statuses(count, POLL, source)


def test_a_fault_without_selectors_hits_everything_until_it_is_cleared(world: FaultyWorld) -> None:
    world.fault("503")
    assert [world.get(source=source).status for source in SOURCES] == [503] * 3
    assert world.client().ask(APPROVE).status == 503
    world.clear()
    assert [world.get(source=source).status for source in SOURCES] == [200] * 3


def test_a_fault_of_one_vm_leaves_the_others_alone(world: FaultyWorld) -> None:
    world.fault("503", vm="web_1")
    assert [world.get(source=source).status for source in SOURCES] == [200, 503, 200]


def test_a_fault_by_count_ends_by_itself(world: FaultyWorld) -> None:
    fault = world.fault("503", count=3)
    assert seen(world, count=5) == [503] * 3 + [200] * 2
    found = world.call(world.book.get, fault.fault_id)
    assert (found.hits, found.over) == (3, True)
    assert world.call(world.book.list) == ()


def test_a_fault_by_method_leaves_other_methods_alone(world: FaultyWorld) -> None:
    world.fault("503", method="POST")
    world.fault("500", method="get")
    client = world.client()
    assert client.ask(APPROVE).status == 503
    assert client.ask(POLL).status == 500
    client.send(get(URL, "Metadata: true", method="HEAD"))
    assert client.answer(to_head=True).status == 405


def test_a_fault_for_a_time_ends_by_the_emulators_clock(world: FaultyWorld) -> None:
    world.fault("503", **{"for": "2m"})
    world.fault("500", for_s=200)
    begin_ms = world.now_ms
    assert world.call(world.book.ends) == begin_ms + 120_000
    assert world.get().status == 503
    world.pass_s(119.999)
    assert world.get().status == 503
    world.pass_s(0.001)
    assert world.get().status == 500
    assert world.call(world.book.ends) == begin_ms + 200_000
    world.pass_s(80)
    assert world.get().status == 200
    assert world.call(world.book.ends) is None


def test_a_410_is_over_after_70_seconds_unless_it_is_counted(world: FaultyWorld) -> None:
    world.fault("410")
    world.pass_s(69.9)
    assert world.get().status == 410
    world.pass_s(0.1)
    assert world.get().status == 200
    world.fault("410", count=1)
    world.pass_s(1_000)
    assert seen(world, count=2) == [410, 200]


def test_a_share_hits_about_that_share(world: FaultyWorld) -> None:
    world.fault("503", share=0.25)
    assert 25 <= seen(world).count(503) <= 75  # 50 are expected; the seed is fixed


def test_a_share_of_one_hits_everything(world: FaultyWorld) -> None:
    world.fault("503", share=1)
    assert seen(world, count=20) == [503] * 20


def choices(seed: int, sources: tuple[str, ...]) -> dict[str, list[int]]:
    with faulty(seed=seed) as world:
        world.fault("503", share=0.5)
        return {source: seen(world, source, count=60) for source in sources}


def test_the_same_seed_and_the_same_requests_give_the_same_choices() -> None:
    first = choices(7, SOURCES)
    assert choices(7, SOURCES) == first
    assert choices(8, SOURCES) != first
    assert len({tuple(row) for row in first.values()}) == 3  # each VM has its own row


def test_what_other_vms_do_does_not_change_the_choices_for_one() -> None:
    assert choices(7, SOURCES[::-1]) == choices(7, SOURCES)
    assert choices(7, SOURCES[1:2])[SOURCES[1]] == choices(7, SOURCES)[SOURCES[1]]


def test_selectors_combine(world: FaultyWorld) -> None:
    world.fault("503", vm="web_0", method="GET", share=0.5, count=4, **{"for": "1m"})
    assert seen(world, SOURCES[1], count=20) == [200] * 20
    assert world.statuses(20, APPROVE) == [200] * 20
    assert seen(world, count=40).count(503) == 4  # the fifth would have been chosen too
    world.fault("503", vm="web_0", count=10, **{"for": "1m"})
    assert seen(world, count=1) == [503]
    world.pass_s(60)
    assert seen(world, count=1) == [200]


def test_the_oldest_fault_that_hits_decides(world: FaultyWorld) -> None:
    world.fault("500", count=1)
    world.fault("503", count=1)
    world.fault("429")
    assert seen(world, count=4) == [500, 503, 429, 429]
