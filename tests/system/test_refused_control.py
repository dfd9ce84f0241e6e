"""A control that lost what it knew: no guest reads an older incarnation, and no host obeys it."""

from __future__ import annotations

import asyncio
import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from forewarn.adapters import marks_file
from forewarn.core.incarnation_marks import Marks
from forewarn.wiring.accept_control import accept_control
from support.host_world import WEB, Cloud, cloud, run, scheduled
from support.system_world import copy_folder
from support.waiting import until

OLD = "control-as-it-was"


async def read(there: Cloud, vm: str) -> int:
    return int((await there.document(vm))["DocumentIncarnation"])


async def copied(there: Cloud) -> None:
    """Keep a copy of control's whole data folder as it is now."""
    await there.stop_control()
    copy_folder(there.folder / "control", there.folder / OLD)
    await there.start_control()
    await up(there)


async def up(there: Cloud) -> None:
    for service in there.hosts.values():
        await until(lambda s=service: s.feed_reader.up, "control is followed")  # type: ignore[misc]


async def raised(there: Cloud, vm: str) -> int:
    """Have events come and go, so that the document of the VM moves on; where it is then."""
    before = await read(there, vm)
    for _ in range(2):
        event_id = await scheduled(there, vm)
        await there.operator("POST", f"events/{event_id}/cancel", {})

        async def gone() -> bool:
            return not await there.events(vm)

        await until(gone, "it has left the document")
    after = await read(there, vm)
    assert after >= before + 4
    return after


async def went_back(there: Cloud) -> None:
    """Have the control of the copy under the same name, instead of the right one."""
    await there.stop_control()
    (there.folder / "control").rename(there.folder / "control-right")
    (there.folder / OLD).rename(there.folder / "control")
    await there.start_control()


async def refused(there: Cloud, host: str) -> None:
    await until(lambda: host in there.hosts and there.hosts[host].feed_reader.refused, "refused")


