"""The whole rig: a wire, two hypervisors, a machine for control, and guests. Use it with `with`."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from types import TracebackType

from rig import guest_image, leftovers, needs
from rig.cells import Cell
from rig.consoles import Consoles
from rig.domains import Guest, definition
from rig.hypervisors import HypervisorCell
from rig.wire import ADDRESSES, Wire

HYPERVISORS = ("h1", "h2")


class Rig:
    """Everything, switched on. Leaving the `with` block takes all of it down and its folder away.

    `keep` leaves the folder, with every log, for somebody to look at.
    """

    def __init__(self, *, keep: bool = False) -> None:
        needs.check()
        self.removed = leftovers.remove_leftovers()
        self.keep = keep
        self.folder = leftovers.make_folder()
        self._stack = ExitStack()
        if not keep:
            self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "consoles").mkdir()
        self.consoles = Consoles(self.folder / "consoles")
        self.wire = Wire(self.folder)
        self.hypervisors = {
            name: HypervisorCell(name, self.folder / name, self.wire) for name in HYPERVISORS
        }
        known = {"localhost": "127.0.0.1", **ADDRESSES}
        (self.folder / "hosts").write_text("".join(f"{at} {name}\n" for name, at in known.items()))
        self.control = Cell("control", self.folder, {self.folder / "hosts": "/etc/hosts"})
        self.guests: dict[str, Guest] = {}

    def __enter__(self) -> Rig:
        with ExitStack() as undo:
            undo.push(self._stack)
            self.image = guest_image.build(self.folder)
            self._stack.callback(self.wire.cell.power_off)
            self.wire.power_on()
            self._stack.callback(self.control.power_off)
            self.control.power_on()
            self.wire.plug(self.control)
            for hypervisor in self.hypervisors.values():
                self._stack.callback(hypervisor.power_off)
                hypervisor.power_on()
            self.note()
            self._stack.enter_context(self.consoles)
            undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        why: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def note(self) -> None:
        """Write down which processes are the rig's now."""
        cells = [self.wire.cell, self.control, *(h.cell for h in self.hypervisors.values())]
        leftovers.note(self.folder, {cell.name: cell.pid for cell in cells if cell.pid})

    def define(self, guest: Guest, on: str, *, start: bool = True) -> None:
        """Make a VM on one of the hypervisors."""
        self.guests[guest.name] = guest
        text = definition(guest, self.image, self.consoles.path(guest.name))
        self.hypervisors[on].define(text, start=start)

    def where(self, vm: str) -> dict[str, str]:
        """The power of a VM on every hypervisor that is on and knows it."""
        powers = {
            name: hypervisor.power_of(vm)
            for name, hypervisor in self.hypervisors.items()
            if hypervisor.cell.on
        }
        return {name: power for name, power in powers.items() if power != "absent"}
