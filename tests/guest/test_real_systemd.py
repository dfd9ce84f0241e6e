"""The step `systemd` against a real systemd, the system's and a user's, in places of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.guest_private_place import system_systemd, user_systemd
from support.guest_steps_world import run_step

NOW = "[Unit]\nDefaultDependencies=no\n[Service]\n"
# systemd takes a unit for started before its shell has set the trap, unless it is told to wait.
TRAP = 'trap "{}" TERM; touch /run/%n.trapped'
TRAPPED = "ExecStartPost=/bin/sh -c 'until test -e /run/%n.trapped; do sleep 0.02; done'\n"
ANGRY = f"/bin/sh -c '{TRAP.format('exit 3')}; sleep 1000 & wait'"
STAYS = f"/bin/sh -c '{TRAP.format('')}; while :; do sleep 1; done'"
UNITS = {
    "web.service": f"{NOW}ExecStart=/bin/sleep 1000\n",
    "worker@.service": f"{NOW}ExecStart=/bin/sleep 1000\n",
    "angry.service": f"{NOW}ExecStart={ANGRY}\n{TRAPPED}",
    "stays.service": f"{NOW}ExecStart={STAYS}\n{TRAPPED}TimeoutStopSec=12\n",
    "once.service": f"{NOW}Type=oneshot\nExecStart=/bin/true\n",
    "broken.service": f"{NOW}Type=oneshot\nExecStart=/bin/false\n",
    "slow.service": f"{NOW}Type=oneshot\nExecStart=/bin/sleep 1000\nTimeoutStopSec=1\n",
}


@dataclass(frozen=True)
class Systemd:
    """A systemd, and how to ask it."""

    inside: list[str]
    user: bool

    def step(self, action: str, *units: str, **more: Any) -> tuple[int, str, str]:
        options = {"action": action, "units": list(units), "user": self.user, **more}
        return run_step("systemd", options, inside=self.inside)

    def says(self, unit: str) -> str:
        """systemd's word for whether a unit is active."""
        user = ["env", "XDG_RUNTIME_DIR=/run/user/0"] if self.user else []
        ask = ["systemctl", "--user" if self.user else "--system", "is-active", unit]
        done = subprocess.run(
            [*self.inside, *user, *ask], capture_output=True, text=True, check=False, timeout=60
        )
        return done.stdout.strip()


@pytest.fixture(params=["user", "system"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    user = request.param == "user"
    run = user_systemd if user else system_systemd
    with run(UNITS, tmp_path / "log") as inside:
        yield Systemd(inside, user)


def test_units_are_started_stopped_and_restarted_and_twice_is_as_good(systemd: Systemd) -> None:
    units = ("web.service", "worker@1.service")
    for action, expected in (("start", "active"), ("stop", "inactive"), ("restart", "active")):
        for _time in range(2):
            code, out, problems = systemd.step(action, *units)
            assert (code, problems) == (0, "")
            assert "web.service worker@1.service" in out
            assert [systemd.says(unit) for unit in units] == [expected, expected]


def test_a_unit_that_does_not_like_to_be_stopped_is_stopped_all_the_same(systemd: Systemd) -> None:
    assert systemd.step("start", "angry.service")[0] == 0
    code, _out, problems = systemd.step("stop", "angry.service")
    assert (code, problems) == (0, "")
    assert systemd.says("angry.service") == "failed"


def test_a_unit_that_takes_too_long_to_stop_fails_the_step_in_time(systemd: Systemd) -> None:
    assert systemd.step("start", "stays.service")[0] == 0
    code, _out, problems = systemd.step("stop", "stays.service", limit=4)
    assert code == 1
    assert problems.count("\n") == 1
    assert "still busy to stop stays.service" in problems
    assert systemd.step("stop", "stays.service")[0] == 0  # its own time to stop is over


def test_what_runs_once_is_done_when_it_has_run_and_failed_when_it_fails(
    systemd: Systemd,
) -> None:
    assert systemd.step("start", "once.service")[0] == 0
    code, _out, problems = systemd.step("start", "broken.service")
    assert code == 1
    assert problems.count("\n") == 1
    assert "broken.service" in problems
    code, _out, problems = systemd.step("start", "slow.service", limit=4)
    assert code == 1
    assert "still busy to start slow.service" in problems


@pytest.mark.parametrize("action", ["stop", "start", "restart"])
def test_an_unknown_unit_fails_before_anything_is_done(systemd: Systemd, action: str) -> None:
    assert systemd.step("start", "web.service")[0] == 0
    code, _out, problems = systemd.step(action, "web.service", "typo.service")
    assert code == 1
    assert "typo.service cannot be used: systemd says not-found" in problems
    assert systemd.says("web.service") == "active"
