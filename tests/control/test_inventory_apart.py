"""Inventory files that another process reads: the same content, the same words."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from forewarn.adapters import child_processes
from forewarn.control.hosts.membership import Membership, Signing
from forewarn.control.hosts.report_intake import ReportIntake
from forewarn.control.inventory.apply_runner import Inventories, ReadsOnThread
from forewarn.control.inventory.file_reader import Mistake, ReadFiles, in_words, parse
from forewarn.control.inventory.reader_process import ENTRIES_PER_FRAME, ReadsApart
from forewarn.control.volatile import Volatile
from forewarn.control.writer import Wanted
from forewarn.core.errors import BadInventory, InventoryConflict, Unavailable
from forewarn.core.inventory.entries import Inventory
from forewarn.core.membership import Member, Members
from forewarn.core.model import EventType
from forewarn.core.principal import OPERATOR
from forewarn.wiring.inventory_child import MODULE
from support import ordered
from support.fleets import BOTH, HOSTS, WEB, alone, vm
from support.inventory_fleet import InventoryFleet
from support.waiting import until

T = TypeVar("T")

EVERYTHING = (
    '[[host]]\nname = "h1"\ncapacity = 7\n'
    '[[scope]]\nname = "web"\nkind = "availability-set"\nterminate_notice_minutes = 9\n'
    'auto_approve = ["reboot", "redeploy"]\nonly_listed = true\n'
    '[[vm]]\nname = "web_0"\nscope = "web"\nhost = "h1"\nupdate_domain = 3\npriority = "spot"\n'
    'address = "192.0.2.1"\nlisten = "127.0.0.1:81"\ntags = { b = "2", "ä" = "€" }\n'
    'fault_domain = 4\nzone = "1"\nos_type = "Windows"\ncomputer_name = "WEB0"\n'
    '[[vm]]\nname = "alone"\nhost = "h1"\naddress = "2001:db8::1"\n'
)


def apart() -> ReadsApart:
    return ReadsApart(child_processes.ask, module=MODULE, apart_chars=0)


def run(work: Awaitable[T]) -> T:
    async def main() -> T:
        return await asyncio.wait_for(work, 60)

    return asyncio.run(main())


def test_a_file_that_is_read_apart_says_the_same_with_every_key() -> None:
    read = run(apart().read(EVERYTHING, needs_channels=True))
    expected = parse(EVERYTHING)
    assert read == expected
    assert [vm.number for vm in read.vms] == [vm.number for vm in expected.vms]


def test_a_file_of_many_frames_is_whole() -> None:
    count = ENTRIES_PER_FRAME * 2 + 1
    text = HOSTS + "".join(
        alone(f"v{n}", address=f"10.0.{n // 250}.{n % 250 + 1}") for n in range(count)
    )
    assert run(apart().read(text, needs_channels=True)) == parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "this is no TOML",
        HOSTS + WEB + vm("a", priority="high") + vm("b", host="none"),
        HOSTS + '[[vm]]\nname = "deaf"\nhost = "h1"\n',
        "\x00",
    ],
)
def test_a_file_that_is_wrong_is_refused_in_the_same_words(text: str) -> None:
    with pytest.raises(BadInventory) as here:
        parse(text)
    with pytest.raises(BadInventory) as there:
        run(apart().read(text, needs_channels=True))
    assert (there.value.refused, there.value.accepted) == (here.value.refused, here.value.accepted)


def test_channels_are_not_needed_where_they_are_not() -> None:
    text = HOSTS + '[[vm]]\nname = "tap"\nhost = "h1"\n'
    assert run(apart().read(text, needs_channels=False)).vms[0].name == "tap"


def test_the_lines_of_clashes_are_found_apart() -> None:
    found = [Mistake(("vm", 1, "address"), "no."), Mistake((), "the whole.")]
    assert run(apart().words(BOTH, found)) == in_words(BOTH, found)


def test_a_clash_with_the_fleet_names_its_lines() -> None:
    fleet = InventoryFleet()
    fleet.apply(BOTH)
    fleet.order("web_1", EventType.REBOOT)
    inventories = Inventories(fleet.control, reads=apart(), slice_vms=1)
    text = BOTH.replace("update_domain = 1", "update_domain = 2")
    with pytest.raises(InventoryConflict) as whole:
        fleet.apply(text)
    with pytest.raises(InventoryConflict) as sliced:
        run(inventories.apply(text, by=OPERATOR, guard=lambda command: command))
    assert str(sliced.value) == str(whole.value)


def _children_of_this_process() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has just ended
            found += [int(word) for word in (task / "children").read_text().split()]
    return found


async def _kill_child(found: Callable[[], list[int]]) -> None:
    await until(found, "the child is there")
    for pid in found():
        os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="the children are found in /proc")
def test_a_reader_that_dies_is_said_and_nothing_was_applied() -> None:
    before = set(_children_of_this_process())
    fleet = InventoryFleet()
    inventories = Inventories(fleet.control, reads=apart(), slice_vms=1)

    async def main() -> None:
        killing = asyncio.ensure_future(
            _kill_child(lambda: [pid for pid in _children_of_this_process() if pid not in before])
        )
        with pytest.raises(Unavailable, match=r"reads the inventory has ended \(by signal 9\)"):
            await inventories.apply(BOTH, by=OPERATOR, guard=lambda command: command)
        await killing

    run(main())
    assert fleet.commits == []
    assert set(_children_of_this_process()) == before


@pytest.mark.skipif(sys.platform != "linux", reason="the children are found in /proc")
def test_who_does_not_wait_any_more_leaves_no_reader_behind() -> None:
    before = set(_children_of_this_process())

    async def main() -> None:
        reading = asyncio.ensure_future(apart().read(BOTH, needs_channels=True))
        await until(lambda: set(_children_of_this_process()) != before, "the child is there")
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    run(main())
    assert set(_children_of_this_process()) == before


@pytest.mark.skipif(sys.platform != "linux", reason="the children are found in /proc")
def test_a_reader_that_hangs_is_ended_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else no other inventory would ever have its turn."""
    before = set(_children_of_this_process())
    (tmp_path / "hanging_reader.py").write_text("import time\ntime.sleep(3600)\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    asking = child_processes.ask("hanging_reader", b"?", "", list, what="reads", within_s=0.5)
    with pytest.raises(Unavailable, match=r"process that reads has not answered within"):
        run(asking)
    assert set(_children_of_this_process()) == before


def test_a_file_that_was_read_is_not_read_again() -> None:
    files = ReadFiles()
    known = parse(BOTH)
    files.keep(BOTH, known)
    files.keep(EVERYTHING, parse(EVERYTHING), counts=BOTH)
    assert files.read("".join(BOTH)) is known  # the one that counts stays beside the last one
    files.keep(HOSTS, parse(HOSTS), counts=EVERYTHING)
    assert files.read(BOTH) == known
    assert files.read(BOTH) is not known


def test_files_that_are_refused_do_not_have_the_applied_one_read_again() -> None:
    """The writer asks what the applied one lists; to read a large one would stop it for long."""
    fleet, files = InventoryFleet(), ReadFiles()
    inventories = Inventories(fleet.control, files=files)
    run(inventories.apply(BOTH, by=OPERATOR, guard=lambda command: command))
    known = files.known(BOTH)
    assert known is not None
    fleet.order("web_0", EventType.REBOOT)
    for number in range(3):
        refused = HOSTS + WEB + vm("web_1", update_domain=1, host="h2", zone=str(number))
        with pytest.raises(InventoryConflict):
            run(inventories.apply(refused, by=OPERATOR, guard=lambda command: command))
    assert files.known(BOTH) is known


def test_what_is_applied_is_known_to_whoever_asks_what_it_lists() -> None:
    fleet, files = InventoryFleet(), ReadFiles()
    inventories = Inventories(fleet.control, files=files)
    run(inventories.apply(BOTH, by=OPERATOR, guard=lambda command: command))
    assert fleet.index.inventory is not None
    assert files.read(fleet.index.inventory) is files.read(BOTH)
    again = ReadFiles()
    run(Inventories(fleet.control, files=again).prepare())
    assert (again.known(BOTH) is not None, again.reading) == (True, False)


def test_a_large_file_is_read_after_the_start_and_reports_come_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else control would be away for as long as that takes."""
    monkeypatch.setattr("forewarn.control.inventory.apply_runner.READ_LATER_CHARS_MIN", 1)
    fleet, files = InventoryFleet(), ReadFiles()
    fleet.apply(BOTH)
    inventories = Inventories(fleet.control, files=files)
    report_intake = ReportIntake(fleet.clock, Volatile(0, files=files))

    async def main() -> None:
        await inventories.prepare()
        assert (files.known(BOTH), files.reading) == (None, True)
        with pytest.raises(Unavailable, match="inventory file is being read"):
            await report_intake.take(fleet.control, "h1", ())
        running = asyncio.ensure_future(inventories.run())
        await until(lambda: not files.reading, "it is read")
        assert files.known(BOTH) == parse(BOTH)
        await report_intake.take(fleet.control, "h1", ())
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(main())


class DyingReader(ReadsOnThread):
    """Its process dies twice: memory is short for a moment."""

    def __init__(self) -> None:
        self.deaths = 2

    async def read(self, text: str, *, needs_channels: bool) -> Inventory:
        if self.deaths:
            self.deaths -= 1
            raise Unavailable("The process that reads the inventory has ended.")
        return await super().read(text, needs_channels=needs_channels)


def test_a_large_file_whose_reader_dies_at_a_start_is_read_again_and_reports_wait_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the first report would have the writer read it, when memory is short already."""
    monkeypatch.setattr("forewarn.control.inventory.apply_runner.READ_LATER_CHARS_MIN", 1)
    monkeypatch.setattr("forewarn.control.inventory.apply_runner.LOOK_AGAIN_S", 0.01)
    fleet, files = InventoryFleet(), ReadFiles()
    fleet.apply(BOTH)
    inventories = Inventories(fleet.control, files=files, reads=DyingReader())

    async def main() -> None:
        await inventories.prepare()
        running = asyncio.ensure_future(inventories.run())
        await until(lambda: not files.reading, "it is read")
        assert files.known(BOTH) == parse(BOTH)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(main())


def test_a_large_file_that_took_the_place_of_another_at_a_start_is_not_read_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reports of hosts wait for as long as it is being read."""
    monkeypatch.setattr("forewarn.control.inventory.apply_runner.READ_LATER_CHARS_MIN", 1)
    fleet, files = InventoryFleet(), ReadFiles()
    fleet.apply(HOSTS)
    inventories = Inventories(fleet.control, files=files)

    async def main() -> None:
        await inventories.prepare()
        await inventories.apply_at_once(BOTH, by=ordered.operator("inventory"))
        known = files.known(BOTH)
        running = asyncio.ensure_future(inventories.run())
        await until(lambda: not files.reading, "reports are taken")
        assert files.known(BOTH) is known
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(main())


class WatchedFiles(ReadFiles):
    """Remembers whether each file that the writer asked for was known by then."""

    def __init__(self) -> None:
        super().__init__()
        self.known_when_asked: list[bool] = []

    def read(self, text: str) -> Inventory:
        self.known_when_asked.append(self.known(text) is not None)
        return super().read(text)


async def taken_once_read(
    membership: Membership, files: ReadFiles, fleet: InventoryFleet, host: str
) -> None:
    """The file is read, and the host's place is taken because of that."""
    running = asyncio.ensure_future(membership.run())
    files.reading = False
    await until(lambda: host not in fleet.index.hosts, f"the place of {host} is taken")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def nobody_joined(fleet: InventoryFleet, files: ReadFiles) -> Membership:
    """Members as after a restored backup: the fleet has hosts that nobody is a member for."""

    def never(*_: object) -> Any:
        raise AssertionError("nobody joins here")

    signing = Signing(fingerprint="", pem="", read_request=never, read_peer=never, sign=never)
    return Membership(
        Members(),
        keep=never,
        signing=signing,
        control=fleet.control,
        clock=fleet.clock,
        files=files,
    )


def test_places_of_hosts_that_left_are_taken_at_a_start_once_a_large_file_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the writer would read it, once for each of them, before anybody is served."""
    monkeypatch.setattr("forewarn.control.inventory.apply_runner.READ_LATER_CHARS_MIN", 1)
    fleet, files = InventoryFleet(), WatchedFiles()
    fleet.apply(BOTH)
    for name in ("h3", "h4", "h5"):
        fleet.run(ordered.host_joined(name, by="test"))
    inventories, membership = Inventories(fleet.control, files=files), nobody_joined(fleet, files)

    async def main() -> None:
        await inventories.prepare()
        await membership.settle()
        assert {host.name for host in fleet.published.hosts() if host.joined} == {"h3", "h4", "h5"}
        loops = [asyncio.ensure_future(one.run()) for one in (membership, inventories)]
        await until(lambda: set(fleet.index.hosts) == {"h1", "h2", "h3"}, "the places are taken")
        for one in loops:
            assert not one.done()
            one.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    run(main())
    assert not fleet.host("h3").joined  # and stays: the file lists it
    assert files.known_when_asked == [True]  # once for all of them


def test_places_of_hosts_that_left_are_taken_at_a_start_with_a_small_file() -> None:
    fleet, files = InventoryFleet(), WatchedFiles()
    fleet.apply(BOTH)
    fleet.run(ordered.host_joined("h4", by="test"))

    async def main() -> None:
        await Inventories(fleet.control, files=files).prepare()
        await nobody_joined(fleet, files).settle()

    run(main())
    assert "h4" not in fleet.index.hosts
    assert files.known_when_asked == [True]


def test_a_place_that_could_not_be_taken_is_taken_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.control.hosts.membership.PLACES_AGAIN_S", 0.01)
    fleet, files, failures = InventoryFleet(), ReadFiles(), [0, 1]
    fleet.run(ordered.host_joined("h4", by="test"))

    class FullDisk:
        async def submit(self, command: Wanted[T]) -> T:
            if failures:
                failures.pop()
                raise Unavailable("the disk is full")
            return fleet.run(command)

    async def main() -> None:
        membership = nobody_joined(fleet, files)
        files.reading = True
        await membership.settle()
        fleet.control._writer = FullDisk()
        await taken_once_read(membership, files, fleet, "h4")

    run(main())
    assert failures == []


def test_a_bug_in_taking_a_place_ends_no_process_and_is_logged_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forewarn.control.hosts.membership.PLACES_AGAIN_S", 0.01)
    fleet, files, failures = InventoryFleet(), ReadFiles(), [0, 1, 2]
    fleet.run(ordered.host_joined("h4", by="test"))

    class Broken:
        async def submit(self, command: Wanted[T]) -> T:
            if failures:
                failures.pop()
                raise TypeError("unhashable")
            return fleet.run(command)

    async def main() -> Membership:
        membership = nobody_joined(fleet, files)
        files.reading = True
        await membership.settle()
        fleet.control._writer = Broken()
        await taken_once_read(membership, files, fleet, "h4")
        return membership

    with capture_logs() as lines:
        membership = asyncio.run(main())
    told = [(line["event"], line["hosts"]) for line in lines if line["log_level"] == "error"]
    assert told == [("host_places_broke", ["h4"])]
    assert membership.failures == 3


def test_a_host_that_joins_again_while_the_file_is_read_keeps_its_place() -> None:
    fleet, files = InventoryFleet(), ReadFiles()
    for name in ("h4", "h5"):
        fleet.run(ordered.host_joined(name, by="test"))

    async def main() -> None:
        membership = nobody_joined(fleet, files)
        files.reading = True
        await membership.settle()
        again = Member(name="h5", key="k5", since_ms=0)
        membership._members = replace(membership._members, members={"h5": again})
        await taken_once_read(membership, files, fleet, "h4")

    run(main())
    assert fleet.host("h5").joined


@pytest.mark.skipif(sys.platform != "linux", reason="the limits are read from /proc")
def test_the_reader_limits_its_own_memory() -> None:
    """So that no file, whatever is in it, takes the memory that the service needs."""
    code = (
        "import resource\n"
        "from forewarn.adapters import child_processes as children\n"
        "children.answer(lambda *_: [str(resource.getrlimit(resource.RLIMIT_AS)[0]).encode()])\n"
    )
    asked = struct.pack(">I", 1) + b"x" + b"text"
    ran = subprocess.run([sys.executable, "-c", code], input=asked, capture_output=True, check=True)
    assert str(child_processes.CHILD_BYTES_MAX).encode() in ran.stdout
