"""What a measurement brings: figures with their targets, and the table and file they end in."""

from __future__ import annotations

import json
import os
import platform
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

from bench.processes import program

TABLE_CHARS = 170  # in a file or a pipe, where nobody says how wide it is
_MARKS = {True: ("reached", "green"), False: ("MISSED", "bold red"), None: ("-", "dim")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number, None if it could not be measured; `raw` is everything behind it.

    Without a target it is only shown.
    """

    name: str
    measured: float | None
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reached(self) -> bool | None:
        """Whether the target was reached; None if there is none or nothing was measured."""
        if self.measured is None:
            return None
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
        measured = "not measured"
        if figure.measured is not None:
            measured = f"{_number(figure.measured)} {figure.unit}"
        table.add_row(figure.name, measured, figure.target, Text(words, style), figure.note)
    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_CHARS)
    console.print(table)


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


def _said(name: str, option: str) -> str | None:
    """The first line with which a program tells its version; None if it is not there."""
    found = program(name)
    if found is None:
        return None
    ended = subprocess.run([found, option], capture_output=True, text=True, check=False)
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
