"""Which rig is spoken to, and what is left alone."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from rig import leftovers


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other rig of this machine is seen, or harmed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_rig_of_tests_does_not_hide_the_one_that_can_be_spoken_to() -> None:
    spoken_to = leftovers.make_folder()
    (spoken_to / "forewarn").touch()
    leftovers.make_folder()
    assert leftovers.living("forewarn") == spoken_to
    assert leftovers.living("virsh-h1") is None


def test_a_rig_whose_builder_lives_is_not_removed_and_one_of_a_namesake_is() -> None:
    living = leftovers.make_folder()
    dead = leftovers.make_folder()
    record = (dead / leftovers.RECORD).read_text()
    (dead / leftovers.RECORD).write_text(record.replace(', "', ', "9'))  # started at another time
    assert leftovers.remove_leftovers() == [dead]
    assert living.is_dir()
