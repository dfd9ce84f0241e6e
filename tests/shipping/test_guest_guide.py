"""docs/guest.md and docs/guest-service.md: the session and the commands there are run as shown."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import urllib.request
from pathlib import Path

import pytest

from forewarn.testing import Cloud
from support.shipping_world import ROOT, Place, empty_place, why_no_namespace

GUIDE = (ROOT / "docs" / "guest.md").read_text("utf-8")
SESSION = re.findall(r"^```sh\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
SERVICE = (ROOT / "docs" / "guest-service.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| `forewarn-guest (\w+)([^`]*)` \|", SERVICE, re.MULTILINE))
DRY = {"install": " --dry-run", "uninstall": " --dry-run"}
ANSWER_LIMIT_S = 60
CONFIG = """
[[rule]]
name = "drain"
[[rule.prepare]]
run = ["true"]
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return empty_place(tmp_path, PATH=path)


def test_the_session_of_the_guide_runs_as_shown(place: Place) -> None:
    if why_no_namespace():
        pytest.skip(f"needs a network namespace: {why_no_namespace()}")
    (session,) = SESSION
    ran = place.run(
        ["unshare", "--map-root-user", "--net", "sh", "-e", "-c", f"ip link set lo up\n{session}"]
    )
    assert ran.returncode == 0, ran.stderr
    assert "  prepare drain: done (exit status 0)\n" in ran.stdout
    lines = [line.split(maxsplit=3)[2] for line in ran.stdout.splitlines() if "#1 " in line]
    told = [one for one in lines if not one.startswith("step-")]
    assert told[-6:] in (
        ["appeared", "approving", "approved", "started", "gone", "closed"],
        ["appeared", "approving", "started", "approved", "gone", "closed"],
    )
    assert 'said="draining\\n"' in ran.stderr
    assert 'said="working again\\n"' in ran.stderr


@pytest.fixture
def agent_files(place: Place) -> Path:
    """A configuration, and files as an agent that has ended leaves them."""
    folder = place.folder / "agent"
    config = place.folder / "agent.toml"
    config.write_text(f'[agent]\nfolder = "{folder}"\n{CONFIG}', "utf-8")
    folder.mkdir()
    (folder / "journal").touch()
    return config


@pytest.mark.parametrize("name", sorted({*ROWS, *DRY} - {"watch"}))
def test_the_commands_of_the_guide_do_something(
    cloud: Cloud, place: Place, agent_files: Path, name: str
) -> None:
    event = cloud.restart("vm0")
    words = f"forewarn-guest {name}{(ROWS | DRY)[name]}".replace(
        " ID", f" {event.event_id}"
    ).split()
    config = ["--config", str(agent_files)]
    ran = place.run([*words, *config], FOREWARN_ENDPOINT=cloud.vm("vm0").url)
    if name == "status":  # there is no agent, and it says so
        assert ran.returncode == 1
        assert ran.stderr.startswith("There is no status file at ")
    else:
        assert (ran.returncode, ran.stderr) == (0, "")
    if name == "approve":
        cloud.expect_approved(event, by="vm0")


def test_a_saved_document_can_be_checked_as_the_guide_says(
    cloud: Cloud, place: Place, agent_files: Path
) -> None:
    assert "`--document FILE` without an endpoint" in SERVICE
    cloud.restart("vm0")
    saved = place.folder / "document.json"
    url = f"{cloud.vm('vm0').url}/metadata/scheduledevents?api-version=2020-07-01"
    asked = urllib.request.Request(url, headers={"Metadata": "true"})
    with urllib.request.urlopen(asked, timeout=ANSWER_LIMIT_S) as answer:
        saved.write_bytes(answer.read())
    words = ["--config", str(agent_files), "--document", str(saved), "--vm", "vm0", "--json"]
    ran = place.run(["forewarn-guest", "check", *words])
    assert ran.returncode == 0, ran.stderr
    (expected,) = json.loads(ran.stdout)["events"]
    assert expected["rule"] == "drain"
    assert shutil.which("true") in expected["parts"]["prepare"][0]["run"]
