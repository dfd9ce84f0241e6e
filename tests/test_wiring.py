"""What wiring does beyond calls: a fleet kept arranged, room for descriptors, private files."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from forewarn.adapters.operator_token import operator_token
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.adapters.system import RandomIds, SystemClock
from forewarn.control.inventory import apply_at_once
from forewarn.core.errors import Unavailable
from forewarn.core.model import Vm
from forewarn.core.notice import HOST_SILENT_AFTER_MS
from forewarn.endpoint.endpoint import Endpoint
from forewarn.host.listeners import Listeners, ListenFailed
from forewarn.settings import OPERATOR_TOKEN_FILE, Settings
from forewarn.wiring.control import ControlWhere, open_control
from forewarn.wiring.control_and_hosts import ControlAndHosts
from forewarn.wiring.control_parts import Adapters
from forewarn.wiring.process import (
    DESCRIPTORS_MAX,
    GROWN_MIN,
    Growing,
    raise_descriptor_limit,
    settle_memory,
    without_collections,
)
from forewarn.wiring.serve import keep_arranged
from support import ordered
from support.clock import ManualClock
from support.link_world import chosen_settings
from support.waiting import until

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
    before = gc.get_threshold()
    of_python = (700, 10, 10)  # a service that began in this process may have left its own
    gc.set_threshold(*of_python)
    try:
        settle_memory()
        assert gc.get_freeze_count() > 0
        # Values that stay are made by the thousand, and are not all looked at each time.
        assert all(now > then for now, then in zip(gc.get_threshold(), of_python, strict=True))
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


@asynccontextmanager
async def assembled(folder: Path) -> AsyncIterator[tuple[ControlAndHosts, Listeners]]:
    """A control plane with hosts and listeners, none of its loops running."""
    settings, clock, store = Settings(data=folder / "data"), SystemClock(), SqliteStore.in_memory()
    parts = ControlAndHosts(
        settings,
        Adapters(store=store, clock=clock, lease_clock=clock, ids=RandomIds()),
        ring=lambda: None,
    )
    endpoint = Endpoint(
        parts.guests, now_ms=clock.now_ms, place=settings.place(), rules=settings.rules()
    )
    listeners = parts.serve_guests(endpoint)
    parts.writer.start()
    try:
        yield parts, listeners
    finally:
        await listeners.close()
        await parts.writer.stop()
        store.close()


def test_a_commit_has_only_what_it_changed_arranged(tmp_path: Path) -> None:
    """Else each commit of a large fleet would stop the event loop for the whole of it."""
    host = '[[host]]\nname = "h{}"\n'
    one = '[[vm]]\nname = "v{}"\nhost = "h1"\nlisten = "127.0.0.1:0"\n'
    fleet = "".join(host.format(n) for n in (1, 2)) + "".join(one.format(n) for n in range(5))
    asked: list[str] = []

    def listen(vm: Vm) -> str | None:
        asked.append(vm.name)
        return None

    async def main() -> None:
        async with assembled(tmp_path) as (parts, listeners):
            await parts.control.submit(apply_at_once.apply(fleet, by=ordered.operator("operator")))
            await parts.arrange(listeners, listen)
            assert sorted(asked) == [f"v{n}" for n in range(5)]
            asked.clear()
            parts.fleet_changed.clear()
            await parts.control.submit(ordered.claim("h1", "boot-1"))
            assert not parts.fleet_changed.is_set()  # a boot is nothing to arrange
            more = fleet + one.format(9) + host.format(3)
            await parts.control.submit(apply_at_once.apply(more, by=ordered.operator("operator")))
            assert parts.fleet_changed.is_set()
            await parts.arrange(listeners, listen)
            assert asked == ["v9"]

    asyncio.run(main())


def test_a_listener_follows_its_vm_from_scope_to_scope_and_goes_with_it(tmp_path: Path) -> None:
    host = '[[host]]\nname = "h1"\n'
    vm = '[[vm]]\nname = "a"\nhost = "h1"\nupdate_domain = 0\nlisten = "127.0.0.1:0"\n'
    group = '[[scope]]\nname = "web"\nkind = "placement-group"\n'
    other = '[[vm]]\nname = "b"\nhost = "h1"\naddress = "192.0.2.1"\n'

    async def main() -> None:
        async with assembled(tmp_path) as (parts, listeners):
            for text, there in (
                (host + vm + other, {"a"}),
                (host + group + vm + 'scope = "web"\n' + other, {"a"}),
                (host + other, set()),
                (host + vm + other, {"a"}),
            ):
                await parts.control.submit(
                    apply_at_once.apply(text, by=ordered.operator("operator"))
                )
                await parts.arrange(listeners, lambda vm: vm.profile.listen)
                assert listeners.addresses().keys() == there

    asyncio.run(main())


def test_nothing_is_kept_of_hosts_that_left_the_fleet(tmp_path: Path) -> None:
    """Hosts come and go under new names for years."""
    host, vm = '[[host]]\nname = "h{0}"\n', '[[vm]]\nname = "v{0}"\nhost = "h{0}"\n'
    vm += 'listen = "127.0.0.1:0"\n'

    async def main() -> None:
        async with assembled(tmp_path) as (parts, listeners):
            for number in range(6):
                text = host.format(number) + vm.format(number)
                await parts.control.submit(
                    apply_at_once.apply(text, by=ordered.operator("operator"))
                )
                await parts.arrange(listeners, lambda vm: vm.profile.listen)
                await parts.guests.enable(f"v{number}", f"v{number}")
                parts.guests.returned(f"v{number}")
                kept = (
                    parts.host_feed._by_host,
                    parts._together._readers,
                    parts.hosts._executors,
                )
                assert [set(one) for one in kept] == [{f"h{number}"}] * 3
                await parts.guests.send(polls=False)
                assert set(parts.guests._guests) == {f"h{number}"}

    asyncio.run(main())


def test_what_guests_of_a_host_did_goes_with_it_and_is_counted(tmp_path: Path) -> None:
    """Control believes nothing of a host that has left."""
    host, vm = '[[host]]\nname = "h{0}"\n', '[[vm]]\nname = "v{0}"\nhost = "h{0}"\n'
    vm += 'listen = "127.0.0.1:0"\n'

    async def main() -> None:
        async with assembled(tmp_path) as (parts, listeners):
            for number in (1, 2):
                text = host.format(number) + vm.format(number)
                await parts.control.submit(
                    apply_at_once.apply(text, by=ordered.operator("operator"))
                )
                await parts.arrange(listeners, lambda vm: vm.profile.listen)
                parts.guests.first_read(f"v{number}", f"v{number}", frozenset({"e1", "e2"}))
                if number == 1:
                    parts.guests._guests["h1"].dropped = 3
            assert set(parts.guests._guests) == {"h2"}
            assert parts.guests.dropped == 3 + 2  # a counter does not go back
            await parts.guests.send(polls=False)
            assert not parts.guests._guests["h2"].waiting

    asyncio.run(main())


def test_while_much_comes_to_be_no_garbage_is_looked_for_and_then_as_ever() -> None:
    growing = Growing()
    gc.collect()
    gc.unfreeze()
    try:
        with growing, growing:
            assert not gc.isenabled()
            kept = [[number] for number in range(100)]
        assert gc.isenabled()
        assert gc.get_freeze_count() == 0  # as little as that may be garbage
        with growing:
            kept = [[number] for number in range(GROWN_MIN)]
        assert gc.get_freeze_count() > len(kept)
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("is_on", [True, False])
def test_a_start_without_collections_leaves_the_collector_as_it_was(*, is_on: bool) -> None:
    was_on = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        with suppress(ValueError), without_collections():
            assert not gc.isenabled()
            raise ValueError("a start that fails")
        assert gc.isenabled() is is_on
    finally:
        (gc.enable if was_on else gc.disable)()


def test_while_control_starts_it_hears_no_host_and_takes_none_for_silent(tmp_path: Path) -> None:
    """Reading a large fleet may take longer than it takes a host to be silent."""
    clock = ManualClock()
    fleet = '[[host]]\nname = "h1"\n'

    async def main() -> None:
        service = open_control(chosen_settings(tmp_path, fleet, {}), lease_clock=clock)
        observed = service.parts.observed

        def started(_: ControlWhere) -> None:
            clock.pass_ms(10 * HOST_SILENT_AFTER_MS)  # the start took as long

        running = asyncio.ensure_future(service.run(started))
        try:
            await until(lambda: observed._pulse.beat_ms == clock.monotonic_ms(), "it runs")
            assert observed.may_be_on("h1")
            clock.pass_ms(HOST_SILENT_AFTER_MS)
            observed.pulse()
            assert observed.may_be_on("h1")  # that was no second of listening either
        finally:
            service.stop()
            await asyncio.wait_for(running, WAIT_S)

    asyncio.run(main())
