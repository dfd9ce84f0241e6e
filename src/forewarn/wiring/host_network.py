"""Taking away, without a daemon, what a host daemon that is gone has left in the network."""

from __future__ import annotations

from forewarn.adapters.iproute2 import LinkAddresses
from forewarn.adapters.nftables import NftRules
from forewarn.core.errors import Refusal
from forewarn.host.channels.channel_setup import take_down
from forewarn.ports import NetworkFailed


async def clear_network() -> None:
    """Remove addresses and rules of ours. Refusal if a daemon serves here, or it cannot be done."""
    try:
        await take_down(LinkAddresses(), NftRules())
    except NetworkFailed as failed:
        raise Refusal(failed.message, failed.remedy) from None
