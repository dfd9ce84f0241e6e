"""The step `systemd` where there is no systemd, and what of a unit's account means what."""

from __future__ import annotations

from pathlib import Path

import pytest

from forewarn_guest.steps.systemd_units import as_wanted
from steps_world import is_one_line, run, told


def test_where_there_is_no_systemd_the_step_says_so(tmp_path: Path) -> None:
    options = {"action": "stop", "units": "web.service"}
    code, out, problems = run("systemd", told(options), PATH=str(tmp_path))
    assert (code, out) == (1, "")
    assert is_one_line(problems)
    assert "There is no systemd here. Use a command step" in problems


@pytest.mark.parametrize(
    ("action", "unit", "wanted"),
    [
        ("stop", {"ActiveState": "inactive"}, True),
        ("stop", {"ActiveState": "failed"}, True),
        ("stop", {"ActiveState": "deactivating"}, False),
        ("stop", {"ActiveState": "activating", "SubState": "auto-restart"}, False),
        ("start", {"ActiveState": "active"}, True),
        ("start", {"ActiveState": "activating"}, False),
        ("start", {"ActiveState": "inactive", "Type": "simple", "Result": "success"}, False),
        ("start", {"ActiveState": "inactive", "Type": "oneshot", "Result": "success"}, True),
        ("start", {"ActiveState": "inactive", "Type": "oneshot", "Result": "exit-code"}, False),
        ("restart", {"ActiveState": "reloading"}, False),
        ("restart", {}, False),
    ],
)
def test_a_unit_is_as_wanted_only_where_the_action_should_bring_it(
    action: str, unit: dict[str, str], *, wanted: bool
) -> None:
    assert as_wanted(action, unit) is wanted
