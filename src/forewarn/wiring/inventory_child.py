"""`python -m forewarn.wiring.inventory_child`: reads one inventory file for the service."""

from __future__ import annotations

from forewarn.adapters import child_processes
from forewarn.control.inventory import reader_process

MODULE = "forewarn.wiring.inventory_child"


def reads_apart() -> reader_process.ReadsApart:
    """Who has such a process read."""
    return reader_process.ReadsApart(child_processes.ask, module=MODULE)


if __name__ == "__main__":
    child_processes.answer(reader_process.reply)
