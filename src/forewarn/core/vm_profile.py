"""What is said of a VM wherever it runs, as one value.

An inventory file says it, or the metadata that a host reports; the fleet keeps it, guests and
operators read it. What each attribute takes is in `text.attributes`.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Priority(StrEnum):
    REGULAR = "regular"
    SPOT = "spot"


class VmProfile(Struct, frozen=True, kw_only=True):
    """The attributes of a VM that do not depend on where it runs or which scope it is in."""

    priority: Priority = Priority.REGULAR
    address: str | None = None
    listen: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    fault_domain: int = 0
    zone: str = ""
    os_type: str = "Linux"
    computer_name: str = ""


NOTHING_SAID = VmProfile()
ATTRIBUTES = VmProfile.__struct_fields__
# Those that the metadata of a domain may say; an inventory file says all.
IN_METADATA = ("priority", "address", "tags", "fault_domain", "zone", "os_type")
