"""Whether the agent in a VM reads its document, from when it was last heard to poll."""

from __future__ import annotations

from enum import StrEnum

from forewarn.core.model import MINUTE_MS, Vm

STOPPED_AFTER_MS = 5 * MINUTE_MS  # longer than an agent that is well waits between two polls


class Reading(StrEnum):
    NEVER = "never"  # it has not polled, ever
    READING = "reading"
    STOPPED = "stopped"  # it polled once, and does not any more
    OFF = "off"  # it polled once, and is switched off
    UNKNOWN = "unknown"  # its host is not heard or does not tell, or control has just started


def reading(
    vm: Vm,
    *,
    polled_ago_ms: int | None,
    listened_ms: int,
    host_alive: bool,
    polls_told: bool = True,
) -> Reading:
    """`polled_ago_ms` is None if no poll was heard in the `listened_ms` since control started.

    `polls_told` is whether its host tells the polls of VMs: of one that does not nothing is known.
    """
    if not polls_told:
        return Reading.UNKNOWN
    if not vm.has_polled and polled_ago_ms is None:
        return Reading.NEVER
    if vm.off:
        return Reading.OFF
    if not host_alive:
        return Reading.UNKNOWN
    if polled_ago_ms is None:
        return Reading.STOPPED if listened_ms >= STOPPED_AFTER_MS else Reading.UNKNOWN
    return Reading.STOPPED if polled_ago_ms >= STOPPED_AFTER_MS else Reading.READING
