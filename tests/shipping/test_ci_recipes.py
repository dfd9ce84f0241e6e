"""`action.yml` and the recipes for two CI systems: their own steps are taken out and run.

What only the CI system can do (check out, put a Python on the PATH) is played: a folder with the
app, and a new environment whose programs come first. pip takes wheels that were built here.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from programs import needs
from support import distributions
from support.shipping_world import ROOT

LIMIT_S = 300  # only ends a hang
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
GITHUB: dict[str, Any] = yaml.safe_load((ROOT / "examples/ci/github.yml").read_text("utf-8"))
GITLAB: dict[str, Any] = yaml.safe_load((ROOT / "examples/ci/gitlab.yml").read_text("utf-8"))
PLAYED = {"actions/checkout@v4", "actions/setup-python@v5"}
OURS = "example/forewarn@main"
EXPRESSION = re.compile(r"\$\{\{ *([\w.-]+) *\}\}")

pytestmark = needs("curl")

# An app whose tests use the fixture.
TESTS = """
def test_a_reboot_is_announced(cloud):
    cloud.restart("vm0")
    assert cloud.document("vm0")["Events"]
"""


@dataclass
class Runner:
    """A machine of a CI system: a folder with the app, and what steps have said so far."""

    folder: Path
    environment: dict[str, str]
    pids: list[int]

    def step(self, script: str, **more: str) -> None:
        """Run one step as GitHub and GitLab do: in a bash that ends at the first failure.

        Its output goes to a file, because what it leaves running keeps a pipe open.
        """
        with self.said.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
                cwd=self.folder,
                env={**self.environment, **more},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            self.pids.append(process.pid)
            ended = process.wait(timeout=LIMIT_S)
        assert ended == 0, (script, self.said.read_text("utf-8"))

    @property
    def said(self) -> Path:
        """What the last step has printed."""
        return self.folder.parent / "said"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    distributions.build(folder)
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    distributions.pack([*table["dependencies"], "pytest", "hatchling"], folder)
    return folder


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return distributions.clean_environment(tmp_path_factory.mktemp("runner") / "venv")


@pytest.fixture
def runner(wheels: Path, programs: Path, tmp_path: Path) -> Iterator[Runner]:
    """One environment serves all tests; each has to install Forewarn into it itself."""
    gone = ["-m", "pip", "uninstall", "--yes", "--quiet", "forewarn"]
    distributions.ran([str(programs / "python"), *gone], folder=tmp_path)
    assert not (programs / "forewarn").exists()
    folder, home, temporary = (tmp_path / name for name in ("app", "home", "tmp"))
    for one in (folder, home, temporary):
        one.mkdir()
    for name in ("app.sh", "maintenance_test.sh"):
        shutil.copy(ROOT / "examples" / "shell" / name, folder)
    (folder / "test_app.py").write_text(TESTS, "utf-8")
    environment = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "RUNNER_TEMP": str(temporary),
        **distributions.offline(wheels),
    }
    runner = Runner(folder, environment, [])
    yield runner
    for pid in runner.pids:  # the end of the job ends what its steps have left running
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with its expressions replaced; one that is not known fails the test."""
    return EXPRESSION.sub(lambda found: values[found[1]], text)


def lines_of(file: Path) -> dict[str, str]:
    """What steps have written into a file of the form NAME=VALUE."""
    return dict(line.split("=", 1) for line in file.read_text("utf-8").splitlines())


def run_action(runner: Runner, given: Mapping[str, str]) -> dict[str, str]:
    """The steps of action.yml, on the files that a checkout of it has; its outputs."""
    temporary = Path(runner.environment["RUNNER_TEMP"])
    source = temporary / "action"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "src", "guest"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    variables, outputs = temporary / "env", temporary / "output"
    for file in (variables, outputs):
        file.touch()
    unknown = given.keys() - ACTION["inputs"].keys()
    assert not unknown
    inputs = {name: str(one["default"]) for name, one in ACTION["inputs"].items()}
    values = {f"inputs.{name}": value for name, value in {**inputs, **given}.items()}
    for step in ACTION["runs"]["steps"]:
        assert step["shell"] == "bash"
        more = {name: filled(text, values) for name, text in step.get("env", {}).items()}
        runner.step(
            step["run"],
            GITHUB_ACTION_PATH=str(source),
            GITHUB_ENV=str(variables),
            GITHUB_OUTPUT=str(outputs),
            **more,
        )
    runner.environment.update(lines_of(variables))
    said = {f"steps.start.outputs.{name}": value for name, value in lines_of(outputs).items()}
    return {name: filled(one["value"], said) for name, one in ACTION["outputs"].items()}


def run_job(runner: Runner, job: Mapping[str, Any]) -> None:
    """The steps of a job of GitHub."""
    values: dict[str, str] = {}
    for step in job["steps"]:
        if "run" in step:
            more = {name: filled(text, values) for name, text in step.get("env", {}).items()}
            runner.step(step["run"], **more)
        elif step["uses"] == OURS:
            outputs = run_action(runner, step["with"])
            values |= {f"steps.{step['id']}.outputs.{key}": one for key, one in outputs.items()}
        else:
            assert step["uses"] in PLAYED


@pytest.mark.parametrize("job", GITHUB["jobs"])
def test_the_steps_of_the_workflow_for_github_pass(runner: Runner, job: str) -> None:
    run_job(runner, GITHUB["jobs"][job])


# Stands for the one of the image, which would ask the network: notes what it was asked for.
APT_GET = """#!/bin/sh
echo "$@" >>"$HOME/apt-get"
"""


@pytest.mark.parametrize("job", [name for name in GITLAB if name != "stages"])
def test_the_steps_of_the_pipeline_for_gitlab_pass(runner: Runner, job: str) -> None:
    played = runner.folder.parent / "played"
    played.mkdir()
    (played / "apt-get").write_text(APT_GET, "utf-8")
    (played / "apt-get").chmod(0o755)
    runner.environment["PATH"] = f"{played}{os.pathsep}{runner.environment['PATH']}"
    before = GITLAB[job].get("before_script", [])
    for line in [*before, *GITLAB[job]["script"]]:
        runner.step(line)
    if before:
        asked = (Path(runner.environment["HOME"]) / "apt-get").read_text("utf-8").splitlines()
        assert asked == ["update", "install --yes curl"]
    for report in GITLAB[job].get("artifacts", {}).get("reports", {}).values():
        assert (runner.folder / report).is_file()


def test_the_action_says_where_every_vm_asks_and_fails_when_it_cannot_start(runner: Runner) -> None:
    outputs = run_action(runner, {"arguments": "--scope web:2 --seed 7"})
    urls = yaml.safe_load(outputs["vm-urls"])
    assert list(urls) == ["web_0", "web_1"]
    assert outputs["url"] == urls["web_0"]
    runner.step("forewarn vm restart web_1")
    start = ACTION["runs"]["steps"][-1]["run"]
    files = {"GITHUB_ENV": os.devnull, "GITHUB_OUTPUT": os.devnull}
    other = str(runner.folder / "other")
    with pytest.raises(AssertionError, match="assert 1 == 0"):
        runner.step(start, ARGUMENTS="--no-such-option", **files, RUNNER_TEMP=other)
    assert "--no-such-option" in runner.said.read_text("utf-8")
