"""What a measurement brings: figures with their targets, and the table and file they end in."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_MARKS = {True: ("reached", "green"), False: ("MISSED", "bold red"), None: ("-", "dim")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number. Without a target it is only shown; `raw` is everything behind it."""

    name: str
    measured: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reached(self) -> bool | None:
        """Whether the target was reached; None if there is none."""
        if self.at_least is not None:
            return self.measured >= self.at_least
        if self.at_most is not None:
            return self.measured <= self.at_most
        return None

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f">= {_number(self.at_least)} {self.unit}"
        if self.at_most is not None:
            return f"<= {_number(self.at_most)} {self.unit}"
        return ""


def _number(value: float) -> str:
    if abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def show(figures: Sequence[Figure]) -> None:
    """Print the table."""
    table = Table(title="Forewarn, measured", header_style="bold")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_column("target", justify="right")
    table.add_column("")
    table.add_column("how", style="dim")
    for figure in figures:
        words, style = _MARKS[figure.reached]
        measured = f"{_number(figure.measured)} {figure.unit}"
        table.add_row(figure.name, measured, figure.target, Text(words, style), figure.note)
    Console().print(table)


def machine() -> dict[str, Any]:
    """What the figures were measured with."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": list(os.getloadavg()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "uvloop": version("uvloop"),
        "httptools": version("httptools"),
        "nginx": _said("nginx", "-v"),
        "wrk": _said("wrk", "-v"),
        "strace": _said("strace", "--version"),
    }


def _said(program: str, option: str) -> str | None:
    """The first line with which a program tells its version; None if it is not there."""
    if shutil.which(program) is None:
        return None
    ended = subprocess.run([program, option], capture_output=True, text=True, check=False)
    return (ended.stdout + ended.stderr).strip().split("\n")[0]


def save(file: Path, about: Mapping[str, Any], figures: Sequence[Figure]) -> None:
    """Write everything that was measured."""
    content = {
        "machine": dict(about),
        "figures": [
            {
                "name": figure.name,
                "measured": figure.measured,
                "unit": figure.unit,
                "target": figure.target,
                "reached": figure.reached,
                "note": figure.note,
                "raw": dict(figure.raw),
            }
            for figure in figures
        ],
    }
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
