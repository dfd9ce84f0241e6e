"""The step `systemd`: stops, starts or restarts units and waits until they are as wanted."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from forewarn_guest.errors import StepError
from forewarn_guest.steps import children
from forewarn_guest.steps.step_context import Deadline, StepContext

BOOTED = Path("/run/systemd/system")  # sd_booted(3): there exactly where systemd was started
LOOK_AGAIN_S = 0.2
_SHOWN = ("Id", "LoadState", "ActiveState", "SubState", "Type", "Result")
# systemd's own words for a unit that does not run. A unit whose program did not like to be
# stopped is "failed", and stopped.
_STOPPED = ("inactive", "failed")

Unit = Mapping[str, str]


def run(occasion: StepContext) -> str:
    """Do it. Returns what was done; raises StepError with the units that are not as wanted."""
    action, units = occasion.options["action"], occasion.options["units"]
    systemctl = _systemctl(user=occasion.options["user"])
    deadline = occasion.deadline
    deadline.doing = "systemd had not answered"
    for unit, shown in zip(units, _show(systemctl, units, deadline)):
        if shown.get("LoadState") != "loaded":
            raise StepError(
                f"{unit} cannot be used: systemd says {shown.get('LoadState') or 'nothing'} of it.",
                "Name units that `systemctl status` knows.",
            )
    deadline.doing = f"systemd was still busy to {action} {' '.join(units)}"
    try:
        children.run([*systemctl, action, "--", *units], deadline, _environment())
    except children.ProgramFailed as error:
        raise StepError(
            f"systemctl {action} ended with {error.code}: {error.said}.", _remedy(error.said)
        ) from error
    _wait(systemctl, occasion)
    done = {"stop": "stopped", "start": "started", "restart": "restarted"}[action]
    return f"{done} {' '.join(units)}."


def _systemctl(*, user: bool) -> list[str]:
    """How to ask systemd. Raises StepError where systemd does not run."""
    program = shutil.which("systemctl")
    if program is None or not BOOTED.is_dir():
        raise StepError(
            "There is no systemd here.",
            "Use a command step that stops and starts the workload as this machine does it.",
        )
    return [program, "--no-ask-password", "--no-pager", *(["--user"] if user else [])]


def _environment() -> dict[str, str]:
    """Plain answers; and where the user's systemd is, for services that are not told."""
    own = {"LC_ALL": "C", "SYSTEMD_COLORS": "0"}
    if "XDG_RUNTIME_DIR" not in os.environ:
        own["XDG_RUNTIME_DIR"] = f"/run/user/{os.getuid()}"
    return own


def _remedy(said: str) -> str:
    if "authentication required" in said.lower() or "access denied" in said.lower():
        return "Give the agent's user the right to do this: `forewarn-guest install` writes a rule."
    return ""


def _show(systemctl: Sequence[str], units: Sequence[str], deadline: Deadline) -> list[Unit]:
    """What systemd says of each unit, in their order."""
    wanted = f"--property={','.join(_SHOWN)}"
    try:
        out = children.run([*systemctl, "show", wanted, "--", *units], deadline, _environment())
    except children.ProgramFailed as error:
        raise StepError(
            f"systemd does not answer: {error.said}.", "Is it running for this user?"
        ) from error
    shown: list[Unit] = [
        dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        for block in out.strip().split("\n\n")
    ]
    if len(shown) != len(units):
        raise StepError(f"systemd answered for {len(shown)} units in place of {len(units)}.")
    return shown


def as_wanted(action: str, unit: Unit) -> bool:
    """True if a unit is where the action should bring it; one that runs once may have run."""
    active = unit.get("ActiveState")
    if action == "stop":
        return active in _STOPPED
    once = unit.get("Type") == "oneshot" and unit.get("Result") == "success"
    return active == "active" or (once and active == "inactive")


def _wait(systemctl: Sequence[str], occasion: StepContext) -> None:
    """Until every unit is as wanted; a unit that failed to start will not get there."""
    action, units = occasion.options["action"], occasion.options["units"]
    while True:
        shown = _show(systemctl, units, occasion.deadline)
        wrong = [
            (name, f"{unit.get('ActiveState')} ({unit.get('SubState')})", unit)
            for name, unit in zip(units, shown)
            if not as_wanted(action, unit)
        ]
        if not wrong:
            return
        said = ", ".join(f"{name} is {words}" for name, words, _unit in wrong)
        if action != "stop" and any(unit.get("ActiveState") == "failed" for *_, unit in wrong):
            raise StepError(f"After {action}, {said}.", "`systemctl status` says why.")
        occasion.deadline.doing = f"After {action}, {said}"
        time.sleep(occasion.deadline.left(LOOK_AGAIN_S))
