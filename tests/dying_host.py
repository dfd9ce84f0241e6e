"""A host daemon with a death of its own: `DIES=before:claim` kills it before it asks to claim.

WHEN is `before` or `after` one of the durable steps of an action (or of what a guest is told):
claim, holds, begin, report, confirm, approve, sight, or mark: how far guests are about to come is
written down, and not shown before that. Its machines are those of
`lasting_machines`; everything else is the product. Prints one line of JSON when it serves: where
each VM asks.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from forewarn.adapters import marks_file
from forewarn.adapters.control_link import ControlLink
from forewarn.adapters.sqlite.data_folder import FolderLock
from forewarn.cli.logs import log_to_stderr
from forewarn.core import deadlines
from forewarn.core.incarnation_marks import Marks
from forewarn.core.inventory.host_report import SeenVm
from forewarn.host_settings import HostSettings
from forewarn.ports import HostLink, WorkOrder
from forewarn.wire.link import Turn, TurnTaken, Work
from forewarn.wiring.host import HostService, HostWhere, Machinery, membership
from loopback_channels import LoopbackChannels
from support.lasting_machines import LastingMachines

DIES = os.environ.get("DIES", "")


def reached(when: str, step: str) -> None:
    """Die here, if this is where."""
    if f"{when}:{step}" == DIES:
        os.kill(os.getpid(), signal.SIGKILL)


class DyingLink(ControlLink):
    """The link; each of its questions is a place to die before or after."""

    async def claim(self, boot_id: str) -> Sequence[Work]:
        reached("before", "claim")
        actions = await super().claim(boot_id)
        if actions:
            reached("after", "claim")
        return actions

    async def holds(self, action_id: str, epoch: int) -> bool:
        reached("before", "holds")
        held = await super().holds(action_id, epoch)
        reached("after", "holds")
        return held

    async def turn(self, said: Turn) -> TurnTaken:
        for step, parts in (("report", said.ended), ("confirm", said.confirms)):
            if parts:
                reached("before", step)
        taken = await super().turn(said)
        for step, parts in (("report", said.ended), ("confirm", said.confirms)):
            if parts:
                reached("after", step)
        return taken

    async def approve(self, vm: str, event_ids: tuple[str, ...]) -> None:
        reached("before", "approve")
        await super().approve(vm, event_ids)
        reached("after", "approve")

    async def sight(self, vms: Sequence[SeenVm], boot_id: str = "") -> Mapping[str, str]:
        reached("before", "sight")
        problems = await super().sight(vms, boot_id)
        reached("after", "sight")
        return problems


class DyingMachines(LastingMachines):
    """The machines; beginning something is a place to die before or after."""

    async def begin(self, host: str, action: WorkOrder) -> None:
        reached("before", "begin")
        await super().begin(host, action)
        reached("after", "begin")


keep_marks = marks_file.keep


def dying_keep(folder: Path, marks: Marks) -> None:
    """Keep marks; they are a place to die before or after."""
    reached("before", "mark")
    keep_marks(folder, marks)
    reached("after", "mark")


async def main(
    folder: Path,
    world: Path,
    control: str,
    name: str,
    token: str,
    *,
    linked_by: type[ControlLink] = DyingLink,
) -> None:
    if DIES.endswith(":holds"):
        deadlines.CLAIM_FRESH_MS = 0  # else nobody asks once more what was claimed just now
    settings = HostSettings(
        data=folder, name=name, control=control, metrics="", guest_requests_per_second=0
    )
    lock = FolderLock(folder)
    marks_file.keep = dying_keep
    machines = DyingMachines(world, name)

    def build(_name: str, _link: HostLink) -> Machinery:
        return Machinery(machines=machines, hypervisor=machines, channels=LoopbackChannels)

    service = HostService(
        settings, await membership(settings, token), build=build, linked_by=linked_by
    )

    def say(where: HostWhere) -> None:
        channels = service.channels
        assert isinstance(channels, LoopbackChannels)
        sys.stdout.write(json.dumps({"name": where.name, "vms": channels.addresses()}) + "\n")
        sys.stdout.flush()

    await service.run(say)
    lock.release()


if __name__ == "__main__":
    log_to_stderr()
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:6]))
