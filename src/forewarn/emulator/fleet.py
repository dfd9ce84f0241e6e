"""A fleet from a few words: the inventory that `--vm` and `--scope` stand for."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from forewarn.core.errors import Invalid
from forewarn.core.suggestions import meant, shown

FIRST_VM = "vm0"
ANY_PORT = "127.0.0.1:0"  # whichever is free
VMS_MAX = 10_000
ComputerNames = Literal["vm", "vmss"]
COMPUTER_NAME_DIGITS = 6
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_SCOPE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]{0,57}):(?P<size>[1-9][0-9]{0,4})")


def numbered_vms(count: int) -> tuple[str, ...]:
    """The names of so many standalone VMs: vm0, vm1, ... Raises Invalid for too few or many."""
    if not 1 <= count <= VMS_MAX:
        raise Invalid(
            f"There cannot be {count} VMs.", f"One emulator takes from 1 to {VMS_MAX} VMs."
        )
    return tuple(f"vm{number}" for number in range(count))


def read_computer_names(text: object) -> ComputerNames:
    """`vm` or `vmss`. Raises Invalid."""
    if text == "vm" or text == "vmss":  # noqa: PLR1714 - mypy narrows these
        return text
    raise Invalid(f"There are no computer names {shown(text)}.", "Use vm or vmss.")


def computer_name(scope: str, number: int) -> str:
    """The computer name of a numbered VM of a scale set: six digits of base 36 (C9)."""
    digits = ""
    for _ in range(COMPUTER_NAME_DIGITS):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return f"{scope}{digits}"


def inventory_text(
    *,
    vms: Sequence[str] = (),
    scopes: Sequence[str] = (),
    spot: Sequence[str] | bool = False,
    computer_names: ComputerNames = "vm",
) -> str:
    """The inventory of standalone VMs and of scopes like `web:3`; one VM, vm0, if none is named.

    `web:3` is a placement group of web_0, web_1 and web_2 in update domains 0, 1 and 2. Every VM
    has a host of its own and one host is spare, so that each can be maintained, moved and lost
    alone. `spot` names the VMs, or scopes, that may be evicted; True is all of them. With
    `computer_names` "vmss" the computer name of web_18 is web00000i, as in a scale set of AKS.

    Raises Invalid for a scope that is not NAME:SIZE, for a name that stands twice and for a Spot
    VM that there is not; else names are judged with the inventory.
    """
    named: list[tuple[str, str, int]] = []  # VM, scope, update domain
    groups: list[str] = []
    for given in scopes:
        match = _SCOPE.fullmatch(given)
        if match is None:
            raise Invalid(
                f"{given!r} is not a scope of the emulator.",
                "Write a name and how many VMs it has, like web:3.",
            )
        name = match["name"]
        groups.append(name)
        named += [(f"{name}_{domain}", name, domain) for domain in range(int(match["size"]))]
    named = [(vm, "", 0) for vm in vms] + named or [(FIRST_VM, "", 0)]
    if len(named) > VMS_MAX:
        raise Invalid(
            f"{len(named)} VMs are too many.", f"One emulator takes at most {VMS_MAX} VMs."
        )
    _refuse_twice("VM", [vm for vm, _, _ in named])
    _refuse_twice("scope", [*vms, *groups])  # a standalone VM is a scope of its name
    evictable = _evictable(named, spot=spot)
    hosts = [f"host{number}" for number in range(len(named))]
    tables = [f"[[host]]\nname = {json.dumps(host)}" for host in [*hosts, "spare"]]
    tables += [f'[[scope]]\nname = "{name}"\nkind = "placement-group"' for name in groups]
    tables += [
        _vm_table(
            vm,
            scope,
            domain,
            host,
            spot=vm in evictable,
            computer=computer_name(scope, domain) if scope and computer_names == "vmss" else "",
        )
        for (vm, scope, domain), host in zip(named, hosts, strict=True)
    ]
    return "\n\n".join(tables) + "\n"


def _refuse_twice(what: str, names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise Invalid(
            f"Two {what}s are called {twice[0]}.",
            "Give each a name of its own; `web:3` has the VMs web_0, web_1 and web_2.",
        )


def _evictable(named: Sequence[tuple[str, str, int]], *, spot: Sequence[str] | bool) -> set[str]:
    """The names of the VMs that may be evicted."""
    if isinstance(spot, bool):
        return {vm for vm, _, _ in named if spot}
    known = {name for vm, scope, _ in named for name in (vm, scope) if name}
    strangers = [name for name in spot if name not in known]
    if strangers:
        raise Invalid(
            f"There is no VM or scope {shown(strangers[0])} to be Spot.",
            meant(strangers[0], known),
        )
    return {vm for vm, scope, _ in named if vm in spot or scope in spot}


def _vm_table(vm: str, scope: str, domain: int, host: str, *, spot: bool, computer: str) -> str:
    lines = ["[[vm]]", f"name = {json.dumps(vm)}", f'host = "{host}"', f'listen = "{ANY_PORT}"']
    if spot:
        lines.append('priority = "spot"')
    if computer:
        lines.append(f"computer_name = {json.dumps(computer)}")
    if scope:
        lines += [f'scope = "{scope}"', f"update_domain = {domain}"]
    return "\n".join(lines)
