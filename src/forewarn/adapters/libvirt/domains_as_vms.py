"""All VMs of one hypervisor as libvirt shows them, ours and others (ports.Machines)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from forewarn.adapters.libvirt import domain_xml
from forewarn.adapters.libvirt.blocking_calls import DomainView, LibvirtSession
from forewarn.adapters.libvirt.connection import LibvirtConnection
from forewarn.core import attributes
from forewarn.core.inventory.host_report import Nic, SeenVm, Traits
from forewarn.core.suggestions import shown
from forewarn.ports import HypervisorFailed

SEEN_S = 30.0  # all domains of a host with a few hundred


class LibvirtMachines:
    """Reads domains, and writes the traits that their owner wants."""

    def __init__(self, connection: LibvirtConnection) -> None:
        self._connection = connection

    async def seen(self) -> Sequence[SeenVm]:
        """Every domain, active or only defined, by name."""
        return await self._connection.call(_seen, what="list the domains", seconds=SEEN_S)

    async def adopt(self, vm: str, traits: Traits) -> None:
        """Write the traits into the running domain and into its configuration."""

        def write(session: LibvirtSession) -> None:
            view = session.view(vm)
            if view is None:
                raise HypervisorFailed(
                    f"There is no domain {vm} here. `virsh list --all` lists all."
                )
            element = domain_xml.traits_element(traits)
            session.set_traits(vm, element, live=view.active, config=view.persistent)

        await self._connection.call(write, what=f"write the metadata of {vm}")

    def on_change(self, ring: Callable[[], None]) -> None:
        """Call `ring` on the event loop whenever a domain has changed or may have."""
        self._connection.on_event(ring)


def _seen(session: LibvirtSession) -> list[SeenVm]:
    domains = session.domains()
    networks = {
        interface.network
        for view in domains
        for interface in domain_xml.interfaces(view.live_xml or view.config_xml)
        if interface.network is not None and interface.nic.bridge is None
    }
    bridges = {network: session.bridge_of(network) for network in networks}
    return sorted((seen_vm(view, bridges) for view in domains), key=lambda vm: vm.name)


def seen_vm(view: DomainView, bridges: Mapping[str, str | None]) -> SeenVm:
    """A domain as the fleet knows it. `bridges` are those of libvirt's networks, by name.

    The definition is the configuration for the next start, without secrets: it is kept by the
    control plane, which has no use for the password of a console.
    """
    problems = []
    if not attributes.NAME.fullmatch(view.name):
        problems.append(
            f"the name {shown(view.name)} cannot stand in a document. "
            f"Accepted: {attributes.NAME_ACCEPTED}. Rename it: `virsh domrename`."
        )
    traits = Traits()
    try:
        traits = domain_xml.read_traits(view.told_xml)
    except domain_xml.BadTraits as wrong:
        problems.append(
            f"its metadata is not understood: {wrong} "
            f"Correct it: `virsh edit {view.name}` or `forewarn vm adopt {view.name} ...`."
        )
    nics = _nics(view, bridges)
    if not nics:
        problems.append(
            "it has no network interface: it cannot read its document. "
            "Add one: `virsh attach-interface`."
        )
    return SeenVm(
        name=view.name,
        vm_id=view.uuid,
        power=view.power,
        traits=traits,
        nics=nics,
        definition=domain_xml.without_mark(view.config_xml),
        problem=" ".join(problems),
    )


def _nics(view: DomainView, bridges: Mapping[str, str | None]) -> tuple[Nic, ...]:
    nics = []
    for interface in domain_xml.interfaces(view.live_xml or view.config_xml):
        nic = interface.nic
        if nic.bridge is None and interface.network is not None:
            nic = replace(nic, bridge=bridges.get(interface.network))
        # What the configuration says of a tap is a wish; only a running domain has one.
        nics.append(nic if view.active else replace(nic, tap=None))
    return tuple(nics)
