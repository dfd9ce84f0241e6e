"""Calls on one open connection to libvirt, by the names of domains. They block.

The module `libvirt` is handed in by `connection`, which also puts its errors into words;
nothing here catches more of them than it can answer for.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from forewarn.adapters.libvirt.domain_xml import (
    MARK_NAMESPACE,
    MARK_PREFIX,
    TRAITS_NAMESPACE,
    TRAITS_PREFIX,
    DomainMark,
    is_live,
    mark_element,
)
from forewarn.core.inventory.host_report import Power

LOOKS_MAX = 5  # at one domain, until two answers about it fit together


class DomainView(Struct, frozen=True, kw_only=True):
    """A domain as libvirt shows it now. `live_xml` is empty while it is not active."""

    name: str
    uuid: str
    power: Power
    active: bool
    persistent: bool
    live_xml: str
    config_xml: str

    @property
    def told_xml(self) -> str:
        """Where its owner's word is: the configuration, or the domain if it has none to keep."""
        return self.config_xml if self.persistent else self.live_xml


class LibvirtSession:
    """Blocking calls on one open connection, by the names of domains. Only within `call`."""

    def __init__(self, libvirt: Any, connect: Any) -> None:
        self._lv = libvirt
        self._connect = connect

    def domains(self) -> list[DomainView]:
        """Every domain. One that vanishes meanwhile is left out."""
        found = []
        for domain in self._connect.listAllDomains(0):
            try:
                found.append(self._view(domain))
            except self._lv.libvirtError as error:
                if error.get_error_code() != self._lv.VIR_ERR_NO_DOMAIN:
                    raise
        return found

    def view(self, name: str) -> DomainView | None:
        """One domain, None if there is none of that name."""
        try:
            return self._view(self._connect.lookupByName(name))
        except self._lv.libvirtError as error:
            if error.get_error_code() == self._lv.VIR_ERR_NO_DOMAIN:
                return None
            raise

    def _view(self, domain: Any) -> DomainView:
        """What the XML says decides whether it is active: state and XML are two questions.

        A domain that goes off between them would seem to run with the mark of its configuration,
        which means that it was started since. So both are asked until they agree.
        """
        lv = self._lv
        for _ in range(LOOKS_MAX):
            condition, reason = domain.state()
            xml = domain.XMLDesc(0)
            if is_live(xml) == (condition != lv.VIR_DOMAIN_SHUTOFF):
                break
        active = is_live(xml)
        power = {
            lv.VIR_DOMAIN_PAUSED: Power.PAUSED,
            lv.VIR_DOMAIN_PMSUSPENDED: Power.PAUSED,
            lv.VIR_DOMAIN_CRASHED: Power.CRASHED,
        }.get(condition, Power.RUNNING)
        if not active:
            # One that could not be started is not off by its owner's wish either.
            crashed = reason in (lv.VIR_DOMAIN_SHUTOFF_CRASHED, lv.VIR_DOMAIN_SHUTOFF_FAILED)
            is_off = condition == lv.VIR_DOMAIN_SHUTOFF
            power = Power.CRASHED if is_off and crashed else Power.OFF
        return DomainView(
            name=domain.name(),
            uuid=domain.UUIDString(),
            power=power,
            active=active,
            persistent=bool(domain.isPersistent()),
            live_xml=xml if active else "",
            config_xml=domain.XMLDesc(lv.VIR_DOMAIN_XML_INACTIVE),
        )

    def definition(self, name: str) -> str:
        """What another host needs to run the domain, with the secrets in it (VNC passwords)."""
        flags = self._lv.VIR_DOMAIN_XML_INACTIVE | self._lv.VIR_DOMAIN_XML_SECURE
        return str(self._domain(name).XMLDesc(flags))

    def set_mark(self, name: str, mark: DomainMark, *, live: bool, config: bool) -> None:
        """Write the mark into the running domain, into its configuration, or into both."""
        self._set_metadata(
            name, mark_element(mark), MARK_PREFIX, MARK_NAMESPACE, live=live, config=config
        )

    def set_traits(self, name: str, element: str, *, live: bool, config: bool) -> None:
        """Write the element of traits likewise."""
        self._set_metadata(name, element, TRAITS_PREFIX, TRAITS_NAMESPACE, live=live, config=config)

    def _set_metadata(
        self, name: str, element: str, prefix: str, namespace: str, *, live: bool, config: bool
    ) -> None:
        lv = self._lv
        flags = (lv.VIR_DOMAIN_AFFECT_LIVE if live else 0) | (
            lv.VIR_DOMAIN_AFFECT_CONFIG if config else 0
        )
        if flags:
            self._domain(name).setMetadata(
                lv.VIR_DOMAIN_METADATA_ELEMENT, element, prefix, namespace, flags
            )

    def press(self, name: str) -> None:
        """Press the power button. That it returns says nothing of what the guest does."""
        domain = self._domain(name)
        try:
            domain.shutdownFlags(self._lv.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
        except self._lv.libvirtError as error:
            if error.get_error_code() not in self._not_offered():
                raise
            domain.shutdown()  # a driver without that choice (test:///)

    def go_off_when_shut_down(self, name: str) -> None:
        """Let a running domain with another `on_poweroff` go off at its next shutdown."""
        lv = self._lv
        self._domain(name).setLifecycleAction(
            lv.VIR_DOMAIN_LIFECYCLE_POWEROFF,
            lv.VIR_DOMAIN_LIFECYCLE_ACTION_DESTROY,
            lv.VIR_DOMAIN_AFFECT_LIVE,
        )

    def destroy(self, name: str) -> None:
        """Pull the plug."""
        self._domain(name).destroy()

    def create(self, name: str, *, paused: bool = False) -> None:
        """Start a defined domain that is off."""
        domain = self._domain(name)
        if not paused:
            domain.create()
            return
        try:
            domain.createWithFlags(self._lv.VIR_DOMAIN_START_PAUSED)
        except self._lv.libvirtError as error:
            if error.get_error_code() not in self._not_offered():
                raise
            domain.create()  # a driver without that choice (test:///)
            domain.suspend()

    def suspend(self, name: str) -> None:
        self._domain(name).suspend()

    def resume(self, name: str) -> None:
        """Let a paused domain go on. If another client just resumed it, that is fine."""
        domain = self._domain(name)
        try:
            domain.resume()
        except self._lv.libvirtError:
            if domain.state()[0] != self._lv.VIR_DOMAIN_RUNNING:
                raise

    def define(self, xml: str) -> None:
        """Make a domain persistent, new or with a new configuration."""
        self._connect.defineXML(xml)

    def undefine(self, name: str, *, moved: bool = False) -> None:
        """Forget a domain with what libvirt itself keeps of it. Disks are left alone.

        So are the variables of its firmware if it has moved: they may be on shared storage.
        """
        lv = self._lv
        domain = self._domain(name)
        kept = lv.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE | lv.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
        more = lv.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA | (
            lv.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM if moved else lv.VIR_DOMAIN_UNDEFINE_NVRAM
        )
        try:
            domain.undefineFlags(kept | more)
        except lv.libvirtError as error:
            if error.get_error_code() not in self._not_offered():
                raise
            domain.undefineFlags(kept)  # a driver that has neither (test:///)

    def autostart(self, name: str) -> bool:
        """Whether libvirt starts the domain when the host boots."""
        return bool(self._domain(name).autostart())

    def set_autostart(self, name: str) -> None:
        self._domain(name).setAutostart(1)

    def migrate(self, name: str, uri: str) -> None:
        """Move a running domain to the libvirt at `uri`; returns when it runs there."""
        lv = self._lv
        flags = (
            lv.VIR_MIGRATE_LIVE
            | lv.VIR_MIGRATE_PEER2PEER
            | lv.VIR_MIGRATE_PERSIST_DEST
            | lv.VIR_MIGRATE_UNDEFINE_SOURCE
            | lv.VIR_MIGRATE_ABORT_ON_ERROR
            | lv.VIR_MIGRATE_AUTO_CONVERGE
        )
        self._domain(name).migrateToURI3(uri, {}, flags)

    def migrating(self, name: str) -> bool:
        """Whether libvirt is at work on the domain, for us or for another client."""
        try:
            kind = self._domain(name).jobStats().get("type")
        except self._lv.libvirtError as error:
            if error.get_error_code() in (*self._not_offered(), self._lv.VIR_ERR_OPERATION_INVALID):
                return False
            raise
        return kind in (self._lv.VIR_DOMAIN_JOB_BOUNDED, self._lv.VIR_DOMAIN_JOB_UNBOUNDED)

    def abort(self, name: str) -> None:
        """End what libvirt is at work on; a migrating domain goes on here."""
        self._domain(name).abortJob()

    def bridge_of(self, network: str) -> str | None:
        """The bridge of a libvirt network, None if it has none."""
        try:
            return str(self._connect.networkLookupByName(network).bridgeName())
        except self._lv.libvirtError:
            return None

    def _domain(self, name: str) -> Any:
        return self._connect.lookupByName(name)

    def _not_offered(self) -> tuple[int, ...]:
        lv = self._lv
        return (
            lv.VIR_ERR_NO_SUPPORT,
            lv.VIR_ERR_INVALID_ARG,
            lv.VIR_ERR_ARGUMENT_UNSUPPORTED,
            lv.VIR_ERR_OPERATION_UNSUPPORTED,
            lv.VIR_ERR_CONFIG_UNSUPPORTED,
        )
