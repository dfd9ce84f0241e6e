"""The programs that tests run where they are there, and the words for a skip where they are not."""

from __future__ import annotations

import shutil

import pytest

# Each with the Debian package that has it. Every Debian has those of util-linux.
PACKAGES = {
    "chromium": "chromium",
    "curl": "curl",
    "dhclient": "isc-dhcp-client",
    "dnsmasq": "dnsmasq-base",
    "dotnet": "dotnet-sdk-8.0, of its vendor",
    "exim4": "exim4-daemon-light",
    "go": "golang-go",
    "haproxy": "haproxy",
    "ip": "iproute2",
    "java": "default-jdk-headless",
    "initdb": "postgresql",
    "journalctl": "systemd",
    "kubectl": "kubernetes-client",
    "nft": "nftables",
    "node": "nodejs",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "postgres": "postgresql",
    "promtool": "prometheus",
    "rsyslogd": "rsyslog",
    "setpriv": "util-linux",
    "ssh": "openssh-client",
    "strace": "strace",
    "systemctl": "systemd",
    "systemd-analyze": "systemd",
    "systemd-sysusers": "systemd",
    "udhcpc": "udhcpc",
    "unshare": "util-linux",
    "virsh": "libvirt-clients",
}


def missing(*names: str) -> str:
    """What of these is not installed, with the package of each; empty if all are."""
    absent = [name for name in names if shutil.which(name) is None]
    listed = ", ".join(f"{name} (Debian package {PACKAGES[name]})" for name in absent)
    return f"not installed: {listed}" if absent else ""


def program(name: str) -> str:
    """Where a program is. Skips the test where it is not installed."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(missing(name))
    return path


def needs(*names: str) -> pytest.MarkDecorator:
    """Marks tests that are skipped where one of these is not installed."""
    why = missing(*names)
    return pytest.mark.skipif(bool(why), reason=why or "all are installed")
