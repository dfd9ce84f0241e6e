"""What the writer knows and nobody keeps: who holds which claim, and what hosts have shown.

After a restart it is empty: every claim gets one more lease, and hosts show everything again. Times
are monotonic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from forewarn.control.inventory_file import ReadFiles
from forewarn.control.leases import Daemon, Lease
from forewarn.control.observed import ReportedVm
from forewarn.control.report_slices import Report
from forewarn.core import sighting
from forewarn.core.machines import SeenVm


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a host has shown (texts replaced by their digests), and what was made of it.

    `told` is the report as it came, empty while another is being taken.
    """

    told: tuple[SeenVm, ...] = ()
    usable: Mapping[str, SeenVm] = field(default_factory=dict)
    looked: sighting.Looked = field(default_factory=sighting.Looked)
    problems: Mapping[str, str] = field(default_factory=dict)
    reported: Mapping[str, ReportedVm] = field(default_factory=dict)
    inventory: str | None = None
    at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """A report while it is being taken, slice by slice: what was found so far."""

    report: Report
    problems: Mapping[str, str]
    inventory: str | None  # the file when it began
    busy: frozenset[str] = frozenset()
    waiting: bool = False


@dataclass(slots=True)
class Volatile:
    """Belongs to the writer: only a transaction changes it (`Transaction.put`), and takes that back
    with everything else. The event loop looks single values up. `files` is what was read of
    inventory files.
    """

    began_ms: int
    files: ReadFiles = field(default_factory=ReadFiles)
    leases: dict[str, Lease] = field(default_factory=dict)  # by action
    daemons: dict[str, Mapping[str, Daemon]] = field(default_factory=dict)  # by host, then by name
    # By host: the number of its last report, that report while it is taken, and what it showed.
    reports: dict[str, int] = field(default_factory=dict)
    takings: dict[str, Taking] = field(default_factory=dict)
    looks: dict[str, Look] = field(default_factory=dict)
    # By VM: where it was when somebody last looked, and since when it is not, or twice, there.
    placed: dict[str, str] = field(default_factory=dict)
    absent_since: dict[str, int] = field(default_factory=dict)
    twice_since: dict[str, int] = field(default_factory=dict)
    # By host: since when VMs (by id) are off, and how often the host had been silent by then; when
    # it last showed its VMs.
    off_since: dict[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    seen_ms: dict[str, int] = field(default_factory=dict)
    empty_scopes: dict[str, bool] = field(default_factory=dict)  # may be removed at the next look
