"""What a service that runs has loaded: nothing of the link between machines, if it has none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from support.system_world import FOREWARN, Service
from support.waiting import wait_until

TESTS = Path(__file__).parents[1]
TELLING = [sys.executable, str(TESTS / "telling_modules.py")]
# For a host and a control on different machines.
NOT_NEEDED = ("httpx", "httpcore", "cryptography")
WAIT_S = 60.0  # only ends a hang


def loaded(pid: int, target: Path) -> set[str]:
    os.kill(pid, signal.SIGUSR1)
    wait_until(target.exists, "it says what it has loaded", limit_s=WAIT_S)
    return set(target.read_text(encoding="utf-8").splitlines())


def not_needed(found: set[str]) -> list[str]:
    assert "forewarn.control.writer" in found
    assert "forewarn.host.daemon" in found
    return [name for name in NOT_NEEDED if name in found]


def test_a_running_serve_has_loaded_nothing_of_the_link_between_machines(tmp_path: Path) -> None:
    service = Service(tmp_path)
    target = tmp_path / "modules"
    service.environment["MODULES_TO"] = str(target)
    service.start(under=TELLING)
    try:
        assert service.guest("vm0").get().status == 200
        event_id = service.order("vms/vm0/restart")["event_id"]
        assert service.guest("vm0").approve(event_id).status == 200
        service.wait_for_phase(event_id, "completed")
        assert not_needed(loaded(service.process.pid, target)) == []
    finally:
        service.kill()


def test_a_running_simulate_has_loaded_nothing_of_the_link_between_machines(tmp_path: Path) -> None:
    target = tmp_path / "modules"
    command = [*TELLING, str(FOREWARN), "simulate", "--json", "--guest", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--operator", "127.0.0.1:0", "--data", str(tmp_path / "own")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={"PATH": os.defpath, "HOME": str(tmp_path), "MODULES_TO": str(target)},
    ) as process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())
            assert not_needed(loaded(process.pid, target)) == []
        finally:
            process.kill()


def test_a_running_cloud_of_a_test_has_loaded_nothing_of_the_link_between_machines() -> None:
    code = (
        "import sys, urllib.request; from forewarn.testing import Cloud\n"
        "with Cloud() as cloud:\n"
        "    cloud.approve(cloud.restart(cloud.vm('vm0')))\n"
        "    cloud.clock.next()\n"
        "    print('\\n'.join(sys.modules))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=WAIT_S
    )
    assert not_needed(set(ran.stdout.splitlines())) == []
