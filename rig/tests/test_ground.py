"""The ground that lifecycles stand on: libvirt, migration, power, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from rig.building import Rig
from rig.cells import children, start_time
from rig.domains import Guest
from rig.waiting import wait_for


def test_guests_boot_move_live_with_their_uptime_stand_still_and_obey_the_button(rig: Rig) -> None:
    guest = Guest(name="ground-0", number=90)
    h1, h2 = rig.hypervisors["h1"], rig.hypervisors["h2"]
    rig.define(guest, "h1")
    wait_for("two polls", lambda: len(rig.consoles.lines("ground-0")) > 2, within_s=60)
    before = rig.consoles.lines("ground-0")[-1]
    words = ("--live", "--p2p", "--persistent", "--undefinesource")
    h1.virsh("migrate", *words, "ground-0", "qemu+tcp://h2/system", limit_s=60)
    assert rig.where("ground-0") == {"h2": "running"}
    seen = len(rig.consoles.lines("ground-0"))
    wait_for("a poll there", lambda: len(rig.consoles.lines("ground-0")) > seen + 1, within_s=20)
    after = rig.consoles.lines("ground-0")[-1]
    assert after.boot == before.boot
    assert after.uptime_s > before.uptime_s
    h2.virsh("suspend", "ground-0")
    assert rig.where("ground-0") == {"h2": "paused"}
    h2.virsh("resume", "ground-0")
    h2.virsh("shutdown", "ground-0")
    wait_for("off", lambda: rig.where("ground-0") == {"h2": "shut off"}, within_s=20)
    assert rig.consoles.lines("ground-0")[-1].kind == "button"
    h2.virsh("undefine", "ground-0")


def test_a_rig_that_is_killed_leaves_no_process_and_the_next_one_removes_its_folder() -> None:
    program = (
        "from rig.building import Rig; import time\n"
        "with Rig() as rig: print(rig.folder, flush=True); time.sleep(60)"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=root
    ) as builder:
        assert builder.stdout is not None
        folder = Path(builder.stdout.readline().strip())
        started = {
            pid: start_time(pid)
            for first in children(builder.pid)
            for pid in [first, *children(first)]
        }
        assert len(started) >= 8
        os.kill(builder.pid, signal.SIGKILL)
    wait_for(
        "all are gone",
        lambda: all(_gone(pid, at) for pid, at in started.items()),
        within_s=20,
    )
    assert folder.exists()
    assert (
        subprocess.run([sys.executable, "-m", "rig", "down"], cwd=root, check=False).returncode == 0
    )
    assert not folder.exists()


def _gone(pid: int, started: str | None) -> bool:
    """Ended; nobody may have asked for its end yet, which is the business of whoever runs us."""
    if start_time(pid) != started:
        return True
    return (
        Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    )
