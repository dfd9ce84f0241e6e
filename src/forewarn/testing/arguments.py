"""The words that describe a cloud: arguments of `Cloud`, of the marker and of `make_cloud`.

What they may say is the same everywhere and is decided here: words in, a checked plan out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict

from forewarn.core.errors import BadInventory, Invalid
from forewarn.core.suggestions import meant, shown
from forewarn.emulator.clock import parse_speed
from forewarn.emulator.fleet import ComputerNames, inventory_text, numbered_vms, read_computer_names
from forewarn.emulator.instance_values import InstanceValue, read_value
from forewarn.endpoint.routes import MetadataHeader
from forewarn.settings import SIMULATE_DEFAULTS, BadSettings, Enablement, Settings, load
from forewarn.settings import read_inventory as read_file
from forewarn.testing.values import ms_of
from forewarn.wire.instants import parse_time
from forewarn.wiring.simulate import EmulationPlan


class SettingArguments(TypedDict, total=False):
    """The settings of the service that a cloud can have; docs/settings.md describes each."""

    enablement: Enablement
    metadata_header: MetadataHeader
    guest_names: Sequence[str]
    guest_requests_per_second: int
    user_events_max: int
    postponements_max: int
    postpone_seconds_max: int
    domain_recovery_seconds: int
    freeze_seconds: int
    reboot_seconds: int
    redeploy_seconds: int
    delete_seconds: int
    operator_name: str
    location: str
    resource_group: str
    subscription_id: str


class CloudArguments(SettingArguments, total=False):
    """Everything that can be said about a cloud.

    `vms` are names of standalone VMs, or how many (3: vm0, vm1, vm2); `scopes` are like `web:3`;
    `inventory` is the path or the text of an inventory file; without any of them there is one VM,
    vm0. `spot` names the VMs or scopes that can be evicted; True is all. `computer_names` "vmss"
    names computers as a scale set does (web00000i); `instance` has values of /metadata/instance by
    path, like {"compute/vmSize": "Standard_D2s_v3"}. `seed` makes every run the same to the byte;
    without one, ids differ in each run. `start` is what the clock shows first: an aware datetime,
    or a text like 2026-03-03T10:15:00Z. `clock` is `virtual` (it stands until it is turned), `real`
    or `x60`.
    """

    vms: int | Sequence[str]
    scopes: Sequence[str]
    spot: bool | Sequence[str]
    computer_names: ComputerNames
    instance: Mapping[str, object]
    inventory: str | Path
    seed: int
    start: datetime | str
    clock: str


def plan_of(words: Mapping[str, Any]) -> EmulationPlan:
    """The plan that these words mean. Raises Invalid, or BadInventory, with what is wrong."""
    for word in words:
        if word not in CloudArguments.__annotations__:
            raise Invalid(f"A cloud has no {word}.", meant(word, CloudArguments.__annotations__))
    seed = words.get("seed")
    if seed is not None and type(seed) is not int:
        raise Invalid(f"{shown(seed)} is no seed.", "Give a whole number.")
    return EmulationPlan(
        settings=_settings(
            {k: v for k, v in words.items() if k in SettingArguments.__annotations__}
        ),
        inventory=_inventory(words),
        seed=seed,
        start_ms=_start_ms(words.get("start")),
        speed=parse_speed(str(words.get("clock", "virtual"))),
        instance=_instance(words.get("instance", {})),
    )


def _instance(values: object) -> tuple[InstanceValue, ...]:
    if not isinstance(values, Mapping):
        raise Invalid(
            f"instance is {shown(values)}.", 'Give values by path: {"compute/vmSize": "..."}.'
        )
    return tuple(read_value(path, value) for path, value in values.items())


def is_path(inventory: object) -> bool:
    """Whether an inventory is given by its path: a Path, or a text of one line without tables."""
    if isinstance(inventory, Path):
        return True
    return isinstance(inventory, str) and "\n" not in inventory and "[[" not in inventory


def _settings(given: Mapping[str, object]) -> Settings:
    # Nothing of the environment: a test must not depend on who runs it. Nothing is written.
    options = {key: _as_option(value) for key, value in given.items()}
    try:
        return load(file=None, environment={}, options=options, defaults=SIMULATE_DEFAULTS)
    except BadSettings as bad:
        # Each begins with the option of the command line that it is not.
        mistakes = [mistake.partition(": ")[2] for mistake in bad.mistakes]
        raise Invalid(" ".join(mistakes)) from None


def _as_option(value: object) -> str:
    """The value as the command line would be given it."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _inventory(words: Mapping[str, Any]) -> str:
    inventory = words.get("inventory")
    if inventory is None:
        return inventory_text(
            vms=_vms(words),
            scopes=_names(words, "scopes"),
            spot=_spot(words.get("spot", False)),
            computer_names=read_computer_names(words.get("computer_names", "vm")),
        )
    if not words.keys().isdisjoint(("vms", "scopes", "spot", "computer_names")):
        raise Invalid(
            "An inventory says the whole fleet.",
            "Leave out vms, scopes, spot and computer_names, or it.",
        )
    if not isinstance(inventory, str | Path):
        raise BadInventory(
            f"{shown(inventory)} is no inventory.", "Give the path of a TOML file, or its text."
        )
    return read_file(Path(inventory)) if is_path(inventory) else str(inventory)


def _vms(words: Mapping[str, Any]) -> Sequence[str]:
    vms = words.get("vms")
    return numbered_vms(vms) if type(vms) is int else _names(words, "vms")


def _spot(spot: object) -> Sequence[str] | bool:
    return spot if isinstance(spot, bool) else _names({"spot": spot}, "spot")


_ACCEPTED = {
    "vms": 'a number of VMs, or a list of names like ["vm0", "vm1"]',
    "scopes": 'a list of texts, like ["web:3"]',
    "spot": 'True for all VMs, or a list of names like ["vm0"]',
}


def _names(words: Mapping[str, Any], word: str) -> Sequence[str]:
    names = words.get(word, ())
    listed = isinstance(names, Iterable) and not isinstance(names, str | bytes | Mapping)
    found = tuple(names) if listed else ()
    if not listed or not all(isinstance(name, str) for name in found):
        raise Invalid(f"{word} is {shown(names)}.", f"Give {_ACCEPTED[word]}.")
    return found


def _start_ms(start: object) -> int | None:
    if start is None:
        return None
    if isinstance(start, datetime) and start.tzinfo is not None:
        return ms_of(start)
    if isinstance(start, str) and not start.startswith("+"):
        return parse_time(start, now_ms=0)
    raise Invalid(
        f"{shown(start)} is not a time that a clock can start with.",
        "Give a datetime with a zone, or a text like 2026-03-03T10:15:00Z.",
    )
