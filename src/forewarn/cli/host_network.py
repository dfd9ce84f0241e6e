"""`forewarn host clear-network`: for a machine that is a host no more."""

from __future__ import annotations

import sys

from forewarn.cli.client import Stop
from forewarn.cli.members import host
from forewarn.cli.session import AsJson, Session
from forewarn.core.errors import Refusal

__all__ = ["host"]


@host.command("clear-network")
def clear_network(*, as_json: AsJson = False) -> None:
    """Take away what a host daemon that was killed has left in the network of this machine.

    A daemon that is stopped leaves nothing, and one that is started replaces what it finds: this is
    for machines on which none is started again.
    """
    import asyncio  # noqa: PLC0415 - other commands of hosts need none of it

    from forewarn.wiring.host_network import clear_network as clear  # noqa: PLC0415 - it is heavy

    try:
        asyncio.run(clear())
    except Refusal as refusal:
        raise Stop(1, refusal.refused, refusal.accepted) from None
    if as_json:
        Session.show_json({"cleared": True})
    else:
        sys.stdout.write("Nothing of Forewarn is left in the network of this machine.\n")
