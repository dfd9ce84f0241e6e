"""The example's tests are worth something: they fail when what they promise is taken away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.testing import Cloud
from support.waiting import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "queue-worker"
RUN_SECONDS_MAX = 100
PATIENCE_S = 60

WITHOUT = {
    "waiting for the job in hand": (
        "return self._change.wait_for(lambda: not self._busy, self._pause_s)",
        "return True",
    ),
    "stopping to take jobs": (
        "job = None if self._draining else self._spool.take()",
        "job = self._spool.take()",
    ),
    "the whole drain": (
        "        if not self._drained(left_s):\n            return\n",
        "",
    ),
    "giving up what takes too long": ("if left_s <= GIVE_UP_S:", "if left_s < 0:"),
    "looking whose event it is": ('if vm in event["Resources"]', ""),
}


@pytest.mark.parametrize("what", list(WITHOUT))
def test_the_tests_of_the_example_fail_without(what: str, tmp_path: Path) -> None:
    present, instead = WITHOUT[what]
    worker = (EXAMPLE / "queue_worker.py").read_text()
    assert worker.count(present) == 1
    (tmp_path / "queue_worker.py").write_text(worker.replace(present, instead))
    (tmp_path / "test_queue_worker.py").write_text((EXAMPLE / "test_queue_worker.py").read_text())
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout
    assert "1 failed" in ended.stdout


def test_the_example_runs_as_its_readme_says(cloud: Cloud, tmp_path: Path) -> None:
    (tmp_path / "todo").mkdir()
    begun, go = tmp_path / "begun", tmp_path / "go"
    (tmp_path / "todo" / "1").write_text(
        f"touch {begun}\nuntil test -e {go}; do sleep 0.05; done\necho done >> {tmp_path}/log\n"
    )
    worker = subprocess.Popen(
        [sys.executable, EXAMPLE / "queue_worker.py", tmp_path, "--url", cloud.vm("vm0").url]
    )
    try:
        cloud.expect_polled("vm0", within=PATIENCE_S)
        wait_until(begun.exists, "the job has begun")
        event = cloud.restart("vm0")
        cloud.expect_read("vm0", event, within=PATIENCE_S)
        cloud.expect_not_approved(event, within=0.3)
        go.touch()
        cloud.expect_approved(event, by="vm0", within=PATIENCE_S)
        assert (tmp_path / "log").read_text() == "done\n"
        assert (tmp_path / "done" / "1").exists()
    finally:
        go.touch()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0
