"""`examples/shell`: the recipe for a CI without pytest is itself run, and can fail."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from programs import needs
from support.shipping_world import ROOT, Place, empty_place

RECIPE = ROOT / "examples" / "shell"

pytestmark = needs("curl")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return empty_place(tmp_path, PATH=path)


def test_the_recipe_passes_and_leaves_nothing_behind(place: Place) -> None:
    ran = place.run(["sh", str(RECIPE / "maintenance_test.sh")])
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "passed: drained, approved, rebooted, working again\n"
    assert list(place.folder.iterdir()) == []
    assert list(Path(place.environment["TMPDIR"]).iterdir()) == []


def test_the_recipe_fails_for_an_app_that_does_not_drain(place: Place) -> None:
    copy = place.folder / "shell"
    shutil.copytree(RECIPE, copy)
    app = (copy / "app.sh").read_text("utf-8")
    assert 'echo "drained"' in app
    (copy / "app.sh").write_text(app.replace('echo "drained"', ":"), "utf-8")
    ran = place.run(["sh", str(copy / "maintenance_test.sh")])
    assert ran.returncode == 1
    assert "FAILED: the app drains, then approves" in ran.stderr
    assert "approved " in ran.stderr  # what the app said is shown
    assert list(Path(place.environment["TMPDIR"]).iterdir()) == []


def test_the_recipe_says_so_when_the_emulator_does_not_start(place: Place) -> None:
    ran = place.run(["sh", str(RECIPE / "maintenance_test.sh")], FOREWARN="false")
    assert ran.returncode == 1
    assert "FAILED: the emulator did not start" in ran.stderr
