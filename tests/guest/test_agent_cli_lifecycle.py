"""The agent as its own process in an emulated cloud, looked at only from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forewarn.testing import Cloud
from support.waiting import wait_until

WITHIN_S = 60.0


class Guest:
    """One VM with an agent that writes down which of its steps have run."""

    def __init__(self, folder: Path, url: str, rules: str) -> None:
        self.folder = folder
        self.url = url
        self.done = folder / "done"
        self.config = folder / "agent.toml"
        self.log = folder / "log"
        self.status_file = folder / "status.json"
        self.config.write_text(
            f'[agent]\nendpoint = "{url}"\nfolder = "{folder / "data"}"\n'
            f'status_file = "{self.status_file}"\n' + rules.replace("DONE", str(self.done))
        )

    def steps_done(self) -> list[str]:
        return self.done.read_text().split() if self.done.exists() else []

    def status(self) -> dict[str, Any]:
        wait_until(self.status_file.exists, "a status file")
        found: dict[str, Any] = json.loads(self.status_file.read_text())
        return found

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "forewarn_guest", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @contextmanager
    def agent(self) -> Iterator[subprocess.Popen[bytes]]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "forewarn_guest", "run", "--config", str(self.config)],
                stderr=log,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait(WITHIN_S)


LIFECYCLE = """
[[rule]]
name = "work"
[[rule.prepare]]
shell = "echo prepared >>DONE"
[[rule.started]]
shell = "echo started >>DONE"
[[rule.recover]]
shell = "echo recovered >>DONE"
[[rule.canceled]]
shell = "echo undone >>DONE"
"""


LIFE = ("appeared", "approved", "started", "gone")


def test_a_reboot_is_prepared_approved_started_and_recovered_from(
    cloud: Cloud, tmp_path: Path
) -> None:
    guest = Guest(tmp_path, cloud.vm("vm0").url, LIFECYCLE)
    with guest.agent() as agent:
        event = cloud.restart("vm0")
        cloud.expect_approved(event, by="vm0", within=WITHIN_S)
        wait_until(lambda: guest.steps_done() == ["prepared", "started"], "the start")
        cloud.clock.next()
        cloud.expect_gone(event, within=60)
        wait_until(
            lambda: guest.steps_done() == ["prepared", "started", "recovered"], "the recovery"
        )
        wait_until(lambda: guest.status()["events"] == [], "a status without events")
        assert guest.status()["counts"]["steps_done"] == 3
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(WITHIN_S) == 0
    told = guest.command("journal", "--config", str(guest.config))
    facts = [line.split()[2] for line in told.stdout.splitlines()]
    # The start may be read before the answer to the approval is.
    first, *between, last = [fact for fact in facts if fact in LIFE]
    assert [first, *sorted(between), last] == [
        "appeared",
        "approved",
        "started",
        "gone",
    ]
    assert facts[-1] == "closed"


def test_a_failed_prepare_step_blocks_approval_and_the_status_says_so(
    cloud: Cloud, tmp_path: Path
) -> None:
    rules = '[[rule]]\nname = "work"\n[[rule.prepare]]\nname = "drain"\nshell = "exit 3"\n'
    guest = Guest(tmp_path, cloud.vm("vm0").url, rules)
    with guest.agent():
        event = cloud.restart("vm0")

        def withheld() -> bool:
            events = guest.status()["events"]
            return bool(events) and events[0]["approval"].startswith("withheld: step drain")

        wait_until(withheld, "that approval is withheld")
        cloud.expect_not_approved(event)
        shown = guest.command("status", "--config", str(guest.config))
        assert shown.returncode == 0
        assert "prepare drain: failed (exit status 3)" in shown.stdout
        # Somebody has looked at it, and says go ahead in its stead.
        approved = guest.command("approve", event.event_id, "--endpoint", guest.url)
        assert approved.returncode == 0
        cloud.expect_approved(event, within=60)


def test_an_agent_that_is_killed_during_a_step_is_gone_on_for_and_the_step_runs_once(
    cloud: Cloud, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    rules = (
        '[[rule]]\nname = "work"\n[[rule.prepare]]\nname = "drain"\n'
        f'shell = "echo begun >>DONE; read line <{gate}; echo ended >>DONE"\n'
    )
    guest = Guest(tmp_path, cloud.vm("vm0").url, rules)
    event = cloud.restart("vm0")
    with guest.agent():
        wait_until(lambda: guest.steps_done() == ["begun"], "the step")
    with guest.agent():
        wait_until(lambda: "a step still runs" in guest.log.read_text(), "that it still runs")
        cloud.expect_not_approved(event)
        gate.write_text("now\n")
        cloud.expect_approved(event, by="vm0", within=WITHIN_S)
    assert guest.steps_done() == ["begun", "ended"]


def test_what_check_says_is_what_the_agent_does(cloud: Cloud, tmp_path: Path) -> None:
    guest = Guest(tmp_path, cloud.vm("vm0").url, LIFECYCLE)
    event = cloud.restart("vm0")
    checked = guest.command("check", "--config", str(guest.config), "--json")
    (expected,) = json.loads(checked.stdout)["events"]
    assert expected["event_id"] == event.event_id
    assert expected["rule"] == "work"
    assert guest.steps_done() == []
    cloud.expect_not_approved(event)
    with guest.agent():
        cloud.expect_approved(event, by="vm0", within=WITHIN_S)
    assert guest.steps_done()[:1] == ["prepared"]
    assert expected["approval"] == "when every prepare step is done"


def test_an_endpoint_with_bad_days_is_survived_and_every_trouble_counted(
    cloud: Cloud, tmp_path: Path
) -> None:
    broken = cloud.faults.add("error", vm="vm0", count=2)
    guest = Guest(tmp_path, cloud.vm("vm0").url, LIFECYCLE)
    with guest.agent():
        cloud.expect_met(broken, within=WITHIN_S)
        event = cloud.restart("vm0")
        cloud.expect_approved(event, by="vm0", within=WITHIN_S)
        assert guest.status()["agent"]["last_answer"]
