"""`examples/failing-hardware`: what predicts a failure has a host's VMs warned, and only then."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from forewarn.testing import Cloud
from support.shipping_world import ROOT, Place, empty_place

SCRIPT = ROOT / "examples" / "failing-hardware" / "watch_hardware.sh"
SMARTCTL = """#!/bin/sh
if [ "$1" = --scan ]; then
  echo "/dev/sda -d scsi # /dev/sda, SCSI device"
  echo "/dev/nvme0 -d nvme # /dev/nvme0, NVMe device"
  exit 0
fi
[ "$3" = /dev/nvme0 ] || exit 0
exit {ended}
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A machine with two disks and a memory controller, all of them well."""
    programs = tmp_path / "bin"
    programs.mkdir()
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    place = empty_place(tmp_path, PATH=path, EDAC=str(tmp_path / "edac"))
    says(place, disk_ended=0)
    return place


def says(place: Place, *, disk_ended: int, corrected: int = 3, uncorrected: int = 0) -> None:
    """What the machine says of its parts from now on."""
    smartctl = Path(place.environment["PATH"].split(os.pathsep)[0]) / "smartctl"
    smartctl.write_text(SMARTCTL.replace("{ended}", str(disk_ended)), "utf-8")
    smartctl.chmod(0o755)
    controller = Path(place.environment["EDAC"]) / "mc0"
    controller.mkdir(parents=True, exist_ok=True)
    (controller / "ce_count").write_text(f"{corrected}\n", "utf-8")
    (controller / "ue_count").write_text(f"{uncorrected}\n", "utf-8")


def test_nothing_is_ordered_while_all_is_well(place: Place) -> None:
    with Cloud() as cloud:
        # Other bits say that a command failed, or that a log has errors; they predict nothing.
        for ended in (0, 4, 64):
            says(place, disk_ended=ended)
            ran = place.run(["sh", str(SCRIPT), "host0"], **cloud.environment)
            assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
        assert cloud.events() == ()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"disk_ended": 8 + 64}, "/dev/nvme0 says that it is failing"),
        ({"disk_ended": 0, "uncorrected": 1}, "mc0 has 1 uncorrected errors"),
        ({"disk_ended": 0, "corrected": 1001}, "mc0 has 1001 corrected errors"),
    ],
    ids=["disk", "uncorrected", "corrected"],
)
def test_the_vms_of_a_host_that_is_expected_to_fail_are_warned_once(
    place: Place, said: dict[str, int], why: str
) -> None:
    says(place, **said)
    with Cloud() as cloud:
        ran = place.run(["sh", str(SCRIPT), "host0"], **cloud.environment)
        assert ran.returncode == 0, ran.stderr
        assert why in ran.stdout
        (event,) = cloud.events()
        assert (event.event_type, event.resources) == ("Redeploy", ("vm0",))
        again = place.run(["sh", str(SCRIPT), "host0"], **cloud.environment)
        assert (again.returncode, again.stdout) == (0, "")
        assert len(cloud.events()) == 1
