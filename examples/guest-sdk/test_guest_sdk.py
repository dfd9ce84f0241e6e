"""The examples do what they say, as processes against an emulated cloud."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forewarn.testing import Cloud

HERE = Path(__file__).parent
PATIENCE_S = 10.0


class Program:
    """A running example and what it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: queue.Queue[str] = queue.Queue()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def says(self, begin: str) -> None:
        """Waits for a line that begins so; lines before it do not matter."""
        while not self.lines.get(timeout=PATIENCE_S).startswith(begin):
            pass

    def end(self) -> None:
        """Is ended, promptly. Not as Ctrl-C does: in the background of a shell that is ignored."""
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self._thread.join(PATIENCE_S)


@contextmanager
def running(name: str, url: str) -> Iterator[Program]:
    package = HERE.parent.parent / "guest" / "src"
    environment = {**os.environ, "FOREWARN_ENDPOINT": url, "PYTHONPATH": str(package)}
    with subprocess.Popen(  # noqa: S603 - one of ours
        [sys.executable, str(HERE / name)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        program = Program(process)
        try:
            yield program
        finally:
            program.end()


@pytest.mark.parametrize("name", ["plain_program.py", "with_asyncio.py"])
def test_it_drains_approves_and_works_again(cloud: Cloud, name: str) -> None:
    with running(name, cloud.vm("vm0").url) as program:
        reboot = cloud.restart("vm0")
        program.says("draining: Reboot")
        cloud.expect_approved(reboot, by="vm0", within=PATIENCE_S)
        cloud.clock.advance(minutes=20)
        cloud.expect_gone(reboot)
        program.says("working again")


def test_the_thread_stops_the_work_and_lets_it_go_on(cloud: Cloud) -> None:
    with running("in_a_thread.py", cloud.vm("vm0").url) as program:
        program.says("working")
        reboot = cloud.restart("vm0")
        cloud.expect_approved(reboot, by="vm0", within=PATIENCE_S)
        program.says("drained")
        cloud.clock.advance(minutes=20)
        cloud.expect_gone(reboot)
        program.says("working")
