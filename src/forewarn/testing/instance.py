"""`cloud.instance`: what VMs read of themselves at `/metadata/instance`, as a test wants it."""

from __future__ import annotations

from forewarn.core.errors import Refusal
from forewarn.emulator.instance_values import read_value
from forewarn.testing.background import Background
from forewarn.testing.tracebacks import cut, for_refusals
from forewarn.testing.values import CloudVm, name_of
from forewarn.wiring.simulate import Emulator

__tracebackhide__ = for_refusals


class CloudInstance:
    """The values of a cloud over those of its VMs. They are told at every api-version."""

    def __init__(self, background: Background) -> None:
        self._background = background

    def set(self, path: str, value: object, *, vm: str | CloudVm | None = None) -> None:
        """From now on the VM, or every VM, reads this value: `set("compute/vmSize", "...")`.

        `value` is a text, a number, or a table or list of these; leaves are told as texts. None
        takes an element away. Raises Invalid, or NotFound for a VM there is not.
        """
        try:
            said = read_value(path, value, name_of(vm))
        except Refusal as refusal:
            raise cut(refusal) from None

        async def work(emulator: Emulator) -> None:
            emulator.instance.add(said, emulator.urls().keys())

        self._background.call(work)

    def clear(self) -> None:
        """VMs read what the fleet knows of them again."""

        async def work(emulator: Emulator) -> None:
            emulator.instance.clear()

        self._background.call(work)
