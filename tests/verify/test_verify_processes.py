"""`forewarn simulate` and `forewarn verify` as two processes that know each other by words only."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from support.simulate_process import environment_of, simulating
from support.system_world import FOREWARN

RUN_LIMIT_S = 300.0


def test_the_emulator_keeps_every_sentence_for_the_command_line_too(tmp_path: Path) -> None:
    with simulating(tmp_path) as simulation:
        command = [
            *(str(FOREWARN), "verify", simulation.where["vm_urls"]["vm0"], "--pace", "0"),
            *("--operator", "forewarn vm {verb} {vm}", "--types", "Reboot,Redeploy"),
            *("--cancel", "forewarn event cancel {event}"),
            *("--advance", "forewarn clock advance {seconds}s", "--format", "json"),
        ]
        ran = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_LIMIT_S,
            stdin=subprocess.DEVNULL,
            env=environment_of(tmp_path),
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(ran.stdout)
    skipped = {check["id"] for check in report["checks"] if check["verdict"] == "skipped"}
    others = ("Freeze", "Preempt", "Terminate")
    assert {check_id for check_id in skipped if not check_id.startswith("rate-")} == {
        *(f"notice-{event_type}" for event_type in others),
        "starts-Freeze",
        *(f"{word}-{event_type}" for word in ("shown", "hidden") for event_type in others[1:]),
    }
    assert ran.stderr == ""
