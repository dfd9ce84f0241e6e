"""`rig power off|on`: another process has the plug of a hypervisor pulled, and put back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rig.__main__ import write_scripts
from rig.service import Service
from rig.waiting import wait_for

ROOT = Path(__file__).parents[2]
LIMIT_S = 120.0


def power(service: Service, word: str, host: str) -> tuple[int, str]:
    """Run `rig power`, while this process keeps the rig as `make rig` does."""
    command = [sys.executable, "-m", "rig", "power", word, host]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as asking:
        done: list[str] = []

        def ended() -> bool:
            done.extend(service.power_as_wanted())
            return asking.poll() is not None

        wait_for(f"rig power {word} {host} ends", ended, within_s=LIMIT_S)
        said, _ = asking.communicate()
    assert done == ([said.strip()] if asking.returncode == 0 else [])
    return asking.returncode, said


def heard(service: Service) -> bool:
    return bool(service.operator.get("/v1/hosts/h2")["alive"])


def test_the_plug_of_a_hypervisor_is_pulled_and_put_back(service: Service) -> None:
    h2 = service.rig.hypervisors["h2"]
    write_scripts(service)
    boot = h2.boot_id_file.read_text(encoding="utf-8")
    try:
        assert power(service, "off", "h2") == (0, "h2 is off.\n")
        assert not h2.cell.on
        write_scripts(service)
        assert not (service.rig.folder / "virsh-h2").exists()
        wait_for("control hears nothing of it", lambda: not heard(service), within_s=LIMIT_S)
        assert power(service, "off", "h2") == (0, "h2 is off.\n")  # it stays so

        assert power(service, "on", "h2") == (0, "h2 is on.\n")
        assert h2.cell.on
        assert h2.boot_id_file.read_text(encoding="utf-8") != boot
        wait_for("control hears it again", lambda: heard(service), within_s=LIMIT_S)
        code, said = power(service, "off", "h9")
        assert (code, said) == (1, "There is no hypervisor h9; there are h1 and h2.\n")
    finally:
        for script in ("forewarn", "virsh-h1", "virsh-h2"):
            (service.rig.folder / script).unlink(missing_ok=True)
