"""What the writer knows and does not store: who holds which claim, and what hosts have shown.

After a restart it is empty: every claim gets one more lease, and hosts show everything again. Times
are monotonic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from forewarn.control.hosts.leases import Lease
from forewarn.control.hosts.report_slices import Report
from forewarn.control.inventory.file_reader import ReadFiles
from forewarn.core.inventory import apply_report
from forewarn.core.inventory.host_report import SeenVm


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a host has shown (texts replaced by their digests), and what was made of it.

    `told` is the report as it came, empty while another is being taken.
    """

    told: tuple[SeenVm, ...] = ()
    usable: Mapping[str, SeenVm] = msgspec.field(default_factory=dict)
    looked: apply_report.ReportDecision = msgspec.field(default_factory=apply_report.ReportDecision)
    problems: Mapping[str, str] = msgspec.field(default_factory=dict)
    inventory: str | None = None
    at_ms: int = 0


class Taking(msgspec.Struct, frozen=True, kw_only=True):
    """A report while it is being taken, slice by slice: what was found so far."""

    report: Report
    problems: Mapping[str, str]
    inventory: str | None  # the file when it began
    busy: frozenset[str] = frozenset()
    waiting: bool = False


class Volatile:
    """Belongs to the writer: only a transaction changes it (`Transaction.put`), and takes that back
    with everything else. The event loop looks single values up. `files` is what was read of
    inventory files.
    """

    def __init__(self, began_ms: int, files: ReadFiles | None = None) -> None:
        self.began_ms = began_ms
        self.files = files or ReadFiles()
        self.leases: dict[str, Lease] = {}  # by action
        self.claimed_by: dict[str, str] = {}  # by host: the daemon that claimed last
        # By host: the number of its last report, that report while it is taken, what it showed.
        self.reports: dict[str, int] = {}
        self.takings: dict[str, Taking] = {}
        self.looks: dict[str, Look] = {}
        # By VM: where it was at the last look, and since when it is not there, or there twice.
        self.placed: dict[str, str] = {}
        self.absent_since: dict[str, int] = {}
        self.twice_since: dict[str, int] = {}
        # By host: since when VMs (by id) are off, and how often the host had been silent by then;
        # when it last showed its VMs.
        self.off_since: dict[str, Mapping[str, tuple[int, int]]] = {}
        self.seen_ms: dict[str, int] = {}
        self.empty_scopes: dict[str, bool] = {}  # may be removed at the next look

    def by_host(self) -> tuple[dict[str, Any], ...]:
        """What is kept of a host and means nothing once the host is gone."""
        return self.claimed_by, self.reports, self.takings, self.off_since, self.seen_ms
