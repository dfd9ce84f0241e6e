"""What is seen of the agent: written soon, said once, and never in the agent's way."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Callable

import pytest

from forewarn_guest import atomic_files, status_writer
from forewarn_guest.agent import View
from forewarn_guest.configuration import Configuration
from forewarn_guest.errors import BadAnswer, Unreachable
from forewarn_guest.logs import Log
from forewarn_guest.pauses import Pause
from forewarn_guest.status_writer import StatusWriter
from forewarn_guest.systemd import Notifier
from outside_world import wait_until

VIEW = View("vm0", (), running=(), document=None, counts={"documents": 1}, unkept=0)


class World:
    """A status writer, its folder and what it logs."""

    def __init__(self, folder: Path, put: Callable[[Path, bytes], None] = atomic_files.put) -> None:
        self.folder = folder
        self.lines = io.StringIO()
        self.status = folder / "status.json"
        self.metrics = folder / "agent.prom"
        configuration = Configuration(
            rules=(), folder=folder, status_file=self.status, metrics_file=self.metrics
        )
        log = Log(stream=self.lines)
        self.outside = StatusWriter(
            configuration, folder / "a.toml", log=log, notifier=Notifier(), put=put
        )

    def said(self, text: str) -> int:
        return self.lines.getvalue().count(text)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    yield found
    found.outside.end()


def test_both_files_are_there_after_the_first_view(world: World) -> None:
    world.outside.show(VIEW)
    wait_until(world.metrics.exists, "the metrics")
    content = json.loads(world.status.read_text())
    assert content["agent"]["pid"] == os.getpid()
    assert content["vm"] == "vm0"
    assert "forewarn_guest_documents_total 1" in world.metrics.read_text()
    assert world.status.stat().st_mode & 0o777 == 0o644


def test_a_view_that_says_nothing_new_is_not_written_again(world: World) -> None:
    world.outside.show(VIEW)
    wait_until(world.metrics.exists, "the metrics")
    written = world.status.stat().st_ino
    world.outside.show(VIEW)
    world.outside.show(replace(VIEW, counts={"documents": 2}))
    wait_until(lambda: world.status.stat().st_ino != written, "what is new")


def test_a_disk_that_stands_still_does_not_fill_the_memory(tmp_path: Path) -> None:
    go_on = threading.Event()

    def put(path: Path, data: bytes) -> None:
        assert go_on.wait(60.0)
        atomic_files.put(path, data)

    world = World(tmp_path, put)
    for number in range(100):
        world.outside.show(replace(VIEW, vm=f"vm{number}"))
        assert world.outside._to_write.qsize() <= status_writer.WAITING_MAX
    go_on.set()
    wait_until(lambda: '"vm99"' in _text(world.status), "the newest view")
    world.outside.end()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_what_ends_says_that_it_has_ended(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.outside.show(VIEW)
    world.outside.end()
    content = json.loads(world.status.read_text())
    assert content["agent"]["ended"] is True
    assert content["vm"] == "vm0"


def test_a_folder_that_cannot_be_written_is_said_once_and_counted(world: World) -> None:
    world.folder.rename(world.folder.with_name("elsewhere"))
    for number in range(5):
        world.outside.show(replace(VIEW, counts={"documents": number}))
    wait_until(lambda: world.said("cannot be written"), "that it cannot be written")
    world.folder.with_name("elsewhere").rename(world.folder)
    world.outside.show(VIEW)
    wait_until(world.status.exists, "the file, once it can be written")
    assert world.said("cannot be written") == 1


def test_a_disk_that_stands_still_holds_nobody_up(tmp_path: Path) -> None:
    stands, go_on = threading.Event(), threading.Event()
    written: list[bytes] = []

    def stand_still(path: Path, data: bytes) -> None:
        stands.set()
        go_on.wait(60.0)
        if path.suffix == ".json":
            written.append(data)

    world = World(tmp_path, stand_still)
    world.outside.show(VIEW)
    assert stands.wait(60.0)
    for number in range(2, 100):
        world.outside.show(replace(VIEW, counts={"documents": number}))
    go_on.set()
    # The first, which was under way, and the newest; what was overtaken is not written.
    wait_until(lambda: len(written) == 2, "the newest")
    assert [json.loads(data)["counts"]["documents"] for data in written] == [1, 99]
    world.outside.end()


def test_an_endpoint_that_is_away_is_said_once_and_counted_each_time(world: World) -> None:
    for number in range(50):
        world.outside.trouble(Unreachable(f"It did not answer, for the {number}th time."))
    world.outside.answered()
    world.outside.answered()
    assert world.said("trouble") == 1
    assert world.said("answers again") == 1
    world.outside.show(VIEW)
    wait_until(world.metrics.exists, "the metrics")
    assert 'errors_total{kind="unreachable"} 50' in world.metrics.read_text()


def test_each_kind_of_trouble_is_said(world: World) -> None:
    world.outside.trouble(Unreachable("It did not answer."))
    world.outside.trouble(BadAnswer("It answered with HTML."))
    assert world.said("kind=unreachable") == world.said("kind=bad-answer") == 1


def test_an_endpoint_that_comes_and_goes_does_not_fill_the_log(world: World) -> None:
    for _ in range(50):
        world.outside.trouble(Unreachable("It did not answer."))
        world.outside.answered()
    assert world.said("\n") == 2


def test_the_status_keeps_only_the_last_errors(world: World) -> None:
    for number in range(100):
        world.outside.error("files", f"number {number} " + "x" * 10_000)
    world.outside.show(VIEW)
    wait_until(world.status.exists, "the status")
    errors = json.loads(world.status.read_text())["errors"]
    assert len(errors) == status_writer.ERRORS_SHOWN_MAX
    assert errors[-1]["why"].startswith("number 99 ")
    assert len(errors[-1]["why"]) <= status_writer.ERROR_CHARS_MAX


def test_a_machine_that_is_always_late_does_not_fill_the_journal(world: World) -> None:
    kept = [
        world.outside.paused(Pause(gap_s=1.0)) for _ in range(status_writer.PAUSES_KEPT_MAX + 50)
    ]
    assert sum(kept) == status_writer.PAUSES_KEPT_MAX


def test_a_file_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic_files.put(path, b"one")
    atomic_files.put(path, b"two", 0o600)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    path.mkdir()
    (path / "in the way").touch()
    with pytest.raises(OSError, match="file"):
        atomic_files.put(path, b"three")
    assert [found.name for found in tmp_path.iterdir()] == ["file"]
