"""A host daemon of another minor version of the link: `PEER=newer` or `PEER=older`.

A newer one says more than control knows, and with each turn asks something that control does not
know. An older one says less, asks neither `holds` nor `blind`, and does not know how to freeze a
host. Everything else is `dying_host`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import dying_host
from forewarn.adapters import control_link, joining
from forewarn.adapters.control_link import Answer, ControlLink, Lane
from forewarn.cli.logs import log_to_stderr
from forewarn.core.errors import Refusal, Unavailable
from forewarn.host import executor
from forewarn.logs import Log
from forewarn.wire import link as wire
from support.link_peers import LATER_WORK, NEWER, NO_QUESTION, OLDER, VERSIONS, as_said_by

PEER = os.environ["PEER"]

log = Log(__name__)


class PeerLane(Lane):
    """Connections over which every question is said as that version says it."""

    async def send(self, method: str, path: str, content: bytes = b"", *, limit_s: float) -> Answer:
        said = as_said_by(PEER, path.removeprefix("/link/"), content, answer=False)
        return await super().send(method, path, said, limit_s=limit_s)


class NewerLink(ControlLink):
    """A link that has one question more."""

    async def turn(self, said: wire.Turn) -> wire.TurnTaken:
        try:
            await self._host(NO_QUESTION, wire.Turn(), wire.Done)
        except (Refusal, Unavailable) as why:
            log.warning("went_on_without", kind=type(why).__name__, why=str(why))
        return await super().turn(said)


class OlderLink(ControlLink):
    """A link without two questions."""

    async def holds(self, action_id: str, epoch: int) -> bool:
        del action_id, epoch
        return True

    async def blind(self, why: str) -> None:
        log.warning("nobody_is_told", why=why)


if __name__ == "__main__":
    log_to_stderr()
    vars(control_link)["Lane"] = vars(joining)["Lane"] = PeerLane
    wire.LINK_VERSION = VERSIONS[PEER]
    if PEER == OLDER:
        executor._KINDS -= {LATER_WORK}
    links = {NEWER: NewerLink, OLDER: OlderLink}
    folder, world, *more = sys.argv[1:6]
    asyncio.run(dying_host.main(Path(folder), Path(world), *more, linked_by=links[PEER]))
