"""What a host daemon acts on: libvirt and the network of this machine."""

from __future__ import annotations

from forewarn.adapters.iproute2 import LinkAddresses
from forewarn.adapters.libvirt.connection import LibvirtMissing, open_libvirt
from forewarn.adapters.libvirt.domains_as_vms import LibvirtMachines
from forewarn.adapters.libvirt.hypervisor import LibvirtHypervisor
from forewarn.adapters.nftables import NftRules
from forewarn.adapters.system import SystemClock
from forewarn.core.errors import Refusal
from forewarn.endpoint.endpoint import Endpoint
from forewarn.host.channels.channel_setup import Channels, GuestChannels, NoChannels
from forewarn.host.channels.plan import Mode
from forewarn.host.identity import Identity
from forewarn.host_settings import HostSettings
from forewarn.ports import HostLink
from forewarn.wiring.host import Building, Machinery


def on_libvirt(settings: HostSettings) -> Building:
    """The libvirt that the settings name, and the bridges or taps of its VMs."""

    def channels(endpoint: Endpoint, identity: Identity) -> GuestChannels:
        if settings.listen == "none":
            return NoChannels()
        return Channels(
            endpoint,
            identity,
            interfaces=LinkAddresses(),
            rules=NftRules(),
            mode=Mode(settings.listen),
            only=settings.bridges,
        )

    def build(name: str, link: HostLink) -> Machinery:
        try:
            connection = open_libvirt(settings.libvirt)
        except LibvirtMissing as missing:
            raise Refusal(str(missing)) from None
        hypervisor = LibvirtHypervisor(
            connection,
            host=name,
            clock=SystemClock(),
            link=link,
            migrate_uri=settings.migrate_uri,
            shutdown_s=settings.shutdown_seconds,
            reboot_command=settings.reboot_command,
            boot_id_file=settings.boot_id_file,
        )

        async def close() -> None:
            await hypervisor.close()
            connection.close()

        return Machinery(
            machines=LibvirtMachines(connection),
            hypervisor=hypervisor,
            channels=channels,
            loops=(hypervisor.run,),
            close=close,
            on_reboot=connection.on_reboot,
        )

    return build
