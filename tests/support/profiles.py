"""VMs, entries of a file and traits, described by keyword. No test lives here."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from msgspec.structs import replace

from forewarn.core.inventory.entries import VmEntry
from forewarn.core.inventory.host_report import Traits
from forewarn.core.model import Vm
from forewarn.core.vm_profile import ATTRIBUTES, VmProfile

D = TypeVar("D", Vm, VmEntry, Traits)


def described(value: D, **keys: Any) -> D:
    """The same with these keys, its own and those of its profile; None leaves a profile's out."""
    of_profile = {key: keys.pop(key) for key in ATTRIBUTES if key in keys}
    said: dict[str, Any] = {
        key: getattr(VmProfile(), key) if one is None else one for key, one in of_profile.items()
    }
    keys["profile"] = replace(value.profile, **said)
    if isinstance(value, VmEntry):
        return dataclasses.replace(value, **keys)
    return replace(value, **keys)


def traits(**keys: Any) -> Traits:
    """What the owner of a VM says of it."""
    return described(Traits(), **keys)
