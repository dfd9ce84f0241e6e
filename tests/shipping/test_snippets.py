"""The programs in other languages on docs/testing.md: each reads a document and approves."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn.testing import Cloud
from programs import program
from shipping.test_guide import GUIDE, blocks

APPROVED_S = 120.0  # a compiler on a busy machine


def node(folder: Path, text: str) -> list[str]:
    (folder / "watch.mjs").write_text(text, "utf-8")
    return [program("node"), "watch.mjs"]


def java(folder: Path, text: str) -> list[str]:
    (folder / "Watch.java").write_text(text, "utf-8")
    return [program("java"), "Watch.java"]


def go(folder: Path, text: str) -> list[str]:
    (folder / "watch.go").write_text(text, "utf-8")
    return [program("go"), "run", "watch.go"]


def dotnet(folder: Path, text: str) -> list[str]:
    command = program("dotnet")
    subprocess.run([command, "new", "console"], cwd=folder, check=True, timeout=APPROVED_S)
    (folder / "Program.cs").write_text(text, "utf-8")
    return [command, "run", "--"]


@pytest.mark.parametrize(
    ("language", "prepare"), [("javascript", node), ("java", java), ("go", go), ("csharp", dotnet)]
)
def test_the_program_in_another_language_approves_what_is_announced_for_its_vm(
    tmp_path: Path, language: str, prepare: Callable[[Path, str], list[str]]
) -> None:
    (text,) = blocks(GUIDE, language)
    command = prepare(tmp_path, text)
    with Cloud(scopes=["web:2"]) as cloud:
        environment = {**os.environ, "FOREWARN_ENDPOINT": cloud.vm("web_0").url}
        process = subprocess.Popen(
            [*command, "web_0"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            others = cloud.restart("web_1")
            own = cloud.restart("web_0")
            cloud.expect_approved(own, by="web_0", within=APPROVED_S)
            cloud.expect_not_approved(others)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(APPROVED_S)