def test_a_restarted_daemon_shows_nothing_older_whatever_control_it_has_joined(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            await copied(there)
            before = await raised(there, "web_0")
            await went_back(there)
            await refused(there, "h1")
            assert await read(there, "web_0") == before

            await there.stop_host("h1")
            await there.start_host("h1")
            await refused(there, "h1")
            assert await read(there, "web_0") == before

            await there.stop_host("h1")
            await there.start_host("h1", token=await there.token("h1"))  # joins again
            await refused(there, "h1")
            assert await read(there, "web_0") == before

    run(test())


def test_marks_outlive_the_documents_that_were_kept(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            await copied(there)
            await raised(there, "web_0")
            await there.stop_host("h1")
            (tmp_path / "h1" / "documents.json").unlink()
            await went_back(there)
            await there.start_host("h1")
            await refused(there, "h1")

            # Nobody knows what it read last, so it reads nothing; and never less.
            assert there.hosts["h1"].documents.page("web") is None

    run(test())


def test_a_control_that_was_made_anew_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            before = await raised(there, "web_0")
            await there.stop_control()
            (tmp_path / "control").rename(tmp_path / "control-right")
            (tmp_path / "control").mkdir(mode=0o700)
            shutil.copytree(tmp_path / "control-right" / "link", tmp_path / "control" / "link")
            await there.start_control()  # with its link/ folder: the hosts are still members
            await refused(there, "h1")

            await until(lambda: there.guest("web_0"), "its guests are served")
            assert await read(there, "web_0") == before

    run(test())


def test_an_event_canceled_at_the_right_control_is_not_executed_by_order_of_the_old_one(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            event_id = await scheduled(there, "web_0")
            await copied(there)
            await there.operator("POST", f"events/{event_id}/cancel", {})

            async def gone() -> bool:
                return not await there.events("web_0")

            await until(gone, "it has left the document")
            await went_back(there)
            await refused(there, "h1")
            await until(told(there, "h1"), "control is told")
            await there.operator("POST", f"events/{event_id}/approve", {"reason": "a test"})
            sweeps = there.hosts["h1"].hosts.heartbeats + 2
            await until(
                lambda: there.hosts["h1"].hosts.heartbeats >= sweeps, "it had its time to act"
            )

            event = await there.operator("GET", f"events/{event_id}")
            assert event["phase"] == "scheduled"
            explained = await there.operator("GET", f"events/{event_id}/explain")
            [hold] = explained["holds"]
            assert hold["reason"] == "host-refuses"
            assert "host h1 takes no orders from this control" in hold["what"]
            assert "would go back from incarnation" in hold["remedy"]
            assert "forewarn host accept-control" in hold["remedy"]

            await there.stop_host("h1")  # and so it is after a restart of the daemon
            await there.start_host("h1")
            await until(told(there, "h1"), "control is told again")
            event = await there.operator("GET", f"events/{event_id}")
            assert event["phase"] == "scheduled"

    run(test())


def told(there: Cloud, host: str) -> Any:
    async def look() -> bool:
        shown = await there.operator("GET", f"hosts/{host}")
        return bool(shown["refuses"]) and shown["placement"] == "refusing"

    return look


def test_after_accept_control_the_host_shows_what_control_has_and_obeys(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            await copied(there)
            before = await raised(there, "web_0")
            await went_back(there)
            await refused(there, "h1")
            marks_file.ask_to_accept(tmp_path / "h1")

            async def lower() -> bool:
                return await read(there, "web_0") < before

            await until(lower, "the host shows what control has")
            assert not marks_file.accepting(tmp_path / "h1")
            event_id = await scheduled(there, "web_0")
            assert (await there.approve("web_0", event_id)).status_code == 200

            async def completed() -> bool:
                event = await there.operator("GET", f"events/{event_id}")
                return bool(event["phase"] == "completed")

            await until(completed, "the host obeys")

            async def gone() -> bool:
                return not await there.events("web_0")

            await until(gone, "it has left the document")
            shown = await there.operator("GET", "hosts/h1")
            assert (shown["refuses"], shown["placement"]) == ("", "open")
            # What was forgotten is forgotten after a restart too.
            now = await read(there, "web_0")
            await there.stop_host("h1")
            await there.start_host("h1")
            await until(lambda: there.guest("web_0"), "it is served again")
            assert await read(there, "web_0") == now
            assert there.hosts["h1"].feed_reader.refuses == ""

    run(test())


def test_accept_control_for_a_daemon_that_is_stopped_counts_at_its_next_start(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            await copied(there)
            before = await raised(there, "web_0")
            await there.stop_host("h1")
            await went_back(there)
            assert not accept_control(tmp_path / "h1")  # there is nobody to wait for
            await there.start_host("h1")
            await until(lambda: there.guest("web_0"), "it is served again")

            assert await read(there, "web_0") < before
            assert there.hosts["h1"].feed_reader.refuses == ""

    run(test())


def test_accept_control_counts_for_a_daemon_that_is_started_while_control_is_away(
    tmp_path: Path,
) -> None:
    """Else it would show what was shown last, and so refuse the control that was accepted."""

    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            await copied(there)
            before = await raised(there, "web_0")
            await there.stop_host("h1")
            await there.stop_control()
            assert not accept_control(tmp_path / "h1")
            starting = asyncio.ensure_future(there.start_host("h1"))
            await until(lambda: not marks_file.accepting(tmp_path / "h1"), "it is taken up")
            await went_back(there)
            await starting
            await until(lambda: there.guest("web_0"), "it is served again")

            assert await read(there, "web_0") < before
            assert there.hosts["h1"].feed_reader.refuses == ""

    run(test())


def test_a_full_disk_keeps_guests_at_their_document_and_control_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = marks_file.keep

    def full(folder: Path, marks: Marks) -> None:
        if folder.name == "h1":
            raise OSError(errno.ENOSPC, "No space left on device")
        keep(folder, marks)

    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            before = await raised(there, "web_0")
            with monkeypatch.context() as patch:
                patch.setattr(marks_file, "keep", full)
                ordered = await there.operator("POST", "vms/web_0/restart", {})
                await until(told(there, "h1"), "control is told")

                shown = await there.operator("GET", "hosts/h1")
                assert "No space left on device" in shown["refuses"]
                assert await read(there, "web_0") == before
                event = await there.operator("GET", f"events/{ordered['event_id']}")
                assert event["shown"] is None  # nobody confirmed it: its notice does not run

            events = await until(lambda: there.events("web_0"), "it is shown when there is room")
            assert [event["EventId"] for event in events] == [ordered["event_id"]]
            await until(lambda: obeying(there, "h1"), "control is told that there is room")

    run(test())


async def obeying(there: Cloud, host: str) -> bool:
    return not (await there.operator("GET", f"hosts/{host}"))["refuses"]


def test_a_daemon_of_before_marks_takes_them_from_its_last_documents(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            await copied(there)
            before = await raised(there, "web_0")
            await there.stop_host("h1")
            (tmp_path / "h1" / marks_file.MARKS_FILE).unlink()
            await went_back(there)
            await there.start_host("h1")
            await refused(there, "h1")

            await until(lambda: there.guest("web_0"), "it is served again")
            assert await read(there, "web_0") == before
            marks = marks_file.load(tmp_path / "h1")
            assert marks is not None
            assert set(marks.of_vm.values()) == {before}

    run(test())


@pytest.mark.parametrize("both", [False, True])
def test_damaged_marks_are_told_to_control_and_nothing_is_obeyed_until_the_operators_word(
    tmp_path: Path, *, both: bool
) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            before = await raised(there, "web_0")
            await there.stop_host("h1")
            path = tmp_path / "h1" / marks_file.MARKS_FILE
            path.write_bytes(path.read_bytes()[:-9])
            if both:
                (tmp_path / "h1" / "documents.json").write_bytes(b"null")
            await there.start_host("h1")
            await until(told(there, "h1"), "control is told")

            shown = await there.operator("GET", "hosts/h1")
            assert "is damaged" in shown["refuses"]
            await until(lambda: there.guest("web_0"), "it is served all the same")
            assert await read(there, "web_0") == before
            await there.stop_host("h1")  # a restart alone mends nothing
            await there.start_host("h1")
            await until(told(there, "h1"), "control is told again")

            marks_file.ask_to_accept(tmp_path / "h1")
            await until(lambda: obeying(there, "h1"), "it obeys")

    run(test())


def test_a_revoked_host_holds_what_is_scheduled_there_and_explain_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            event_id = await scheduled(there, "web_0")
            await there.operator("POST", "hosts/h1/revoke", {})
            await there.operator("POST", f"events/{event_id}/approve", {"reason": "a test"})

            explained = await there.operator("GET", f"events/{event_id}/explain")
            [hold] = explained["holds"]
            assert hold["reason"] == "host-not-joined"
            assert "does not listen to host h1" in hold["what"]
            assert "forewarn host invite h1" in hold["remedy"]
            shown = await there.operator("GET", "hosts/h1")
            assert (shown["joined"], shown["placement"]) == (False, "not-joined")

            await there.stop_host("h1")
            await there.start_host("h1", token=await there.token("h1"))

            async def completed() -> bool:
                event = await there.operator("GET", f"events/{event_id}")
                return bool(event["phase"] == "completed")

            await until(completed, "a host that has joined again goes on")

    run(test())


def test_what_was_kept_is_not_shown_again_once_something_newer_was(tmp_path: Path) -> None:
    async def test() -> None:
        async with cloud(tmp_path, WEB) as there:
            await scheduled(there, "web_0")
            kept = tmp_path / "h1" / "documents.json"
            await there.stop_host("h1")
            older = kept.read_bytes()
            await there.start_host("h1")
            await until(lambda: there.guest("web_0"), "it is served again")
            await there.operator("POST", "vms/web_0/redeploy", {})

            async def both() -> bool:
                return len(await there.events("web_0")) == 2

            await until(both, "both can be read")
            await there.stop_host("h1")
            kept.write_bytes(older)  # as if it was killed before it had kept anything newer
            await there.stop_control()
            h1 = await there.start_host("h1")
            assert h1.documents.page("web") is None

            await there.start_control()
            await until(lambda: h1.feed_reader.up, "control is followed")
            await until(lambda: there.guest("web_0"), "it is served again")
            assert await both()

    run(test())
