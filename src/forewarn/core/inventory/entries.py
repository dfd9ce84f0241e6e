"""The fleet as an inventory file wants it, as values that can be compared, and what applying did.

`control.inventory.file_reader` reads a file; `apply_file` says what must change in the fleet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct

from forewarn.core.model import (
    MINUTE_MS,
    EventType,
    ScopeKind,
)
from forewarn.core.vm_profile import NOTHING_SAID, VmProfile


class Source(StrEnum):
    """Who says how a VM is wanted."""

    FILE = "file"
    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEntry:
    """A host as the file describes it. `number` is its place in the file and no content."""

    name: str
    capacity: int | None = None
    number: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeEntry:
    """A scope as the file describes it, or the one that a VM without a scope has of its own.

    `only_listed`: no VM is in it by its metadata alone, whatever host shows it.
    """

    name: str
    kind: ScopeKind
    terminate_notice_ms: int = 5 * MINUTE_MS
    auto_approve: frozenset[EventType] = frozenset()
    only_listed: bool = False
    number: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VmEntry:
    """A VM as its source wants it. A file says on which `host` it is placed if it is new."""

    name: str
    scope: str
    host: str
    update_domain: int = 0
    profile: VmProfile = NOTHING_SAID
    source: Source = Source.FILE
    number: int = field(default=0, compare=False)


class Inventory(Struct, frozen=True, kw_only=True):
    """What a file says, each part in name order: equal if and only if the content is."""

    hosts: tuple[HostEntry, ...] = ()
    scopes: tuple[ScopeEntry, ...] = ()
    vms: tuple[VmEntry, ...] = ()


class NameChanges(Struct, frozen=True, kw_only=True):
    """Names of what a file added, changed and removed, each in order."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class Applied(Struct, frozen=True, kw_only=True):
    """What applying a file did. `differs` is False if its content was the last applied one.

    `still_deleted` are VMs that the file lists and that an order has deleted.
    """

    differs: bool = False
    hosts: NameChanges = NameChanges()
    scopes: NameChanges = NameChanges()
    vms: NameChanges = NameChanges()
    still_deleted: tuple[str, ...] = ()
