"""`python -m forewarn.wiring.inventory_child`: reads one inventory file for the service."""

from __future__ import annotations

from forewarn.adapters import child_processes
from forewarn.control import inventory_apart

MODULE = "forewarn.wiring.inventory_child"


def reads_apart() -> inventory_apart.ReadsApart:
    """Who has such a process read."""
    return inventory_apart.ReadsApart(child_processes.ask, module=MODULE)


if __name__ == "__main__":
    child_processes.answer(inventory_apart.reply)
