"""Built-in steps: what a rule can do without a command of its own.

Each runs as a process, `python -m forewarn_guest.steps KIND`, with one JSON object on standard
input. Importing this package imports the tables of options only.
"""

from __future__ import annotations

from forewarn_guest.steps.kinds import KINDS
from forewarn_guest.steps.options import Mistake, Option, StepKind, read_options

__all__ = ["KINDS", "StepKind", "Mistake", "Option", "read_options"]
