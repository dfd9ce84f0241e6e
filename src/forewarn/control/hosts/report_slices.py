"""A host's report of its VMs, read, and cut into slices that the writer takes one by one.

Only reading and cutting live here; what a report means is decided in `core.inventory.apply_report`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from forewarn.control.hosts import reported_vms
from forewarn.core.inventory.host_report import SeenVm

SLICE_VMS_MAX = 256  # some 50 ms of the writer's time
SLICE_CHARS_MAX = 1_024 * 1_024  # of definitions, which the writer writes to the disk


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a host shows: as it came (texts replaced by their digests), and what of it can be used.

    `unusable` is what is wrong with the rest, in words, by VM; `texts` are definitions by VM.
    `boot_id` is the boot in which the host saw it, empty if it does not say.
    """

    host: str
    told: tuple[SeenVm, ...]
    usable: Mapping[str, SeenVm]
    unusable: Mapping[str, str]
    texts: Mapping[str, str]
    boot_id: str = ""


class Slice(msgspec.Struct, frozen=True):
    """VMs that are looked at together. `unsettled` are scopes that go on in the next slice."""

    names: tuple[str, ...]
    unsettled: frozenset[str] = frozenset()


def digested(host: str, vms: Sequence[SeenVm]) -> tuple[SeenVm, ...]:
    """The report without its long texts, by name."""
    found = (reported_vms.digested(host, seen) for seen in vms)
    return tuple(sorted(found, key=lambda seen: seen.name))


def read(host: str, vms: Sequence[SeenVm], told: tuple[SeenVm, ...], boot_id: str = "") -> Report:
    """What of a report can be used; `told` is the same report, digested."""
    usable: dict[str, SeenVm] = {}
    unusable: dict[str, str] = {}
    for seen in told:
        found = reported_vms.read(seen)
        if isinstance(found, str):
            unusable[seen.name] = found
        else:
            usable.setdefault(seen.name, found)
    texts = {seen.name: reported_vms.kept_text(seen) for seen in reversed(vms)}
    return Report(
        host=host, told=told, usable=usable, unusable=unusable, texts=texts, boot_id=boot_id
    )


def slices(report: Report, *, vms_max: int = SLICE_VMS_MAX) -> list[Slice]:
    """The VMs of a report, those of one scope together as far as a slice goes."""
    found: list[list[str]] = [[]]
    chars = 0
    for group in _by_scope(report):
        fits = len(found[-1]) + len(group) <= vms_max
        if found[-1] and not fits:
            found.append([])
            chars = 0
        for name in group:
            chars += len(report.texts[name])
            if len(found[-1]) >= vms_max or (found[-1] and chars > SLICE_CHARS_MAX):
                found.append([])
                chars = len(report.texts[name])
            found[-1].append(name)
    parts = []
    for part, following in zip(found, [*found[1:], []], strict=True):
        goes_on = {_scope_of(report, name) for name in following[:1]}
        parts.append(
            Slice(tuple(part), frozenset(goes_on & {_scope_of(report, n) for n in part[-1:]}))
        )
    return parts


def _by_scope(report: Report) -> Iterator[list[str]]:
    names = sorted(report.usable, key=lambda name: (_scope_of(report, name), name))
    for _, group in groupby(names, key=lambda name: _scope_of(report, name)):
        yield list(group)


def _scope_of(report: Report, name: str) -> str:
    """The scope that a VM says it is in. A file may say otherwise; then it is taken in pieces."""
    return report.usable[name].traits.scope or name
