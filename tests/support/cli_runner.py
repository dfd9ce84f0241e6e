"""Runs the command line as a test needs it: in this process, against a world, 80 columns wide."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest

from forewarn.cli.main import main
from support.operator_world import TOKEN, OperatorWorld


@dataclass(frozen=True)
class Ran:
    """How a run of the command line ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def forewarn(*arguments: str, environment: Mapping[str, str] | None = None) -> Ran:
    """Run the command line with nothing of the caller's environment that it would obey."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch:
        for name in (
            "FOREWARN_URL",
            "FOREWARN_TOKEN",
            "FOREWARN_CA_FILE",
            "FOREWARN_DATA",
            "FOREWARN_SOCKET",
            "FORCE_COLOR",
        ):
            patch.delenv(name, raising=False)
        for name, value in {"COLUMNS": "80", **(environment or {})}.items():
            patch.setenv(name, value)
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main(arguments)
    code = ended.value.code
    return Ran(
        code if isinstance(code, int) else int(code is not None), out.getvalue(), err.getvalue()
    )


def at(world: OperatorWorld) -> dict[str, str]:
    """The environment that leads to a world."""
    return {"FOREWARN_URL": world.url, "FOREWARN_TOKEN": TOKEN}


def ask(world: OperatorWorld, *arguments: str) -> Ran:
    """Run the command line against a world."""
    return forewarn(*arguments, environment=at(world))
